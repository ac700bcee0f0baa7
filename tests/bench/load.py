"""Load by librdkafka: topics, producers as fast as they can, consumers as fast as they can."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from tests.peers import topics
from tests.peers.servers import Server

ANSWER_SECONDS_MAX = 120.0
TOPIC_PREFIX = "bench-"
# Kafka's default: the broker answers from the page cache. Both servers make the same promise.
PAGE_CACHE = 2**63 - 1
# The load must come from here and not from a full queue, so queues are ample.
QUIET = {"log_level": 3}
QUEUES = {"queue.buffering.max.messages": 2_000_000, "queue.buffering.max.kbytes": 1 << 20}
READ_AHEAD = {
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1 << 20,
    "fetch.message.max.bytes": 4 << 20,
}

Settings = dict[str, str | int | float | bool]


@dataclass(frozen=True)
class Spent:
    """Seconds on the clock, CPU seconds of the broker's processes and of the thread that measures,
    which in `produce` is the one that calls the client."""

    seconds: float
    cpu: float
    own_cpu: float

    @property
    def busy_percent(self) -> float:
        """How much of the time the measuring thread computed: near 100, no broker is faster."""
        return 100 * self.own_cpu / self.seconds


@contextmanager
def measured(server: Server) -> Iterator[list[Spent]]:
    """Puts one Spent into the list it yields when the block ends."""
    spent: list[Spent] = []
    cpu, own_cpu, started = server.cpu_seconds(), time.thread_time(), time.perf_counter()
    yield spent
    seconds, own_cpu = time.perf_counter() - started, time.thread_time() - own_cpu
    spent.append(Spent(seconds, server.cpu_seconds() - cpu, own_cpu))


@contextmanager
def topic(
    server: Server,
    partitions: int = 1,
    *,
    flush_messages: int = PAGE_CACHE,
    settings: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """A topic for the length of the block."""
    name = f"{TOPIC_PREFIX}{uuid.uuid4().hex[:10]}"
    config = {"flush.messages": str(flush_messages), **(settings or {})}
    topics.create(server.bootstrap, {name: partitions}, config)
    ready = Producer({"bootstrap.servers": server.bootstrap, **QUIET})
    deadline = time.monotonic() + 30
    # Kafka's controller answers before its broker leads the partitions.
    while not _led(ready, name, partitions):
        assert time.monotonic() < deadline, f"{name} has no leaders"
        time.sleep(0.05)
    time.sleep(0.3)
    yield name
    topics.delete(server.bootstrap, name)


def _led(producer: Producer, name: str, partitions: int) -> bool:
    """Whether every partition has a leader."""
    found = producer.list_topics(name, timeout=10).topics[name].partitions
    return len(found) == partitions and all(part.leader >= 0 for part in found.values())


def _producer(
    server: Server, name: str, settings: Settings
) -> tuple[Producer, Callable[[KafkaError | None, Message], None], list[str]]:
    """One that knows the topic; a callback for records of it, and the errors that it notes."""
    producer = Producer({"bootstrap.servers": server.bootstrap, **QUIET, **QUEUES, **settings})
    producer.list_topics(name, timeout=10)
    failed: list[str] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(str(error))

    return producer, delivered, failed


def _all_answered(server: Server, left: int, failed: list[str]) -> None:
    if left or failed:
        raise RuntimeError(f"{server.name}: {left} records unanswered, {failed[:3]}")


def produce(
    server: Server, name: str, *, count: int, size: int, settings: Settings, partitions: int = 1
) -> Spent:
    """Writes `count` records of `size` bytes in turn to the partitions, all of them answered.

    An idempotent producer has its id before the clock starts: librdkafka asks for one when it is
    made, before a broker is up, and again half a second later, which is as long as the work.
    """
    producer, delivered, failed = _producer(server, name, settings)
    payload = os.urandom(size)
    if settings.get("enable.idempotence"):
        producer.produce(name, payload, partition=0, on_delivery=delivered)
        producer.flush(ANSWER_SECONDS_MAX)
    send = producer.produce
    with measured(server) as spent:
        for i in range(count):
            callback = None if i % 100 else delivered
            while True:
                try:
                    # By position: names cost a fifth of this loop, which bounds small records.
                    send(name, payload, None, i % partitions, callback)
                    break
                except BufferError:
                    producer.poll(0.05)
            if i % 2000 == 0:
                producer.poll(0)
        left = producer.flush(ANSWER_SECONDS_MAX)
    _all_answered(server, left, failed)
    return spent[0]


def produce_in_hundreds(
    server: Server, name: str, *, count: int, size: int, settings: Settings, partitions: int
) -> Spent:
    """The same, a hundred records a call, each hundred to the next partition: two and a half times
    as many a second as `produce`, whose loop is slower than a broker takes small records."""
    producer, delivered, failed = _producer(server, name, settings)
    hundred: list[dict[str, object]] = [{"value": os.urandom(size)} for _ in range(100)]
    hundred[0]["callback"] = delivered
    with measured(server) as spent:
        for i in range(count // 100):
            taken = producer.produce_batch(name, hundred, partition=i % partitions)
            if taken < 100:
                raise RuntimeError(f"{server.name}: the queue took {taken} of 100 records")
            if i % 20 == 0:
                producer.poll(0)
        left = producer.flush(ANSWER_SECONDS_MAX)
    _all_answered(server, left, failed)
    return spent[0]


def consume(server: Server, name: str, *, count: int, partitions: int = 1) -> Spent:
    """Reads `count` records from the beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            **QUIET,
            **READ_AHEAD,
        }
    )
    consumer.assign([TopicPartition(name, i, OFFSET_BEGINNING) for i in range(partitions)])
    read = 0
    with measured(server) as spent:
        while read < count:
            messages = consumer.consume(min(10_000, count - read), 30.0)
            if not messages:
                raise RuntimeError(f"{server.name}: nothing more after {read} of {count} records")
            errors = [message.error() for message in messages if message.error() is not None]
            if errors:
                raise RuntimeError(f"{server.name}: {errors[0]}")
            read += len(messages)
    consumer.close()
    return spent[0]


def at_once(count: int, work: Callable[[int, threading.Barrier], None], server: Server) -> Spent:
    """Runs `work(k, barrier)` in so many threads; the clock starts when all are at the barrier.

    An error in a thread is raised here.
    """
    barrier = threading.Barrier(count + 1, timeout=ANSWER_SECONDS_MAX)
    errors: list[BaseException] = []

    def guarded(k: int) -> None:
        try:
            work(k, barrier)
        except (RuntimeError, AssertionError, threading.BrokenBarrierError) as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    barrier.wait()
    with measured(server) as spent:
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return spent[0]


def one_by_one(
    server: Server, name: str, *, connections: int, each: int, size: int, partitions: int
) -> tuple[list[float], Spent]:
    """Producers that each send a record and wait for its answer, all at once.

    Returns the sorted seconds of every request, and what was spent.
    """
    latencies: list[float] = []
    lock = threading.Lock()
    payload = b"x" * size

    def work(k: int, barrier: threading.Barrier) -> None:
        producer = Producer(
            {"bootstrap.servers": server.bootstrap, "acks": "all", "linger.ms": 0, **QUIET}
        )
        producer.list_topics(name, timeout=30)
        mine: list[float] = []
        barrier.wait()
        for _ in range(each):
            started = time.perf_counter()
            producer.produce(name, payload, partition=k % partitions)
            assert producer.flush(30) == 0, "a record was not answered"
            mine.append(time.perf_counter() - started)
        with lock:
            latencies.extend(mine)

    spent = at_once(connections, work, server)
    return sorted(latencies), spent


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
