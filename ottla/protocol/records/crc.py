"""The two checksums of Kafka's record formats.

CRC-32C (Castagnoli) guards record batches of magic 2; CRC-32 (IEEE) guards messages of magic 0
and 1. Both take any bytes-like object and read it in place.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

import crc32c as _castagnoli

Buffer = bytes | bytearray | memoryview

crc32c: Final[Callable[[Buffer], int]] = _castagnoli.crc32c


def crc32c_on(data: Buffer, crc: int) -> int:
    """The CRC-32C of bytes whose first part has the CRC-32C `crc`, and of which `data` follows."""
    return _castagnoli.crc32c(data, crc)


def crc32_ieee(data: Buffer) -> int:
    """The unsigned CRC-32 of zlib and java.util.zip.CRC32."""
    return zlib.crc32(data)
