"""A repair that is cut short leaves the old file or the new one, and can be done again."""

from __future__ import annotations

import random

import pytest

from ottla.broker.log.asides import CUT_SUFFIX
from ottla.protocol.records.batch import iterate_headers
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.log.examine.partitions import content, filled_disk, findings, repair
from tests.log.examine.test_repair_once import transactional_disk
from tests.log.logs import DIRECTORY, SMALL, open_log, read_all

FIRST = "00000000000000000000"


def damaged_disk() -> tuple[SimDisk, int, bytes]:
    """A disk with a flipped bit in its second batch: where that begins, and its bytes."""
    disk = filled_disk()
    data = content(disk, f"{FIRST}.log")
    _, (position, header), *_ = iterate_headers(data)
    disk.corrupt(f"{DIRECTORY}/{FIRST}.log", position + 70, b"\xff\xff")
    damaged = content(disk, f"{FIRST}.log")[position : position + header.size]
    return disk, position, damaged


@pytest.mark.parametrize("mode", CrashMode)
def test_a_crash_at_any_call_of_a_repair_loses_nothing(mode: CrashMode) -> None:
    disk, position, damaged = damaged_disk()
    crashed: list[SimDisk] = []
    disk.before_call = lambda count, call, path: crashed.append(
        disk.crash(random.Random(count), mode)
    )
    repair(disk)
    disk.before_call = None
    wanted = read_all(open_log(disk, SMALL, clean=False))

    assert len(crashed) > 10
    for left in crashed:
        side = f"{FIRST}.{position}{CUT_SUFFIX}"
        in_log = damaged in content(left, f"{FIRST}.log")
        assert in_log or content(left, side) == damaged
        repair(left)
        assert findings(left) == []
        assert content(left, side) == damaged
        assert [one for one in left.list(DIRECTORY) if one.endswith(CUT_SUFFIX)] == [side]
        assert read_all(open_log(left, SMALL, clean=False)) == wanted


@pytest.mark.parametrize("mode", CrashMode)
def test_a_crash_at_any_call_leaves_the_aborted_transactions_of_the_segment(
    mode: CrashMode,
) -> None:
    disk = transactional_disk()
    log = open_log(disk, SMALL)
    end_offset = log.log_end_offset
    segment = next(one for one in log.segments if one.transactions.entries())
    assert segment is not log.segments.active
    aborted = segment.transactions.entries()
    log.close()
    disk.corrupt(segment.log_path, 70, b"\xff\xff")
    crashed: list[SimDisk] = []
    disk.before_call = lambda count, call, path: crashed.append(
        disk.crash(random.Random(count), mode)
    )
    repair(disk)
    disk.before_call = None
    crashed.append(disk)
    assert len(crashed) > 10
    # The start that ends what the repair began may be cut short, too.
    for left in [
        one for one in crashed if any(name.endswith(".swap") for name in one.list(DIRECTORY))
    ]:
        left.before_call = lambda count, call, path, disk=left: crashed.append(
            disk.crash(random.Random(count), mode)
        )
        open_log(left, SMALL, clean=False, recovery_point=end_offset)
        left.before_call = None
    for left in crashed:
        again = open_log(left, SMALL, clean=False, recovery_point=end_offset)
        found = next(one for one in again.segments if one.base_offset == segment.base_offset)

        assert found.transactions.entries() == aborted
