"""What of files is in memory: the kernel is asked, by `preadv` with RWF_NOWAIT and by openat2(2).

Python has no call for the latter. Where a system has none either, or forbids it, nothing is known.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from functools import cache

_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_CAN_PROBE = bool(_RWF_NOWAIT) and hasattr(os, "preadv")

_OPENAT2 = 437
"""Since Linux 5.6, and RESOLVE_CACHED since 5.12; on nearly every machine."""
_AT_FDCWD = -100
_RESOLVE_CACHED = 0x20
_HOW = struct.Struct("@QQQ")
"""struct open_how: flags, mode, resolve."""


class PageProbe:
    """A file system that cannot say (EOPNOTSUPP) is asked once."""

    def __init__(self) -> None:
        self.can_probe = _CAN_PROBE
        self._byte: list[bytearray | memoryview] = [bytearray(1)]
        self._bytes = bytearray()

    def holds(self, descriptor: int, position: int, size: int = 1) -> bool:
        """Whether these bytes are in memory; a file system that cannot say is believed to. The
        kernel copies them to say so: 128 KiB in some 10 us, one in 1."""
        if not self.can_probe:
            return True
        read = self._byte
        if size > 1:
            if len(self._bytes) < size:
                self._bytes = bytearray(size)
            read = [memoryview(self._bytes)[:size]]
        try:
            return os.preadv(descriptor, read, position, _RWF_NOWAIT) == size
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            self.can_probe = False
            return True

    def read_cached(self, descriptor: int, position: int, size: int) -> bytearray | None:
        """The bytes if they are all in memory, else None."""
        if self.can_probe:
            try:
                return read_cached(descriptor, position, size)
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
                self.can_probe = False
        data = bytearray(size)
        return data if os.preadv(descriptor, [data], position) == size else None


def read_cached(descriptor: int, position: int, size: int) -> bytearray | None:
    """The bytes if they are all in memory, else None. OSError EOPNOTSUPP where nobody can say."""
    if not _CAN_PROBE:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    data = bytearray(size)
    try:
        count = os.preadv(descriptor, [data], position, _RWF_NOWAIT)
    except BlockingIOError:
        return None
    return data if count == size else None


def open_cached(path: str, flags: int) -> int | None:
    """A descriptor of a file whose directory entries and inode are in memory; else None."""
    call = _openat2()
    if call is None:
        return None
    how = _HOW.pack(flags, 0, _RESOLVE_CACHED)
    descriptor = call(_OPENAT2, _AT_FDCWD, os.fsencode(path), how, len(how))
    return None if descriptor < 0 else descriptor


@cache
def _openat2() -> ctypes._NamedFuncPointer | None:
    if sys.platform != "linux":
        return None
    try:
        call = ctypes.CDLL(None).syscall
    except (OSError, AttributeError):  # no libc that could be asked
        return None
    call.restype = ctypes.c_long
    call.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    return call
