"""Share groups against a broker: members come, are assigned, go; and what admins ask and change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from ottla.broker.coordinator.group import share_offsets
from ottla.broker.coordinator.group.coordinator import CONSUMER_OFFSETS
from ottla.broker.coordinator.group.share import ShareGroup
from ottla.broker.coordinator.placement import partition_for
from ottla.broker.handlers.share_groups import asked, delete_states
from ottla.protocol.api import SERVED, ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import groups, share_group
from ottla.protocol.messages.consumer_group import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.features import UpdateFeaturesRequest
from ottla.protocol.messages.topics import (
    CreatePartitionsRequest,
    DeleteTopicsRequest,
)
from ottla.protocol.wire import ZERO_UUID
from tests.coordinator.asking import ask
from tests.handlers.rooms import House
from tests.share.sharing import GROUP, TOPIC, Member, topic_id

ACCEPT = 1
MS_PER_S = 1000
Heartbeat = share_group.ShareGroupHeartbeatRequest
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.share.assignment.interval.ms": "0",
}


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House(SETTINGS) as opened:
        await opened.create(TOPIC, partitions=2)
        await ask(opened, groups.FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        yield opened


class Beating:
    """A member's heartbeats; its epoch is what the last answer said."""

    def __init__(self, house: House, name: str, topics: list[str] | None = None) -> None:
        self.house = house
        self.name = name
        self.topics = [TOPIC] if topics is None else topics
        self.epoch = 0

    async def beat(self, **fields: Any) -> Any:
        names = self.topics if self.epoch == 0 else None
        request = Heartbeat(GROUP, self.name, self.epoch, None, names)
        for name, value in fields.items():
            setattr(request, name, value)
        answer = await ask(self.house, request, 1)
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
        return answer

    async def assigned(self, **fields: Any) -> list[int] | None:
        """The partitions of the topic, None if the answer does not say."""
        answer = await self.beat(**fields)
        assert answer.error_code == 0, answer.error_message
        if answer.assignment is None:
            return None
        wanted = topic_id(self.house)
        return [
            index
            for topic in answer.assignment.topic_partitions
            if topic.topic_id == wanted
            for index in topic.partitions
        ]


async def _describe(house: House) -> Any:
    (described,) = (await ask(house, share_group.ShareGroupDescribeRequest([GROUP]), 1)).groups
    return described


def test_the_versions_are_kafkas() -> None:
    ranges = {
        ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
        ApiKey.SHARE_GROUP_DESCRIBE: (1, 1),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0),
    }

    assert {key: (SERVED[key].min_version, SERVED[key].max_version) for key in ranges} == ranges


async def test_a_member_has_its_partitions_with_its_first_heartbeat(house: House) -> None:
    a = Beating(house, "a")
    answer = await a.beat()

    assert (answer.error_code, answer.member_id, answer.heartbeat_interval_ms) == (0, "a", 5000)
    assert [sorted(one.partitions) for one in answer.assignment.topic_partitions] == [[0, 1]]
    assert await a.assigned() is None
    described = await _describe(house)
    assert (described.group_state, described.assignor_name) == ("Stable", "simple")
    assert described.group_epoch == described.assignment_epoch == a.epoch


async def test_members_that_come_together_do_not_wait_for_an_interval() -> None:
    async with House({**SETTINGS, "group.share.assignment.interval.ms": "1000"}) as house:
        await house.create(TOPIC, partitions=2)
        await ask(house, groups.FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        answers = await asyncio.gather(*(Beating(house, name).beat() for name in "ab"))
        assert [one.error_code for one in answers] == [0, 0]
        assert all(one.member_epoch > 0 for one in answers)

        assert sum(len(one.assignment.topic_partitions) for one in answers) >= 1


async def test_two_members_have_a_part_each_and_three_share(house: House) -> None:
    a, b, c = (Beating(house, name) for name in "abc")
    await a.beat()
    of_b = await b.assigned()
    of_a = await a.assigned()
    assert of_a is not None
    assert of_b is not None
    assert sorted(of_a + of_b) == [0, 1]

    of_c = await c.assigned()
    assert of_c
    members = (await _describe(house)).members
    assert sorted(one.member_id for one in members) == ["a", "b", "c"]


async def test_a_member_that_left_may_still_say_what_became_of_its_records(house: House) -> None:
    """A client closes its session with the leader and leaves with the coordinator, in any order;
    what it says with the former counts, as with Kafka."""
    a = Beating(house, "a")
    b = Beating(house, "b")
    await a.beat()
    await b.beat()
    await house.append(TOPIC, 0, [b"1", b"2"])
    reader = Member(house, "a")
    other = Member(house, "b")
    await other.fetch()
    await reader.fetch()
    await house.append(TOPIC, 0, [b"3"])
    await house.append(TOPIC, 0, [b"4"])
    assert await reader.acquire() == [(2, 3, 1)]
    answer = await a.beat(member_epoch=-1)
    assert (answer.error_code, answer.member_epoch) == (0, -1)
    assert await other.acquire() == []
    assert (await reader.acknowledge((2, 2, [ACCEPT]), epoch=-1)).error_code == 0

    assert await other.acquire(wait_ms=60_000) == [(3, 3, 2)]
    assert await b.assigned() == [0, 1]
    unknown = await a.beat(member_epoch=3)
    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_the_last_session_of_a_group_lets_go_of_its_partitions_with_one_event(
    house: House,
) -> None:
    a, b = Member(house, "a"), Member(house, "b")
    await a.fetch(partitions=(0, 1))
    await b.fetch(partitions=(0, 1))
    await a.fetch(partitions=(), epoch=-1)
    assert [len(shares) for _, shares in house.rooms.shares.by_group()] == [2]
    await b.fetch(partitions=(), epoch=-1)

    told = house.rooms.groups.history.told_of(GROUP)
    assert [
        (one["event"], one["reason"], one["partitions"])
        for one in told
        if one["event"].startswith("share_partition")
    ] == [("share_partitions_dropped", "its group has no sessions", 2)]


async def test_a_silent_member_is_thrown_out(house: House) -> None:
    await Beating(house, "a").beat()
    runner, shard = house.rooms.groups.runner(GROUP)
    house.rooms.clock.advance(45 * MS_PER_S)  # type: ignore[attr-defined]
    runner.perform(shard.expire(runner.now()))
    described = await _describe(house)

    assert (described.group_state, described.members) == ("Empty", [])
    told = house.rooms.groups.history.told_of(GROUP)
    assert [one["reason"] for one in told if one["event"] == "group_member_evicted"] == [
        "its session timed out"
    ]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "m" * 37}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": []}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 4}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
async def test_odd_heartbeats_are_refused(
    house: House, fields: dict[str, Any], code: ErrorCode
) -> None:
    assert (await Beating(house, "a").beat(**fields)).error_code == code


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"rack_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({}, ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_what_is_no_request_is_told_by_who_coordinates_nothing(
    fields: dict[str, Any], code: ErrorCode
) -> None:
    async with House(SETTINGS) as house:
        assert (await Beating(house, "a").beat(**fields)).error_code == code


@pytest.mark.parametrize(("epoch", "kind"), [(4, "Share group"), (-1, "Group")])
async def test_an_unknown_group_is_told_in_kafkas_words(
    house: House, epoch: int, kind: str
) -> None:
    answer = await Beating(house, "a").beat(member_epoch=epoch)

    assert answer.error_message == f"{kind} {GROUP} not found."
    assert (await _describe(house)).error_message == f"Group {GROUP} not found."


async def test_a_group_without_a_name_is_not_described(house: House) -> None:
    (described,) = (await ask(house, share_group.ShareGroupDescribeRequest([""]), 1)).groups

    assert described.error_code == ErrorCode.INVALID_GROUP_ID


async def test_offsets_are_refused_in_kafkas_words(house: House) -> None:
    a = Beating(house, "a")
    await a.beat()
    altered, deleted = await alter(house, 2), await delete_offsets(house)
    for answer in (altered, deleted):
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.NON_EMPTY_GROUP,
            "The group is not empty.",
        )
    await a.beat(member_epoch=-1)

    (unknown,) = (await delete_offsets(house, "nothing")).responses
    assert unknown.error_message == "This server does not host this topic-partition."


async def test_epochs_that_are_not_ours_are_fenced(house: House) -> None:
    a = Beating(house, "a")
    await a.beat()
    fenced = ErrorCode.FENCED_MEMBER_EPOCH

    assert (await a.beat(member_epoch=a.epoch + 1)).error_code == fenced
    assert (await a.beat(member_epoch=a.epoch)).error_code == 0


async def test_a_group_is_full() -> None:
    async with House({**SETTINGS, "group.share.max.size": "1"}) as house:
        await house.create(TOPIC)
        await ask(house, groups.FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        await Beating(house, "a").beat()
        full = ErrorCode.GROUP_MAX_SIZE_REACHED

        assert (await Beating(house, "b").beat()).error_code == full


async def test_a_group_of_another_kind_is_no_share_group(house: House) -> None:
    request = ConsumerGroupHeartbeatRequest(
        GROUP,
        "m",
        0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    assert (await ask(house, request, 1)).error_code == 0

    assert (await Beating(house, "a").beat()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await _describe(house)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_no_other_protocol_gets_into_a_share_group(house: House) -> None:
    await Beating(house, "a").beat()
    consumer = ConsumerGroupHeartbeatRequest(
        GROUP,
        "m",
        0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
    classic = groups.JoinGroupRequest(GROUP, 10_000, 10_000, "", None, "consumer", [protocol])

    assert (await ask(house, consumer, 1)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    refused = await ask(house, classic, 3)
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for version in (8, 9):
        for epoch in (-1, 0, 7):
            part = groups.OffsetCommitRequest.OffsetCommitRequestPartition(0, 1)
            topic = groups.OffsetCommitRequest.OffsetCommitRequestTopic(TOPIC, partitions=[part])
            commit = groups.OffsetCommitRequest(GROUP, epoch, "a", topics=[topic])
            answer = await ask(house, commit, version)
            ((answered,),) = [one.partitions for one in answer.topics]
            assert answered.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(("member_id", "version"), [("", 3), ("", 9), ("m", 9)])
async def test_a_share_group_without_members_is_not_made_a_classic_one(
    house: House, member_id: str, version: int
) -> None:
    a = Beating(house, "a")
    await a.beat()
    await a.beat(member_epoch=-1)
    protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
    request = groups.JoinGroupRequest(
        GROUP, 10_000, 10_000, member_id, None, "consumer", [protocol]
    )

    refused = await ask(house, request, version)
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await _describe(house)).group_state == "Empty"
    assert (await alter(house, 2)).error_code == 0


async def test_more_partitions_are_delivered_when_there_are_more(house: House) -> None:
    a = Beating(house, "a")
    await a.beat()
    more = CreatePartitionsRequest.CreatePartitionsTopic(TOPIC, 3, None)
    answer = await ask(house, CreatePartitionsRequest([more], 10_000), 3)
    assert answer.results[0].error_code == 0

    assert await a.assigned() == [0, 1, 2]


async def test_a_topic_may_come_later(house: House) -> None:
    a = Beating(house, "a", [TOPIC, "later"])
    await a.beat()
    await house.create("later")
    answer = await a.beat()
    ids = {one.topic_id for one in answer.assignment.topic_partitions}

    assert ids == {topic_id(house), house.rooms.image.topics.by_name["later"].topic_id}


async def test_a_group_outlives_the_broker(house: House) -> None:
    a = Beating(house, "a")
    assert await a.assigned() == [0, 1]
    async with house.restarted() as again:
        described = await _describe(again)
        assert (described.group_state, len(described.members)) == ("Stable", 1)
        again_a = Beating(again, "a")
        again_a.epoch = a.epoch
        answer = await again_a.beat()

        assert (answer.error_code, answer.member_epoch) == (0, a.epoch)


async def test_groups_are_listed_as_what_they_are(house: House) -> None:
    await Beating(house, "a").beat()
    listed = (await ask(house, groups.ListGroupsRequest(types_filter=["share"]), 5)).groups

    assert [(one.group_id, one.group_type, one.group_state) for one in listed] == [
        (GROUP, "share", "Stable")
    ]
    assert listed[0].protocol_type == "share"


async def offsets(house: House, *, all_topics: bool = False) -> Any:
    request = share_group.DescribeShareGroupOffsetsRequest
    topics = None
    if not all_topics:
        topics = [request.DescribeShareGroupOffsetsRequestTopic(TOPIC, [0, 7])]
    group = request.DescribeShareGroupOffsetsRequestGroup(GROUP, topics)
    (described,) = (await ask(house, request([group]), 1)).groups
    return described


async def alter(house: House, start: int, partition: int = 0, topic: str = TOPIC) -> Any:
    request = share_group.AlterShareGroupOffsetsRequest
    part = request.AlterShareGroupOffsetsRequestPartition(partition, start)
    topics = [request.AlterShareGroupOffsetsRequestTopic(topic, [part])]
    return await ask(house, request(GROUP, topics), 0)


async def delete_offsets(house: House, topic: str = TOPIC) -> Any:
    request = share_group.DeleteShareGroupOffsetsRequest
    topics = [request.DeleteShareGroupOffsetsRequestTopic(topic)]
    return await ask(house, request(GROUP, topics), 0)


async def test_the_lag_is_what_is_not_settled(house: House) -> None:
    a = Beating(house, "a")
    await a.beat()
    unknown = (await offsets(house)).topics[0].partitions
    assert [(one.start_offset, one.lag, one.error_code) for one in unknown] == [
        (-1, -1, 0),
        (-1, -1, 0),
    ]
    reader = Member(house, "a")
    await reader.fetch()
    await house.append(TOPIC, 0, [b"v"] * 5)
    await reader.acquire()
    await reader.acknowledge((0, 0, [ACCEPT]), (2, 2, [ACCEPT]))
    (topic,) = [
        one for one in (await offsets(house, all_topics=True)).topics if one.topic_name == TOPIC
    ]
    first = topic.partitions[0]

    assert (first.start_offset, first.lag) == (0, 3)
    assert [one.partition_index for one in topic.partitions] == [0, 1]


async def test_offsets_that_are_altered_while_nobody_leads_the_partition_are_kept(
    house: House,
) -> None:
    """They were of the newest epoch, in which records were written behind those of the first."""
    a = Beating(house, "a")
    await a.beat()
    await a.beat(member_epoch=-1)
    await house.append(TOPIC, 0, [b"v"])
    await house.raise_leader_epoch(TOPIC, 0)
    await house.append(TOPIC, 0, [b"v"] * 4)
    await house.lose_leader(TOPIC, 0)
    answer = await alter(house, 3)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
    await house.raise_leader_epoch(TOPIC, 0)
    a.epoch = 0
    await a.beat()
    # The state is read by the first, and its answer waits.
    assert await Member(house, "a").acquire(wait_ms=60_000) == [(3, 4, 1)]


async def test_offsets_are_altered_while_nobody_is_in_the_group(house: House) -> None:
    a = Beating(house, "a")
    await a.beat()
    await house.append(TOPIC, 0, [b"v"] * 5)
    assert (await alter(house, 2)).error_code == ErrorCode.NON_EMPTY_GROUP
    await a.beat(member_epoch=-1)
    answer = await alter(house, 2)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
    a.epoch = 0
    await a.beat()

    assert await Member(house, "a").acquire() == [(2, 4, 1)]
    await a.beat(member_epoch=-1)
    for partition, topic in ((9, TOPIC), (0, "nothing")):
        part = (await alter(house, 0, partition, topic)).responses[0].partitions[0]
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("topic", "times"), [(TOPIC, 1), ("nothing", 0)])
async def test_a_reset_is_told_where_there_is_one(house: House, topic: str, times: int) -> None:
    await alter(house, 2, topic=topic)
    told = [one["event"] for one in house.rooms.groups.history.told_of(GROUP)]

    assert told.count("group_offset_reset") == times


async def test_offsets_are_deleted_while_nobody_is_in_the_group(house: House) -> None:
    a = Beating(house, "a")
    await a.beat()
    assert (await delete_offsets(house)).error_code == ErrorCode.NON_EMPTY_GROUP
    await a.beat(member_epoch=-1)
    assert (await delete_offsets(house)).responses[0].error_code == 0
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    (again,) = (await delete_offsets(house)).responses
    assert (again.error_code, again.topic_id) == (unknown, ZERO_UUID)
    assert (await delete_offsets(house, "nothing")).responses[0].error_code == unknown
    assert (await offsets(house, all_topics=True)).topics == []


async def test_unknown_groups_have_no_offsets(house: House) -> None:
    unknown = ErrorCode.GROUP_ID_NOT_FOUND

    described = await offsets(house, all_topics=True)
    assert (described.error_code, described.topics) == (0, [])
    (topic,) = (await offsets(house)).topics
    found = [(one.error_code, one.start_offset) for one in topic.partitions]
    assert found == [(0, -1)] * 2, "nothing has made the topic of the states yet"
    assert (await delete_offsets(house)).error_code == unknown


async def test_a_group_may_be_told_where_to_begin_before_it_is_there(house: House) -> None:
    await house.append(TOPIC, 0, [b"v"] * 5)
    assert (await alter(house, 2)).error_code == 0
    first = (await offsets(house)).topics[0].partitions[0]
    assert (first.start_offset, first.lag) == (2, 3)
    described = await _describe(house)
    assert described.group_state == "Empty"
    assert (described.group_epoch, described.assignment_epoch) == (2, 1)
    await Beating(house, "a").beat()

    assert await Member(house, "a").acquire() == [(2, 4, 1)]


@pytest.mark.parametrize("start", [-2, -7, -(2**63)])
async def test_a_negative_start_is_the_log_start(house: House, start: int) -> None:
    """As Apache Kafka 4.3.1 takes it, but for -1."""
    await house.append(TOPIC, 0, [b"v"] * 5)
    answer = await alter(house, start)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
    first = (await offsets(house)).topics[0].partitions[0]
    assert (first.start_offset, first.lag) == (start, min(5 - start, 2**63 - 1))
    await Beating(house, "a").beat()

    assert await Member(house, "a").acquire(wait_ms=60_000) == [(0, 4, 1)]


async def test_the_lag_of_a_start_that_the_log_has_yet_to_reach_is_below_0(house: House) -> None:
    """As Apache Kafka 4.3.1 shows it."""
    await house.append(TOPIC, 0, [b"v"] * 5)
    await alter(house, 8)
    first = (await offsets(house)).topics[0].partitions[0]
    assert (first.start_offset, first.lag) == (8, -3)
    await alter(house, 2**63 - 1)
    first = (await offsets(house)).topics[0].partitions[0]
    assert (first.start_offset, first.lag) == (2**63 - 1, 5 - (2**63 - 1))


async def test_offsets_of_a_group_without_a_name_cannot_be_changed(house: House) -> None:
    alter = share_group.AlterShareGroupOffsetsRequest
    part = alter.AlterShareGroupOffsetsRequestPartition(0, 1)
    topics = [alter.AlterShareGroupOffsetsRequestTopic(TOPIC, [part])]
    altered = await ask(house, alter("", topics), 0)
    delete = share_group.DeleteShareGroupOffsetsRequest
    deleted = await ask(house, delete("", [delete.DeleteShareGroupOffsetsRequestTopic(TOPIC)]), 0)

    for answer in (altered, deleted):
        assert (answer.error_code, answer.responses) == (ErrorCode.INVALID_GROUP_ID, [])


async def test_a_start_of_minus_one_is_where_the_settings_say(house: House) -> None:
    await house.append(TOPIC, 0, [b"v"] * 5)
    await alter(house, -1)
    first = (await offsets(house)).topics[0].partitions[0]
    assert (first.start_offset, first.lag) == (-1, -1)
    await Beating(house, "a").beat()
    a = Member(house, "a")
    assert await a.acquire() == []
    await house.append(TOPIC, 0, [b"v"])

    assert await a.acquire(wait_ms=60_000) == [(5, 5, 1)]


async def test_a_deleted_group_leaves_nothing_behind(house: House) -> None:
    a = Beating(house, "a")
    await a.beat()
    request = groups.DeleteGroupsRequest([GROUP, "other"])
    codes = [one.error_code for one in (await ask(house, request, 2)).results]
    assert codes == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    await a.beat(member_epoch=-1)
    codes = [one.error_code for one in (await ask(house, request, 2)).results]

    assert codes == [0, ErrorCode.GROUP_ID_NOT_FOUND]
    assert all(not shard.states for shard in house.rooms.share_state.shards())
    async with house.restarted() as again:
        assert (await _describe(again)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_member_that_joins_while_the_group_is_deleted_gets_records(house: House) -> None:
    a = Beating(house, "a")
    await a.beat()
    await a.beat(member_epoch=-1)
    a.epoch = 0
    request = groups.DeleteGroupsRequest([GROUP])
    deleted, joined = await asyncio.gather(ask(house, request, 2), a.beat())
    assert joined.error_code == 0
    assert deleted.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    reader = Member(house, "a")
    await reader.fetch()
    await house.append(TOPIC, 0, [b"v"] * 5)

    assert await reader.acquire() == [(0, 4, 1)]


async def test_a_deletion_that_was_not_finished_is_finished_with_the_next(house: House) -> None:
    a = Beating(house, "a")
    await a.beat()
    await a.beat(member_epoch=-1)
    await asked(house.rooms, GROUP, partial(share_offsets.begin_delete_group, group_id=GROUP))
    assert any(one.states for one in house.rooms.share_state.shards())
    async with house.restarted() as again:
        request = groups.DeleteGroupsRequest([GROUP])
        (result,) = (await ask(again, request, 2)).results

        assert result.error_code == 0
        assert all(not one.states for one in again.rooms.share_state.shards())


async def test_a_group_works_on_after_a_deletion_that_was_not_finished(house: House) -> None:
    a = Beating(house, "a")
    await a.beat()
    await a.beat(member_epoch=-1)
    begin = partial(share_offsets.begin_delete_group, group_id=GROUP)
    begun = await asked(house.rooms, GROUP, begin)
    await delete_states(house.rooms, GROUP, begun.places)
    async with house.restarted() as again:
        b = Beating(again, "b")
        assert await b.assigned() == [0, 1]
        reader = Member(again, "b")
        await reader.fetch()
        await again.append(TOPIC, 0, [b"v"])

        assert await reader.acquire() == [(0, 0, 1)]


async def test_who_joins_after_a_deletion_that_was_only_noted_begins_anew(house: House) -> None:
    await alter(house, 2)
    await asked(house.rooms, GROUP, partial(share_offsets.begin_delete_group, group_id=GROUP))
    async with house.restarted() as again:
        assert (await offsets(again)).topics[0].partitions[0].start_offset == 2
        await Beating(again, "a").beat()

        assert (await offsets(again)).topics[0].partitions[0].start_offset == -1


async def test_a_deleted_topic_is_forgotten(house: House) -> None:
    a = Beating(house, "a")
    await a.beat()
    await ask(house, DeleteTopicsRequest(topic_names=[TOPIC]), 5)

    assert (await offsets(house, all_topics=True)).topics == []
    await a.beat()
    assert (await _describe(house)).members[0].assignment.topic_partitions == []


async def test_a_topic_that_is_deleted_while_it_is_initialized_is_forgotten(house: House) -> None:
    """In any turn of the loop. The topic of the states is there by then."""
    await house.create("u")
    await Beating(house, "b", ["u"]).beat()
    id_before = topic_id(house)
    for turns in range(8):
        beating = asyncio.create_task(Beating(house, f"a{turns}").beat())
        for _ in range(turns):
            await asyncio.sleep(0)
        await ask(house, DeleteTopicsRequest(topic_names=[TOPIC]), 5)
        await beating
        group = house.rooms.groups.runner(GROUP)[1].groups[GROUP]
        assert isinstance(group, ShareGroup)

        assert id_before not in group.state_of.all_partitions, turns
        id_before = await house.create(TOPIC)


async def test_a_cluster_may_serve_no_share_groups(house: House) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey("share.version", 0, upgrade_type=2)
    answer = await ask(house, UpdateFeaturesRequest(10_000, [update]), 1)
    assert answer.error_code == 0, answer.error_message

    assert (await Beating(house, "a").beat()).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await _describe(house)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await alter(house, 0)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await Member(house, "a").fetch()).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_group_is_coordinated_where_its_name_says(house: House) -> None:
    await Beating(house, "a").beat()
    index = partition_for(GROUP, 3)
    led = house.rooms.replicas.get(CONSUMER_OFFSETS, index)

    assert led is not None
    assert led.log.log_end_offset > 0
