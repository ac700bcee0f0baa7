"""Syncs by the kernel's own threads: Linux AIO, of io_submit(2).

To hand a sync to a thread of ours and to hear of its end takes the interpreter lock twice, from the
loop, which has the most to do just then. The kernel takes fdatasync as a request of its own since
Linux 4.18, and tells of its end by an eventfd, as a socket would. So a sync costs the loop a share
of two system calls that do not block, and the processor time of the sync is the kernel's. Those
that begin together begin with one call: behind each call the kernel's threads, which are bound to
the processor of their caller, take that away from it.

Not io_uring: container runtimes forbid it by default, and it is no faster here. No library: to
import one took 40 ms. Where the system has no AIO (macOS, a sandbox, a kernel built without it),
`KernelSyncs.open` returns None, and threads do it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")

REQUESTS_MAX = 64
"""Under way at once; a sync for which there is no room is the caller's again."""

# io_setup, io_getevents, io_submit: the x86-64 table, and the one that newer machines share.
_CALLS = {"x86_64": (206, 208, 209), "aarch64": (0, 4, 2), "riscv64": (0, 4, 2)}
_COMMAND_FDSYNC = 3
_FLAG_RESFD = 1
_NONE, _REQUESTS = ctypes.c_long(0), ctypes.c_long(REQUESTS_MAX)
_EVENT = struct.Struct("@QQqq")
"""struct io_event: data and address of the request, and two results."""


class _Request(ctypes.Structure):
    """struct iocb of a little-endian machine (linux/aio_abi.h)."""

    _fields_ = [
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_uint32),
        ("command", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("descriptor", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("eventfd", ctypes.c_uint32),
    ]


class KernelSyncs(Generic[T]):
    """Syncs under way in the kernel, for one thread. Nothing blocks."""

    # To destroy a context takes the kernel 30 ms, so the next broker of this process gets it.
    _spare: list[KernelSyncs[Any]] = []

    def __init__(self) -> None:
        """Raises OSError if the system has no AIO, or no more of it."""
        setup, *calls = _CALLS[platform.machine()]
        self._getevents, self._submit = map(ctypes.c_long, calls)
        # PyDLL keeps the interpreter lock: neither of the calls below waits for anything.
        self._call = ctypes.PyDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        context = ctypes.c_ulong()
        if self._call(ctypes.c_long(setup), _REQUESTS, ctypes.byref(context)) < 0:
            raise _last_error()
        self._context = context
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._events = bytearray(_EVENT.size * REQUESTS_MAX)
        self._events_place = (ctypes.c_char * len(self._events)).from_buffer(self._events)
        self._no_wait = (ctypes.c_long * 2)()
        self._requests = [
            _Request(data=slot, command=_COMMAND_FDSYNC, flags=_FLAG_RESFD, eventfd=self._eventfd)
            for slot in range(REQUESTS_MAX)
        ]
        self._addresses = [ctypes.addressof(one) for one in self._requests]
        self._list = (ctypes.c_void_p * REQUESTS_MAX)()
        self._free = list(range(REQUESTS_MAX))
        self._under_way: dict[int, T] = {}
        self.collect()  # a sandbox may forbid it, and no sync must begin that is never heard of

    @classmethod
    def open(cls) -> KernelSyncs[T] | None:
        """One that nobody else uses, or None where the kernel does not do this."""
        with suppress(IndexError):
            return cls._spare.pop()
        if sys.platform != "linux" or platform.machine() not in _CALLS or sys.maxsize < 2**32:
            return None
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
        free, requests, under_way = self._free, self._requests, self._under_way
        slots: list[int] = []
        for descriptor, whose in wanted:
            if not free:
                break
            slot = free.pop()
            requests[slot].descriptor = descriptor
            self._list[len(slots)] = self._addresses[slot]
            under_way[slot] = whose
            slots.append(slot)
        count = self._call(self._submit, self._context, ctypes.c_long(len(slots)), self._list)
        if count == len(wanted):
            return []
        # The kernel stops at the first that it does not take.
        for slot in slots[max(count, 0) :]:
            del under_way[slot]
            free.append(slot)
        return [whose for _, whose in wanted[max(count, 0) :]]

    def collect(self) -> list[tuple[T, OSError | None]]:
        """The syncs that have ended: whose they were, and why they failed, if they did."""
        try:
            os.read(self._eventfd, 8)
        except BlockingIOError:
            pass  # nothing has ended since the last look
        count = self._call(
            self._getevents, self._context, _NONE, _REQUESTS, self._events_place, self._no_wait
        )
        if count < 0:
            if ctypes.get_errno() == errno.EINTR:
                return []  # a signal came, and nothing had ended: the eventfd will tell when it has
            raise _last_error()
        ended: list[tuple[T, OSError | None]] = []
        for slot, _, result, _ in _EVENT.iter_unpack(self._events[: count * _EVENT.size]):
            ended.append((self._under_way.pop(slot), _error(-result) if result < 0 else None))
            self._free.append(slot)
        return ended

    def close(self) -> None:
        """Keeps it for the next; nothing may be under way."""
        assert not self._under_way, self
        self._spare.append(self)


if sys.platform == "linux":
    # A forked child has no part in the contexts, but would read their eventfds empty.
    os.register_at_fork(after_in_child=KernelSyncs._spare.clear)


def _last_error() -> OSError:
    return _error(ctypes.get_errno())


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
