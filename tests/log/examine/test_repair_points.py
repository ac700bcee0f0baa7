"""A range that is taken out at the end of a segment costs nothing that lies behind it, also where
no recovery point was written since: what follows would pass for what was never acknowledged."""

from __future__ import annotations

import random

import pytest

from ottla.broker.log import checkpoints
from ottla.broker.log.checkpoints import (
    LEADER_EPOCH_FILE,
    RECOVERY_POINT_FILE,
    TopicPartition,
    read_offsets,
    read_whole,
    write_offsets,
)
from ottla.broker.log.leader_epochs import LeaderEpochs
from ottla.broker.log.log import Log
from ottla.protocol.records.batch import iterate_headers
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.log.events import RecordedEvents
from tests.log.examine.partitions import content, findings, repair, replace
from tests.log.logs import (
    RELAXED,
    append,
    flush,
    headers_of,
    new_disk,
    open_log,
    read_all,
)
from tests.log.test_log_recovery import bases, path_of

ROWS = f"/data/{RECOVERY_POINT_FILE}"
KEY = ("orders", 0)
OTHERS: dict[TopicPartition, int] = {("orders", 1): 7, ("gone", 0): 3}
COUNT = 40


def killed(*, flushed: bool, rows: dict[TopicPartition, int] | None = None) -> SimDisk:
    """A log dir whose broker was killed, its recovery points not written yet."""
    disk = new_disk()
    log = open_log(disk, RELAXED)
    for offset in range(COUNT):
        append(log, epoch=offset // 4)
    if flushed:
        flush(log)
    write_offsets(disk, ROWS, OTHERS | (rows or {}))
    return disk.crash(random.Random(1), CrashMode.PROCESS)


def harm_end(disk: SimDisk, base_offset: int) -> int:
    """Damages the last batch of a segment; its offset."""
    data = content(disk, f"{base_offset:020d}.log")
    *_, (position, header) = iterate_headers(memoryview(data))
    disk.corrupt(path_of(base_offset), position + 70, b"!!")
    return header.base_offset


def rows_of(disk: SimDisk) -> dict[TopicPartition, int]:
    return read_offsets(disk, ROWS, RecordedEvents())


def started(disk: SimDisk) -> Log:
    return open_log(disk, RELAXED, clean=False, recovery_point=rows_of(disk).get(KEY, 0))


def offsets_of(log: Log) -> list[int]:
    return [header.base_offset for header in headers_of(read_all(log))]


@pytest.mark.parametrize("rows", [{}, {KEY: 1}])
def test_consumers_go_on_behind_what_was_taken_out(rows: dict[TopicPartition, int]) -> None:
    disk = killed(flushed=True, rows=rows)
    _, second, third, _ = bases(disk)
    lost = [harm_end(disk, 0), harm_end(disk, second)]
    repair(disk)
    assert findings(disk) == []
    log = started(disk)

    assert offsets_of(log) == [one for one in range(COUNT) if one not in lost]
    assert log.log_end_offset == COUNT
    assert rows_of(disk) == OTHERS | {KEY: third}


def test_a_segment_of_which_nothing_is_left_costs_none_behind_it() -> None:
    disk = killed(flushed=True)
    first, second, third, _ = bases(disk)
    size = len(content(disk, f"{second:020d}.log"))
    disk.corrupt(path_of(second), 0, b"\xff" * size)
    repair(disk)
    assert findings(disk) == []

    assert offsets_of(started(disk)) == [*range(first, second), *range(third, COUNT)]


def test_a_recovery_point_is_never_lowered() -> None:
    disk = killed(flushed=True, rows={KEY: COUNT})
    harm_end(disk, 0)
    repair(disk)

    assert rows_of(disk) == OTHERS | {KEY: COUNT}


@pytest.mark.parametrize("base", [0, 3])
def test_what_ends_no_sealed_segment_needs_none(base: int) -> None:
    disk = killed(flushed=True)
    base_offset = bases(disk)[base]
    if base == 0:
        disk.corrupt(path_of(0), 70, b"!!")
    else:
        harm_end(disk, base_offset)
    repair(disk)

    assert rows_of(disk) == OTHERS


def test_outside_of_a_log_dir_there_is_no_row_to_write() -> None:
    disk = killed(flushed=True)
    disk.remove(ROWS)
    harm_end(disk, 0)
    repair(disk)

    assert not disk.exists(ROWS)
    assert findings(disk) == []


def test_rows_that_cannot_be_read_are_set_aside() -> None:
    disk = killed(flushed=True)
    file = disk.open(ROWS)
    file.truncate(0)
    file.pwrite(b"x", 0)
    harm_end(disk, 0)
    repair(disk)

    assert read_whole(disk, f"{ROWS}.cut") == b"x"
    assert rows_of(disk) == {KEY: bases(disk)[1]}


@pytest.mark.parametrize("mode", [CrashMode.SUBSET, CrashMode.PREFIX, CrashMode.PROCESS])
def test_what_the_point_vouches_for_is_on_disk(mode: CrashMode) -> None:
    """Of a log that was not synced; the power fails at any call of the repair, or behind it."""
    disk = killed(flushed=False)
    _, second, _, _ = bases(disk)
    lost = harm_end(disk, 0)
    replace(disk, LEADER_EPOCH_FILE, checkpoints.format_rows(["0 0"]))
    crashed: list[SimDisk] = []
    disk.before_call = lambda count, call, path: crashed.append(
        disk.crash(random.Random(count), mode)
    )
    repair(disk)
    disk.before_call = None
    crashed.append(disk.crash(random.Random(0), mode))
    raised = [left for left in crashed if rows_of(left).get(KEY, 0) == second]
    assert 2 < len(raised) < len(crashed)
    for left in raised:
        log = started(left)
        epochs = LeaderEpochs.parse(content(left, LEADER_EPOCH_FILE))

        assert log.log_end_offset >= second
        assert offsets_of(log)[: second - 1] == [one for one in range(second) if one != lost]
        assert epochs.epoch_of(second - 1) == (second - 1) // 4
