"""The bound on descriptors over all logs: what is given back is opened again when it is needed."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

import pytest

from ottla.broker.log.log import UPPER_LOG_END, Log
from ottla.broker.log.segments import OPEN_SEALED_MAX
from ottla.broker.open_files import connections_max, held_max, waiting_max
from ottla.broker.posix import PosixDisk, held_descriptors_max
from ottla.protocol.errors import KafkaError
from ottla.testing.disk import SimDisk
from tests.log.logs import SMALL, append, flush, offsets, open_log


def many(disk: SimDisk, count: int) -> list[Log]:
    logs: list[Log] = []
    for index in range(count):
        directory = f"/data/orders-{index}"
        disk.make_dir("/data")
        disk.make_dir(directory)
        logs.append(open_log(disk, SMALL, directory=directory))
    return logs


def written(disk: SimDisk, count: int) -> list[Log]:
    """Logs of one record each, which is synced."""
    logs = many(disk, count)
    for log in logs:
        append(log)
        flush(log)
    return logs


def holders(logs: list[Log]) -> list[int]:
    """The logs, by number, whose active segment is open."""
    return [index for index, log in enumerate(logs) if log.segments.active.file is not None]


def test_a_loaded_log_holds_none() -> None:
    disk = SimDisk()
    logs = many(disk, 5)

    assert len(disk.held) == 0
    assert holders(logs) == []


def test_the_oldest_are_given_back_and_opened_again() -> None:
    disk = SimDisk()
    disk.held_max = 3
    logs = written(disk, 8)
    assert len(disk.held) == 8
    disk.held.release_surplus()
    assert holders(logs) == [5, 6, 7]
    assert len(disk.held) == 3
    append(logs[0])
    disk.held.release_surplus()

    assert holders(logs) == [0, 6, 7]
    flush(logs[0])
    for log in logs:
        assert offsets(log) == list(range(log.log_end_offset))


def test_what_is_unsynced_or_being_sent_survives() -> None:
    disk = SimDisk()
    disk.held_max = 0
    (log,) = many(disk, 1)
    append(log)
    ticket = log.begin_flush()
    assert ticket is not None
    found = log.read(0, max_bytes=1000, upper=UPPER_LOG_END, at_least_one=True)
    assert found is not None
    found.file.pin()
    append(log)
    disk.held.release_surplus()
    ticket.sync()
    log.finish_flush(ticket)
    assert len(found.read()) == found.size
    found.file.unpin()
    flush(log)

    assert log.durable_end == 2
    assert offsets(log) == [0, 1]


def test_what_is_pinned_stays_in_the_count_and_is_not_opened_twice() -> None:
    disk = SimDisk()
    disk.held_max = 1
    logs = written(disk, 4)
    pinned = [log.segments.active.open() for log in logs[:2]]
    for file in pinned * 2:
        file.pin()
    assert (disk.held.pinned, disk.held.pins_left()) == (2, 0)
    assert disk.held.release_surplus() == 0
    assert holders(logs) == [0, 1]
    assert len(disk.held) == 2
    for file in pinned * 2:
        file.unpin()
    disk.held.release_surplus()

    assert (disk.held.pinned, disk.held.pins_left()) == (0, 1)
    assert holders(logs) == [1]


def test_an_append_whose_file_cannot_be_opened_is_refused_and_no_more() -> None:
    disk = SimDisk()
    disk.held_max = 0
    (log,) = many(disk, 1)
    append(log)
    flush(log)
    disk.held.release_surplus()
    disk.inject("open", errno.EMFILE, path=".log", times=2)
    for _ in range(2):
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
            append(log)
    append(log)
    flush(log)

    assert log.failed is None
    assert offsets(log) == [0, 1]


def test_a_file_with_unsynced_pages_stays_open() -> None:
    """The kernel may forget what it could not write once the last descriptor is closed."""
    disk = SimDisk()
    disk.held_max = 0
    logs = many(disk, 3)
    for log in logs:
        append(log)
    flush(logs[1])
    assert disk.held.release_surplus() == 2
    assert holders(logs) == [0, 2]
    flush(logs[0])
    flush(logs[2])
    assert disk.held.release_surplus() == 0

    assert holders(logs) == []


def test_a_sealed_segment_stays_open_until_it_is_synced() -> None:
    disk = SimDisk()
    (log,) = many(disk, 1)
    while len(log.segments) < OPEN_SEALED_MAX + 4:
        append(log)
    sealed = log.segments[:-1]
    assert all(segment.file is not None for segment in sealed)
    flush(log)
    while log.segments[-2] is sealed[-1]:
        append(log)

    assert sum(segment.file is not None for segment in sealed) == OPEN_SEALED_MAX - 1
    assert offsets(log) == list(range(log.visible_end))


def test_sealed_segments_count_too_and_a_closed_log_holds_nothing() -> None:
    disk = SimDisk()
    logs = many(disk, 3)
    for log in logs:
        while len(log.segments) < 4:
            append(log)
        flush(log)
        assert offsets(log) == list(range(log.log_end_offset))
    assert len(disk.held) == 12
    disk.held_max = 5
    disk.held.release_surplus()
    assert len(disk.held) == 5
    for log in logs:
        log.close()

    assert len(disk.held) == 0


def test_the_limit_follows_that_of_the_process(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert held_descriptors_max() == soft // 4
    disk = PosixDisk()
    paths = [f"{tmp_path}/orders-{index}" for index in range(40)]
    logs: list[Log] = []
    for path in paths:
        disk.make_dir(path)
        logs.append(open_log(disk, directory=path))
        append(logs[-1])
        flush(logs[-1])
    in_use = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (20, hard))
    try:
        disk.held.release_surplus()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert len(disk.held) == 5
    assert in_use - len(list(Path("/proc/self/fd").iterdir())) == 35
    for log in logs:
        log.close()


@pytest.mark.parametrize("open_max", [256, 1024, 4096, 1 << 20])
def test_logs_and_connections_leave_each_other_what_is_theirs(open_max: int) -> None:
    connections = connections_max(open_max)
    left = open_max - held_max(open_max) - waiting_max(open_max) - 2 * connections

    assert connections > open_max // 5
    assert left in (64, 65)
