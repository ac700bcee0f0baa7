"""Settings change as Apache Kafka 4.3.1 was seen to change them."""

from __future__ import annotations

import pytest

from ottla.broker.controller.configs import (
    Operation,
    alter_configs,
    incremental_alter_configs,
)
from ottla.broker.metadata.image import MetadataImage
from ottla.protocol.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from ottla.protocol.messages.metadata_records import (
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    TopicRecord,
)
from ottla.protocol.schema import Message
from ottla.protocol.wire import STRING_SIZE_MAX
from tests.controller.clusters import applied, cluster, config

Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
Item = IncrementalAlterConfigsRequest.AlterableConfig
WholeResource = AlterConfigsRequest.AlterConfigsResource
WholeItem = AlterConfigsRequest.AlterableConfig
Outcome = tuple[int, str | None]

TOPIC, BROKER, CLIENT_METRICS = 2, 4, 16
SET, DELETE, APPEND, SUBTRACT = map(int, Operation)

IMAGE = applied(
    [TopicRecord("orders", bytes(15) + b"\xaa"), ConfigRecord(TOPIC, "orders", "flush.ms", "9")],
    cluster(1),
)


def alter(
    *resources: Resource, image: MetadataImage = IMAGE, validate_only: bool = False
) -> tuple[list[Message], list[Outcome]]:
    records, response = incremental_alter_configs(
        image,
        IncrementalAlterConfigsRequest(list(resources), validate_only),
        config=config(),
    )
    return records, [(one.error_code, one.error_message) for one in response.responses]


def test_single_settings_are_set_and_deleted() -> None:
    records, outcomes = alter(
        Resource(
            TOPIC,
            "orders",
            [Item("retention.ms", SET, "1000"), Item("flush.ms", DELETE, None)],
        )
    )

    assert outcomes == [(0, None)]
    assert applied(records, IMAGE).configs.get(TOPIC, "orders") == {"retention.ms": "1000"}


def test_a_topics_setting_that_stays_is_not_written() -> None:
    records, outcomes = alter(Resource(TOPIC, "orders", [Item("flush.ms", SET, "9")]))

    assert (records, outcomes) == ([], [(0, None)])


def test_a_brokers_setting_is_written_though_it_stays() -> None:
    resource = Resource(BROKER, "", [Item("log.cleaner.threads", SET, "2")])
    image = applied([ConfigRecord(BROKER, "", "log.cleaner.threads", "2")], IMAGE)

    records, _ = alter(resource, image=image)

    assert records == [ConfigRecord(BROKER, "", "log.cleaner.threads", "2")]


@pytest.mark.parametrize(
    ("items", "value"),
    [
        ([Item("cleanup.policy", APPEND, "compact")], "delete,compact"),
        ([Item("cleanup.policy", APPEND, "delete")], "delete"),
        ([Item("cleanup.policy", APPEND, "compact,")], "delete,compact"),
        ([Item("cleanup.policy", APPEND, ",,")], "delete"),
        (
            [Item("cleanup.policy", SET, "compact,delete")],
            "compact,delete",
        ),
    ],
)
def test_lists_grow_from_what_holds_by_default(items: list[Item], value: str) -> None:
    records, outcomes = alter(Resource(TOPIC, "orders", items))

    assert outcomes == [(0, None)]
    assert records == [ConfigRecord(TOPIC, "orders", "cleanup.policy", value)]


def test_lists_shrink() -> None:
    image = applied([ConfigRecord(TOPIC, "orders", "cleanup.policy", "compact,delete")], IMAGE)

    records, _ = alter(
        Resource(TOPIC, "orders", [Item("cleanup.policy", SUBTRACT, "delete")]), image=image
    )

    assert records == [ConfigRecord(TOPIC, "orders", "cleanup.policy", "compact")]


def test_nothing_is_added_to_a_list_that_may_have_empty_parts() -> None:
    key = "leader.replication.throttled.replicas"
    image = applied([ConfigRecord(TOPIC, "orders", key, "1:1")], IMAGE)

    _, outcomes = alter(Resource(TOPIC, "orders", [Item(key, APPEND, "")]), image=image)

    assert outcomes == [(0, None)]


@pytest.mark.parametrize(("added", "code"), [("2:1", 0), ("22:1", 40)])
def test_a_list_grows_to_as_much_as_a_string_holds(added: str, code: int) -> None:
    """Each request holds less, and what no record holds cannot be written."""
    key = "leader.replication.throttled.replicas"
    image = applied(
        [ConfigRecord(TOPIC, "orders", key, "1:".ljust(STRING_SIZE_MAX - 4, "1"))], IMAGE
    )

    records, [outcome] = alter(Resource(TOPIC, "orders", [Item(key, APPEND, added)]), image=image)

    assert outcome[0] == code
    assert bool(records) == (code == 0)


REFUSED = [
    (Resource(TOPIC, "orders", [Item("nope", SET, "1")]), 40, "Unknown topic config name: nope"),
    (Resource(TOPIC, "orders", [Item("retention.ms", SET, "x")]), 40, "retention.ms"),
    (
        Resource(TOPIC, "orders", [Item("retention.ms", APPEND, "1")]),
        40,
        "Can't APPEND to key retention.ms because its type is not LIST.",
    ),
    (Resource(TOPIC, "other", [Item("flush.ms", SET, "1")]), 3, "The topic 'other' does not exist"),
    (Resource(TOPIC, "a b", [Item("flush.ms", SET, "1")]), 17, "Topic name is invalid"),
    (Resource(TOPIC, "a b", [Item("flush.ms", APPEND, "1")]), 40, "its type is not LIST."),
    (Resource(CLIENT_METRICS, "", [Item("metrics", APPEND, "*")]), 40, "its type is not LIST."),
    (Resource(TOPIC, "", []), 42, "Default topic resources are not allowed."),
    (
        Resource(TOPIC, "orders", [Item("flush.ms", SET, "1"), Item("flush.ms", SET, "2")]),
        42,
        "Error due to duplicate config keys",
    ),
    (
        Resource(TOPIC, "orders", [Item("flush.ms", SET, None)]),
        42,
        "Null value not supported for : flush.ms",
    ),
    (Resource(TOPIC, "orders", [Item("flush.ms", 9, "1")]), 42, "Unknown operation type 9"),
    (
        Resource(BROKER, "1", [Item("node.id", SET, "2")]),
        42,
        "Cannot update these configs dynamically: [node.id]",
    ),
    (Resource(BROKER, "7", []), 42, "Unexpected broker id, expected 1, but received 7"),
    (Resource(BROKER, "abc", []), 42, "Node id must be an integer, but it is: abc"),
    *(
        (Resource(BROKER, name, []), 42, f"Node id must be an integer, but it is: {name}")
        for name in (" 1", "1_0", "--1", "9" * 5000, "2147483648")
    ),
    (Resource(BROKER, "+7", []), 42, "Unexpected broker id, expected 1, but received +7"),
    (Resource(7, "x", []), 42, "Unknown resource type 7"),
]


@pytest.mark.parametrize(("resource", "code", "reason"), REFUSED)
def test_changes_that_are_refused(resource: Resource, code: int, reason: str) -> None:
    records, ((error_code, message),) = alter(resource)

    assert records == []
    assert error_code == code
    assert message is not None
    assert reason in message


@pytest.mark.parametrize(
    ("key", "operation", "value", "code"),
    [
        ("nope", SET, "1", 40),
        ("retention.ms", SET, "x", 40),
        ("retention.ms", APPEND, "1", 40),
        ("retention.ms", SET, "1", 3),
        ("retention.ms", DELETE, None, 3),
    ],
)
def test_a_topic_that_is_unknown_is_told_what_is_wrong_with_its_settings(
    key: str, operation: int, value: str | None, code: int
) -> None:
    records, outcomes = alter(Resource(TOPIC, "other", [Item(key, operation, value)]))

    assert records == []
    assert [one for one, _ in outcomes] == [code]


@pytest.mark.parametrize(("key", "code"), [("nope", 40), ("retention.ms", 3)])
def test_the_older_request_looks_at_the_settings_of_an_unknown_topic(key: str, code: int) -> None:
    whole = WholeResource(TOPIC, "other", [WholeItem(key, "1")])

    records, response = alter_configs(IMAGE, AlterConfigsRequest([whole]), config=config())

    assert records == []
    assert [one.error_code for one in response.responses] == [code]


@pytest.mark.parametrize("metrics", ["a,,b", "a,", ",a", ","])
def test_a_subscription_has_no_empty_prefix(metrics: str) -> None:
    whole = WholeResource(CLIENT_METRICS, "mine", [WholeItem("metrics", metrics)])

    records, outcomes = alter(Resource(CLIENT_METRICS, "mine", [Item("metrics", SET, metrics)]))
    replaced, response = alter_configs(IMAGE, AlterConfigsRequest([whole]), config=config())

    assert records == replaced == []
    assert outcomes == [(40, "Configuration 'metrics' values must not be empty.")]
    assert [(one.error_code, one.error_message) for one in response.responses] == outcomes


def test_a_subscription_may_have_no_prefix_at_all() -> None:
    _, outcomes = alter(Resource(CLIENT_METRICS, "mine", [Item("metrics", SET, "")]))

    assert outcomes == [(0, None)]


def test_a_refused_resource_leaves_the_others_alone() -> None:
    records, outcomes = alter(
        Resource(TOPIC, "orders", [Item("nope", SET, "1")]),
        Resource(BROKER, "1", [Item("log.cleaner.threads", SET, "2")]),
    )

    assert [code for code, _ in outcomes] == [40, 0]
    assert len(records) == 1


def test_a_resource_asked_twice_is_refused() -> None:
    records, outcomes = alter(Resource(TOPIC, "orders", []), Resource(TOPIC, "orders", []))

    assert records == []
    assert outcomes == [(42, "Each resource must appear at most once.")]


def test_a_name_that_no_broker_knows_may_be_a_plugins() -> None:
    records, outcomes = alter(Resource(BROKER, "", [Item("my.plugin.key", SET, "1")]))

    assert outcomes == [(0, None)]
    assert records == [ConfigRecord(BROKER, "", "my.plugin.key", "1")]


def test_validation_alone_writes_nothing() -> None:
    records, outcomes = alter(
        Resource(TOPIC, "orders", [Item("flush.ms", SET, "1")]), validate_only=True
    )

    assert (records, outcomes) == ([], [(0, None)])


WITH_ELR = applied(
    [
        FeatureLevelRecord("eligible.leader.replicas.version", 1),
        ConfigRecord(BROKER, "", "min.insync.replicas", "1"),
    ],
    IMAGE,
)


def test_with_elr_the_clusters_minimum_stays() -> None:
    _, outcomes = alter(
        Resource(BROKER, "", [Item("min.insync.replicas", DELETE, None)]),
        Resource(BROKER, "1", [Item("min.insync.replicas", SET, "2")]),
        image=WITH_ELR,
    )

    assert [code for code, _ in outcomes] == [40, 40]


def test_with_elr_a_new_minimum_clears_who_is_eligible() -> None:
    records, _ = alter(
        Resource(TOPIC, "orders", [Item("min.insync.replicas", SET, "2")]), image=WITH_ELR
    )

    assert records == [
        ConfigRecord(TOPIC, "orders", "min.insync.replicas", "2"),
        ClearElrRecord("orders"),
    ]


def test_the_older_request_replaces_all_settings() -> None:
    request = AlterConfigsRequest(
        [WholeResource(TOPIC, "orders", [WholeItem("retention.ms", "5")])]
    )

    records, response = alter_configs(IMAGE, request, config=config())

    assert response.responses[0].error_code == 0
    assert applied(records, IMAGE).configs.get(TOPIC, "orders") == {"retention.ms": "5"}


def test_each_of_many_is_checked_by_its_kind_and_its_own_settings() -> None:
    """What is found valid once is not checked again; it must be the same, of the same kind."""
    group = 32
    records, outcomes = alter(
        Resource(group, "g1", [Item("consumer.session.timeout.ms", SET, "50000")]),
        Resource(group, "g2", [Item("consumer.session.timeout.ms", SET, "50000")]),
        Resource(group, "g3", [Item("consumer.session.timeout.ms", SET, "1")]),
        Resource(TOPIC, "orders", [Item("consumer.session.timeout.ms", SET, "50000")]),
    )

    assert [code for code, _ in outcomes] == [0, 0, 40, 40]
    assert [record.resource_name for record in records if isinstance(record, ConfigRecord)] == [
        "g1",
        "g2",
    ]


def test_parts_of_a_list_are_taken_out_and_put_in_by_name() -> None:
    both = Resource(TOPIC, "orders", [Item("cleanup.policy", APPEND, "compact,delete")])
    records, outcomes = alter(both)
    image = applied(records, IMAGE)
    assert (outcomes, image.configs.get(TOPIC, "orders")["cleanup.policy"]) == (
        [(0, None)],
        "delete,compact",
    )

    records, outcomes = alter(
        Resource(TOPIC, "orders", [Item("cleanup.policy", SUBTRACT, "x,delete,x")]), image=image
    )

    assert outcomes == [(0, None)]
    assert applied(records, image).configs.get(TOPIC, "orders")["cleanup.policy"] == "compact"
