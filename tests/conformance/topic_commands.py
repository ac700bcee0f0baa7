"""Apache Kafka's kafka-topics: a topic made, described, widened, refused, and gone."""

from __future__ import annotations

from tests.conformance.command_process import TOPICS, Row, among, refused, whole

RETENTION_MS = 86_400_000


def _described(name: str, partitions: int) -> Row:
    own = (
        f"PartitionCount: {partitions} ReplicationFactor: 1 Configs:...retention.ms={RETENTION_MS}"
    )
    return whole(
        (TOPICS, "--describe", "--topic", name),
        f"Topic: {name} TopicId: ... {own}",
        *(
            f"Topic: {name} Partition: {index} Leader: 1 Replicas: 1 Isr: 1 Elr: LastKnownElr:"
            for index in range(partitions)
        ),
    )


def rows(name: str) -> list[Row]:
    """From its making to its end; a broker may list it for a moment longer."""
    named = ("--topic", name)
    create = (TOPICS, "--create", *named, "--partitions", "2", "--replication-factor", "1")
    error = "Error while executing topic command :"
    return [
        whole((*create, "--config", f"retention.ms={RETENTION_MS}"), f"Created topic {name}."),
        _described(name, 2),
        among((TOPICS, "--list"), name),
        among((TOPICS, "--describe", "--topics-with-overrides"), f"Topic: {name} ..."),
        whole((TOPICS, "--describe", "--unavailable-partitions")),
        whole((TOPICS, "--describe", "--under-replicated-partitions")),
        refused(create, f"{error} Topic '{name}' already exists."),
        whole((*create, "--if-not-exists")),
        whole((TOPICS, "--alter", *named, "--partitions", "5")),
        _described(name, 5),
        refused(
            (TOPICS, "--alter", *named, "--partitions", "1"),
            f"{error} The topic {name} currently has 5 partition(s); 1 would not be an increase.",
        ),
        refused(
            (TOPICS, "--delete", "--topic", "unknown"),
            f"{error} Topic 'unknown' does not exist as expected",
        ),
        whole((TOPICS, "--delete", *named)),
    ]
