"""Small payloads that hold, or claim to hold, very much: one per trick that a codec allows."""

from __future__ import annotations

import struct
import zlib

import cramjam

from ottla.protocol.records.codecs import Codec

_XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
_ZSTD_MAGIC = struct.pack("<I", 0xFD2FB528)


def _zstd_rle_blocks(count: int, *, window_log: int = 20, content_size: int | None = None) -> bytes:
    """A zstd frame of RLE blocks: 4 bytes of input for each 128 KiB of output."""
    flags = 0 if content_size is None else 0xC0
    header = _ZSTD_MAGIC + bytes((flags, (window_log - 10) << 3))
    if content_size is not None:
        header += struct.pack("<Q", content_size)
    block = struct.pack("<I", 1 << 1 | 131072 << 3)[:3] + b"a"
    last = struct.pack("<I", 1 | 1 << 1 | 131072 << 3)[:3] + b"a"
    return header + block * (count - 1) + last


def _snappy_declaring(size: int) -> bytes:
    out = bytearray()
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out) + b"\x00a" * 20


def _lz4(data: bytes) -> bytes:
    return bytes(cramjam.lz4.compress(data))


GIB = 1 << 30

# name: codec, payload
TOO_LARGE: dict[str, tuple[Codec, bytes]] = {
    "gzip of zeros": (Codec.GZIP, zlib.compress(bytes(80_000_000), 9, 31)),
    "gzip members": (Codec.GZIP, zlib.compress(bytes(10_000_000), 9, 31) * 15),
    "lz4 of zeros": (Codec.LZ4, _lz4(bytes(80_000_000))),
    "lz4 frames": (Codec.LZ4, _lz4(bytes(10_000_000)) * 10),
    "zstd of zeros": (Codec.ZSTD, bytes(cramjam.zstd.compress(bytes(80_000_000), level=1))),
    "zstd RLE blocks": (Codec.ZSTD, _zstd_rle_blocks(100_000)),
    "zstd frames": (Codec.ZSTD, _zstd_rle_blocks(100) * 100),
    "zstd window of 128 MiB": (Codec.ZSTD, _zstd_rle_blocks(100_000, window_log=27)),
    "raw snappy": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(80_000_000)))),
    "xerial snappy": (
        Codec.SNAPPY,
        _XERIAL
        + b"".join(
            struct.pack(">i", len(block)) + block
            for block in [bytes(cramjam.snappy.compress_raw(bytes(1_000_000)))] * 80
        ),
    ),
}

LIARS: dict[str, tuple[Codec, bytes]] = {
    "zstd content size 2^60": (Codec.ZSTD, _zstd_rle_blocks(1, content_size=1 << 60)),
    "zstd window of 2 GiB": (Codec.ZSTD, _zstd_rle_blocks(1, window_log=31)),
    "zstd window of 2 TiB": (Codec.ZSTD, _zstd_rle_blocks(1, window_log=41)),
    "raw snappy length 2^31": (Codec.SNAPPY, _snappy_declaring(1 << 31)),
    "raw snappy length 2^32 - 1": (Codec.SNAPPY, _snappy_declaring((1 << 32) - 1)),
    "raw snappy length 2^34": (Codec.SNAPPY, _snappy_declaring(1 << 34)),
    "xerial block length 2^31 - 1": (Codec.SNAPPY, _XERIAL + b"\x7f\xff\xff\xff" + b"\x00" * 9),
    "xerial block length -1": (Codec.SNAPPY, _XERIAL + b"\xff\xff\xff\xff" + b"\x00" * 9),
    "xerial block that declares 2^31": (
        Codec.SNAPPY,
        _XERIAL + struct.pack(">i", 45) + _snappy_declaring(1 << 31)[:45],
    ),
    "lz4 block longer than the frame": (
        Codec.LZ4,
        _lz4(b"a")[:7] + b"\xff\xff\xff\x7f" + b"\0" * 20,
    ),
    "gzip of many members": (Codec.GZIP, zlib.compress(b"", 9, 31) * 10_000),
}
