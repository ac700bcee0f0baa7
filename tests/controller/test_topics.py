"""CreateTopics, DeleteTopics and CreatePartitions answer as Apache Kafka 4.3.1 was seen to."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from ottla.broker.controller.names import new_id, topic_name_fault
from ottla.broker.controller.partitions import create_partitions
from ottla.broker.controller.topics import create_topics, delete_topics
from ottla.broker.metadata.image import (
    DIRECTORY_UNASSIGNED,
    TOPIC_RESOURCE,
    MetadataImage,
    TopicImage,
    is_reserved_id,
)
from ottla.config.types import ConfigSource
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.metadata_records import (
    ConfigRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
)
from ottla.protocol.schema import Message
from ottla.protocol.wire import uuid_text
from tests.controller.clusters import applied, cluster, config, directory

Topic = CreateTopicsRequest.CreatableTopic
Assignment = CreateTopicsRequest.CreatableReplicaAssignment
Setting = CreateTopicsRequest.CreatableTopicConfig
Wanted = CreatePartitionsRequest.CreatePartitionsTopic
ManualPartition = CreatePartitionsRequest.CreatePartitionsAssignment

ALONE = cluster(1)


def create(
    *topics: Topic, image: MetadataImage = ALONE, validate_only: bool = False
) -> tuple[list[Message], CreateTopicsResponse]:
    request = CreateTopicsRequest(list(topics), validate_only=validate_only)
    return create_topics(image, request, config=config(), rng=random.Random(1))


def answers(response: CreateTopicsResponse) -> list[tuple[str, int, str | None]]:
    return [(topic.name, topic.error_code, topic.error_message) for topic in response.topics]


def with_topic(
    name: str = "orders", partitions: int = 1, image: MetadataImage = ALONE
) -> MetadataImage:
    records, _ = create(Topic(name, partitions, 1), image=image)
    return applied(records, image)


def test_a_topic_is_its_name_its_settings_and_its_partitions() -> None:
    records, response = create(Topic("orders", 2, 1, configs=[Setting("retention.ms", "1000")]))

    assert [type(record) for record in records] == [
        TopicRecord,
        ConfigRecord,
        PartitionRecord,
        PartitionRecord,
    ]
    partition = records[2]
    assert isinstance(partition, PartitionRecord)
    assert (partition.replicas, partition.isr, partition.leader) == ([1], [1], 1)
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert partition.directories == [directory(1)]
    (topic,) = response.topics
    assert (topic.error_code, topic.error_message) == (0, None)
    assert (topic.num_partitions, topic.replication_factor) == (2, 1)
    assert topic.topic_id == applied(records, ALONE).topics.by_name["orders"].topic_id


def test_the_answer_holds_all_settings_sorted_by_name() -> None:
    _, response = create(Topic("orders", 1, 1, configs=[Setting("retention.ms", "1000")]))
    configs = response.topics[0].configs

    assert configs is not None
    assert len(configs) == 33
    assert [one.name for one in configs] == sorted(one.name for one in configs)
    by_name = {one.name: (one.value, one.config_source) for one in configs}
    assert by_name["retention.ms"] == ("1000", ConfigSource.TOPIC)
    assert by_name["min.insync.replicas"] == ("1", ConfigSource.DEFAULT)


REFUSED = [
    (Topic("", 1, 1), 17, "the empty string is not allowed"),
    (Topic(".", 1, 1), 17, "'.' is not allowed"),
    (Topic("a b", 1, 1), 17, "contains one or more characters other than ASCII"),
    (Topic("a" * 250, 1, 1), 17, "is longer than the max allowed length 249"),
    (Topic("orders", 1, 1), 36, "Topic 'orders' already exists."),
    (Topic("a_b", 1, 1), 17, "Topic 'a_b' collides with existing topic: a.b"),
    (Topic("x", 0, 1), 37, "Number of partitions was set to an invalid non-positive value."),
    (Topic("x", -2, 1), 37, "Number of partitions"),
    (Topic("x", 1, 0), 38, "Replication factor must be larger than 0, or -1 to use the default"),
    (Topic("x", 1, -2), 38, "Replication factor must be larger than 0"),
    (
        Topic("x", 1, 3),
        38,
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be"
        " reached because only 1 broker(s) are registered or some brokers have all their log"
        " directories cordoned.",
    ),
    (Topic("x", 1, 1, configs=[Setting("nope", "1")]), 40, "Unknown topic config name: nope"),
    (Topic("x", 1, 1, configs=[Setting("segment.bytes", "1")]), 40, "segment.bytes"),
    (
        Topic("x", 1, 1, configs=[Setting("retention.ms", None)]),
        40,
        "Null value not supported for topic configs: retention.ms",
    ),
    (
        Topic("x", 1, 1, configs=[Setting("retention.ms", None), Setting("retention.ms", "1")]),
        40,
        "Null value not supported for topic configs: retention.ms",
    ),
    (
        Topic("x", -1, 1, [Assignment(0, [1])]),
        42,
        "A manual partition assignment was specified, but replication factor was not set to -1.",
    ),
    (
        Topic("x", 1, -1, [Assignment(0, [1])]),
        42,
        "A manual partition assignment was specified, but numPartitions was not set to -1.",
    ),
    (
        Topic("x", -1, -1, [Assignment(0, [9])]),
        39,
        "includes broker 9, but no such broker is registered.",
    ),
    (Topic("x", -1, -1, [Assignment(0, [1, 1])]), 39, "includes the broker 1 more than once."),
    (Topic("x", -1, -1, [Assignment(0, [])]), 39, "includes an empty replica list."),
    (
        Topic("x", -1, -1, [Assignment(0, [1]), Assignment(2, [1])]),
        39,
        "partitions should be a consecutive 0-based integer sequence",
    ),
    (
        Topic("x", -1, -1, [Assignment(0, [1]), Assignment(0, [1])]),
        39,
        "Found multiple manual partition assignments for partition 0",
    ),
    (Topic("x", 10_001, 1), 44, "Excessively large number of partitions per request."),
    (
        Topic("__cluster_metadata", 1, 1),
        42,
        "Creation of internal topic __cluster_metadata is prohibited.",
    ),
]


@pytest.mark.parametrize(("topic", "code", "reason"), REFUSED)
def test_topics_that_are_refused(topic: Topic, code: int, reason: str) -> None:
    image = with_topic("a.b", image=with_topic())

    records, response = create(topic, image=image)

    assert records == []
    ((name, error_code, message),) = answers(response)
    assert (name, error_code) == (topic.name, code)
    assert message is not None
    assert reason in message


def test_topics_set_alike_are_described_alike_and_others_as_they_are() -> None:
    short, long = Setting("retention.ms", "1000"), Setting("retention.ms", "2000")
    records, response = create(
        Topic("a", 1, 1, configs=[short]),
        Topic("b", 1, 1, configs=[long]),
        Topic("c", 1, 1),
        Topic("d", 1, 1, configs=[Setting("retention.ms", "soon")]),
        Topic("e", 1, 1, configs=[short]),
        Topic("f", 1, 1, configs=[Setting("retention.ms", "soon")]),
    )

    described = {
        topic.name: next(one.value for one in topic.configs or [] if one.name == "retention.ms")
        for topic in response.topics
        if not topic.error_code
    }
    assert described == {"a": "1000", "b": "2000", "c": "604800000", "e": "1000"}
    assert {topic.name for topic in response.topics if topic.error_code == 40} == {"d", "f"}
    assert {
        (record.resource_name, record.value)
        for record in records
        if isinstance(record, ConfigRecord)
    } == {("a", "1000"), ("b", "2000"), ("e", "1000")}


def test_a_name_that_is_asked_twice_is_answered_once() -> None:
    records, response = create(Topic("x", 1, 1), Topic("y", 1, 1), Topic("x", 2, 1))

    assert answers(response) == [("y", 0, None), ("x", 42, "Duplicate topic name.")]
    assert [record.name for record in records if isinstance(record, TopicRecord)] == ["y"]


def test_validation_alone_writes_nothing() -> None:
    records, response = create(Topic("x", 3, 1), validate_only=True)

    assert records == []
    assert answers(response) == [("x", 0, None)]
    assert response.topics[0].num_partitions == 3


def test_minus_one_takes_the_brokers_defaults() -> None:
    request = CreateTopicsRequest([Topic("x", -1, -1)])

    records, _ = create_topics(
        ALONE, request, config=config(num_partitions="4"), rng=random.Random(1)
    )

    assert len(records) == 5


def test_a_fenced_cluster_takes_no_topics() -> None:
    _, response = create(Topic("x", 1, 1), image=cluster(1, fenced=(1,)))

    assert answers(response) == [
        (
            "x",
            38,
            "Unable to replicate the partition 1 time(s): All brokers are currently"
            " fenced, or have all their log directories cordoned.",
        )
    ]


def test_a_broker_with_several_directories_chooses_one_itself() -> None:
    two = RegisterBrokerRecord(
        broker_id=1, broker_epoch=1, fenced=False, log_dirs=[directory(1), directory(2)]
    )

    records, _ = create(Topic("x", 1, 1), image=applied([two], ALONE))

    assert isinstance(records[1], PartitionRecord)
    assert records[1].directories == [DIRECTORY_UNASSIGNED]


def test_a_topic_made_again_is_another_one() -> None:
    first = with_topic()
    removal, _ = delete_topics(first, DeleteTopicsRequest(topic_names=["orders"]), version=5)
    gone = applied(removal, first)
    records, _ = create_topics(
        gone,
        CreateTopicsRequest([Topic("orders", 1, 1)]),
        config=config(),
        rng=random.Random(2),
    )
    again = applied(records, gone)

    assert first.topics.by_name["orders"].topic_id != again.topics.by_name["orders"].topic_id


def test_topics_are_deleted_by_name_and_by_id() -> None:
    image = with_topic("b", image=with_topic("a"))
    topic_id = image.topics.by_name["b"].topic_id
    state = DeleteTopicsRequest.DeleteTopicState
    request = DeleteTopicsRequest(
        [
            state("a"),
            state(None, topic_id),
            state("unknown"),
            state(None, bytes(15) + b"\xee"),
            state("twice"),
            state("twice"),
            state("both", topic_id),
            state(None),
        ]
    )

    records, response = delete_topics(image, request, version=6)

    assert records == [
        RemoveTopicRecord(image.topics.by_name["a"].topic_id),
        RemoveTopicRecord(topic_id),
    ]
    assert [(one.name, one.error_code) for one in response.responses] == [
        ("a", 0),
        ("b", 0),
        ("unknown", 3),
        (None, 100),
        ("twice", 42),
        ("both", 42),
        (None, 42),
    ]
    assert response.responses[4].error_message == "Duplicate topic name."


def test_the_settings_of_a_topic_are_removed_before_it() -> None:
    """Apache Kafka gives them to the next topic of that name otherwise, at its next start."""
    settings = [Setting("retention.ms", "5"), Setting("cleanup.policy", "delete")]
    records, _ = create(Topic("orders", 1, 1, configs=settings), image=with_topic("others"))
    image = applied(records, with_topic("others"))

    records, _ = delete_topics(image, DeleteTopicsRequest(topic_names=["orders"]), version=1)

    assert records == [
        ConfigRecord(TOPIC_RESOURCE, "orders", "retention.ms", None),
        ConfigRecord(TOPIC_RESOURCE, "orders", "cleanup.policy", None),
        RemoveTopicRecord(image.topics.by_name["orders"].topic_id),
    ]
    assert applied(records, image).configs.by_resource == {}


@pytest.mark.parametrize(
    ("names", "ids", "answered", "is_deleted"),
    [
        (1, 1, [("a", 42)], False),
        (1, 2, [("a", 42), (None, 42)], False),
        (2, 1, [("a", 42), ("a", 0)], True),
        (2, 2, [("a", 42), (None, 42)], False),
    ],
)
def test_a_name_whose_id_is_supplied_deletes_nothing(
    names: int, ids: int, answered: list[tuple[str | None, int]], is_deleted: bool
) -> None:
    image = with_topic("a")
    state = DeleteTopicsRequest.DeleteTopicState
    topic_id = image.topics.by_name["a"].topic_id
    request = DeleteTopicsRequest([state("a")] * names + [state(None, topic_id)] * ids)

    records, response = delete_topics(image, request, version=6)

    assert [(one.name, one.error_code) for one in response.responses] == answered
    assert records == ([RemoveTopicRecord(topic_id)] if is_deleted else [])


@pytest.mark.parametrize(("version", "code"), [(1, 42), (3, 73), (6, 73)])
def test_deletion_may_be_turned_off(version: int, code: int) -> None:
    with pytest.raises(KafkaError) as refused:
        delete_topics(ALONE, DeleteTopicsRequest(), version=version, enabled=False)

    assert refused.value.code == code


def grow(
    *wanted: Wanted, image: MetadataImage
) -> tuple[list[Message], list[tuple[int, str | None]]]:
    records, response = create_partitions(
        image, CreatePartitionsRequest(list(wanted)), rng=random.Random(1)
    )
    return records, [(one.error_code, one.error_message) for one in response.results]


def test_a_topic_grows() -> None:
    image = with_topic(partitions=2)

    records, results = grow(Wanted("orders", 4, None), image=image)

    assert results == [(0, None)]
    assert [r.partition_id for r in records if isinstance(r, PartitionRecord)] == [2, 3]
    assert len(applied(records, image).topics.by_name["orders"].partitions) == 4


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (Wanted("orders", 2, None), 37, "Topic already has 2 partition(s)."),
        (
            Wanted("orders", 1, None),
            37,
            "The topic orders currently has 2 partition(s); 1 would not be an increase.",
        ),
        (Wanted("nope", 3, None), 3, None),
        (
            Wanted("orders", 4, [ManualPartition([1])]),
            39,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            Wanted("orders", 3, [ManualPartition([7])]),
            39,
            "The manual partition assignment includes broker 7, but no such broker is registered.",
        ),
    ],
)
def test_growth_that_is_refused(wanted: Wanted, code: int, message: str | None) -> None:
    records, results = grow(wanted, image=with_topic(partitions=2))

    assert records == []
    assert results == [(code, message)]


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("__consumer_offsets", "all groups and their committed offsets"),
        ("__transaction_state", "all transactional ids and what they had open"),
        ("__share_group_state", "what share groups have acknowledged"),
    ],
)
def test_the_coordinators_topics_do_not_grow(name: str, lost: str, validate_only: bool) -> None:
    request = CreatePartitionsRequest([Wanted(name, 51, None)], validate_only=validate_only)

    records, response = create_partitions(
        with_topic(name, partitions=50), request, rng=random.Random(1)
    )

    assert records == []
    assert [(one.error_code, one.error_message) for one in response.results] == [
        (
            37,
            f"The number of partitions of {name} cannot be changed: {lost} would be looked for in"
            " other partitions, and be lost.",
        )
    ]


def test_growth_asked_twice_is_refused() -> None:
    records, results = grow(
        Wanted("orders", 3, None), Wanted("orders", 4, None), image=with_topic()
    )

    assert (records, results) == ([], [(42, "Duplicate topic name.")])


def test_new_ids_are_random_and_nobodys() -> None:
    rng = random.Random(5)
    ids = [new_id(rng) for _ in range(500)]

    assert len(set(ids)) == 500
    assert not any(is_reserved_id(one) or uuid_text(one).startswith("-") for one in ids)
    assert {one[6] >> 4 for one in ids} == {4}
    assert {one[8] >> 6 for one in ids} == {2}


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "a" * 249])
def test_names_that_are_fine(name: str) -> None:
    assert topic_name_fault(name) is None


class ReadOnce(dict[str, TopicImage]):
    """Topics by name, which are walked through once at most."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()


def test_names_are_held_against_all_topics_at_once() -> None:
    image = with_topic("a.b", image=with_topic("plain"))
    topics = ReadOnce(image.topics.by_name)
    image = image._replace(topics=image.topics._replace(by_name=topics))

    _, response = create(Topic("c.d", 1, 1), Topic("a_b", 1, 1), Topic("pl.ain", 1, 1), image=image)

    assert [topic.error_code for topic in response.topics] == [0, 17, 0]
    assert topics.walks == 1


def test_topics_with_settings_of_their_own_differ_in_those_alone() -> None:
    topics = [Topic(f"t{n}", 1, 1, configs=[Setting("retention.ms", str(n))]) for n in range(3)]

    _, response = create(*topics, Topic("plain", 1, 1))

    described = [
        {one.name: (one.value, one.config_source) for one in topic.configs or []}
        for topic in response.topics
    ]
    assert [len(one) for one in described] == [33] * 4
    own = [one.pop("retention.ms") for one in described]
    topic, default = int(ConfigSource.TOPIC), int(ConfigSource.DEFAULT)
    assert own == [("0", topic), ("1", topic), ("2", topic), ("604800000", default)]
    assert described[0] == described[1] == described[2] == described[3]
