"""Client quotas over 30 s: what a greedy client gets of its limit, and what its neighbour notices.

    python -m tests.bench.quotas
    python -m tests.bench.quotas --server kafka --seconds 30

The greedy client is librdkafka with its defaults and as much to send, or to read, as it may. Its
neighbour sends 200 small records a second, alone at first, then beside it.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from rich.console import Console

from tests.bench import load
from tests.peers import topics
from tests.peers.jars import java
from tests.peers.servers import ApacheKafka, Ottla, Server

MB = 1_000_000
RATE = 2 * MB
RECORD_BYTES = 1000
FILL_RECORDS = 120_000
PACED_PER_S = 200
TOPIC, NEIGHBOUR_TOPIC = "greedy", "neighbour"
GREEDY = {"client.id": "greedy", **load.QUIET}
console = Console(width=110, highlight=False)


def set_quotas(server: Server, *settings: str) -> None:
    """With Apache Kafka's own kafka-configs, for the greedy client id."""
    command = java("kafka.admin.ConfigCommand", "--bootstrap-server", server.bootstrap, "--alter")
    command += ["--entity-type", "clients", "--entity-name", "greedy", *settings]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def paced(server: Server) -> Iterator[list[float]]:
    """The neighbour's latencies in seconds, gathered while the block runs."""
    producer = Producer(
        {"bootstrap.servers": server.bootstrap, "linger.ms": 0, "acks": "all", **load.QUIET}
    )
    latencies: list[float] = []
    ended = threading.Event()

    def run() -> None:
        due = time.perf_counter()
        while not ended.is_set():
            sent = time.perf_counter()

            def done(error: object, _message: object, sent: float = sent) -> None:
                assert error is None
                latencies.append(time.perf_counter() - sent)

            producer.produce(NEIGHBOUR_TOPIC, bytes(100), on_delivery=done)
            due += 1 / PACED_PER_S
            while (left := due - time.perf_counter()) > 0:
                producer.poll(left)
        assert producer.flush(30) == 0

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield latencies
    finally:
        ended.set()
        thread.join()


def produced_bytes(server: Server, seconds: float) -> int:
    """What a greedy producer had acknowledged in that time; values that do not compress."""
    producer = Producer({"bootstrap.servers": server.bootstrap, **GREEDY})
    acknowledged = 0
    end = time.perf_counter() + seconds

    def done(error: object, message: object) -> None:
        nonlocal acknowledged
        if error is None and time.perf_counter() < end:
            acknowledged += RECORD_BYTES

    while time.perf_counter() < end:
        try:
            producer.produce(TOPIC, bytes(RECORD_BYTES), on_delivery=done)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    producer.purge()
    return acknowledged


def consumed_bytes(server: Server, seconds: float) -> int:
    """What a greedy consumer got in that time."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "quota-bench",
            "enable.auto.commit": False,
            **GREEDY,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        found += sum(len(one.value() or b"") for one in consumer.consume(10_000, 0.1))
    consumer.close()
    return found


def milliseconds(latencies: list[float]) -> str:
    return f"{load.percentile(latencies, 0.99) * 1e3:.1f} ms"


@click.command()
@click.option("--server", "kind", type=click.Choice(["ottla", "kafka"]), default="ottla")
@click.option("--seconds", default=30.0, show_default=True)
def main(kind: str, seconds: float) -> None:
    """Measure both directions against one broker."""
    folder = Path(tempfile.mkdtemp(prefix="ottla-quotas-"))
    server: Server = (Ottla if kind == "ottla" else ApacheKafka)(folder)
    try:
        server.start()
        topics.create(server.bootstrap, {TOPIC: 1, NEIGHBOUR_TOPIC: 1})
        # Small batches: what a fetch cuts off at its end counts and brings nothing.
        small: load.Settings = {"batch.size": 16_000}
        load.produce(server, TOPIC, count=FILL_RECORDS, size=RECORD_BYTES, settings=small)
        with paced(server) as alone:
            time.sleep(seconds / 3)
        console.print(f"{server.name}: neighbour alone p99 {milliseconds(alone)}")
        set_quotas(server, "--add-config", f"producer_byte_rate={RATE},consumer_byte_rate={RATE}")
        for what, work in (("consumed", consumed_bytes), ("produced", produced_bytes)):
            with paced(server) as beside:
                ratio = work(server, seconds) / (RATE * seconds)
            console.print(
                f"{server.name}: {what} {ratio:.3f} of the limit in {seconds:.0f} s,"
                f" neighbour p99 {milliseconds(beside)}"
            )
    finally:
        server.close()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
