"""aiokafka."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.conformance.transactional import commands
from tests.conformance.transactional.commands import ANSWER_SECONDS_MAX, END, TAKE, Values

SILENCE_MS_MAX = 30_000
T = TypeVar("T")


class Aio:
    """The client lives on the loop of a thread of its own, since it works between commands, too."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._bootstrap = bootstrap
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._producer = self._do(self._started(name))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_SECONDS_MAX)

    async def _started(self, name: str) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, transactional_id=name)
        await producer.start()
        return producer

    def begin(self) -> None:
        self._do(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, values: list[str]) -> None:
        self._do(self._send(topic, partition, values))

    async def _send(self, topic: str, partition: int, values: list[str]) -> None:
        answers = [
            await self._producer.send(topic, value.encode(), partition=partition)
            for value in values
        ]
        await asyncio.gather(*answers)

    def commit(self) -> None:
        self._do(self._producer.commit_transaction())

    def abort(self) -> None:
        self._do(self._producer.abort_transaction())

    def read(self, topic: str, partitions: int, *, committed: bool) -> Values:
        return self._do(self._read(topic, partitions, committed=committed))

    async def _read(self, topic: str, partitions: int, *, committed: bool) -> Values:
        consumer = self._consumer(None, committed=committed)
        await consumer.start()
        consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
        await consumer.seek_to_beginning()
        values: Values = []
        while sum(value == END for _partition, value in values) < partitions:
            values += await _taken(consumer)
        await consumer.stop()
        return values

    def transform(self, source: str, sink: str, group: str, partitions: int) -> None:
        self._do(self._transform(source, sink, group, partitions))

    async def _transform(self, source: str, sink: str, group: str, partitions: int) -> None:
        consumer, producer = self._consumer(group, committed=True), self._producer
        await consumer.start()
        consumer.subscribe([source])
        aborted, ended = False, 0
        while ended < partitions:
            taken = await _taken(consumer)
            await producer.begin_transaction()
            await self._send(sink, 0, [f"{value}'" for _partition, value in taken])
            offsets = {place: await consumer.position(place) for place in consumer.assignment()}
            await producer.send_offsets_to_transaction(offsets, group)
            if aborted:
                await producer.commit_transaction()
                ended += sum(value == END for _partition, value in taken)
            else:
                await producer.abort_transaction()
                aborted = True
                for place in consumer.assignment():
                    consumer.seek(place, await consumer.committed(place) or 0)
        await consumer.stop()

    def _consumer(self, group: str | None, *, committed: bool) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=group,
            isolation_level="read_committed" if committed else "read_uncommitted",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=TAKE,
        )


async def _taken(consumer: AIOKafkaConsumer) -> Values:
    """The next values, one at least."""
    found = await consumer.getmany(timeout_ms=SILENCE_MS_MAX)
    assert found, "nothing more comes"
    return [(one.partition, one.value.decode()) for batch in found.values() for one in batch]


if __name__ == "__main__":
    commands.run(Aio, KafkaError, TimeoutError)
