"""Many and large: requests that are right and too many, each within its memory and its limits."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.handlers.auto_create import BATCH_MAX, PENDING_MAX, TOPICS_PER_SECOND
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frame import encode_request
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.configs import DescribeConfigsRequest
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.offsets import ListOffsetsRequest
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.codecs import Codec
from ottla.protocol.records.recompress import recompress
from ottla.protocol.records.record import Record
from ottla.protocol.schema import Message
from ottla.testing.embedded import BrokerThread
from tests.corpus.house import House, opened
from tests.corpus.memory import MIB, growth_at_most

MANY = 100_000
MANY_GROWTH_MAX = 300 * MIB
"""The request, its message, its answer and the answer's message, here and in the broker: all of
them in this process, some 3 KiB for each thing asked."""
INT32_MAX = 2**31 - 1
SLOTS = 50


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(config={"max.incremental.fetch.session.cache.slots": SLOTS}) as running:
        yield running


def _fetch(topic: str, indexes: Iterator[int] | list[int], **request: int) -> FetchRequest:
    partition = FetchRequest.FetchPartition
    asked = [partition(index, partition_max_bytes=INT32_MAX) for index in indexes]
    settings: dict[str, Any] = {
        "max_wait_ms": 0,
        "max_bytes": INT32_MAX,
        "min_bytes": INT32_MAX,
    } | request
    return FetchRequest(topics=[FetchRequest.FetchTopic(topic, partitions=asked)], **settings)


def _frame(message: Message, version: int, correlation_id: int) -> bytes:
    frame, _ = encode_request(message, version, correlation_id=correlation_id, client_id="corpus")
    return bytes(frame)


def test_ten_thousand_requests_in_a_row_are_answered_in_order(house: House) -> None:
    name = house.fresh_name()
    house.create_topic(name)
    offsets = ListOffsetsRequest.ListOffsetsTopic(
        name, [ListOffsetsRequest.ListOffsetsPartition(0, -1, -1)]
    )
    kinds: list[tuple[Message, int]] = [
        (ApiVersionsRequest("corpus", "1"), 3),
        (MetadataRequest([], False), 12),
        (ListOffsetsRequest(-1, 0, [offsets]), 8),
        (_fetch(name, [0]), 12),
        (_fetch("missing", [0]), 12),
    ]
    with house.peer() as peer:
        frames = [_frame(*kinds[number % len(kinds)], number) for number in range(10_000)]
        peer.send_bytes(b"".join(frames))

        for number in range(10_000):
            assert struct.unpack_from(">i", peer.frame()) == (number,)


def test_requests_behind_a_parked_one_wait_unread(house: House) -> None:
    name = house.fresh_name()
    house.create_topic(name)
    parked = _fetch(name, [0], max_wait_ms=INT32_MAX, min_bytes=1)
    with house.peer() as peer:
        # Few enough for the sockets' buffers: the end of a connection comes behind its bytes.
        frames = [_frame(parked, 12, number) for number in range(1000)]
        peer.send_bytes(b"".join(frames))
        partition = house.running.replicas.get(name, 0)
        assert partition is not None
        while not partition.fetch_waiters:
            house.check()  # until they have come, and nobody reads there any more
        house.check()
        assert len(partition.fetch_waiters) == 1

    # Nobody reads from that connection, so the sweep has to find that nothing more comes.
    while len(house.running.server.connections) > 1:
        house.sweep()
    assert not partition.fetch_waiters


def test_frames_of_the_largest_size_are_refused_in_bounds(broker: BrokerThread) -> None:
    """100 MiB of records: read whole, for a request is one frame, then refused and given back."""
    with opened(broker, growth_max=500 * MIB) as house:
        name = house.fresh_name()
        house.create_topic(name)
        records = memoryview(bytes(100 * MIB - 200))
        data = ProduceRequest.PartitionProduceData(0, records)
        topic = ProduceRequest.TopicProduceData(name, partition_data=[data])
        with house.peer() as peer:
            answer: ProduceResponse = peer.request(ProduceRequest(None, -1, 1000, [topic]), 12)
            part = answer.responses[0].partition_responses[0]

            assert part.error_code == ErrorCode.CORRUPT_MESSAGE
            assert peer.works()


@pytest.mark.parametrize(
    ("topic", "indexes"),
    [("there", [0] * MANY), ("there", list(range(1, MANY))), ("missing", list(range(MANY)))],
    ids=["one partition", "partitions that are not", "a topic that is not"],
)
def test_a_fetch_of_very_many_partitions(
    broker: BrokerThread, topic: str, indexes: list[int]
) -> None:
    with opened(broker, growth_max=MANY_GROWTH_MAX) as house, house.peer() as peer:
        if topic == "there":
            topic = house.fresh_name()
            house.create_topic(topic)
        answer: FetchResponse = peer.request(_fetch(topic, indexes), 12)
        expected = {0} if indexes[1] == 0 else {int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}

        assert sum(len(one.partitions) for one in answer.responses) == len(set(indexes))
        assert {part.error_code for one in answer.responses for part in one.partitions} == expected


def test_a_request_of_a_million_elements_ends_its_connection(broker: BrokerThread) -> None:
    """Each would be an object: read whole they took 120 MB and a second."""
    topic = ListOffsetsRequest.ListOffsetsTopic("")
    frame = _frame(ListOffsetsRequest(-1, 0, [topic] * 1_000_000), 1, 1)
    with opened(broker, growth_max=60 * MIB) as house, house.peer() as peer:
        peer.send_bytes(frame)

        assert peer.is_closed()


def test_sessions_are_no_more_than_their_slots(broker: BrokerThread) -> None:
    with opened(broker) as house, house.peer() as peer:
        for number in range(3 * SLOTS):
            peer.request(_fetch(f"missing-{number}", [0, 1], session_epoch=0), 12)

        assert len(house.running.rooms.fetch_sessions) <= SLOTS


def test_very_many_unknown_names_without_creation(broker: BrokerThread) -> None:
    with opened(broker, growth_max=MANY_GROWTH_MAX) as house, house.peer() as peer:
        answer: MetadataResponse = peer.request(_ask(MANY, create=False), 12)

        assert len(answer.topics) == MANY
        assert not house.running.rooms.image.topics.by_name.get("unknown-0")


def test_very_many_unknown_names_are_created_at_a_rate() -> None:
    """Row 30: the names beyond the limit are left alone, and those within it come one by one."""
    with (
        growth_at_most(MANY_GROWTH_MAX),
        BrokerThread() as broker,
        opened(broker, growth_max=MANY_GROWTH_MAX) as house,
        house.peer() as peer,
    ):
        started = time.monotonic()
        answer: MetadataResponse = peer.request(_ask(MANY, create=True), 12)
        unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert {topic.error_code for topic in answer.topics} == {unknown}

        made = house.running.rooms.image.topics.by_name
        while not made:
            assert peer.works()
            made = house.running.rooms.image.topics.by_name
        assert len(made) <= BATCH_MAX + TOPICS_PER_SECOND * (time.monotonic() - started)
        pending = re.search(r"pending=(\d+)", repr(house.running.rooms.auto_creation))
        assert pending is not None
        assert 0 < int(pending[1]) <= PENDING_MAX


def _ask(count: int, *, create: bool) -> MetadataRequest:
    names = [MetadataRequest.MetadataRequestTopic(name=f"unknown-{n}") for n in range(count)]
    return MetadataRequest(names, create)


def test_an_answer_beyond_what_clients_read_ends_its_connection(broker: BrokerThread) -> None:
    """Any name is a group that can be described: 2 MB that ask for 200 MB."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = [resource(32, f"group-that-nobody-knows-{number}") for number in range(60_000)]
    with opened(broker, growth_max=250 * MIB) as house, house.peer() as peer:
        peer.send(DescribeConfigsRequest(asked, True, True), 4)

        assert peer.is_closed()
        assert house.running.server.metrics.closed_by_reason["response_too_large"] == 1


def test_batches_that_hold_sixty_megabytes_are_converted_one_at_a_time(
    broker: BrokerThread,
) -> None:
    """3 KB each on the wire; four at once, with what decompressing copies, took half a gigabyte."""
    records = [Record(number, 1_700_000_000_000, None, bytes(MIB)) for number in range(60)]
    bomb = memoryview(recompress(build_batch(records), Codec.ZSTD))
    del records
    assert len(bomb) < 10_000
    with opened(broker, growth_max=250 * MIB) as house:
        name = house.fresh_name()
        house.create_topic(name, {"compression.type": "lz4"}, partitions=12)
        peers = [house.peer() for _ in range(12)]
        for index, peer in enumerate(peers):
            data = ProduceRequest.PartitionProduceData(index, bomb)
            topic = ProduceRequest.TopicProduceData(name, partition_data=[data])
            peer.send(ProduceRequest(None, -1, 60_000, [topic]), 12)
        house.check()
        for peer in peers:
            answer: ProduceResponse = peer.receive()
            assert answer.responses[0].partition_responses[0].error_code == 0
            peer.close()
