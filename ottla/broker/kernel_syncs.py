"""Syncs by the kernel's own threads: Linux AIO, of io_submit(2).

To hand a sync to a thread of ours and to hear of its end takes the interpreter lock twice, from the
loop, which has the most to do just then. The kernel takes fdatasync as a request of its own since
Linux 4.18, and tells of its end by an eventfd, as a socket would. So a sync costs the loop a share
of two system calls that do not block, and the processor time of the sync is the kernel's. Those
that begin together begin with one call: behind each call the kernel's threads, which are bound to
the processor of their caller, take that away from it.

Not io_uring: container runtimes forbid it by default, and it is no faster here. Where the system
has no AIO (`linux_aio.py`), `KernelSyncs.open` returns None, and threads do it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from ottla.broker.linux_aio import Context, os_error

T = TypeVar("T")

REQUESTS_MAX = 64
"""Under way at once; a sync for which there is no room is the caller's again."""

_COMMAND_FDSYNC = 3
_FLAG_RESFD = 1


class KernelSyncs(Generic[T]):
    """Syncs under way in the kernel, for one thread. Nothing blocks."""

    # To destroy a context takes the kernel 30 ms, so the next broker of this process gets it.
    _spare: list[KernelSyncs[Any]] = []

    def __init__(self) -> None:
        """Raises OSError if the system has no AIO, or no more of it."""
        self._context = Context(REQUESTS_MAX)
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        for request in self._context.requests:
            request.command = _COMMAND_FDSYNC
            request.flags = _FLAG_RESFD
            request.eventfd = self._eventfd
        self._free = list(range(REQUESTS_MAX))
        self._under_way: dict[int, T] = {}
        self.collect()  # a sandbox may forbid it, and no sync must begin that is never heard of

    @classmethod
    def open(cls) -> KernelSyncs[T] | None:
        """One that nobody else uses, or None where the kernel does not do this."""
        with suppress(IndexError):
            return cls._spare.pop()
        try:
            return cls()
        except OSError:
            return None

    def __repr__(self) -> str:
        return f"<KernelSyncs {len(self)} under way>"

    def __len__(self) -> int:
        return len(self._under_way)

    def fileno(self) -> int:
        """Readable when `collect` has something to do."""
        return self._eventfd

    def begin(self, wanted: Sequence[tuple[int, T]]) -> list[T]:
        """Begins a sync of each descriptor; `collect` will tell how it ended, and whose it was.
        Returns those for whom nothing has begun, and nothing will.

        The descriptors may be closed meanwhile.
        """
        context, free, under_way = self._context, self._free, self._under_way
        slots: list[int] = []
        for descriptor, whose in wanted:
            if not free:
                break
            slot = free.pop()
            context.requests[slot].descriptor = descriptor
            context.line_up(len(slots), slot)
            under_way[slot] = whose
            slots.append(slot)
        count = context.submit(len(slots))
        if count == len(wanted):
            return []
        # The kernel stops at the first that it does not take.
        for slot in slots[count:]:
            del under_way[slot]
            free.append(slot)
        return [whose for _, whose in wanted[count:]]

    def collect(self) -> list[tuple[T, OSError | None]]:
        """The syncs that have ended: whose they were, and why they failed, if they did."""
        try:
            os.read(self._eventfd, 8)
        except BlockingIOError:
            pass  # nothing has ended since the last look
        ended: list[tuple[T, OSError | None]] = []
        for slot, result in self._context.ended():
            error = os_error(-result) if result < 0 else None
            ended.append((self._under_way.pop(slot), error))
            self._free.append(slot)
        return ended

    def close(self) -> None:
        """Keeps it for the next; nothing may be under way."""
        assert not self._under_way, self
        self._spare.append(self)


if sys.platform == "linux":
    # A forked child has no part in the contexts, but would read their eventfds empty.
    os.register_at_fork(after_in_child=KernelSyncs._spare.clear)
