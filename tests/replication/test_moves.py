"""A replica moves to another log dir while it is written to, and over a crash at any call."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ottla.broker.controller.brokers import cordon
from ottla.broker.log.directories import METADATA_TOPIC, Kind, parse_name
from ottla.broker.log.log import UPPER_LOG_END, Log
from ottla.broker.log.manager import LogManager
from ottla.broker.log.moving import GENERATION_FILE, FutureCopy, read_generation, write_generation
from ottla.broker.replication.moves import ReplicaMoves
from ottla.broker.replication.replicas import Partition
from ottla.config.types import LogConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.log_dirs import (
    AlterReplicaLogDirsRequest,
    DescribeLogDirsRequest,
)
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from ottla.testing.clock import SimClock
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.handlers.rooms import DATA_DIR, NODE_ID, START_MS, House
from tests.log.events import RecordedEvents
from tests.log.logs import read_all

OTHER_DIR = "/data2"
TWO_DIRS = {"log.dirs": f"{DATA_DIR},{OTHER_DIR}"}
T = ("t", 0)
# Where the log of the crash test begins, within a batch: what was deleted must not come back.
START = 10


class Movers:
    """A house with two log dirs and a topic t, whose moves work in place and not in threads."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.moves = self._new_moves()
        house.rooms.moves = self.moves
        self.sequence = 0
        self.sends_while_held = False
        # Called before, or behind, the first piece of work that has that in its name.
        self.before: tuple[str, Callable[[], Any]] | None = None
        self.behind: tuple[str, Callable[[], Any]] | None = None
        self.waiting: asyncio.Task[None] | None = None
        self.acknowledged: list[tuple[int, bytes]] = []

    def _new_moves(self) -> ReplicaMoves:
        async def in_place(work: Callable[[], Any]) -> Any:
            if self.sends_while_held and "complete" in repr(work):
                # Appends wait now: this one goes on between the two renames.
                self.waiting = asyncio.create_task(self.send())
                await asyncio.sleep(0)
            if self.before is not None and self.before[0] in repr(work):
                meddle, self.before = self.before[1], None
                meddle()
            done = work()
            if self.behind is not None and self.behind[0] in repr(work):
                meddle, self.behind = self.behind[1], None
                meddle()
            return done

        async def nothing() -> None: ...

        return ReplicaMoves(
            logs=self.house.rooms.logs,
            replicas=self.house.rooms.replicas,
            clock=self.house.rooms.clock,
            events=self.house.rooms.events,
            rng=random.Random(5),
            in_worker=in_place,
            bytes_per_second=lambda: 1 << 40,
            on_moved=nothing,
        )

    @property
    def partition(self) -> Partition:
        found = self.house.rooms.replicas.get(*T)
        assert found is not None
        return found

    @property
    def log_dir(self) -> str:
        return self.house.rooms.logs.dir_of(self.partition.log)

    @property
    def other_dir(self) -> str:
        return OTHER_DIR if self.log_dir == DATA_DIR else DATA_DIR

    async def send(self, *, size: int = 100) -> None:
        """One batch of an idempotent producer, as the handler of Produce sends it."""
        value = random.Random(self.sequence).randbytes(size)
        batch = build_batch(
            [Record(0, START_MS, b"key", value)],
            producer_id=7,
            producer_epoch=0,
            base_sequence=self.sequence,
        )
        self.sequence += 1
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        partition, replicas = self.partition, self.house.rooms.replicas

        def append(records: bytearray | memoryview | BaseException) -> None:
            assert not isinstance(records, BaseException)
            try:
                result = replicas.append(partition, memoryview(records))
            except KafkaError as error:
                done.set_exception(error)
                return
            if partition.log.high_watermark > result.last_offset:
                done.set_result(result.base_offset)
            else:
                replicas.await_commit(
                    partition,
                    last_offset=result.last_offset,
                    timeout_ms=5000,
                    listener=_Answer(done, result.base_offset),
                    part=None,
                )

        if partition.conversions is None:
            append(batch)
        else:
            replicas.convert(partition, None, batch, append)
        self.acknowledged.append((await done, value))

    async def alter(self, path: str, topic: str = "t", index: int = 0) -> int:
        wanted = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(topic, [index])
        request = AlterReplicaLogDirsRequest(
            [AlterReplicaLogDirsRequest.AlterReplicaLogDir(path, [wanted])]
        )
        (result,) = (await self.house.ask(request, 2)).results
        code: int = result.partitions[0].error_code
        return code

    async def described(self) -> list[tuple[str, int, int, bool]]:
        """(log dir, size, lag, is future) of each replica of t-0."""
        answer = await self.house.ask(DescribeLogDirsRequest(None), 4)
        return [
            (result.log_dir, one.partition_size, one.offset_lag, one.is_future_key)
            for result in answer.results
            for topic in result.topics
            if topic.name == "t"
            for one in topic.partitions
        ]


class _Answer:
    def __init__(self, done: asyncio.Future[int], offset: int) -> None:
        self._done = done
        self._offset = offset

    def committed(self, part: object) -> None:
        self._done.set_result(self._offset)

    def failed(self, part: object, code: ErrorCode) -> None:
        self._done.set_exception(KafkaError(code))


async def movers(house: House, *, batches: int = 20, **configs: str) -> Movers:
    names = {name.replace("_", "."): value for name, value in configs.items()}
    await house.create("t", configs=names)
    found = Movers(house)
    for _ in range(batches):
        await found.send()
    return found


def values(log: Log) -> dict[int, bytes]:
    """Offset -> value of each record, of batches that hold one."""
    data = read_all(log, UPPER_LOG_END, max_bytes=1 << 20)
    found: dict[int, bytes] = {}
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        offset = int.from_bytes(data[position : position + 8], "big")
        found[offset] = data[position : position + size]
        position += size
    return found


def check(log: Log, acknowledged: list[tuple[int, bytes]]) -> None:
    """Everything that was acknowledged is there, where it was."""
    present = values(log)
    for offset, value in acknowledged:
        assert offset in present, (offset, log)
        assert value in present[offset]


def open_dirs(disk: SimDisk) -> LogManager:
    """What a start makes of both dirs."""
    manager = LogManager(
        disk,
        [DATA_DIR, OTHER_DIR],
        clock=SimClock(),
        events=RecordedEvents(),
        rng=random.Random(3),
        node_id=NODE_ID,
        cluster_id=None,
        default_config=LogConfig(),
        recovery_threads=1,
    )
    manager.load()
    return manager


async def test_a_replica_moves_with_all_that_it_has() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        old, target = mover.partition.log, mover.other_dir
        assert await mover.alter(target) == 0
        size, end = old.size_bytes, old.log_end_offset
        assert sorted(await mover.described()) == sorted(
            [(mover.log_dir, size, 0, False), (target, 0, end, True)]
        )
        await mover.moves.run()
        new = mover.partition.log
        assert mover.log_dir == target
        assert new is not old
        assert await mover.described() == [(target, size, 0, False)]
        assert read_all(new) == read_all(old, UPPER_LOG_END)
        assert new.high_watermark == new.durable_end == end
        await mover.send()
        check(new, mover.acknowledged)

        assert house.events.named("replica_moved")
        assert old.failed is not None
        with pytest.raises(KafkaError):
            old.append_as_leader(memoryview(bytearray(70)), leader_epoch=0, now_ms=0)


async def test_nothing_moves_to_a_cordoned_directory() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        ids = house.rooms.logs.directory_ids
        away, home = mover.other_dir, mover.log_dir
        for cordoned in (away, home):
            directories = [ids[cordoned]]
            await house.rooms.quorum.submit(
                partial(cordon, broker_id=NODE_ID, cordoned=directories)
            )
            answer = await house.ask(DescribeLogDirsRequest(None), 5)
            assert [one.log_dir for one in answer.results if one.is_cordoned] == [cordoned]
            # Whatever is asked to go there, and be it there already.
            assert await mover.alter(cordoned) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
            assert await mover.alter(cordoned, "nope") == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await mover.alter(away) == 0


async def test_appends_go_on_and_keep_their_order() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house, batches=300)
        await mover.alter(mover.other_dir)
        running = asyncio.create_task(mover.moves.run())
        while not running.done():
            await mover.send(size=2000)
        await running
        offsets = [offset for offset, _ in mover.acknowledged]

        assert offsets == list(range(len(offsets)))
        assert len(offsets) > 300
        check(mover.partition.log, mover.acknowledged)


async def test_a_retry_of_what_was_written_before_is_known_after() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        await mover.alter(mover.other_dir)
        await mover.moves.run()
        mover.sequence -= 1
        await mover.send()

        assert mover.acknowledged[-1][0] == mover.acknowledged[-2][0]


async def test_log_start_epochs_and_transactions_move_too() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        old = mover.partition.log
        old.delete_records(5)
        await house.raise_leader_epoch(*T)
        await house.append("t", 0, [b"open"], transactional=True)
        await mover.alter(mover.other_dir)
        await mover.moves.run()
        new = mover.partition.log

        assert new.log_start_offset == 5
        assert new.latest_epoch == old.latest_epoch
        assert new.last_stable_offset == old.last_stable_offset == new.log_end_offset - 1
        assert new.producer_state.open_transactions == old.producer_state.open_transactions


async def test_an_empty_log_and_one_that_begins_late_move() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house, batches=0)
        await mover.alter(mover.other_dir)
        await mover.moves.run()
        assert mover.partition.log.log_end_offset == 0
        for _ in range(3):
            await mover.send()
        mover.partition.log.delete_records(3)
        before = mover.log_dir
        await mover.alter(mover.other_dir)
        await mover.moves.run()
        log = mover.partition.log

        assert mover.log_dir != before
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)


async def test_the_answers_are_kafkas() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house, batches=1)
        long = "x" * 240
        assert await mover.alter("/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
        assert await mover.alter(OTHER_DIR + "/") == ErrorCode.LOG_DIR_NOT_FOUND
        assert await mover.alter("", "nope") == ErrorCode.LOG_DIR_NOT_FOUND
        assert await mover.alter(OTHER_DIR, "nope") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await mover.alter(OTHER_DIR, "t", 9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await mover.alter("/nowhere", long) == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert await mover.alter(mover.log_dir) == 0
        assert len(await mover.described()) == 1
        await house.lose_leader("t", 0)
        assert await mover.alter(OTHER_DIR) == ErrorCode.REPLICA_NOT_AVAILABLE
        house.rooms.logs.faults.failed(OTHER_DIR, *_sync_error())
        assert await mover.alter(OTHER_DIR) == ErrorCode.KAFKA_STORAGE_ERROR


def _sync_error() -> tuple[Any, OSError]:
    from ottla.broker.faults import Call

    return Call.SYNC, OSError(5, "input/output error")


async def test_of_a_partition_named_twice_the_last_dir_counts() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house, batches=1)
        wanted = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic("t", [0, 0])
        dirs = [mover.other_dir, mover.log_dir]
        request = AlterReplicaLogDirsRequest(
            [AlterReplicaLogDirsRequest.AlterReplicaLogDir(path, [wanted]) for path in dirs]
        )
        for version in (1, 2):
            (result,) = (await house.ask(request, version)).results
            assert [(one.partition_index, one.error_code) for one in result.partitions] == [(0, 0)]

        assert len(await mover.described()) == 1


async def test_a_move_is_given_up_for_the_dir_where_it_is() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        await mover.alter(mover.other_dir)
        await mover.alter(mover.log_dir)
        await mover.moves.run()

        assert len(await mover.described()) == 1
        assert not names_in(house.disk, mover.other_dir, Kind.FUTURE)


async def test_a_damaged_batch_ends_the_move_and_nothing_else() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        before = mover.log_dir
        log = mover.partition.log
        house.disk.corrupt(log.segments[0].log_path, 700, b"\xff\xff")
        await mover.alter(mover.other_dir)
        await mover.moves.run()

        assert house.events.named("replica_move_failed")
        assert mover.log_dir == before
        assert not names_in(house.disk, mover.other_dir, Kind.FUTURE)
        await mover.send()


async def test_a_log_that_cannot_be_read_says_nothing_of_the_dir_of_the_copy() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        before, target = mover.log_dir, mover.other_dir
        await mover.alter(target)
        house.disk.inject("pread", 5, path=f"{before}/t-0/")
        await mover.moves.run()

        assert house.events.named("replica_move_failed")
        assert not house.rooms.logs.offline_dirs
        assert mover.log_dir == before
        assert not names_in(house.disk, target, Kind.FUTURE)


@pytest.mark.parametrize("work", ["prepare", "expect", "append"])
async def test_records_that_the_copy_lacks_are_deleted_before_the_exchange(work: str) -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        target, log = mover.other_dir, mover.partition.log

        def delete_all() -> None:
            asyncio.get_running_loop().create_task(mover.send()).add_done_callback(deleted)

        def deleted(sent: asyncio.Task[None]) -> None:
            log.delete_records(log.log_end_offset)

        await mover.alter(target)
        mover.before = (work, delete_all)
        await mover.moves.run()
        new = mover.partition.log

        assert mover.log_dir == target
        assert new.log_start_offset == new.log_end_offset == len(mover.acknowledged)


async def from_the_other_dir(mover: Movers) -> None:
    """Whose loss does not end the process."""
    if mover.log_dir != OTHER_DIR:
        await mover.alter(OTHER_DIR)
        await mover.moves.run()
    await mover.alter(DATA_DIR)


@pytest.mark.parametrize("work", ["prepare", "expect", "complete", "take_name"])
async def test_the_dir_of_the_log_fails_during_the_exchange(
    work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dir of the copy is sound, and a stop marks it clean: so is the end of the copy."""
    closed: list[bool] = []
    close = FutureCopy.close

    def noted(copy: FutureCopy, *, clean: bool = True) -> None:
        if copy.log is not None:
            closed.append(clean)
        close(copy, clean=clean)

    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        await from_the_other_dir(mover)
        logs = house.rooms.logs
        drop = house.rooms.replicas.drop

        def fail() -> None:
            drop(mover.partition, ErrorCode.KAFKA_STORAGE_ERROR)
            logs.faults.failed(OTHER_DIR, *_sync_error())

        mover.behind = (work, fail)
        monkeypatch.setattr(FutureCopy, "close", noted)
        await mover.moves.run()

        assert not logs._log_dirs[DATA_DIR].coming
        if work in ("prepare", "expect"):
            assert closed == [True]
            assert house.rooms.replicas.get(*T) is None
            assert T in logs.offline_partitions
        else:
            assert mover.log_dir == DATA_DIR
            assert not logs.offline_partitions
            check(mover.partition.log, mover.acknowledged)
            await mover.send()


async def test_the_dir_of_the_copy_fails_when_it_has_its_name() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        if mover.log_dir != DATA_DIR:
            await mover.alter(DATA_DIR)
            await mover.moves.run()
        await mover.alter(OTHER_DIR)
        mover.behind = (
            "take_name",
            lambda: house.rooms.logs.faults.failed(OTHER_DIR, *_sync_error()),
        )
        await mover.moves.run()
        await mover.send()

        assert mover.log_dir == DATA_DIR
        # The disk that failed may be back at the next start.
        left = house.disk.crash(random.Random(1), CrashMode.ALL_KEPT)
        check(only(open_dirs(left)), mover.acknowledged)


@pytest.mark.parametrize("call", ["pwrite", "sync", "sync_dir", "rename", "create"])
async def test_a_dir_that_fails_ends_the_move_and_the_old_one_serves(call: str) -> None:
    for passing in range(12):
        async with House(TWO_DIRS) as house:
            mover = await movers(house)
            before, target = mover.log_dir, mover.other_dir
            if before != DATA_DIR:  # whose loss would end the process
                await mover.alter(target)
                await mover.moves.run()
                before, target = DATA_DIR, OTHER_DIR
            fault = house.disk.inject(call, 5, path=target, passing=passing)
            if await mover.alter(target) == 0:
                await mover.moves.run()
            fault.times = 0
            await mover.send()

            check(mover.partition.log, mover.acknowledged)
            # The disk that failed may be back at the next start, with whatever it has kept.
            for mode in (CrashMode.ALL_KEPT, CrashMode.SUBSET):
                left = house.disk.crash(random.Random(passing), mode)
                check(only(open_dirs(left)), mover.acknowledged)


async def test_a_stop_in_the_middle_is_gone_on_with() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house)
        await mover.alter(mover.other_dir)
        (move,) = mover.moves._moves.values()
        await mover.moves._open(move, mover.partition.log)
        await mover.moves._copy_some(move)
        copied = move.copy.end_offset
        assert copied == 20
        await mover.moves.close()
        left = house.disk.crash(random.Random(1), CrashMode.PREFIX)
        manager = open_dirs(left)

        (found,) = manager.found_copies
        assert found.path == move.copy.path
        assert not found.clean
        check(only(manager), mover.acknowledged)


def only(manager: LogManager) -> Log:
    log = manager.get(*T)
    assert log is not None
    return log


def names_in(disk: SimDisk, log_dir: str, kind: Kind) -> list[str]:
    found = [(name, parse_name(name)) for name in disk.list(log_dir)]
    return [
        name
        for name, parsed in found
        if parsed is not None and parsed.kind is kind and parsed.topic != METADATA_TOPIC
    ]


async def _crashes(mode: CrashMode) -> list[tuple[SimDisk, int, Movers]]:
    """The disk as each call of a move leaves it, and how many records were acknowledged then."""
    kept: list[tuple[SimDisk, int, Movers]] = []
    async with House(TWO_DIRS) as house:
        mover = await movers(house, batches=8)
        await house.append("t", 0, [b"value"] * 5)
        mover.partition.log.delete_records(START)
        mover.acknowledged.clear()
        house.rooms.logs.checkpoint_log_start_offsets()

        def before_call(count: int, call: str, path: str) -> None:
            crashed = house.disk.crash(random.Random(count), mode)
            kept.append((crashed, len(mover.acknowledged), mover))

        house.disk.before_call = before_call
        for _ in range(2):  # there and back: the second time there are generations
            await mover.alter(mover.other_dir)
            await mover.send()
            mover.sends_while_held = True
            await mover.moves.run()
            assert mover.waiting is not None
            await mover.waiting
        house.disk.before_call = None
    return kept


@pytest.mark.parametrize("mode", CrashMode)
async def test_a_crash_at_any_call_leaves_one_replica_with_all(mode: CrashMode) -> None:
    crashes = await _crashes(mode)
    assert len(crashes) > 80
    for disk, count, mover in crashes:
        manager = open_dirs(disk)

        check(only(manager), mover.acknowledged[:count])
        assert len([log for log in manager.logs if (log.topic, log.partition) == T]) == 1
        places = [one for one in (DATA_DIR, OTHER_DIR) if names_in(disk, one, Kind.PARTITION)]
        assert len(places) == 1
        assert only(manager).log_start_offset == START


async def test_without_the_generation_two_replicas_would_be_refused() -> None:
    """The safeguard is needed: some crash leaves two of a name."""
    doubled = 0
    for disk, _, _ in await _crashes(CrashMode.PROCESS):
        names = [set(names_in(disk, one, Kind.PARTITION)) for one in (DATA_DIR, OTHER_DIR)]
        doubled += bool(names[0] & names[1])

    assert doubled > 0


def test_a_generation_is_what_was_written_or_none() -> None:
    disk = SimDisk()
    disk.make_dir("/d")
    assert read_generation(disk, "/d") == 0
    write_generation(disk, "/d", 41)
    assert read_generation(disk, "/d") == 41
    file = disk.open(f"/d/{GENERATION_FILE}")
    for position in range(file.size()):
        data = file.pread(1, position)
        disk.corrupt(f"/d/{GENERATION_FILE}", position, bytes([data[0] ^ 1]))
        assert read_generation(disk, "/d") == 0
        disk.corrupt(f"/d/{GENERATION_FILE}", position, data)
