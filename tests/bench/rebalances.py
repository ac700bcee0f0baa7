"""What groups that all rebalance at once cost a producer beside them."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.bench import load
from tests.bench.bad_neighbours import REQUESTS_PER_SECOND, paced
from tests.bench.group_requests import make_offsets_ready
from tests.bench.workload import Figures, Limit, Work
from tests.peers.servers import Server

GROUPS, MEMBERS = 200, 5
WINDOW_SECONDS = 30
WINDOWS = 3
REBALANCE_EVERY_SECONDS = 10.0


class Crowd:
    """The members, in their own process."""

    def __init__(self, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.members", str(port), str(GROUPS), str(MEMBERS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.seconds: list[float] = []
        self.cpu: list[float] = []

    def rebalance(self) -> None:
        """All at once; returns when every member has its assignment."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the members have ended")
        seconds, cpu = line.split()
        self.seconds.append(float(seconds))
        self.cpu.append(float(cpu))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def _beside(crowd: Crowd, server: Server, name: str, requests: int) -> list[float]:
    """Seconds of paced requests while all groups rebalance again and again, sorted."""
    ended = threading.Event()

    def again_and_again() -> None:
        while not ended.wait(REBALANCE_EVERY_SECONDS / 2):
            crowd.rebalance()
            ended.wait(REBALANCE_EVERY_SECONDS / 2)

    with ThreadPoolExecutor(1) as pool:
        rebalancing = pool.submit(again_and_again)
        try:
            latencies = paced(server.port, name, more=[], least=requests)
        finally:
            ended.set()
        rebalancing.result()
    return latencies


def _run(running: Server, scale: float) -> Figures:
    folder = Path(tempfile.mkdtemp(prefix="ottla-bench-rebalances-"))
    server = type(running)(folder, group_initial_rebalance_delay_ms=0)
    requests = int(REQUESTS_PER_SECOND * WINDOW_SECONDS * scale)
    quiet: list[float] = []
    busy: list[float] = []
    try:
        server.start()
        with load.topic(server) as name:
            make_offsets_ready(server, name)
            crowd = Crowd(server.port)
            try:
                crowd.rebalance()  # the first one makes the groups
                crowd.rebalance()
                crowd.seconds.clear()
                crowd.cpu.clear()
                for _ in range(WINDOWS):
                    quiet.append(
                        load.percentile(paced(server.port, name, more=[], least=requests), 0.99)
                    )
                    busy.append(load.percentile(_beside(crowd, server, name, requests), 0.99))
            finally:
                crowd.close()
        server.stop()
    finally:
        server.close()
        shutil.rmtree(folder)
    ratios = [b / q for q, b in zip(quiet, busy, strict=True)]
    return {
        "quiet p99 ms": statistics.median(quiet) * 1e3,
        "p99 while rebalancing ms": statistics.median(busy) * 1e3,
        "rebalancing over quiet": statistics.median(ratios),
        "all rebalanced s": statistics.median(crowd.seconds),
        "CPU of the members s": statistics.median(crowd.cpu),
    }


REBALANCES = Work(
    "rebalances",
    "200 groups of 5 rebalance at once every 10 s while 400 requests/s are paced, 3 times 30 s",
    _run,
    {
        "quiet p99 ms": None,
        "p99 while rebalancing ms": None,
        "rebalancing over quiet": Limit(2),
        "all rebalanced s": None,
        "CPU of the members s": None,
    },
)
