"""Apache Kafka's TransactionsCommand against a broker: an open transaction seen, and aborted.

It is aborted twice: in its partition, as one that hangs, of which its coordinator learns nothing,
and by its coordinator. That it hangs the command does not believe, though its records are old
enough for that, since the coordinator says that it is going on.
"""

from __future__ import annotations

import subprocess
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conformance.scenes import BRIEF
from tests.peers import jars, topics

TOPIC = "opened-for-commands"
NAME = "opened-for-commands"
COMMAND = "org.apache.kafka.tools.TransactionsCommand"
COMMAND_SECONDS_MAX = 60.0
HOUR_MS = 3_600_000


def _said(bootstrap: str, *arguments: str) -> list[str]:
    """The words of what the command says."""
    java, *command = jars.java(COMMAND, "--bootstrap-server", bootstrap, *arguments)
    done = subprocess.run(
        [java, *BRIEF, *command],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, f"{arguments}: {output[-800:]}"
    assert "Exception" not in output, f"{arguments}: {output[-800:]}"
    return output.split()


def _open(bootstrap: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": NAME, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    hour_ago = round(time.time() * 1000) - HOUR_MS
    producer.produce(TOPIC, b"open", partition=0, timestamp=hour_ago)
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


def run(bootstrap: str) -> None:
    """Raises AssertionError if a command fails, or says something else than is so."""
    topics.create(bootstrap, {TOPIC: 1})
    producer = _open(bootstrap)
    place = ("--topic", TOPIC, "--partition", "0")
    named = ("--transactional-id", NAME)
    for wanted, *command in (
        ({NAME, "Ongoing"}, "list", "--transactional-id-pattern", "opened.*"),
        ({NAME, "Ongoing", f"{TOPIC}-0"}, "describe", *named),
        ({"CurrentTransactionStartOffset", "LatestCoordinatorEpoch"}, "describe-producers", *place),
    ):
        said = _said(bootstrap, *command)
        assert wanted <= set(said), f"{command}: {wanted} not in {said}"
    hanging = _said(bootstrap, "find-hanging", "--broker-id", "1")
    assert TOPIC not in hanging, f"{hanging}"
    assert _last_stable_offset(bootstrap) == 0
    _said(bootstrap, "abort", *place, "--start-offset", "0")
    assert _last_stable_offset(bootstrap) == 2, "the transaction is open in its partition"
    _said(bootstrap, "forceTerminateTransaction", "--transactionalId", NAME)
    ended = _said(bootstrap, "describe", *named)
    assert "Empty" in ended, f"{ended}"
    del producer  # which has had to live so long
