"""What the deletion of a thousand segments costs the others."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from tests.bench import load, volume
from tests.bench.bad_neighbours import REQUESTS_PER_SECOND, paced
from tests.bench.workload import Figures, Limit, Work
from tests.peers import topics
from tests.peers.servers import Server

SEGMENTS = 1000
SEGMENT_BYTES = 1 << 20
WINDOW_SECONDS = 30
WINDOWS = 5


def _segments(folder: Path) -> int:
    """The .log files that are there, those that wait for their deletion included."""
    return sum(1 for path in folder.iterdir() if ".log" in path.name)


def _windows(server: Server, requests: int, segments: int) -> tuple[list[float], list[float]]:
    """Seconds of paced requests, sorted: of a quiet window and of one in which segments go."""
    settings = {"segment.bytes": str(SEGMENT_BYTES), "file.delete.delay.ms": "1000"}
    with load.topic(server) as small, load.topic(server, settings=settings) as name:
        count = segments * SEGMENT_BYTES // 1024
        load.produce(server, name, count=count, size=1024, settings=volume.LARGE)
        # Segments that retention deletes are on disk long since: no writeback in the windows.
        os.sync()
        folder = server.data / f"{name}-0"
        before = _segments(folder)
        quiet = paced(server.port, small, more=[], least=requests)
        topics.alter(server.bootstrap, name, {"retention.bytes": "1"})
        busy = paced(server.port, small, more=[], least=requests)
        gone = before - _segments(folder)
        if gone < segments * 0.9:
            raise RuntimeError(f"{server.name} has deleted {gone} of {before} segments")
    return quiet, busy


def _run(running: Server, scale: float) -> Figures:
    folder = Path(tempfile.mkdtemp(prefix="ottla-bench-deleting-"))
    server = type(running)(
        folder, log_retention_check_interval_ms=1000, log_initial_task_delay_ms=1000
    )
    quiet: list[float] = []
    busy: list[float] = []
    try:
        server.start()
        for _ in range(WINDOWS):
            one, other = _windows(
                server, int(REQUESTS_PER_SECOND * WINDOW_SECONDS * scale), int(SEGMENTS * scale)
            )
            quiet.append(load.percentile(one, 0.99))
            busy.append(load.percentile(other, 0.99))
        server.stop()
    finally:
        server.close()
        shutil.rmtree(folder)
    middle = WINDOWS // 2
    ratios = sorted(b / q for q, b in zip(quiet, busy, strict=True))
    return {
        "quiet p99 ms": sorted(quiet)[middle] * 1e3,
        "p99 while deleting ms": sorted(busy)[middle] * 1e3,
        "deleting over quiet": ratios[middle],
    }


DELETING = Work(
    "deleting",
    "1,000 segments are deleted while 400 requests/s are paced, 5 times",
    _run,
    {"quiet p99 ms": None, "p99 while deleting ms": None, "deleting over quiet": Limit(1.2)},
)
