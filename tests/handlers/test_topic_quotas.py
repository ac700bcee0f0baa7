"""The quota of topic changes (KIP-599) as clients meet it, in each version."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.quotas import AlterClientQuotasRequest
from ottla.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from tests.handlers.rooms import House

EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
GREEDY = "greedy"
BURST = 11
"""At one partition a second."""


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House() as opened:
        op = AlterClientQuotasRequest.OpData("controller_mutation_rate", 1.0, False)
        entity = AlterClientQuotasRequest.EntityData("client-id", GREEDY)
        entry = AlterClientQuotasRequest.EntryData([entity], [op])
        answer = await opened.ask(AlterClientQuotasRequest([entry]), 1)
        assert answer.entries[0].error_code == 0
        opened.session.client_id = GREEDY
        yield opened


async def _create(
    house: House, partitions: dict[str, int], *, version: int = 7, timeout_ms: int = 5000
) -> tuple[list[int], int]:
    """The errors, and how long to wait."""
    topics = [CreateTopicsRequest.CreatableTopic(name, n, 1) for name, n in partitions.items()]
    answer = await house.ask(CreateTopicsRequest(topics, timeout_ms), version)
    return [topic.error_code for topic in answer.topics], answer.throttle_time_ms


async def _delete(house: House, name: str, version: int) -> tuple[list[int], int]:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=5000)
    if version >= 6:
        state = DeleteTopicsRequest.DeleteTopicState(name)
        request = DeleteTopicsRequest([state], timeout_ms=5000)
    answer = await house.ask(request, version)
    return [topic.error_code for topic in answer.responses], answer.throttle_time_ms


async def _grow(house: House, name: str, count: int, version: int) -> tuple[list[int], int]:
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(name, count, None)
    answer = await house.ask(CreatePartitionsRequest([wanted], 5000), version)
    return [topic.error_code for topic in answer.results], answer.throttle_time_ms


def _wait(house: House, ms: int) -> None:
    house.rooms.clock.advance(ms)  # type: ignore[attr-defined]


async def test_newer_versions_are_refused_and_told_for_how_long(house: House) -> None:
    assert await _create(house, {"a": BURST, "b": 5, "c": 1}) == ([0, 0, EXCEEDED], 5_000)
    assert await _delete(house, "b", 5) == ([EXCEEDED], 5_000)
    assert await _delete(house, "b", 6) == ([EXCEEDED], 5_000)
    assert await _grow(house, "b", 6, 3) == ([EXCEEDED], 5_000)
    assert await _create(house, {"c": 1}, version=6) == ([EXCEEDED], 5_000)
    assert await _create(house, {"c": 1}, timeout_ms=0) == ([EXCEEDED], 5_000)
    assert list(house.rooms.image.topics.by_name) == ["a", "b"]

    _wait(house, 5_000)

    assert await _create(house, {"c": 1}) == ([0], 0)


async def test_older_versions_get_what_they_ask_for_and_wait(house: House) -> None:
    assert await _create(house, {"a": BURST, "b": 5}, version=5) == ([0, 0], 5_000)
    assert await _delete(house, "a", 4) == ([0], 5_000 + BURST * 1_000)
    assert await _grow(house, "b", 6, 2) == ([0], 6_000 + BURST * 1_000)
    assert list(house.rooms.image.topics.by_name) == ["b"]


async def test_others_pay_nothing(house: House) -> None:
    await _create(house, {"a": BURST + 1})
    house.session.client_id = "another"

    assert await _create(house, {"b": 100}) == ([0], 0)
    assert await _create(house, {"c": 1}) == ([0], 0)


async def _ask_for(house: House, name: str) -> Any:
    asked = MetadataRequest.MetadataRequestTopic(name=name)
    answer = await house.ask(MetadataRequest([asked], True), 12)
    await house.settle()
    return answer


async def test_auto_creation_counts_for_who_asks(house: House) -> None:
    await _create(house, {"a": BURST + 1})

    answer = await _ask_for(house, "b")

    assert answer.throttle_time_ms == 0
    assert list(house.rooms.image.topics.by_name) == ["a"]
    (failure,) = house.events.named("auto_create_failed")
    assert (failure["topic"], failure["error"]) == ("b", EXCEEDED.name)
    assert failure["client_id"] == GREEDY
    house.session.client_id = "another"
    await _ask_for(house, "b")
    assert list(house.rooms.image.topics.by_name) == ["a", "b"]


async def test_names_of_several_clients_are_charged_to_each(house: House) -> None:
    await _create(house, {"a": BURST + 1})
    rooms = house.rooms
    rooms.auto_creation.request(rooms, ["x"], "another")
    rooms.auto_creation.request(rooms, ["y"], GREEDY)
    rooms.auto_creation.request(rooms, ["x"], GREEDY)
    rooms.auto_creation.request(rooms, ["z"], "another")
    await house.settle()

    assert sorted(rooms.image.topics.by_name) == ["a", "x", "z"]
