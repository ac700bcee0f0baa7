"""aiokafka."""

from __future__ import annotations

import asyncio
import contextlib
import signal

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from tests.conformance.members import lines


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        lines.assigned(one.partition for one in assigned)

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        lines.revoked(one.partition for one in revoked)


async def _main() -> None:
    told = lines.arguments()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=told.bootstrap,
        group_id=told.group,
        group_instance_id=told.instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=lines.SESSION_MS,
        heartbeat_interval_ms=lines.HEARTBEAT_MS,
    )
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await consumer.start()
    consumer.subscribe([told.topic], listener=Listener())
    while not stopped.is_set():
        found = await consumer.getmany(timeout_ms=round(lines.POLL_S * 1000))
        at = [(one.partition, one.offset) for batch in found.values() for one in batch]
        if at:
            with contextlib.suppress(KafkaError):  # a rebalance: the records come again
                await consumer.commit()
                lines.read(at)
    await consumer.stop()


if __name__ == "__main__":
    asyncio.run(_main())
