"""Resident memory at the end of a run: its aim is for one load, and only after that it counts."""

from __future__ import annotations

from tests.bench.end_to_end import END_TO_END
from tests.bench.report import Results
from tests.bench.requests import DURABLE, PIPELINED, WAITING
from tests.bench.start import START
from tests.bench.volume import BULK, FAN_OUT, IDEMPOTENT, SMALL
from tests.bench.workload import Work, at_most
from tests.peers.servers import ApacheKafka, Ottla

NAME = "memory"
FIGURE = "MB"
AIM = at_most(0.1)
STANDARD = (PIPELINED, WAITING, DURABLE, IDEMPOTENT, BULK, SMALL, FAN_OUT, END_TO_END, START)
"""The load that the aim is meant for: a JVM's heap grows with what passes through it, so after less
of it Apache Kafka is smaller than it comes to be, and Ottla is what it was."""


def memory_work(results: Results, scale: float) -> Work:
    """The row of the table; without an aim unless both servers did all of STANDARD at its size."""
    done = scale >= 1 and all(
        results.of(work.name, figure, server)
        for work in STANDARD
        for figure in work.figures
        for server in (ApacheKafka.name, Ottla.name)
    )
    title = "resident memory after all of this load"
    if not done:
        names = ", ".join(work.name for work in STANDARD)
        title += f"; its aim is for {names} at full size"
    return Work(NAME, title, lambda _server, _scale: {}, {FIGURE: AIM if done else None})
