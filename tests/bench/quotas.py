"""Client quotas over 30 s: what a greedy client gets of its limit, and what its neighbour notices.

    make quotas
    make quotas ARGS="--server kafka --seconds 30"

The greedy client is librdkafka with its defaults and as much to send, or to read, as it may; or a
connection that asks for the metadata of a hundred partitions again and again, whose share of the
broker's time is what `ottla_request_seconds` says of Metadata (Apache Kafka has no such figure, and
is not asked). Its neighbour sends 200 small records a second, by turns alone and beside it: what is
slow for a while is slow for both. Where the greedy client writes, both have each batch synced
before its answer; elsewhere neither waits for the disk. What was sent while the disk answered
nobody is left out (`disk_stalls.py`). Ends with 1 if a greedy client was not within a tenth of its
limit in some round, or if its neighbour's p99 was, in the median of the rounds, more than half as
long again as alone before and after.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import click
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from rich.console import Console

from tests.bench import load
from tests.bench.disk_stalls import Span, outside, watched
from tests.bench.group_requests import Asker, drive, frame
from tests.bench.load import PAGE_CACHE
from tests.peers import topics
from tests.peers.jars import java
from tests.peers.servers import ApacheKafka, Ottla, Server, free_port

MB = 1_000_000
RATE = 2 * MB
TIME_PERCENT = 5.0
METADATA = 3
ASKED_PARTITIONS = 100
"""What one request takes the neighbour waits for, too: some tenths of a millisecond."""
LIMIT_MISSED_BY_MAX = 0.1
NEIGHBOUR_RATIO_MAX = 1.5
STALLED_MAX = 0.2
RECORD_BYTES = 1000
FILL_RECORDS = 120_000
PACED_PER_S = 200
TOPIC, NEIGHBOUR_TOPIC, SYNCED_NEIGHBOUR_TOPIC, ASKED_TOPIC = "greedy", "calm", "synced", "asked"
SYNCED = {"flush.messages": "1"}
CACHED = {"flush.messages": str(PAGE_CACHE)}
GREEDY = {"client.id": "greedy", **load.QUIET}
ASKER = "bench"
"""The client id of `group_requests.frame`."""
console = Console(width=110, highlight=False)


class Round(NamedTuple):
    """What the greedy client got of its limit, and its neighbour's p99."""

    share: float
    beside_ms: float
    alone_ms: float


def set_quotas(server: Server, client_id: str, settings: str) -> None:
    """With Apache Kafka's own kafka-configs."""
    command = java("kafka.admin.ConfigCommand", "--bootstrap-server", server.bootstrap, "--alter")
    command += ["--entity-type", "clients", "--entity-name", client_id, "--add-config", settings]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def paced(server: Server, topic: str) -> Iterator[list[Span]]:
    """When the neighbour's records were sent and answered, gathered while the block runs."""
    producer = Producer(
        {"bootstrap.servers": server.bootstrap, "linger.ms": 0, "acks": "all", **load.QUIET}
    )
    spans: list[Span] = []
    errors: list[object] = []
    ended = threading.Event()

    def run() -> None:
        due = time.perf_counter()
        while not ended.is_set():
            sent = time.perf_counter()

            def done(error: object, _message: object, sent: float = sent) -> None:
                if error is None:
                    spans.append((sent, time.perf_counter()))
                else:
                    errors.append(error)

            producer.produce(topic, bytes(100), on_delivery=done)
            due += 1 / PACED_PER_S
            while (left := due - time.perf_counter()) > 0:
                producer.poll(left)
        if producer.flush(30):
            errors.append("records were not answered")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield spans
    finally:
        ended.set()
        thread.join()
    if errors or not spans:
        raise RuntimeError(f"the neighbour: {errors[:3] or 'nothing was answered'}")


def produced_share(server: Server, seconds: float) -> float:
    """What a greedy producer had acknowledged in that time, of its limit."""
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
    return acknowledged / (RATE * seconds)


def consumed_share(server: Server, seconds: float) -> float:
    """What a greedy consumer got in that time, of its limit."""
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
    return found / (RATE * seconds)


def time_share(server: Server, seconds: float) -> float:
    """How much of the broker's time a greedy client took in that time, of its limit."""
    every_topic = frame(METADATA, 1, (-1).to_bytes(4, "big", signed=True))
    before = _metadata_seconds(server)
    drive(server, [Asker(every_topic, lambda _answer: 0)], seconds)
    return (_metadata_seconds(server) - before) / (TIME_PERCENT / 100 * seconds)


def _metadata_seconds(server: Server) -> float:
    port = server.properties["ottla.telemetry.port"]
    with urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        found = re.search(
            r'ottla_request_seconds_sum\{api="METADATA"\} (\S+)', page.read().decode()
        )
    return float(found[1]) if found else 0.0


def p99_ms(spans: list[Span], stalls: list[Span]) -> float:
    """Raises RuntimeError if too much of it fell into stalls to say anything."""
    kept = outside(spans, stalls)
    if len(kept) < (1 - STALLED_MAX) * len(spans):
        raise RuntimeError("the disk stood still too often to say anything: measure again")
    return load.percentile(sorted(kept), 0.99) * 1e3


def measured(
    server: Server, work: Callable[[Server, float], float], seconds: float, stalls: list[Span]
) -> Round:
    """One round: the neighbour alone, beside the greedy client, and alone again."""
    topic = SYNCED_NEIGHBOUR_TOPIC if work is produced_share else NEIGHBOUR_TOPIC
    with paced(server, topic) as alone:
        time.sleep(seconds / 2)
    with paced(server, topic) as beside:
        share = work(server, seconds)
    with paced(server, topic) as after:
        time.sleep(seconds / 2)
    return Round(share, p99_ms(beside, stalls), p99_ms(alone + after, stalls))


def report(server: Server, what: str, rounds: list[Round]) -> bool:
    """Prints one line; returns whether the quota is kept and the neighbour undisturbed."""
    shares = [one.share for one in rounds]
    ratios = [one.beside_ms / one.alone_ms for one in rounds]
    ratio = statistics.median(ratios)
    is_kept = all(abs(share - 1) <= LIMIT_MISSED_BY_MAX for share in shares)
    is_met = is_kept and ratio <= NEIGHBOUR_RATIO_MAX
    console.print(
        f"{server.name}: {what} {min(shares):.3f} to {max(shares):.3f} of the limit;"
        f" its neighbour's p99 {statistics.median(one.beside_ms for one in rounds):.2f} ms,"
        f" {ratio:.2f}x [{min(ratios):.2f} to {max(ratios):.2f}] of what it is alone:"
        f" {'met' if is_met else 'missed'}"
    )
    return is_met


@click.command()
@click.option("--server", "kind", type=click.Choice(["ottla", "kafka"]), default="ottla")
@click.option("--seconds", default=30.0, show_default=True)
@click.option("--rounds", default=3, show_default=True)
def main(kind: str, seconds: float, rounds: int) -> None:
    """Measure what is consumed, produced and asked for against one broker."""
    folder = Path(tempfile.mkdtemp(prefix="ottla-quotas-"))
    works = {"consumed": consumed_share, "produced": produced_share}
    if kind == "ottla":
        server: Server = Ottla(folder, ottla_telemetry_port=free_port())
        works["took time"] = time_share
    else:
        server = ApacheKafka(folder)
    missed = False
    try:
        server.start()
        topics.create(server.bootstrap, {TOPIC: 1, SYNCED_NEIGHBOUR_TOPIC: 1}, SYNCED)
        topics.create(server.bootstrap, {NEIGHBOUR_TOPIC: 1}, CACHED)
        topics.create(server.bootstrap, {ASKED_TOPIC: ASKED_PARTITIONS})
        # Small batches: what a fetch cuts off at its end counts and brings nothing.
        small: load.Settings = {"batch.size": 16_000}
        load.produce(server, TOPIC, count=FILL_RECORDS, size=RECORD_BYTES, settings=small)
        set_quotas(server, "greedy", f"producer_byte_rate={RATE},consumer_byte_rate={RATE}")
        set_quotas(server, ASKER, f"request_percentage={TIME_PERCENT}")
        for what, work in works.items():
            with watched(folder) as stalls:
                found = [measured(server, work, seconds, stalls) for _ in range(rounds)]
            missed |= not report(server, what, found)
            if stalls:
                stood_s = sum(end - begin for begin, end in stalls)
                console.print(f"The disk stood still for {stood_s:.1f} s, which are left out.")
    finally:
        server.close()
        shutil.rmtree(folder)
    sys.exit(missed)


if __name__ == "__main__":
    main()
