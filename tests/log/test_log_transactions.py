"""The partition's side of transactions: open, decided, aborted, and what readers may see."""

from __future__ import annotations

import errno
import random

import pytest

from ottla.broker.log.log import UPPER_LAST_STABLE, Log
from ottla.broker.log.segments import OPEN_SEALED_MAX
from ottla.broker.log.transaction_index import AbortedTransaction, TransactionIndex
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.control import build_marker
from ottla.testing.platter import CrashMode
from tests.log.events import RecordedEvents
from tests.log.logs import (
    DIRECTORY,
    NOW,
    SMALL,
    append,
    batch,
    flush,
    headers_of,
    new_disk,
    offsets,
    open_log,
)


def write(
    log: Log, pid: int, sequence: int, *, epoch: int = 0, count: int = 1, internal: bool = False
) -> int:
    records = batch(
        count, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )
    return log.append_as_leader(records, leader_epoch=0, now_ms=NOW, internal=internal).base_offset


def end(log: Log, pid: int, *, committed: bool, epoch: int = 0, coordinator: int = 0) -> int:
    marker = build_marker(
        producer_id=pid,
        producer_epoch=epoch,
        committed=committed,
        coordinator_epoch=coordinator,
        timestamp=NOW,
    )
    result = log.append_as_leader(memoryview(marker), leader_epoch=0, now_ms=NOW, internal=True)
    assert result.base_offset == result.last_offset
    return result.base_offset


def new_log() -> Log:
    return open_log(new_disk(), SMALL)


def test_readers_of_committed_data_stop_at_the_oldest_open_transaction() -> None:
    log = new_log()
    append(log)
    write(log, 1, 0)
    write(log, 2, 0)
    append(log)
    flush(log)
    assert (log.last_stable_offset, log.high_watermark) == (1, 4)
    assert offsets(log, UPPER_LAST_STABLE) == [0]
    end(log, 1, committed=True)
    flush(log)
    assert log.last_stable_offset == 2
    end(log, 2, committed=False)
    assert log.last_stable_offset == 2  # its marker is not committed yet
    flush(log)

    assert log.last_stable_offset == log.high_watermark == 6
    assert offsets(log, UPPER_LAST_STABLE) == [0, 1, 2, 3, 4, 5]


def test_an_aborted_transaction_is_told_to_who_meets_it() -> None:
    log = new_log()
    write(log, 1, 0)  # 0
    write(log, 2, 0)  # 1
    end(log, 2, committed=False)  # 2
    append(log)  # 3
    end(log, 1, committed=False)  # 4
    write(log, 1, 1)  # 5
    end(log, 1, committed=True)  # 6
    flush(log)

    assert log.aborted_transactions(0, 7) == [(2, 1), (1, 0)]
    assert log.aborted_transactions(3, 7) == [(1, 0)]
    assert log.aborted_transactions(5, 7) == []
    assert log.aborted_transactions(0, 1) == [(1, 0)]
    entries = [entry for one in log.segments for entry in one.transactions.entries()]
    assert [tuple(entry) for entry in entries] == [(2, 1, 2, 0), (1, 0, 4, 5)]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_slice_is_told_the_aborted_transactions_that_it_meets(is_known: bool) -> None:
    """Those behind it are told with what comes there, but for a few that the index cannot tell."""
    disk = new_disk()
    log = open_log(disk, SMALL)
    write(log, 1, 0)
    for sequence in range(60):
        write(log, 2, sequence)
        end(log, 2, committed=sequence % 4 == 0)
        append(log)
    end(log, 1, committed=False)
    flush(log)
    if not is_known:
        log.close()
        log = open_log(disk, SMALL, high_watermark=10**6)
    for segment in log.segments if not is_known else []:
        segment.forget_recent()
    assert len(log.segments) > 5
    for offset in range(log.log_end_offset):
        for max_bytes in (1, 250, 600, 2000):
            found = log.read(
                offset, max_bytes=max_bytes, upper=UPPER_LAST_STABLE, at_least_one=True
            )
            assert found is not None
            last = headers_of(found.read())[-1].last_offset
            told = log.aborted_in(offset, found)
            met = log.aborted_transactions(offset, last + 1)

            assert told[: len(met) - 1] == met[:-1]
            assert set(met) <= set(told)
            assert all(first <= last + 4 for _, first in told)


def test_no_transaction_index_is_asked_twice_for_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that lags behind passes thousands of segments, with each of its fetches."""
    log = new_log()
    for _ in range(60):
        append(log)
    write(log, 1, 0)
    end(log, 1, committed=False)
    flush(log)
    found = log.read(3, max_bytes=300, upper=UPPER_LAST_STABLE, at_least_one=True)
    assert found is not None
    asked: list[str] = []
    entries = TransactionIndex.entries

    def ask(index: TransactionIndex) -> list[AbortedTransaction]:
        asked.append(index.path)
        return entries(index)

    monkeypatch.setattr(TransactionIndex, "entries", ask)
    assert log.aborted_in(3, found) == []

    assert len(asked) == len(set(asked)) == len(log.segments) > 5


def abort(
    log: Log, count: int, *, producer_id: int = 1, synced: bool = True
) -> list[tuple[int, int]]:
    """So many aborted transactions of one new producer, which fill some segments."""
    aborted = []
    for sequence in range(count):
        aborted.append((producer_id, write(log, producer_id, sequence)))
        end(log, producer_id, committed=False)
        if synced:
            flush(log)
    return aborted


def in_files(log: Log) -> int:
    return sum("in its file" in repr(one.transactions) for one in log.segments)


@pytest.mark.parametrize("clean", [True, False])
def test_aborted_transactions_of_what_nobody_reads_stay_in_their_files(clean: bool) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    aborted = abort(log, 80)
    count = len(log.segments)
    assert count > OPEN_SEALED_MAX + 5
    assert in_files(log) == count - 2  # the active one and the one before it

    assert log.aborted_transactions(0, log.log_end_offset) == aborted
    assert in_files(log) == count - 1 - OPEN_SEALED_MAX
    assert log.aborted_transactions(aborted[5][1], aborted[20][1]) == aborted[5:20]

    log.close(clean)
    again = open_log(disk, SMALL, clean=clean)
    assert in_files(again) == count - 1
    assert again.aborted_transactions(0, again.log_end_offset) == aborted
    again.truncate_to(aborted[30][1])
    aborted[30:] = abort(again, 1, producer_id=2)
    assert again.aborted_transactions(0, again.log_end_offset) == aborted


def test_aborted_transactions_that_are_not_synced_are_kept() -> None:
    log = new_log()
    aborted = abort(log, 80, synced=False)
    assert in_files(log) == 0
    flush(log)
    aborted += abort(log, 10, producer_id=2)

    assert in_files(log) >= len(log.segments) - 2 - OPEN_SEALED_MAX > 0
    assert log.aborted_transactions(0, log.log_end_offset) == aborted


def test_what_was_aborted_behind_a_slice_closes_no_file_that_it_is_sent_from() -> None:
    """While a transaction is open from the start on, each later abort matters to all before it."""
    log = new_log()
    write(log, 9, 0)
    aborted = abort(log, 80)
    end(log, 9, committed=True)
    flush(log)
    assert len(log.segments) > OPEN_SEALED_MAX + 5

    for base_offset in [one.base_offset for one in log.segments]:
        found = log.read(base_offset, max_bytes=300, upper=UPPER_LAST_STABLE, at_least_one=True)
        assert found is not None
        log.aborted_in(base_offset, found)
        behind = [one for one in aborted if one[1] + 1 >= base_offset]  # up to its marker
        assert log.aborted_transactions(base_offset, log.log_end_offset) == behind
        assert len(found.read()) == found.size


def test_a_committed_transaction_leaves_no_entry() -> None:
    log = new_log()
    write(log, 1, 0)
    end(log, 1, committed=True)
    flush(log)

    assert log.aborted_transactions(0, 2) == []


def test_plain_batches_do_not_mix_into_an_open_transaction() -> None:
    log = new_log()
    write(log, 1, 0)
    records = batch(producer_id=1, producer_epoch=0, base_sequence=1)

    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW)
    assert raised.value.code is ErrorCode.INVALID_TXN_STATE


def test_a_marker_fences_older_epochs_and_older_coordinators() -> None:
    log = new_log()
    write(log, 1, 0)
    end(log, 1, committed=False, epoch=1, coordinator=5)

    with pytest.raises(KafkaError) as raised:
        write(log, 1, 1, epoch=0)
    assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError) as raised:
        end(log, 1, committed=False, epoch=0, coordinator=6)
    assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError) as raised:
        end(log, 1, committed=False, epoch=1, coordinator=4)
    assert raised.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    with pytest.raises(KafkaError) as raised:
        write(log, 1, 3, epoch=1)
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(log, 1, 0, epoch=1) == 2


def test_what_a_coordinator_writes_for_a_producer_repeats_nothing() -> None:
    log = new_log()

    assert [write(log, 1, 0, internal=True) for _ in range(3)] == [0, 1, 2]
    end(log, 1, committed=True, epoch=1)
    with pytest.raises(KafkaError) as raised:
        write(log, 1, 0, internal=True)
    assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert write(log, 1, 0, epoch=1, internal=True) == 4


def test_a_marker_of_an_unknown_producer_is_written() -> None:
    log = new_log()

    assert end(log, 9, committed=True) == 0
    assert log.log_end_offset == 1


@pytest.mark.parametrize("clean", [True, False])
def test_transactions_outlive_a_restart(clean: bool) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    write(log, 1, 0)
    sequence = 0
    while len(log.segments) < 4:
        write(log, 2, sequence)
        end(log, 2, committed=sequence % 2 == 0)
        sequence += 1
    flush(log)
    aborted = log.aborted_transactions(0, log.log_end_offset)
    log.close(clean)
    log = open_log(disk, SMALL, clean=clean, high_watermark=10**6)

    assert log.last_stable_offset == 0
    assert log.producer_state.open_transactions == {0: 1}
    assert len(aborted) == sequence // 2
    assert log.aborted_transactions(0, log.log_end_offset) == aborted
    end(log, 1, committed=True)
    flush(log)
    assert log.last_stable_offset == log.log_end_offset


def test_deleted_records_do_not_hold_back_readers() -> None:
    log = new_log()
    write(log, 1, 0)
    append(log)
    flush(log)
    assert log.delete_records(2) == 2

    assert log.last_stable_offset == 2


def test_truncation_reopens_what_a_cut_marker_had_ended() -> None:
    log = new_log()
    write(log, 1, 0)
    end(log, 1, committed=False)
    flush(log)
    log.truncate_to(1)

    assert (log.last_stable_offset, log.high_watermark) == (0, 1)
    assert log.aborted_transactions(0, 1) == []


def test_a_follower_learns_of_transactions() -> None:
    from tests.log.logs import read_all

    leader, follower = new_log(), open_log(new_disk())
    write(leader, 1, 0)
    end(leader, 1, committed=False)
    write(leader, 2, 0)
    follower.append_as_follower(memoryview(read_all(leader)), now_ms=NOW)
    flush(follower)

    assert follower.last_stable_offset == 2
    assert follower.aborted_transactions(0, 2) == [(1, 0)]


@pytest.mark.parametrize("damage", ["version", "order", "beyond", "short", "garbage"])
def test_a_transaction_index_that_cannot_be_right_is_made_anew(damage: str) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    write(log, 1, 0)
    for sequence in range(20):
        write(log, 2, sequence)
        end(log, 2, committed=False)
    end(log, 1, committed=False)
    flush(log)
    aborted = log.aborted_transactions(0, log.log_end_offset)
    assert len(aborted) == 21
    log.close()
    indexes = [name for name in disk.list(DIRECTORY) if name.endswith(".txnindex")]
    assert len(indexes) > 2
    for name in indexes:
        path = f"{DIRECTORY}/{name}"
        match damage:
            case "version":
                disk.corrupt(path, 0, b"\0\7")
            case "order":
                disk.corrupt(path, 18, bytes(8))
            case "beyond":
                disk.corrupt(path, 18, b"\0\0\0\1")
            case "short":
                disk.open(path).truncate(33)
            case "garbage":
                disk.corrupt(path, 0, bytes(range(34)))
    events = RecordedEvents()
    log = open_log(disk, SMALL, high_watermark=10**6, events=events)

    assert events.names.count("index_rebuilt") == len(indexes)
    assert log.aborted_transactions(0, log.log_end_offset) == aborted
    log.close()
    events = RecordedEvents()
    log = open_log(disk, SMALL, high_watermark=10**6, events=events)
    assert events.names == []
    assert log.aborted_transactions(0, log.log_end_offset) == aborted


@pytest.mark.parametrize("is_before", [False, True])
def test_an_index_that_is_made_anew_keeps_what_the_log_can_say_no_more(is_before: bool) -> None:
    """A torn entry at its end is no reason to forget those of markers behind a broken header, nor
    one that began where a header is broken."""
    disk = new_disk()
    log = open_log(disk, SMALL)
    write(log, 1, 0)
    for sequence in range(20):
        write(log, 2, sequence)
        end(log, 2, committed=False)
    end(log, 1, committed=False)
    flush(log)
    aborted = log.aborted_transactions(0, log.log_end_offset)
    damaged, torn = log.segments[0 if is_before else 1], log.segments[-1 if is_before else 1]
    kept = torn.transactions.entries()[:]
    position, _ = damaged.locate(0 if is_before else damaged.base_offset + 3)
    log.close()
    disk.corrupt(damaged.log_path, position + 16, b"\7")
    if is_before:
        for name in disk.list(DIRECTORY):
            if name.endswith(".snapshot") and not name.startswith(f"{log.log_end_offset:020d}"):
                disk.remove(f"{DIRECTORY}/{name}")
    file = disk.open(torn.transactions.path)
    file.pwrite(b"\0\0\0", file.size())
    for _ in range(2):
        events = RecordedEvents()
        log = open_log(disk, SMALL, high_watermark=10**6, events=events)
        log.close()

        index = next(one for one in log.segments if one.base_offset == torn.base_offset)
        assert index.transactions.entries() == kept
        assert log.aborted_transactions(0, log.log_end_offset) == aborted
    assert events.names == []


@pytest.mark.parametrize("clean", [True, False])
def test_a_transaction_that_is_left_open_is_told_with_the_remedy(clean: bool) -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log)
    write(log, 7, 0, epoch=3)
    write(log, 8, 0)
    end(log, 8, committed=True)
    flush(log)
    log.close(clean)
    events = RecordedEvents()
    open_log(disk, clean=clean, events=events)

    told = [fields for _, name, fields in events.told if name == "transaction_left_open"]
    assert ("info", "transaction_left_open") in [told[:2] for told in events.told]
    assert [(one["producer_id"], one["producer_epoch"], one["start_offset"]) for one in told] == [
        (7, 3, 1)
    ]
    assert "abort --topic orders --partition 0 --start-offset 1" in told[0]["remedy"]


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_a_full_disk_at_a_clean_stop_keeps_the_indexes_of_batches_that_are_synced(
    suffix: str,
) -> None:
    """They have no room, which is no failure: the start makes them anew."""
    disk = new_disk()
    log = open_log(disk, SMALL)
    for _ in range(14):
        append(log)
    write(log, 5, 0)
    end(log, 5, committed=False)
    end_offset, sizes = log.log_end_offset, [one.size for one in log.segments]
    assert len(sizes) > 1
    path = log.segments.active.log_path.removesuffix(".log") + suffix
    disk.inject("create" if suffix == ".txnindex" else "pwrite", errno.ENOSPC, path=path)
    with pytest.raises(OSError) as caught:
        log.close()

    assert caught.value.errno == errno.ENOSPC
    assert log.failed is None
    for mode in CrashMode:
        left = disk.crash(random.Random(1), mode)
        again = open_log(left, SMALL, clean=False, recovery_point=end_offset)
        assert again.log_end_offset == end_offset, mode
        assert [one.size for one in again.segments] == sizes
        assert not again.recovery.damaged
        aborted = [entry for one in again.segments for entry in one.transactions.entries()]
        assert [entry.producer_id for entry in aborted] == [5]


def test_a_disk_that_breaks_at_the_indexes_of_a_clean_stop_ends_the_log() -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    append(log)
    disk.inject("pwrite", errno.EIO, path=".timeindex")
    with pytest.raises(OSError, match="Input/output error"):
        log.close()

    assert log.failed is not None
