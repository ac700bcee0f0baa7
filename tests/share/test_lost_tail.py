"""A log that lost its end, under a group whose state had gone further.

With flush.messages as Kafka's, records are delivered and acknowledged before they are synced, and
what is acknowledged is durable before they are. After a power loss other records come to stand at
their offsets: nothing that was said of the former may count for these, and nobody may wait for the
log to be as long again.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from ottla.testing.platter import CrashMode
from tests.handlers.rooms import House
from tests.share.sharing import GROUP, TOPIC, Member, begin, initialize

ACCEPT, RELEASE = 1, 2
SETTINGS = {"share.coordinator.state.topic.num.partitions": "2"}
RELAXED = {"flush.messages": str(2**63 - 1)}
KEPT, LOST, NEW = 4, 6, 8


class NothingSurvives(random.Random):
    """Of what is not synced."""

    def randrange(self, *_: int) -> int:  # type: ignore[override]
        return 0


async def _synced(house: House) -> None:
    led = house.rooms.replicas.get(TOPIC, 0)
    assert led is not None
    house.rooms.replicas.flush(led)
    while led.log.durable_end < led.log.log_end_offset:
        await asyncio.sleep(0)


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("settled", [2, 7, 10])
async def test_what_stands_in_place_of_lost_records_is_delivered(settled: int, waits: bool) -> None:
    async with House(SETTINGS) as house:
        await begin(house, configs=RELAXED)
        await house.append(TOPIC, 0, [b"kept"] * KEPT)
        await _synced(house)
        await house.append(TOPIC, 0, [b"lost"] * LOST)
        a = Member(house, "a")
        assert await a.acquire() == [(0, KEPT + LOST - 1, 1)]
        said = [ACCEPT] * settled + [RELEASE] * (KEPT + LOST - settled)
        assert (await a.acknowledge((0, KEPT + LOST - 1, said))).error_code == 0
        disk = house.disk.crash(NothingSurvives(), CrashMode.PREFIX)
        async with House(SETTINGS, disk=disk) as after:
            led = after.rooms.replicas.get(TOPIC, 0)
            assert led is not None
            assert led.log.log_end_offset == KEPT
            came: list[tuple[int, int, int]] = []
            if not waits:
                await after.append(TOPIC, 0, [b"new"] * NEW)
            b = Member(after, "b")
            waiting = asyncio.ensure_future(b.acquire(wait_ms=60_000))
            if waits:
                await _until_told(after)
                if settled >= KEPT:
                    assert not waiting.done()
                await after.append(TOPIC, 0, [b"new"] * NEW)
            came += await waiting
            came += await b.acquire()
            new = [(first, last, count) for first, last, count in came if last >= KEPT]
            (told,) = _told(after)

            assert new == [(KEPT, KEPT + NEW - 1, 1)]
            assert (told["first_offset"], told["last_offset"]) == (KEPT, KEPT + LOST - 1)
            for first, last, _ in came:
                assert (await b.acknowledge((first, last, [ACCEPT]))).error_code == 0
            async with after.restarted() as again:
                assert await Member(again, "c").acquire(wait_ms=5) == []
                assert not _told(again)


async def test_a_start_behind_the_end_of_the_log_waits_for_the_log() -> None:
    """Nothing was delivered yet, so nothing was lost, in whatever leader epoch somebody asks."""
    async with House(SETTINGS) as house:
        await begin(house, start=4)
        await house.append(TOPIC, 0, [b"v"] * 2)
        assert await Member(house, "a").acquire() == []
        disk = house.disk.crash(NothingSurvives(), CrashMode.PREFIX)
        async with House(SETTINGS, disk=disk) as after:
            b = Member(after, "b")
            assert await b.acquire() == []
            waiting = asyncio.ensure_future(b.acquire(wait_ms=60_000))
            await after.append(TOPIC, 0, [b"v"] * 2)
            assert not waiting.done()
            await after.append(TOPIC, 0, [b"v"])

            assert await waiting == [(4, 4, 1)]
            assert not _told(after)


async def test_a_start_that_was_set_in_a_later_leader_epoch_is_kept() -> None:
    async with House(SETTINGS) as house:
        await begin(house)
        await house.append(TOPIC, 0, [b"v"] * 4)
        await house.raise_leader_epoch(TOPIC, 0)
        await house.append(TOPIC, 0, [b"v"] * 4)
        await initialize(house, start=6, state_epoch=1)

        assert await Member(house, "a").acquire(wait_ms=60_000) == [(6, 7, 1)]
        assert not _told(house)


async def _until_told(house: House) -> None:
    async with asyncio.timeout(10):
        while not _told(house):
            await asyncio.sleep(0)


def _told(house: House) -> list[dict[str, int]]:
    history = house.rooms.groups.history.told_of(GROUP)
    return [one for one in history if one["event"] == "share_state_cut"]
