"""Reassignments, elections, features and registrations on a node that is alone."""

from __future__ import annotations

import pytest

from ottla.broker.metadata.image import NO_LEADER
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.broker_lifecycle import UnregisterBrokerRequest
from ottla.protocol.messages.features import UpdateFeaturesRequest
from ottla.protocol.messages.metadata_records import (
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from tests.handlers.rooms import NODE_ID, House

Asked = AlterPartitionReassignmentsRequest.ReassignablePartition
AskedTopic = AlterPartitionReassignmentsRequest.ReassignableTopic
ToElect = ElectLeadersRequest.TopicPartitions
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT


async def _reassign(
    house: House, replicas: list[int] | None, *, version: int = 1, timeout_ms: int = 60_000
) -> tuple[int, int]:
    """The error at the top, and that of the partition."""
    request = AlterPartitionReassignmentsRequest(
        timeout_ms, True, [AskedTopic("t", [Asked(0, replicas)])]
    )
    answer = await house.ask(request, version)
    ((partition,),) = ([*topic.partitions] for topic in answer.responses)
    return answer.error_code, partition.error_code


async def test_there_is_nowhere_to_go(house: House) -> None:
    await house.create("t")
    offset = house.rooms.image.offset

    assert await _reassign(house, [NODE_ID], version=0) == (0, 0)
    assert await _reassign(house, [9]) == (0, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    assert await _reassign(house, None) == (0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    assert await _reassign(house, [NODE_ID], timeout_ms=0) == (TIMED_OUT, TIMED_OUT)
    assert house.rooms.image.offset == offset, "nothing was written"
    nothing = await house.ask(AlterPartitionReassignmentsRequest(timeout_ms=0), 1)
    assert (nothing.error_code, nothing.error_message, nothing.responses) == (0, "", [])


async def test_what_began_elsewhere_is_listed_and_ended(house: House) -> None:
    """A directory may come from a cluster that was in the middle of one."""
    topic_id = await house.create("t")
    record = PartitionChangeRecord(0, topic_id, replicas=[NODE_ID, 2], adding_replicas=[2])
    await house.rooms.quorum.submit(lambda image: ([record], None))

    listing = await house.ask(ListPartitionReassignmentsRequest(), 0)
    ((ongoing,),) = ([*topic.partitions] for topic in listing.topics)
    assert (ongoing.replicas, ongoing.adding_replicas) == ([NODE_ID, 2], [2])

    assert await _reassign(house, None) == (0, 0)
    assert (await house.ask(ListPartitionReassignmentsRequest(), 0)).topics == []
    await house.append("t", 0, [b"still led"])


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_partition_that_is_led_needs_no_election(house: House, version: int) -> None:
    await house.create("t")

    answer = await house.ask(ElectLeadersRequest(0, [ToElect("t", [0])]), version)

    ((partition,),) = ([*topic.partition_result] for topic in answer.replica_election_results)
    assert partition.error_code == ErrorCode.ELECTION_NOT_NEEDED
    assert partition.error_message == "Leader election not needed for topic partition."
    everything = await house.ask(ElectLeadersRequest(0, None), version)
    assert [(one.topic, one.partition_result) for one in everything.replica_election_results] == [
        ("t", [])
    ]


async def test_a_partition_without_a_leader_gets_one(house: House) -> None:
    await house.create("t")
    await house.lose_leader("t", 0)
    assert house.rooms.image.topics.by_name["t"].partitions[0].leader == NO_LEADER

    answer = await house.ask(ElectLeadersRequest(1, [ToElect("t", [0])]), 2)

    assert answer.replica_election_results[0].partition_result[0].error_code == 0
    await house.append("t", 0, [b"led again"])


async def test_elections_that_are_refused(house: House) -> None:
    await house.create("t")
    for kind, timeout_ms, code in ((2, 60_000, 42), (0, 0, TIMED_OUT)):
        answer = await house.ask(ElectLeadersRequest(kind, [ToElect("t", [0])], timeout_ms), 2)
        assert answer.error_code == code
        assert answer.replica_election_results[0].partition_result[0].error_code == code


async def test_an_election_is_refused_in_the_first_version_too(house: House) -> None:
    """Which has no place for an error at its top."""
    await house.create("t")
    answer = await house.ask(ElectLeadersRequest(0, [ToElect("t", [0])], 0), 0)

    assert answer.replica_election_results[0].partition_result[0].error_code == TIMED_OUT


async def test_levels_that_cannot_be_and_one_that_is(house: House) -> None:
    async def update(level: int, kind: int, *, dry: bool = False) -> int:
        key = UpdateFeaturesRequest.FeatureUpdateKey("metadata.version", level, False, kind)
        answer = await house.ask(UpdateFeaturesRequest(1000, [key], dry), 2)
        return int(answer.error_code)

    assert await update(99, 1) == ErrorCode.INVALID_UPDATE_VERSION
    assert await update(29, 2) == ErrorCode.INVALID_UPDATE_VERSION
    assert await update(30, 1, dry=True) == 0
    assert house.rooms.image.metadata_version == 30


async def test_a_broker_that_is_gone_is_forgotten(house: House) -> None:
    other = RegisterBrokerRecord(broker_id=2, broker_epoch=7, log_dirs=[bytes(15) + b"\xee"])
    await house.rooms.quorum.submit(lambda image: ([other], None))

    answers = [await house.ask(UnregisterBrokerRequest(one), 0) for one in (2, 2, NODE_ID)]

    assert [answer.error_code for answer in answers] == [
        0,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.INVALID_REQUEST,
    ]
    assert answers[1].error_message == "Broker ID 2 is not currently registered"
    assert list(house.rooms.image.cluster.brokers) == [NODE_ID]
