"""AlterShareGroupOffsets while members join, states cannot be written and topics go."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.broker.controller import brokers
from ottla.broker.coordinator.placement import partition_for
from ottla.broker.coordinator.share.coordinator import SHARE_GROUP_STATE
from ottla.broker.coordinator.share.state import SharePartitionKey, ShareState
from ottla.broker.metadata.image import MetadataImage
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import groups, share_group
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.testing.platter import CrashMode
from tests.coordinator.asking import ask
from tests.handlers.rooms import NODE_ID, House
from tests.share.sharing import GROUP, TOPIC, Member, topic_id
from tests.share.test_groups import ACCEPT, SETTINGS, Beating, alter, offsets


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House(SETTINGS) as opened:
        await opened.create(TOPIC, partitions=2)
        await opened.append(TOPIC, 0, [b"v"] * 5)
        await ask(opened, groups.FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        yield opened


async def _come_and_go(house: House) -> Beating:
    """A member that has been there, so that the group has both partitions."""
    a = Beating(house, "a")
    await a.beat()
    await a.beat(member_epoch=-1)
    a.epoch = 0
    return a


async def _start(house: House) -> int:
    start: int = (await offsets(house)).topics[0].partitions[0].start_offset
    return start


def _state(house: House) -> ShareState:
    key = SharePartitionKey(GROUP, topic_id(house), 0)
    return house.rooms.share_state.runner(key.placed_by)[1].states[key]


@pytest.mark.parametrize("turns", range(1, 8, 2))
@pytest.mark.parametrize("is_known", [True, False])
async def test_who_joins_meanwhile_begins_where_the_admin_says(
    house: House, is_known: bool, turns: int
) -> None:
    """The other partition of a group that nobody has heard of is initialized by who joins."""
    a = await _come_and_go(house) if is_known else Beating(house, "a")
    altering = asyncio.create_task(alter(house, 2))
    for _ in range(turns):
        await asyncio.sleep(0)
    await a.beat()
    altered = await altering
    assert (altered.error_code, altered.responses[0].partitions[0].error_code) == (0, 0)
    await a.beat()

    assert await _start(house) == 2
    assert await a.assigned(member_epoch=0, subscribed_topic_names=[TOPIC]) == [0, 1]
    assert await Member(house, "a").acquire(wait_ms=60_000) == [(2, 4, 1)]


async def test_who_is_gone_and_acknowledges_meanwhile_undoes_nothing(house: House) -> None:
    """No member has come or gone since the offsets were altered before."""
    a = await _come_and_go(house)
    await alter(house, 0)
    epoch_before = _state(house).state_epoch
    gone = Member(house, "gone")
    assert await gone.acquire(wait_ms=60_000) == [(0, 4, 1)]
    altering = asyncio.create_task(alter(house, 3))
    while _state(house).start_offset != 3:  # it is not durable yet then
        await asyncio.sleep(0)
    acknowledged = await gone.acknowledge((0, 3, [ACCEPT]))
    altered = await altering
    assert (altered.error_code, altered.responses[0].partitions[0].error_code) == (0, 0)

    assert acknowledged.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    state = _state(house)
    assert (state.start_offset, state.batches) == (3, ())
    assert state.state_epoch == epoch_before + 1
    await a.beat()
    assert await Member(house, "a").acquire(wait_ms=60_000) == [(3, 4, 1)]


@pytest.mark.parametrize("mode", CrashMode)
@pytest.mark.parametrize("turns", range(0, 8, 2))
async def test_a_crash_meanwhile_leaves_the_group_where_it_was_or_is_to_be(
    house: House, mode: CrashMode, turns: int
) -> None:
    """The group has noted what is to be altered, and the state is altered: is it durable?"""
    await _come_and_go(house)
    await alter(house, 3)
    altering = asyncio.create_task(alter(house, 1))
    while _state(house).start_offset != 1:
        await asyncio.sleep(0)
    for _ in range(turns):
        await asyncio.sleep(0)
    was_answered = altering.done()
    disk = house.disk.crash(random.Random(turns), mode)
    await altering
    async with House(SETTINGS, disk=disk) as after:
        b = Beating(after, "b")
        assert await b.assigned() == [0, 1]
        start = await _start(after)

        assert start == 1 or (start == 3 and not was_answered)
        assert await Member(after, "b").acquire(wait_ms=60_000) == [(start, 4, 1)]


@pytest.mark.parametrize("is_known", [True, False])
async def test_what_could_not_be_altered_is_as_it_was(house: House, is_known: bool) -> None:
    if is_known:
        await _come_and_go(house)
        assert (await alter(house, 3)).error_code == 0
    await alter(house, 0, partition=1)  # so that there is a topic for the states
    key = SharePartitionKey(GROUP, topic_id(house), 0)
    place = SHARE_GROUP_STATE, partition_for(key.placed_by, 3)
    await house.lose_leader(*place)
    (part,) = (await alter(house, 1)).responses[0].partitions
    assert part.error_code == ErrorCode.NOT_COORDINATOR
    await house.raise_leader_epoch(*place)
    a = Beating(house, "a")
    await a.beat()
    await a.beat()

    assert await _start(house) == (3 if is_known else -1)
    acquired = await Member(house, "a").acquire(wait_ms=60_000 if is_known else 0)
    assert acquired == ([(3, 4, 1)] if is_known else [])


async def test_a_topic_that_is_named_twice_is_described_twice(house: House) -> None:
    await alter(house, 3)
    await alter(house, 4, partition=1)
    describe = share_group.DescribeShareGroupOffsetsRequest
    topic = describe.DescribeShareGroupOffsetsRequestTopic
    group = describe.DescribeShareGroupOffsetsRequestGroup
    twice = group(GROUP, [topic(TOPIC, [0]), topic(TOPIC, [1])])
    (described,) = (await ask(house, describe([twice]), 1)).groups

    starts = [[part.start_offset for part in one.partitions] for one in described.topics]
    assert starts == [[3], [4]]


async def test_what_is_altered_while_its_topic_goes_is_answered_as_that_topic(
    house: House,
) -> None:
    """Of another one of its name nothing was altered."""
    await _come_and_go(house)
    id_before = topic_id(house)
    altering = asyncio.create_task(alter(house, 2))
    await asyncio.sleep(0)
    await ask(house, DeleteTopicsRequest(topic_names=[TOPIC]), 5)
    await house.create(TOPIC)
    (topic,) = (await altering).responses

    assert topic.topic_id == id_before


async def test_who_joins_when_the_states_have_no_topic_asks_for_it_again(house: House) -> None:
    """The one log dir gets no new partitions."""

    def cordon(image: MetadataImage) -> Any:
        return brokers.cordon(image, NODE_ID, image.cluster.brokers[NODE_ID].directories)

    await house.create("u")
    await house.rooms.quorum.submit(cordon)
    altered = await alter(house, 2, topic="u")
    assert altered.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    await Beating(house, "a", ["u"]).beat()

    assert house.events.named("share_state_not_initialized")
