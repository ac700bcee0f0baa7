"""aiokafka."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.conformance.python import arguments
from tests.conformance.records import CODECS, PARTITIONS, Digest, records_of

SILENCE_SECONDS_MAX = 30.0


async def _produce(bootstrap: str, topic: str, count: int) -> None:
    for codec in CODECS:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec
        )
        await producer.start()
        answers = [
            await producer.send(topic, item.value, item.key, item.partition, headers=item.headers)
            for item in records_of(codec, count)
        ]
        await asyncio.gather(*answers)
        await producer.stop()


async def _consume(bootstrap: str, topic: str, count: int) -> list[str]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False
    )
    await consumer.start()
    partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    consumer.assign(partitions)
    for partition in partitions:
        consumer.seek(partition, 0)
    digest = Digest()
    for _ in range(count):
        async with asyncio.timeout(SILENCE_SECONDS_MAX):
            message = await consumer.getone()
        digest.add(message.partition, message.offset, message.key, message.value, message.headers)
    await consumer.stop()
    return digest.hex()


def produce(bootstrap: str, topic: str, count: int) -> None:
    asyncio.run(_produce(bootstrap, topic, count))


def consume(bootstrap: str, topic: str, count: int) -> list[str]:
    return asyncio.run(_consume(bootstrap, topic, count))


if __name__ == "__main__":
    arguments.run(produce, consume)
