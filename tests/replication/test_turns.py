"""A coordinator's appends take their turn while their log is exchanged, as a produce does."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.broker.coordinator.group.coordinator import CONSUMER_OFFSETS
from ottla.protocol.messages import groups
from tests.coordinator.asking import ask
from tests.handlers.rooms import DATA_DIR, House
from tests.replication.test_moves import OTHER_DIR, TWO_DIRS, Movers

GROUP = "g"


def commit(offset: int) -> groups.OffsetCommitRequest:
    part = groups.OffsetCommitRequest.OffsetCommitRequestPartition(0, offset)
    topic = groups.OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[part])
    return groups.OffsetCommitRequest(GROUP, topics=[topic])


async def committed(house: House) -> int:
    topic = groups.OffsetFetchRequest.OffsetFetchRequestTopics("t", partition_indexes=[0])
    one = groups.OffsetFetchRequest.OffsetFetchRequestGroup(GROUP, topics=[topic])
    answer = await ask(house, groups.OffsetFetchRequest(groups=[one]), 9)
    (part,) = answer.groups[0].topics[0].partitions
    offset: int = part.committed_offset
    return offset


async def test_commits_wait_for_the_exchange_of_their_log_and_the_shard_stays() -> None:
    async with House({**TWO_DIRS, "offsets.topic.num.partitions": "1"}) as house:
        await house.create("t")
        await house.ask(groups.FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        mover = Movers(house)
        partition = house.rooms.replicas.get(CONSUMER_OFFSETS, 0)
        assert partition is not None
        await ask(house, commit(1), 9)
        before = house.rooms.logs.dir_of(partition.log)
        target = OTHER_DIR if before == DATA_DIR else DATA_DIR
        assert await mover.alter(target, CONSUMER_OFFSETS) == 0
        _, shard = house.rooms.groups.runner(GROUP)
        waiting: list[asyncio.Task[Any]] = []

        def send() -> None:
            waiting.extend(asyncio.ensure_future(ask(house, commit(n), 9)) for n in (2, 3))

        mover.before = ("complete", send)
        await mover.moves.run()
        answers = await asyncio.gather(*waiting)

        assert [one.topics[0].partitions[0].error_code for one in answers] == [0, 0]
        assert house.rooms.logs.dir_of(partition.log) == target
        assert house.rooms.groups.runner(GROUP)[1] is shard
        assert await committed(house) == 3
        assert not house.events.named("coordinator_append_failed")
