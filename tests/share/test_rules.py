"""What a share group goes by: its own settings, as they are read everywhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.broker.share.rules import ShareRules
from tests.handlers.rooms import House
from tests.share.sharing import GROUP, TOPIC, Member, produce
from tests.share.test_fetch import begin_unknown, configure


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House({"share.coordinator.state.topic.num.partitions": "2"}) as opened:
        yield opened


def _rules(house: House) -> ShareRules:
    return house.rooms.shares.rules(GROUP)


@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        ("earliest", [(0, 4, 1)]),
        (" earliest ", [(0, 4, 1)]),
        ("latest", []),
        ("by_duration:PT2.5S", [(2, 4, 1)]),
        ("by_duration:PT2.5S ", [(2, 4, 1)]),
        (" by_duration:+PT2.5S", [(2, 4, 1)]),
    ],
)
async def test_a_group_may_say_where_it_begins(
    house: House, reset: str, expected: list[tuple[int, int, int]]
) -> None:
    """Blanks around it say nothing."""
    await house.create(TOPIC)
    await produce(house, 5)  # a second apart, the last one four seconds from now
    house.rooms.clock.advance(4_000)  # type: ignore[attr-defined]
    await configure(house, "share.auto.offset.reset", reset)
    await begin_unknown(house)

    wait_ms = 30_000 if expected else 0
    assert await Member(house, "a").acquire(wait_ms=wait_ms) == expected


@pytest.mark.parametrize(
    ("name", "text", "read"),
    [
        ("share.isolation.level", " read_committed", lambda rules: rules.read_committed),
        ("share.renew.acknowledge.enable", "True ", lambda rules: rules.limits.may_renew),
        ("share.delivery.count.limit", " 7", lambda rules: rules.limits.delivery_count == 7),
    ],
)
async def test_blanks_around_other_settings_say_nothing(
    house: House, name: str, text: str, read: Any
) -> None:
    await configure(house, name, text)

    assert read(_rules(house))
