"""Very many partitions: the start, the memory, and the descriptors, idle and all written to."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from tests.bench.workload import Figures, Work, at_most
from tests.peers import topics
from tests.peers.servers import Server

PARTITIONS = 2000
ANSWER_SECONDS_MAX = 120
SETTLE_SECONDS = 2.0


def _held(server: Server) -> int:
    """The descriptors of the broker's process."""
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


def _mapped(server: Server) -> int:
    """The files of its log dir that it has mapped."""
    maps = Path(f"/proc/{server.pid}/maps").read_text("utf-8").splitlines()
    return sum(str(server.data) in line for line in maps)


def _write_to_all(server: Server, topic: str, partitions: int) -> None:
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer({"bootstrap.servers": server.bootstrap, "acks": "all", "log_level": 0})
    for partition in range(partitions):
        producer.produce(topic, bytes(100), partition=partition, on_delivery=delivered)
    left = producer.flush(ANSWER_SECONDS_MAX)
    if left or errors:
        raise RuntimeError(f"{server.name}: {left} unanswered, {errors[:3]}")


def _run(running: Server, scale: float) -> Figures:
    partitions = int(PARTITIONS * scale)
    folder = Path(tempfile.mkdtemp(prefix="ottla-bench-many-"))
    server = type(running)(folder)
    try:
        server.start()
        time.sleep(SETTLE_SECONDS)
        none, empty_mb = _held(server), server.resident_mb()
        topics.create(server.bootstrap, {"many": partitions})
        _write_to_all(server, "many", partitions)
        server.stop()
        seconds = server.start()
        time.sleep(SETTLE_SECONDS)
        grown_mb = server.resident_mb() - empty_mb
        idle, idle_maps = _held(server), _mapped(server)
        _write_to_all(server, "many", partitions)
        written, written_maps = _held(server), _mapped(server)
        server.stop()
    finally:
        server.close()
        shutil.rmtree(folder)
    return {
        "start after a clean stop s": seconds,
        "memory grown by MB": max(grown_mb, 0.1),
        "without partitions": none,
        "loaded and idle": idle,
        "all written to": written,
        "files mapped, idle": idle_maps,
        "files mapped, written": written_maps,
    }


MANY = Work(
    "many",
    "start, memory and descriptors with 2,000 partitions",
    _run,
    {
        "start after a clean stop s": at_most(0.5),
        "memory grown by MB": at_most(0.3),
        "without partitions": None,
        "loaded and idle": at_most(0.3),
        "all written to": at_most(1.1),
        "files mapped, idle": None,
        "files mapped, written": None,
    },
)
