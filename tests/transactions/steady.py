"""A broker in virtual time, without threads, and what producers send it and readers see of it.

`SteadyHouse` does the same whenever it is given the same chance, so that one seed is one story:
what it would do in a worker it does at once, and how long a sync takes is drawn. `Producer` sends
one request after another, again while it is told to.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ParamSpec, Self, TypeVar

from ottla.broker.coordinator.transaction.states import AT_REST
from ottla.broker.log.log import UPPER_LOG_END, Log
from ottla.broker.log.manager import LogManager
from ottla.broker.replication.replicas import Partition, Replicas
from ottla.broker.replication.syncs import Job, SyncPool
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import groups, transactions
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.producer_ids import InitProducerIdRequest
from ottla.protocol.records.batch import BatchHeader, iterate_headers
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import read_marker
from ottla.protocol.records.record import Record, iterate_records
from ottla.testing.clock import SimClock
from ottla.testing.disk import SimDisk
from tests.broker import virtual_loop
from tests.coordinator.asking import ask
from tests.handlers.rooms import DATA_DIR, START_MS, House

P = ParamSpec("P")
T = TypeVar("T")

TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"
CONFIG = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
}
TIMEOUT_MS = 10_000
GROUP = "g"
ATTEMPTS = 50
"""Of a request that is told to ask again, every 20 ms."""

AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Inline(ThreadPoolExecutor):
    """Does at once what it is given."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except (KafkaError, OSError) as error:
            future.set_exception(error)
        return future


class LoopClock(SimClock):
    """The time of the loop, which is virtual."""

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()

    def monotonic_ms(self) -> int:
        return round(self._loop.time() * 1000)

    def wall_ms(self) -> int:
        return START_MS + self.monotonic_ms()


class Syncs(SyncPool[Partition]):
    """Syncs that take as long as chance says, and end in any order."""

    def __init__(self, replicas: Replicas, rng: random.Random, slowest_ms: int) -> None:
        loop, want_last = asyncio.get_running_loop(), replicas._append_the_last
        super().__init__(loop, "sim", replicas._begin, lambda: None, want_last)
        self._rng = rng
        self._slowest_ms = slowest_ms
        self._waiting: dict[int, Job] = {}
        self._count = 0

    def submit(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self._count += 1
            self._waiting[self._count] = job
            self._round += 1  # as if all were small, and the kernel's
            delay_s = self._rng.randrange(self._slowest_ms + 1) / 1000
            self._loop.call_later(delay_s, self._end, self._count)

    async def close(self, workers: Executor) -> None:
        for number in list(self._waiting):
            self._end(number)

    def _end(self, number: int) -> None:
        job = self._waiting.pop(number, None)
        if job is None:
            return
        ticket, done = job
        error: OSError | None = None
        try:
            ticket.sync()
        except OSError as failed:
            error = failed
        self._round -= 1
        done(error)
        self._begin_soon()


class SteadyHouse(House):
    """A broker that does the same whenever it is given the same; only on a virtual loop."""

    def __init__(
        self,
        config: Mapping[str, str],
        rng: random.Random,
        *,
        disk: SimDisk | None = None,
        slowest_sync_ms: int = 3,
    ) -> None:
        super().__init__({**CONFIG, **config}, disk=disk)
        self._clock = LoopClock()
        self._rng = random.Random(rng.random())  # or topics would get the ids of a former life
        self._chance = rng
        self._slowest_sync_ms = slowest_sync_ms

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        return self

    def _make_logs(self) -> LogManager:
        self._workers.shutdown()
        self._workers = Inline()
        asyncio.get_running_loop().set_default_executor(Inline())
        logs = super()._make_logs()
        logs.recovery_threads = 1  # a simulated disk is not for several
        return logs

    def _make_coordinators(self, replicas: Replicas) -> Any:
        replicas._pools[DATA_DIR] = Syncs(replicas, self._chance, self._slowest_sync_ms)
        return super()._make_coordinators(replicas)

    async def make_coordinator_topics(self) -> None:
        for key_type, name in ((0, GROUP), (1, "x")):
            await self.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name]), 4)

    def partition(self, topic: str, index: int = 0) -> Partition:
        partition = self.rooms.replicas.get(topic, index)
        assert partition is not None, (topic, index)
        return partition

    def check_open(self) -> None:
        """Whatever is open in a partition is known to its coordinator to be open there."""
        known = {
            (one.producer_id, place)
            for _, shard in self.rooms.transactions.loaded()
            for one in shard.transactions.values()
            if one.state not in AT_REST
            for place in one.partitions
        }
        if len(self.rooms.transactions.loaded()) < int(
            CONFIG["transaction.state.log.num.partitions"]
        ):
            return
        for partition in self.rooms.replicas:
            place = partition.topic, partition.index
            for offset, producer_id in partition.log.producer_state.open_transactions.items():
                assert (producer_id, place) in known, (
                    f"T3: {producer_id} is open in {place} at {offset}, and nobody will end it"
                )


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Runs it to its end, in virtual time."""
    return virtual_loop.run(scenario)


async def rest(seconds: float) -> None:
    """Virtual seconds."""
    await asyncio.sleep(seconds)


# what clients send, and see


@dataclass
class Producer:
    """One producer; each method sends one request, again while it is told to, and returns the error
    code that it ends with."""

    house: House
    name: str
    is_newer: bool
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    async def init(self) -> int:
        request = InitProducerIdRequest(self.name, TIMEOUT_MS)
        answer = await self._until_it_knows(request, 5 if self.is_newer else 4)
        if not answer.error_code:
            self.take_up(answer)
        return int(answer.error_code)

    async def add(self, *places: tuple[str, int]) -> int:
        """Only the older protocol has to."""
        answer = await self._until_it_knows(self.adding(*places), 3)
        (first, *_) = codes_of(answer)
        return first

    async def write(self, topic: str, index: int, *values: bytes) -> int:
        version = 12 if self.is_newer else 11
        request = self.writing(topic, index, *values)
        answer = await self._until_it_knows(request, version)
        (code,) = codes_of(answer)
        return code

    async def commit_offset(self, group: str, topic: str, index: int, offset: int) -> int:
        if not self.is_newer:
            adding = transactions.AddOffsetsToTxnRequest(
                self.name, self.producer_id, self.epoch, group
            )
            answer = await self._until_it_knows(adding, 3)
            if answer.error_code:
                return int(answer.error_code)
        request = self.committing(group, topic, index, offset)
        (code,) = codes_of(await self._until_it_knows(request, 5 if self.is_newer else 3))
        return code

    async def end(self, *, committed: bool) -> int:
        request = transactions.EndTxnRequest(self.name, self.producer_id, self.epoch, committed)
        answer = await self._until_it_knows(request, 5 if self.is_newer else 3)
        if not answer.error_code and self.is_newer:
            self.take_up(answer)
        return int(answer.error_code)

    def adding(self, *places: tuple[str, int]) -> transactions.AddPartitionsToTxnRequest:
        topic = transactions.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        return transactions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[topic(name, [index]) for name, index in places],
        )

    def writing(
        self, topic: str, index: int, *values: bytes, is_plain: bool = False, codec: int = 0
    ) -> ProduceRequest:
        """The next batch of this producer in a partition."""
        sequence = self.sequences.get((topic, index), 0)
        self.sequences[topic, index] = sequence + len(values)
        batch = build_batch(
            [Record(0, START_MS, None, value) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=not is_plain,
            codec=codec,
        )
        data = ProduceRequest.PartitionProduceData(index, memoryview(batch))
        return ProduceRequest(
            None if is_plain else self.name,
            -1,
            30_000,
            [ProduceRequest.TopicProduceData(topic, partition_data=[data])],
        )

    def committing(
        self, group: str, topic: str, index: int, offset: int
    ) -> transactions.TxnOffsetCommitRequest:
        kind = transactions.TxnOffsetCommitRequest
        part = kind.TxnOffsetCommitRequestPartition(index, offset)
        return kind(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[kind.TxnOffsetCommitRequestTopic(topic, [part])],
        )

    def take_up(self, answer: Any) -> None:
        """Its producer id and epoch from now on; each epoch counts from 0."""
        if (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    async def _until_it_knows(self, request: Any, version: int) -> Any:
        for _ in range(ATTEMPTS):
            answer = await ask(self.house, request, version)
            if not AGAIN & set(codes_of(answer)):
                return answer
            await rest(0.02)
        raise AssertionError(f"T3: {self.name} waits for good: {answer}")


def codes_of(answer: Any) -> list[int]:
    """Every error code of an answer about a transaction."""
    match answer:
        case transactions.AddPartitionsToTxnResponse():
            return [
                part.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for part in topic.results_by_partition
            ]
        case transactions.TxnOffsetCommitResponse():
            return [part.error_code for topic in answer.topics for part in topic.partitions]
        case _ if hasattr(answer, "responses"):
            return [
                part.error_code for topic in answer.responses for part in topic.partition_responses
            ]
        case _:
            return [answer.error_code]


async def fetch(
    house: House,
    topic: str,
    index: int,
    offset: int,
    *,
    committed: bool = True,
    max_bytes: int = 1 << 20,
) -> Any:
    """What one Fetch finds of one partition."""
    part = FetchRequest.FetchPartition(index, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        isolation_level=int(committed), topics=[FetchRequest.FetchTopic(topic, partitions=[part])]
    )
    answer = await ask(house, request, 12)
    (found,) = answer.responses[0].partitions
    return found


def seen(found: Any, offset: int) -> list[tuple[int, bytes]]:
    """(offset, value) of the records in an answer from `offset` on, as a client that reads only
    what is committed takes them."""
    aborted = sorted(
        ((one.first_offset, one.producer_id) for one in found.aborted_transactions or ()),
        reverse=True,
    )
    gone: set[int] = set()
    records: list[tuple[int, bytes]] = []
    data = bytes(found.records or b"")
    for position, header in iterate_headers(data):
        while aborted and aborted[-1][0] <= header.last_offset:
            gone.add(aborted.pop()[1])
        batch = memoryview(data)[position : position + header.size]
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.committed:
                gone.discard(marker.producer_id)
        elif not (header.is_transactional and header.producer_id in gone):
            records += [one for one in values_of(batch) if one[0] >= offset]
    return records


def values_of(batch: memoryview) -> list[tuple[int, bytes]]:
    return [(one.offset, bytes(one.value or b"")) for one in iterate_records(batch)]


async def read(
    house: House, topic: str, index: int = 0, *, committed: bool = True, max_bytes: int = 1 << 20
) -> list[tuple[int, bytes]]:
    """(offset, value) of all records from the beginning to the end that a reader may see."""
    offset = house.rooms.replicas.get(topic, index).log.log_start_offset  # type: ignore[union-attr]
    records: list[tuple[int, bytes]] = []
    while True:
        found = await fetch(house, topic, index, offset, committed=committed, max_bytes=max_bytes)
        assert not found.error_code, (topic, index, ErrorCode(found.error_code))
        if not found.records:
            end = found.last_stable_offset if committed else found.high_watermark
            assert offset >= end, f"{topic}-{index}: nothing at {offset}, but the end is {end}"
            return records
        records += seen(found, offset)
        offset = [header for _, header in iterate_headers(bytes(found.records))][-1].last_offset + 1


async def committed_offset(
    house: House, group: str, topic: str, index: int, *, stable: bool = True
) -> tuple[int, int]:
    """Error code and offset."""
    asked = groups.OffsetFetchRequest.OffsetFetchRequestTopics(topic, partition_indexes=[index])
    one = groups.OffsetFetchRequest.OffsetFetchRequestGroup(group, topics=[asked])
    answer = await ask(house, groups.OffsetFetchRequest(groups=[one], require_stable=stable), 9)
    (found,) = answer.groups
    if found.error_code:
        return found.error_code, -1
    (part,) = found.topics[0].partitions
    return part.error_code, part.committed_offset


def headers_of(log: Log) -> list[tuple[BatchHeader, memoryview]]:
    """All batches of a log, of which one read gives no more than a segment's."""
    found: list[tuple[BatchHeader, memoryview]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, max_bytes=1 << 30, upper=UPPER_LOG_END, at_least_one=True)
        assert piece is not None, (log, offset)
        data = piece.read()
        found += [
            (header, memoryview(data)[position : position + header.size])
            for position, header in iterate_headers(data)
        ]
        offset = found[-1][0].last_offset + 1
    return found
