"""Apache Kafka's TransactionsCommand against a broker: an open transaction seen, and aborted.

It is aborted twice: in its partition, as one that hangs, of which its coordinator learns nothing,
and by its coordinator. That it hangs the command does not believe, though its records are old
enough for that, since the coordinator says that it is going on.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conformance import command_process
from tests.conformance.command_process import TOOLS, Row, among, whole
from tests.peers import topics

TOPIC = "opened-for-commands"
NAME = "opened-for-commands"
PLACE = ("--topic", TOPIC, "--partition", "0")
COMMAND = f"{TOOLS}.TransactionsCommand"
HOUR_MS = 3_600_000


def _open(bootstrap: str, timestamp: int) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": NAME, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, b"open", partition=0, timestamp=timestamp)
    assert producer.flush(30) == 0
    return producer


def _last_stable_offset(bootstrap: str) -> int:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": NAME,
        "isolation.level": "read_committed",
        "log_level": 0,
    }
    consumer = Consumer(settings)
    _low, stable = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), 20)
    consumer.close()
    return stable


def _described(rest: str) -> Row:
    return whole(
        (COMMAND, "describe", "--transactional-id", NAME),
        "CoordinatorId TransactionalId ProducerId ProducerEpoch TransactionState "
        "TransactionTimeoutMs CurrentTransactionStartTimeMs TransactionDurationMs TopicPartitions",
        f"1 {NAME} ... {rest}",
    )


def _while_open(hour_ago: int) -> list[Row]:
    """It is listed and described, in its partition, too."""
    listing = (COMMAND, "list", "--transactional-id-pattern")
    columns = "TransactionalId Coordinator ProducerId TransactionState"
    return [
        whole((*listing, "opened.*"), columns, f"{NAME} 1 ... Ongoing"),
        whole((*listing, "closed.*"), columns),
        _described(f"0 Ongoing 60000 ... {TOPIC}-0"),
        whole(
            (COMMAND, "describe-producers", *PLACE),
            "ProducerId ProducerEpoch LatestCoordinatorEpoch LastSequence LastTimestamp "
            "CurrentTransactionStartOffset",
            f"... 0 -1 0 {hour_ago} 0",
        ),
        among((COMMAND, "find-hanging", "--broker-id", "1"), lacks=TOPIC),
    ]


def run(bootstrap: str) -> None:
    """Raises an error if a command fails, or says something else than is so."""
    topics.create(bootstrap, {TOPIC: 1})
    hour_ago = round(time.time() * 1000) - HOUR_MS
    producer = _open(bootstrap, hour_ago)
    with command_process.opened(bootstrap) as commands:
        commands.check(*_while_open(hour_ago))
        assert _last_stable_offset(bootstrap) == 0
        commands.check(whole((COMMAND, "abort", *PLACE, "--start-offset", "0")))
        assert _last_stable_offset(bootstrap) == 2, "the transaction is open in its partition"
        ending = (COMMAND, "forceTerminateTransaction", "--transactionalId", NAME)
        commands.check(whole(ending), _described("2 Empty 30000 None None"))
    del producer  # which has had to live so long
