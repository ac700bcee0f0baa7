"""DescribeTopicPartitions: order, limit and cursor as Apache Kafka 4.3.1 answers them."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from tests.handlers.rooms import NODE_ID, House

Cursor = DescribeTopicPartitionsRequest.Cursor
Pages = list[tuple[str | None, list[int]]]


def request(
    *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsRequest:
    asked = [DescribeTopicPartitionsRequest.TopicRequest(name) for name in names]
    return DescribeTopicPartitionsRequest(asked, limit, None if cursor is None else Cursor(*cursor))


def shown(answer: DescribeTopicPartitionsResponse) -> Pages:
    return [
        (topic.name, [partition.partition_index for partition in topic.partitions])
        for topic in answer.topics
    ]


def next_of(answer: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = answer.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


@pytest.fixture
async def stocked(house: House) -> House:
    await house.create("b", partitions=2)
    await house.create("a", partitions=3)
    return house


async def test_an_empty_list_is_all_topics_by_name(stocked: House) -> None:
    answer = await stocked.ask(request(), 0)

    assert shown(answer) == [("a", [0, 1, 2]), ("b", [0, 1])]
    assert next_of(answer) is None
    first = answer.topics[0]
    assert first.topic_authorized_operations == 3576
    assert first.partitions[0].leader_id == NODE_ID
    assert first.partitions[0].eligible_leader_replicas == []
    assert first.partitions[0].last_known_elr == []


@pytest.mark.parametrize(
    ("limit", "cursor", "pages", "following"),
    [
        (2, None, [("a", [0, 1])], ("a", 2)),
        (3, None, [("a", [0, 1, 2])], ("b", 0)),
        (4, None, [("a", [0, 1, 2]), ("b", [0])], ("b", 1)),
        (5, None, [("a", [0, 1, 2]), ("b", [0, 1])], None),
        (0, None, [("a", [0])], ("a", 1)),
        (2, ("a", 2), [("a", [2]), ("b", [0])], ("b", 1)),
        (9, ("b", 1), [("b", [1])], None),
        (9, ("a", 9), [("a", []), ("b", [0, 1])], None),
    ],
)
async def test_the_limit_cuts_and_the_cursor_goes_on(
    stocked: House,
    limit: int,
    cursor: tuple[str, int] | None,
    pages: Pages,
    following: tuple[str, int] | None,
) -> None:
    answer = await stocked.ask(request("b", "a", limit=limit, cursor=cursor), 0)

    assert shown(answer) == pages
    assert next_of(answer) == following


@pytest.mark.parametrize("cursor", [("a", -1), ("other", 0)])
async def test_an_impossible_cursor_refuses_every_topic(
    stocked: House, cursor: tuple[str, int]
) -> None:
    answer = await stocked.ask(request("a", cursor=cursor), 0)

    assert [(one.name, one.error_code) for one in answer.topics] == [
        ("a", ErrorCode.INVALID_REQUEST)
    ]


async def test_unknown_topics_take_no_room(stocked: House) -> None:
    answer = await stocked.ask(request("zz", "a c", "b", limit=2), 0)

    assert [(one.name, one.error_code) for one in answer.topics] == [
        ("a c", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("b", ErrorCode.NONE),
    ]
    assert next_of(answer) == ("zz", 0)
