"""Producers that write through crashes and remember what they were promised.

Every value is "NAME COUNTER PADDING", its counter rising by one from 0, so that the log itself
tells what was lost, doubled or reordered.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, Producer

from tests.peers.raw import AnsweredError, Connection, batch

IN_FLIGHT = 5
RECORDS_PER_BATCH_MAX = 8
PADDING_MAX = 400
OUTSTANDING_MAX = 400
RECONNECT_SECONDS = 0.01
DUPLICATE_SEQUENCE_NUMBER = 46
# UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT,
# NETWORK_EXCEPTION, COORDINATOR_LOAD_IN_PROGRESS, NOT_ENOUGH_REPLICAS: what a broker that has just
# started may say.
RETRIABLE = {3, 5, 6, 7, 13, 14, 19}


@dataclass(slots=True)
class Acknowledged:
    """A record that the broker has promised to keep; `offset` is -1 where it was not told."""

    partition: int
    offset: int
    counter: int


@dataclass
class Journal:
    """What one writer wrote and was told."""

    name: str
    topic: str
    exactly_once: bool
    sent: int = 0
    acknowledged: list[Acknowledged] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def value_of(name: str, counter: int, padding: int) -> bytes:
    return b"%s %d " % (name.encode(), counter) + b"." * padding


def counter_of(value: bytes) -> tuple[str, int]:
    name, counter, _padding = value.split(b" ", 2)
    return name.decode(), int(counter)


@dataclass(slots=True)
class _Request:
    first: int
    count: int
    sequence: int
    records: bytes


class RawWriter(threading.Thread):
    """An idempotent producer of bare sockets that keeps five requests under way on one partition.

    After a crash it sends what was unanswered once more, under the sequence numbers of before.
    """

    def __init__(
        self, topic: str, partition: int, port: int, up: threading.Event, seed: int
    ) -> None:
        name = f"raw-{partition}"
        super().__init__(name=name, daemon=True)
        self.journal = Journal(name, topic, exactly_once=True)
        self.unanswered: list[int] = []
        self._partition = partition
        self._port = port
        self._up = up
        self._random = random.Random(seed)
        self._pending: deque[_Request] = deque()
        self._producer = (-1, -1)
        self._ending = threading.Event()

    def answered(self) -> int:
        """How many records are acknowledged."""
        return len(self.journal.acknowledged)

    def finish(self) -> None:
        """Sends nothing new; the thread ends when all is answered."""
        self._ending.set()

    def run(self) -> None:
        while not self._ending.is_set() or self._pending:
            self._up.wait()
            try:
                self._session()
            except AnsweredError as error:
                if error.code not in RETRIABLE:
                    self.journal.failures.append(f"{self.name}: {error}")
                time.sleep(RECONNECT_SECONDS)
            except OSError:
                self.unanswered.append(len(self._pending))
                time.sleep(RECONNECT_SECONDS)
            if self.journal.failures:
                return

    def _session(self) -> None:
        """One connection, from the retries of what was unanswered to its end."""
        connection = Connection(self._port)
        try:
            if self._producer[0] < 0:
                self._producer = connection.init_producer_id()
            for request in self._pending:
                connection.send_produce(self.journal.topic, self._partition, request.records)
            self._pipeline(connection)
        except OSError:
            self._drain(connection)
            raise
        finally:
            connection.close()

    def _pipeline(self, connection: Connection) -> None:
        while not self.journal.failures:
            # A broker takes any sequence number for the first of a new producer: it goes alone.
            limit = IN_FLIGHT if self.journal.acknowledged else 1
            while len(self._pending) < limit and not self._ending.is_set():
                request = self._next_request()
                self._pending.append(request)
                connection.send_produce(self.journal.topic, self._partition, request.records)
            if not self._pending:
                return
            self._take_answer(connection)

    def _drain(self, connection: Connection) -> None:
        """Reads the answers that had left the broker before it died."""
        try:
            while self._pending:
                self._take_answer(connection)
        except OSError:
            return

    def _next_request(self) -> _Request:
        count = self._random.randint(1, RECORDS_PER_BATCH_MAX)
        first = self.journal.sent
        values = [
            value_of(self.name, first + i, self._random.randint(0, PADDING_MAX))
            for i in range(count)
        ]
        producer_id, epoch = self._producer
        records = batch(
            values,
            timestamp=time.time_ns() // 1_000_000,
            producer_id=producer_id,
            producer_epoch=epoch,
            sequence=first,
        )
        self.journal.sent += count
        return _Request(first, count, first, records)

    def _take_answer(self, connection: Connection) -> None:
        answer = connection.receive_produced()
        request = self._pending[0]
        if answer.error in RETRIABLE:
            raise AnsweredError("Produce", answer.error)
        if answer.error not in (0, DUPLICATE_SEQUENCE_NUMBER):
            self.journal.failures.append(
                f"{self.name}: sequence {request.sequence} was answered with error {answer.error}"
            )
            return
        self._pending.popleft()
        for i in range(request.count):
            offset = answer.base_offset + i if answer.error == 0 else -1
            self.journal.acknowledged.append(
                Acknowledged(self._partition, offset, request.first + i)
            )


class LibraryWriter(threading.Thread):
    """librdkafka with acks=all over three partitions, idempotent or plain."""

    def __init__(
        self, topic: str, port: int, seed: int, *, idempotent: bool, partitions: int
    ) -> None:
        name = "idempotent" if idempotent else "plain"
        super().__init__(name=name, daemon=True)
        self.journal = Journal(name, topic, exactly_once=idempotent)
        self._partitions = partitions
        self._random = random.Random(seed)
        self._ending = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "acks": "all",
                "enable.idempotence": idempotent,
                "linger.ms": 1,
                "message.timeout.ms": 300_000,
                "retries": 1_000_000,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "log_level": 0,
            }
        )

    def answered(self) -> int:
        """How many records are acknowledged."""
        return len(self.journal.acknowledged)

    def outstanding(self) -> int:
        """Records that wait for an answer."""
        return len(self._producer)

    def finish(self) -> None:
        self._ending.set()

    def run(self) -> None:
        while not self._ending.is_set() and not self.journal.failures:
            if self.outstanding() < OUTSTANDING_MAX:
                self._write(self._random.randint(1, 20))
            self._producer.poll(0.002)
        left = self._producer.flush(120)
        if left:
            self.journal.failures.append(f"{self.name}: {left} records were never answered")

    def _write(self, count: int) -> None:
        for _ in range(count):
            counter = self.journal.sent
            self.journal.sent += 1

            def delivered(
                error: KafkaError | None, message: Message, counter: int = counter
            ) -> None:
                self._delivered(error, message, counter)

            value = value_of(self.name, counter, self._random.randint(0, PADDING_MAX))
            self._producer.produce(
                self.journal.topic,
                value,
                partition=counter % self._partitions,
                on_delivery=delivered,
            )

    def _delivered(self, error: KafkaError | None, message: Message, counter: int) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None:
            self.journal.failures.append(f"{self.name}: record {counter}: {error}")
            return
        # librdkafka knows no offset for a batch that was answered as a duplicate.
        known = offset if offset is not None and offset >= 0 else -1
        self.journal.acknowledged.append(Acknowledged(partition, known, counter))
