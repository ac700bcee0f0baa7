"""Replicas on their way to another log dir of this broker (AlterReplicaLogDirs, KIP-113).

One move at a time: its copy is filled by a worker, a little in each turn, while appends and reads
go on with the log. When the copy is nearly as long, the partition's appends wait for the exchange,
whose steps and crashes stand in `log/moving.py`: a sync, two renames. What stays of a move over a
restart is its directory; the job that finds one goes on with it.

The shell of `FutureCopy`. All here belongs to the loop, but what `_work` is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from ottla.broker.faults import NO_DESCRIPTOR_ERRORS, Call, Reaction
from ottla.broker.log.checkpoints import TopicPartition
from ottla.broker.log.directories import Kind, PartitionName, aside_name, partition_name
from ottla.broker.log.final_syncs import call_of
from ottla.broker.log.log import Log
from ottla.broker.log.manager import LogManager
from ottla.broker.log.moving import (
    FutureCopy,
    continues,
    first_base_offset,
    next_slice,
    read_generation,
    write_generation,
)
from ottla.broker.log.partition_dir import PartitionDir
from ottla.broker.log.rearranging import Departure, Rearrangement
from ottla.broker.ports import Clock, Events, Rng
from ottla.broker.replication.replicas import Partition, Replicas
from ottla.protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")

PASS_OVER_TRIES = 100
PASS_OVER_PAUSE_SECONDS = 0.05
"""So that a process short of descriptors has five seconds to get one, before a log dir is lost."""


@contextmanager
def _reading() -> Iterator[None]:
    """A log that cannot be read ends its move, and says nothing of the dir of the copy."""
    try:
        yield
    except OSError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error


class Move:
    """One replica on its way. `clean`: its copy was closed in good order by the last process. Where
    the topic has been deleted, another of its name is none of this move's."""

    __slots__ = ("clean", "copy", "key", "topic_id")

    def __init__(
        self, key: TopicPartition, topic_id: bytes, copy: FutureCopy, *, clean: bool
    ) -> None:
        self.key = key
        self.topic_id = topic_id
        self.copy = copy
        self.clean = clean

    def __repr__(self) -> str:
        return (
            f"<Move {self.key[0]}-{self.key[1]} to {self.copy.log_dir} at {self.copy.end_offset}>"
        )


class ReplicaMoves:
    """All moves of this broker. `run` is a job; `close` comes before the logs are closed."""

    def __init__(
        self,
        *,
        logs: LogManager,
        replicas: Replicas,
        clock: Clock,
        events: Events,
        rng: Rng,
        in_worker: Callable[[Callable[[], Any]], Awaitable[Any]],
        bytes_per_second: Callable[[], int],
        on_moved: Callable[[], Awaitable[None]],
    ) -> None:
        """`on_moved` records where a replica lies now."""
        self._logs = logs
        self._replicas = replicas
        self._clock = clock
        self._events = events
        self._rng = rng
        self._in_worker = in_worker
        self._bytes_per_second = bytes_per_second
        self._on_moved = on_moved
        self._moves: dict[TopicPartition, Move] = {}
        # The move that `run` is about; nobody else touches its copy.
        self._in_hand: Move | None = None
        self._working: dict[asyncio.Future[Any], None] = {}
        self._exchanging: asyncio.Task[None] | None = None
        # Whether a replica lies elsewhere than the last report said.
        self._is_behind = False
        self._locks: WeakValueDictionary[TopicPartition, asyncio.Lock] = WeakValueDictionary()

    def __repr__(self) -> str:
        return f"<ReplicaMoves {list(self._moves.values())}>"

    def to(self, log_dir: str) -> list[tuple[FutureCopy, Log]]:
        """The copies in a log dir, each with the log that it is of."""
        found: list[tuple[FutureCopy, Log]] = []
        for move in self._moves.values():
            partition = self._partition_of(move)
            if move.copy.log_dir == log_dir and partition is not None:
                found.append((move.copy, partition.log))
        return found

    async def begin(self, partition: Partition, log_dir: str) -> None:
        """Lets a led partition move to a log dir; its directory there is durable then.

        A move to another dir is given up, and so is one where the dir is the partition's own; one
        that is at its last step is waited for. Raises KafkaError where the dir fails.
        """
        key = (partition.topic, partition.index)
        # Who comes meanwhile is later: two at once would each make a copy, and one be forgotten.
        async with self._locks.setdefault(key, asyncio.Lock()):
            await self._begin(key, partition, log_dir)

    async def _begin(self, key: TopicPartition, partition: Partition, log_dir: str) -> None:
        move = self._moves.get(key)
        if move is not None and (move.topic_id, move.copy.log_dir) == (partition.topic_id, log_dir):
            return
        if self._logs.dir_of(partition.log) != log_dir:
            self._see_room(log_dir)
        if move is not None:
            del self._moves[key]
            if move is not self._in_hand:
                await self._remove(move)
            elif self._exchanging is not None:
                await asyncio.wait([self._exchanging])
        if self._logs.dir_of(partition.log) == log_dir:
            return
        name = PartitionName(partition.topic, partition.index, Kind.FUTURE)
        path = f"{log_dir}/{aside_name(*key, Kind.FUTURE, self._rng)}"
        copy = FutureCopy(self._logs.disk, log_dir, path, name, self._clock, self._events)
        try:
            await self._work(partial(copy.make, partition.topic_id))
        except OSError as error:
            self._logs.faults.failed(log_dir, call_of(error), error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._moves[key] = Move(key, partition.topic_id, copy, clean=True)
        self._events.info(
            "replica_move_begun", topic=key[0], partition=key[1], to=log_dir, path=path
        )

    def resume(self) -> None:
        """Goes on with the moves that the last process did not end."""
        for found in self._logs.found_copies:
            key = (found.name.topic, found.name.partition)
            partition = self._replicas.get(*key)
            if partition is None or key in self._moves:
                self._events.warning("partition_left_aside", path=found.path)
                continue
            copy = FutureCopy(
                self._logs.disk, found.log_dir, found.path, found.name, self._clock, self._events
            )
            # Of a topic that is gone it is not gone on with, and `run` takes it away.
            topic_id = found.topic_id or partition.topic_id
            self._moves[key] = Move(key, topic_id, copy, clean=found.clean)
        self._logs.found_copies.clear()

    async def run(self) -> None:
        """Carries every move to its end, one after the other."""
        for move in list(self._moves.values()):
            if not self._is_current(move):
                continue
            self._in_hand = move
            try:
                await self._carry(move)
            except (KafkaError, OSError) as error:
                self._tell_failure(move, error)
            finally:
                self._in_hand = None
            if not move.copy.is_there:
                await self._report()
            elif move.key not in self._logs.offline_partitions:
                await self._remove(move)  # it has failed, was given up, or its topic is gone
            else:
                await self._leave(move)

    async def close(self) -> None:
        """Waits for what is under way, and closes the copies; a later start goes on with them. What
        has just moved is recorded: else a start without the dir where it is would begin it anew in
        the one where it was."""
        if self._exchanging is not None:
            await asyncio.gather(self._exchanging, return_exceptions=True)
        await asyncio.gather(*self._working, return_exceptions=True)
        if self._is_behind:
            await self._report()
        for move in self._moves.values():
            await self._leave(move)

    async def _report(self) -> None:
        self._is_behind = False
        await self._on_moved()

    # one move

    async def _carry(self, move: Move) -> None:
        while (partition := self._ready(move)) is not None:
            await self._open(move, partition.log)
            while await self._copy_some(move):
                pass
            if self._ready(move) is partition:
                self._exchanging = asyncio.create_task(self._exchange(move, partition))
                try:
                    await asyncio.shield(self._exchanging)
                finally:
                    if self._exchanging.done():
                        self._exchanging = None

    def _ready(self, move: Move) -> Partition | None:
        """The partition of a move that goes on; None ends it."""
        partition = self._partition_of(move)
        is_needed = (
            self._is_current(move)
            and partition is not None
            and move.copy.log_dir not in self._logs.offline_dirs
            and self._logs.dir_of(partition.log) != move.copy.log_dir
        )
        return partition if is_needed else None

    def _partition_of(self, move: Move) -> Partition | None:
        partition = self._replicas.get(*move.key)
        is_its = partition is not None and partition.topic_id == move.topic_id
        return partition if is_its else None

    def _is_current(self, move: Move) -> bool:
        return self._moves.get(move.key) is move

    async def _open(self, move: Move, source: Log) -> None:
        copy = move.copy
        if copy.log is None:
            await self._work(partial(copy.open, source, clean=move.clean))
        assert copy.log is not None
        with _reading():
            is_beginning = continues(source, copy.log)
        if not is_beginning:
            await self._start_over(copy, source)

    async def _start_over(self, copy: FutureCopy, source: Log) -> None:
        with _reading():
            base_offset = min(first_base_offset(source), source.log_start_offset)
        producers = source.producer_state.snapshot(below=base_offset)
        await self._work(partial(copy.start_over, base_offset, producers))

    async def _copy_some(self, move: Move) -> bool:
        """One turn; False when the copy has nearly all, or the move has ended."""
        partition, copy = self._ready(move), move.copy
        if partition is None or copy.log is None:
            return False
        self._see_room(copy.log_dir)
        source = partition.log
        loop = asyncio.get_running_loop()
        started_s, end_offset = loop.time(), source.log_end_offset
        data = await self._read_next(copy, source)
        if data is None:
            return False
        size = await self._work(partial(copy.append, data, source.config))
        took_s = loop.time() - started_s
        rate = max(self._bytes_per_second(), 1)
        # A pace, not a wait for anybody.
        await asyncio.sleep(max(took_s, size / rate - took_s))
        # Else what is left is no more than what came during this turn.
        return copy.end_offset < end_offset

    def _see_room(self, log_dir: str) -> None:
        """KafkaError for a dir that has none: a copy would have what is left of it in a moment."""
        if log_dir in self._logs.full_dirs:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log_dir} is full")

    async def _read_next(self, copy: FutureCopy, source: Log) -> bytes | None:
        """What the copy lacks next; None if it is as long as the log."""
        assert copy.log is not None
        start_offset = -1
        while copy.log.log_end_offset < source.log_start_offset != start_offset:
            start_offset = source.log_start_offset  # which may move while the copy is emptied
            await self._start_over(copy, source)
        with _reading():
            found = next_slice(source, copy.log)
            if found is None:
                return None
            found.file.pin()
            try:
                return await self._work(found.read)
            finally:
                found.file.unpin()

    async def _exchange(self, move: Move, partition: Partition) -> None:
        """The copy takes the place of the log; see `log/moving.py` for the steps."""
        copy, old = move.copy, partition.log
        async with self._replicas.changes:
            if self._ready(move) is not partition or copy.log is None:
                return
            log_start_offset = old.log_start_offset
            exchanged = OSError("its replica is being exchanged")
            release: Callable[[], None] | None = None
            old_path: str | None = None
            await self._free_name(move)
            try:
                await self._work(partial(copy.prepare, old))
                await self._work(partial(self._logs.expect, old, copy.log_dir))
                release = await self._replicas.hold_appends(partition)
                if self._ready(move) is not partition:
                    return  # its log dir has failed
                held_ms = self._clock.monotonic_ms()
                self._logs.withdraw(old)
                old.failed = exchanged
                while (data := await self._read_next(copy, old)) is not None:
                    await self._work(partial(copy.append, data, old.config))
                await self._work(partial(copy.complete, old, old.producer_state.snapshot()))
                if old.log_start_offset != log_start_offset:
                    await self._work(partial(self._logs.expect, old, copy.log_dir))
                if not self._is_current(move):
                    return  # called back; from here on it is too late
                new = await self._take_name(move, old)
                if new is not None:
                    old_path = self._replace(move, partition, old, new)
            finally:
                if old_path is None:
                    if old.failed is exchanged:
                        old.failed = None
                    self._logs.reinstate(old)
                if release is not None:
                    release()
            if new is not None and old_path is not None:
                self._tell_success(move, new, self._clock.monotonic_ms() - held_ms)
                await self._depart(Departure.of(old, old_path, Kind.DELETED))  # step 4

    async def _free_name(self, move: Move) -> None:
        """Its name may still be that of a directory for whose other name there was no room, or that
        nobody knows. KafkaError if it stays so."""
        logs, log_dir = self._logs, move.copy.log_dir
        if logs.has_refused(log_dir, move.key):
            work = Rearrangement()
            logs.begin_again(work, move.key)
            await self._perform(work)
        path = f"{log_dir}/{partition_name(*move.key)}"
        if await self._work(lambda: logs.disk.exists(path) and logs.disk.list(path)):
            what = f"{path} is in the way"
            if logs.has_refused(log_dir, move.key):
                what += ": it is of an older replica, and there was no room for another name yet"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what)

    async def _take_name(self, move: Move, old: Log) -> Log | None:
        """Step 3. Where it fails the old log goes on, but above whatever is on that disk.

        KafkaError where it is refused, which ends the move.
        """
        copy, logs = move.copy, self._logs
        refused: OSError | None = None
        try:
            new = await self._work(partial(copy.take_name, old))
        except OSError as error:
            if logs.faults.failed(copy.log_dir, call_of(error), error) is Reaction.REFUSED:
                refused = error
        else:
            if copy.log_dir not in logs.offline_dirs:
                return new
            new.close(clean=False)
        if refused is None or copy.has_name:
            await self._pass_over(old)
        if refused is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(refused)) from refused
        return None

    async def _pass_over(self, old: Log) -> None:
        """Gives the log a generation above that of its copy, which may have its name on disk.

        For want of a descriptor that takes some tries: the partition's appends are held meanwhile.
        """
        disk, log_dir = self._logs.disk, self._logs.dir_of(old)
        for left in reversed(range(PASS_OVER_TRIES)):
            try:
                generation = await self._work(partial(read_generation, disk, old.directory)) + 2
                await self._work(partial(write_generation, disk, old.directory, generation))
            except OSError as error:
                if left and error.errno in NO_DESCRIPTOR_ERRORS:
                    await asyncio.sleep(PASS_OVER_PAUSE_SECONDS)
                    continue
                self._logs.faults.failed(log_dir, Call.SYNC, error)
            return

    def _replace(self, move: Move, partition: Partition, old: Log, new: Log) -> str:
        """The new log is served; the path that the old one's directory is to get."""
        if old.log_start_offset > new.log_start_offset:
            new.delete_records(old.log_start_offset)
        self._forget(move)
        self._is_behind = True
        old_path = self._logs.exchange(old, new)
        if partition.online:
            self._replicas.change_log(partition, new, move.copy.log_dir)
        else:  # the dir of the old one has failed meanwhile
            self._replicas.lead(new, partition.leader_epoch, move.copy.log_dir)
        return old_path

    async def _depart(self, gone: Departure) -> None:
        work = Rearrangement()
        work.departures.append(gone)
        await self._perform(work)

    async def _perform(self, work: Rearrangement) -> None:
        """Also where whoever waits for it is cancelled."""
        future = asyncio.ensure_future(self._in_worker(partial(self._logs.perform, work)))
        future.add_done_callback(lambda _: self._logs.adopt(work))
        await self._to_its_end(future)

    def _tell_success(self, move: Move, new: Log, held_ms: int) -> None:
        self._events.info(
            "replica_moved",
            topic=move.key[0],
            partition=move.key[1],
            to=move.copy.log_dir,
            end_offset=new.log_end_offset,
            appends_held_ms=held_ms,
        )

    def _tell_failure(self, move: Move, error: KafkaError | OSError) -> None:
        """A move that cannot go on; the partition stays where it is."""
        self._forget(move)
        partition = self._partition_of(move)
        if partition is not None:
            self._logs.reinstate(partition.log)
        self._events.error(
            "replica_move_failed",
            topic=move.key[0],
            partition=move.key[1],
            to=move.copy.log_dir,
            error=str(error),
        )
        if isinstance(error, OSError):
            self._logs.faults.failed(move.copy.log_dir, Call.WRITE, error)

    def _forget(self, move: Move) -> None:
        if self._is_current(move):
            del self._moves[move.key]

    async def _remove(self, move: Move) -> None:
        """Takes the files of a move away that came to nothing."""
        self._forget(move)
        copy, logs = move.copy, self._logs
        await self._work(partial(copy.close, clean=False))
        if copy.log_dir not in logs.offline_dirs:
            home = PartitionDir(logs.disk, copy.path, self._events)
            path = f"{copy.log_dir}/{aside_name(*move.key, Kind.DELETED, self._rng)}"
            await self._depart(Departure(move.key, home, path, Kind.DELETED))

    async def _leave(self, move: Move) -> None:
        """Closes a copy whose files the next start finds: cleanly, or its dir is not marked so."""
        copy = move.copy
        if copy.log_dir not in self._logs.offline_dirs:
            try:
                await self._work(copy.close)
            except OSError as error:
                self._logs.faults.failed(copy.log_dir, Call.WRITE, error)
                self._logs.doubt(copy.log_dir)
        await self._work(partial(copy.close, clean=False))  # nothing, if it is closed

    async def _work(self, work: Callable[[], T]) -> T:
        """In a worker, to its end, whoever waits for it: `close` waits for all of them."""
        return await self._to_its_end(asyncio.ensure_future(self._in_worker(work)))

    async def _to_its_end(self, future: asyncio.Future[T]) -> T:
        self._working[future] = None
        future.add_done_callback(self._working.pop)
        return await asyncio.shield(future)
