"""Loading logs after kill -9 with Kafka's flush.messages: the whole of each segment is scanned.

The same bytes are put into the partitions of both servers while they are down. The figures are of
the servers' own log lines: how long it took them to load the logs, and nothing else of a start.
"""

from __future__ import annotations

import random
import re
import shutil
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from tests.bench.workload import Figures, Work, at_most
from tests.peers import topics
from tests.peers.servers import ApacheKafka, Ottla, Server

LOGGING = Path(__file__).with_name("log4j2-loading.properties")
PARTITIONS = 4
BATCHES_BYTES = 5 << 30
SINGLES_BYTES = 1 << 30
WRITE_BYTES = 4 << 20
LOG_NAME = f"{0:020d}.log"
CREATED_SECONDS_MAX = 30.0
TIMESTAMP = 1_700_000_000_000
# What each server says when its logs are loaded; the milliseconds are the group.
LOADED = {
    Ottla.name: re.compile(r'"?logs_loaded.*?took_ms"?[=:] ?(\d+)'),
    ApacheKafka.name: re.compile(r"Loaded \d+ logs in (\d+)ms"),
}


class TalkingKafka(ApacheKafka):
    """Apache Kafka with the lines of its log manager."""

    def command(self) -> list[str]:
        java, *arguments = super().command()
        at = arguments.index("-cp")
        return [java, *arguments[:at], f"-Dlog4j2.configurationFile={LOGGING}", *arguments[at:]]


def _write_segment(path: Path, size: int, record_bytes: int) -> None:
    """Fills a .log file with batches of one record."""
    value = random.Random(record_bytes).randbytes(record_bytes)
    one = bytes(build_batch([Record(0, TIMESTAMP, None, value)], leader_epoch=0))
    count = WRITE_BYTES // len(one)
    offset = 0
    with path.open("wb") as file:
        while file.tell() < size:
            block = bytearray(one * count)
            for index in range(count):
                # The offset lies outside the CRC.
                struct.pack_into(">q", block, index * len(one), offset + index)
            file.write(block)
            offset += count


def _load_seconds(running: Server, topic: str, fill: Callable[[Path], None]) -> float:
    folder = Path(tempfile.mkdtemp(prefix="ottla-bench-loading-"))
    kind = TalkingKafka if isinstance(running, ApacheKafka) else Ottla
    server = kind(folder, log_flush_interval_messages=2**63 - 1)
    try:
        server.start()
        topics.create(server.bootstrap, {topic: PARTITIONS})
        directories = [server.data / f"{topic}-{partition}" for partition in range(PARTITIONS)]
        deadline = time.monotonic() + CREATED_SECONDS_MAX
        while not all((one / LOG_NAME).exists() for one in directories):
            assert time.monotonic() < deadline, f"{server.name} makes no directories"
            time.sleep(0.05)
        server.kill()
        for directory in directories:
            for stale in directory.glob("0*"):
                stale.unlink()
            fill(directory / LOG_NAME)
        server.output.unlink()
        server.start()
        found = LOADED[running.name].search(server.output.read_text("utf-8", "replace"))
        if found is None:
            raise RuntimeError(f"{server.name} does not say how long it loaded:\n{server.tail()}")
        return int(found[1]) / 1000
    finally:
        server.close()
        shutil.rmtree(folder)


def _run(server: Server, scale: float) -> Figures:
    batches = int(BATCHES_BYTES * scale) // PARTITIONS
    singles = int(SINGLES_BYTES * scale) // PARTITIONS
    return {
        "16 KiB batches s": _load_seconds(
            server, "batches", lambda path: _write_segment(path, batches, 16_300)
        ),
        "one-record batches s": _load_seconds(
            server, "singles", lambda path: _write_segment(path, singles, 100)
        ),
    }


LOADING = Work(
    "loading",
    "loading logs after kill -9, flush.messages as Kafka's: 5 GB and 1 GB in 4 partitions",
    _run,
    {"16 KiB batches s": at_most(1.0), "one-record batches s": at_most(1.0)},
)
