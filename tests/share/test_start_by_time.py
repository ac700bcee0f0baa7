"""Where a share group begins by share.auto.offset.reset=by_duration, when that takes a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from ottla.broker.metadata.image import GROUP_RESOURCE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata_records import ConfigRecord
from ottla.protocol.messages.topics import DeleteTopicsRequest
from tests.coordinator.asking import ask
from tests.handlers.rooms import START_MS, House
from tests.handlers.test_time_lookups import HeldWorkers
from tests.log.logs import timed_batch
from tests.share.sharing import GROUP, TOPIC, Member, topic_id
from tests.share.test_fetch import begin_unknown, configure

ZSTD = 4


@pytest.fixture
async def house() -> AsyncIterator[House]:
    """Two compressed batches; the group is to begin at the second record of the second one."""
    async with House({"share.coordinator.state.topic.num.partitions": "2"}) as opened:
        await opened.create(TOPIC)
        for times in ([START_MS, START_MS + 1000], [START_MS + 2000, START_MS + 3000]):
            await opened.append_batch(TOPIC, 0, timed_batch(times, codec=ZSTD))
        opened.rooms.clock.advance(4000)  # type: ignore[attr-defined]
        await configure(opened, "share.auto.offset.reset", "by_duration:PT1S")
        await begin_unknown(opened)
        yield opened


async def error_of(member: Member) -> tuple[int, str | None]:
    """What the partition of a fetch that may wait answers."""
    (part,) = (await member.fetch(wait_ms=30_000)).responses[0].partitions
    return part.error_code, part.error_message


async def test_others_are_served_meanwhile(house: House) -> None:
    house.lookup_workers = workers = HeldWorkers()
    acquiring = asyncio.create_task(Member(house, "a").acquire(wait_ms=30_000))
    await workers.taken()

    await house.append(TOPIC, 0, [b"x"])
    assert not acquiring.done()
    workers.let_one()
    assert await acquiring == [(3, 4, 1)]


async def test_who_does_not_wait_asks_again(house: House) -> None:
    house.lookup_workers = workers = HeldWorkers()
    a = Member(house, "a")
    assert await a.acquire() == []
    await workers.taken()
    assert await a.acquire() == []
    workers.let_one()

    assert await a.acquire(wait_ms=30_000) == [(3, 3, 1)]
    assert not workers.waiting  # it was looked up once


async def test_what_cannot_be_read_is_an_error_of_its_partition(house: House) -> None:
    """A later fetch looks it up anew."""
    led = house.rooms.replicas.get(TOPIC, 0)
    assert led is not None
    path = led.log.segments.active.log_path
    house.disk.rename(path, f"{path}.lost")
    a = Member(house, "a")
    assert (await a.refused())[0] == ErrorCode.KAFKA_STORAGE_ERROR
    house.disk.rename(f"{path}.lost", path)

    assert await a.acquire(wait_ms=30_000) == [(3, 3, 1)]


async def test_a_topic_that_is_deleted_meanwhile_begins_nowhere(house: House) -> None:
    house.lookup_workers = workers = HeldWorkers()
    id_before = topic_id(house)
    fetching = asyncio.create_task(error_of(Member(house, "a")))
    await workers.taken()
    await ask(house, DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState(TOPIC)]), 6)
    assert (await fetching)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    workers.let_one()
    while house.background:
        await asyncio.sleep(0)

    assert house.rooms.shares.get(GROUP, (id_before, 0)) is None


async def test_without_a_thread_it_is_an_error_of_its_partition(house: House) -> None:
    class Refusing(Executor):
        def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
            raise RuntimeError("can't start new thread")

    able, house.lookup_workers = house.lookup_workers, Refusing()
    a = Member(house, "a")
    code, message = await a.refused()
    assert code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert message is not None
    assert "can't start new thread" in message
    house.lookup_workers = able

    assert await a.acquire(wait_ms=30_000) == [(3, 3, 1)]


async def test_it_begins_at_most_where_the_log_is_committed(house: House) -> None:
    """What is there already and not synced yet is found by its time, and not begun behind."""
    led = house.rooms.replicas.get(TOPIC, 0)
    assert led is not None
    await configure(house, "share.auto.offset.reset", "by_duration:PT0.001S")
    for time in (START_MS, START_MS + 9000):
        house.rooms.replicas.append(led, timed_batch([time]))
    assert led.log.high_watermark == 4
    taken = house.rooms.shares.take_up(GROUP, led)
    while taken.window is None:
        await asyncio.sleep(0)

    assert taken.window.start == 4


async def test_a_duration_that_is_longer_than_the_log_begins_with_it(house: House) -> None:
    longest = f"by_duration:P{'0' * 5000}106751991167300D"
    await configure(house, "share.auto.offset.reset", longest)

    assert await Member(house, "a").acquire(wait_ms=30_000) == [(0, 3, 1)]


async def test_what_an_older_broker_took_is_an_error_until_it_is_mended(house: House) -> None:
    """Nothing says where to begin, and nobody else is kept waiting for it."""
    name = "share.auto.offset.reset"
    record = ConfigRecord(GROUP_RESOURCE, GROUP, name, f"by_duration:P{'9' * 5000}D")
    await house.rooms.quorum.submit(lambda image: ([record], None))
    a = Member(house, "a")
    code, message = await a.refused()
    assert (code, message) == (ErrorCode.UNKNOWN_SERVER_ERROR, f"{name} of the group is invalid.")
    await configure(house, name, "earliest")

    assert await a.acquire(wait_ms=30_000) == [(0, 3, 1)]


async def test_many_partitions_are_looked_up_a_turn_each() -> None:
    """The first fetch of a group may ask for all at once, and others have their turns."""
    async with House({"share.coordinator.state.topic.num.partitions": "2"}) as house:
        await house.create(TOPIC, partitions=50)
        for partition in range(50):
            await house.append(TOPIC, partition, [b"v"])
        found: list[Any] = []
        led = [house.rooms.replicas.get(TOPIC, index) for index in range(50)]
        for one in led:
            assert one is not None
            house.rooms.shares.first_since(one, START_MS, found.append)
        per_turn: list[int] = []
        while len(found) < len(led):
            before = len(found)
            await asyncio.sleep(0)
            per_turn.append(len(found) - before)

        assert max(per_turn) == 1
        assert [first[0] for first in found] == [0] * len(led)
