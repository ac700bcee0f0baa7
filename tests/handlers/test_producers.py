"""DescribeProducers shows what a partition knows of producers; ListConfigResources, of settings."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.configs import ListConfigResourcesRequest
from ottla.protocol.messages.producer_ids import DescribeProducersRequest
from tests.handlers.rooms import NODE_ID, SECOND_MS, START_MS, House

Topic = DescribeProducersRequest.TopicRequest
CLIENT_METRICS, GROUP, LOGGER, BROKER, TOPIC = 16, 32, 8, 4, 2


async def test_a_producer_with_an_open_transaction(house: House) -> None:
    await house.create("t")
    await house.append("t", 0, [b"plain"])
    await house.append("t", 0, [b"a", b"b"], transactional=True)

    answer = await house.ask(DescribeProducersRequest([Topic("t", [0])]), 0)

    ((partition,),) = ([*topic.partitions] for topic in answer.topics)
    (state,) = partition.active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (9, 0, 1)
    assert state.last_timestamp == START_MS + SECOND_MS
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, 1)


async def test_partitions_that_are_not_there(house: House) -> None:
    await house.create("t")
    asked = [Topic("t", [0, 7]), Topic("nope", [0]), Topic("a b", [0])]

    answer = await house.ask(DescribeProducersRequest(asked), 0)

    codes = [(one.error_code, one.error_message) for t in answer.topics for one in t.partitions]
    assert codes[:3] == [
        (0, None),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        ),
    ]
    assert codes[3][0] == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([], [(LOGGER, "1"), (BROKER, "1"), (TOPIC, "t")]),
        ([TOPIC, TOPIC], [(TOPIC, "t")]),
        ([BROKER], [(BROKER, str(NODE_ID))]),
        ([GROUP, CLIENT_METRICS], []),
    ],
)
async def test_what_has_settings(
    house: House, kinds: list[int], expected: list[tuple[int, str]]
) -> None:
    await house.create("t")

    answer = await house.ask(ListConfigResourcesRequest(kinds), 1)

    assert answer.error_code == 0
    found = [(one.resource_type, one.resource_name) for one in answer.config_resources]
    assert found == expected


@pytest.mark.parametrize("kind", [0, 1, 3, 64, -1])
async def test_kinds_that_cannot_be_listed(house: House, kind: int) -> None:
    answer = await house.ask(ListConfigResourcesRequest([TOPIC, kind]), 1)

    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


async def test_version_0_lists_client_metrics_alone(house: House) -> None:
    await house.create("t")

    answer = await house.ask(ListConfigResourcesRequest(), 0)

    assert (answer.error_code, answer.config_resources) == (0, [])


async def test_a_partition_that_is_named_again_is_answered_again(house: House) -> None:
    await house.create("t")
    await house.append("t", 0, [b"a"], transactional=True)

    answer = await house.ask(DescribeProducersRequest([Topic("t", [0, 9, 0]), Topic("t", [0])]), 0)

    first, missing, again, last = [one for t in answer.topics for one in t.partitions]
    assert first == again == last
    assert [one.producer_id for one in first.active_producers] == [9]
    assert (missing.partition_index, missing.active_producers) == (9, [])
