"""confluent-kafka (librdkafka)."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.conformance.transactional import commands
from tests.conformance.transactional.commands import ANSWER_SECONDS_MAX, END, TAKE, Values

SILENCE_SECONDS_MAX = 30.0


class Confluent:
    def __init__(self, bootstrap: str, name: str) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._failed: list[Any] = []
        self._producer.init_transactions(ANSWER_SECONDS_MAX)

    def begin(self) -> None:
        self._failed.clear()
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, values: list[str]) -> None:
        for value in values:
            self._producer.produce(topic, value, partition=partition, on_delivery=self._delivered)
        self._producer.flush(ANSWER_SECONDS_MAX)
        if self._failed:
            raise KafkaException(self._failed[0])

    def commit(self) -> None:
        self._producer.commit_transaction(ANSWER_SECONDS_MAX)

    def abort(self) -> None:
        self._producer.abort_transaction(ANSWER_SECONDS_MAX)

    def read(self, topic: str, partitions: int, *, committed: bool) -> Values:
        consumer = self._consumer("reader", committed=committed)
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        values: Values = []
        while sum(value == END for _partition, value in values) < partitions:
            values += _taken(consumer)
        consumer.close()
        return values

    def transform(self, source: str, sink: str, group: str, partitions: int) -> None:
        consumer = self._consumer(group, committed=True)
        consumer.subscribe([source])
        aborted, ended = False, 0
        while ended < partitions:
            taken = _taken(consumer)
            self.begin()
            self.send(sink, 0, [f"{value}'" for _partition, value in taken])
            offsets = consumer.position(consumer.assignment())
            self._producer.send_offsets_to_transaction(
                [place for place in offsets if place.offset >= 0],
                consumer.consumer_group_metadata(),
                ANSWER_SECONDS_MAX,
            )
            if aborted:
                self.commit()
                ended += sum(value == END for _partition, value in taken)
            else:
                self.abort()
                aborted = True
                for place in consumer.committed(consumer.assignment(), ANSWER_SECONDS_MAX):
                    offset = max(place.offset, 0)
                    consumer.seek(TopicPartition(place.topic, place.partition, offset))
        consumer.close()

    def _consumer(self, group: str, *, committed: bool) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )

    def _delivered(self, error: object, _message: Message) -> None:
        if error is not None:
            self._failed.append(error)


def _taken(consumer: Consumer) -> Values:
    """The next values, one at least."""
    first = consumer.consume(1, SILENCE_SECONDS_MAX)
    assert first, "nothing more comes"
    values: Values = []
    for message in first + consumer.consume(TAKE - 1, 0.05):
        error, partition, value = message.error(), message.partition(), message.value()
        if error is not None:
            raise KafkaException(error)
        assert partition is not None
        assert value is not None
        values.append((partition, bytes(value).decode()))
    return values


if __name__ == "__main__":
    commands.run(Confluent, KafkaException)
