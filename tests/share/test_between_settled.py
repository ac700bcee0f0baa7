"""A fetch looks beyond what is settled, or held by others, for as much as it asks for."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from ottla.broker.coordinator.share.batches import StateBatch
from ottla.broker.share.runs import RecordState
from ottla.broker.share.window import Window
from tests.handlers.rooms import House
from tests.share.sharing import Member, begin, produce

ACCEPT, RELEASE = 1, 2
STATES = (RecordState.AVAILABLE, RecordState.ACKNOWLEDGED)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House({"share.coordinator.state.topic.num.partitions": "2"}) as opened:
        yield opened


async def test_as_many_as_were_asked_for_come_from_between_those_that_are_settled(
    house: House,
) -> None:
    await begin(house)
    await produce(house, 3, 3)
    a = Member(house, "a")
    await a.acquire()
    await a.acknowledge((0, 5, [RELEASE, ACCEPT] * 3))

    assert await a.acquire(records=2, exactly=True) == [(0, 0, 2), (2, 2, 2)]
    assert await a.acquire(records=2, exactly=True) == [(4, 4, 2)]
    await produce(house, 2)
    await a.acknowledge(*((offset, offset, [RELEASE]) for offset in (0, 2, 4)))
    assert await a.acquire(records=5, exactly=True) == [
        (0, 0, 3),
        (2, 2, 3),
        (4, 4, 3),
        (6, 7, 1),
    ]


async def test_no_more_come_of_those_that_were_delivered_often(house: House) -> None:
    """They come alone, half of what they were, and yet not more than was asked for exactly."""
    await begin(house)
    await produce(house, 100)
    a = Member(house, "a")
    for _ in range(3):
        await a.acquire()
        await a.acknowledge((0, 99, [RELEASE]))

    assert await a.acquire(records=10, exactly=True) == [(0, 9, 4)]
    assert await a.acquire(records=100, exactly=True) == [(10, 59, 4)]


@pytest.mark.parametrize("seed", range(20))
def test_the_span_is_what_counting_offset_by_offset_says(seed: int) -> None:
    rng = random.Random(seed)
    states = [rng.choice(STATES) for _ in range(rng.randint(1, 40))]
    window = Window(0, [StateBatch(n, n, int(state), 1) for n, state in enumerate(states)])
    for offset in range(window.start, window.end + 3):
        for records in (1, 2, 5, 50):
            left, end = records, offset
            while left:
                left -= end >= len(states) or states[end] is RecordState.AVAILABLE
                end += 1
            assert window.span(offset, records) == end - offset
