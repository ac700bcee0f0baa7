"""confluent-kafka (librdkafka)."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.conformance.members import lines


def main() -> None:
    told = lines.arguments()
    settings: dict[str, Any] = {
        "bootstrap.servers": told.bootstrap,
        "group.id": told.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    if told.is_classic:
        settings["session.timeout.ms"] = lines.SESSION_MS
        settings["heartbeat.interval.ms"] = lines.HEARTBEAT_MS
    else:
        settings["group.protocol"] = "consumer"
    if told.instance is not None:
        settings["group.instance.id"] = told.instance
    consumer = Consumer(settings)

    def on_assign(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
        lines.assigned(one.partition for one in partitions)

    def on_revoke(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
        lines.revoked(one.partition for one in partitions)

    consumer.subscribe([told.topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
    try:
        while True:
            _read(consumer)
    except lines.Stopped:
        consumer.close()


def _read(consumer: Consumer) -> None:
    messages = consumer.consume(500, lines.POLL_S)
    at: list[tuple[int, int]] = []
    for message in messages:
        partition, offset = message.partition(), message.offset()
        if message.error() is None and partition is not None and offset is not None:
            at.append((partition, offset))
    if not at:
        return
    try:
        consumer.commit(asynchronous=False)
    except KafkaException:
        return  # a rebalance, or no broker: the records come again
    lines.read(at)


if __name__ == "__main__":
    main()
