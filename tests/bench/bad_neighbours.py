"""What one client costs the others: a cold reader, and clients that ask much and read nothing."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from tests.bench import load, volume
from tests.bench.workload import Figures, Limit, Work
from tests.peers.raw import Connection, batch, whole_batches
from tests.peers.servers import Server
from tests.peers.silent import ASKED_BYTES, silent_clients

COLD_BYTES = 2_000_000_000
QUIET_REQUESTS = 2000
FIRST_REQUESTS = 40
WINDOWS = 9
"""With 5, seven runs of much the same code had medians of 1.17 to 1.63 times the quiet p99."""
WINDOWS_MAX = 18
STOLEN_MAX = 0.003
"""A pair of windows counts if the host took less than this part of the processors' time from it: a
processor that is taken away for some milliseconds is no neighbour of the broker's making, and the
99th percentile is made by one request in a hundred. Of so many pairs, if too few are left alone,
the least disturbed count."""
REQUESTS_PER_SECOND = 400
FETCH_BYTES = 4 << 20


def _evict(folder: Path) -> int:
    """Takes a partition's log out of the page cache; returns its bytes."""
    size = 0
    for path in sorted(folder.glob("*.log")):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            size += os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
    return size


@contextmanager
def _first_in_line() -> Iterator[None]:
    """This program runs whenever it can, where the system lets it: what waits is the broker."""
    try:
        before = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except (AttributeError, PermissionError):
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def paced(
    port: int, name: str, *, more: list[bool], least: int, begin: Callable[[], None] | None = None
) -> list[float]:
    """Seconds of paced one-record requests, for as long as `more` has an element, sorted.

    The client shares its processors with the broker and its neighbours, and would wait for them,
    too: so it goes first, and when it wakes late by itself, all later requests are due later. What
    waits behind a stall of the broker counts from when it was due. `begin` is called when the
    connection is in use: its own beginning is nothing that neighbours cost.
    """
    connection = Connection(port)
    latencies: list[float] = []
    with _first_in_line():
        for _ in range(FIRST_REQUESTS):
            _produce(connection, name)
        if begin is not None:
            begin()
        answered = started = time.perf_counter()
        while more or len(latencies) < least:
            due = started + len(latencies) / REQUESTS_PER_SECOND
            time.sleep(max(0.0, due - time.perf_counter()))
            began = due
            if answered <= due:
                began = time.perf_counter()
                started += began - due
            _produce(connection, name)
            answered = time.perf_counter()
            latencies.append(answered - began)
    connection.close()
    return sorted(latencies)


def _produce(connection: Connection, name: str) -> None:
    records = batch([b"x" * 200], timestamp=time.time_ns() // 1_000_000)
    connection.send_produce(name, 0, records)
    answer = connection.receive_produced()
    assert answer.error == 0, f"Produce was answered with error {answer.error}"


def _read_all(port: int, name: str, end: int) -> float:
    """Fetches a partition up to an offset and looks at batch headers alone; returns the seconds."""
    connection = Connection(port)
    started = time.perf_counter()
    offset = 0
    while offset < end:
        connection.send_fetch(name, 0, offset, max_bytes=FETCH_BYTES)
        _size, following = whole_batches(connection.receive_fetched())
        assert following > offset, f"no batch at offset {offset}"
        offset = following
    connection.close()
    return time.perf_counter() - started


def _read_beside(
    reader: Executor, server: Server, name: str, quiet: str, count: int
) -> tuple[list[float], float]:
    """Seconds of paced requests while the other topic is read once, and those of the reading."""
    more = [True]
    reading: list[Future[float]] = []

    def begin() -> None:
        reading.append(reader.submit(_read_all, server.port, name, count))
        reading[0].add_done_callback(lambda _done: more.clear())

    latencies = paced(server.port, quiet, more=more, least=100, begin=begin)
    return latencies, reading[0].result()


def _cold(server: Server, scale: float) -> Figures:
    count = int(COLD_BYTES * scale) // 1024
    with ExitStack() as stack:
        name = stack.enter_context(load.topic(server))
        small = stack.enter_context(load.topic(server))
        load.produce(server, name, count=count, size=1024, settings=volume.LARGE)
        # What is read later is on disk long since: no writeback in the windows.
        os.sync()
        # The reader is a process of its own: it must not disturb the clock of the paced one.
        reader = stack.enter_context(ProcessPoolExecutor(1, get_context("spawn")))
        reader.submit(_read_all, server.port, small, 0).result()
        paced(server.port, small, more=[], least=QUIET_REQUESTS)  # to warm up
        pairs: list[_Pair] = []
        while len(pairs) < WINDOWS_MAX and sum(one.is_own for one in pairs) < WINDOWS:
            stolen, began = _stolen_seconds(), time.perf_counter()
            window = paced(server.port, small, more=[], least=QUIET_REQUESTS)
            quiet = load.percentile(window, 0.99)
            size = _evict(server.data / f"{name}-0")
            window, seconds = _read_beside(reader, server, name, small, count)
            took = (time.perf_counter() - began) * (os.cpu_count() or 1)
            part = (_stolen_seconds() - stolen) / took
            pairs.append(_Pair(quiet, load.percentile(window, 0.99), seconds, part))
        warm, warm_seconds = _read_beside(reader, server, name, small, count)
    own = sorted(pairs, key=lambda one: one.stolen)[:WINDOWS]
    return {
        "quiet p99 ms": statistics.median(one.quiet for one in own) * 1e3,
        "p99 while warm ms": load.percentile(warm, 0.99) * 1e3,
        "p99 while cold ms": statistics.median(one.cold for one in own) * 1e3,
        "cold over quiet": statistics.median(one.cold / one.quiet for one in own),
        "warm MB/s": size / 1e6 / warm_seconds,
        "cold MB/s": size / 1e6 / statistics.median(one.seconds for one in own),
        "pairs of windows": len(pairs),
        "stolen, of those that count, %": max(one.stolen for one in own) * 100,
    }


class _Pair(NamedTuple):
    """A quiet window and a cold one: their p99s and the seconds of the reading, and which part of
    the processors' time the host took from both."""

    quiet: float
    cold: float
    seconds: float
    stolen: float

    @property
    def is_own(self) -> bool:
        return self.stolen < STOLEN_MAX


def _stolen_seconds() -> float:
    """Of all processors since the machine started; 0 where nobody says so."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
    except OSError:
        return 0.0
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def _silent(server: Server, _scale: float) -> Figures:
    with load.topic(server) as name:
        count = ASKED_BYTES * 5 // 4 // 1024
        load.produce(server, name, count=count, size=1024, settings=volume.LARGE)
        time.sleep(1.0)
        most = before = server.resident_mb()
        with silent_clients(server.port, name):
            for _ in range(20):
                time.sleep(0.2)
                most = max(most, server.resident_mb())
    return {"growth MB": most - before}


COLD = Work(
    "cold-read",
    f"2 GB out of the page cache are read beside 400 paced requests/s, {WINDOWS} times undisturbed",
    _cold,
    {
        "quiet p99 ms": None,
        "p99 while warm ms": None,
        "p99 while cold ms": None,
        "cold over quiet": Limit(1.5),
        "warm MB/s": None,
        "cold MB/s": None,
        "pairs of windows": None,
        "stolen, of those that count, %": None,
    },
)
SILENT = Work(
    "silent",
    "200 clients ask for 50 MB and never read",
    _silent,
    {"growth MB": Limit(64)},
)
