"""Requests around the groups, odd ones too, as Apache Kafka 4.3.1 was seen to answer them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.broker.coordinator.group.coordinator import CONSUMER_OFFSETS
from ottla.broker.handlers.groups import GROUP_OPERATIONS
from ottla.protocol.api import SERVED, ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import groups
from ottla.protocol.messages.consumer_group import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.topics import DeleteTopicsRequest
from tests.coordinator.asking import ask
from tests.handlers.rooms import NODE_ID, House

CommitPartition = groups.OffsetCommitRequest.OffsetCommitRequestPartition
CommitTopic = groups.OffsetCommitRequest.OffsetCommitRequestTopic
FetchGroup = groups.OffsetFetchRequest.OffsetFetchRequestGroup
FetchTopic = groups.OffsetFetchRequest.OffsetFetchRequestTopics
OldFetchTopic = groups.OffsetFetchRequest.OffsetFetchRequestTopic
DeleteTopic = groups.OffsetDeleteRequest.OffsetDeleteRequestTopic
DeletePartition = groups.OffsetDeleteRequest.OffsetDeleteRequestPartition
UNKNOWN_ID = b"\1" * 16

KAFKAS_RANGES = {
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.OFFSET_DELETE: (0, 0),
}


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House({"offsets.topic.num.partitions": "3"}) as opened:
        await opened.create("t", partitions=2)
        await ask(opened, groups.FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        yield opened


def test_the_versions_are_kafkas() -> None:
    served = {key: (SERVED[key].min_version, SERVED[key].max_version) for key in KAFKAS_RANGES}

    assert served == KAFKAS_RANGES


async def test_no_hash_of_a_deleted_topic_is_kept(house: House) -> None:
    topics = house.rooms.groups.topics
    for name in ("gone", "stays"):
        await house.create(name, partitions=50)
        topics.group_hash([name])
    assert repr(topics).endswith("hashes=2>")
    await ask(house, DeleteTopicsRequest([], ["gone"], 5000), 5)

    assert repr(topics).endswith("hashes=1>")
    assert topics.group_hash(["gone"]) == 0


async def test_the_topic_is_made_once_as_kafka_makes_it() -> None:
    async with House() as house:
        answer = await ask(house, groups.FindCoordinatorRequest("g"), 3)
        topic = house.rooms.image.topics.by_name[CONSUMER_OFFSETS]

        assert (answer.error_code, answer.error_message, answer.node_id) == (0, "NONE", NODE_ID)
        assert len(topic.partitions) == 50
        assert house.rooms.image.configs.get(2, CONSUMER_OFFSETS) == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }
        await ask(house, groups.FindCoordinatorRequest("other"), 3)
        assert house.rooms.image.topics.by_name[CONSUMER_OFFSETS] is topic


@pytest.mark.parametrize(
    ("key_type", "key", "version", "code"),
    [
        (0, "", 4, ErrorCode.NONE),
        (1, "transaction", 4, ErrorCode.NONE),
        (2, "g", 6, ErrorCode.INVALID_REQUEST),
        (2, "g:id:0", 5, ErrorCode.INVALID_REQUEST),
        (2, "g:id:0", 6, ErrorCode.INVALID_REQUEST),
        (2, "g:AAECAwQFBgcICQoLDA0ODw:0", 6, ErrorCode.NONE),
        (7, "g", 6, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_keys_of_other_types(
    house: House, key_type: int, key: str, version: int, code: ErrorCode
) -> None:
    request = groups.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    answer = await ask(house, request, version)
    (found,) = answer.coordinators

    assert (found.key, found.error_code) == (key, code)
    if code:
        assert (found.node_id, found.host, found.port) == (-1, "", -1)


def _parts(topics: list[Any]) -> list[tuple[str, list[tuple[int, int]]]]:
    return [
        (topic.name, [(one.partition_index, one.error_code) for one in topic.partitions])
        for topic in topics
    ]


async def test_what_cannot_be_committed_is_refused_and_the_rest_is_committed(house: House) -> None:
    request = groups.OffsetCommitRequest(
        "s",
        topics=[
            CommitTopic("nope", partitions=[CommitPartition(0, 1)]),
            CommitTopic(
                "t",
                partitions=[
                    CommitPartition(0, 5),
                    CommitPartition(9, 5),
                    CommitPartition(1, 6, -1, "x" * 5000),
                ],
            ),
            CommitTopic("t", partitions=[CommitPartition(1, 7)]),
        ],
    )
    answer = await ask(house, request, 7)

    assert _parts(answer.topics) == [
        ("nope", [(0, 3)]),
        ("t", [(9, 3), (0, 0), (1, 12), (1, 0)]),
    ]
    assert await _fetched(house, "s") == {("t", 0): 5, ("t", 1): 7}


async def test_nothing_to_commit(house: House) -> None:
    for topics in ([], [CommitTopic("t")]):
        answer = await ask(house, groups.OffsetCommitRequest("s", topics=topics), 8)

        assert answer.topics == []
    listed = await ask(house, groups.ListGroupsRequest(), 5)
    assert listed.groups == []


async def test_topics_by_id(house: House) -> None:
    topic_id = house.rooms.image.topics.by_name["t"].topic_id
    request = groups.OffsetCommitRequest(
        "s",
        topics=[
            CommitTopic("", topic_id, [CommitPartition(0, 8, 3, "m"), CommitPartition(7, 8)]),
            CommitTopic("", UNKNOWN_ID, [CommitPartition(0, 1)]),
        ],
    )
    committed = await ask(house, request, 10)

    assert [(one.topic_id, _parts([one])[0][1]) for one in committed.topics] == [
        (topic_id, [(7, 3), (0, 0)]),
        (UNKNOWN_ID, [(0, 100)]),
    ]

    asked = FetchGroup(
        "s",
        topics=[
            FetchTopic("", topic_id, [0, 1]),
            FetchTopic("", UNKNOWN_ID, [0]),
        ],
    )
    everything = FetchGroup("s", topics=None)
    answer = await ask(house, groups.OffsetFetchRequest(groups=[asked, everything]), 10)
    first, second = answer.groups

    assert [(one.topic_id, _parts([one])[0][1]) for one in first.topics] == [
        (topic_id, [(0, 0), (1, 0)]),
        (UNKNOWN_ID, [(0, 100)]),
    ]
    (part,) = second.topics[0].partitions
    assert (part.committed_offset, part.committed_leader_epoch, part.metadata) == (8, 3, "m")


async def test_a_fetch_that_is_refused_names_no_topics(house: House) -> None:
    join = ConsumerGroupHeartbeatRequest(
        "g", "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    assert (await ask(house, join, 1)).error_code == 0
    asked = FetchGroup("g", "stranger", 2, [FetchTopic("", UNKNOWN_ID, [0])])
    (answer,) = (await ask(house, groups.OffsetFetchRequest(groups=[asked]), 10)).groups

    assert (answer.error_code, answer.topics) == (ErrorCode.UNKNOWN_MEMBER_ID, [])


async def _fetched(house: House, group: str) -> dict[tuple[str, int], int]:
    request = groups.OffsetFetchRequest(groups=[FetchGroup(group, topics=None)])
    answer = await ask(house, request, 8)
    return {
        (topic.name, one.partition_index): one.committed_offset
        for topic in answer.groups[0].topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 8))
async def test_one_group_in_the_old_form(house: House, version: int) -> None:
    commit = groups.OffsetCommitRequest("s")
    commit.topics = [CommitTopic("t", partitions=[CommitPartition(0, 5, 2, "m")])]
    await ask(house, commit, 7)
    topics = [OldFetchTopic("t", [0, 1, 9]), OldFetchTopic("nope", [0])]
    answer = await ask(house, groups.OffsetFetchRequest("s", topics), version)
    found = [one.committed_offset for topic in answer.topics for one in topic.partitions]

    assert answer.error_code == 0
    assert found == [5, -1, -1, -1]
    assert answer.topics[0].partitions[0].metadata == "m"
    if version >= 2:
        unknown = await ask(house, groups.OffsetFetchRequest("nobody", None), version)

        assert (unknown.error_code, unknown.topics) == (0, [])


async def test_offsets_are_deleted_one_by_one(house: House) -> None:
    commit = groups.OffsetCommitRequest("s")
    commit.topics = [CommitTopic("t", partitions=[CommitPartition(0, 5), CommitPartition(1, 6)])]
    await ask(house, commit, 8)
    topics = [
        DeleteTopic("t", [DeletePartition(0), DeletePartition(9)]),
        DeleteTopic("nope", [DeletePartition(0)]),
    ]
    answer = await ask(house, groups.OffsetDeleteRequest("s", topics), 0)

    assert _parts(answer.topics) == [("t", [(9, 3), (0, 0)]), ("nope", [(0, 3)])]
    assert await _fetched(house, "s") == {("t", 1): 6}
    for group, code in (("nobody", 69), ("", 24)):
        refused = await ask(house, groups.OffsetDeleteRequest(group, topics), 0)

        assert (refused.error_code, refused.topics) == (code, [])


async def test_groups_are_listed_by_state_and_type(house: House) -> None:
    commit = groups.OffsetCommitRequest("s")
    commit.topics = [CommitTopic("t", partitions=[CommitPartition(0, 5)])]
    await ask(house, commit, 8)
    for states, types, names in (
        ([], [], ["s"]),
        (["EMPTY"], ["Classic"], ["s"]),
        ([" empty "], [], ["s"]),
        ([], [" classic "], []),
        (["Stable"], [], []),
        ([], ["consumer"], []),
        (["bogus"], ["bogus"], []),
    ):
        answer = await ask(house, groups.ListGroupsRequest(states, types), 5)

        assert [one.group_id for one in answer.groups] == names
        assert all(
            (one.group_state, one.group_type) == ("Empty", "classic") for one in answer.groups
        )


async def test_groups_are_described_and_deleted_each_on_its_own(house: House) -> None:
    commit = groups.OffsetCommitRequest("s")
    commit.topics = [CommitTopic("t", partitions=[CommitPartition(0, 5)])]
    await ask(house, commit, 8)
    answer = await ask(house, groups.DescribeGroupsRequest(["s", "nobody"], True), 6)
    known, unknown = answer.groups

    assert (known.group_state, known.authorized_operations) == ("Empty", GROUP_OPERATIONS)
    assert (unknown.group_state, unknown.error_code) == ("Dead", 69)
    assert unknown.authorized_operations == -(2**31)
    assert GROUP_OPERATIONS == 3400

    deleted = await ask(house, groups.DeleteGroupsRequest(["nobody", "", "s", "s"]), 2)

    assert [(one.group_id, one.error_code) for one in deleted.results] == [
        ("nobody", 69),
        ("", 69),
        ("s", 0),
    ]
    assert await _fetched(house, "s") == {}


async def test_without_a_coordinator_everybody_is_sent_away() -> None:
    async with House() as house:
        await house.create("t")
        partition = [CommitTopic("t", partitions=[CommitPartition(0, 5)])]
        committed = await ask(house, groups.OffsetCommitRequest("g", topics=partition), 8)
        listed = await ask(house, groups.ListGroupsRequest(), 5)
        code = ErrorCode.NOT_COORDINATOR

        assert (await ask(house, groups.HeartbeatRequest("g", 1, "m"), 4)).error_code == code
        assert (await ask(house, groups.SyncGroupRequest("g", 1, "m"), 3)).error_code == code
        assert (await ask(house, groups.LeaveGroupRequest("g"), 3)).error_code == code
        joined = await ask(house, groups.JoinGroupRequest("g", 10_000, 10_000, "m"), 5)
        assert (joined.error_code, joined.member_id, joined.protocol_name) == (code, "m", "")
        assert committed.topics[0].partitions[0].error_code == code
        assert (await ask(house, groups.OffsetDeleteRequest("g"), 0)).error_code == code
        described = await ask(house, groups.DescribeGroupsRequest(["g"]), 5)
        assert described.groups[0].error_code == code
        assert (listed.error_code, listed.groups) == (0, [])


async def test_all_of_a_group_is_told_once_however_often_it_is_asked_for(house: House) -> None:
    whole, some = FetchGroup("g", topics=None), FetchGroup("g", topics=[FetchTopic("t", b"", [0])])
    fetched = await ask(house, groups.OffsetFetchRequest(groups=[whole, some, whole]), 8)
    described = await ask(house, groups.DescribeGroupsRequest(["g", "h", "g", "g"]), 5)

    assert [len(group.topics) for group in fetched.groups] == [0, 1]
    assert [group.group_id for group in described.groups] == ["g", "h"]
