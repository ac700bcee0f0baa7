"""Many small requests: one connection that pipelines, 64 that wait, 16 that wait for the disk."""

from __future__ import annotations

from tests.bench import load
from tests.bench.workload import Figures, Work, at_least, at_most
from tests.peers.servers import Server

DURABLE_TURNS = 4
"""Of 3,200 synced requests, a third of a second, two moments of the disk's are the slowest 32."""


def _pipelined(server: Server, scale: float) -> Figures:
    count = int(20_000 * scale)
    settings: load.Settings = {
        "acks": "all",
        "linger.ms": 0,
        "batch.num.messages": 1,
        "max.in.flight": 5,
    }
    with load.topic(server) as name:
        spent = load.produce(server, name, count=count, size=200, settings=settings)
    return {"requests/s": count / spent.seconds, "CPU us/request": spent.cpu / count * 1e6}


def _waiting(server: Server, scale: float) -> Figures:
    with load.topic(server, 8) as name:
        latencies, spent = load.one_by_one(
            server, name, connections=64, each=int(300 * scale), size=200, partitions=8
        )
    return {
        "requests/s": len(latencies) / spent.seconds,
        "p99 ms": load.percentile(latencies, 0.99) * 1e3,
        "CPU us/request": spent.cpu / len(latencies) * 1e6,
    }


def _durable(server: Server, scale: float) -> Figures:
    with load.topic(server, 4, flush_messages=1) as name:
        latencies, spent = load.one_by_one(
            server, name, connections=16, each=int(200 * scale), size=1000, partitions=4
        )
    return {
        "requests/s": len(latencies) / spent.seconds,
        "p99 ms": load.percentile(latencies, 0.99) * 1e3,
        "CPU us/request": spent.cpu / len(latencies) * 1e6,
    }


PIPELINED = Work(
    "pipelined",
    "one-record requests, 1 connection, 5 in flight",
    _pipelined,
    {"requests/s": at_least(2), "CPU us/request": at_most(0.45)},
)
WAITING = Work(
    "waiting",
    "64 connections, one record each and wait",
    _waiting,
    {
        "requests/s": at_least(1.4),
        "p99 ms": at_most(0.5, tail=True),
        "CPU us/request": at_most(0.45),
    },
)
DURABLE = Work(
    "durable",
    "flush.messages=1, 16 producers, one record each and wait",
    _durable,
    {"requests/s": at_least(2), "p99 ms": at_most(0.4, tail=True), "CPU us/request": None},
    turns=DURABLE_TURNS,
)
