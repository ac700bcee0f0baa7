"""Records that come to nobody any more are told of, whatever they came back by."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.protocol.messages.configs import IncrementalAlterConfigsRequest
from tests.coordinator.asking import ask
from tests.handlers.rooms import House
from tests.share.sharing import GROUP, TOPIC, Member, begin

RELEASE, REJECT = 2, 3
GROUP_CONFIG = 32


def _given_up(house: House) -> list[dict[str, Any]]:
    told = house.rooms.groups.history.told_of(GROUP)
    return [one for one in told if one["event"] == "share_records_given_up"]


async def test_what_members_released_too_often_and_what_they_held_when_they_went() -> None:
    """Two deliveries each are allowed. What a member rejects is not told: somebody wanted that."""
    async with House({"share.coordinator.state.topic.num.partitions": "2"}) as house:
        await begin(house)
        config = IncrementalAlterConfigsRequest.AlterableConfig(
            "share.delivery.count.limit", 0, "2"
        )
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            GROUP_CONFIG, GROUP, [config]
        )
        await ask(house, IncrementalAlterConfigsRequest([resource]), 1)
        await house.append(TOPIC, 0, [b"v"] * 6)
        a = Member(house, "a")
        await a.acquire()
        await a.acknowledge((0, 5, [RELEASE]))
        assert await a.acquire(records=1, exactly=True) == [(0, 0, 2)]
        await a.acknowledge((0, 0, [RELEASE]))
        assert await a.acquire(records=1, exactly=True) == [(1, 1, 2)]
        await a.acknowledge((1, 1, [REJECT]))
        assert await a.acquire(records=1, exactly=True) == [(2, 2, 2)]
        house.rooms.shares.end_session(GROUP, "a", "the member left")
        async with asyncio.timeout(5):
            while len(_given_up(house)) < 2:
                await asyncio.sleep(0)

        assert [(one["first_offset"], one["last_offset"]) for one in _given_up(house)] == [
            (0, 0),
            (2, 2),
        ]
        assert [one["reason"] for one in _given_up(house)] == [
            "delivered 2 times, and its member released it",
            "delivered 2 times, and its member's session ended",
        ]
