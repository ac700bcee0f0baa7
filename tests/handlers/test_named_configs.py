"""Settings of groups and subscriptions to client metrics, answered as Apache Kafka 4.3.1 does."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from tests.handlers.rooms import House

METRICS, GROUP = 16, 32
SET, DELETE, APPEND = 0, 1, 2
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
RESET = "share.auto.offset.reset"
Item = IncrementalAlterConfigsRequest.AlterableConfig
Synonyms = list[tuple[str, str | None, int]]


async def _change(
    house: House, kind: int, name: str, *items: tuple[str, int, str | None]
) -> tuple[int, str | None]:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        kind, name, [Item(*item) for item in items]
    )
    answer = await house.ask(IncrementalAlterConfigsRequest([resource]), 1)
    (one,) = answer.responses
    return one.error_code, one.error_message


async def _described(house: House, kind: int, name: str) -> dict[str, tuple[str | None, Synonyms]]:
    """Value and synonyms by name; INVALID_REQUEST's message alone under "refused"."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(kind, name, None)
    answer = await house.ask(DescribeConfigsRequest([resource], include_synonyms=True), 4)
    (result,) = answer.results
    if result.error_code:
        assert result.error_code == ErrorCode.INVALID_REQUEST
        return {"refused": (result.error_message, [])}
    return {
        one.name: (one.value, [(each.name, each.value, each.source) for each in one.synonyms])
        for one in result.configs
    }


async def test_any_group_is_described_by_its_defaults(house: House) -> None:
    found = await _described(house, GROUP, "nobody")

    assert len(found) == 17
    assert found[SESSION] == ("45000", [("group.consumer.session.timeout.ms", "45000", 5)])
    assert found[RESET] == ("latest", [(RESET, "latest", 5)])
    refused = await _described(house, GROUP, "")
    assert refused["refused"][0] == "Group name must not be empty"


async def test_the_brokers_setting_is_a_groups_default() -> None:
    async with House({"group.consumer.heartbeat.interval.ms": "7000"}) as house:
        found = await _described(house, GROUP, "g")

    name = "group.consumer.heartbeat.interval.ms"
    assert found[HEARTBEAT] == ("7000", [(name, "7000", 4), (name, "5000", 5)])


async def test_a_group_is_set_and_reset(house: House) -> None:
    assert await _change(house, GROUP, "g", (SESSION, SET, "50000"), (RESET, SET, "earliest")) == (
        0,
        None,
    )
    found = await _described(house, GROUP, "g")
    assert found[SESSION] == (
        "50000",
        [(SESSION, "50000", 8), ("group.consumer.session.timeout.ms", "45000", 5)],
    )
    listed = await house.ask(ListConfigResourcesRequest([GROUP]), 1)
    assert [one.resource_name for one in listed.config_resources] == ["g"]

    whole = AlterConfigsRequest.AlterConfigsResource(
        GROUP, "g", [AlterConfigsRequest.AlterableConfig(RESET, "by_duration:PT1H30M")]
    )
    answer = await house.ask(AlterConfigsRequest([whole]), 2)
    assert answer.responses[0].error_code == 0
    async with house.restarted() as again:
        kept = await _described(again, GROUP, "g")
        assert kept[SESSION][0] == "45000"
        assert kept[RESET][0] == "by_duration:PT1H30M"
        assert await _change(again, GROUP, "g", (RESET, DELETE, None)) == (0, None)
        listed = await again.ask(ListConfigResourcesRequest([GROUP]), 1)
        assert listed.config_resources == []


REFUSED_FOR_A_GROUP = [
    ("bogus", "1", "Unknown group config name: bogus"),
    (SESSION, "x", f"Invalid value x for configuration {SESSION}: Not a number of type INT"),
    (
        SESSION,
        "1",
        f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms",
    ),
    (
        SESSION,
        "100000",
        f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms",
    ),
    (
        "consumer.assignment.interval.ms",
        "-1",
        "Invalid value -1 for configuration consumer.assignment.interval.ms: Value must be at"
        " least 0",
    ),
    (
        "streams.num.standby.replicas",
        "9",
        "streams.num.standby.replicas must be less than or equal to"
        " group.streams.max.standby.replicas",
    ),
    (
        "share.isolation.level",
        "READ",
        "Invalid value READ for configuration share.isolation.level: String must be one of:"
        " read_committed, read_uncommitted",
    ),
]


@pytest.mark.parametrize(("name", "text", "says"), REFUSED_FOR_A_GROUP)
async def test_what_a_group_cannot_have(house: House, name: str, text: str, says: str) -> None:
    assert await _change(house, GROUP, "g", (name, SET, text)) == (ErrorCode.INVALID_CONFIG, says)


@pytest.mark.parametrize(
    "text",
    [
        "none",
        "by_duration:",
        "by_duration:xx",
        "by_duration:-PT1H",
        "by_duration:P106751991167301D",  # of seconds, more than java.time.Duration has
        "by_duration:PT99999999999999999999S",
    ],
)
async def test_where_a_share_group_cannot_begin(house: House, text: str) -> None:
    code, message = await _change(house, GROUP, "g", (RESET, SET, text))

    assert code == ErrorCode.INVALID_CONFIG
    assert "The value must be either 'earliest', 'latest' or of the format" in (message or "")


async def test_a_subscription_is_set_and_described(house: House) -> None:
    assert await _described(house, METRICS, "m") == {
        "interval.ms": ("300000", []),
        "match": ("", []),
        "metrics": ("", []),
    }
    items = (("interval.ms", SET, "1000"), ("match", SET, "client_id=a.*,client_source_port=9"))

    assert await _change(house, METRICS, "m", *items) == (0, None)

    found = await _described(house, METRICS, "m")
    assert found["interval.ms"] == ("1000", [("interval.ms", "1000", 7)])
    assert found["match"][0] == "client_id=a.*,client_source_port=9"
    listed = await house.ask(ListConfigResourcesRequest(), 0)
    assert [one.resource_name for one in listed.config_resources] == ["m"]


REFUSED_FOR_A_SUBSCRIPTION = [
    ("interval.ms", SET, "99", ErrorCode.INVALID_REQUEST, "between 100 and 3600000 (1 hour)"),
    ("interval.ms", SET, "3600001", ErrorCode.INVALID_REQUEST, "Invalid value 3600001 for"),
    ("interval.ms", SET, "x", ErrorCode.INVALID_CONFIG, "Not a number of type INT"),
    ("bogus", SET, "x", ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: bogus"),
    ("match", SET, "foo=bar", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: foo=bar"),
    ("match", SET, "client_id", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
    ("match", SET, "client_id=", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
    ("match", SET, "client_id=a=b", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
    ("match", SET, "client_id=[", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
    ("metrics", APPEND, "zz", ErrorCode.INVALID_CONFIG, "Can't APPEND to key metrics because"),
]


@pytest.mark.parametrize(("name", "operation", "text", "code", "says"), REFUSED_FOR_A_SUBSCRIPTION)
async def test_what_a_subscription_cannot_have(
    house: House, name: str, operation: int, text: str, code: ErrorCode, says: str
) -> None:
    answered, message = await _change(house, METRICS, "m", (name, operation, text))

    assert answered == code
    assert says in (message or "")


async def test_neither_has_a_default_for_all(house: House) -> None:
    assert await _change(house, GROUP, "", (SESSION, SET, "50000")) == (
        ErrorCode.INVALID_REQUEST,
        "Default group resources are not allowed.",
    )
    assert await _change(house, METRICS, "", ("interval.ms", SET, "1000")) == (
        ErrorCode.INVALID_REQUEST,
        "Subscription name can't be empty",
    )
