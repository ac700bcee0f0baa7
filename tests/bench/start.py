"""From the start of the process to the first answer to acks=all, and the memory it then takes."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from tests.bench.workload import Figures, Limit, Work, at_most
from tests.peers.servers import Server

SETTLE_SECONDS = 2.0


def _first_answer(server: Server) -> float:
    """Seconds from the start to the answer to a first record, its topic made on first use."""
    errors: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        errors.append(error)

    started = time.perf_counter()
    server.start()
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 50,
            "topic.metadata.refresh.fast.interval.ms": 20,
            "log_level": 0,
        }
    )
    producer.produce("first", b"x", on_delivery=delivered)
    producer.flush(60)
    seconds = time.perf_counter() - started
    if errors != [None]:
        raise RuntimeError(f"{server.name}: {errors}")
    return seconds


def _run(running: Server, _scale: float) -> Figures:
    folder = Path(tempfile.mkdtemp(prefix="ottla-bench-start-"))
    server = type(running)(folder)
    try:
        new = _first_answer(server)
        time.sleep(SETTLE_SECONDS)
        idle = server.resident_mb()
        stopped = server.stop()
        again = _first_answer(server)
        server.stop()
    finally:
        server.close()
        shutil.rmtree(folder)
    return {"new s": new, "with data s": again, "idle MB": idle, "stop s": stopped}


START = Work(
    "start",
    "process start to the first acks=all answer; memory idle",
    _run,
    {
        "new s": at_most(0.2),
        "with data s": at_most(0.2),
        "idle MB": at_most(0.15),
        "stop s": Limit(1),
    },
)
