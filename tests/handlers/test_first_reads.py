"""A fetch of what is not in memory: a worker waits for the disk, and others have the loop."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import Any

import pytest

from ottla.broker.handlers.answers import Pending
from ottla.broker.handlers.fetch import FetchBehindReads, handle_fetch
from ottla.broker.log.first_touch import OPENED_AT_ONCE, TOUCHES_AT_ONCE
from ottla.broker.log.log import Log
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.topics import DeleteTopicsRequest
from tests.handlers.parked import Answers, park
from tests.handlers.rooms import House
from tests.handlers.test_time_lookups import HeldWorkers
from tests.log.paged_disk import PagedDisk

TOPIC = "t"
MANY = TOUCHES_AT_ONCE + 2
MUCH = 1 << 20
SEGMENT_BYTES = 1 << 20


@pytest.fixture
def disk() -> PagedDisk:
    return PagedDisk()


@pytest.fixture
async def house(disk: PagedDisk) -> AsyncIterator[House]:
    async with House(disk=disk) as opened:
        yield opened


@pytest.fixture
async def started(house: House, disk: PagedDisk) -> AsyncIterator[House]:
    """Partitions with a record each, from none of which anybody has read since the start; each
    look-up takes a turn of the loop."""
    await house.create(TOPIC, partitions=MANY)
    for index in range(MANY):
        await house.append(TOPIC, index, [b"v"])
    async with house.restarted() as again:
        again.lookup_clock_s = map(float, itertools.count()).__next__
        disk.evict()
        yield again


def request(
    house: House,
    partitions: int,
    *,
    min_bytes: int = 1,
    max_wait_ms: int = 60_000,
    max_bytes: int = MANY * MUCH,
) -> FetchRequest:
    parts = [FetchRequest.FetchPartition(index, partition_max_bytes=MUCH) for index in range(MANY)]
    topic_id = house.rooms.image.topics.by_name[TOPIC].topic_id
    topic = FetchRequest.FetchTopic(topic_id=topic_id, partitions=parts[:partitions])
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[topic],
    )


def log_of(house: House, partition: int) -> Log:
    led = house.rooms.replicas.get(TOPIC, partition)
    assert led is not None
    return led.log


def count_read(house: House) -> int:
    return sum(log_of(house, index).segments.active.file is not None for index in range(MANY))


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

    assert seen[0] == 0
    assert all(after - before <= 1 for before, after in itertools.pairwise(seen))
    assert codes(await answer_of(answers)) == [-1] * MANY


async def test_the_loop_does_nothing_while_the_worker_waits_for_the_disk(started: House) -> None:
    started.lookup_workers = workers = HeldWorkers()
    _, answers = park(started, request(started, MANY))
    await workers.taken()
    for _ in range(3):
        await asyncio.sleep(0)
    assert count_read(started) == 0

    workers.let_one()
    await workers.taken()
    assert count_read(started) == TOUCHES_AT_ONCE
    workers.let_one()
    assert codes(await answer_of(answers)) == [-1] * MANY


async def test_what_has_been_evicted_is_a_workers_again(house: House, disk: PagedDisk) -> None:
    await house.create(TOPIC, configs={"segment.bytes": str(SEGMENT_BYTES)})
    for _ in range(3):
        await house.append(TOPIC, 0, [b"v" * (SEGMENT_BYTES // 2)])
    async with house.restarted() as again:
        for _ in range(2):
            disk.evict()
            _, answers = park(again, request(again, 1, max_wait_ms=0))
            assert codes(await answer_of(answers)) == [-1]
            assert disk.waited
            assert disk.waits_of(threading.get_ident()) == []

            answer = handle_fetch(again.session, request(again, 1), 16)
            assert isinstance(answer, FetchResponse)
            assert codes(answer) == [-1]


async def test_what_the_answer_has_no_room_for_is_not_waited_for(started: House) -> None:
    _, answers = park(started, request(started, MANY, max_bytes=100))

    assert codes(await answer_of(answers)) == [-1] + [0] * (MANY - 1)
    assert count_read(started) == TOUCHES_AT_ONCE


async def test_a_few_files_in_memory_are_opened_at_once_of_however_many_partitions(
    started: House,
) -> None:
    _, answers = park(started, request(started, MANY))
    await answer_of(answers)
    for index in range(OPENED_AT_ONCE):
        log_of(started, index).segments.active.release()

    answer = handle_fetch(started.session, request(started, MANY), 16)
    assert isinstance(answer, FetchResponse)
    assert codes(answer) == [-1] * MANY
    for index in range(OPENED_AT_ONCE + 1):
        log_of(started, index).segments.active.release()
    assert isinstance(handle_fetch(started.session, request(started, MANY), 16), FetchBehindReads)


async def test_an_error_of_ours_in_the_worker_is_the_answer_of_the_fetch(started: House) -> None:
    class _Broken(HeldWorkers):
        def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_exception(ValueError("broken"))
            return future

    class _Failing(Answers):
        def failed(self, answer: Pending, error: Exception) -> None:
            self.given.append(error)
            self.arrived.set()

    started.lookup_workers = _Broken()
    parked, _ = park(started, request(started, MANY, max_wait_ms=0))
    parked.line = answers = _Failing()

    assert isinstance(await answer_of(answers), ValueError)


async def test_where_no_thread_can_be_started_the_loop_waits_for_the_disk(
    started: House,
) -> None:
    class _Refusing(HeldWorkers):
        def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            raise RuntimeError("can't start new thread")

    started.lookup_workers = _Refusing()
    _, answers = park(started, request(started, MANY))

    assert codes(await answer_of(answers)) == [-1] * MANY


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


@pytest.mark.parametrize("partition", [1, MANY - 1])
async def test_it_waits_for_enough_behind_the_reads(started: House, partition: int) -> None:
    _, answers = park(started, request(started, MANY, min_bytes=2000))
    await until_read(started)
    for _ in range(3):
        await asyncio.sleep(0)
    assert answers.given == []
    await started.append(TOPIC, partition, [b"v" * 2000])

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


async def test_a_session_under_way_takes_turns_too(started: House, disk: PagedDisk) -> None:
    asked = request(started, MANY)
    asked.session_epoch = 0
    _, answers = park(started, asked)
    session_id = (await answer_of(answers)).session_id
    for index in range(MANY):
        log_of(started, index).segments.active.release()
    disk.evict()
    again = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=MANY * MUCH,
        session_id=session_id,
        session_epoch=1,
    )

    _, answers = park(started, again)
    assert count_read(started) == 0
    assert codes(await answer_of(answers)) == [-1] * MANY


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
