"""A file of a running broker that fails on demand, and works in all other ways."""

from __future__ import annotations

from ottla.broker.log.log import Log
from ottla.broker.ports import Buffer, File


class FaultyFile:
    """Stands before a real file. While `write_error` or `sync_error` is set, those calls raise."""

    def __init__(self, real: File) -> None:
        self._real = real
        self.path = real.path
        self.write_error: OSError | None = None
        self.sync_error: OSError | None = None

    @classmethod
    def under(cls, log: Log) -> FaultyFile:
        """Puts one in the place of the file that the log writes to."""
        segment = log.segments.active
        file = cls(segment.open())
        segment.file = file
        return file

    def fileno(self) -> int:
        return self._real.fileno()

    def pread(self, size: int, position: int) -> bytes:
        return self._real.pread(size, position)

    def read_cached(self, size: int, position: int) -> bytes | None:
        return self._real.read_cached(size, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        if self.write_error is not None:
            raise self.write_error
        self._real.pwrite(data, position)

    def truncate(self, size: int) -> None:
        self._real.truncate(size)

    def sync(self) -> None:
        if self.sync_error is not None:
            raise self.sync_error
        self._real.sync()

    def write_soon(self) -> None:
        self._real.write_soon()

    def sync_descriptor(self) -> int | None:
        return None

    def size(self) -> int:
        return self._real.size()

    def modified_ms(self) -> int:
        return self._real.modified_ms()

    def written_end(self) -> int:
        return self._real.written_end()

    def close(self) -> None:
        self._real.close()

    @property
    def is_pinned(self) -> bool:
        return self._real.is_pinned

    def pin(self) -> None:
        self._real.pin()

    def unpin(self) -> None:
        self._real.unpin()
