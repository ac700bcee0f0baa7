"""ListOffsets by time beside others: a busy worker, a log that changes, headers that lie."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from ottla.broker.log.log import Log
from ottla.broker.lookups import WORKERS_MAX
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.offsets import ListOffsetsRequest
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.protocol.records.batch import HEADER_SIZE, write_crc
from tests.handlers.rooms import House
from tests.handlers.test_offsets import delete, list_offset
from tests.log.logs import first_at_time, timed_batch
from tests.log.test_time_search import lying_batch

TIME = 1_700_000_000_000
NOTHING = (ErrorCode.NONE, -1, -1, -1)


class HeldWorkers(Executor):
    """Workers that do nothing before they are let."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.came = asyncio.Event()

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(work(*args, **kwargs))
            except (KafkaError, OSError) as error:
                future.set_exception(error)

        self.waiting.append(run)
        self.came.set()
        return future

    async def taken(self, count: int = 1) -> None:
        """Waits until so many jobs wait."""
        while len(self.waiting) < count:
            self.came.clear()
            await self.came.wait()

    def let_one(self) -> None:
        self.waiting.pop(0)()


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House() as opened:
        yield opened


@pytest.fixture
async def workers(house: House) -> HeldWorkers:
    """One partition with a plain batch, a compressed one, and a plain one; all workers are busy."""
    await house.create("t", partitions=2)
    log = log_of(house)
    await append(house, timed_batch([TIME, TIME + 1]))
    await append(house, timed_batch([TIME + 2, TIME + 3], codec=4))
    await append(house, timed_batch([TIME + 4, TIME + 5]))
    assert log.high_watermark == 6
    house.lookup_workers = HeldWorkers()
    return house.lookup_workers


def log_of(house: House, partition: int = 0) -> Log:
    led = house.rooms.replicas.get("t", partition)
    assert led is not None
    return led.log


async def append(house: House, batch: memoryview, partition: int = 0) -> None:
    await house.append_batch("t", partition, batch)


async def test_what_is_plain_and_short_is_answered_at_once(
    house: House, workers: HeldWorkers
) -> None:
    assert await list_offset(house, TIME + 1) == (0, 1, TIME + 1, 0)
    assert await list_offset(house, TIME + 4) == (0, 4, TIME + 4, 0)
    assert not workers.waiting


async def test_others_are_answered_while_a_worker_is_busy(
    house: House, workers: HeldWorkers
) -> None:
    asked = asyncio.create_task(list_offset(house, TIME + 3))
    await workers.taken()

    assert await list_offset(house, -1) == (0, 6, -1, 0)
    assert await list_offset(house, TIME) == (0, 0, TIME, 0)
    assert not asked.done()
    workers.let_one()
    assert await asked == (0, 3, TIME + 3, 0)


async def test_a_partition_that_is_deleted_meanwhile_is_not_answered_from(
    house: House, workers: HeldWorkers
) -> None:
    asked = asyncio.create_task(list_offset(house, TIME + 3))
    await workers.taken()
    await house.ask(DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState("t")]), 6)
    workers.let_one()

    assert await asked == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)


async def test_a_partition_that_is_made_anew_meanwhile_is_asked_anew(
    house: House, workers: HeldWorkers
) -> None:
    asked = asyncio.create_task(list_offset(house, TIME + 3))
    await workers.taken()
    await house.ask(DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState("t")]), 6)
    await house.create("t")
    workers.let_one()

    assert await asked == NOTHING


async def test_a_leader_that_is_lost_meanwhile_does_not_answer(
    house: House, workers: HeldWorkers
) -> None:
    asked = asyncio.create_task(list_offset(house, TIME + 3))
    await workers.taken()
    await house.lose_leader("t", 0)
    workers.let_one()

    assert (await asked)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_leader_of_a_later_epoch_looks_again(house: House, workers: HeldWorkers) -> None:
    believing = asyncio.create_task(list_offset(house, TIME + 3, epoch=0))
    careless = asyncio.create_task(list_offset(house, TIME + 3))
    await workers.taken(2)
    await house.raise_leader_epoch("t", 0)
    workers.let_one()
    workers.let_one()

    assert (await believing)[0] == ErrorCode.FENCED_LEADER_EPOCH
    await workers.taken()
    assert not careless.done()
    workers.let_one()
    assert await careless == (0, 3, TIME + 3, 0)


async def test_what_is_deleted_meanwhile_is_not_told(house: House, workers: HeldWorkers) -> None:
    asked = asyncio.create_task(list_offset(house, TIME + 2))
    await workers.taken()
    await delete(house, 4)
    workers.let_one()

    assert await asked == (0, 4, TIME + 4, 0)


async def test_the_greatest_of_what_is_left_is_told(house: House, workers: HeldWorkers) -> None:
    await append(house, timed_batch([TIME + 9], codec=4))
    await append(house, timed_batch([TIME + 8]))
    asked = asyncio.create_task(list_offset(house, -3))
    await workers.taken()
    await delete(house, 7)
    workers.let_one()

    assert await asked == (0, 7, TIME + 8, 0)


async def test_what_cannot_be_read_is_the_same_error_for_its_partition_alone(
    house: House, workers: HeldWorkers
) -> None:
    batch = timed_batch([TIME + 20], codec=4)
    batch[HEADER_SIZE:] = b"\xff" * (len(batch) - HEADER_SIZE)
    write_crc(batch)
    await append(house, batch, 1)
    with pytest.raises(KafkaError) as caught:
        first_at_time(log_of(house, 1), TIME + 20)
    topic = ListOffsetsRequest.ListOffsetsTopic(
        "t",
        [
            ListOffsetsRequest.ListOffsetsPartition(1, -1, TIME + 20),
            ListOffsetsRequest.ListOffsetsPartition(0, -1, TIME + 5),
        ],
    )
    asked = asyncio.create_task(house.ask(ListOffsetsRequest(-1, 0, [topic]), 11))
    await workers.taken()
    workers.let_one()
    bad, good = (await asked).topics[0].partitions

    assert bad.error_code == caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert (good.error_code, good.offset) == (0, 5)


async def test_no_more_than_a_few_have_a_worker(house: House, workers: HeldWorkers) -> None:
    asked = [asyncio.create_task(list_offset(house, TIME + 3)) for _ in range(2 * WORKERS_MAX)]
    await workers.taken(WORKERS_MAX)
    for _ in asked:
        assert len(workers.waiting) <= WORKERS_MAX
        await workers.taken()
        workers.let_one()

    assert await asyncio.gather(*asked) == [(0, 3, TIME + 3, 0)] * len(asked)


async def test_a_file_that_is_closed_meanwhile_is_read_all_the_same(
    house: House, workers: HeldWorkers
) -> None:
    """Sealed segments are closed when others are read; who waits for a worker keeps none open."""
    asked = [asyncio.create_task(list_offset(house, TIME + 3)) for _ in range(2 * WORKERS_MAX)]
    await workers.taken(WORKERS_MAX)
    log_of(house).segments.active.release()
    for _ in asked:
        await workers.taken()
        workers.let_one()

    assert await asyncio.gather(*asked) == [(0, 3, TIME + 3, 0)] * len(asked)
    assert log_of(house).segments.active.file is None


async def test_a_segment_that_is_deleted_meanwhile_is_looked_behind(
    house: House, workers: HeldWorkers
) -> None:
    asked = asyncio.create_task(list_offset(house, TIME + 3))
    await workers.taken()
    log = log_of(house)
    house.disk.rename(log.segments.active.log_path, f"{log.segments.active.log_path}.deleted")
    await delete(house, 4)
    workers.let_one()
    house.disk.rename(f"{log.segments.active.log_path}.deleted", log.segments.active.log_path)

    assert await asked == (0, 4, TIME + 4, 0)


async def test_a_file_that_is_missing_is_an_error_of_its_partition(
    house: House, workers: HeldWorkers
) -> None:
    asked = asyncio.create_task(list_offset(house, TIME + 3))
    await workers.taken()
    path = log_of(house).segments.active.log_path
    house.disk.rename(path, f"{path}.lost")
    workers.let_one()

    assert (await asked)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    (told,) = house.events.named("times_not_read")
    assert (told["topic"], told["partition"]) == ("t", 0)
    assert path in told["reason"]


async def test_workers_that_take_nothing_are_asked_again(
    house: House, workers: HeldWorkers
) -> None:
    """As where no thread can be started: it must not cost the turn of whoever comes next."""

    class Refusing(Executor):
        def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            raise RuntimeError("can't start new thread")

    house.lookup_workers = Refusing()
    for _ in range(2 * WORKERS_MAX):
        with pytest.raises(RuntimeError):
            await list_offset(house, TIME + 3)
    house.lookup_workers = workers
    asked = asyncio.create_task(list_offset(house, TIME + 3))
    await workers.taken()
    workers.let_one()

    assert await asked == (0, 3, TIME + 3, 0)


async def test_a_worker_whose_request_is_given_up_keeps_its_turn(
    house: House, workers: HeldWorkers
) -> None:
    given_up = [asyncio.create_task(list_offset(house, TIME + 3)) for _ in range(WORKERS_MAX)]
    await workers.taken(WORKERS_MAX)
    for one in given_up:
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
    asked = asyncio.create_task(list_offset(house, TIME + 3))
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(workers.waiting) == WORKERS_MAX

    workers.let_one()
    await workers.taken(WORKERS_MAX)
    workers.let_one()
    workers.let_one()
    assert await asked == (0, 3, TIME + 3, 0)


async def turns_while(asked: Awaitable[Any]) -> int:
    """How often others had the loop."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await asked
    counting.cancel()
    return turns


async def test_headers_that_lie_hold_the_loop_for_a_step_each(house: House) -> None:
    await house.create("t")
    for step in range(400):
        await append(house, lying_batch([TIME + step], TIME + 1000))
    await append(house, timed_batch([TIME + 1000]))

    assert await list_offset(house, TIME + 999) == (0, 400, TIME + 1000, 0)
    assert await turns_while(list_offset(house, TIME + 999)) > 400


@pytest.mark.parametrize(("took_ms", "turns_min", "turns_max"), [(0, 0, 20), (1, 200, 700)])
async def test_many_partitions_are_looked_up_in_turns_of_a_millisecond(
    house: House, took_ms: int, turns_min: int, turns_max: int
) -> None:
    """As the clock says, each look at it takes so long."""
    await house.create("t", partitions=300)
    ticks = itertools.count()
    house.lookup_clock_s = lambda: took_ms * next(ticks) / 1000
    asked = [ListOffsetsRequest.ListOffsetsPartition(index, -1, TIME) for index in range(300)]
    topic = ListOffsetsRequest.ListOffsetsTopic("t", asked)

    turns = await turns_while(house.ask(ListOffsetsRequest(-1, 0, [topic]), 11))
    assert turns_min <= turns <= turns_max
