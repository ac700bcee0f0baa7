"""confluent-kafka (librdkafka)."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.conformance.python import arguments
from tests.conformance.records import CODECS, PARTITIONS, Digest, Headers, records_of

SILENCE_SECONDS_MAX = 30.0


def produce(bootstrap: str, topic: str, count: int) -> None:
    failed: list[str] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(str(error))

    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
        for item in records_of(codec, count):
            producer.produce(
                topic,
                item.value,
                item.key,
                item.partition,
                headers=list[tuple[str, str | bytes | None]](item.headers),
                on_delivery=delivered,
            )
            producer.poll(0)
        assert producer.flush(60) == 0, "records are left unanswered"
    assert not failed, failed[:3]


def consume(bootstrap: str, topic: str, count: int) -> list[str]:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "conformance",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    digest = Digest()
    read = 0
    while read < count:
        messages = consumer.consume(min(1000, count - read), SILENCE_SECONDS_MAX)
        assert messages, f"nothing more after {read} of {count} records"
        for message in messages:
            _add(digest, message)
        read += len(messages)
    consumer.close()
    return digest.hex()


def _add(digest: Digest, message: Message) -> None:
    assert message.error() is None, message.error()
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    key, value = message.key(), message.value()
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    headers: Headers = []
    found = message.headers() or []
    assert isinstance(found, list)
    for name, content in found:
        assert not isinstance(content, str)
        headers.append((name, content))
    digest.add(partition, offset, key, value, headers)


if __name__ == "__main__":
    arguments.run(produce, consume)
