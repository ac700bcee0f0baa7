"""kcat: one run for each codec and partition, since headers and codec hold for a whole run."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import groupby

from tests.conformance.python import arguments
from tests.conformance.records import (
    CODECS,
    PARTITIONS,
    Digest,
    Headers,
    Record,
    in_partition,
    records_of,
)

KEY_ENDS = b"<:key:>"
RECORD_ENDS = b"<:record:>"
FORMAT = "%o %K %S\n%k%s%h\n"


def _joined(items: list[Record]) -> bytes:
    for item in items:
        assert KEY_ENDS not in item.key + item.value
        assert RECORD_ENDS not in item.key + item.value
    return b"".join(item.key + KEY_ENDS + item.value + RECORD_ENDS for item in items)


def produce(bootstrap: str, topic: str, count: int) -> None:
    for codec in CODECS:
        items = sorted(
            records_of(codec, count, codec_header_only=True), key=lambda item: item.partition
        )
        for partition, group in groupby(items, key=lambda item: item.partition):
            command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", str(partition)]
            command += ["-K", KEY_ENDS.decode(), "-D", RECORD_ENDS.decode()]
            command += ["-z", codec, "-H", f"codec={codec}"]
            subprocess.run(command, input=_joined(list(group)), check=True)


def _parsed(output: bytes) -> Iterator[tuple[int, bytes | None, bytes | None, Headers]]:
    """The records of one partition as FORMAT printed them."""
    position = 0
    while position < len(output):
        end = output.index(b"\n", position)
        offset, key_size, value_size = map(int, output[position:end].split())
        key_end = end + 1 + max(key_size, 0)
        value_end = key_end + max(value_size, 0)
        line_end = output.index(b"\n", value_end)
        headers: Headers = []
        for pair in filter(None, output[value_end:line_end].split(b",")):
            name, _, content = pair.partition(b"=")
            headers.append((name.decode(), content))
        key = None if key_size < 0 else output[end + 1 : key_end]
        value = None if value_size < 0 else output[key_end:value_end]
        yield offset, key, value, headers
        position = line_end + 1


def consume(bootstrap: str, topic: str, count: int) -> list[str]:
    digest = Digest()
    for partition in range(PARTITIONS):
        command = ["kcat", "-C", "-q", "-e", "-b", bootstrap, "-t", topic, "-p", str(partition)]
        command += ["-o", "0", "-c", str(in_partition(partition, count)), "-f", FORMAT]
        output = subprocess.run(command, check=True, capture_output=True).stdout
        for offset, key, value, headers in _parsed(output):
            digest.add(partition, offset, key, value, headers)
    return digest.hex()


if __name__ == "__main__":
    arguments.run(produce, consume)
