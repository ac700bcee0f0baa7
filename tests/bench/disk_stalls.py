"""Times in which the disk itself stood still, whoever wrote to it.

The disk of a virtual machine may answer nobody for some tenths of a second. A 99th percentile is
one request in a hundred: one such time in 30 s decides it, in whichever window it falls.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

INTERVAL_S = 0.02
STALL_S = 0.05
"""A sync of 512 bytes takes 0.4 ms here, and 2 where another writes some megabytes a second."""

Span = tuple[float, float]
"""When something began and when it ended, in seconds of `time.perf_counter`."""


@contextmanager
def watched(folder: Path) -> Iterator[list[Span]]:
    """The times of more than STALL_S that a sync of one page took in the folder, while the block
    runs."""
    stalls: list[Span] = []
    ended = threading.Event()

    def run() -> None:
        descriptor = os.open(folder / "stalls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        while not ended.wait(INTERVAL_S):
            began = time.perf_counter()
            os.write(descriptor, bytes(512))
            os.fdatasync(descriptor)
            now = time.perf_counter()
            if now - began > STALL_S:
                stalls.append((began, now))
        os.close(descriptor)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield stalls
    finally:
        ended.set()
        thread.join()


def outside(spans: Sequence[Span], stalls: Sequence[Span]) -> list[float]:
    """The lengths of those that no stall touches."""
    return [
        end - begin
        for begin, end in spans
        if not any(begin < until and since < end for since, until in stalls)
    ]
