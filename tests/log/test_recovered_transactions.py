"""Aborted transactions that only the index still knows of, after a crash and damage at once."""

from __future__ import annotations

import errno
import random

import pytest

from ottla.broker.log.log import Log
from ottla.broker.log.segment import Segment
from ottla.broker.log.transaction_index import AbortedTransaction, pack
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.log.events import RecordedEvents
from tests.log.logs import NOW, SMALL, append, flush, new_disk, open_log
from tests.log.test_log_transactions import end, write
from tests.log.test_waypoints import CONFIG, mark

CALLS_MAX = 400


def aborting_log(disk: SimDisk) -> Log:
    """Transactions of two batches and a marker, one behind the other, over several segments."""
    log = open_log(disk, SMALL)
    for sequence in range(0, 24, 2):
        write(log, 2, sequence)
        write(log, 2, sequence + 1)
        end(log, 2, committed=False)
    append(log)
    flush(log)
    return log


def entries(log: Log) -> dict[int, list[AbortedTransaction]]:
    return {one.base_offset: one.transactions.entries() for one in log.segments}


def harm(disk: SimDisk, segment: Segment, offset: int) -> None:
    """The header of a batch is broken."""
    position, _ = segment.locate(offset)
    disk.corrupt(segment.log_path, position + 16, b"\7")


def recover(disk: SimDisk, point: int, events: RecordedEvents | None = None) -> Log:
    return open_log(
        disk, SMALL, clean=False, recovery_point=point, high_watermark=10**6, events=events
    )


@pytest.mark.parametrize("which", ["first batch", "second batch", "marker", "last marker"])
@pytest.mark.parametrize("at", [1, -1])
def test_what_damage_has_taken_is_known_by_the_index(which: str, at: int) -> None:
    disk = new_disk()
    log = aborting_log(disk)
    segment = log.segments[at]
    known, end_offset = entries(log), log.log_end_offset
    point = end_offset if at < 0 else log.segments[at + 1].base_offset
    aborted = log.aborted_transactions(0, point)
    inside = [one for one in known[segment.base_offset] if one.first_offset >= segment.base_offset]
    taken = inside[0]
    offset = {
        "first batch": taken.first_offset,
        "second batch": taken.last_offset - 1,
        "marker": taken.last_offset,
        "last marker": inside[-1].last_offset,
    }[which]
    log.close()
    harm(disk, segment, offset)
    for _ in range(2):
        log = recover(disk, point)

        assert {base: entries(log)[base] for base in known} == known
        assert log.aborted_transactions(0, point) == aborted
    log.close()
    again = open_log(disk, SMALL, recovery_point=point, high_watermark=10**6)
    assert again.aborted_transactions(0, point) == aborted


def test_a_durable_tail_that_is_lost_leaves_its_aborted_transactions() -> None:
    disk = new_disk()
    log = aborting_log(disk)
    segment, point = log.segments.active, log.log_end_offset
    aborted = log.aborted_transactions(0, point)
    taken = segment.transactions.entries()[0]
    position, _ = segment.locate(taken.last_offset)
    log.close()
    disk.corrupt(segment.log_path, position, bytes(segment.size - position))
    log = recover(disk, point)

    assert log.log_end_offset == point
    assert log.aborted_transactions(0, point) == aborted
    assert log.producer_state.open_transactions == {}


@pytest.mark.parametrize("number", [0, -1])
def test_a_transaction_whose_marker_is_damaged_does_not_stay_open(number: int) -> None:
    """The last one would stop readers of committed data for good, any other be taken for a part of
    the next, which may end otherwise."""
    disk = new_disk()
    log = aborting_log(disk)
    segment = log.segments.active
    taken = segment.transactions.entries()[number]
    write(log, 2, 24)
    end(log, 2, committed=True)
    flush(log)
    point = log.log_end_offset
    aborted = log.aborted_transactions(0, point)
    log.close()
    harm(disk, segment, taken.last_offset)
    events = RecordedEvents()
    log = recover(disk, point, events)

    assert "transaction_left_open" not in events.names
    assert log.last_stable_offset == point
    assert log.aborted_transactions(0, point) == aborted


@pytest.mark.parametrize("mode", CrashMode)
def test_a_crash_on_the_way_takes_nothing_of_it(mode: CrashMode) -> None:
    disk = new_disk()
    log = aborting_log(disk)
    segment, point = log.segments[-1], log.log_end_offset
    aborted = log.aborted_transactions(0, point)
    log.close()
    harm(disk, segment, segment.transactions.entries()[0].last_offset)
    crashed: list[SimDisk] = []
    disk.before_call = lambda count, call, path: crashed.append(
        disk.crash(random.Random(count), mode)
    )
    log = recover(disk, point)
    disk.before_call = None
    crashed.append(disk.crash(random.Random(0), mode))
    assert 5 < len(crashed) < CALLS_MAX
    for left in crashed:
        assert recover(left, point).aborted_transactions(0, point) == aborted


def test_an_entry_that_was_never_durable_is_not_believed() -> None:
    disk = new_disk()
    log = aborting_log(disk)
    segment, point = log.segments.active, log.log_end_offset
    stored = segment.transactions.entries()
    log.close()
    false = [
        AbortedTransaction(7, point, point, point + 1),
        AbortedTransaction(7, stored[-1].last_offset, stored[-1].first_offset, point),
    ]
    disk.open(segment.transactions.path).pwrite(pack([*stored, *false]), 0)
    harm(disk, segment, stored[0].last_offset)
    log = recover(disk, point)

    assert entries(log)[segment.base_offset] == stored


def test_an_index_that_cannot_be_read_is_made_anew_from_the_batches() -> None:
    disk = new_disk()
    log = aborting_log(disk)
    segment, point = log.segments.active, log.log_end_offset
    aborted = log.aborted_transactions(0, point)
    log.close()
    disk.inject("pread", errno.EIO, path=segment.transactions.path)
    events = RecordedEvents()
    log = recover(disk, point, events)

    assert events.fields("index_unreadable")["path"] == segment.transactions.path
    assert log.aborted_transactions(0, point) == aborted


def test_an_entry_whose_marker_a_crash_took_does_not_come_back() -> None:
    """It was written with a waypoint, and the log behind the waypoint before was never synced."""
    disk = new_disk()
    log = open_log(disk, CONFIG)
    write(log, 7, 0)
    end(log, 7, committed=False)
    mark(log)
    write(log, 7, 1)
    end(log, 7, committed=False)
    ticket = log.begin_waypoint()
    assert ticket is not None
    ticket.write()
    position, _ = log.segments.active.locate(2)
    disk.open(log.segments.active.log_path).truncate(position)
    log = open_log(disk, CONFIG, clean=False, recovery_point=2)
    assert (log.log_end_offset, log.recovery.bytes_scanned) == (2, 0)
    write(log, 7, 1)
    end(log, 7, committed=True)
    append(log)
    log.close()
    again = open_log(disk, CONFIG, recovery_point=5, high_watermark=5)

    assert again.aborted_transactions(0, 5) == [(7, 0)]


def test_what_a_segment_that_ends_below_its_recovery_point_knew_is_durable() -> None:
    """It is sealed at the start, and no later start reads it again."""
    disk = new_disk()
    log = aborting_log(disk)
    segment, point = log.segments.active, log.log_end_offset
    aborted = log.aborted_transactions(0, point)
    log.close()
    position, _ = segment.locate(point - 1)
    disk.open(segment.log_path).truncate(position)
    log = recover(disk, point)
    assert log.segments.active.base_offset == point
    append(log, timestamp=NOW)
    flush(log)
    for seed in range(20):
        left = disk.crash(random.Random(seed), CrashMode.SUBSET)
        assert recover(left, point + 1).aborted_transactions(0, point) == aborted
