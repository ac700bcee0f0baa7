"""A fetch that waits for several partitions is answered once for all that move in one turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.broker.handlers.fetch import ParkedFetch
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from tests.handlers.parked import Answers, park
from tests.handlers.rooms import House

TOPIC = "t"
AT_LEISURE = {"flush.messages": "1000000"}


def _park(house: House, topic_id: bytes, partitions: int) -> tuple[ParkedFetch, Answers]:
    parts = [
        FetchRequest.FetchPartition(index, partition_max_bytes=1000) for index in range(partitions)
    ]
    topic = FetchRequest.FetchTopic(topic_id=topic_id, partitions=parts)
    request = FetchRequest(max_wait_ms=60_000, min_bytes=1, session_epoch=-1, topics=[topic])
    return park(house, request)


def _partitions(response: FetchResponse) -> list[int]:
    return [
        part.partition_index
        for topic in response.responses
        for part in topic.partitions
        if part.records
    ]


async def test_one_answer_has_all_that_came_in_one_turn(house: House) -> None:
    topic_id = await house.create(TOPIC, partitions=3, configs=AT_LEISURE)
    _, answers = _park(house, topic_id, 3)

    await asyncio.gather(*(house.append(TOPIC, index, [b"v"]) for index in (2, 0)))
    await asyncio.wait_for(answers.arrived.wait(), 5)

    (answer,) = answers.given
    assert sorted(_partitions(answer)) == [0, 2]


async def test_who_waits_for_one_partition_is_answered_at_once(house: House) -> None:
    topic_id = await house.create(TOPIC, configs=AT_LEISURE)
    _, answers = _park(house, topic_id, 1)

    await house.append(TOPIC, 0, [b"v"])

    assert [_partitions(answer) for answer in answers.given] == [[0]]


@pytest.mark.parametrize("ending", ["hurry", "on_abandoned"])
async def test_who_is_answered_or_gone_within_the_turn_is_left_in_peace(
    house: House, ending: str
) -> None:
    topic_id = await house.create(TOPIC, partitions=2, configs=AT_LEISURE)
    parked, answers = _park(house, topic_id, 2)

    await house.append(TOPIC, 0, [b"v"])
    getattr(parked, ending)()
    given = list(answers.given)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert answers.given == given
    assert len(given) == (1 if ending == "hurry" else 0)
    for index in range(2):
        partition = house.rooms.replicas.get(TOPIC, index)
        assert partition is not None
        assert not partition.fetch_waiters


async def test_one_that_breaks_ends_the_broker_and_no_others_wait(house: House) -> None:
    topic_id = await house.create(TOPIC, partitions=2, configs=AT_LEISURE)
    broken: Any = _Broken()
    partition = house.rooms.replicas.get(TOPIC, 0)
    assert partition is not None
    partition.fetch_waiters[broken] = None
    _, answers = _park(house, topic_id, 2)

    await house.append(TOPIC, 0, [b"v"])
    await asyncio.wait_for(answers.arrived.wait(), 5)

    assert [str(one) for one in house.take_fatal()] == ["answered twice"]
    assert [_partitions(answer) for answer in answers.given] == [[0]]


class _Broken:
    of_several = True

    def advanced(self) -> None:
        raise AssertionError("answered twice")

    def interrupted(self) -> None:
        raise AssertionError("answered twice")
