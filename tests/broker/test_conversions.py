"""Topics with a codec, keys or times of their own: what librdkafka sends comes back equal, and the
batches in the log are what the topic says.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.records.batch import BatchHeader, check_crc, iterate_headers
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.codecs import Codec
from ottla.protocol.records.record import Record
from ottla.testing.embedded import BrokerThread
from tests.corpus.house import House, opened

CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
SENT_AS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 200
SECONDS_MAX = 20.0
LONG_AGO_MS = 1_000_000_000_000

Sent = tuple[bytes, bytes, list[tuple[str, bytes]]]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as running:
        yield running


@pytest.fixture
def house(broker: BrokerThread) -> Iterator[House]:
    with opened(broker) as house:
        yield house


def _records() -> list[Sent]:
    return [
        (b"key-%d" % n, b"value %d " % n * 20, [("name", b"x" * (n % 7)), ("", b"")])
        for n in range(COUNT)
    ]


def _produce(house: House, topic: str, partition: int, codec: str) -> None:
    failed: list[str] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": house.broker.bootstrap_servers,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 20,
        }
    )
    for key, value, headers in _records():
        producer.produce(
            topic, value, key, partition=partition, headers=list(headers), on_delivery=delivered
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert failed == []


def _consume(house: House, topic: str, partition: int) -> list[Sent]:
    consumer = Consumer(
        {
            "bootstrap.servers": house.broker.bootstrap_servers,
            "group.id": "conversions",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[Sent] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < COUNT and time.monotonic() < deadline:
        for message in consumer.consume(COUNT, 0.5):
            assert message.error() is None
            headers = cast("list[tuple[str, bytes]]", message.headers())
            found.append((cast(bytes, message.key()), cast(bytes, message.value()), headers))
    consumer.close()
    return found


def _batches(house: House, topic: str, partition: int = 0) -> list[BatchHeader]:
    asked = FetchRequest.FetchPartition(partition, partition_max_bytes=16 << 20)
    request = FetchRequest(
        max_wait_ms=0, topics=[FetchRequest.FetchTopic(topic, partitions=[asked])]
    )
    with house.peer() as peer:
        answer: FetchResponse = peer.request(request, 12)
    records = cast(memoryview, answer.responses[0].partitions[0].records)
    headers = []
    for position, header in iterate_headers(records):
        assert check_crc(records[position : position + header.size])
        headers.append(header)
    return headers


def _send(house: House, topic: str, records: bytearray) -> ProduceResponse.PartitionProduceResponse:
    data = ProduceRequest.PartitionProduceData(0, memoryview(records))
    request = ProduceRequest(
        None, -1, 5000, [ProduceRequest.TopicProduceData(topic, partition_data=[data])]
    )
    with house.peer() as peer:
        answer: ProduceResponse = peer.request(request, 12)
    return answer.responses[0].partition_responses[0]


@pytest.mark.parametrize("kept_as", CODECS)
def test_a_topic_with_a_codec_keeps_all_in_it(house: House, kept_as: str) -> None:
    topic = house.fresh_name(f"{kept_as}-")
    house.create_topic(topic, {"compression.type": kept_as}, partitions=len(SENT_AS))
    producers = [
        threading.Thread(target=_produce, args=(house, topic, index, codec))
        for index, codec in enumerate(SENT_AS)
    ]
    for one in producers:
        one.start()
    for one in producers:
        one.join()

    for index in range(len(SENT_AS)):
        batches = _batches(house, topic, index)
        assert {header.codec for header in batches} == {CODECS[kept_as]}
        assert sum(header.record_count for header in batches) == COUNT
        assert all(header.producer_id >= 0 for header in batches)
        assert _consume(house, topic, index) == _records()


@pytest.mark.parametrize("codec", CODECS)
def test_a_topic_without_a_codec_keeps_what_came(house: House, codec: str) -> None:
    topic = house.fresh_name("producer-")
    house.create_topic(topic)
    batch = build_batch([Record(0, LONG_AGO_MS, b"k", b"v" * 200)] * 5, codec=CODECS[codec])
    sent = bytes(batch)

    assert _send(house, topic, batch).error_code == 0
    (stored,) = _batches(house, topic)
    assert stored.codec == CODECS[codec]
    assert stored.size == len(sent)


def test_a_codec_may_change_while_batches_come(house: House) -> None:
    """Batches keep their order, whichever of them wait for a worker."""
    topic = house.fresh_name("mixed-")
    house.create_topic(topic, {"compression.type": "zstd"})
    with house.peer() as peer:
        for number in range(60):
            codec = Codec.ZSTD if number % 3 else Codec.GZIP
            record = Record(0, LONG_AGO_MS, b"k", b"%d" % number * 400)
            batch = build_batch(
                [record], codec=codec, producer_id=7, producer_epoch=0, base_sequence=number
            )
            data = ProduceRequest.PartitionProduceData(0, memoryview(batch))
            request = ProduceRequest.TopicProduceData(topic, partition_data=[data])
            peer.send(ProduceRequest(None, -1, 5000, [request]), 12)
        answers: list[ProduceResponse] = [peer.receive() for _ in range(60)]

    parts = [answer.responses[0].partition_responses[0] for answer in answers]
    assert [part.error_code for part in parts] == [0] * 60
    assert [part.base_offset for part in parts] == list(range(60))
    assert [header.base_sequence for header in _batches(house, topic)] == list(range(60))
    assert {header.codec for header in _batches(house, topic)} == {Codec.ZSTD}


def test_a_recompressed_batch_that_comes_again_is_not_doubled(house: House) -> None:
    topic = house.fresh_name("again-")
    house.create_topic(topic, {"compression.type": "lz4"})

    def batch() -> bytearray:
        return build_batch(
            [Record(0, LONG_AGO_MS, b"k", b"v" * 100)] * 3,
            codec=Codec.GZIP,
            producer_id=9,
            producer_epoch=0,
            base_sequence=0,
        )

    first = _send(house, topic, batch())
    again = _send(house, topic, batch())

    assert (first.error_code, first.base_offset) == (0, 0)
    assert (again.error_code, again.base_offset) == (0, 0)
    assert len(_batches(house, topic)) == 1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_records_without_keys_are_refused_by_name_on_compacted_topics(
    house: House, codec: Codec
) -> None:
    topic = house.fresh_name("compacted-")
    house.create_topic(topic, {"cleanup.policy": "compact", "compression.type": "gzip"})
    now_ms = time.time_ns() // 1_000_000
    keys = (b"a", None, b"b", None, b"")
    part = _send(house, topic, build_batch([Record(0, now_ms, k, b"v") for k in keys], codec=codec))

    assert part.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in part.record_errors] == [1, 3]
    assert part.error_message is not None
    assert part.error_message.startswith("One or more records have been rejected due to 2 record")
    assert _batches(house, topic) == []
    good = _send(house, topic, build_batch([Record(0, now_ms, b"", b"v")], codec=codec))
    assert good.error_code == 0


@pytest.mark.parametrize("kept_as", ["producer", "zstd"])
def test_log_append_time_is_the_brokers(house: House, kept_as: str) -> None:
    topic = house.fresh_name("append-time-")
    settings = {"message.timestamp.type": "LogAppendTime", "compression.type": kept_as}
    house.create_topic(topic, settings)
    before_ms = time.time_ns() // 1_000_000
    part = _send(house, topic, build_batch([Record(0, LONG_AGO_MS, b"k", b"v")] * 3))
    after_ms = time.time_ns() // 1_000_000

    assert part.error_code == 0
    assert before_ms <= part.log_append_time_ms <= after_ms
    (header,) = _batches(house, topic)
    assert header.is_log_append_time
    assert header.max_timestamp == part.log_append_time_ms
    assert header.base_timestamp == LONG_AGO_MS
    assert header.codec == (Codec.NONE if kept_as == "producer" else Codec.ZSTD)


def test_a_batch_that_is_too_large_once_it_is_plain_is_refused(house: House) -> None:
    topic = house.fresh_name("plain-")
    house.create_topic(topic, {"compression.type": "uncompressed"})
    batch = build_batch([Record(0, LONG_AGO_MS, b"k", bytes(2_000_000))], codec=Codec.ZSTD)

    assert _send(house, topic, batch).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert _batches(house, topic) == []


@pytest.mark.parametrize("key", [b"k", None])
def test_a_refusal_without_an_answer_ends_the_connection(house: House, key: bytes | None) -> None:
    """acks=0: the client hears of nothing else, and asks for metadata when it is cut off."""
    topic = house.fresh_name("silent-")
    house.create_topic(topic, {"cleanup.policy": "compact"})
    batch = build_batch([Record(0, LONG_AGO_MS, key, b"v" * 100)] * 3, codec=Codec.GZIP)
    data = ProduceRequest.PartitionProduceData(0, memoryview(batch))
    request = ProduceRequest.TopicProduceData(topic, partition_data=[data])
    with house.peer() as peer:
        peer.send(ProduceRequest(None, 0, 5000, [request]), 12, answered=False)
        if key is None:
            assert peer.is_closed()
        else:
            again = peer.request(ProduceRequest(None, -1, 5000, [request]), 12)
            assert again.responses[0].partition_responses[0].base_offset == 3
