"""What is in memory of the files that are sent, and the sending of what is not.

The kernel is asked before the loop sends or reads; a worker does what would have to wait for the
disk.
"""

from __future__ import annotations

import os
import socket
from concurrent.futures import Executor
from math import inf
from typing import Final

from ottla.broker.log.unreadable import UnreadableRanges
from ottla.broker.page_probe import PageProbe
from ottla.broker.ports import File

WORKER_STEP_BYTES: Final = 128 * 1024
"""A kernel that does not preempt itself gives the loop no processor before a call ends."""
PROBE_BYTES: Final = 128 * 1024
"""Linux reads ahead in windows of this size."""
WARM_S: Final = 1.0
"""What was in memory so long ago may not be any more: its reader has stood still meanwhile."""
WARM_WINDOWS_MAX = 4096
"""Remembered for other readers: half a GB, more than is sent in WARM_S."""


class PageCache(PageProbe):
    """What is in memory of a file, and the sending of what is not."""

    def __init__(self, executor: Executor, unreadable: UnreadableRanges) -> None:
        super().__init__()
        self.executor = executor
        self.unreadable = unreadable
        self.cold_sends = 0
        self.cold_sends_under_way = 0
        # Of windows found in memory, by file and number: from where to where, and when that was
        # asked.
        self._warm: dict[tuple[File, int], tuple[int, int, float]] = {}
        self._warm_since_s = 0.0
        # When a worker last sent of a file: what was read for that ends anywhere.
        self._cold: dict[File, float] = {}

    def found_window(
        self, file: File, descriptor: int, start: int, end: int, now_s: float
    ) -> float | None:
        """When a window, or a part of it, was found in memory; None if it is not.

        Who reads on from what was found of late is told by the last byte. Else all of it is asked
        about, and so is a slice's last part where some of the file was cold of late: single pages
        are in memory where somebody looked for a batch, or for the end of the log at a start. Of
        several readers of the same the first asks the kernel: eight asked it for a twentieth of
        what they cost.
        """
        warm = self._warm
        if now_s - self._warm_since_s > WARM_S or len(warm) >= WARM_WINDOWS_MAX:
            warm.clear()
            self._warm_since_s = now_s
            cold = self._cold.items()
            self._cold = {one: since_s for one, since_s in cold if now_s - since_s <= WARM_S}
        number = (end - 1) // PROBE_BYTES
        known = warm.get((file, number))
        if known is None or not known[0] <= start <= known[1]:
            before = warm.get((file, number - 1))
            is_read_on = before is not None and before[1] == start
            known = (start, start, now_s)
        elif known[1] < end:
            is_read_on = True
        else:
            return known[2]
        if is_read_on and end % PROBE_BYTES and now_s - self._cold.get(file, -inf) <= WARM_S:
            is_read_on = False
        size = 1 if is_read_on else end - known[1]
        if not self.holds(descriptor, end - size, size):
            return None
        warm[file, number] = (known[0], end, now_s)
        return now_s

    def note_cold(self, file: File, now_s: float) -> None:
        """A worker is to send some of a file."""
        self.cold_sends += 1
        self.cold_sends_under_way += 1
        self._cold[file] = now_s

    def send_cold(
        self, sock: socket.socket, descriptor: int, position: int, size: int, ahead: range
    ) -> tuple[int, bool]:
        """Runs in a worker: sends a range that may have to be read first, as far as the socket
        takes it, and has the kernel read `ahead`. Returns how many bytes left (0 at the end of the
        file), and whether what follows is a worker's, too: it is unless the end of `ahead` was in
        memory.

        BlockingIOError if the socket took nothing. Each system call here runs without the GIL.
        """
        is_cold = not ahead or not self.holds(descriptor, ahead[-1])
        if is_cold and ahead and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, ahead.start, len(ahead), os.POSIX_FADV_WILLNEED)
        sent = 0
        while sent < size:
            step = min(size - sent, WORKER_STEP_BYTES)
            try:
                count = os.sendfile(sock.fileno(), descriptor, position + sent, step)
            except OSError:
                if not sent:
                    raise
                break  # the socket is full, or the next call is to say what is wrong there
            sent += count
            if count < step:
                break
        return sent, is_cold
