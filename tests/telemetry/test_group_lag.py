"""How far groups are behind, as a scraper reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ottla.broker import group_lag
from ottla.broker.group_lag import watch_lag
from ottla.broker.telemetry.metrics import PAUSE, Registry
from ottla.protocol.messages import groups
from ottla.protocol.messages.topics import DeleteTopicsRequest
from tests.coordinator.asking import ask
from tests.handlers.rooms import House

Part = groups.OffsetCommitRequest.OffsetCommitRequestPartition
Topic = groups.OffsetCommitRequest.OffsetCommitRequestTopic


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House({"offsets.topic.num.partitions": "3"}) as opened:
        await opened.create("t", partitions=2)
        await ask(opened, groups.FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        yield opened


@pytest.fixture
def page(house: House) -> Registry:
    registry = Registry()
    watch_lag(registry, house.rooms)
    return registry


async def _commit(house: House, group_id: str, topic: str, offsets: dict[int, int]) -> None:
    parts = [Part(index, offset, -1, None) for index, offset in offsets.items()]
    request = groups.OffsetCommitRequest(
        group_id, -1, "", None, topics=[Topic(topic, partitions=parts)]
    )
    answer = await ask(house, request, 8)
    assert all(part.error_code == 0 for part in answer.topics[0].partitions)


def _shown(page: Registry) -> list[str]:
    return sorted(line for line in page.lines() if line.startswith("ottla_group_lag{"))


async def test_lag_is_by_group_topic_and_partition(house: House, page: Registry) -> None:
    assert _shown(page) == []
    await house.append("t", 0, [b"v"] * 10)
    await _commit(house, "g", "t", {0: 4, 1: 0})
    await _commit(house, 'say "h"', "t", {0: 10})

    assert _shown(page) == [
        'ottla_group_lag{group="g",topic="t",partition="0"} 6',
        'ottla_group_lag{group="g",topic="t",partition="1"} 0',
        r'ottla_group_lag{group="say \"h\"",topic="t",partition="0"} 0',
    ]
    await house.append("t", 1, [b"v"] * 3)
    await _commit(house, "g", "t", {0: 9})
    assert _shown(page)[:2] == [
        'ottla_group_lag{group="g",topic="t",partition="0"} 1',
        'ottla_group_lag{group="g",topic="t",partition="1"} 3',
    ]


async def test_offsets_of_a_topic_that_is_gone_have_no_lag(house: House, page: Registry) -> None:
    await _commit(house, "g", "t", {0: 0})
    assert len(_shown(page)) == 1
    await house.ask(DeleteTopicsRequest([], ["t"], 5000), 5)
    assert _shown(page) == []

    await house.create("t")

    assert _shown(page) == []


async def test_many_offsets_are_gone_through_in_pieces_while_they_change(
    house: House, page: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_lag, "OFFSETS_PER_TURN", 2)
    for number in range(5):
        await _commit(house, f"g{number}", "t", {0: 0, 1: 0})
    lines = page.lines()
    before: list[str] = []
    while PAUSE not in before:
        before.append(next(lines))
    await _commit(house, "late", "t", {0: 0})
    delete = groups.DeleteGroupsRequest([f"g{number}" for number in range(5)])
    await ask(house, delete, 2)
    rest = list(lines)

    assert len([line for line in before if line.startswith("ottla_group_lag{")]) == 1
    assert rest.count(PAUSE) <= 5
    assert _shown(page) == ['ottla_group_lag{group="late",topic="t",partition="0"} 0']
