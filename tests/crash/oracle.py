"""What the log must say after the crashes, given what the writers were told."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from confluent_kafka import Consumer, TopicPartition

from tests.crash.writers import Journal, counter_of

SILENCE_SECONDS_MAX = 30.0
SHOWN_MAX = 5

# (name of the writer, its counter) of each record of a partition, by offset.
Partition = dict[int, tuple[str, int]]


def read(bootstrap: str, topic: str, partitions: int) -> list[Partition]:
    """Every record of a topic, up to the high watermark of now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "crash",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    wanted = {}
    for number in range(partitions):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), 30)
        assert low == 0
        wanted[number] = high
    found: list[Partition] = [{} for _ in range(partitions)]
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    left = sum(wanted.values())
    while left > 0:
        messages = consumer.consume(min(1000, left), SILENCE_SECONDS_MAX)
        assert messages, f"{left} records of {topic} below the high watermark do not come"
        for message in messages:
            assert message.error() is None, message.error()
            place = message.partition(), message.offset()
            value = message.value()
            assert place[0] is not None
            assert place[1] is not None
            assert isinstance(value, bytes)
            found[place[0]][place[1]] = counter_of(value)
        left -= len(messages)
    consumer.close()
    return found


def _dense(topic: str, number: int, partition: Partition) -> list[str]:
    if list(partition) == list(range(len(partition))):
        return []
    holes = sorted(set(range(len(partition))) - set(partition))[:SHOWN_MAX]
    return [f"{topic}-{number}: offsets are not dense, first holes {holes}"]


def _kept(journal: Journal, partitions: list[Partition]) -> list[str]:
    """Complaints about acknowledged records that are missing or lie elsewhere."""
    present = [set(partition.values()) for partition in partitions]
    wrong = []
    for told in journal.acknowledged:
        record = (journal.name, told.counter)
        partition = partitions[told.partition]
        if record not in present[told.partition]:
            wrong.append(f"{journal.name} {told.counter} was acknowledged and is missing")
        elif told.offset >= 0 and partition.get(told.offset) != record:
            wrong.append(
                f"{journal.name} {told.counter} was acknowledged at offset {told.offset}, "
                f"where {partition.get(told.offset)} is"
            )
    return wrong


def _once_in_order(journal: Journal, number: int, partition: Partition) -> list[str]:
    counters = [counter for name, counter in partition.values() if name == journal.name]
    doubled = [counter for counter, times in Counter(counters).items() if times > 1]
    wrong = [f"{journal.name} {counter} is in the log more than once" for counter in doubled]
    if not doubled and any(before >= after for before, after in pairwise(counters)):
        wrong.append(f"{journal.name}: partition {number} is out of order")
    return wrong


def complaints(journals: list[Journal], topic: str, partitions: list[Partition]) -> list[str]:
    """Everything that is wrong with a topic, a few lines for each kind."""
    wrong: list[str] = []
    for number, partition in enumerate(partitions):
        wrong += _dense(topic, number, partition)
    for journal in journals:
        wrong += journal.failures
        wrong += _kept(journal, partitions)[:SHOWN_MAX]
        if journal.exactly_once:
            for number, partition in enumerate(partitions):
                wrong += _once_in_order(journal, number, partition)[:SHOWN_MAX]
        if len(journal.acknowledged) != journal.sent and not journal.failures:
            wrong.append(
                f"{journal.name}: {journal.sent} sent, {len(journal.acknowledged)} acknowledged"
            )
    return wrong


def doubled(journal: Journal, partitions: list[Partition]) -> int:
    """How many records of a writer are in the log more than once."""
    counts = Counter(record for partition in partitions for record in partition.values())
    return sum(times - 1 for (name, _), times in counts.items() if name == journal.name)
