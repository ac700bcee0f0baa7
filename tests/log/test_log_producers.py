"""Idempotent producers: what a retry is answered, and what a restart may not forget."""

from __future__ import annotations

import errno
import random

import pytest

from ottla.broker.log.append_result import AppendResult
from ottla.broker.log.log import Log
from ottla.broker.log.producer_state import (
    EXPIRATION_MS,
    KnownBatch,
    ProducerState,
    SnapshotCorrupt,
)
from ottla.config.types import LogConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.testing.platter import CrashMode
from tests.log.logs import (
    DIRECTORY,
    NOW,
    RELAXED,
    SMALL,
    append,
    batch,
    flush,
    new_disk,
    open_log,
    read_all,
)

PID = 7
SEQUENCE_MAX = 2**31 - 1


def produce(
    log: Log, sequence: int, count: int = 1, *, epoch: int = 0, pid: int = PID, now_ms: int = NOW
) -> AppendResult:
    records = batch(count, producer_id=pid, producer_epoch=epoch, base_sequence=sequence)
    return log.append_as_leader(records, leader_epoch=0, now_ms=now_ms)


def refused(log: Log, sequence: int, count: int = 1, *, epoch: int = 0) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as raised:
        produce(log, sequence, count, epoch=epoch)

    assert log.log_end_offset == end
    return raised.value.code


def test_a_retry_is_answered_with_the_first_offset() -> None:
    log = open_log(new_disk())
    append(log, 3)
    produce(log, 0, 2)
    append(log)
    size = log.size_bytes
    result = produce(log, 0, 2)

    assert (result.base_offset, result.last_offset, result.duplicate) == (3, 4, True)
    assert result.log_append_time_ms == NOW + 1
    assert log.size_bytes == size


def test_each_of_the_last_five_is_known() -> None:
    log = open_log(new_disk())
    for sequence in range(6):
        produce(log, sequence)

    assert [produce(log, sequence).base_offset for sequence in range(1, 6)] == [1, 2, 3, 4, 5]
    assert refused(log, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_retry_of_another_length_is_no_retry() -> None:
    log = open_log(new_disk())
    produce(log, 0, 2)

    assert refused(log, 0, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(log, 1, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_refused() -> None:
    log = open_log(new_disk())
    produce(log, 0)

    assert refused(log, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_begins_with_any_sequence() -> None:
    log = open_log(new_disk())

    assert produce(log, 41).base_offset == 0
    assert produce(log, 42).base_offset == 1


def test_epochs() -> None:
    log = open_log(new_disk())
    produce(log, 0, epoch=3)

    assert refused(log, 1, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, 1, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not produce(log, 0, epoch=4).duplicate
    assert refused(log, 1, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert produce(log, 0, epoch=4).duplicate


@pytest.mark.parametrize("first", [SEQUENCE_MAX - 1, SEQUENCE_MAX])
def test_sequences_wrap_to_zero(first: int) -> None:
    log = open_log(new_disk())
    produce(log, first, 3)
    following = first + 3 - 2**31
    result = produce(log, following)

    assert (result.base_offset, result.duplicate) == (3, False)
    assert produce(log, first, 3).duplicate
    assert refused(log, following + 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_duplicate_is_as_durable_as_its_original() -> None:
    log = open_log(new_disk())
    produce(log, 0)
    result = produce(log, 0)

    assert log.visible_end <= result.last_offset
    flush(log)
    assert log.visible_end > produce(log, 0).last_offset


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("config", [SMALL, RELAXED, LogConfig()], ids=["small", "relaxed", "large"])
def test_five_batches_are_known_after_a_restart(clean: bool, config: LogConfig) -> None:
    disk = new_disk()
    log = open_log(disk, config)
    for sequence in range(60):
        produce(log, sequence)
        append(log)
    log.close(clean)
    log = open_log(disk, config, clean=clean)

    assert [produce(log, sequence).base_offset for sequence in (59, 55, 57)] == [118, 110, 114]
    assert refused(log, 54) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(log, 60).base_offset == 120
    assert produce(log, 56).base_offset == 112
    assert refused(log, 55) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producers_outlive_their_records() -> None:
    disk = new_disk()
    config = LogConfig(segment_bytes=300, retention_bytes=0)
    log = open_log(disk, config)
    for sequence in range(5):
        produce(log, sequence)
    flush(log)
    log.delete_old_segments(NOW)
    flush(log)
    log.delete_old_segments(NOW)
    assert read_all(log) == b""
    log.close()
    log = open_log(disk, config, log_start_offset=5)

    assert produce(log, 4).base_offset == 4
    assert refused(log, 9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_truncation_forgets_what_was_cut() -> None:
    log = open_log(new_disk(), SMALL)
    for sequence in range(20):
        produce(log, sequence)
    log.truncate_to(12)

    assert produce(log, 11).duplicate
    assert refused(log, 13) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(log, 12).base_offset == 12


def test_a_silent_producer_is_forgotten_by_when_it_wrote() -> None:
    log = open_log(new_disk())
    produce(log, 0, pid=1, now_ms=NOW)
    produce(log, 0, pid=2, now_ms=NOW + 10)  # its records are as old as those of 1
    state = log.producer_state
    assert state.expire(1000) == 0
    produce(log, 1, pid=2, now_ms=NOW + 20)
    assert state.expire(1000 + EXPIRATION_MS - 1) == 0

    assert state.expire(1000 + EXPIRATION_MS) == 1
    assert list(state.producers) == [2]
    assert state.expire(1000 + 2 * EXPIRATION_MS - 2) == 0
    assert state.expire(1000 + 2 * EXPIRATION_MS - 1) == 1


def test_a_producer_with_an_open_transaction_is_silent_and_not_forgotten() -> None:
    log = open_log(new_disk())
    records = batch(producer_id=PID, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_as_leader(records, leader_epoch=0, now_ms=NOW)
    state = log.producer_state

    assert [state.expire(look * EXPIRATION_MS) for look in range(3)] == [0, 0, 0]


def test_a_snapshot_without_producers_has_kafkas_bytes() -> None:
    assert ProducerState().snapshot().hex() == "0001" + "48674bc7" + "00000000"


def test_a_snapshot_has_kafkas_bytes() -> None:
    """That of the first roll in kafka-4.3-observed.md section 9, its CRC included."""
    state = ProducerState()
    last = KnownBatch(29, 29, 46, 46, 0x18BCFE56FED)
    state.add(0, 0, last, transactional=False, now_ms=NOW)
    last = KnownBatch(0, 0, 47, 47, 0x18BCFE573B8)
    state.add(1, 0, last, transactional=True, now_ms=NOW)
    data = state.snapshot()

    assert data[:10].hex() == "0001" + "09f98028" + "00000002"
    again = ProducerState.from_snapshot(data, 48, NOW)
    assert again.snapshot() == data
    assert again.open_transactions == {47: 1}
    assert again.producers[0].batches == [KnownBatch(29, 29, 46, 46, 0x18BCFE56FED)]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(9),
        bytes.fromhex("0002" + "48674bc7" + "00000000"),
        bytes.fromhex("0001" + "48674bc8" + "00000000"),
        bytes.fromhex("0001" + "48674bc7" + "00000001"),
        bytes.fromhex("0001" + "48674bc7" + "00000000" + "00"),
    ],
)
def test_a_snapshot_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(SnapshotCorrupt):
        ProducerState.from_snapshot(data, 0, NOW)


def test_a_corrupt_snapshot_costs_nothing() -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    for sequence in range(30):
        produce(log, sequence)
    log.close()
    for path in disk.tree():
        if path.endswith(".snapshot"):
            disk.corrupt(path, 5, b"\xff")
    log = open_log(disk, SMALL)

    assert produce(log, 29).base_offset == 29
    assert produce(log, 26).base_offset == 26


def test_damage_in_an_older_segment_is_no_reason_to_refuse_a_retry() -> None:
    """It is told to who reads there. A crash may leave it below the log start."""
    disk = new_disk()
    log = open_log(disk, SMALL)
    for sequence in range(30):
        produce(log, sequence)
    log.close()
    disk.corrupt(f"{DIRECTORY}/{0:020d}.log", 0, bytes(100))
    log = open_log(disk, SMALL)

    assert produce(log, 26).base_offset == 26
    assert refused(log, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_snapshot_of_what_was_cut_off_may_come_back_in_a_crash_and_is_not_believed() -> None:
    disk = new_disk()
    log = open_log(disk)
    for sequence in range(3):
        produce(log, sequence)
    log.close()
    path = f"{DIRECTORY}/{3:020d}.snapshot"
    of_cut_off = disk.open(path).pread(1000, 0)
    log = open_log(disk)
    log.truncate_to(1)
    assert not disk.exists(path)
    for sequence in range(2):
        produce(log, sequence, pid=8)
    flush(log)
    disk = disk.crash(random.Random(1), CrashMode.ALL_KEPT)
    disk.open(path, create=True).pwrite(of_cut_off, 0)
    log = open_log(disk, clean=False, recovery_point=1)
    produce(log, 2, pid=8)
    log.truncate_to(3)

    assert produce(log, 1, pid=8).duplicate
    assert produce(log, 0, pid=PID).duplicate
    assert refused(log, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class NothingLeft(random.Random):
    """Of what was not synced."""

    def randrange(self, *_: int) -> int:  # type: ignore[override]
        return 0


def test_snapshots_behind_a_failed_sync_are_durable_after_the_next_start() -> None:
    """The kernel takes a directory whose sync has failed for synced: their names must be new."""
    disk = new_disk()
    log = open_log(disk, SMALL)
    for sequence in range(30):
        produce(log, sequence)
    disk.inject("sync_dir", errno.EIO, path=DIRECTORY)
    ticket = log.begin_flush()
    assert ticket is not None
    with pytest.raises(OSError, match="Input/output"):
        ticket.sync()
    disk = disk.crash(random.Random(1), CrashMode.PROCESS)
    log = open_log(disk, SMALL, clean=False)
    bases = [segment.base_offset for segment in log.segments][1:]
    assert len(bases) == 2
    disk = disk.crash(NothingLeft(), CrashMode.PREFIX)
    names = disk.list(DIRECTORY)

    assert [base for base in bases if f"{base:020d}.snapshot" not in names] == []
