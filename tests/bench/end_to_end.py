"""From produce to a consumer that waits at the end: 1,000 records a second, paced."""

from __future__ import annotations

import struct
import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.bench import load
from tests.bench.workload import Figures, Work, at_most
from tests.peers.servers import Server

RECORDS_PER_SECOND = 1000
WARM_UP = 2000
PACE_SECONDS = 0.0002


class _Reader(threading.Thread):
    """Reads records that hold their time of departure and notes how long each was under way."""

    def __init__(self, server: Server, name: str, count: int) -> None:
        super().__init__(daemon=True)  # whoever ends the bench does not wait for what never comes
        self.latencies: list[float] = []
        self._count = count
        self._ended = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": server.bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])

    def run(self) -> None:
        while len(self.latencies) < self._count and not self._ended.is_set():
            message = self._consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            value = message.value()
            assert isinstance(value, bytes)
            (departed,) = struct.unpack(">d", value)
            self.latencies.append(time.perf_counter() - departed)
        self._consumer.close()

    def finish(self) -> list[float]:
        self.join(15)
        self._ended.set()
        self.join()
        return self.latencies


def _run(server: Server, scale: float) -> Figures:
    count = WARM_UP + int(6000 * scale)
    with load.topic(server) as name:
        reader = _Reader(server, name, count)
        reader.start()
        producer = Producer({"bootstrap.servers": server.bootstrap, "acks": "all", "linger.ms": 0})
        producer.list_topics(name, timeout=10)
        started, cpu = time.perf_counter(), 0.0
        for i in range(count):
            while time.perf_counter() < started + i / RECORDS_PER_SECOND:
                time.sleep(PACE_SECONDS)
            producer.produce(name, struct.pack(">d", time.perf_counter()))
            producer.poll(0)
            if i == WARM_UP:
                cpu = server.cpu_seconds()
        producer.flush(30)
        cpu = server.cpu_seconds() - cpu
        seen = reader.finish()
    if len(seen) != count:
        raise RuntimeError(f"{server.name}: {len(seen)} of {count} records arrived")
    latencies = sorted(seen[WARM_UP:])
    return {
        "p50 ms": load.percentile(latencies, 0.5) * 1e3,
        "p99 ms": load.percentile(latencies, 0.99) * 1e3,
        "CPU us/record": cpu / (count - WARM_UP) * 1e6,
    }


END_TO_END = Work(
    "end-to-end",
    "produce to consume at 1,000 records/s",
    _run,
    {"p50 ms": at_most(0.8), "p99 ms": at_most(1, tail=True), "CPU us/record": at_most(0.6)},
)
