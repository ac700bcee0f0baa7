"""Rows 16 to 27: every bad batch gets its answer, what is accepted comes back as it was sent."""

from __future__ import annotations

import time
from typing import cast

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.records.record import RECORDS_SIZE_MAX
from ottla.testing.embedded import BrokerThread
from tests.corpus.house import GROWTH_MAX, House, opened
from tests.corpus.peer import Peer
from tests.corpus.records import ROWS, TOPIC_CONFIGS, Outcome, Row, Send, Topic

DECOMPRESSED_GROWTH_MAX = 2 * RECORDS_SIZE_MAX + 2 * GROWTH_MAX
"""Where records are decompressed, their limit bounds the memory: the last buffer and its copy."""

Part = ProduceResponse.PartitionProduceResponse


def _name(house: House, topic: Topic) -> str:
    if topic is Topic.INTERNAL and topic.value not in house.running.rooms.image.topics.by_name:
        house.create_topic(topic.value)
    if topic not in TOPIC_CONFIGS:
        return topic.value
    name = house.fresh_name(topic.value)
    house.create_topic(name, TOPIC_CONFIGS[topic])
    return name


def _request(name: str, send: Send, records: bytes | bytearray | None) -> ProduceRequest:
    partition = ProduceRequest.PartitionProduceData(
        send.partition, None if records is None else memoryview(records)
    )
    return ProduceRequest(
        send.transactional_id,
        send.acks,
        30_000,
        [ProduceRequest.TopicProduceData(name, partition_data=[partition])],
    )


def _stored(peer: Peer, name: str, offset: int) -> bytes:
    partition = FetchRequest.FetchPartition(0, fetch_offset=offset, partition_max_bytes=4 << 20)
    topic = FetchRequest.FetchTopic(name, partitions=[partition])
    answer: FetchResponse = peer.request(
        FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=4 << 20, topics=[topic]), 12
    )
    part = answer.responses[0].partitions[0]
    assert part.error_code == 0
    return bytes(cast(memoryview, part.records))


def _judge(peer: Peer, name: str, send: Send, sent: bytes, part: Part) -> None:
    assert ErrorCode(part.error_code) is send.expected, part.error_message
    assert tuple(error.batch_index for error in part.record_errors) == send.record_errors
    if send.reaches_log is not None:
        assert (part.log_start_offset == 0) is send.reaches_log
    if send.base_offset is not None:
        assert part.base_offset == send.base_offset
    if send.expected is ErrorCode.NONE:
        stored = _stored(peer, name, part.base_offset)
        assert int.from_bytes(stored[:8], "big") == part.base_offset
        assert send.stored is None or send.stored(sent, stored)
    else:
        assert part.base_offset == -1


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(broker: BrokerThread, row: Row) -> None:
    growth_max = DECOMPRESSED_GROWTH_MAX if row.topic is Topic.COMPACTED else GROWTH_MAX
    with opened(broker, growth_max=growth_max) as house, house.peer() as peer:
        name = _name(house, row.topic)
        for send in row.sends:
            records = send.records(time.time_ns() // 1_000_000)
            answered = isinstance(send.expected, ErrorCode)
            peer.send(_request(name, send, records), send.version, answered=answered)
            if send.expected is Outcome.CLOSED:
                assert peer.is_closed()
            elif send.expected is Outcome.SILENT:
                assert peer.works()
            else:
                answer: ProduceResponse = peer.receive()
                (part,) = answer.responses[0].partition_responses
                _judge(peer, name, send, bytes(records or b""), part)
