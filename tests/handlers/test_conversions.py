"""Produce to a topic that converts: what waits in memory, and for whom."""

from __future__ import annotations

import asyncio
import os

import pytest

from ottla.broker.handlers.produce import ProduceAnswer, handle_produce
from ottla.broker.network.connection import HELD_BYTES_MAX
from ottla.broker.replication import conversions
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from tests.handlers.parked import Answers
from tests.handlers.rooms import START_MS, House
from tests.handlers.test_time_lookups import HeldWorkers

ZIPPED = {"compression.type": "gzip", "flush.messages": str(2**63 - 1)}
SIZE = 10_000


class Producing:
    """A broker whose conversions wait until the test lets them."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.workers = house.rooms.replicas.conversions.workers = HeldWorkers()

    def send(self, sequence: int, *, size: int = SIZE, acks: int = 1) -> ProduceAnswer:
        records = build_batch(
            [Record(0, START_MS, b"k", bytes(size))],
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
        )
        data = ProduceRequest.PartitionProduceData(0, memoryview(records))
        request = ProduceRequest(
            None, acks, 30_000, [ProduceRequest.TopicProduceData("t", partition_data=[data])]
        )
        answer = handle_produce(self.house.session, request, 9)
        assert isinstance(answer, ProduceAnswer)
        answer.line = Answers()
        return answer

    async def let_all(self) -> None:
        while self.workers.waiting:
            self.workers.let_one()
            await loop_turns()

    def end(self) -> int:
        partition = self.house.rooms.replicas.get("t", 0)
        assert partition is not None
        return partition.log.log_end_offset


async def loop_turns() -> None:
    """The loop hears of what a worker has done."""
    for _ in range(5):
        await asyncio.sleep(0)


def code_of(answer: ProduceAnswer) -> int:
    response = answer.response
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code


async def test_above_the_bound_a_connection_is_not_read_from_until_it_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever connects: what waits is the broker's, not that of one connection."""
    monkeypatch.setattr(conversions, "WAITING_BYTES_MAX", 3 * SIZE)
    async with House() as house:
        await house.create("t", configs=ZIPPED)
        producing = Producing(house)
        answers = [producing.send(number) for number in range(4)]
        held = [answer.held_bytes for answer in answers]
        assert max(held[:3]) < 2 * SIZE
        assert held[3] > HELD_BYTES_MAX
        await producing.let_all()

        assert [code_of(answer) for answer in answers] == [0] * 4
        assert producing.send(4).held_bytes < 2 * SIZE
        await producing.let_all()


async def test_what_a_connection_had_waiting_goes_with_it() -> None:
    """Nothing of it is appended any more, and it makes room; what the producer sends again, by
    another connection, takes its place, behind what was appended before."""
    async with House() as house:
        await house.create("t", configs=ZIPPED)
        producing = Producing(house)
        turns = house.rooms.replicas.conversions
        first, *gone = (producing.send(number) for number in range(6))
        producing.workers.let_one()
        await loop_turns()
        assert code_of(first) == 0
        for answer in gone:
            answer.abandoned = True
            answer.on_abandoned()
        assert not turns._waiting_bytes
        again = [producing.send(number) for number in range(6)]
        await producing.let_all()

        assert [answer.response for answer in gone] == [None] * 5
        assert [code_of(answer) for answer in again] == [0] * 6
        assert producing.end() == 6


@pytest.mark.parametrize("is_too_large", [True, False])
async def test_a_batch_that_is_too_large_is_refused_before_it_is_copied(is_too_large: bool) -> None:
    """Whether it would be converted or only wait behind one that is."""
    async with House() as house:
        await house.create("t", configs={**ZIPPED, "max.message.bytes": str(SIZE)})
        producing = Producing(house)
        producing.send(0, size=100)
        answers = []
        for codec in (0, 1):
            value = os.urandom(SIZE - 200 + 400 * is_too_large)
            records = memoryview(build_batch([Record(0, START_MS, b"k", value)], codec=codec))
            data = ProduceRequest.PartitionProduceData(0, records)
            request = ProduceRequest(
                None, 1, 30_000, [ProduceRequest.TopicProduceData("t", partition_data=[data])]
            )
            answers.append(handle_produce(house.session, request, 9))
        await producing.let_all()

    if not is_too_large:
        assert {type(answer) for answer in answers} == {ProduceAnswer}
        return
    for answer in answers:
        assert isinstance(answer, ProduceResponse)
        (part,) = answer.responses[0].partition_responses
        assert part.error_code == ErrorCode.MESSAGE_TOO_LARGE
