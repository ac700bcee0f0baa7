"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: observed sections 3 and 5."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offsets import (
    DeleteRecordsRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from tests.handlers.rooms import House

TIMESTAMP = 1_700_000_000_000
FUTURE = 10**14
NOTHING = (ErrorCode.NONE, -1, -1, -1)


async def list_offset(
    house: House,
    timestamp: int,
    *,
    version: int = 11,
    isolation: int = 0,
    epoch: int = -1,
    topic: str = "t",
    partition: int = 0,
) -> tuple[int, int, int, int]:
    """(error, offset, timestamp, leader epoch) of one partition."""
    asked = ListOffsetsRequest.ListOffsetsPartition(partition, epoch, timestamp)
    request = ListOffsetsRequest(
        -1, isolation, [ListOffsetsRequest.ListOffsetsTopic(topic, [asked])]
    )
    (answer,) = (await house.ask(request, version)).topics[0].partitions
    assert answer.partition_index == partition
    return answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch


async def delete(
    house: House, offset: int, *, topic: str = "t", partition: int = 0
) -> tuple[int, int]:
    """(error, low watermark)."""
    asked = DeleteRecordsRequest.DeleteRecordsPartition(partition, offset)
    request = DeleteRecordsRequest([DeleteRecordsRequest.DeleteRecordsTopic(topic, [asked])], 5000)
    (answer,) = (await house.ask(request, 2)).topics[0].partitions
    return answer.error_code, answer.low_watermark


async def test_who_deleted_records_is_told(stocked: House) -> None:
    await delete(stocked, 2)
    await delete(stocked, 2)

    told = stocked.events.named("records_deleted")
    assert [(one["topic"], one["starts"]) for one in told] == [("t", ["0: 0 to 2"])]
    assert told[0]["address"] == stocked.session.peer


@pytest.fixture
async def stocked(house: House) -> House:
    """Topic t: offsets 0-4 at one second each, in batches of 2, 2 and 1."""
    await house.create("t")
    await house.append("t", 0, [b"0", b"1"], timestamp=TIMESTAMP)
    await house.append("t", 0, [b"2", b"3"], timestamp=TIMESTAMP + 2000)
    await house.append("t", 0, [b"4"], timestamp=TIMESTAMP + 4000)
    return house


# ListOffsets


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (-1, (0, 5, -1, 0)),
        (-2, (0, 0, -1, 0)),
        (-3, (0, 4, TIMESTAMP + 4000, 0)),
        (-4, (0, 0, -1, 0)),
        (-5, NOTHING),
        (-6, NOTHING),
        (0, (0, 0, TIMESTAMP, 0)),
        (TIMESTAMP + 1, (0, 1, TIMESTAMP + 1000, 0)),
        (TIMESTAMP + 2000, (0, 2, TIMESTAMP + 2000, 0)),
        (TIMESTAMP + 2001, (0, 3, TIMESTAMP + 3000, 0)),
        (TIMESTAMP + 4001, NOTHING),
        (FUTURE, NOTHING),
    ],
)
async def test_timestamps(
    stocked: House, timestamp: int, expected: tuple[int, int, int, int]
) -> None:
    assert await list_offset(stocked, timestamp) == expected


@pytest.mark.parametrize("timestamp", [-3, 0, FUTURE])
async def test_an_empty_log_has_no_such_record(house: House, timestamp: int) -> None:
    await house.create("t")

    assert await list_offset(house, timestamp) == NOTHING


@pytest.mark.parametrize(
    ("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11), (-100, 11)]
)
async def test_a_special_timestamp_below_its_version_is_unsupported(
    stocked: House, timestamp: int, version: int
) -> None:
    assert (await list_offset(stocked, timestamp, version=version))[0] == (
        ErrorCode.UNSUPPORTED_VERSION
    )


@pytest.mark.parametrize("version", range(1, 12))
async def test_both_ends_in_every_version(stocked: House, version: int) -> None:
    epoch = 0 if version >= 4 else -1

    assert await list_offset(stocked, -1, version=version) == (0, 5, -1, epoch)
    assert await list_offset(stocked, -2, version=version) == (0, 0, -1, epoch)


async def test_a_transaction_holds_the_end_back_for_read_committed(stocked: House) -> None:
    await stocked.append("t", 0, [b"5"], timestamp=TIMESTAMP + 5000, transactional=True)

    assert (await list_offset(stocked, -1, isolation=0))[1] == 6
    assert (await list_offset(stocked, -1, isolation=1))[1] == 5
    assert await list_offset(stocked, TIMESTAMP + 5000, isolation=1) == NOTHING


async def test_an_unknown_isolation_level_is_refused(stocked: House) -> None:
    assert (await list_offset(stocked, -1, isolation=2))[0] == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("topic", "partition"), [("nope", 0), ("t", 1), ("t", -1), ("b c", 0), ("", 0)]
)
async def test_what_does_not_exist(stocked: House, topic: str, partition: int) -> None:
    assert await list_offset(stocked, -1, topic=topic, partition=partition) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        -1,
        -1,
        -1,
    )


async def test_leader_epochs_fence(stocked: House) -> None:
    await stocked.raise_leader_epoch("t", 0)

    for old in (0, -2, -(2**31)):
        assert (await list_offset(stocked, -1, epoch=old))[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert (await list_offset(stocked, -1, epoch=1))[0] == ErrorCode.NONE
    assert (await list_offset(stocked, -1, epoch=2))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert await list_offset(stocked, -1) == (0, 5, -1, 1)
    assert await list_offset(stocked, -2) == (0, 0, -1, 0)


async def test_a_partition_that_lost_its_leader(stocked: House) -> None:
    await stocked.lose_leader("t", 0)

    assert (await list_offset(stocked, -1))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("asked", [[[0, 1, 0, 0]], [[0, 1], [0]], [[0], [0, 0], [1]]])
async def test_a_partition_asked_twice_is_refused_once(
    stocked: House, asked: list[list[int]]
) -> None:
    topics = [
        ListOffsetsRequest.ListOffsetsTopic(
            "t", [ListOffsetsRequest.ListOffsetsPartition(index, -1, -1) for index in indexes]
        )
        for indexes in asked
    ]
    answer = await stocked.ask(ListOffsetsRequest(-1, 0, topics), 11)
    told = [
        (part.partition_index, part.error_code)
        for topic in answer.topics
        for part in topic.partitions
    ]

    assert told == [
        (0, ErrorCode.INVALID_REQUEST),
        (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert all(topic.partitions for topic in answer.topics)


# OffsetForLeaderEpoch


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(
    ("epoch", "current", "expected"),
    [
        (0, -1, (0, 0, 5)),
        (5, -1, (0, -1, -1)),
        (-1, -1, (0, -1, -1)),
        (0, 5, (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)),
    ],
)
async def test_epoch_ends(
    stocked: House, version: int, epoch: int, current: int, expected: tuple[int, int, int]
) -> None:
    assert await epoch_end(stocked, epoch, current=current, version=version) == expected


async def test_an_empty_log_has_its_epoch(house: House) -> None:
    await house.create("t")

    assert await epoch_end(house, 0) == (0, 0, 0)


async def test_an_epoch_of_nothing_known(house: House) -> None:
    assert await epoch_end(house, 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


async def epoch_end(
    house: House, epoch: int, *, current: int = -1, version: int = 4
) -> tuple[int, int, int]:
    """(error, epoch, end offset)."""
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(0, current, epoch)
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic("t", [asked])
    answer = await house.ask(OffsetForLeaderEpochRequest(-1, [topic]), version)
    (end,) = answer.topics[0].partitions
    return end.error_code, end.leader_epoch, end.end_offset


# DeleteRecords


async def test_the_log_start_only_rises(stocked: House) -> None:
    assert await delete(stocked, 3) == (0, 3)
    assert await delete(stocked, 1) == (0, 3)
    assert (await list_offset(stocked, -2))[1] == 3
    assert await delete(stocked, -1) == (0, 5)


@pytest.mark.parametrize("offset", [6, -2])
async def test_only_offsets_up_to_the_high_watermark(stocked: House, offset: int) -> None:
    assert await delete(stocked, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


async def test_records_that_cannot_be_deleted(stocked: House) -> None:
    await stocked.create("compacted", configs={"cleanup.policy": "compact"})
    await stocked.create("both", configs={"cleanup.policy": "compact,delete"})
    await stocked.create("neither", configs={"cleanup.policy": ""})

    assert await delete(stocked, 0, topic="compacted") == (ErrorCode.POLICY_VIOLATION, -1)
    assert await delete(stocked, 0, topic="both") == (ErrorCode.NONE, 0)
    assert await delete(stocked, 0, topic="neither") == (ErrorCode.NONE, 0)
    assert await delete(stocked, 0, topic="nope") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert await delete(stocked, 0, partition=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


async def test_internal_topics_keep_their_records(house: House) -> None:
    await house.create("__consumer_offsets")

    assert await delete(house, 0, topic="__consumer_offsets") == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        -1,
    )


@pytest.mark.parametrize(
    ("topic", "partition"), [("__consumer_offsets", 99), ("__share_group_state", 0)]
)
async def test_what_an_internal_topic_does_not_have_is_unknown(
    house: House, topic: str, partition: int
) -> None:
    await house.create("__consumer_offsets")

    assert await delete(house, 0, topic=topic, partition=partition) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        -1,
    )
