"""Markers that meet what somebody else has written: nothing stays open, and nothing is thrown away
that is not theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.broker.controller.topics import new_partition
from ottla.broker.coordinator.placement import partition_for
from ottla.broker.coordinator.transaction.markers import MARKERS_PER_TURN
from ottla.broker.coordinator.transaction.states import TransactionState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.producer_ids import InitProducerIdRequest
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from ottla.protocol.schema import Message
from tests.coordinator.asking import ask
from tests.handlers.rooms import NODE_ID, House

OFFSETS = "__consumer_offsets"
GROUP = "g"
ID = "x"
PARTITIONS = 3


@pytest.fixture
async def house() -> AsyncIterator[House]:
    config = {
        "offsets.topic.num.partitions": str(PARTITIONS),
        "transaction.state.log.num.partitions": "2",
    }
    async with House(config) as opened:
        await opened.create("t")
        await ask(opened, FindCoordinatorRequest(key_type=1, key=ID), 3)
        await ask(opened, FindCoordinatorRequest(key_type=0, key=GROUP), 3)
        yield opened


async def _mark(house: House, *markers: tuple[int, int, str, int, int]) -> list[int]:
    """The answers to aborts, each of (producer id, epoch, topic, partition, coordinator epoch)."""
    wanted = WriteTxnMarkersRequest
    request = wanted(
        [
            wanted.WritableTxnMarker(
                producer_id,
                epoch,
                False,
                [wanted.WritableTxnMarkerTopic(topic, [index])],
                coordinator_epoch,
            )
            for producer_id, epoch, topic, index, coordinator_epoch in markers
        ]
    )
    answer = await ask(house, request, 1)
    return [one.topics[0].partitions[0].error_code for one in answer.markers]


async def _begin(house: House, name: str = "t", count: int = 1) -> int:
    """A producer id that has a topic's partitions in its transaction, in epoch 0."""
    producer = await ask(house, InitProducerIdRequest(ID, 60_000), 4)
    producer_id: int = producer.producer_id
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name, list(range(count)))
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic],
    )
    answer = await ask(house, added, 3)
    assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    return producer_id


async def _write(house: House, producer_id: int, sequence: int) -> int:
    batch = build_batch(
        [Record(0, 1_700_000_000_000, None, b"value")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    part = ProduceRequest.PartitionProduceData(0, memoryview(batch))
    request = ProduceRequest(
        ID, -1, 1000, [ProduceRequest.TopicProduceData("t", partition_data=[part])]
    )
    answer = await ask(house, request, 9)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def _open(house: House) -> dict[int, int]:
    partition = house.rooms.replicas.get("t", 0)
    assert partition is not None
    return partition.log.producer_state.open_transactions


async def _end(house: House, producer_id: int) -> int:
    answer = await ask(house, EndTxnRequest(ID, producer_id, 0, committed=True), 3)
    code: int = answer.error_code
    # Is answered when the transaction is complete.
    await ask(house, InitProducerIdRequest(ID, 60_000), 4)
    return code


def _marked(house: House, name: str, count: int) -> int:
    """How many partitions of a topic to which nobody writes have a marker."""
    partitions = [house.rooms.replicas.get(name, index) for index in range(count)]
    return sum(one is not None and one.log.log_end_offset > 0 for one in partitions)


async def _turns(house: House, name: str, count: int, until: int) -> list[int]:
    """How many markers are written a turn, of those turns in which one is, until so many are."""
    turns: list[int] = []
    async with asyncio.timeout(20):
        while sum(turns) < until:
            await asyncio.sleep(0)
            turns.append(_marked(house, name, count) - sum(turns))
    return [one for one in turns if one]


async def _grow(house: House, name: str, count: int) -> None:
    """What no client can ask for, but a metadata log from elsewhere may hold."""
    image = house.rooms.image
    topic = image.topics.by_name[name]
    added: list[Message] = [
        new_partition(image, topic.topic_id, index, [NODE_ID])
        for index in range(len(topic.partitions), count)
    ]
    await house.rooms.quorum.submit(lambda _: (added, None))


async def test_a_coordinator_closes_what_is_open_whoever_has_been_there(house: House) -> None:
    producer_id = await _begin(house)
    assert await _write(house, producer_id, 0) == 0
    assert await _mark(house, (producer_id, 0, "t", 0, 100)) == [0]
    assert await _write(house, producer_id, 1) == 0
    assert _open(house)

    assert await _end(house, producer_id) == 0
    assert not _open(house)


async def test_a_marker_of_a_later_epoch_has_closed_it_for_good(house: House) -> None:
    producer_id = await _begin(house)
    assert await _write(house, producer_id, 0) == 0
    assert await _mark(house, (producer_id, 9, "t", 0, 0)) == [0]
    assert await _write(house, producer_id, 1) == ErrorCode.INVALID_PRODUCER_EPOCH

    assert await _end(house, producer_id) == 0
    assert not _open(house)
    assert house.events.named("transaction_marker_refused")


async def test_epochs_that_fall_in_one_request_cost_the_later_marker_alone(house: House) -> None:
    codes = await _mark(
        house, (7, 10, OFFSETS, 0, 0), (7, 9, OFFSETS, 0, 0), (7, 10, OFFSETS, 0, 1)
    )

    assert codes == [0, ErrorCode.INVALID_PRODUCER_EPOCH, 0]
    assert not house.events.named("coordinator_append_failed")


async def test_a_producer_whose_epoch_is_over_commits_no_offsets_and_harms_nobody(
    house: House,
) -> None:
    producer_id = await _begin(house)
    await ask(house, AddOffsetsToTxnRequest(ID, producer_id, 0, GROUP), 3)
    place = partition_for(GROUP, PARTITIONS)
    assert await _mark(house, (producer_id, 100, OFFSETS, place, 0)) == [0]
    asked: Any = TxnOffsetCommitRequest
    part = asked.TxnOffsetCommitRequestPartition(0, 5)
    request = asked(
        ID, GROUP, producer_id, 0, topics=[asked.TxnOffsetCommitRequestTopic("t", [part])]
    )
    answer = await ask(house, request, 3)

    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert not house.events.named("coordinator_append_failed")


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("names", [[], ["t"]])
async def test_a_transaction_begins_without_partitions(
    house: House, names: list[str], version: int
) -> None:
    producer = await ask(house, InitProducerIdRequest(ID, 60_000), 4)
    wanted: Any = AddPartitionsToTxnRequest
    topics = [wanted.AddPartitionsToTxnTopic(name, []) for name in names]
    one = ID, producer.producer_id, 0
    if version == 4:
        several = [wanted.AddPartitionsToTxnTransaction(*one, False, topics)]
        (answer,) = (await ask(house, wanted(several), 4)).results_by_transaction
        answered = answer.topic_results
    else:
        answered = (await ask(house, wanted([], *one, topics), 3)).results_by_topic_v3_and_below
    _, shard = house.rooms.transactions.runner(ID)
    state = shard.transactions[ID].state

    assert [(topic.name, topic.results_by_partition) for topic in answered] == [
        (name, []) for name in names
    ]
    assert state is TransactionState.ONGOING
    assert await _end(house, producer.producer_id) == 0


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (-5, 0), (5, -1)])
async def test_nobodys_markers_are_not_written(house: House, producer_id: int, epoch: int) -> None:
    codes = await _mark(house, (producer_id, epoch, "t", 0, 0), (producer_id, epoch, OFFSETS, 0, 0))
    unknown = await _mark(house, (producer_id, epoch, "u", 0, 0), (producer_id, epoch, "t", 1, 0))

    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert unknown == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    partition = house.rooms.replicas.get("t", 0)
    assert partition is not None
    assert partition.log.log_end_offset == 0


async def test_a_partition_that_is_named_twice_has_one_marker(house: House) -> None:
    wanted = WriteTxnMarkersRequest
    topics = [
        wanted.WritableTxnMarkerTopic("t", [0] * 200),
        wanted.WritableTxnMarkerTopic("u", [0]),
    ]
    marker = wanted.WritableTxnMarker(7, 0, False, topics, 0)
    answer = await ask(house, wanted([marker]), 1)

    (named, unknown) = answer.markers[0].topics
    assert [one.error_code for one in named.partitions] == [0] * 200
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = house.rooms.replicas.get("t", 0)
    assert partition is not None
    assert partition.log.log_end_offset == 1


async def test_offsets_of_nobodys_group_are_refused_where_the_partition_exists(
    house: House,
) -> None:
    asked: Any = TxnOffsetCommitRequest
    topics = [
        asked.TxnOffsetCommitRequestTopic(name, [asked.TxnOffsetCommitRequestPartition(0, 5)])
        for name in ("t", "u")
    ]
    answer = await ask(house, asked(ID, "", 7, 0, topics=topics), 3)

    codes = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
    assert codes == {
        "t": ErrorCode.INVALID_GROUP_ID,
        "u": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


async def test_a_pending_offset_goes_with_its_topic(house: House) -> None:
    producer_id = await _begin(house)
    await ask(house, AddOffsetsToTxnRequest(ID, producer_id, 0, GROUP), 3)
    asked: Any = TxnOffsetCommitRequest
    part = asked.TxnOffsetCommitRequestPartition(0, 5)
    request = asked(
        ID, GROUP, producer_id, 0, topics=[asked.TxnOffsetCommitRequestTopic("t", [part])]
    )
    answer = await ask(house, request, 3)
    assert answer.topics[0].partitions[0].error_code == 0
    await ask(house, DeleteTopicsRequest(topic_names=["t"]), 5)
    await house.create("t")

    assert await _end(house, producer_id) == 0
    _, shard = house.rooms.groups.runner(GROUP)
    assert shard.offsets.get(GROUP, "t", 0) is None


async def test_more_partitions_of_the_coordinators_topic_leave_nothing_open(house: House) -> None:
    producer_id = await _begin(house)
    assert await _write(house, producer_id, 0) == 0
    runner, shard = house.rooms.transactions.runner(ID)
    await _grow(house, "__transaction_state", 7)
    now = runner.now()
    runner.perform(shard.abort_timed_out(now._replace(wall_ms=now.wall_ms + 60_001)))
    async with asyncio.timeout(5):
        while shard.transactions[ID].state is not TransactionState.COMPLETE_ABORT:
            await asyncio.sleep(0)

    assert not _open(house)


@pytest.mark.parametrize(
    ("count", "turns"),
    [
        (MARKERS_PER_TURN, [MARKERS_PER_TURN]),
        (2 * MARKERS_PER_TURN + 1, [MARKERS_PER_TURN, MARKERS_PER_TURN, 1]),
    ],
)
async def test_others_get_the_loop_between_the_markers_of_many_partitions(
    house: House, count: int, turns: list[int]
) -> None:
    await house.create("many", partitions=count)
    producer_id = await _begin(house, "many", count)
    end = asyncio.ensure_future(_end(house, producer_id))

    assert await _turns(house, "many", count, count) == turns
    assert await end == 0
    _, shard = house.rooms.transactions.runner(ID)
    assert shard.transactions[ID].state is TransactionState.EMPTY


async def test_a_stop_amid_the_markers_leaves_the_rest_to_the_next_start(house: House) -> None:
    count = 2 * MARKERS_PER_TURN
    await house.create("many", partitions=count)
    producer_id = await _begin(house, "many", count)
    end = asyncio.ensure_future(ask(house, EndTxnRequest(ID, producer_id, 0, committed=True), 3))
    assert await _turns(house, "many", count, 1) == [MARKERS_PER_TURN]
    house.rooms.transactions.markers.close()
    assert (await end).error_code == 0
    for _ in range(5):
        await asyncio.sleep(0)
    assert _marked(house, "many", count) == MARKERS_PER_TURN
    async with house.restarted() as again:
        await _turns(again, "many", count, count)
