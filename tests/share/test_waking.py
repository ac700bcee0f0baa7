"""Who waits at a share partition is told when there may be something, and else left alone."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.handlers.rooms import House
from tests.share.sharing import GROUP, Member, begin, produce, topic_id
from tests.share.test_fetch import configure

ACCEPT, RELEASE = 1, 2
LOCK_MS = 30_000


class _Waiter:
    """It waits, and counts how often it is told."""

    def __init__(self, house: House) -> None:
        share = house.rooms.shares.get(GROUP, (topic_id(house), 0))
        assert share is not None
        self.share = share
        self.told = 0
        share.waiters[self] = None

    def advanced(self) -> None:
        self.told += 1

    def interrupted(self) -> None:
        """The house is closed."""


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House({"share.coordinator.state.topic.num.partitions": "2"}) as opened:
        await begin(opened)
        await configure(opened, "share.partition.max.record.locks", "100")
        yield opened


async def test_nobody_looks_where_everything_is_acknowledged(house: House) -> None:
    """At the end of the log, in whatever order records are."""
    await produce(house, 6)
    a = Member(house, "a")
    await a.acquire()
    waiter = _Waiter(house)
    for offset in (3, 0, 1, 2, 5, 4):
        await a.acknowledge((offset, offset, [ACCEPT]))

    assert waiter.told == 0


async def test_what_comes_back_is_told(house: House) -> None:
    await produce(house, 6)
    a = Member(house, "a")
    await a.acquire()
    waiter = _Waiter(house)
    await a.acknowledge((2, 2, [RELEASE]))
    assert waiter.told == 1
    house.rooms.clock.advance(LOCK_MS)  # type: ignore[attr-defined]
    waiter.share.expire()

    assert waiter.told > 1


async def test_room_is_told_where_there_is_more(house: House) -> None:
    await produce(house, 60, 60, 60)
    a = Member(house, "a")
    assert await a.acquire(records=500) == [(0, 119, 1)]
    waiter = _Waiter(house)
    await a.acknowledge((30, 59, [ACCEPT]))
    assert waiter.told == 0, "it is as full as it was"
    await a.acknowledge((0, 29, [ACCEPT]))

    assert waiter.told == 1
