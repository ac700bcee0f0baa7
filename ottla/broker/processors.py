"""The machine's processors, as far as we share them with others (Linux)."""

from __future__ import annotations

import os
import time
from contextlib import suppress

_LOAD = "/proc/loadavg"
_LOAD_BYTES = 64


class LinuxProcessors:
    """`Processors` of the thread that makes it and uses it.

    `open` gives None where the system has no such figures, or forbids them.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.count = len(os.sched_getaffinity(0))
        # Somebody may have given us a policy of their own choice, which is theirs to change.
        self._is_ours = os.sched_getscheduler(0) == os.SCHED_OTHER

    @classmethod
    def open(cls) -> LinuxProcessors | None:
        if not hasattr(os, "SCHED_BATCH"):
            return None
        try:
            descriptor = os.open(_LOAD, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        processors = cls(descriptor)
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

    def defer(self, *, defers: bool) -> None:
        """SCHED_BATCH: who wakes does not take the processor from whom it finds there."""
        if self._is_ours:
            policy = os.SCHED_BATCH if defers else os.SCHED_OTHER
            with suppress(OSError):  # a courtesy: a container may forbid it
                os.sched_setscheduler(0, policy, os.sched_param(0))

    def close(self) -> None:
        os.close(self._descriptor)
