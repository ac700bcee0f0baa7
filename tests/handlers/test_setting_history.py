"""Who changed which setting, from what to what, as the log and /events tell it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.broker.controller.setting_changes import SHOWN_CHARS_MAX
from ottla.broker.handlers.telling import TOLD_PER_TURN
from ottla.broker.telemetry.shown import CHARS_MAX
from ottla.config.cautions import NO_EFFECT
from ottla.protocol.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from ottla.protocol.messages.features import UpdateFeaturesRequest
from ottla.protocol.messages.quotas import AlterClientQuotasRequest
from ottla.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from ottla.protocol.schema import Message
from tests.handlers.rooms import LISTENER, NODE_ID, START_MS, House

TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32
SET, DELETE = 0, 1
UPGRADE = 1
Item = IncrementalAlterConfigsRequest.AlterableConfig
Setting = CreateTopicsRequest.CreatableTopicConfig
WHO = {
    "client_id": "operator",
    "principal": "User:ANONYMOUS",
    "address": "127.0.0.1:50000",
}


@pytest.fixture(autouse=True)
def _client(house: House) -> None:
    house.session.client_id = "operator"


async def _change(
    house: House, kind: int, name: str, *items: Item, validate_only: bool = False
) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(kind, name, list(items))
    request = IncrementalAlterConfigsRequest([resource], validate_only)
    answer = await house.ask(request, 1)
    assert [one.error_code for one in answer.responses] == [0], answer.responses[0].error_message


def _told(house: House) -> list[dict[str, Any]]:
    return house.events.named("setting_changed")


async def test_a_change_is_told_with_who_and_from_what_to_what(house: House) -> None:
    await house.create("t")
    await _change(house, TOPIC, "t", Item("retention.ms", SET, "1000"))
    await _change(house, TOPIC, "t", Item("retention.ms", SET, "2000"))
    await _change(house, TOPIC, "t", Item("retention.ms", DELETE, None))

    head = {"resource": "topic", "name": "t", "key": "retention.ms"}
    assert _told(house) == [
        {**head, "old": None, "new": "1000", **WHO},
        {**head, "old": "1000", "new": "2000", **WHO},
        {**head, "old": "2000", "new": None, **WHO},
    ]


async def test_long_names_and_values_are_cut(house: House) -> None:
    await _change(house, BROKER, "", Item("k" * 2000, SET, "v"))
    await _change(house, METRICS, "m" * 2000, Item("metrics", SET, "v" * 2000))

    cut = {one * 1000 + "..." for one in "kmv"}
    assert cut == {value for told in _told(house) for value in told.values() if value in cut}
    assert all(len(str(value)) < 1010 for told in _told(house) for value in told.values())


@pytest.mark.parametrize(
    ("value", "shown"), [(0.5, "0.5"), (1e6, "1000000"), (1e300, "1e+300"), (float("inf"), "inf")]
)
async def test_a_quota_is_shown_short(house: House, value: float, shown: str) -> None:
    entity = [AlterClientQuotasRequest.EntityData("user", "u")]
    ops = [AlterClientQuotasRequest.OpData("request_percentage", value, False)]
    await house.ask(AlterClientQuotasRequest([AlterClientQuotasRequest.EntryData(entity, ops)]), 1)

    assert [one["new"] for one in _told(house)] == [shown]


async def test_what_changes_nothing_is_not_told(house: House) -> None:
    await house.create("t")
    await _change(house, BROKER, "", Item("log.retention.ms", SET, "1000"))
    await _change(house, BROKER, "", Item("log.retention.ms", SET, "1000"))
    await _change(house, TOPIC, "t", Item("retention.ms", SET, "1"), validate_only=True)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        TOPIC, "t", [Item("retention.ms", SET, "long")]
    )
    refused = await house.ask(IncrementalAlterConfigsRequest([resource]), 1)

    assert refused.responses[0].error_code != 0
    assert [(one["resource"], one["name"], one["new"]) for one in _told(house)] == [
        ("broker", "<default>", "1000")
    ]


async def test_the_older_request_tells_what_it_takes_back(house: House) -> None:
    await house.create("t", configs={"retention.ms": "1000"})
    one = AlterConfigsRequest.AlterConfigsResource(
        TOPIC, "t", [AlterConfigsRequest.AlterableConfig("flush.ms", "5")]
    )
    await house.ask(AlterConfigsRequest([one]), 2)

    assert [(told["key"], told["old"], told["new"]) for told in _told(house)] == [
        ("flush.ms", None, "5"),
        ("retention.ms", "1000", None),
    ]


async def test_groups_subscriptions_quotas_and_features_are_told(house: House) -> None:
    await _change(house, GROUP, "g", Item("consumer.session.timeout.ms", SET, "50000"))
    await _change(house, METRICS, "m", Item("interval.ms", SET, "1000"))
    entity = [
        AlterClientQuotasRequest.EntityData("user", "alice"),
        AlterClientQuotasRequest.EntityData("client-id", None),
    ]
    ops = [AlterClientQuotasRequest.OpData("producer_byte_rate", 1024.0)]
    quota = AlterClientQuotasRequest.EntryData(entity, ops)
    await house.ask(AlterClientQuotasRequest([quota]), 1)
    ops[0].remove = True
    await house.ask(AlterClientQuotasRequest([quota]), 1)
    level = house.rooms.image.features["share.version"]
    down = UpdateFeaturesRequest.FeatureUpdateKey("share.version", 0, upgrade_type=UPGRADE + 1)
    await house.ask(UpdateFeaturesRequest(feature_updates=[down]), 1)

    key, client = "producer_byte_rate", "client-id=<default>, user=alice"
    shown = [tuple(one.values())[:5] for one in _told(house)]
    assert shown == [
        ("group", "g", "consumer.session.timeout.ms", None, "50000"),
        ("client-metrics", "m", "interval.ms", None, "1000"),
        ("quota", client, key, None, "1024"),
        ("quota", client, key, "1024", None),
        ("feature", "share.version", "level", str(level), "0"),
    ]
    assert house.rooms.setting_history.counts == {
        "group": 1,
        "client-metrics": 1,
        "quota": 2,
        "feature": 1,
    }


async def test_what_may_be_a_secret_is_hidden_and_what_is_long_is_cut(house: House) -> None:
    await house.create("t")
    await _change(house, BROKER, str(NODE_ID), Item("my.plugin.password", SET, "sesame"))
    await _change(house, BROKER, str(NODE_ID), Item("my.plugin.password", SET, "open"))
    # A broker takes any key that it does not know, a topic's with any value, too.
    await _change(house, BROKER, "", Item("cleanup.policy", SET, "anything"))
    throttled = ",".join(f"{index}:1" for index in range(1000))
    key = "leader.replication.throttled.replicas"
    await _change(house, TOPIC, "t", Item(key, SET, throttled))

    assert [(one["old"], one["new"]) for one in _told(house)[:3]] == [
        (None, "(hidden)"),
        ("(hidden)", "(hidden)"),
        (None, "(hidden)"),
    ]
    assert "sesame" not in str(house.events.told)
    assert _told(house)[3]["new"] == f"{throttled[:1000]}..."


async def test_a_setting_that_does_less_than_it_says_is_told_with_a_caution(house: House) -> None:
    await house.create("t")
    await _change(house, TOPIC, "t", Item("cleanup.policy", SET, "compact"))
    await _change(house, BROKER, "", Item("min.insync.replicas", SET, "2"))
    await _change(house, BROKER, "", Item("log.cleaner.threads", SET, "2"))
    await _change(house, TOPIC, "t", Item("cleanup.policy", SET, "delete"))

    policy, least, cleaner, none = (one.get("caution") for one in _told(house))
    assert "not compacted" in str(policy)
    assert "acks=all waits for one" in str(least)
    assert cleaner == NO_EFFECT
    assert none is None


async def test_a_new_topic_is_told_with_its_settings(house: House) -> None:
    await house.create("t", configs={"cleanup.policy": "compact,delete", "retention.ms": "5"})

    (told,) = house.events.named("topic_created")
    assert told["settings"] == {"cleanup.policy": "compact,delete", "retention.ms": "5"}
    assert list(told["cautions"]) == ["cleanup.policy"]


async def test_more_partitions_are_told(house: House) -> None:
    await house.create("t")
    grow = CreatePartitionsRequest.CreatePartitionsTopic
    asked = [grow("t", 3, None), grow("nosuch", 3, None)]
    await house.ask(CreatePartitionsRequest(asked, 5000, validate_only=True), 3)
    await house.ask(CreatePartitionsRequest(asked, 5000), 3)

    assert house.events.named("topic_grown") == [
        {"topic": "t", "partitions": 3, "client_id": "operator", "address": "127.0.0.1:50000"}
    ]


async def test_events_of_a_group_have_the_changes_of_its_settings(house: House) -> None:
    await house.create("g")
    await _change(house, TOPIC, "g", Item("flush.ms", SET, "5"))
    await _change(house, GROUP, "g", Item("consumer.session.timeout.ms", SET, "50000"))
    history = house.rooms.setting_history

    assert [one["resource"] for one in history.told_of(None)] == ["topic", "group"]
    assert history.told_of("g") == [
        {
            "wall_ms": START_MS,
            "event": "setting_changed",
            "group": "g",
            "reason": "a client set consumer.session.timeout.ms",
            "resource": "group",
            "name": "g",
            "key": "consumer.session.timeout.ms",
            "old": None,
            "new": "50000",
            **WHO,
        }
    ]
    assert history.told_of(LISTENER) == []


async def test_a_group_and_a_client_of_long_names_are_cut_and_the_group_is_found(
    house: House,
) -> None:
    house.session.client_id = "c" * 30_000
    group_id = "g" * 30_000
    await _change(house, GROUP, group_id, Item("consumer.session.timeout.ms", SET, "50000"))
    (told,) = house.rooms.setting_history.told_of(group_id)

    assert told["group"] == told["name"] == "g" * SHOWN_CHARS_MAX + "..."
    assert told["client_id"] == "c" * CHARS_MAX + "..."


async def test_others_get_the_loop_while_much_is_told(house: House) -> None:
    names = [f"t{number}" for number in range(TOLD_PER_TURN * 3)]
    topics = [CreateTopicsRequest.CreatableTopic(name, 1, 1) for name in names]
    resources = [
        IncrementalAlterConfigsRequest.AlterConfigsResource(
            TOPIC, name, [Item("flush.ms", SET, "5")]
        )
        for name in names
    ]
    requests: dict[str, tuple[Message, int]] = {
        "topic_created": (CreateTopicsRequest(topics), 7),
        "setting_changed": (IncrementalAlterConfigsRequest(resources), 1),
        "topic_deleted": (DeleteTopicsRequest([], names, 5000), 5),
    }
    for event, (request, version) in requests.items():
        asked = asyncio.ensure_future(house.ask(request, version))
        seen: dict[int, None] = {}
        while not asked.done():
            seen[len(house.events.named(event))] = None
            await asyncio.sleep(0)
        await asked

        assert len(house.events.named(event)) == len(names)
        assert {TOLD_PER_TURN, TOLD_PER_TURN * 2} <= seen.keys()
