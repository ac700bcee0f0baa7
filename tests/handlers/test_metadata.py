"""Metadata and DescribeCluster: observed section 3, and the rules that clients break on."""

from __future__ import annotations

import pytest

from ottla.broker.handlers.metadata import (
    CLUSTER_OPERATIONS,
    TOPIC_OPERATIONS,
    handle_metadata,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import (
    DescribeClusterRequest,
    MetadataRequest,
    MetadataResponse,
)
from ottla.protocol.wire import ZERO_UUID
from tests.handlers.rooms import CLUSTER_ID, NODE_ID, House

UNKNOWN_ID = b"no such topic id"
NOT_ASKED = -(2**31)


def topic(name: str | None, topic_id: bytes = ZERO_UUID) -> MetadataRequest.MetadataRequestTopic:
    return MetadataRequest.MetadataRequestTopic(topic_id, name)


def names(answer: MetadataResponse) -> list[str | None]:
    return [one.name for one in answer.topics]


def errors(answer: MetadataResponse) -> list[tuple[str | None, int]]:
    return [(one.name, one.error_code) for one in answer.topics]


async def test_all_topics_are_asked_by_null_and_by_an_empty_list_in_version_0(
    house: House,
) -> None:
    await house.create("a")
    await house.create("b")

    assert names(await house.ask(MetadataRequest([]), 0)) == ["a", "b"]
    assert names(await house.ask(MetadataRequest([]), 1)) == []
    assert names(await house.ask(MetadataRequest(None), 1)) == ["a", "b"]
    assert names(await house.ask(MetadataRequest(None), 13)) == ["a", "b"]


@pytest.mark.parametrize("version", range(14))
async def test_a_topic_shows_its_partitions_in_every_version(house: House, version: int) -> None:
    topic_id = await house.create("orders", partitions=3)

    answer = await house.ask(MetadataRequest([topic("orders")]), version)

    (shown,) = answer.topics
    assert (shown.error_code, shown.name, shown.is_internal) == (0, "orders", False)
    assert shown.topic_id == (topic_id if version >= 10 else ZERO_UUID)
    assert [one.partition_index for one in shown.partitions] == [0, 1, 2]
    for partition in shown.partitions:
        assert partition.error_code == 0
        assert partition.leader_id == NODE_ID
        assert partition.leader_epoch == (0 if version >= 7 else -1)
        assert partition.replica_nodes == [NODE_ID]
        assert partition.isr_nodes == [NODE_ID]
        assert partition.offline_replicas == []
    assert answer.cluster_id == (CLUSTER_ID if version >= 2 else None)
    assert answer.controller_id == (NODE_ID if version >= 1 else -1)


async def test_what_is_kept_of_partitions_is_kept_while_nothing_changes(house: House) -> None:
    await house.create("a", partitions=2)
    request = MetadataRequest([topic("a")])

    before = handle_metadata(house.session, request, 12).topics[0].partitions
    assert handle_metadata(house.session, request, 12).topics[0].partitions is before
    await house.create("b")
    after = handle_metadata(house.session, request, 12).topics[0].partitions

    assert after is not before
    assert len(after) == len(before) == 2


async def test_odd_names_are_answered_one_by_one(house: House) -> None:
    await house.create("a.b")
    asked = [topic(name) for name in ("a.b", "nope", "b c", "", ".", "a.b", "nope")]

    answer = await house.ask(MetadataRequest(asked, False), 12)

    assert errors(answer) == [
        ("a.b", ErrorCode.NONE),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("b c", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (".", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    assert not house.background


async def test_topics_are_asked_by_id_from_version_12_on(house: House) -> None:
    topic_id = await house.create("orders")
    asked = MetadataRequest([topic(None, topic_id), topic(None, UNKNOWN_ID)], False)

    answer = await house.ask(asked, 12)

    assert [(one.error_code, one.name, one.topic_id) for one in answer.topics] == [
        (ErrorCode.NONE, "orders", topic_id),
        (ErrorCode.UNKNOWN_TOPIC_ID, None, UNKNOWN_ID),
    ]


@pytest.mark.parametrize("version", [10, 11])
async def test_an_id_before_version_12_is_refused(house: House, version: int) -> None:
    answer = await house.ask(MetadataRequest([topic("orders", UNKNOWN_ID)], False), version)

    assert errors(answer) == [("orders", ErrorCode.INVALID_REQUEST)]
    assert answer.controller_id == -1
    assert answer.brokers == []


async def test_a_topic_with_neither_name_nor_id_is_refused(house: House) -> None:
    answer = await house.ask(MetadataRequest([topic(None)], False), 13)

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert errors(answer) == [("", ErrorCode.INVALID_REQUEST)]


async def test_authorized_operations_are_all_of_them_when_asked(house: House) -> None:
    await house.create("a")

    asked = await house.ask(MetadataRequest([topic("a")], False, True, True), 10)
    unasked = await house.ask(MetadataRequest([topic("a")], False), 10)

    assert asked.topics[0].topic_authorized_operations == TOPIC_OPERATIONS == 3576
    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS == 8096
    assert unasked.topics[0].topic_authorized_operations == NOT_ASKED
    assert unasked.cluster_authorized_operations == NOT_ASKED


async def test_nothing_is_known_of_the_operations_on_an_unknown_id(house: House) -> None:
    await house.create("a")
    asked = [topic(None, UNKNOWN_ID), topic("a"), topic("nope")]
    request = MetadataRequest(asked, False, False, True)

    answer = await house.ask(request, 12)

    assert {one.name: one.topic_authorized_operations for one in answer.topics} == {
        None: NOT_ASKED,
        "a": TOPIC_OPERATIONS,
        "nope": TOPIC_OPERATIONS,
    }


async def test_internal_topics_are_marked_even_when_they_do_not_exist(house: House) -> None:
    answer = await house.ask(MetadataRequest([topic("__consumer_offsets")], False), 12)

    assert errors(answer) == [("__consumer_offsets", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert answer.topics[0].is_internal


async def test_clients_are_told_the_address_by_which_they_came(house: House) -> None:
    house.session.local_host, house.session.local_port = "::ffff:172.17.0.2", 19092

    answer = await house.ask(MetadataRequest([]), 1)

    assert [(one.node_id, one.host, one.port) for one in answer.brokers] == [
        (NODE_ID, "172.17.0.2", 19092)
    ]


async def test_clients_are_told_what_their_listener_advertises() -> None:
    config = {
        "listeners": "PLAINTEXT://:9092,OUTSIDE://:9094",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "advertised.listeners": "OUTSIDE://kafka.example.org:443",
    }
    async with House(config) as house:
        inside = await house.ask(MetadataRequest([]), 1)
        house.session.listener_name = "OUTSIDE"
        outside = await house.ask(DescribeClusterRequest(), 0)

    assert [(one.host, one.port) for one in inside.brokers] == [("127.0.0.1", 9092)]
    assert [(one.host, one.port) for one in outside.brokers] == [("kafka.example.org", 443)]


async def test_an_advertised_port_0_is_the_one_that_is_bound() -> None:
    """As in Kafka (ListenerInfo.withEphemeralPortsCorrected): nobody can connect to a port 0."""
    async with House({"advertised.listeners": "PLAINTEXT://kafka.example.org:0"}) as house:
        answer = await house.ask(MetadataRequest([]), 1)

    assert [(one.host, one.port) for one in answer.brokers] == [("kafka.example.org", 9092)]


async def test_a_partition_without_a_leader_is_still_listed(house: House) -> None:
    """A partitioner counts partitions; librdkafka would send all to those that are left."""
    await house.create("orders", partitions=2)
    await house.lose_leader("orders", 1)

    old = await house.ask(MetadataRequest([topic("orders")]), 5)
    new = await house.ask(MetadataRequest([topic("orders")]), 12)

    for answer in (old, new):
        first, second = answer.topics[0].partitions
        assert (first.error_code, first.leader_id) == (0, NODE_ID)
        assert (second.error_code, second.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert second.replica_nodes == [NODE_ID]


async def test_a_lost_log_directory_takes_its_replicas_offline(house: House) -> None:
    await house.create("orders")
    await house.lose_directory("orders", 0)

    answer = await house.ask(MetadataRequest([topic("orders")]), 12)

    assert answer.topics[0].partitions[0].offline_replicas == [NODE_ID]


async def test_describe_cluster_shows_brokers_and_operations(house: House) -> None:
    answer = await house.ask(DescribeClusterRequest(True, 1, True), 2)

    assert answer.error_code == 0
    assert answer.cluster_id == CLUSTER_ID
    assert answer.controller_id == NODE_ID
    assert [(one.broker_id, one.is_fenced) for one in answer.brokers] == [(NODE_ID, False)]
    assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize(
    ("endpoint_type", "code", "message"),
    [
        (
            2,
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER",
        ),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type 3"),
    ],
)
async def test_controllers_are_not_described_here(
    house: House, endpoint_type: int, code: ErrorCode, message: str
) -> None:
    answer = await house.ask(DescribeClusterRequest(True, endpoint_type), 1)

    assert (answer.error_code, answer.error_message) == (code, message)
    assert answer.brokers == []
