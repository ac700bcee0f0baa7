"""kafka-python."""

from __future__ import annotations

import contextlib

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from tests.conformance.members import lines


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        lines.assigned(one.partition for one in assigned)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        lines.revoked(one.partition for one in revoked)


def main() -> None:
    told = lines.arguments()
    consumer = KafkaConsumer(
        bootstrap_servers=told.bootstrap,
        group_id=told.group,
        group_instance_id=told.instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=lines.SESSION_MS,
        heartbeat_interval_ms=lines.HEARTBEAT_MS,
    )
    consumer.subscribe([told.topic], listener=Listener())
    try:
        while True:
            found = consumer.poll(timeout_ms=round(lines.POLL_S * 1000))
            at = [(one.partition, one.offset) for batch in found.values() for one in batch]
            if at:
                with contextlib.suppress(KafkaError):  # a rebalance: the records come again
                    consumer.commit()
                    lines.read(at)
    except lines.Stopped:
        consumer.close()


if __name__ == "__main__":
    main()
