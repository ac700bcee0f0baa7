"""Logs on a simulated disk, and batches to put into them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.broker.log.log import UPPER_HIGH_WATERMARK, UPPER_LOG_END, Log
from ottla.broker.log.manager import LogManager
from ottla.broker.log.time_search import BatchSearch, Steps, TimedOffset
from ottla.broker.ports import Disk
from ottla.config.types import LogConfig
from ottla.protocol.records.batch import BatchHeader, iterate_headers
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from ottla.testing.disk import SimDisk
from tests.log.events import RecordedEvents

DIRECTORY = "/data/orders-0"
TOPIC_ID = bytes(range(16))
NOW = 1_700_000_000_000

# Small enough that a dozen batches roll, with an index entry for nearly every one.
SMALL = LogConfig(segment_bytes=1000, segment_index_bytes=240, index_interval_bytes=100)
# As SMALL, with Kafka's own flush.messages.
RELAXED = LogConfig(
    segment_bytes=1000, segment_index_bytes=240, index_interval_bytes=100, flush_messages=2**63 - 1
)


def new_disk() -> SimDisk:
    """A disk with an empty, durable directory for one partition."""
    disk = SimDisk()
    for path in ("/data", DIRECTORY):
        disk.make_dir(path)
    disk.sync_dir("/")
    disk.sync_dir("/data")
    return disk


def open_log(
    disk: Disk,
    config: LogConfig | None = None,
    *,
    directory: str = DIRECTORY,
    clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    now_ms: int = NOW,
    events: RecordedEvents | None = None,
) -> Log:
    return Log.open(
        disk,
        directory,
        topic="orders",
        partition=0,
        topic_id=TOPIC_ID,
        config=config or LogConfig(),
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        clean=clean,
        now_ms=now_ms,
        events=events or RecordedEvents(),
    )


def batch(count: int = 1, *, size: int = 20, timestamp: int = NOW, **fields: Any) -> memoryview:
    """A batch as a client sends it; timestamps ascend by one from `timestamp`."""
    records = [Record(0, timestamp + index, b"k%d" % index, b"v" * size) for index in range(count)]
    return memoryview(build_batch(records, **fields))


def timed_batch(timestamps: Sequence[int], **fields: Any) -> memoryview:
    return memoryview(build_batch([Record(0, one, b"k", b"v") for one in timestamps], **fields))


def append(
    log: Log,
    *args: Any,
    epoch: int = 0,
    now_ms: int = NOW,
    is_awaited: bool = False,
    **fields: Any,
) -> int:
    """Appends one batch; its base offset."""
    records = batch(*args, **fields)
    return log.append_as_leader(
        records, leader_epoch=epoch, now_ms=now_ms, is_awaited=is_awaited
    ).base_offset


def flush(log: Log) -> None:
    ticket = log.begin_flush()
    if ticket is not None:
        ticket.sync()
        log.finish_flush(ticket)
    log.set_high_watermark(log.visible_end)


def headers_of(data: bytes) -> list[BatchHeader]:
    return [header for _, header in iterate_headers(data)]


def read_all(log: Log, upper: int = UPPER_LOG_END, *, max_bytes: int = 300) -> bytes:
    """Every batch from the log's start on, as a consumer would fetch them."""
    parts: list[bytes] = []
    offset = log.log_start_offset
    while True:
        found = log.read(offset, max_bytes=max_bytes, upper=upper, at_least_one=True)
        if found is None:
            return b"".join(parts)
        data = found.read()
        assert found.known in (b"", data)
        assert len(data) == found.size
        for position, header in iterate_headers(data):
            if header.last_offset >= offset:
                parts.append(data[position : position + header.size])
                offset = header.last_offset + 1


def offsets(log: Log, upper: int = UPPER_HIGH_WATERMARK) -> list[int]:
    """The base offsets of all batches that a reader gets."""
    return [header.base_offset for header in headers_of(read_all(log, upper))]


def run_all(steps: Steps) -> TimedOffset | None:
    """What a look-up by time finds, with nobody else's turn in between."""
    found: TimedOffset | None = None
    while True:
        try:
            search = steps.send(found)
        except StopIteration as done:
            result: TimedOffset | None = done.value
            return result
        found = search.run() if isinstance(search, BatchSearch) else None


def first_at_time(log: Log, timestamp: int) -> TimedOffset | None:
    """(offset, timestamp, epoch) of the first record with at least that timestamp."""
    return run_all(log.steps_to_timestamp(timestamp))


def delete_some_segments(manager: LogManager, log: Log) -> bool:
    """One turn of the retention job for one log; True if there may be more."""
    deletions = manager.deletions
    segments = deletions.retire(log)
    if segments:
        manager.checkpoint_log_start_offsets()
    deletions.set_aside(log, segments)
    return deletions.retired(log, segments)
