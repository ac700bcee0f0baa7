"""The machine's processors, as far as we share them with others (Linux)."""

from __future__ import annotations

import asyncio
import os
import select
import time
from contextlib import suppress
from typing import Final

LOAD: Final = "/proc/loadavg"
_LOAD_BYTES: Final = 64
STEP_S: Final = 0.0001
"""Of leaving; behind each the loop's descriptors are looked at, which takes 1 us or 2."""
_ANY_PROCESSOR: Final = range(8192)
"""As many as Linux can be built for, so that those are in it that are plugged in later."""


class LinuxProcessors:
    """`Processors` of a loop and its thread."""

    def __init__(self, watched: select.epoll) -> None:
        """`watched` has the descriptors that the loop reads from."""
        self.count = os.cpu_count() or 1
        self._watched = watched
        self._load: int | None = None
        """A descriptor of LOAD, from when it is first asked for until it tells nothing."""
        self._moves = 0

    @classmethod
    def open(cls, loop: asyncio.AbstractEventLoop) -> LinuxProcessors | None:
        """None where the system has no such figures, or forbids them, or the loop does not say
        where it waits."""
        is_linux = hasattr(os, "sched_setaffinity") and hasattr(select, "epoll")
        watched = _watched_by(loop) if is_linux else None
        if watched is None:
            return None
        processors = cls(watched)
        return processors if processors.runnable() else None

    def runnable(self) -> int:
        """Of the whole machine: proc_loadavg(5)'s fourth field. 0 if it is not there, or no
        number."""
        try:
            if self._load is None:
                self._load = os.open(LOAD, os.O_RDONLY | os.O_CLOEXEC)
            return int(os.pread(self._load, _LOAD_BYTES, 0).split()[3].partition(b"/")[0])
        except (OSError, ValueError, IndexError):
            if self._load is not None:  # it may be another file by now
                os.close(self._load)
                self._load = None
            return 0

    def leave(self, seconds: float, enough: int) -> None:
        """Sleeps for so long, or until so many of the loop's descriptors are ready."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, STEP_S))
            # Who is found here is found by the loop once more: it is not told of edges.
            if enough and len(self._watched.poll(0, enough)) >= enough:
                return

    def move(self) -> None:
        """Goes to the next, free to leave it again. Whoever may not run on all of them was put
        where it is, by a container or by hand, and stays there."""
        with suppress(OSError):  # a courtesy, which a sandbox may forbid
            ours = sorted(os.sched_getaffinity(0))
            if len(ours) == self.count > 1:
                self._moves += 1
                os.sched_setaffinity(0, {ours[self._moves % len(ours)]})
                os.sched_setaffinity(0, _ANY_PROCESSOR)


def _watched_by(loop: asyncio.AbstractEventLoop) -> select.epoll | None:
    """What a loop waits on, under a descriptor of our own. Neither kind of loop promises to name
    it: uvloop does by a method of its tests, the standard one by its selector."""
    backend = getattr(loop, "_get_backend_id", None)
    if backend is None:
        backend = getattr(getattr(loop, "_selector", None), "fileno", None)
    try:
        return select.epoll.fromfd(os.dup(backend())) if backend is not None else None
    except (OSError, ValueError):
        return None
