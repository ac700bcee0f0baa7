"""The machine's processors, as far as we share them with others (Linux)."""

from __future__ import annotations

import os
import time
from contextlib import suppress

_LOAD = "/proc/loadavg"
_LOAD_BYTES = 64


class LinuxProcessors:
    """`Processors` of the thread that uses it."""

    def __init__(self, descriptor: int, count: int) -> None:
        self._descriptor = descriptor
        self._turn = 0
        self.count = count

    @classmethod
    def open(cls) -> LinuxProcessors | None:
        """None where the system has no such figures, or forbids them."""
        if not hasattr(os, "sched_setaffinity"):
            return None
        try:
            descriptor = os.open(_LOAD, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        processors = cls(descriptor, len(os.sched_getaffinity(0)))
        try:
            processors.runnable()
        except (OSError, ValueError, IndexError):
            processors.close()
            return None
        return processors

    def runnable(self) -> int:
        """How many tasks of the whole machine run or wait for a processor: proc_loadavg(5)'s fourth
        field. It takes 2 us."""
        line = os.pread(self._descriptor, _LOAD_BYTES, 0)
        return int(line.split()[3].partition(b"/")[0])

    def leave(self, seconds: float) -> None:
        """Sleeps."""
        time.sleep(seconds)

    def move(self) -> None:
        """Goes to the next of those that we may run on now, and stays as free to leave it as it
        was: whoever pinned us, or moves us later, has the last word."""
        allowed = sorted(os.sched_getaffinity(0))
        self._turn += 1
        with suppress(OSError):  # a courtesy: a sandbox may forbid it, or they have just changed
            os.sched_setaffinity(0, {allowed[self._turn % len(allowed)]})
            os.sched_setaffinity(0, allowed)

    def close(self) -> None:
        os.close(self._descriptor)
