"""Auto-creation by Metadata: 3 in the first answer, then the topic; once, and not without end."""

from __future__ import annotations

import pytest

from ottla.broker.handlers import auto_create
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest
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

    assert house.events.named("topic_auto_created") == [{"topic": "orders"}]
    assert house.events.named("auto_create_failed") == []


async def test_what_cannot_be_created_is_told_and_forgotten() -> None:
    async with House({"default.replication.factor": "3"}) as house:
        await ask(house, "orders")
        await house.settle()
        await ask(house, "orders")
        await house.settle()

        failures = house.events.named("auto_create_failed")
        assert [failure["error"] for failure in failures] == ["INVALID_REPLICATION_FACTOR"] * 2


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
