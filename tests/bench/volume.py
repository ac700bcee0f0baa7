"""Many bytes: batches of 64 KiB, of 1 MB, of small records, and the same data read by eight."""

from __future__ import annotations

import threading

from tests.bench import load
from tests.bench.workload import Figures, Work, at_least, at_most
from tests.peers.servers import Server

KIB = 1024
LOAD_BUSY = "load's thread busy %"
READING_TURNS = 2
"""Who reads at the client's limit had 0.89x to 1.19x of Kafka's rate in runs of one a round."""
LARGE: load.Settings = {
    "acks": "all",
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "batch.num.messages": 100_000,
}


def _idempotent(server: Server, scale: float) -> Figures:
    count = int(300_000 * scale)
    settings: load.Settings = {
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 5,
        "batch.size": 64 * KIB,
    }
    with load.topic(server, 6) as name:
        spent = load.produce(server, name, count=count, size=KIB, settings=settings, partitions=6)
    size = count * KIB
    return {
        "MB/s": size / 1e6 / spent.seconds,
        "CPU s/GB": spent.cpu / (size / 1e9),
        LOAD_BUSY: spent.busy_percent,
    }


def _bulk(server: Server, scale: float) -> Figures:
    count = int(600_000 * scale)
    with load.topic(server) as name:
        written = load.produce(server, name, count=count, size=KIB, settings=LARGE)
        read = load.consume(server, name, count=count)
    size = count * KIB
    return {
        "produce MB/s": size / 1e6 / written.seconds,
        "produce CPU s/GB": written.cpu / (size / 1e9),
        "consume MB/s": size / 1e6 / read.seconds,
        "consume CPU s/GB": read.cpu / (size / 1e9),
    }


def _small(server: Server, scale: float) -> Figures:
    count = int(1_000_000 * scale)
    with load.topic(server, 6) as name:
        written = load.produce_in_hundreds(
            server, name, count=count, size=100, settings={"acks": "all"}, partitions=6
        )
        read = load.consume(server, name, count=count, partitions=6)
    return {
        "produce k records/s": count / written.seconds / 1e3,
        "produce CPU us/record": written.cpu / count * 1e6,
        LOAD_BUSY: written.busy_percent,
        "consume k records/s": count / read.seconds / 1e3,
    }


def _fan_out(server: Server, scale: float) -> Figures:
    count = int(60_000 * scale)
    with load.topic(server) as name:
        load.produce(server, name, count=count, size=KIB, settings=LARGE)

        def read(_k: int, barrier: threading.Barrier) -> None:
            barrier.wait()
            load.consume(server, name, count=count)

        spent = load.at_once(8, read, server)
    size = 8 * count * KIB
    return {"MB/s": size / 1e6 / spent.seconds, "CPU s/GB": spent.cpu / (size / 1e9)}


IDEMPOTENT = Work(
    "idempotent",
    "1 KiB records, 64 KiB batches, idempotent, 6 partitions",
    _idempotent,
    {"MB/s": at_least(1.1), "CPU s/GB": at_most(0.45), LOAD_BUSY: None},
)
BULK = Work(
    "bulk",
    "1 KiB records, 1 MB batches, written and then read",
    _bulk,
    {
        "produce MB/s": at_least(1),
        "produce CPU s/GB": at_most(0.5),
        "consume MB/s": at_least(0.95),
        "consume CPU s/GB": at_most(0.8),
    },
    turns=READING_TURNS,
)
SMALL = Work(
    "small",
    "100 B records, librdkafka's defaults, 6 partitions",
    _small,
    {
        "produce k records/s": at_least(1.2),
        "produce CPU us/record": at_most(0.4),
        LOAD_BUSY: None,
        "consume k records/s": None,
    },
)
FAN_OUT = Work(
    "fan-out",
    "8 consumers of the same data",
    _fan_out,
    {"MB/s": at_least(0.95), "CPU s/GB": at_most(0.7)},
    turns=READING_TURNS,
)
