"""A replica moves where a disk has no room, or something in the way."""

from __future__ import annotations

import errno
import random

import pytest

from ottla.broker.log.directories import Kind
from ottla.protocol.errors import ErrorCode
from ottla.testing.platter import CrashMode
from tests.handlers.rooms import DATA_DIR, House
from tests.replication.test_moves import (
    OTHER_DIR,
    TWO_DIRS,
    T,
    check,
    movers,
    names_in,
    only,
    open_dirs,
)


async def test_a_full_dir_keeps_the_old_one_till_it_has_room() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        old_dir, target = mover.log_dir, mover.other_dir
        full = house.disk.inject("rename", errno.ENOSPC, path=f"{old_dir}/t-0", times=1000)
        await mover.alter(target)
        await mover.moves.run()
        assert mover.log_dir == target
        assert house.rooms.logs.has_refused(old_dir, T)
        await mover.send()

        left = house.disk.crash(random.Random(1), CrashMode.PROCESS)
        refused = left.inject("rename", errno.ENOSPC, path=f"{old_dir}/t-0")
        manager = open_dirs(left)
        assert (refused.times, manager.offline_dirs) == (0, {})
        assert manager.dir_of(only(manager)) == target
        check(only(manager), mover.acknowledged)
        manager.shutdown(1)
        assert names_in(left, old_dir, Kind.PARTITION) == []

        full.passing = 1  # the file that says whose the copy is
        assert await mover.alter(old_dir) == 0
        await mover.moves.run()
        assert (mover.log_dir, house.rooms.logs.offline_dirs) == (target, {})
        why = house.events.named("replica_move_failed")[0]["error"]
        assert f"{old_dir}/t-0 is in the way: it is of an older replica" in why
        full.times = 0
        await mover.alter(old_dir)
        await mover.moves.run()
        assert (mover.log_dir, house.rooms.logs.has_refused(old_dir, T)) == (old_dir, False)
        check(mover.partition.log, mover.acknowledged)
        assert names_in(house.disk, target, Kind.PARTITION) == []


async def test_a_copy_that_cannot_be_synced_is_given_up_and_nothing_else() -> None:
    for number in (errno.ENOSPC, errno.EMFILE):
        async with House(TWO_DIRS) as house:
            mover = await movers(house)
            before, target = mover.log_dir, mover.other_dir
            assert await mover.alter(target) == 0
            (move,) = mover.moves._moves.values()
            fault = house.disk.inject("sync", number, path="-future", times=1000)
            await mover.moves.run()
            assert fault.times < 1000
            fault.times = 0
            assert (mover.log_dir, house.rooms.logs.offline_dirs) == (before, {})
            assert house.events.named("replica_move_failed")
            assert names_in(house.disk, target, Kind.FUTURE) == []
            assert move.copy.log is None, "its files are closed"
            await mover.moves.close()


@pytest.mark.parametrize("call", ["truncate", "create", "sync"])
async def test_a_copy_that_could_not_be_closed_in_good_order_is_not_taken_for_it(call: str) -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        assert await mover.alter(mover.other_dir) == 0
        (move,) = mover.moves._moves.values()
        await mover.moves._open(move, mover.partition.log)
        await mover.moves._copy_some(move)
        fault = house.disk.inject(call, errno.ENOSPC, path="-future", times=1000)
        await mover.moves.close()
        assert fault.times < 1000
        house.rooms.logs.shutdown(1)

        left = house.disk.crash(random.Random(1), CrashMode.PROCESS)
        (found,) = open_dirs(left).found_copies
        assert not found.clean


@pytest.mark.parametrize(
    ("call", "number", "path"),
    [
        ("rename", errno.ENOSPC, "-future"),
        ("sync_dir", errno.EMFILE, ""),
        ("open", errno.EMFILE, "/t-0/"),
        ("open", errno.ENOMEM, "/t-0/"),
    ],
)
async def test_a_copy_that_is_refused_its_name_is_given_up_and_nothing_else(
    call: str, number: int, path: str
) -> None:
    """The third step of the exchange: what was refused says nothing of the disk."""
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        before, target = mover.log_dir, mover.other_dir
        where = path if path == "-future" else f"{target}{path}"
        fault = house.disk.inject(call, number, path=where, times=0)

        def refuse() -> None:
            fault.times = 1

        assert await mover.alter(target) == 0
        mover.before = ("take_name", refuse)
        await mover.moves.run()
        assert fault.times == 0
        assert (mover.log_dir, house.rooms.logs.offline_dirs) == (before, {})
        assert len(house.events.named("replica_move_failed")) == 1
        await mover.send()
        for mode in CrashMode:  # wherever the names came to
            manager = open_dirs(house.disk.crash(random.Random(1), mode))
            check(only(manager), mover.acknowledged)
        assert names_in(house.disk, target, Kind.PARTITION) == []
        await mover.alter(target)
        await mover.moves.run()
        assert mover.log_dir == target
        check(mover.partition.log, mover.acknowledged)


async def test_a_directory_in_the_way_ends_the_move_and_nothing_else() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        before, target = mover.log_dir, mover.other_dir
        path = f"{target}/t-0"
        house.disk.make_dir(path)
        house.disk.open(f"{path}/00000000000000000000.log", create=True).close()
        assert await mover.alter(target) == 0
        await mover.moves.run()
        assert (mover.log_dir, house.rooms.logs.offline_dirs) == (before, {})
        why = house.events.named("replica_move_failed")[0]["error"]
        assert why == f"KAFKA_STORAGE_ERROR: {path} is in the way"
        await mover.send()


async def test_a_refused_move_leaves_the_one_under_way() -> None:
    async with House({"log.dirs": f"{DATA_DIR},{OTHER_DIR},/data3"}) as house:
        mover = await movers(house)
        target, full = {DATA_DIR, OTHER_DIR, "/data3"} - {mover.log_dir}
        assert await mover.alter(target) == 0
        house.rooms.logs.full_dirs = frozenset([full])
        assert await mover.alter(full) == ErrorCode.KAFKA_STORAGE_ERROR
        await mover.moves.run()
        assert mover.log_dir == target


async def test_a_move_off_a_full_dir_can_be_given_up() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        before = mover.log_dir
        assert await mover.alter(mover.other_dir) == 0
        house.rooms.logs.full_dirs = frozenset([before])
        assert await mover.alter(before) == 0
        await mover.moves.run()
        assert mover.log_dir == before
        assert names_in(house.disk, mover.other_dir, Kind.FUTURE) == []


async def test_what_a_move_that_was_given_up_left_is_not_in_the_way_of_the_next() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        before, target = mover.log_dir, mover.other_dir
        assert await mover.alter(target) == 0
        (move,) = mover.moves._moves.values()
        house.disk.inject("rename", errno.ENOSPC, path=move.copy.path, times=1000)
        assert await mover.alter(before) == 0
        assert house.rooms.logs.has_refused()
        assert await mover.alter(target) == 0
        await mover.moves.run()
        assert mover.log_dir == target


async def test_nothing_moves_to_a_full_dir() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        logs, old_dir, target = house.rooms.logs, mover.log_dir, mover.other_dir
        logs.full_dirs = frozenset([target])
        assert await mover.alter(target) == ErrorCode.KAFKA_STORAGE_ERROR
        logs.full_dirs = frozenset()
        assert await mover.alter(target) == 0
        logs.full_dirs = frozenset([target])
        refused = house.disk.inject("rename", errno.ENOSPC, path=target)
        await mover.moves.run()

        assert (mover.log_dir, logs.offline_dirs, refused.times) == (old_dir, {}, 0)
        assert (
            house.events.named("replica_move_failed")[0]["error"]
            == f"KAFKA_STORAGE_ERROR: {target} is full"
        )
        assert logs.has_refused(), "the copy goes when its directory can be renamed"
        logs.shutdown(1)
        assert names_in(house.disk, target, Kind.FUTURE) == []


@pytest.mark.parametrize("call", ["open", "create"])
async def test_a_process_short_of_descriptors_twice_loses_no_log_dir(call: str) -> None:
    """Once for the name of the copy, once for the generation of the log that goes on instead."""
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        before, target = mover.log_dir, mover.other_dir
        faults = [
            house.disk.inject("sync_dir", errno.EMFILE, path=target, times=0),
            house.disk.inject(call, errno.EMFILE, path=f"{before}/t-0/ottla-generation", times=0),
        ]

        def refuse() -> None:
            for fault in faults:
                fault.times = 1

        assert await mover.alter(target) == 0
        mover.before = ("take_name", refuse)
        await mover.moves.run()

        assert [fault.times for fault in faults] == [0, 0]
        assert (mover.log_dir, house.rooms.logs.offline_dirs) == (before, {})
        await mover.send()
        manager = open_dirs(house.disk.crash(random.Random(1), CrashMode.SUBSET))
        check(only(manager), mover.acknowledged)
