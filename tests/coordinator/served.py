"""A house that coordinates groups, and what its offsets are asked."""

from __future__ import annotations

import asyncio
from typing import cast

from ottla.broker.coordinator.group.coordinator import CONSUMER_OFFSETS
from ottla.broker.coordinator.group.settings import NEWCOMERS_MS
from ottla.broker.coordinator.placement import partition_for
from ottla.broker.replication.replicas import Partition
from ottla.protocol.messages import groups
from ottla.testing.clock import SimClock
from tests.coordinator.asking import ask
from tests.handlers.rooms import House

GROUP = "g"
PARTITIONS = 5
SETTINGS = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "group.initial.rebalance.delay.ms": "0",
}


async def begin(house: House) -> None:
    await house.create("t", partitions=2)
    await house.ask(groups.FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)


def offset_commit(
    offset: int, *, group: str = GROUP, partition: int = 0
) -> groups.OffsetCommitRequest:
    part = groups.OffsetCommitRequest.OffsetCommitRequestPartition(partition, offset)
    topic = groups.OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[part])
    return groups.OffsetCommitRequest(group, topics=[topic])


def offset_fetch(group: str = GROUP, partition: int = 0) -> groups.OffsetFetchRequest:
    topic = groups.OffsetFetchRequest.OffsetFetchRequestTopics("t", partition_indexes=[partition])
    one = groups.OffsetFetchRequest.OffsetFetchRequestGroup(group, topics=[topic])
    return groups.OffsetFetchRequest(groups=[one])


async def offset_of(house: House, group: str = GROUP, partition: int = 0) -> int:
    answer = await ask(house, offset_fetch(group, partition), 9)
    (part,) = answer.groups[0].topics[0].partitions
    offset: int = part.committed_offset
    return offset


def led(house: House, group: str = GROUP) -> Partition:
    partition = house.rooms.replicas.get(CONSUMER_OFFSETS, partition_for(group, PARTITIONS))
    assert partition is not None
    return partition


async def stable_member(house: House) -> str:
    protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
    join = groups.JoinGroupRequest(GROUP, 10_000, 10_000, "", None, "test", [protocol])
    joining = asyncio.ensure_future(ask(house, join, 3))
    await asyncio.sleep(0)
    cast(SimClock, house.rooms.clock).advance(NEWCOMERS_MS)
    joined = await joining
    mine = groups.SyncGroupRequest.SyncGroupRequestAssignment(joined.member_id, b"mine")
    sync = groups.SyncGroupRequest(GROUP, 1, joined.member_id, assignments=[mine])
    assert (await ask(house, sync, 3)).error_code == 0
    member_id: str = joined.member_id
    return member_id
