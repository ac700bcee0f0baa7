"""A consumer that waits at the ends of several partitions, to which each Produce writes a few.

Six partitions are read by librdkafka, which names each of them in every fetch, and 200 by
kafka-python, which keeps a fetch session and names none that has not changed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import kafka
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, TopicPartition

from tests.bench import load
from tests.bench.workload import Figures, Work, at_most
from tests.peers.servers import Server

FEW, MANY = 6, 200
MANY_AT_ONCE = 3
"""Partitions of a Produce."""
ROUNDS, WARM_UP_ROUNDS = 600, 200
PAUSE_SECONDS = 0.003
STATISTICS_MS = 100
POLL_SECONDS = 0.01
READ_SECONDS_MAX = 20.0
VALUE = bytes(100)


class _Tail(threading.Thread):
    """Reads from the ends until it is told to stop, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.records = 0
        self.fetches = 0
        self.stopping = False

    def run(self) -> None:
        while not self.stopping:
            self.records += self.read()
        self.end()

    @abstractmethod
    def read(self) -> int:
        """Waits a moment; how many records came."""

    @abstractmethod
    def end(self) -> None: ...


class _Sessionless(_Tail):
    def __init__(self, server: Server, name: str, partitions: int) -> None:
        super().__init__()
        self._consumer = Consumer(
            {
                "bootstrap.servers": server.bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "statistics.interval.ms": STATISTICS_MS,
                "stats_cb": self._count,
                **load.QUIET,
            }
        )
        self._consumer.assign([TopicPartition(name, index, 0) for index in range(partitions)])

    def _count(self, statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"].values()
        self.fetches = sum(one["req"].get("Fetch", 0) for one in brokers)

    def read(self) -> int:
        message = self._consumer.poll(0.1)
        return int(message is not None and message.error() is None)

    def end(self) -> None:
        self._consumer.close()


class _OfASession(_Tail):
    def __init__(self, server: Server, name: str, partitions: int) -> None:
        super().__init__()
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=server.bootstrap,
            group_id=None,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        self._consumer.assign([kafka.TopicPartition(name, index) for index in range(partitions)])

    def read(self) -> int:
        return sum(map(len, self._consumer.poll(timeout_ms=100).values()))

    def end(self) -> None:
        self._consumer.close()


@contextmanager
def _reading(tail: _Tail) -> Iterator[_Tail]:
    tail.start()
    try:
        yield tail
    finally:
        tail.stopping = True
        tail.join()


async def _produce(
    server: Server, name: str, partitions: int, at_once: int, rounds: int, rng: random.Random
) -> None:
    """One Produce a round, to so many partitions, and a pause behind its answer."""
    async with AIOKafkaProducer(bootstrap_servers=server.bootstrap, acks="all") as producer:
        for _ in range(rounds):
            chosen = rng.sample(range(partitions), at_once)
            sent = [await producer.send(name, VALUE, partition=index) for index in chosen]
            await asyncio.gather(*sent)
            await asyncio.sleep(PAUSE_SECONDS)


def _await_records(server: Server, tail: _Tail, count: int) -> None:
    until = time.monotonic() + READ_SECONDS_MAX
    while tail.records < count:
        if time.monotonic() > until:
            raise RuntimeError(f"{server.name}: {tail.records} of {count} records arrived")
        time.sleep(POLL_SECONDS)
    # Fetches are counted by then.
    time.sleep(2 * STATISTICS_MS / 1000)


def _tailed(
    server: Server, name: str, tail: _Tail, partitions: int, at_once: int, scale: float
) -> tuple[float, float]:
    """CPU us a record, and fetches a Produce."""
    rng = random.Random(1)
    rounds = max(int(ROUNDS * scale), 1)
    with _reading(tail):
        asyncio.run(_produce(server, name, partitions, at_once, WARM_UP_ROUNDS, rng))
        _await_records(server, tail, WARM_UP_ROUNDS * at_once)
        cpu, fetches = server.cpu_seconds(), tail.fetches
        asyncio.run(_produce(server, name, partitions, at_once, rounds, rng))
        _await_records(server, tail, (WARM_UP_ROUNDS + rounds) * at_once)
        cpu, fetches = server.cpu_seconds() - cpu, tail.fetches - fetches
    return cpu / (rounds * at_once) * 1e6, fetches / rounds


def _run(server: Server, scale: float) -> Figures:
    # Kafka leads the last of many partitions some time after the first, and is asked again.
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    with load.topic(server, FEW) as name:
        few, fetches = _tailed(server, name, _Sessionless(server, name, FEW), FEW, FEW, scale)
    with load.topic(server, MANY) as name:
        tail = _OfASession(server, name, MANY)
        many, _ = _tailed(server, name, tail, MANY, MANY_AT_ONCE, scale)
    return {
        "6: CPU us/record": few,
        "6: fetches/Produce": fetches,
        "200: CPU us/record": many,
    }


TAILING = Work(
    "tailing",
    "consumers at the ends of 6 partitions, and by a fetch session of 200",
    _run,
    {
        "6: CPU us/record": at_most(0.6),
        "6: fetches/Produce": at_most(1.1),
        "200: CPU us/record": at_most(0.6),
    },
)
