"""Auto-creation by Metadata: 3 in the first answer, then the topic; once, and not without end."""

from __future__ import annotations

import pytest

from ottla.broker.handlers import auto_create
from ottla.config.broker import BrokerConfig, Layers
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.topics import DeleteTopicsRequest
from tests.handlers.rooms import House

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def ask(
    house: House, *names: str, allow: bool = True, version: int = 12
) -> list[tuple[str | None, int]]:
    asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    answer = await house.ask(MetadataRequest(asked, allow), version)
    return [(topic.name, topic.error_code) for topic in answer.topics]


@pytest.mark.parametrize("version", [0, 3, 4, 13])
async def test_the_first_answer_is_3_and_the_next_one_has_the_topic(version: int) -> None:
    async with House({"num.partitions": "3"}) as house:
        assert await ask(house, "orders", version=version) == [("orders", UNKNOWN)]
        await house.settle()

        assert await ask(house, "orders", version=version) == [("orders", ErrorCode.NONE)]
        assert len(house.rooms.image.topics.by_name["orders"].partitions) == 3


async def test_not_when_the_client_says_no(house: House) -> None:
    await ask(house, "orders", allow=False)
    await house.settle()

    assert house.rooms.image.topics.by_name == {}


async def test_not_when_the_broker_says_no() -> None:
    async with House({"auto.create.topics.enable": "false"}) as house:
        assert await ask(house, "orders") == [("orders", UNKNOWN)]
        await house.settle()

        assert house.rooms.image.topics.by_name == {}


@pytest.mark.parametrize("name", ["b c", "", "__consumer_offsets", "__transaction_state"])
async def test_never_impossible_or_internal_names(house: House, name: str) -> None:
    await ask(house, name)
    await house.settle()

    assert house.rooms.image.topics.by_name == {}


async def test_a_name_asked_by_many_is_created_once(house: House) -> None:
    for _ in range(5):
        await ask(house, "orders")
    await house.settle()

    assert house.events.named("topic_auto_created") == [
        {"topic": "orders", "client_id": house.session.client_id}
    ]
    assert house.events.named("auto_create_failed") == []


async def test_what_cannot_be_created_is_told_once_until_the_reason_is_another() -> None:
    async with House({"default.replication.factor": "3"}) as house:
        for _ in range(3):
            await ask(house, "orders")
            await house.settle()
        (failure,) = house.events.named("auto_create_failed")
        assert (failure["topic"], failure["error"]) == ("orders", "INVALID_REPLICATION_FACTOR")

        house.rooms.config = BrokerConfig.assemble(Layers(static={"num.partitions": "10001"}))
        for _ in range(2):
            await ask(house, "orders")
            await house.settle()

        errors = [one["error"] for one in house.events.named("auto_create_failed")]
        assert errors == ["INVALID_REPLICATION_FACTOR", "POLICY_VIOLATION"]


async def test_what_was_created_after_all_is_told_again_if_it_fails_again() -> None:
    few = BrokerConfig.assemble(Layers(static={"num.partitions": "1"}))
    many = BrokerConfig.assemble(Layers(static={"num.partitions": "10001"}))
    async with House() as house:
        for config in (many, few):
            house.rooms.config = config
            await ask(house, "orders")
            await house.settle()
        state = DeleteTopicsRequest.DeleteTopicState("orders")
        await house.ask(DeleteTopicsRequest([state], timeout_ms=5000), 6)
        house.rooms.config = many
        await ask(house, "orders")
        await house.settle()

        assert len(house.events.named("auto_create_failed")) == 2


async def test_only_so_many_failures_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_create, "TOLD_MAX", 2)
    async with House({"default.replication.factor": "3"}) as house:
        for name in ("a", "b", "c", "c", "b", "a"):
            await ask(house, name)
            await house.settle()

        told = [one["topic"] for one in house.events.named("auto_create_failed")]
        assert told == ["a", "b", "c", "a"]


async def test_names_beyond_the_limit_are_left_to_who_asks_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_create, "PENDING_MAX", 3)
    monkeypatch.setattr(auto_create, "TOPICS_PER_SECOND", 10_000)
    await ask(house, *(f"t{index}" for index in range(5)))
    await house.settle()

    assert sorted(house.rooms.image.topics.by_name) == ["t0", "t1", "t2"]
    await ask(house, "t3", "t4")
    await house.settle()
    assert len(house.rooms.image.topics.by_name) == 5
