"""Transfers between accounts, each a transaction, and what readers of committed data must find.

A transfer is two records with its writer's name and its number, in the partitions of two accounts;
two writers have transactions in all accounts at the same time. Most are committed, some are
aborted, and some are left open by a producer that is gone when the next one of the same
transactional id begins. A committed transfer must be in both accounts, an aborted one or one left
open in neither, one of which the producer was told nothing in both or in neither; and in the end
no transaction may keep readers of committed data from the end of the log.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass
from enum import Enum

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.crash.writers import Journal, counter_of, value_of

TOPIC = "accounts"
WRITERS = 2
ACCOUNTS = 3
ABORTED_ODDS = 4
LEFT_OPEN_ODDS = 40
ANSWER_SECONDS_MAX = 60.0
STABLE_SECONDS_MAX = 30.0
SHOWN_MAX = 5


class Outcome(Enum):
    """What the producer knows of a transfer."""

    COMMITTED = "committed"
    NOT_COMMITTED = "not committed"
    UNKNOWN = "unknown"


ALLOWED = {
    Outcome.COMMITTED: ([1, 1],),
    Outcome.NOT_COMMITTED: ([0, 0],),
    Outcome.UNKNOWN: ([0, 0], [1, 1]),
}
"""How often a transfer is in its two accounts."""

# (name of the writer, number of the transfer) in the order of the log.
Account = list[tuple[str, int]]


@dataclass(slots=True)
class Transfer:
    """From the partition of one account to that of another."""

    accounts: tuple[int, int]
    outcome: Outcome = Outcome.NOT_COMMITTED


class TransferWriter(threading.Thread):
    """librdkafka's transactional producer, one transfer after the other, through errors."""

    def __init__(self, number: int, port: int, seed: int) -> None:
        name = f"transfers-{number}"
        super().__init__(name=name, daemon=True)
        self.journal = Journal(name, TOPIC, exactly_once=True)
        self.transfers: list[Transfer] = []
        self._random = random.Random(seed)
        self._ending = threading.Event()
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "transactional.id": name,
            "linger.ms": 0,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 100,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
        }

    def answered(self) -> int:
        """How many transfers are known to be committed."""
        return sum(one.outcome is Outcome.COMMITTED for one in self.transfers)

    def finish(self) -> None:
        """Begins nothing new; the thread ends when the last transfer has."""
        self._ending.set()

    def run(self) -> None:
        try:
            producer = self._new_producer()
            while not self._ending.is_set():
                producer = self._transfer(producer)
        except KafkaException as error:
            self.journal.failures.append(f"{self.name}: {error}")

    def _new_producer(self) -> Producer:
        producer = Producer(self._settings)
        producer.init_transactions(ANSWER_SECONDS_MAX)
        return producer

    def _transfer(self, producer: Producer) -> Producer:
        """One transfer; returns the producer for the next."""
        number = len(self.transfers)
        payer, payee = self._random.sample(range(ACCOUNTS), 2)
        transfer = Transfer((payer, payee))
        self.transfers.append(transfer)
        aborts = self._random.randrange(ABORTED_ODDS) == 0
        leaves_open = self._random.randrange(LEFT_OPEN_ODDS) == 0
        try:
            producer.begin_transaction()
            for account in transfer.accounts:
                value = value_of(self.name, number, self._random.randint(0, 100))
                producer.produce(TOPIC, value, partition=account)
            if aborts or leaves_open:
                # An abort while its partitions are being added may be fatal to librdkafka.
                producer.flush(ANSWER_SECONDS_MAX)
            if leaves_open:
                return self._new_producer()
            if aborts:
                producer.abort_transaction(ANSWER_SECONDS_MAX)
                return producer
            transfer.outcome = Outcome.UNKNOWN
            producer.commit_transaction(ANSWER_SECONDS_MAX)
            transfer.outcome = Outcome.COMMITTED
            return producer
        except KafkaException as error:
            return self._after(error.args[0], producer)

    def _after(self, error: KafkaError, producer: Producer) -> Producer:
        """The producer to go on with after an error of a transaction."""
        if error.txn_requires_abort():
            producer.abort_transaction(ANSWER_SECONDS_MAX)
            return producer
        return self._new_producer()


def read_committed(bootstrap: str) -> tuple[list[Account], list[str]]:
    """What is in each account, and which of them are not stable up to their end."""
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": "crash",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_uncommitted",
        "log_level": 0,
    }
    accounts = [TopicPartition(TOPIC, number, 0) for number in range(ACCOUNTS)]
    every = Consumer(settings)
    left = {place.partition: every.get_watermark_offsets(place, 30)[1] for place in accounts}
    every.close()
    reader = Consumer({**settings, "isolation.level": "read_committed"})
    reader.assign(accounts)
    found: list[Account] = [[] for _ in accounts]
    deadline = time.monotonic() + STABLE_SECONDS_MAX
    while left and time.monotonic() < deadline:
        for message in reader.consume(1000, 0.2):
            error, number, offset = message.error(), message.partition(), message.offset()
            assert number is not None
            assert offset is not None
            if error is None:
                value = message.value()
                assert isinstance(value, bytes)
                found[number].append(counter_of(value))
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            elif offset >= left.get(number, 0):
                left.pop(number, None)
    reader.close()
    unstable = [f"{TOPIC}-{number}: not stable up to {end}" for number, end in left.items()]
    return found, unstable


def complaints(name: str, transfers: list[Transfer], found: list[Account]) -> list[str]:
    """Everything that is wrong with what one writer has written, the first of it."""
    own = [[number for writer, number in account if writer == name] for account in found]
    wrong = [
        f"{name}: {TOPIC}-{account} is out of order"
        for account, numbers in enumerate(own)
        if numbers != sorted(numbers)
    ]
    counts = [Counter(numbers) for numbers in own]
    for number, transfer in enumerate(transfers):
        times = [counts[account][number] for account in transfer.accounts]
        if times not in ALLOWED[transfer.outcome]:
            wrong.append(f"{name} {number}, {transfer.outcome.value}, is there {times} times")
    return wrong[:SHOWN_MAX]
