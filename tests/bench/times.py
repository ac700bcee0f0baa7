"""ListOffsets by timestamp over a long log of very many segments."""

from __future__ import annotations

import random
import time

from confluent_kafka import Consumer, TopicPartition

from tests.bench import load, volume
from tests.bench.load import QUIET
from tests.bench.workload import Figures, Work, at_most
from tests.peers.servers import Server

LOG_BYTES = 10_000 << 20
SEGMENT_BYTES = 1 << 20
LOOKUPS = 1000


def _run(server: Server, scale: float) -> Figures:
    with load.topic(server, settings={"segment.bytes": str(SEGMENT_BYTES)}) as name:
        began_ms = time.time_ns() // 1_000_000
        count = int(LOG_BYTES * scale) // 1024
        load.produce(server, name, count=count, size=1024, settings=volume.LARGE)
        ended_ms = time.time_ns() // 1_000_000
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "times", **QUIET})
        rng = random.Random(1)
        latencies: list[float] = []
        with load.measured(server) as spent:
            for _ in range(LOOKUPS):
                wanted = TopicPartition(name, 0, rng.randrange(began_ms, ended_ms))
                started = time.perf_counter()
                (found,) = consumer.offsets_for_times([wanted], timeout=30)
                latencies.append(time.perf_counter() - started)
                assert found.error is None, found.error
                assert -1 <= found.offset < count
        consumer.close()
    latencies.sort()
    return {
        "p50 ms": load.percentile(latencies, 0.5) * 1e3,
        "p99 ms": load.percentile(latencies, 0.99) * 1e3,
        "CPU us a look-up": spent[0].cpu / LOOKUPS * 1e6,
    }


TIMES = Work(
    "times",
    "ListOffsets by timestamp over 10 GB in 10,000 segments",
    _run,
    {"p50 ms": at_most(1.0), "p99 ms": at_most(1.0, tail=True), "CPU us a look-up": None},
)
