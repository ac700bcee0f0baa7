"""kafka-python."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from tests.conformance.transactional import commands
from tests.conformance.transactional.commands import ANSWER_SECONDS_MAX, END, TAKE, Values

SILENCE_MS_MAX = 30_000


class Pure:
    def __init__(self, bootstrap: str, name: str) -> None:
        self._bootstrap = bootstrap
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=name,
            max_block_ms=ANSWER_SECONDS_MAX * 1000,
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, values: list[str]) -> None:
        answers = [
            self._producer.send(topic, value.encode(), partition=partition) for value in values
        ]
        self._producer.flush(ANSWER_SECONDS_MAX)
        for answer in answers:
            answer.get(0)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def read(self, topic: str, partitions: int, *, committed: bool) -> Values:
        consumer = self._consumer(None, committed=committed)
        consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
        consumer.seek_to_beginning()
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
            offsets = {
                place: OffsetAndMetadata(consumer.position(place), "", -1)
                for place in consumer.assignment()
            }
            self._producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            if aborted:
                self.commit()
                ended += sum(value == END for _partition, value in taken)
            else:
                self.abort()
                aborted = True
                for place in consumer.assignment():
                    consumer.seek(place, consumer.committed(place) or 0)
        consumer.close()

    def _consumer(self, group: str | None, *, committed: bool) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=group,
            isolation_level="read_committed" if committed else "read_uncommitted",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=TAKE,
        )


def _taken(consumer: Any) -> Values:
    """The next values, one at least."""
    found = consumer.poll(timeout_ms=SILENCE_MS_MAX)
    assert found, "nothing more comes"
    return [(one.partition, one.value.decode()) for batch in found.values() for one in batch]


if __name__ == "__main__":
    commands.run(Pure, KafkaError)
