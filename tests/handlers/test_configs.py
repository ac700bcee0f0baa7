"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: observed section 3, row by row."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from ottla.config.describe import TopicDescriber
from ottla.config.types import ConfigEntry
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
)
from tests.handlers.rooms import NODE_ID, House

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

Described = DescribeConfigsResponse.DescribeConfigsResult
Change = tuple[str, int, str | None]

TOPIC_KEY_COUNT = 33
BROKER_KEY_COUNT = 340
NO_SUCH_NAME = (
    "Topic name is invalid: 'b c' contains one or more characters other than "
    "ASCII alphanumerics, '.', '_' and '-'"
)


async def describe(
    house: House,
    kind: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int = 4,
    synonyms: bool = False,
    docs: bool = False,
) -> Described:
    resource = DescribeConfigsRequest.DescribeConfigsResource(kind, name, keys)
    answer = await house.ask(DescribeConfigsRequest([resource], synonyms, docs), version)
    described: Described = answer.results[0]
    assert len(answer.results) == 1
    assert (described.resource_type, described.resource_name) == (kind, name)
    return described


async def value(house: House, kind: int, name: str, key: str) -> tuple[str | None, int]:
    (config,) = (await describe(house, kind, name, [key])).configs
    return config.value, config.config_source


async def change(
    house: House, kind: int, name: str, *changes: Change, validate: bool = False
) -> tuple[int, str | None]:
    """(error, message) of an incremental change of one resource."""
    configs = [IncrementalAlterConfigsRequest.AlterableConfig(*one) for one in changes]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(kind, name, configs)
    answer = await house.ask(IncrementalAlterConfigsRequest([resource], validate), 1)
    (result,) = answer.responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, result.error_message


async def replace(
    house: House, kind: int, name: str, *configs: tuple[str, str | None], validate: bool = False
) -> tuple[int, str | None]:
    """(error, message) of AlterConfigs of one resource: all its settings at once."""
    wanted = [AlterConfigsRequest.AlterableConfig(*one) for one in configs]
    resource = AlterConfigsRequest.AlterConfigsResource(kind, name, wanted)
    answer = await house.ask(AlterConfigsRequest([resource], validate), 2)
    (result,) = answer.responses
    return result.error_code, result.error_message


OK = (ErrorCode.NONE, None)


@pytest.fixture
async def stocked(house: House) -> House:
    await house.create("t")
    return house


# DescribeConfigs


@pytest.mark.parametrize("version", [1, 2, 3, 4])
async def test_a_topic_has_all_its_settings(stocked: House, version: int) -> None:
    described = await describe(stocked, TOPIC, "t", version=version)

    assert described.error_code == 0
    assert len(described.configs) == TOPIC_KEY_COUNT
    by_name = {one.name: one for one in described.configs}
    assert by_name["retention.ms"].value == "604800000"
    assert by_name["retention.ms"].config_source == 5
    assert by_name["retention.ms"].config_type == (5 if version >= 3 else 0)
    assert not by_name["retention.ms"].read_only
    assert by_name["retention.ms"].synonyms == []


async def test_synonyms_and_sentences_come_when_asked(stocked: House) -> None:
    assert await change(stocked, TOPIC, "t", ("retention.ms", SET, "5000")) == OK

    described = await describe(stocked, TOPIC, "t", ["retention.ms"], synonyms=True, docs=True)
    plain = await describe(stocked, TOPIC, "t", ["retention.ms"])

    (config,) = described.configs
    first = config.synonyms[0]
    assert (first.name, first.value, first.source) == (
        "retention.ms",
        "5000",
        1,
    )
    assert config.documentation
    assert plain.configs[0].synonyms == []
    assert plain.configs[0].documentation is None


async def test_unknown_keys_are_left_out_and_no_keys_are_all(stocked: House) -> None:
    some = await describe(stocked, TOPIC, "t", ["retention.ms", "nope"])
    everything = await describe(stocked, TOPIC, "t", [])

    assert [one.name for one in some.configs] == ["retention.ms"]
    assert len(everything.configs) == TOPIC_KEY_COUNT


async def test_a_broker_has_all_of_kafkas_settings(stocked: House) -> None:
    described = await describe(stocked, BROKER, str(NODE_ID))

    assert described.error_code == 0
    assert len(described.configs) == BROKER_KEY_COUNT
    by_name = {one.name: one for one in described.configs}
    assert by_name["num.partitions"].value == "1"
    assert by_name["num.partitions"].read_only
    assert by_name["log.flush.interval.messages"].value == "1"
    assert not by_name["log.retention.ms"].read_only


async def test_the_settings_for_all_brokers_are_those_made_at_run_time(stocked: House) -> None:
    assert await change(stocked, BROKER, "", ("log.retention.ms", SET, "7000")) == OK

    described = await describe(stocked, BROKER, "")

    shown = {one.name: (one.value, one.config_source) for one in described.configs}
    assert shown == {"log.retention.ms": ("7000", 3)}


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (TOPIC, "b c", ErrorCode.INVALID_TOPIC_EXCEPTION, NO_SUCH_NAME),
        (
            BROKER,
            "7",
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1 or empty string, but received 7",
        ),
        (
            BROKER,
            "abc",
            ErrorCode.INVALID_REQUEST,
            "Broker id must be an integer, but it is: abc",
        ),
        (LOGGER, "", ErrorCode.INVALID_REQUEST, "Broker id must not be empty"),
        (
            LOGGER,
            "2",
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1 but received 2",
        ),
        (GROUP, "", ErrorCode.INVALID_REQUEST, "Group name must not be empty"),
        (
            METRICS,
            "",
            ErrorCode.INVALID_REQUEST,
            "Client metrics subscription name must not be empty",
        ),
    ],
)
async def test_what_cannot_be_described(
    stocked: House, kind: int, name: str, code: ErrorCode, message: str
) -> None:
    described = await describe(stocked, kind, name)

    assert (described.error_code, described.error_message) == (code, message)
    assert described.configs == []


async def test_the_logger_has_its_level(stocked: House) -> None:
    described = await describe(stocked, LOGGER, str(NODE_ID))

    assert [(one.name, one.value, one.config_source) for one in described.configs] == [
        ("ottla", "INFO", 6)
    ]


@pytest.mark.parametrize("kind", [0, 1, 3, 99, -1])
async def test_an_unknown_kind_refuses_the_whole_request(stocked: House, kind: int) -> None:
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(kind, "x", None),
        DescribeConfigsRequest.DescribeConfigsResource(TOPIC, "t", None),
    ]

    answer = await stocked.ask(DescribeConfigsRequest(resources), 4)

    assert [one.error_code for one in answer.results] == [ErrorCode.INVALID_REQUEST] * 2


# IncrementalAlterConfigs


async def test_a_change_takes_effect_at_once(stocked: House) -> None:
    assert await change(stocked, TOPIC, "t", ("retention.ms", SET, "5000")) == OK

    assert await value(stocked, TOPIC, "t", "retention.ms") == ("5000", 1)
    partition = stocked.rooms.replicas.get("t", 0)
    assert partition is not None
    assert partition.log.config.retention_ms == 5000
    assert await change(stocked, TOPIC, "t", ("retention.ms", DELETE, None)) == OK
    assert await value(stocked, TOPIC, "t", "retention.ms") == ("604800000", 5)


async def test_a_default_of_all_brokers_reaches_the_topics(stocked: House) -> None:
    assert await change(stocked, BROKER, "", ("log.retention.ms", SET, "7000")) == OK

    partition = stocked.rooms.replicas.get("t", 0)
    assert partition is not None
    assert partition.log.config.retention_ms == 7000
    assert await value(stocked, TOPIC, "t", "retention.ms") == ("7000", 3)
    assert await value(stocked, BROKER, str(NODE_ID), "log.retention.ms") == ("7000", 3)


async def test_one_broker_outranks_all(stocked: House) -> None:
    await change(stocked, BROKER, "", ("log.retention.ms", SET, "7000"))
    assert await change(stocked, BROKER, str(NODE_ID), ("log.retention.ms", SET, "8000")) == OK

    assert await value(stocked, BROKER, str(NODE_ID), "log.retention.ms") == ("8000", 2)


async def test_lists_grow_and_shrink(stocked: House) -> None:
    for operation, text, expected in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
    ):
        assert await change(stocked, TOPIC, "t", ("cleanup.policy", operation, text)) == OK
        assert await value(stocked, TOPIC, "t", "cleanup.policy") == (expected, 1)


async def test_validating_changes_nothing(stocked: House) -> None:
    assert await change(stocked, TOPIC, "t", ("retention.ms", SET, "5000"), validate=True) == OK
    assert await replace(stocked, TOPIC, "t", ("retention.ms", "5000"), validate=True) == OK

    assert await value(stocked, TOPIC, "t", "retention.ms") == ("604800000", 5)


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code", "message"),
    [
        (
            TOPIC,
            "t",
            [("nope", SET, "1")],
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: nope",
        ),
        (
            TOPIC,
            "t",
            [("retention.ms", SET, "x")],
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            TOPIC,
            "t",
            [("retention.ms", APPEND, "5")],
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            TOPIC,
            "t",
            [("cleanup.policy", APPEND, "foo")],
            ErrorCode.INVALID_CONFIG,
            "Invalid value foo for configuration cleanup.policy: String must be one of: "
            "compact, delete",
        ),
        (
            TOPIC,
            "nope",
            [("retention.ms", SET, "5")],
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'nope' does not exist.",
        ),
        (
            TOPIC,
            "b c",
            [("retention.ms", SET, "5")],
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            NO_SUCH_NAME,
        ),
        (
            TOPIC,
            "t",
            [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)],
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (
            TOPIC,
            "t",
            [("retention.ms", SET, None)],
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (
            BROKER,
            "1",
            [("node.id", SET, "5")],
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [node.id]",
        ),
        (
            BROKER,
            "",
            [("num.partitions", SET, "5")],
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [num.partitions]",
        ),
        (
            BROKER,
            "",
            [("listeners", SET, "PLAINTEXT://localhost:9092")],
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "[listeners]",
        ),
        (
            BROKER,
            "",
            [("log.retention.ms", SET, "x")],
            ErrorCode.INVALID_REQUEST,
            "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
        ),
        (
            BROKER,
            "7",
            [("log.retention.ms", SET, "1")],
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1, but received 7",
        ),
        (
            BROKER,
            "abc",
            [("log.retention.ms", SET, "1")],
            ErrorCode.INVALID_REQUEST,
            "Node id must be an integer, but it is: abc",
        ),
        (7, "x", [("a", SET, "1")], ErrorCode.INVALID_REQUEST, "Unknown resource type 7"),
        (
            LOGGER,
            "1",
            [("ottla", SET, "DEBUG")],
            ErrorCode.INVALID_REQUEST,
            "Loggers are read-only: start the broker with another ottla.log.level.",
        ),
    ],
)
async def test_odd_changes_are_refused(
    stocked: House, kind: int, name: str, changes: list[Change], code: ErrorCode, message: str
) -> None:
    before = stocked.rooms.image.configs

    assert await change(stocked, kind, name, *changes) == (code, message)
    assert stocked.rooms.image.configs == before


async def test_an_unknown_operation_is_refused(stocked: House) -> None:
    code, _ = await change(stocked, TOPIC, "t", ("retention.ms", 9, "1"))

    assert code == ErrorCode.INVALID_REQUEST  # Kafka: UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("name", ["", "1"])
async def test_a_key_that_no_broker_knows_is_kept(stocked: House, name: str) -> None:
    assert await change(stocked, BROKER, name, ("bogus.key", SET, "1")) == OK
    assert stocked.rooms.image.configs.get(BROKER, name)["bogus.key"] == "1"


async def test_each_resource_stands_once(stocked: House) -> None:
    configs = [IncrementalAlterConfigsRequest.AlterableConfig("retention.ms", SET, "5")]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(TOPIC, "t", configs)

    answer = await stocked.ask(IncrementalAlterConfigsRequest([resource, resource]), 1)

    assert {(one.resource_name, one.error_code, one.error_message) for one in answer.responses} == {
        ("t", ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    }


async def test_one_bad_resource_does_not_hold_the_others(stocked: House) -> None:
    await stocked.create("u")
    good = IncrementalAlterConfigsRequest.AlterableConfig("retention.ms", SET, "5000")
    bad = IncrementalAlterConfigsRequest.AlterableConfig("flush.ms", SET, "x")
    resources = [
        IncrementalAlterConfigsRequest.AlterConfigsResource(TOPIC, "t", [good]),
        IncrementalAlterConfigsRequest.AlterConfigsResource(TOPIC, "u", [bad]),
    ]

    answer = await stocked.ask(IncrementalAlterConfigsRequest(resources), 1)

    assert {one.resource_name: one.error_code for one in answer.responses} == {
        "t": ErrorCode.NONE,
        "u": ErrorCode.INVALID_CONFIG,
    }
    assert await value(stocked, TOPIC, "t", "retention.ms") == ("5000", 1)


async def test_alter_sets_all_settings_of_a_topic(stocked: House) -> None:
    await change(stocked, TOPIC, "t", ("flush.ms", SET, "1000"))

    assert await replace(stocked, TOPIC, "t", ("retention.ms", "7000")) == OK

    assert await value(stocked, TOPIC, "t", "retention.ms") == ("7000", 1)
    assert (await value(stocked, TOPIC, "t", "flush.ms"))[1] == 5
    assert await replace(stocked, TOPIC, "t") == OK
    assert await value(stocked, TOPIC, "t", "retention.ms") == ("604800000", 5)


@pytest.mark.parametrize(
    ("kind", "name", "configs", "code", "message"),
    [
        (
            TOPIC,
            "t",
            [("nope", "1")],
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: nope",
        ),
        (
            TOPIC,
            "t",
            [("retention.ms", None)],
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (
            TOPIC,
            "nope",
            [],
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'nope' does not exist.",
        ),
        (
            TOPIC,
            "t",
            [("retention.ms", "1"), ("retention.ms", "2")],
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (
            BROKER,
            "1",
            [("node.id", "3")],
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [node.id]",
        ),
        (7, "a", [], ErrorCode.INVALID_REQUEST, "Unknown resource type 7"),
        (
            LOGGER,
            "1",
            [],
            ErrorCode.INVALID_REQUEST,
            "Loggers are read-only: start the broker with another ottla.log.level.",
        ),
    ],
)
async def test_odd_replacements_are_refused(
    stocked: House,
    kind: int,
    name: str,
    configs: list[tuple[str, str | None]],
    code: ErrorCode,
    message: str,
) -> None:
    before = stocked.rooms.image.configs

    assert await replace(stocked, kind, name, *configs) == (code, message)
    assert stocked.rooms.image.configs == before


async def test_a_resource_is_described_once_for_the_same_keys() -> None:
    async with House() as house:
        await house.create("t")
        resource = DescribeConfigsRequest.DescribeConfigsResource
        asked = [resource(TOPIC, "t", None), resource(TOPIC, "t", ["retention.ms"])] * 3
        answer = await house.ask(DescribeConfigsRequest(asked), 4)

    sizes = [len(result.configs) for result in answer.results]
    assert len(sizes) == 2
    assert sizes[1] == 1 < sizes[0]


async def test_what_is_set_alike_is_described_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[str] = []

    def counted(self: TopicDescriber, own: Mapping[str, str | None]) -> list[ConfigEntry]:
        described.append(own.get("retention.ms") or "unset")
        return describe_as_ever(self, own)

    describe_as_ever = TopicDescriber.describe
    monkeypatch.setattr(TopicDescriber, "describe", counted)
    await house.create("a", configs={"retention.ms": "1"})
    for name in ("b", "c", "d"):
        await house.create(name)
    described.clear()
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = [
        *(resource(TOPIC, name) for name in ("a", "b", "c")),
        resource(TOPIC, "d", ["retention.ms"]),
        resource(TOPIC, "a", ["retention.ms"]),
        *(resource(BROKER, name) for name in ("1", "01", "")),
        *(resource(GROUP, name) for name in ("g", "h")),
    ]

    answer = await house.ask(DescribeConfigsRequest(asked), 4)

    a, b, c, d, own, one, again, defaults, g, h = (result.configs for result in answer.results)
    assert b == c
    assert one == again
    assert g == h
    assert g
    assert [len(configs) for configs in (a, b, one, defaults)] == [33, 33, BROKER_KEY_COUNT, 0]
    assert [(config.name, config.value) for config in d] == [("retention.ms", "604800000")]
    assert [(config.name, config.value) for config in own] == [("retention.ms", "1")]
    assert {config.name: config.value for config in a}["retention.ms"] == "1"
    # Each for all keys, and for one.
    assert sorted(described) == ["1", "1", "unset", "unset"]


async def test_others_are_served_while_many_are_described(house: House) -> None:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = [resource(GROUP, f"g{number}") for number in range(1_000)]
    turns = 0
    answering = asyncio.ensure_future(house.ask(DescribeConfigsRequest(asked), 4))
    while not answering.done():
        turns += 1
        await asyncio.sleep(0)

    assert len(answering.result().results) == 1_000
    assert turns > 40
