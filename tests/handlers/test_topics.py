"""CreateTopics, DeleteTopics and CreatePartitions: observed section 3, row by row."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ottla.protocol.wire import ZERO_UUID
from tests.handlers.rooms import NODE_ID, House

Topic = CreateTopicsRequest.CreatableTopic
Config = CreateTopicsRequest.CreatableTopicConfig
Assignment = CreateTopicsRequest.CreatableReplicaAssignment
Doomed = DeleteTopicsRequest.DeleteTopicState
Grown = CreatePartitionsRequest.CreatePartitionsTopic
NewAssignment = CreatePartitionsRequest.CreatePartitionsAssignment

UNKNOWN_ID = b"no such topic id"
TOPIC_KEY_COUNT = 33


def results(answer: CreateTopicsResponse) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


def deleted(answer: DeleteTopicsResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code) for topic in answer.responses]


def grown(answer: CreatePartitionsResponse) -> dict[str, tuple[int, str | None]]:
    return {topic.name: (topic.error_code, topic.error_message) for topic in answer.results}


async def create(
    house: House, *topics: Topic, version: int = 7, timeout_ms: int = 5000, validate: bool = False
) -> CreateTopicsResponse:
    request = CreateTopicsRequest(list(topics), timeout_ms, validate)
    answer: CreateTopicsResponse = await house.ask(request, version)
    return answer


# CreateTopics


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_topic_is_there_when_the_answer_is(house: House, version: int) -> None:
    answer = await create(house, Topic("orders", 3, 1), version=version)

    (result,) = answer.topics
    assert (result.error_code, result.error_message) == (0, None)
    image = house.rooms.image.topics.by_name["orders"]
    assert sorted(image.partitions) == [0, 1, 2]
    for index in range(3):
        partition = house.rooms.replicas.get("orders", index)
        assert partition is not None
        assert partition.topic_id == image.topic_id
    assert result.topic_id == (image.topic_id if version >= 7 else ZERO_UUID)
    assert result.num_partitions == (3 if version >= 5 else -1)
    assert result.replication_factor == (1 if version >= 5 else -1)


async def test_the_answer_describes_the_settings(house: House) -> None:
    answer = await create(house, Topic("orders", 1, 1, [], [Config("retention.ms", "1000")]))

    configs = answer.topics[0].configs
    assert configs is not None
    assert [one.name for one in configs] == sorted(one.name for one in configs)
    assert len(configs) == TOPIC_KEY_COUNT
    by_name = {one.name: (one.value, one.config_source) for one in configs}
    assert by_name["retention.ms"] == ("1000", 1)
    assert by_name["cleanup.policy"] == ("delete", 5)
    assert by_name["min.insync.replicas"] == ("1", 5)
    assert by_name["flush.messages"][0] == "1"


@pytest.mark.parametrize("version", [2, 4, 7])
async def test_minus_one_is_the_default(version: int) -> None:
    async with House({"num.partitions": "4"}) as house:
        answer = await create(house, Topic("orders", -1, -1), version=version)

        assert results(answer) == {"orders": ErrorCode.NONE}
        assert len(house.rooms.image.topics.by_name["orders"].partitions) == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "b c",
            "Topic name is invalid: 'b c' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'",
        ),
        (".", "Topic name is invalid: '.' is not allowed"),
        ("", "Topic name is invalid: the empty string is not allowed"),
        (
            "x" * 250,
            f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed "
            "length 249",
        ),
        ("a_b", "Topic 'a_b' collides with existing topic: a.b"),
    ],
)
async def test_impossible_names(house: House, name: str, message: str) -> None:
    await house.create("a.b")

    answer = await create(house, Topic(name, 1, 1))

    assert results(answer) == {name: ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert answer.topics[0].error_message == message


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (Topic("a.b", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a.b' already exists."),
        (
            Topic("t", 0, 1),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            Topic("t", -2, 1),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            Topic("t", 1, 0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            Topic("t", 1, -2),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (Topic("t", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR, None),
        (
            Topic("t", 10001, 1),
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ),
        (
            Topic("t", 1, 1, [], [Config("nope", "1")]),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: nope",
        ),
        (
            Topic("t", 1, 1, [], [Config("retention.ms", "x")]),
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            Topic("t", 1, 1, [], [Config("segment.bytes", "1")]),
            ErrorCode.INVALID_CONFIG,
            "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            Topic("t", 1, 1, [], [Config("retention.ms", None)]),
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            Topic("t", -1, -1, [Assignment(0, [9])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            Topic("t", -1, -1, [Assignment(1, [NODE_ID])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            Topic("t", -1, -1, [Assignment(0, [NODE_ID, NODE_ID])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes the broker {NODE_ID} more than once.",
        ),
        (
            Topic("t", -1, 1, [Assignment(0, [NODE_ID])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not "
            "set to -1.",
        ),
        (
            Topic("__cluster_metadata", 1, 1),
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
    ],
)
async def test_what_cannot_be_created_is_refused(
    house: House, topic: Topic, code: ErrorCode, message: str | None
) -> None:
    await house.create("a.b")

    answer = await create(house, topic)

    (result,) = answer.topics
    assert (result.name, result.error_code) == (topic.name, code)
    assert result.error_message
    assert message is None or result.error_message == message
    assert list(house.rooms.image.topics.by_name) == ["a.b"]


async def test_a_topic_twice_in_one_request_is_refused_once(house: House) -> None:
    answer = await create(house, Topic("f", 1, 1), Topic("f", 1, 1), Topic("g", 1, 1))

    assert results(answer) == {"f": ErrorCode.INVALID_REQUEST, "g": ErrorCode.NONE}
    assert len(answer.topics) == 2
    (refused,) = (topic for topic in answer.topics if topic.name == "f")
    assert refused.error_message == "Duplicate topic name."


async def test_a_timeout_of_0_is_over_but_the_topic_is_there(house: House) -> None:
    answer = await create(house, Topic("orders", 1, 1), timeout_ms=0)

    assert results(answer) == {"orders": ErrorCode.REQUEST_TIMED_OUT}
    assert "orders" in house.rooms.image.topics.by_name


async def test_validate_only_creates_nothing(house: House) -> None:
    answer = await create(house, Topic("orders", 2, 1), Topic("b c", 1, 1), validate=True)

    assert results(answer) == {
        "orders": ErrorCode.NONE,
        "b c": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    (valid,) = (topic for topic in answer.topics if topic.name == "orders")
    assert valid.num_partitions == 2
    assert len(valid.configs or []) == TOPIC_KEY_COUNT
    assert "orders" not in house.rooms.image.topics.by_name


# DeleteTopics


@pytest.mark.parametrize("version", [1, 3, 5])
async def test_topics_are_deleted_by_name(house: House, version: int) -> None:
    await house.create("orders")

    answer = await house.ask(DeleteTopicsRequest([], ["orders", "nope"], 5000), version)

    assert sorted(deleted(answer), key=str) == [
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", ErrorCode.NONE),
    ]
    assert house.rooms.image.topics.by_name == {}
    assert house.rooms.replicas.get("orders", 0) is None


async def test_topics_are_deleted_by_id(house: House) -> None:
    topic_id = await house.create("orders")
    request = DeleteTopicsRequest([Doomed(None, topic_id), Doomed(None, UNKNOWN_ID)], [], 5000)

    answer = await house.ask(request, 6)

    assert sorted(
        ((one.topic_id, one.name, one.error_code) for one in answer.responses), key=str
    ) == sorted(
        [
            (topic_id, "orders", ErrorCode.NONE),
            (UNKNOWN_ID, None, ErrorCode.UNKNOWN_TOPIC_ID),
        ],
        key=str,
    )
    assert house.rooms.image.topics.by_id == {}


@pytest.mark.parametrize(
    ("topics", "code", "message"),
    [
        ([Doomed("t"), Doomed("t")], ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        (
            [Doomed(None)],
            ErrorCode.INVALID_REQUEST,
            "Neither topic name nor id were specified.",
        ),
        (
            [Doomed("t", UNKNOWN_ID)],
            ErrorCode.INVALID_REQUEST,
            "You may not specify both topic name and topic id.",
        ),
        (
            [Doomed("nope")],
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        ),
        (
            [Doomed(None, UNKNOWN_ID)],
            ErrorCode.UNKNOWN_TOPIC_ID,
            "This server does not host this topic ID.",
        ),
    ],
)
async def test_odd_deletions_are_refused(
    house: House, topics: list[Doomed], code: ErrorCode, message: str
) -> None:
    await house.create("t")

    answer = await house.ask(DeleteTopicsRequest(topics, [], 5000), 6)

    assert [(one.error_code, one.error_message) for one in answer.responses] == [(code, message)]
    assert "t" in house.rooms.image.topics.by_name


async def test_the_same_topic_by_name_and_by_id_is_refused_once(house: House) -> None:
    topic_id = await house.create("t")
    request = DeleteTopicsRequest([Doomed("t"), Doomed(None, topic_id)], [], 5000)

    answer = await house.ask(request, 6)

    assert [one.error_code for one in answer.responses] == [ErrorCode.INVALID_REQUEST]
    assert (
        answer.responses[0].error_message
        == "The provided topic name maps to an ID that was already supplied."
    )
    assert "t" in house.rooms.image.topics.by_name


async def test_what_was_created_and_deleted_is_told(house: House) -> None:
    await house.create("t", partitions=2)
    await house.ask(DeleteTopicsRequest([], ["t", "nosuch"], 5000), 5)

    who = {"client_id": house.session.client_id, "address": house.session.peer}
    assert house.events.named("topic_created") == [{"topic": "t", "partitions": 2, **who}]
    assert house.events.named("topic_deleted") == [{"topic": "t", **who}]


async def test_what_is_lost_with_a_topic_of_the_brokers_own_is_told(house: House) -> None:
    await house.create("__consumer_offsets")
    await house.ask(DeleteTopicsRequest([], ["__consumer_offsets"], 5000), 5)

    (told,) = house.events.named("topic_deleted")
    assert told["lost"] == "all groups and their committed offsets"


async def test_a_deletion_with_a_timeout_of_0_happens(house: House) -> None:
    await house.create("t")

    answer = await house.ask(DeleteTopicsRequest([], ["t"], 0), 5)

    assert deleted(answer) == [("t", ErrorCode.REQUEST_TIMED_OUT)]
    assert house.rooms.image.topics.by_name == {}


@pytest.mark.parametrize(
    ("version", "code"), [(1, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)]
)
async def test_deletion_can_be_turned_off(version: int, code: ErrorCode) -> None:
    async with House({"delete.topic.enable": "false"}) as house:
        await house.create("t")
        answer = await house.ask(DeleteTopicsRequest([], ["t"], 5000), version)

        assert deleted(answer) == [("t", code)]
        assert "t" in house.rooms.image.topics.by_name


async def test_a_topic_created_again_is_another_topic(house: House) -> None:
    first = await house.create("t")
    await house.append("t", 0, [b"old"])
    await house.ask(DeleteTopicsRequest([], ["t"], 5000), 5)
    second = await house.create("t")

    partition = house.rooms.replicas.get("t", 0)
    assert partition is not None
    assert first != second == partition.topic_id
    assert partition.log.log_end_offset == 0
    assert house.rooms.replicas.by_id(first, 0) is None


# CreatePartitions


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added(house: House, version: int) -> None:
    await house.create("t")

    answer = await house.ask(CreatePartitionsRequest([Grown("t", 3, None)], 5000), version)

    assert grown(answer) == {"t": (ErrorCode.NONE, None)}
    assert house.rooms.replicas.get("t", 2) is not None


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (Grown("t", 1, None), ErrorCode.INVALID_PARTITIONS, "Topic already has 1 partition(s)."),
        (
            Grown("t", 0, None),
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 1 partition(s); 0 would not be an increase.",
        ),
        (
            Grown("nope", 2, None),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            None,
        ),
        (
            Grown("t", 2, [NewAssignment([NODE_ID]), NewAssignment([NODE_ID])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified.",
        ),
    ],
)
async def test_odd_partition_counts_are_refused(
    house: House, topic: Grown, code: ErrorCode, message: str | None
) -> None:
    await house.create("t")

    answer = await house.ask(CreatePartitionsRequest([topic], 5000), 3)

    assert grown(answer) == {topic.name: (code, message)}
    assert len(house.rooms.image.topics.by_name["t"].partitions) == 1


async def test_a_topic_twice_gets_no_partitions(house: House) -> None:
    await house.create("t")
    request = CreatePartitionsRequest([Grown("t", 3, None), Grown("t", 4, None)], 5000)

    answer = await house.ask(request, 3)

    assert grown(answer) == {"t": (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")}
    assert len(house.rooms.image.topics.by_name["t"].partitions) == 1


async def test_partitions_are_validated_only(house: House) -> None:
    await house.create("t")

    answer = await house.ask(CreatePartitionsRequest([Grown("t", 3, None)], 5000, True), 3)

    assert grown(answer) == {"t": (ErrorCode.NONE, None)}
    assert len(house.rooms.image.topics.by_name["t"].partitions) == 1


async def test_partitions_with_a_timeout_of_0_are_added(house: House) -> None:
    await house.create("t")

    answer = await house.ask(CreatePartitionsRequest([Grown("t", 3, None)], 0), 3)

    assert grown(answer) == {"t": (ErrorCode.REQUEST_TIMED_OUT, None)}
    assert len(house.rooms.image.topics.by_name["t"].partitions) == 3
