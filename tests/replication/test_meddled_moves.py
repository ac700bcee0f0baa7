"""A replica moves while somebody deletes its records, or calls it back."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.log.directories import Kind
from ottla.broker.log.log import Log
from ottla.broker.log.moving import GENERATION_FILE
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from ottla.testing.platter import CrashMode
from tests.handlers.rooms import DATA_DIR, START_MS, House
from tests.log.logs import delete_some_segments
from tests.replication.test_moves import (
    TWO_DIRS,
    Movers,
    T,
    check,
    movers,
    names_in,
    only,
    open_dirs,
)


async def test_a_copy_with_batches_that_wait_for_a_sync_is_started_over() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house, batches=0, flush_messages="4")
        for _ in range(30):
            await mover.send(size=3000)  # more than is copied at once
        target, log = mover.other_dir, mover.partition.log

        def delete_all() -> None:
            """What the copy has is not its log's any more, and more comes."""
            log.delete_records(log.high_watermark)
            asyncio.get_running_loop().create_task(mover.send())

        await mover.alter(target)
        mover.behind = ("append", delete_all)
        await mover.moves.run()
        await mover.send()

        assert mover.log_dir == target
        assert not house.events.named("replica_move_failed")
        check(mover.partition.log, mover.acknowledged[-2:])


async def test_records_are_deleted_twice_during_the_exchange() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house, flush_messages=str(2**63 - 1))
        target, log = mover.other_dir, mover.partition.log

        def delete_all() -> None:
            log.delete_records(log.high_watermark)

        def delete_between_appends() -> None:
            batch = build_batch([Record(0, START_MS, b"key", b"value")])
            house.rooms.replicas.append(mover.partition, memoryview(bytearray(batch)))
            delete_all()
            house.rooms.replicas.append(mover.partition, memoryview(bytearray(batch)))
            mover.behind = ("start_over", delete_all)

        await mover.alter(target)
        mover.before = ("expect", delete_between_appends)
        await mover.moves.run()
        new = mover.partition.log

        assert mover.log_dir == target
        assert (new.log_start_offset, new.log_end_offset) == (22, 22)


@pytest.mark.parametrize("is_emptied", [True, False])
@pytest.mark.parametrize("crashes", [True, False])
async def test_producers_are_known_whose_batches_are_deleted(
    is_emptied: bool, crashes: bool
) -> None:
    """Also by what a crash leaves: no batch of the copy speaks for them."""
    async with House(TWO_DIRS) as house:
        mover = await movers(house, batches=5)
        old = mover.partition.log
        old.delete_records(5)
        if not is_emptied:
            await house.append("t", 0, [b"of nobody"])
        known = old.producer_state.producers[7].batches[-1]
        await mover.alter(mover.other_dir)
        await mover.moves.run()
        log = mover.partition.log
        assert log is not old
        if crashes:
            log = only(open_dirs(house.disk.crash(random.Random(1), CrashMode.PREFIX)))

        assert log.log_end_offset == old.log_end_offset
        assert log.producer_state.producers[7].batches[-1] == known


@pytest.mark.parametrize("work", ["prepare", "expect", "complete", "take_name"])
async def test_a_move_that_is_called_back_during_the_exchange_ends_at_home(work: str) -> None:
    """Up to the last step it is given up; after that it is done, and then comes the way back."""
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        home = mover.log_dir
        called: list[asyncio.Task[int]] = []

        def call_back() -> None:
            called.append(asyncio.get_running_loop().create_task(mover.alter(home)))

        await mover.alter(mover.other_dir)
        in_place = mover.moves._in_worker

        async def in_worker(work: Callable[[], Any]) -> Any:
            done = await in_place(work)
            await asyncio.sleep(0)  # a worker takes its time
            return done

        mover.moves._in_worker = in_worker
        mover.before = (work, call_back)
        await mover.moves.run()
        (answer,) = called
        assert await answer == 0
        is_back = mover.log_dir == home
        assert is_back is (work != "take_name")
        assert len(await mover.described()) == 2 - is_back
        await mover.moves.run()

        assert mover.log_dir == home
        assert await mover.described() == [(home, mover.partition.log.size_bytes, 0, False)]
        await mover.send()
        check(mover.partition.log, mover.acknowledged)
        for log_dir in (home, mover.other_dir):
            assert names_in(house.disk, log_dir, Kind.FUTURE) == []


async def test_retention_has_nothing_synced_of_a_log_that_is_exchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It comes back from its worker in the very turn in which the logs change."""
    async with House(TWO_DIRS) as house:
        mover = await movers(house, retention_bytes="0")
        logs, log = house.rooms.logs, mover.partition.log
        logs.checkpoint_recovery_points()
        exchange = logs.exchange

        def retain() -> None:
            delete_some_segments(logs, log)
            assert log.segments.awaits_sync

        def exchange_late(old: Log, new: Log) -> str:
            house.rooms.replicas.reconsider(*T)
            house.rooms.replicas.flush(mover.partition)
            return exchange(old, new)

        await mover.alter(mover.other_dir)
        mover.before = ("expect", retain)
        monkeypatch.setattr(logs, "exchange", exchange_late)
        await mover.moves.run()
        await mover.send()

        assert mover.partition.log is not log
        check(mover.partition.log, mover.acknowledged[-1:])


async def test_of_two_who_move_a_replica_at_once_the_later_wins() -> None:
    async with House({"log.dirs": f"{DATA_DIR},/other,/third"}) as house:
        mover = await movers(house)
        dirs = [path for path in house.rooms.logs.dirs if path != mover.log_dir]
        await asyncio.gather(*(mover.moves.begin(mover.partition, path) for path in dirs))
        assert [names_in(house.disk, path, Kind.FUTURE) != [] for path in dirs] == [False, True]

        await mover.moves.run()
        assert mover.log_dir == dirs[1]
        assert not any(names_in(house.disk, path, Kind.FUTURE) for path in dirs)


async def begun(house: House) -> Movers:
    """A move that has copied some records, and not all."""
    mover = await movers(house, batches=0)
    for _ in range(30):
        await mover.send(size=3000)
    await mover.alter(mover.other_dir)
    (move,) = mover.moves._moves.values()
    await mover.moves._open(move, mover.partition.log)
    assert await mover.moves._copy_some(move)
    assert 0 < move.copy.end_offset < 30
    return mover


async def make_again(house: House, mover: Movers) -> None:
    """The topic is deleted and made again, in the same directory, and has as many records."""
    home = mover.log_dir
    state = DeleteTopicsRequest.DeleteTopicState("t")
    answer = await house.ask(DeleteTopicsRequest([state], timeout_ms=5000), 6)
    assert answer.responses[0].error_code == 0
    await house.create("t")
    assert mover.log_dir == home
    mover.acknowledged.clear()
    mover.sequence = 0
    for _ in range(40):
        await mover.send()


async def test_a_move_does_not_go_on_into_a_topic_that_was_made_anew_under_the_name() -> None:
    """Its copy, of records of the deleted one, would be continued and take the log's place."""
    async with House(TWO_DIRS) as house:
        mover = await begun(house)
        home, target = mover.log_dir, mover.other_dir
        await make_again(house, mover)
        assert [one[3] for one in await mover.described()] == [False]
        await mover.moves.run()

        assert mover.log_dir == home
        check(mover.partition.log, mover.acknowledged)
        assert names_in(house.disk, target, Kind.FUTURE) == []
        assert not house.events.named("replica_move_failed")


async def test_the_new_topic_of_the_name_may_move_the_same_way() -> None:
    async with House(TWO_DIRS) as house:
        mover = await begun(house)
        target = mover.other_dir
        await make_again(house, mover)
        assert await mover.alter(target) == 0
        await mover.moves.run()

        assert mover.log_dir == target
        check(mover.partition.log, mover.acknowledged)
        assert names_in(house.disk, target, Kind.FUTURE) == []


async def test_a_start_does_not_go_on_with_the_move_of_a_topic_that_is_gone() -> None:
    """The broker was stopped before the copy was taken away."""
    async with House(TWO_DIRS) as house:
        mover = await begun(house)
        home, target = mover.log_dir, mover.other_dir
        await mover.moves.close()
        await make_again(house, mover)
        (found,) = open_dirs(house.disk.crash(random.Random(1), CrashMode.PREFIX)).found_copies
        house.rooms.logs.found_copies.append(found)
        mover.moves = mover._new_moves()
        mover.moves.resume()
        await mover.moves.run()

        assert mover.log_dir == home
        check(mover.partition.log, mover.acknowledged)
        assert names_in(house.disk, target, Kind.FUTURE) == []


async def test_a_log_that_has_lost_its_tail_moves_when_another_record_is_written() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house, batches=10)
        home = mover.log_dir
        house.rooms.logs.checkpoint_recovery_points()
        left = house.disk.crash(random.Random(1), CrashMode.ALL_KEPT)
    file = left.open(f"{home}/t-0/{0:020d}.log")
    file.truncate(file.size() // 10 * 8)
    kept = mover.acknowledged[:8]
    async with House(TWO_DIRS, disk=left) as house:
        mover = Movers(house)
        assert mover.partition.log.log_end_offset == 10
        target = mover.other_dir
        assert await mover.alter(target) == 0
        await mover.moves.run()
        (failed,) = house.events.named("replica_move_failed")
        assert "from offset 8 to 10 was lost" in failed["error"]
        assert (mover.log_dir, house.rooms.logs.offline_dirs) == (home, {})
        mover.sequence = 8
        await mover.send()
        assert await mover.alter(target) == 0
        await mover.moves.run()

        assert mover.log_dir == target
        check(mover.partition.log, kept + mover.acknowledged)


async def test_a_log_that_cannot_be_read_at_the_exchange_ends_the_move_alone() -> None:
    """It says nothing of the dir of the copy."""
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        await mover.alter(mover.other_dir)
        await mover.moves.run()  # from now on there is a generation to be read
        home = mover.log_dir
        await mover.alter(mover.other_dir)
        house.disk.inject("pread", errno.EIO, path=f"t-0/{GENERATION_FILE}")
        await mover.moves.run()

        assert (mover.log_dir, house.rooms.logs.offline_dirs) == (home, {})
        assert house.events.named("replica_move_failed")
        check(mover.partition.log, mover.acknowledged)


@pytest.mark.parametrize("work", ["prepare", "take_name"])
async def test_a_move_that_ends_with_the_broker_is_recorded(work: str) -> None:
    """A start without the dir where the replica is now would begin it anew where it was."""
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        moves, told = mover.moves, []
        target = mover.other_dir

        async def record() -> None:
            told.append(mover.log_dir)

        moves._on_moved = record
        await mover.alter(target)
        mover.before = (work, lambda: running.cancel())
        running: asyncio.Future[None] = asyncio.ensure_future(moves.run())
        with pytest.raises(asyncio.CancelledError):
            await running
        await moves.close()

        assert mover.log_dir == target
        assert told == [target]
