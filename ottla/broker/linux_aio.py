"""Linux AIO: several requests of files and sockets in one system call, io_submit(2).

No library: to import one took 40 ms. Where the system has no AIO (macOS, a sandbox, a kernel built
without it), a context cannot be made, and whoever wanted one does without.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys

# io_setup, io_getevents, io_submit: the x86-64 table, and the one that newer machines share.
_CALLS = {"x86_64": (206, 208, 209), "aarch64": (0, 4, 2), "riscv64": (0, 4, 2)}
_EVENT_WORDS = 4
"""struct io_event: data and address of the request, and two results, of eight bytes each."""


class Request(ctypes.Structure):
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


class Context:
    """Room for so many requests in the kernel, for one thread.

    To destroy one takes the kernel 30 ms, so the kernel keeps it as long as the process lives.
    """

    def __init__(self, requests_max: int) -> None:
        """Raises OSError if the system has no AIO, or no more of it."""
        calls = _CALLS.get(platform.machine())
        if sys.platform != "linux" or calls is None or sys.maxsize < 2**32:
            raise os_error(errno.ENOSYS)
        setup, *others = calls
        self._getevents, self._submit = map(ctypes.c_long, others)
        # PyDLL keeps the interpreter lock: what is asked for here waits for nothing.
        self._call = ctypes.PyDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._counts = [ctypes.c_long(count) for count in range(requests_max + 1)]
        context = ctypes.c_ulong()
        if self._call(ctypes.c_long(setup), self._counts[-1], ctypes.byref(context)) < 0:
            raise _last_error()
        self._context = context
        self._events = bytearray(8 * _EVENT_WORDS * requests_max)
        self._events_place = (ctypes.c_char * len(self._events)).from_buffer(self._events)
        self._event_words = memoryview(self._events).cast("q")
        self._no_wait = (ctypes.c_long * 2)()
        self.requests = [Request(data=slot) for slot in range(requests_max)]
        """Each bears its number; whoever begins it fills in the rest."""
        self._addresses = [ctypes.addressof(one) for one in self.requests]
        self._list = (ctypes.c_void_p * requests_max)(*self._addresses)

    def line_up(self, place: int, number: int) -> None:
        """Has the request of that number be the one at `place` of what `submit` begins; until
        then each is at the place of its own number."""
        self._list[place] = self._addresses[number]

    def submit(self, count: int) -> int:
        """Begins the first so many. Returns how many the kernel has taken: it stops at the first
        that it does not take."""
        taken: int = self._call(self._submit, self._context, self._counts[count], self._list)
        return max(taken, 0)

    def ended(self) -> list[tuple[int, int]]:
        """The requests that have ended, each by its number and its result, which is an error's
        number below zero. Raises OSError."""
        count = self._call(
            self._getevents,
            self._context,
            self._counts[0],
            self._counts[-1],
            self._events_place,
            self._no_wait,
        )
        if count < 0:
            if ctypes.get_errno() == errno.EINTR:
                return []  # a signal came, and nothing had ended
            raise _last_error()
        words = self._event_words[: _EVENT_WORDS * count]
        numbers, results = words[::_EVENT_WORDS].tolist(), words[2::_EVENT_WORDS].tolist()
        return list(zip(numbers, results, strict=True))


def os_error(number: int) -> OSError:
    """The error of a number, which is -`result` of a request."""
    return OSError(number, os.strerror(number))


def _last_error() -> OSError:
    return os_error(ctypes.get_errno())
