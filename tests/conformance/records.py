"""The records that every client writes, and the digest of what a client reads.

Record i of n, for i = 0 .. n-1:
    partition  i mod 3
    key        "key-" and i in decimal
    value      the 32 bytes of SHA-256 of i in decimal, repeated (i mod 32) + 1 times
    codec      number floor(5 i / n) of none, gzip, snappy, lz4, zstd
    headers    ("codec", the codec's name), ("n", i in decimal), and where 5 divides i ("n", "")
kcat sets headers once a run, so its records carry the first header alone.

A reader feeds each record of a partition, in order, to one SHA-256: offset (int64), key, value,
number of headers (int32), then name and value of each; a key, value or name is its length (int32,
-1 for null) and its bytes; all integers are big-endian. Two readers that agree on the three
digests have read the same records at the same offsets. Every driver implements this page.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Record:
    partition: int
    key: bytes
    value: bytes
    headers: Headers


def record(i: int, count: int, *, codec_header_only: bool = False) -> Record:
    """Record i of the `count` that a client writes."""
    number = b"%d" % i
    headers: Headers = [("codec", CODECS[5 * i // count].encode())]
    if not codec_header_only:
        headers.append(("n", number))
        if i % 5 == 0:
            headers.append(("n", b""))
    value = hashlib.sha256(number).digest() * (i % 32 + 1)
    return Record(i % PARTITIONS, b"key-" + number, value, headers)


def records_of(codec: str, count: int, *, codec_header_only: bool = False) -> Iterator[Record]:
    """The records that go through one codec, in order."""
    for i in range(count):
        if CODECS[5 * i // count] == codec:
            yield record(i, count, codec_header_only=codec_header_only)


def in_partition(partition: int, count: int) -> int:
    """How many of `count` records lie in a partition."""
    return (count - partition + PARTITIONS - 1) // PARTITIONS


def _sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


class Digest:
    """The three running digests of one reader."""

    def __init__(self) -> None:
        self._partitions = [hashlib.sha256() for _ in range(PARTITIONS)]

    def add(
        self,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]],
    ) -> None:
        listed = list(headers)
        parts = [struct.pack(">q", offset), _sized(key), _sized(value)]
        parts.append(struct.pack(">i", len(listed)))
        for name, content in listed:
            parts += [_sized(name.encode()), _sized(content)]
        self._partitions[partition].update(b"".join(parts))

    def hex(self) -> list[str]:
        return [partition.hexdigest() for partition in self._partitions]


def expected(count: int, *, codec_header_only: bool = False) -> list[str]:
    """The digests of a reader that found exactly what was to be written."""
    digest = Digest()
    for i in range(count):
        item = record(i, count, codec_header_only=codec_header_only)
        digest.add(item.partition, i // PARTITIONS, item.key, item.value, item.headers)
    return digest.hex()
