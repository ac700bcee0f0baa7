"""The machine's processors, as far as we share them with others (Linux)."""

from __future__ import annotations

import os
import time
from contextlib import suppress

LOAD = "/proc/loadavg"
_LOAD_BYTES = 64
_ANY_PROCESSOR = range(8192)
"""As many as Linux can be built for, so that those are in it that are plugged in later."""


class LinuxProcessors:
    """`Processors` of the thread that uses it."""

    def __init__(self) -> None:
        self.count = os.cpu_count() or 1
        self._moves = 0

    @classmethod
    def open(cls) -> LinuxProcessors | None:
        """None where the system has no such figures, or forbids them."""
        if not hasattr(os, "sched_setaffinity"):
            return None
        processors = cls()
        return processors if processors.runnable() else None

    def runnable(self) -> int:
        """Of the whole machine: proc_loadavg(5)'s fourth field. Takes 7 us; 0 if it is not there,
        or no number."""
        try:
            descriptor = os.open(LOAD, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return 0
        try:
            return int(os.read(descriptor, _LOAD_BYTES).split()[3].partition(b"/")[0])
        except (OSError, ValueError, IndexError):
            return 0
        finally:
            os.close(descriptor)

    def leave(self, seconds: float) -> None:
        """Sleeps."""
        time.sleep(seconds)

    def move(self) -> None:
        """Goes to the next, free to leave it again. Whoever may not run on all of them was put
        where it is, by a container or by hand, and stays there."""
        with suppress(OSError):  # a courtesy, which a sandbox may forbid
            ours = sorted(os.sched_getaffinity(0))
            if len(ours) == self.count > 1:
                self._moves += 1
                os.sched_setaffinity(0, {ours[self._moves % len(ours)]})
                os.sched_setaffinity(0, _ANY_PROCESSOR)
