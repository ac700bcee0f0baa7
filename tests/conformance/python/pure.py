"""kafka-python."""

from __future__ import annotations

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.conformance.python import arguments
from tests.conformance.records import CODECS, PARTITIONS, Digest, records_of

SILENCE_MS_MAX = 30_000


def produce(bootstrap: str, topic: str, count: int) -> None:
    for codec in CODECS:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec
        )
        answers = [
            producer.send(topic, item.value, item.key, item.headers, item.partition)
            for item in records_of(codec, count)
        ]
        producer.flush(60)
        for answer in answers:
            answer.get(0)
        producer.close()


def consume(bootstrap: str, topic: str, count: int) -> list[str]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        enable_auto_commit=False,
        consumer_timeout_ms=SILENCE_MS_MAX,
    )
    partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    consumer.assign(partitions)
    for partition in partitions:
        consumer.seek(partition, 0)
    digest = Digest()
    read = 0
    while read < count:
        message = next(consumer)
        digest.add(message.partition, message.offset, message.key, message.value, message.headers)
        read += 1
    consumer.close()
    return digest.hex()


if __name__ == "__main__":
    arguments.run(produce, consume)
