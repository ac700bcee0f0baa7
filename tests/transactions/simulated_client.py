"""A producer of the simulation: what it sends when, and what it takes an answer for.

As clients do, it sends a request again when it does not know what has become of it, and gives up
at last; then it must not go on in the same epoch with the older protocol, where what is still on
its way would be taken for a part of the next transaction.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from ottla.protocol.messages import transactions
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.producer_ids import InitProducerIdRequest
from ottla.protocol.records.batch import read_header
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from tests.handlers.rooms import START_MS
from tests.transactions.steady import AGAIN, codes_of, rest, values_of

TIMEOUT_MS = 8_000
TOPICS = ("orders", "parts", "notes")
PARTITIONS = 2
INPUT = "input"
"""Whose offsets are committed; each producer has a partition of its own."""
GROUPS = ("g", "h")

Place = tuple[str, int]


@dataclass(eq=False)
class Work:
    """One transaction, as its producer and the world see it."""

    producer: str
    number: int
    is_newer: bool
    producer_id: int
    epoch: int
    written: dict[bytes, tuple[bytes, Place]] = field(default_factory=dict)
    """Value -> topic id and place, of what was acknowledged."""
    tried: set[bytes] = field(default_factory=set)
    offsets: dict[str, set[int]] = field(default_factory=dict)
    """Group -> those that were asked for; one that was doubled may come last once more."""
    may_be_committed: bool = False
    """Its commit was asked for."""
    is_committed: bool = False
    """And acknowledged."""

    def __repr__(self) -> str:
        protocol = 2 if self.is_newer else 1
        return f"{self.producer}#{self.number}(tv{protocol} {self.producer_id}/{self.epoch})"


class Fenced(Exception):
    """A producer is told that it is none any more, or that its transaction cannot go on."""


class GivenUp(Exception):
    """A client has asked as often as it would: what has become of it, it does not know."""


class World(Protocol):
    """Where it lives."""

    rng: random.Random
    faults: Any
    is_calm: bool
    counter: int
    works: list[Work]
    topic_ids: dict[str, bytes]
    up: asyncio.Event

    def tell(self, line: str) -> None: ...

    def happens(self, chance: int) -> bool: ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...

    async def send(self, who: Client, request: Any, version: int) -> Any: ...


class Client:
    """One instance of a producer; there may be others of its name."""

    def __init__(self, world: World, name: str, *, is_newer: bool) -> None:
        self.world = world
        self.name = name
        self.is_newer = is_newer
        world.counter += 1
        self.instance = world.counter
        self.producer_id = -1
        self.epoch = -1
        self.left_behind = 0
        """Requests that may still arrive."""
        self._sequences: dict[tuple[bytes, int], int] = {}
        self._is_known = False

    def __repr__(self) -> str:
        return f"{self.name}.{self.instance}"

    async def live(self) -> None:
        world, rng = self.world, self.world.rng
        while not world.is_calm:
            try:
                if not self._is_known or (self.left_behind and not self.is_newer):
                    await self._initialize()
                await self._transact()
            except Fenced:
                # One that has a successor goes; else it begins anew.
                self._is_known = False
                if rng.random() < 0.3:
                    self.producer_id = self.epoch = -1
            except GivenUp:
                self._is_known = False
            await rest(rng.choice((0, 0.05, 0.5, 2)))
            if world.happens(world.faults.replaced):
                await Client(world, self.name, is_newer=rng.random() < 0.5).live()
                return

    async def _initialize(self) -> None:
        """Another instance names no producer; one that goes on says who it has been."""
        request = InitProducerIdRequest(self.name, TIMEOUT_MS, self.producer_id, self.epoch)
        answer = await self._ask(request, self.world.rng.choice((4, 5)))
        if answer.error_code:
            self.producer_id = self.epoch = -1
            raise Fenced
        self._take_up(answer)
        self.left_behind = 0
        self._is_known = True

    def _take_up(self, answer: Any) -> None:
        if (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
            self._sequences.clear()
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    async def _transact(self) -> None:
        world, rng = self.world, self.world.rng
        world.counter += 1
        work = Work(self.name, world.counter, self.is_newer, self.producer_id, self.epoch)
        world.works.append(work)
        world.tell(f"{self} begins {work}")
        for _ in range(rng.randrange(1, 5)):
            await self._maybe_pause()
            if rng.random() < 0.3:
                await self._commit_offset(work)
            else:
                await self._write(work, rng.choice(TOPICS), rng.randrange(PARTITIONS))
        await self._maybe_pause()
        await self._end(work, committed=rng.random() < 0.6)

    async def _maybe_pause(self) -> None:
        """Long enough for its transaction to time out, or for another instance to come."""
        world = self.world
        await rest(world.rng.choice((0, 0, 0.05, 0.3)))
        if not world.happens(world.faults.paused):
            return
        world.tell(f"{self} pauses")
        if world.rng.random() < 0.5:
            world.spawn(Client(world, self.name, is_newer=world.rng.random() < 0.5).live())
        await rest(world.rng.choice((0.2, 3, 20)))
        world.tell(f"{self} is back")

    async def _write(self, work: Work, topic: str, index: int) -> None:
        """A few batches, all on their way at once; what is not acknowledged is sent again."""
        rng, world = self.world.rng, self.world
        if not self.is_newer:
            kind = transactions.AddPartitionsToTxnRequest
            adding = kind(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[kind.AddPartitionsToTxnTopic(topic, [index])],
            )
            self._must(await self._ask(adding, 3))
        topic_id = world.topic_ids[topic]
        by_id = self.is_newer and rng.random() < 0.5
        version = 13 if by_id else 12 if self.is_newer else 11
        requests = []
        for _ in range(rng.choice((1, 1, 2, 4))):
            values = [self._value(work) for _ in range(rng.choice((1, 3)))]
            work.tried |= set(values)
            requests.append((values, self._batch(topic, topic_id, index, values, by_id=by_id)))
        answers = [asyncio.ensure_future(self._ask(request, version)) for _, request in requests]
        found = await asyncio.gather(*answers, return_exceptions=True)
        for (values, _), answer in zip(requests, found, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            self._must(answer)
            if topic_id == world.topic_ids[topic]:
                for value in values:
                    work.written[value] = topic_id, (topic, index)

    def _value(self, work: Work) -> bytes:
        self.world.counter += 1
        return f"{work.producer}.{work.number}.{self.world.counter}".encode()

    def _batch(
        self, topic: str, topic_id: bytes, index: int, values: list[bytes], *, by_id: bool
    ) -> ProduceRequest:
        sequence = self._sequences.get((topic_id, index), 0)
        self._sequences[topic_id, index] = sequence + len(values)
        batch = build_batch(
            [Record(0, START_MS, None, value) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = ProduceRequest.PartitionProduceData(index, memoryview(batch))
        kind = ProduceRequest.TopicProduceData
        one = kind("", topic_id, [data]) if by_id else kind(topic, partition_data=[data])
        return ProduceRequest(self.name, -1, 30_000, [one])

    async def _commit_offset(self, work: Work) -> None:
        rng, world = self.world.rng, self.world
        group = rng.choice(GROUPS)
        world.counter += 1
        work.offsets.setdefault(group, set()).add(world.counter)
        offset = world.counter
        if not self.is_newer:
            adding = transactions.AddOffsetsToTxnRequest(
                self.name, self.producer_id, self.epoch, group
            )
            self._must(await self._ask(adding, 3))
        kind = transactions.TxnOffsetCommitRequest
        part = kind.TxnOffsetCommitRequestPartition(int(self.name[1:]), offset)
        request = kind(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[kind.TxnOffsetCommitRequestTopic(INPUT, [part])],
        )
        version = 5 if self.is_newer else rng.choice((3, 4))
        self._must(await self._ask(request, version))

    async def _end(self, work: Work, *, committed: bool) -> None:
        request = transactions.EndTxnRequest(self.name, self.producer_id, self.epoch, committed)
        work.may_be_committed = committed
        answer = await self._ask(request, 5 if self.is_newer else 3)
        if answer.error_code:
            raise Fenced
        work.is_committed = committed
        if self.is_newer:
            self._take_up(answer)

    def _must(self, answer: Any) -> None:
        """What is refused for good is no part of the transaction: it is aborted, or was."""
        if any(codes_of(answer)):
            raise Fenced

    async def _ask(self, request: Any, version: int) -> Any:
        """Asks again while it does not know, or is told to; gives up at last."""
        rng = self.world.rng
        is_end = isinstance(request, transactions.EndTxnRequest)
        for _ in range(rng.choice((1, 2, 3, 30) if is_end else (1, 3, 30, 30))):
            answer = await self.world.send(self, request, version)
            if answer is not None and not AGAIN & set(codes_of(answer)):
                return answer
            await self.world.up.wait()
            await rest(rng.choice((0, 0.02, 0.2)))
        self.left_behind += 1
        self.world.tell(f"{self} gives up")
        raise GivenUp


def asker_of(request: Any) -> tuple[int, int] | None:
    """The producer that a request is of; None of what asks to be one."""
    match request:
        case ProduceRequest():
            records = request.topic_data[0].partition_data[0].records
            assert records is not None
            header = read_header(records)
            return header.producer_id, header.producer_epoch
        case transactions.AddPartitionsToTxnRequest():
            return request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        case InitProducerIdRequest():
            return None
        case _:
            return request.producer_id, request.producer_epoch


def story_of(request: Any) -> str:
    match request:
        case ProduceRequest():
            topic = request.topic_data[0]
            data = topic.partition_data[0]
            assert data.records is not None
            header = read_header(data.records)
            values = [value.decode() for _, value in values_of(data.records)]
            name = topic.name or topic.topic_id.hex()[:6]
            return (
                f"Produce {name}-{data.index} {header.producer_id}/{header.producer_epoch}"
                f" seq={header.base_sequence} {values}"
            )
        case transactions.AddPartitionsToTxnRequest():
            (added,) = request.v3_and_below_topics
            return f"AddPartitions {added.name}-{added.partitions} {asker_of(request)}"
        case transactions.TxnOffsetCommitRequest():
            offset = request.topics[0].partitions[0].committed_offset
            return f"TxnOffsetCommit {request.group_id}={offset} {asker_of(request)}"
        case transactions.EndTxnRequest():
            verb = "commit" if request.committed else "abort"
            return f"EndTxn {verb} {asker_of(request)}"
        case InitProducerIdRequest():
            return f"InitProducerId {request.producer_id}/{request.producer_epoch}"
        case _:
            return f"{type(request).__name__} {asker_of(request)}"
