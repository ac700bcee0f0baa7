"""The real disk: the only module of the broker that opens files.

Linux: a sync is fdatasync, which also writes the size when it grew; a directory is made durable by
fsync of its descriptor. macOS has neither fdatasync nor an fsync that empties the drive's cache, so
there both are fcntl(F_FULLFSYNC), and plain fsync on a file system that does not know it.
Descriptors are close-on-exec: a worker process must not keep a log or a lock alive.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import struct
import sys
import threading
from contextlib import suppress

from ottla.broker import open_files
from ottla.broker.descriptors import HeldDescriptors
from ottla.broker.page_probe import open_cached, read_cached
from ottla.broker.ports import THIS_PROCESS, Buffer, File

_OPEN_FLAGS = os.O_RDWR | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

BACKGROUND_NICE = 10
"""A tenth of the others' weight: it gives way, and does not starve while it has the GIL."""

DESCRIPTORS_AT_START = 16_384
"""128 KiB of the kernel's memory."""

# struct flock of Linux on 64 bits: type, whence, start, length (0 = to the end), pid.
_FLOCK = struct.Struct("@hhqqi")


def lower_thread_priority() -> None:
    """This thread gives way to all others from now on. For work that is done in system calls:
    a thread that is kept waiting while it has the GIL keeps all others waiting.

    A courtesy: only Linux gives each thread a nice value of its own, and there it may be forbidden;
    then nothing happens.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        with suppress(OSError):
            nice = max(os.getpriority(os.PRIO_PROCESS, thread), BACKGROUND_NICE)
            os.setpriority(os.PRIO_PROCESS, thread, nice)


class PosixFile:
    """One descriptor. Positional calls only, so that threads may share it.

    Pins are counted without a lock: they and close belong to one thread, the loop's.
    """

    __slots__ = ("_closing", "_fd", "_held", "_pins", "path")

    def __init__(self, path: str, fd: int, held: HeldDescriptors) -> None:
        self.path = path
        self._fd = fd
        self._held = held
        self._pins = 0
        self._closing = False

    def __repr__(self) -> str:
        return f"<PosixFile {self.path} fd={self._fd}>"

    def fileno(self) -> int:
        return self._fd

    def pread(self, size: int, position: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        read = len(data)
        while read < size:
            data = os.pread(self._fd, size - read, position + read)
            if not data:
                break
            parts.append(data)
            read += len(data)
        return b"".join(parts)

    def read_cached(self, size: int, position: int) -> bytes | None:
        try:
            data = read_cached(self._fd, position, size)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return self.pread(size, position)
        return None if data is None else bytes(data)

    def pwrite(self, data: Buffer, position: int) -> None:
        size = len(data)
        written = os.pwrite(self._fd, data, position)
        if written == size:
            return
        # The kernel may stop early at a signal or just before the disk is full; the next call
        # goes on or tells why (Python itself repeats after EINTR).
        rest = memoryview(data)
        while written < size:
            count = os.pwrite(self._fd, rest[written:], position + written)
            if count == 0:
                raise OSError(errno.EIO, "the kernel wrote nothing", self.path)
            written += count

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        _sync(self._fd)

    def write_soon(self) -> None:
        # Linux begins to write the pages out that it is to drop, and so gives them their blocks.
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError):
                os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def sync_descriptor(self) -> int | None:
        return self._fd if sys.platform == "linux" else None

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def modified_ms(self) -> int:
        return os.fstat(self._fd).st_mtime_ns // 1_000_000

    def written_end(self) -> int:
        size = self.size()
        if not hasattr(os, "SEEK_DATA"):
            return size
        position = end = 0
        while position < size:
            try:
                position = os.lseek(self._fd, position, os.SEEK_DATA)
                end = position = os.lseek(self._fd, position, os.SEEK_HOLE)
            except OSError as error:
                return end if error.errno == errno.ENXIO else size
        return end

    def close(self) -> None:
        """Closing twice is allowed; the descriptor is given back once."""
        self._closing = True
        if self._pins == 0 and self._fd >= 0:
            fd, self._fd = self._fd, -1
            _close(fd)

    @property
    def is_pinned(self) -> bool:
        return self._pins > 0

    def pin(self) -> None:
        if not self._pins:
            self._held.pinned += 1
        self._pins += 1

    def unpin(self) -> None:
        assert self._pins > 0, self.path
        self._pins -= 1
        if not self._pins:
            self._held.pinned -= 1
        if self._closing:
            self.close()


class _LockedFile(PosixFile):
    """A file whose locks end when it is closed: they belong to the open file, and a process that
    was forked meanwhile has that, too. One that closes it there leaves us ours."""

    __slots__ = ("_process",)

    def __init__(self, path: str, fd: int, held: HeldDescriptors) -> None:
        super().__init__(path, fd, held)
        self._process = os.getpid()

    def close(self) -> None:
        if self._fd >= 0 and self._process == os.getpid():
            with suppress(OSError):
                _unlock_whole_file(self._fd)
        super().close()


def _close(fd: int) -> None:
    """The descriptor is given back, whatever a network file system says of it: what is on disk is
    judged by syncs."""
    try:
        os.close(fd)
    except OSError as error:
        if error.errno == errno.EBADF:
            raise


class PosixDisk:
    """The file systems of this machine."""

    def __init__(self) -> None:
        self.held = HeldDescriptors(held_descriptors_max)

    def open(self, path: str, *, create: bool = False) -> PosixFile:
        flags = _OPEN_FLAGS | os.O_CREAT if create else _OPEN_FLAGS
        return PosixFile(path, os.open(path, flags, 0o644), self.held)

    def open_cached(self, path: str) -> PosixFile | None:
        fd = open_cached(path, _OPEN_FLAGS)
        return None if fd is None else PosixFile(path, fd, self.held)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def make_dir(self, path: str) -> None:
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except (IsADirectoryError, PermissionError):
            # Linux answers EISDIR for a directory, macOS EPERM.
            os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, _DIRECTORY_FLAGS)
        try:
            _sync_all(fd)
        finally:
            os.close(fd)

    def map(self, file: File) -> memoryview:
        """The caller must not read it after the file has been cut below its mapped size."""
        if file.size() == 0:
            return memoryview(b"")  # the kernel maps no empty file
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def allocate(self, path: str, size: int) -> None:
        file = self.open(path, create=True)
        try:
            _allocate(file, size)
        finally:
            file.close()

    def space(self, path: str) -> tuple[int, int]:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize

    def lock(self, path: str) -> PosixFile:
        file = _LockedFile(path, os.open(path, _OPEN_FLAGS | os.O_CREAT, 0o644), self.held)
        try:
            _lock_whole_file(file.fileno())
        except OSError as error:
            file.close()  # first, or the list of locks may show our own half of them
            holder = _lock_holder(path)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise BlockingIOError(errno.EAGAIN, holder or "another process", path) from error
        return file


class ReadOnlyDisk(PosixDisk):
    """For who only looks: files are opened for reading, and whoever writes gets an OSError."""

    def open(self, path: str, *, create: bool = False) -> PosixFile:
        assert not create, path
        return PosixFile(path, os.open(path, _READ_FLAGS), self.held)

    def open_cached(self, path: str) -> PosixFile | None:
        fd = open_cached(path, _READ_FLAGS)
        return None if fd is None else PosixFile(path, fd, self.held)


def held_descriptors_max() -> int:
    """Files that logs may keep open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else open_files.held_max(soft)


def raise_descriptor_limit() -> int:
    """Lifts the soft limit on open files to the hard one, and returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard
    if sys.platform != "linux" and hard == resource.RLIM_INFINITY:
        wanted = 10_240  # OPEN_MAX: macOS refuses a higher soft limit
    if soft != wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def widen_descriptor_table() -> None:
    """Has the kernel make room for many descriptors now, while this process has one thread.

    Linux doubles the table as it fills. In a process of several threads whoever opens a file or
    accepts a connection then waits until no processor uses the old one: 7 to 20 ms, each time.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = min(soft, DESCRIPTORS_AT_START) - 1
    with suppress(OSError):
        any_file = os.open(os.sep, os.O_RDONLY)
        try:
            os.close(fcntl.fcntl(any_file, fcntl.F_DUPFD_CLOEXEC, last))
        finally:
            os.close(any_file)


if sys.platform == "linux":

    def _sync(fd: int) -> None:
        os.fdatasync(fd)

    def _sync_all(fd: int) -> None:
        os.fsync(fd)

    def _allocate(file: PosixFile, size: int) -> None:
        os.posix_fallocate(file.fileno(), 0, size)

    def _lock_records(fd: int, kind: int) -> None:
        whole = _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, whole)

else:

    def _sync(fd: int) -> None:
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
            os.fsync(fd)

    _sync_all = _sync

    def _allocate(file: PosixFile, size: int) -> None:
        file.pwrite(bytes(size), 0)

    def _lock_records(fd: int, kind: int) -> None:
        """Nothing to do: here flock and record locks meet each other."""


def _lock_whole_file(fd: int) -> None:
    """Two kinds of lock, for two kinds of neighbour.

    flock keeps out our own kind, in this process too, and /proc/locks names its holder. Java's
    FileLock is a record lock, which flock does not meet on Linux; the record lock of an open file
    description meets it, and is not lost when somebody else in this process closes the file.
    """
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    _lock_records(fd, fcntl.F_WRLCK)


def _unlock_whole_file(fd: int) -> None:
    _lock_records(fd, fcntl.F_UNLCK)
    fcntl.flock(fd, fcntl.LOCK_UN)


def _lock_holder(path: str) -> str | None:
    """Who holds a lock on the file, as far as the kernel tells: "process 4711 (java)", or this."""
    inode = os.stat(path).st_ino
    try:  # Linux alone has this list
        with open("/proc/locks", encoding="ascii") as locks:
            rows = [line.split() for line in locks]
    except FileNotFoundError:
        return None
    for row in rows:
        # 1: FLOCK  ADVISORY  WRITE 5917 fe:00:9986050 0 EOF; waiting ones have "->" second.
        # The device is left out: overlay and btrfs show another there than stat does.
        if len(row) < 6 or row[1] not in ("FLOCK", "POSIX"):
            continue
        if row[5].rpartition(":")[2] == str(inode) and row[4] != "-1":
            here = row[4] == str(os.getpid())
            return THIS_PROCESS if here else f"process {row[4]}{_process_name(row[4])}"
    return None


def _process_name(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as comm:
            return f" ({comm.read().strip()})"
    except OSError:
        return ""  # gone by now, or in another namespace
