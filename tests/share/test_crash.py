"""A power loss while members acknowledge: what was answered is settled for good, whatever else is.

At some moment of many acknowledgements, each at its own stage, the disk is copied onto one that has
what was synced and some of what was not; another broker begins there.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from ottla.testing.platter import CrashMode
from tests.handlers.rooms import House
from tests.share.sharing import TOPIC, Member, begin, loaded

ACCEPT, RELEASE = 1, 2
RECORDS = 24
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
}


@pytest.mark.parametrize("seed", range(12))
async def test_what_was_answered_never_comes_again(seed: int) -> None:
    rng = random.Random(seed)
    async with House(SETTINGS) as house:
        await begin(house)
        await house.append(TOPIC, 0, [b"v"] * RECORDS)
        members = [Member(house, name) for name in "abcdef"]
        answered: set[int] = set()
        released: set[int] = set()

        async def work(member: Member) -> None:
            for first, last, _ in await member.acquire(records=4, exactly=True):
                for offset in range(first, last + 1):
                    kind = RELEASE if offset % 4 == 3 else ACCEPT
                    part = await member.acknowledge((offset, offset, [kind]))
                    assert part.error_code == 0
                    (answered if kind == ACCEPT else released).add(offset)

        tasks = [asyncio.ensure_future(work(member)) for member in members]
        enough = rng.randrange(RECORDS)
        while len(answered) < enough and not all(task.done() for task in tasks):
            await asyncio.sleep(0)
        done, back = set(answered), set(released)
        disk = house.disk.crash(rng, rng.choice(list(CrashMode)))
        async with House(SETTINGS, disk=disk) as after:
            reader = Member(after, "z")
            came: dict[int, int] = {}
            await reader.fetch(records=0)
            await loaded(after)
            while acquired := await reader.acquire():
                for first, last, count in acquired:
                    came.update(dict.fromkeys(range(first, last + 1), count))
        await asyncio.gather(*tasks)

        assert not done & came.keys(), "it was acknowledged"
        assert back <= came.keys()
        assert all(came[offset] >= 2 for offset in back), "it was delivered before"
        assert came.keys() <= set(range(RECORDS))
