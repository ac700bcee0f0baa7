"""The partitions that this broker leads, and what moves when one of them grows.

`append` writes and says whether the answer may leave at once. If not, the partition's log needs a
sync: the partitions touched in one turn of the loop begin their syncs together at its end, and
while syncs run the next ones gather (`syncs.py`), and what they cover. When a sync ends, the high
watermark moves, the waiting answers leave, and parked fetches look again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from typing import TypeVar

from ottla.broker.faults import Call
from ottla.broker.kernel_syncs import KernelSyncs
from ottla.broker.log.append_result import AppendResult
from ottla.broker.log.final_syncs import call_of
from ottla.broker.log.flush import FlushTicket
from ottla.broker.log.log import Log
from ottla.broker.log.reserves import OwnRoom
from ottla.broker.ports import Clock, Events
from ottla.broker.replication.conversions import (
    ConversionQueue,
    ConversionTurns,
    Converted,
    Drop,
    Work,
)
from ottla.broker.replication.syncs import Job, SyncPool
from ottla.broker.replication.waiters import CommitListener, CommitWaiter, FetchWaiter
from ottla.broker.telemetry.metrics import SECONDS, Histogram
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchResponse

K = TypeVar("K", str, bytes)


class Partition:
    """One led partition: its log, and who waits for it."""

    __slots__ = (
        "commit_waiters",
        "conversions",
        "durable_waiters",
        "fetch_waiters",
        "flushing",
        "idle",
        "index",
        "leader_epoch",
        "log",
        "nothing",
        "online",
        "syncs",
        "topic",
        "topic_id",
    )

    def __init__(self, log: Log, leader_epoch: int, syncs: SyncPool[Partition]) -> None:
        self.topic = log.topic
        self.index = log.partition
        self.topic_id = log.topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self.syncs = syncs
        self.online = True
        self.flushing = False
        # Done when no sync is under way any more, for who waits for that.
        self.idle: asyncio.Future[None] | None = None
        self.commit_waiters: deque[CommitWaiter] = deque()
        # Who waits for a sync, whatever flush.messages says.
        self.durable_waiters: deque[CommitWaiter] = deque()
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        # Up to which end was read -> what a fetch is answered that finds nothing; never changed.
        self.nothing: dict[int, FetchResponse.PartitionData] = {}
        self.conversions: ConversionQueue | None = None

    def __repr__(self) -> str:
        log = self.log
        return (
            f"<Leader {self.topic}-{self.index} epoch={self.leader_epoch}"
            f" hw={log.high_watermark} leo={log.log_end_offset}"
            f" waiting={len(self.commit_waiters)}+{len(self.fetch_waiters)}>"
        )


class Replicas:
    """All partitions led here. Every method runs on the loop."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        events: Events,
        workers: Executor,
        on_disk_failed: Callable[[Log, Call, OSError], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._events = events
        self._workers = workers
        self.conversions = ConversionTurns(loop, workers)
        self._on_disk_failed = on_disk_failed
        self._on_fatal = on_fatal
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}
        self._pools: dict[str, SyncPool[Partition]] = {}
        # Those of the log dirs whose room is kept for what the broker itself has to write.
        self._short: dict[SyncPool[Partition], OwnRoom] = {}
        self._last_appends: list[Callable[[], None]] = []
        self._waiting: dict[Partition, None] = {}
        self._looking: dict[FetchWaiter, Partition] = {}
        self._syncing = 0
        self._closed = False
        self.sync_times = Histogram(SECONDS)
        # Held by whoever makes, deletes or exchanges the directories of partitions.
        self.changes = asyncio.Lock()

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    def count(self) -> int:
        return sum(map(len, self._by_name.values()))

    def get(self, topic: str, partition: int) -> Partition | None:
        partitions = self._by_name.get(topic)
        return None if partitions is None else partitions.get(partition)

    def by_id(self, topic_id: bytes, partition: int) -> Partition | None:
        partitions = self._by_id.get(topic_id)
        return None if partitions is None else partitions.get(partition)

    def lead(self, log: Log, leader_epoch: int, log_dir: str) -> Partition:
        """Starts to lead a partition whose log is open."""
        pool = self._pool_of(log_dir)
        log.assign_epoch(leader_epoch)
        log.set_high_watermark(log.visible_end)
        partition = Partition(log, leader_epoch, pool)
        self._by_name.setdefault(log.topic, {})[log.partition] = partition
        self._by_id.setdefault(log.topic_id, {})[log.partition] = partition
        return partition

    def change_epoch(self, partition: Partition, leader_epoch: int) -> None:
        """A new leader epoch, still with us: parked fetches must notice it (KIP-320)."""
        assert leader_epoch >= partition.leader_epoch
        if leader_epoch != partition.leader_epoch:
            partition.leader_epoch = leader_epoch
            partition.log.assign_epoch(leader_epoch)
            self._interrupt(partition)

    def drop(self, partition: Partition, code: ErrorCode) -> None:
        """Leads it no more: it was deleted, or its log dir failed. Waiters are answered `code`."""
        partition.online = False
        _remove(self._by_name, partition.topic, partition)
        _remove(self._by_id, partition.topic_id, partition)
        self._fail_commits(partition, code)
        self._interrupt(partition)

    def reconsider(self, topic: str, index: int) -> None:
        """Its configuration has changed: what flush.messages asks for is done at once."""
        partition = self.get(topic, index)
        # One that is being exchanged begins no sync, and the log that comes is looked at by itself.
        if partition is not None and partition.log.failed is None:
            self._look_again(partition)

    def keep_room(self, short: Mapping[str, OwnRoom]) -> None:
        """From now on clients' records are refused in these log dirs, and in no other; and the
        broker's own where they have no room left."""
        self._short = {self._pool_of(one): own_room for one, own_room in short.items()}

    def append(self, partition: Partition, records: memoryview) -> AppendResult:
        """Appends one batch from a client. KafkaError refuses it; nothing is written then.

        The batch may be answered when `log.visible_end > result.last_offset`; else the caller
        waits with `await_commit`.
        """
        if self._closed:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = partition.log
        if self._short and partition.syncs in self._short:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        try:
            result = log.append_as_leader(
                records,
                leader_epoch=partition.leader_epoch,
                now_ms=self._clock.wall_ms(),
                is_awaited=bool(partition.fetch_waiters),
            )
        except KafkaError as refused:
            self._tell_refusal(log, refused)
            raise
        except OSError as error:
            self._on_disk_failed(log, call_of(error), error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        if log.visible_end != log.high_watermark:
            self._advance(partition)
        if log.must_flush and not partition.flushing:
            self._begin_soon(partition)
        return result

    def append_internal(self, partition: Partition, records: memoryview) -> AppendResult:
        """The same for a batch that the broker itself has made, whose contents are not judged."""
        if self._closed:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = partition.log
        own_room = self._short.get(partition.syncs)
        if own_room is not None and not own_room.take(len(records)):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "its log dir is full")
        try:
            result = log.append_as_leader(
                records,
                leader_epoch=partition.leader_epoch,
                now_ms=self._clock.wall_ms(),
                internal=True,
            )
        except KafkaError as refused:
            self._tell_refusal(log, refused)
            raise
        except OSError as error:
            self._on_disk_failed(log, call_of(error), error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        if partition.online:
            self._look_again(partition)
        return result

    def is_spent(self, partition: Partition) -> bool:
        """Whether its log dir has hardly room for a batch of the broker's own."""
        own_room = self._short.get(partition.syncs)
        return own_room is not None and own_room.is_spent

    def _tell_refusal(self, log: Log, refused: KafkaError) -> None:
        """A disk that is full says no, and its log goes on."""
        if refused.disk_error is not None:
            self._on_disk_failed(log, Call.WRITE, refused.disk_error)

    def await_commit(
        self,
        partition: Partition,
        *,
        last_offset: int,
        timeout_ms: int,
        listener: CommitListener,
        part: object,
    ) -> None:
        """Calls `listener` when `last_offset` is visible, fails, or takes longer than it may."""
        deadline_ms = self._clock.monotonic_ms() + max(timeout_ms, 0)
        partition.commit_waiters.append(CommitWaiter(last_offset, listener, part, deadline_ms))
        self._waiting[partition] = None

    def await_durable(
        self, partition: Partition, *, last_offset: int, listener: CommitListener, part: object
    ) -> None:
        """Has the log synced, and calls `listener` when `last_offset` is durable, or the partition
        is not led any more. However long that takes: whoever waits here has no client."""
        if partition.log.durable_end > last_offset:
            listener.committed(part)
            return
        partition.durable_waiters.append(CommitWaiter(last_offset, listener, part, deadline_ms=0))
        self._waiting[partition] = None
        self.flush(partition)

    def expire_waiters(self) -> None:
        """A periodic job: answers REQUEST_TIMED_OUT to what waits too long; the data stays.

        It also asks again for a sync that could not begin, for want of a descriptor.
        """
        now_ms = self._clock.monotonic_ms()
        for partition in list(self._waiting):
            waiters = partition.commit_waiters
            if not waiters and not partition.durable_waiters:
                del self._waiting[partition]
                continue
            is_held = partition.conversions is not None  # perhaps by an exchange of its log
            if self._wants_sync(partition) and not partition.flushing and not is_held:
                self._begin_soon(partition)
            late = [waiter for waiter in waiters if waiter.deadline_ms <= now_ms]
            if late:
                partition.commit_waiters = deque(one for one in waiters if one.deadline_ms > now_ms)
            for waiter in late:
                waiter.listener.failed(waiter.part, ErrorCode.REQUEST_TIMED_OUT)

    def flush(self, partition: Partition) -> None:
        log = partition.log
        is_synced = log.durable_end == log.log_end_offset
        if not partition.flushing and not is_synced and log.failed is None:
            self._begin_soon(partition)

    def is_syncing(self) -> bool:
        """Whether a sync of some partition is under way, or about to begin."""
        return self._syncing > 0

    def append_last(self, append: Callable[[], None]) -> None:
        """Calls `append` when the requests of this turn are through, before its syncs begin."""
        if not self._last_appends:
            self._loop.call_soon(self._turn_is_over)
        self._last_appends.append(append)

    def convert(
        self,
        partition: Partition,
        work: Work | None,
        records: bytearray | memoryview,
        then: Converted,
    ) -> Drop:
        """Queues an append: behind `work` in a worker, or only behind the appends before it. What
        it returns drops it."""
        queue = self._queue_of(partition)
        if work is not None:
            return queue.convert(work, len(records), then)
        return queue.follow(records, then)

    def in_turn(self, partition: Partition, append: Callable[[], None]) -> bool:
        """Calls `append` behind the appends that wait; False, and it is not called, if none do.

        For `append_internal`, which itself passes them by.
        """
        if partition.conversions is None:
            return False
        partition.conversions.follow(bytearray(), lambda _: append())
        return True

    async def hold_appends(self, partition: Partition) -> Callable[[], None]:
        """Lets appends wait until what this returns is called; those before are through, and no
        sync of the log is under way, when it returns."""
        before = self._loop.create_future()

        def reached() -> None:
            if not before.done():
                before.set_result(None)

        release = self._queue_of(partition).hold(reached)
        try:
            await before
            while partition.flushing:
                if partition.idle is None:
                    partition.idle = self._loop.create_future()
                await partition.idle
        except BaseException:
            release()
            raise
        return release

    def change_log(self, partition: Partition, log: Log, log_dir: str) -> None:
        """The partition's log lies in another log dir now; nothing of the old one is under way."""
        assert not partition.flushing, partition
        log.assign_epoch(partition.leader_epoch)
        partition.log = log
        partition.syncs = self._pool_of(log_dir)
        self._advance(partition)
        self._settle(partition)

    def answer_fetches(self) -> None:
        """Answers every parked fetch with what there is: the broker stops."""
        for partition in self:
            self._interrupt(partition)

    async def close(self) -> None:
        """Waits for the conversions and the syncs under way, begins no more, and ends the sync
        threads. Nothing is appended from now on.

        The logs are closed by their manager, which syncs what is left.
        """
        self._closed = True
        await self.conversions.close()
        await asyncio.gather(*(pool.close(self._workers) for pool in self._pools.values()))

    # inside

    def _pool_of(self, log_dir: str) -> SyncPool[Partition]:
        pool = self._pools.get(log_dir)
        if pool is None:
            pool = self._pools[log_dir] = SyncPool(
                self._loop,
                str(len(self._pools)),
                self._begin,
                KernelSyncs.open,
                self._append_the_last,
            )
        return pool

    def _queue_of(self, partition: Partition) -> ConversionQueue:
        queue = partition.conversions
        if queue is None:

            def emptied() -> None:
                if partition.conversions is queue:
                    partition.conversions = None

            queue = ConversionQueue(self._loop, self.conversions, emptied)
            partition.conversions = queue
        return queue

    def _rest(self, partition: Partition) -> None:
        """No sync of the partition is under way."""
        partition.flushing = False
        self._syncing -= 1
        assert self._syncing >= 0, self._syncing
        if partition.idle is not None:
            idle, partition.idle = partition.idle, None
            if not idle.done():
                idle.set_result(None)

    def _look_again(self, partition: Partition) -> None:
        """Its log has grown, or has other rules: what can be seen, and what must be synced."""
        if partition.log.visible_end != partition.log.high_watermark:
            self._advance(partition)
        if partition.log.must_flush and not partition.flushing:
            self._begin_soon(partition)

    def _begin_soon(self, partition: Partition) -> None:
        """The sync starts at the end of this turn or later, so that what is appended until then
        joins it."""
        partition.flushing = True
        self._syncing += 1
        partition.syncs.want(partition)

    def _turn_is_over(self) -> None:
        self._append_the_last()
        # One turn later would do, but there may be many requests in it.
        for pool in self._pools.values():
            pool.begin()

    def _append_the_last(self) -> None:
        appends, self._last_appends = self._last_appends, []
        left = iter(appends)
        try:
            for append in left:
                append()
        finally:
            for append in left:  # one of them broke: those behind it are not to blame
                self.append_last(append)

    def _begin(self, partition: Partition) -> Job | None:
        """The next sync of the partition, if it has something for one."""
        ticket = None
        try:
            ticket = self._take_ticket(partition)
        except AssertionError as broken:
            self._on_fatal(broken)
        finally:
            if ticket is None:
                self._rest(partition)
        if ticket is None:
            return None
        started_s = self._loop.time()

        def done(error: BaseException | None) -> None:
            self.sync_times.observe(self._loop.time() - started_s)
            self._rest(partition)
            if error is not None and not isinstance(error, OSError):
                self._on_fatal(error)
                return
            try:
                self._synced(partition, ticket, error)
            except AssertionError as broken:
                self._on_fatal(broken)

        return ticket, done

    def _take_ticket(self, partition: Partition) -> FlushTicket | None:
        if not partition.online or self._closed:
            return None
        try:
            return partition.log.begin_flush()
        except OSError as error:
            # A sealed segment may have to be opened, and descriptors may be short. Nothing is
            # lost: the sweep of the waiters, or the next append, asks again.
            self._on_disk_failed(partition.log, Call.WRITE, error)
            return None

    def _synced(self, partition: Partition, ticket: FlushTicket, error: OSError | None) -> None:
        """The sync has ended; the next one is due if there is something for it already."""
        log = partition.log
        if not partition.online:
            log.give_up_flush(ticket)
            return
        if ticket.is_put_off and error is not None:
            log.put_off_flush(ticket)  # the sweep of the waiters, or the next append, asks again
            self._on_disk_failed(log, Call.WRITE, error)
            return
        if error is not None:
            log.give_up_flush(ticket)
            self._on_disk_failed(log, Call.SYNC, error)
            return
        log.finish_flush(ticket)
        if partition.durable_waiters:
            self._settle(partition)
        self._advance(partition)
        if not partition.flushing and self._wants_sync(partition):
            self._begin_soon(partition)

    def _wants_sync(self, partition: Partition) -> bool:
        return partition.log.must_flush or bool(partition.durable_waiters)

    def _settle(self, partition: Partition) -> None:
        """What is durable now, somebody may have waited for."""
        waiters = partition.durable_waiters
        while waiters and waiters[0].last_offset < partition.log.durable_end:
            waiter = waiters.popleft()
            waiter.listener.committed(waiter.part)

    def _advance(self, partition: Partition) -> None:
        """The visible end has moved: the high watermark follows, and who waits is answered."""
        log = partition.log
        visible_end = log.visible_end
        log.set_high_watermark(visible_end)
        waiters = partition.commit_waiters
        while waiters and waiters[0].last_offset < visible_end:
            waiter = waiters.popleft()
            waiter.listener.committed(waiter.part)
        if partition.fetch_waiters:
            for fetch in tuple(partition.fetch_waiters):
                if fetch.of_several:
                    self._look_soon(fetch, partition)
                else:
                    fetch.advanced()

    def _look_soon(self, fetch: FetchWaiter, partition: Partition) -> None:
        """More of its partitions may advance in this turn, by the same Produce or by syncs that
        ended together: one answer for all saves a fetch."""
        if not self._looking:
            self._loop.call_soon(self._look)
        self._looking[fetch] = partition

    def _look(self) -> None:
        looking, self._looking = self._looking, {}
        left = iter(looking.items())
        try:
            for fetch, partition in left:
                if fetch in partition.fetch_waiters:  # else it was answered meanwhile, or is gone
                    fetch.advanced()
        except AssertionError as broken:
            self._on_fatal(broken)
        finally:
            for fetch, partition in left:
                self._look_soon(fetch, partition)

    def _interrupt(self, partition: Partition) -> None:
        for fetch in tuple(partition.fetch_waiters):
            fetch.interrupted()

    def _fail_commits(self, partition: Partition, code: ErrorCode) -> None:
        waiters = (*partition.commit_waiters, *partition.durable_waiters)
        # In place: one that has just been answered may be what brought this about.
        partition.commit_waiters.clear()
        partition.durable_waiters.clear()
        for waiter in waiters:
            waiter.listener.failed(waiter.part, code)


def _remove(index: dict[K, dict[int, Partition]], key: K, partition: Partition) -> None:
    """Takes a partition out of an index, unless another of its name has its place."""
    partitions = index.get(key)
    if partitions is not None and partitions.get(partition.index) is partition:
        del partitions[partition.index]
        if not partitions:
            del index[key]
