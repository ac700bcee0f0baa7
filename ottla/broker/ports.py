"""What the broker asks of the world outside it: time, files, and somewhere to tell what happened.

Rules live in classes that are handed these ports; the real ones stand in `posix.py`, the simulated
ones in `ottla.testing`. Nothing below the shells imports `os`, `time`, `random` or `structlog`.
Paths are plain strings. A failed disk call raises OSError, with errno set.
"""

from __future__ import annotations

from typing import Any, Protocol

from ottla.broker.descriptors import HeldDescriptors

Buffer = bytes | bytearray | memoryview
THIS_PROCESS = "this very process"


class Clock(Protocol):
    """Wall time is for timestamps and retention only; every timeout uses monotonic time."""

    def monotonic_ms(self) -> int: ...

    def wall_ms(self) -> int: ...


class File(Protocol):
    """An open file. Positions and sizes are bytes."""

    path: str

    def fileno(self) -> int:
        """The descriptor, for sendfile; the simulated disk has none and raises OSError."""

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def read_cached(self, size: int, position: int) -> bytes | None:
        """These bytes, which are in the file, if they are in memory; a file system that cannot tell
        may read the disk."""

    def pwrite(self, data: Buffer, position: int) -> None:
        """Writes all of `data`, or raises OSError; after an error any part may be written."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Data and size are on disk when it returns (fdatasync). An OSError here is final."""

    def write_soon(self) -> None:
        """A hint that a sync of this and of other files is near: what was written may begin to go
        to the disk. Nothing is promised, and nothing raised."""

    def sync_descriptor(self) -> int | None:
        """The descriptor whose fdatasync is all that `sync` does; None if it does anything else."""

    def size(self) -> int: ...

    def modified_ms(self) -> int:
        """The wall time of the last write, as the file system has it."""

    def written_end(self) -> int:
        """Behind it nothing was ever written, as far as the file system tells: at most the size."""

    def close(self) -> None:
        """Closes now, or when the last pin is gone."""

    @property
    def is_pinned(self) -> bool: ...

    def pin(self) -> None:
        """Keeps the file open over a close, for an answer that still sends from it."""

    def unpin(self) -> None: ...


class Disk(Protocol):
    """One file system as a log directory sees it."""

    # Who keeps a descriptor that it can open again.
    held: HeldDescriptors

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens for reading and writing; `create` makes a missing file, and is not exclusive."""

    def open_cached(self, path: str) -> File | None:
        """The same of a file that is there, if nothing has to be read from the disk for it; None
        also where the system cannot tell."""

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def exists(self, path: str) -> bool: ...

    def make_dir(self, path: str) -> None:
        """Makes one directory; an existing one is not an error."""

    def rename(self, old: str, new: str) -> None:
        """Replaces `new` if it is there. Durable only after sync_dir of both parents."""

    def remove(self, path: str) -> None:
        """Unlinks a file, or removes an empty directory."""

    def sync_dir(self, path: str) -> None: ...

    def map(self, file: File) -> memoryview:
        """A read-only view of the whole file that shows later pwrites to it."""

    def allocate(self, path: str, size: int) -> None:
        """Makes a file of so many bytes, if it is not there, and takes room on the disk for all of
        them. What they are is not said. After an error some of it may be taken."""

    def space(self, path: str) -> tuple[int, int]:
        """Bytes of the file system that holds the path: in all, and still free for us."""

    def lock(self, path: str) -> File:
        """Makes the file and holds it alone until close; writes nothing into it.

        Raises BlockingIOError, whose strerror names the holder, if it is held; THIS_PROCESS if
        here, as far as the system tells.
        """


DEBUG, ERROR = 10, 40
"""The levels of these methods of `Events`, as logging counts."""


class Events(Protocol):
    """Structured events by name."""

    def is_enabled_for(self, level: int) -> bool:
        """Whether events of that level go anywhere; who has many of them asks once."""

    def debug(self, event: str, **fields: Any) -> Any: ...

    def info(self, event: str, **fields: Any) -> Any: ...

    def warning(self, event: str, **fields: Any) -> Any: ...

    def error(self, event: str, **fields: Any) -> Any: ...


class Rng(Protocol):
    """random.Random is one."""

    def randrange(self, stop: int, /) -> int: ...

    def getrandbits(self, k: int, /) -> int: ...
