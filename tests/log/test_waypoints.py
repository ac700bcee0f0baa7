"""Waypoints: a recovery begins at one, and only at one that is true."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from ottla.broker.log import waypoint_keeper
from ottla.broker.log.log import Log
from ottla.broker.log.waypoints import WAYPOINT_FILE
from ottla.config.types import LONG_MAX, LogConfig
from ottla.testing.disk import SimDisk
from tests.log.events import RecordedEvents
from tests.log.logs import (
    DIRECTORY,
    NOW,
    append,
    first_at_time,
    flush,
    new_disk,
    open_log,
    read_all,
    run_all,
)

CONFIG = LogConfig(segment_index_bytes=2400, index_interval_bytes=100)
RELAXED = replace(CONFIG, flush_messages=LONG_MAX)
WAYPOINT = f"{DIRECTORY}/{WAYPOINT_FILE}"


def path_of(suffix: str) -> str:
    return f"{DIRECTORY}/{0:020d}{suffix}"


def mark(log: Log) -> None:
    flush(log)
    ticket = log.begin_waypoint()
    assert ticket is not None
    ticket.write()
    log.waypoints.finish(ticket)
    flush(log)
    log.waypoints.name()


def marked(config: LogConfig = CONFIG) -> tuple[SimDisk, bytes]:
    """Twenty batches, a waypoint, then two more; and what is to be read of them."""
    disk = new_disk()
    log = open_log(disk, config)
    for step in range(20):
        append(log, timestamp=NOW + step, producer_id=1, producer_epoch=0, base_sequence=step)
    mark(log)
    for step in (20, 21):
        append(log, timestamp=NOW + step, producer_id=1, producer_epoch=0, base_sequence=step)
    flush(log)
    return disk, read_all(log)


def recover(disk: SimDisk, recovery_point: int = 22, events: RecordedEvents | None = None) -> Log:
    return open_log(
        disk,
        CONFIG,
        clean=False,
        recovery_point=recovery_point,
        high_watermark=10**6,
        events=events,
    )


def check_whole(log: Log, data: bytes) -> None:
    """As if the segment had been scanned from its first byte."""
    assert read_all(log) == data
    assert log.log_end_offset == 22
    assert log.producer_state.producers[1].next_sequence == 22
    for step in range(22):
        assert first_at_time(log, NOW + step) == (step, NOW + step, 0)
    assert run_all(log.steps_to_max_timestamp()) == (21, NOW + 21, 0)


@pytest.mark.parametrize("recovery_point", [20, 21, 22])
def test_the_scan_begins_at_the_waypoint(recovery_point: int) -> None:
    disk, data = marked()
    size = len(data) // 22
    log = recover(disk, recovery_point)

    check_whole(log, data)
    assert log.recovery.bytes_scanned == 2 * size
    append(log, timestamp=NOW + 22)
    flush(log)
    assert first_at_time(log, NOW + 22) == (22, NOW + 22, 0)


def test_a_batch_before_the_waypoint_is_known_when_it_is_repeated() -> None:
    disk, _ = marked()
    log = recover(disk)

    for step in range(17, 22):
        assert (
            append(log, timestamp=NOW + step, producer_id=1, producer_epoch=0, base_sequence=step)
            == step
        )
    assert log.log_end_offset == 22


def truncate_log(disk: SimDisk) -> None:
    file = disk.open(path_of(".log"))
    file.truncate(file.size() // 2)


DAMAGE: dict[str, Callable[[SimDisk], None]] = {
    "missing": lambda disk: disk.remove(WAYPOINT),
    "empty": lambda disk: disk.open(WAYPOINT).truncate(0),
    "short": lambda disk: disk.open(WAYPOINT).truncate(100),
    "version": lambda disk: disk.corrupt(WAYPOINT, 0, b"\0\1"),
    "offset": lambda disk: disk.corrupt(WAYPOINT, 14, bytes(8)),
    "producers": lambda disk: disk.corrupt(WAYPOINT, 141, b"\xff"),
    "index entry": lambda disk: disk.corrupt(path_of(".index"), 3, b"\1"),
    "index lost": lambda disk: disk.remove(path_of(".index")),
    "index cut": lambda disk: disk.open(path_of(".index")).truncate(8),
    "time index entry": lambda disk: disk.corrupt(path_of(".timeindex"), 11, b"\x09"),
    "time index lost": lambda disk: disk.remove(path_of(".timeindex")),
    "epochs lost": lambda disk: disk.remove(f"{DIRECTORY}/leader-epoch-checkpoint"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_one_that_is_not_true_costs_a_whole_scan(damage: str) -> None:
    disk, data = marked()
    DAMAGE[damage](disk)
    log = recover(disk)

    check_whole(log, data)
    assert log.recovery.bytes_scanned == len(data)
    assert log.epochs.entries == [(0, 0)]


def test_one_above_the_recovery_point_is_not_believed() -> None:
    """The batches before it may never have been synced, whatever its own file says."""
    disk, data = marked(RELAXED)
    disk.corrupt(path_of(".log"), len(data) // 22 * 5 + 70, b"!")
    log = recover(disk, 4)

    assert log.log_end_offset == 5
    assert log.recovery.kept_aside


def test_one_of_another_log_is_not_believed() -> None:
    """The segment's batches were replaced by others of the same sizes, offsets and times."""
    disk, data = marked()
    size = len(data) // 22
    for step in range(22):
        disk.corrupt(path_of(".log"), step * size + 12, b"\0\0\0\5")
    log = recover(disk)

    assert log.recovery.bytes_scanned == len(data)
    assert log.epochs.entries == [(5, 0)]


def test_a_log_that_lost_what_lies_before_it_gives_no_offset_twice() -> None:
    disk, _ = marked()
    truncate_log(disk)
    log = recover(disk)

    assert log.recovery.bytes_scanned > 0
    assert append(log) == 22


def test_a_long_scan_leaves_one_at_its_end() -> None:
    disk, data = marked()
    disk.remove(WAYPOINT)
    log = recover(disk)
    assert log.waypoints.is_nameable(log.durable_end)
    log.waypoints.name()
    again = recover(disk)

    check_whole(again, data)
    assert again.recovery.bytes_scanned == 0
    assert not again.waypoints.is_nameable(again.durable_end)


def test_aborted_transactions_before_it_are_known() -> None:
    from ottla.protocol.records.control import build_marker

    disk = new_disk()
    log = open_log(disk, CONFIG)
    append(log, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_as_leader(
        memoryview(
            build_marker(
                producer_id=7, producer_epoch=0, coordinator_epoch=0, committed=False, timestamp=NOW
            )
        ),
        leader_epoch=0,
        now_ms=NOW,
        internal=True,
    )
    append(log, producer_id=7, producer_epoch=0, base_sequence=1, transactional=True)
    mark(log)
    append(log)
    flush(log)
    recovered = recover(disk, 4)

    assert recovered.recovery.bytes_scanned < recovered.size_bytes
    assert recovered.aborted_transactions(0, 3) == [(7, 0)]
    assert recovered.last_stable_offset == 2
    assert recovered.begin_waypoint() is not None
    disk.remove(path_of(".txnindex"))
    rebuilt = recover(disk, 4)
    assert rebuilt.recovery.bytes_scanned == rebuilt.size_bytes
    assert rebuilt.aborted_transactions(0, 3) == [(7, 0)]


def test_a_truncation_voids_it() -> None:
    disk, _ = marked()
    log = open_log(disk, CONFIG, recovery_point=22, clean=False)
    log.set_high_watermark(0)
    ticket = log.begin_waypoint()
    assert ticket is not None
    log.truncate_to(10)
    ticket.write()
    log.waypoints.finish(ticket)

    assert not log.waypoints.is_nameable(log.durable_end)
    assert not disk.exists(WAYPOINT)


def test_one_is_not_made_while_an_epoch_is_unwritten() -> None:
    log = open_log(new_disk(), RELAXED)
    append(log, epoch=3)
    assert log.begin_waypoint() is None
    flush(log)

    assert log.begin_waypoint() is not None


def test_a_full_disk_costs_the_waypoint_and_nothing_else() -> None:
    disk, _ = marked()
    log = recover(disk)
    for _ in range(10):
        append(log)
    disk.inject("create", errno.ENOSPC, path=".tmp")
    assert waypoint_keeper.begin(log) is None
    ticket = waypoint_keeper.begin(log)
    assert ticket is not None
    disk.inject("pwrite", errno.ENOSPC, path=WAYPOINT_FILE)
    assert waypoint_keeper.write_all([(log, ticket)]) == []
    log.waypoints.finish(ticket)
    flush(log)

    assert not log.waypoints.is_nameable(log.durable_end)
    assert recover(disk).log_end_offset == 32


def test_an_index_that_cannot_be_read_costs_the_waypoint_and_nothing_else() -> None:
    """It is no failed write, for which the log dir would be given up."""
    disk, _ = marked()
    log = recover(disk)
    for _ in range(10):
        append(log)
    ticket = waypoint_keeper.begin(log)
    assert ticket is not None
    disk.inject("pread", errno.EIO, path=".index")
    assert waypoint_keeper.write_all([(log, ticket)]) == []
    log.waypoints.finish(ticket)
    flush(log)

    assert not log.waypoints.is_nameable(log.durable_end)


def test_another_error_is_told() -> None:
    disk, _ = marked()
    log = recover(disk)
    ticket = waypoint_keeper.begin(log)
    assert ticket is not None
    disk.inject("pwrite", errno.EIO, path=WAYPOINT_FILE)
    failed = waypoint_keeper.write_all([(log, ticket)])

    assert [(one, error.errno) for one, error in failed] == [(log, errno.EIO)]


def test_the_longest_unmarked_tails_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waypoint_keeper, "UNMARKED_BYTES_MAX", 300)
    monkeypatch.setattr(waypoint_keeper, "UNMARKED_BYTES_MAX_IN_ALL", 2000)
    monkeypatch.setattr(waypoint_keeper, "UNMARKED_BYTES_MIN", 100)
    logs = [open_log(new_disk(), CONFIG) for _ in range(4)]
    for count, log in zip((5, 1, 9, 2), logs, strict=True):
        for _ in range(count):
            append(log)
        flush(log)
    sizes = [log.size_bytes for log in logs]

    assert sizes[1] < 100 < sizes[3] < 300 < sizes[0]
    assert waypoint_keeper.due_logs(logs) == [logs[2], logs[0]]
    monkeypatch.setattr(waypoint_keeper, "UNMARKED_BYTES_MAX_IN_ALL", 1000)
    assert waypoint_keeper.due_logs(logs) == [logs[2], logs[0], logs[3]]
    ticket = waypoint_keeper.begin(logs[2])
    assert ticket is not None
    assert waypoint_keeper.due_logs(logs) == [logs[0]]


def test_no_turn_packs_more_producers_than_the_loop_has_time_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waypoint_keeper, "UNMARKED_BYTES_MAX", 50)
    monkeypatch.setattr(waypoint_keeper, "UNMARKED_BYTES_MIN", 50)
    monkeypatch.setattr(waypoint_keeper, "PRODUCERS_IN_A_TURN_MAX", 5)
    disk = new_disk()
    logs = []
    for index, known in enumerate((6, 3, 2, 1)):
        disk.make_dir(f"/data/t-{index}")
        log = open_log(disk, directory=f"/data/t-{index}")
        for producer_id in range(known):
            append(log, producer_id=producer_id, producer_epoch=0, base_sequence=0)
        append(log, 10 - index)
        flush(log)
        logs.append(log)
    assert [len(log.producer_state.producers) for log in logs] == [6, 3, 2, 1]

    assert waypoint_keeper.due_logs(logs) == logs[1:3]
    for log in logs[1:3]:
        assert waypoint_keeper.begin(log) is not None
    assert waypoint_keeper.due_logs(logs) == [logs[3]]
