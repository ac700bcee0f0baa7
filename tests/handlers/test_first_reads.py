"""A fetch that is the first to read from many partitions: others have the loop in between."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.broker.handlers.fetch import FetchBehindReads, handle_fetch
from ottla.broker.handlers.fetch_reading import FIRST_READS_AT_ONCE
from ottla.broker.log.log import Log
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.topics import DeleteTopicsRequest
from tests.handlers.parked import Answers, park
from tests.handlers.rooms import House

TOPIC = "t"
MANY = FIRST_READS_AT_ONCE + 2
MUCH = 1 << 20


@pytest.fixture
async def started(house: House) -> AsyncIterator[House]:
    """Partitions with a record each, from none of which anybody has read since the start; each
    look-up takes a turn of the loop."""
    await house.create(TOPIC, partitions=MANY)
    for index in range(MANY):
        await house.append(TOPIC, index, [b"v"])
    async with house.restarted() as again:
        again.lookup_clock_s = map(float, itertools.count()).__next__
        yield again


def request(
    house: House, partitions: int, *, min_bytes: int = 1, max_wait_ms: int = 60_000
) -> FetchRequest:
    parts = [FetchRequest.FetchPartition(index, partition_max_bytes=MUCH) for index in range(MANY)]
    topic_id = house.rooms.image.topics.by_name[TOPIC].topic_id
    topic = FetchRequest.FetchTopic(topic_id=topic_id, partitions=parts[:partitions])
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=MUCH,
        session_epoch=-1,
        topics=[topic],
    )


def log_of(house: House, partition: int) -> Log:
    led = house.rooms.replicas.get(TOPIC, partition)
    assert led is not None
    return led.log


def count_read(house: House) -> int:
    return sum(log_of(house, index).is_read_from(0) for index in range(MANY))


def codes(response: FetchResponse) -> list[int]:
    """The error of each partition, or -1 if it has records."""
    parts = [part for topic in response.responses for part in topic.partitions]
    return [-1 if part.records else part.error_code for part in parts]


async def until_read(house: House, count: int = MANY) -> None:
    while count_read(house) < count:
        await asyncio.sleep(0)


async def answer_of(answers: Answers) -> Any:
    await asyncio.wait_for(answers.arrived.wait(), 5)
    (answer,) = answers.given
    return answer


async def test_one_partition_is_read_from_in_a_turn(started: House) -> None:
    parked, answers = park(started, request(started, MANY))
    assert isinstance(parked, FetchBehindReads)
    seen = [count_read(started)]
    while not answers.given:
        await asyncio.sleep(0)
        seen.append(count_read(started))

    assert seen[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(seen))
    assert codes(await answer_of(answers)) == [-1] * MANY


async def test_from_a_few_it_is_answered_at_once(started: House) -> None:
    answer = handle_fetch(started.session, request(started, FIRST_READS_AT_ONCE), 16)

    assert isinstance(answer, FetchResponse)
    assert codes(answer) == [-1] * FIRST_READS_AT_ONCE


async def test_what_was_read_from_is_answered_at_once(started: House) -> None:
    _, answers = park(started, request(started, MANY))
    await answer_of(answers)

    assert isinstance(handle_fetch(started.session, request(started, MANY), 16), FetchResponse)


@pytest.mark.parametrize("ending", ["expired", "hurry", "interrupted"])
async def test_the_end_of_the_wait_waits_for_the_reads(started: House, ending: str) -> None:
    parked, answers = park(started, request(started, MANY, min_bytes=MUCH))
    getattr(parked, ending)()
    assert answers.given == []
    await until_read(started)

    assert codes(await answer_of(answers)) == [-1] * MANY


async def test_who_does_not_wait_is_answered_behind_the_reads(started: House) -> None:
    _, answers = park(started, request(started, MANY, min_bytes=MUCH, max_wait_ms=0))

    assert codes(await answer_of(answers)) == [-1] * MANY
    assert count_read(started) == MANY


async def test_it_waits_for_more_behind_the_reads(started: House) -> None:
    _, answers = park(started, request(started, MANY, min_bytes=1000))
    async with started.rooms.lookups._turn:
        await started.append(TOPIC, 0, [b"v" * 1000])
        for _ in range(3):
            await asyncio.sleep(0)
    assert answers.given == [], "it has read from one of them"
    await until_read(started)
    assert codes(await answer_of(answers)) == [-1] * MANY


async def test_it_waits_for_enough_behind_the_reads(started: House) -> None:
    _, answers = park(started, request(started, MANY, min_bytes=1000))
    await until_read(started)
    for _ in range(3):
        await asyncio.sleep(0)
    assert answers.given == []
    await started.append(TOPIC, 1, [b"v" * 1000])

    assert codes(await answer_of(answers)) == [-1] * MANY


async def test_who_is_gone_is_not_read_for(started: House) -> None:
    parked, answers = park(started, request(started, MANY))
    parked.abandoned = True
    parked.on_abandoned()
    read = count_read(started)
    for _ in range(2 * MANY):
        await asyncio.sleep(0)

    assert count_read(started) == read
    assert answers.given == []


async def test_who_is_gone_behind_the_last_read_is_not_answered(started: House) -> None:
    parked, answers = park(started, request(started, MANY))
    assert isinstance(parked, FetchBehindReads)
    following = parked._following
    assert following is not None
    while not following.done():
        await asyncio.sleep(0)
    assert parked._following is following, "it was told already"
    parked.abandoned = True
    parked.on_abandoned()
    await asyncio.sleep(0)

    assert parked._following is None
    assert answers.given == []


async def test_a_session_under_way_does_not_look_for_first_reads(started: House) -> None:
    asked = request(started, MANY)
    asked.session_epoch = 0
    _, answers = park(started, asked)
    session_id = (await answer_of(answers)).session_id
    for index in range(MANY):
        log_of(started, index).segments.active.release()
    again = FetchRequest(
        max_wait_ms=60_000, min_bytes=1, max_bytes=MUCH, session_id=session_id, session_epoch=1
    )

    answer = handle_fetch(started.session, again, 16)
    assert isinstance(answer, FetchResponse)
    assert codes(answer) == [-1] * MANY


async def test_what_is_deleted_meanwhile_is_told(started: House) -> None:
    _, answers = park(started, request(started, MANY))
    async with started.rooms.lookups._turn:
        await started.ask(DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState(TOPIC)]), 6)
    assert answers.given == []

    assert codes(await answer_of(answers)) == [ErrorCode.UNKNOWN_TOPIC_ID] * MANY


async def test_what_cannot_be_read_is_the_error_of_its_partition_alone(started: House) -> None:
    started.disk.rename(path := log_of(started, 1).segments.active.log_path, path + ".away")
    _, answers = park(started, request(started, MANY))

    found = codes(await answer_of(answers))
    assert found == [-1, ErrorCode.KAFKA_STORAGE_ERROR] + [-1] * (MANY - 2)
