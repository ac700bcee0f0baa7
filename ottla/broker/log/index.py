"""A file of fixed-width entries, sorted by the key that each begins with.

The offset and the time index of a segment are such files. The active segment's are preallocated
as Kafka's are, sparse, so that the space behind the last entry reads as zeros; when the segment
is rolled or the log is closed, the file is cut to its entries.

Entries are gathered in memory and written by pwrite in blocks: an index is a hint that is rebuilt
after an unclean stop, so a block that was never written is no loss, and a log that is written to
holds no descriptors for its indexes. Entries on disk are read through a read-only map (storing
through a map of a sparse file is SIGBUS on a full disk). The map is made on first use; nothing
reads behind the entries that are known, so a cut file is not touched behind its end.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ottla.broker.ports import Disk, File
from ottla.protocol.records.crc import crc32c

# A block of 64 offset entries stands for at least 256 KiB of records.
BLOCK_BYTES: Final = 512

# The search looks first at the end of the index. Followers and tailing consumers ask for the last
# few entries, again and again: a binary search over the whole file would touch the same few pages
# in its middle each time and, when these have been evicted, stall for each of them. 8 KiB are at
# most three pages, which stay warm (Kafka's figure and reason, KAFKA-6432).
WARM_BYTES: Final = 8192

ASKED_BYTES: Final = 4096
"""Entries that the kernel is asked about at once."""


class IndexCorrupt(Exception):
    """An index says what cannot be, or what its segment does not hold: it is to be rebuilt."""


class EntryFile:
    """One index file. An entry is bytes of a fixed width; `key` unpacks what it begins with."""

    __slots__ = (
        "_disk",
        "_entry_size",
        "_is_used",
        "_map",
        "_pending",
        "_unpack_key",
        "_written",
        "count",
        "max_entries",
        "path",
    )

    def __init__(
        self, disk: Disk, path: str, *, key: Struct, entry_size: int, max_bytes: int
    ) -> None:
        self.path = path
        self.max_entries = max_bytes // entry_size
        self.count = 0
        self._disk = disk
        self._entry_size = entry_size
        self._unpack_key = key.unpack_from
        self._written = 0
        self._pending = bytearray()
        self._map: memoryview | None = None
        self._is_used = False

    def __repr__(self) -> str:
        return f"<EntryFile {self.path} entries={self.count}>"

    def create(self) -> None:
        """Makes the file anew, preallocated; the name is not synced."""
        self.forget()
        file = self._disk.open(self.path, create=True)
        try:
            if file.size():
                file.truncate(0)
            file.truncate(self.max_entries * self._entry_size)
        finally:
            file.close()

    def forget(self) -> None:
        """No entries, whatever the file holds; they are written over."""
        self.count = self._written = 0
        self._pending.clear()
        self._map = None

    def load(self) -> bytes | None:
        """Takes the entries that the file holds; the last two, or as many as there are.

        None if there is no file, or one that is no whole number of entries.
        """
        self.forget()
        size = self._entry_size
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError:
            return None
        try:
            count, rest = divmod(file.size(), size)
            if rest:
                return None
            last = file.pread(2 * size, max(count - 2, 0) * size) if count else b""
        finally:
            file.close()
        self.count = self._written = count
        return last

    def resume(self, size: int, crc: int) -> bytes:
        """Takes the entries in the first `size` bytes of the file; the last one, or nothing.

        What lies behind them is written over. Raises IndexCorrupt unless they have that CRC-32C.
        """
        self.forget()
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError:
            raise IndexCorrupt(self.path) from None
        try:
            data = file.pread(size, 0)
        finally:
            file.close()
        self.count, rest = divmod(size, self._entry_size)
        if len(data) != size or rest or self.count > self.max_entries or crc32c(data) != crc:
            raise IndexCorrupt(self.path)
        self._written = self.count
        return data[-self._entry_size :]

    def write(self) -> File:
        """Writes the entries in memory; the file, which has all of them, opened to be read."""
        if self._pending:
            self._write_pending()
        return self._disk.open(self.path)

    @property
    def size_bytes(self) -> int:
        """Of all entries."""
        return self.count * self._entry_size

    @property
    def written_bytes(self) -> int:
        """Of those that are in the file."""
        return self._written * self._entry_size

    def append(self, entry: bytes) -> None:
        """Adds an entry in memory; never fails. `make_room` before keeps the memory bounded."""
        self._pending += entry
        self.count += 1

    def make_room(self) -> None:
        """Writes the entries in memory if they fill a block. An OSError leaves all as it was."""
        if len(self._pending) >= BLOCK_BYTES:
            self._write_pending()

    def read(self, index: int) -> bytes:
        """The entry at an index, which must be there."""
        assert 0 <= index < self.count, self.path
        size = self._entry_size
        if index < self._written:
            view, start = self._view(), index * size
            return bytes(view[start : start + size])
        start = (index - self._written) * size
        return bytes(self._pending[start : start + size])

    def floor_unwritten(self, target: int) -> int | None:
        """The index of the last entry whose key is at most `target`, or -1; None if the file has
        to be searched for it."""
        pending = self._pending
        if pending and self._unpack_key(pending, 0)[0] <= target:
            count = len(pending) // self._entry_size
            return self._written + self._search(pending, 0, count, target)
        return None if self._written else -1

    def floor(self, target: int) -> int:
        """The index of the last entry whose key is at most `target`, or -1."""
        unwritten = self.floor_unwritten(target)
        if unwritten is not None:
            return unwritten
        size = self._entry_size
        view = self._view()
        low, high = 0, self._written
        warm = high - WARM_BYTES // size
        if warm > 0:
            if self._unpack_key(view, warm * size)[0] <= target:
                low = warm + 1
            else:
                high = warm
        return self._search(view, low, high, target)

    def floor_in(self, piece: bytes, target: int) -> int:
        """The same of entries as they lie in the file, which may be without this one's map."""
        return self._search(memoryview(piece), 0, len(piece) // self._entry_size, target)

    def _search(self, entries: bytearray | memoryview, low: int, high: int, target: int) -> int:
        """The last entry of [low, high) whose key is at most `target`, or low - 1."""
        unpack, size = self._unpack_key, self._entry_size
        while low < high:
            middle = (low + high) // 2
            if unpack(entries, middle * size)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def truncate(self, count: int) -> None:
        """Keeps the first `count` entries."""
        assert 0 <= count <= self.count, self.path
        size = self._entry_size
        if count < self._written:
            self._cut(count * size)
            self._pending.clear()
            self._written = count
        else:
            del self._pending[(count - self._written) * size :]
        self.count = count

    def seal(self) -> None:
        """Writes what is in memory and cuts the file to its entries; more may be appended."""
        if self._pending:
            self._write_pending()
        self._cut(self._written * self._entry_size)

    def open_apart(self) -> File:
        """The file by a descriptor of the caller's."""
        return self._disk.open(self.path)

    def map_cached(self, target: int) -> bool:
        """Whether a search for the last entry whose key is at most `target` waits for no disk, as
        far as the system tells; then the file is mapped. A map that has been used of late is
        believed to be in memory."""
        if self._map is not None or self.floor_unwritten(target) is not None:
            return True
        file = self._disk.open_cached(self.path)
        if file is None:
            return False
        try:
            if not self._is_cached(file, target):
                return False
            self._set_map(self._disk.map(file))
        finally:
            file.close()
        return True

    def _is_cached(self, file: File, target: int) -> bool:
        """Whether all is in memory that `floor` reads. Each question costs some 2 us."""
        size = self._entry_size
        low, high = 0, self._written
        middle = max(high - WARM_BYTES // size, 0) or high // 2
        while (high - low) * size > ASKED_BYTES:
            entry = file.read_cached(size, middle * size)
            if entry is None:
                return False
            if self._unpack_key(entry, 0)[0] <= target:
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        return file.read_cached((high - low) * size, low * size) is not None

    def release(self) -> None:
        """Gives the map back; the next search makes another."""
        self._map = None

    def release_idle(self) -> bool:
        is_idle, self._is_used = not self._is_used, False
        if is_idle:
            self._map = None
        return self._map is None

    def _view(self) -> memoryview:
        self._is_used = True
        view = self._map
        if view is None:
            file = self._disk.open(self.path)
            try:
                view = self._set_map(self._disk.map(file))
            finally:
                file.close()
        return view

    def _set_map(self, view: memoryview) -> memoryview:
        self._map = view
        self._is_used = True
        self._disk.held.hold_map(self)
        return view

    def _write_pending(self) -> None:
        size = self._entry_size
        position = self._written * size
        file = self._disk.open(self.path, create=True)
        try:
            if file.size() < position + len(self._pending):
                self._map = None
                file.truncate(max(self.max_entries, self.count) * size)
            file.pwrite(self._pending, position)
        finally:
            file.close()
        self._written = self.count
        self._pending.clear()

    def _cut(self, size: int) -> None:
        self._map = None
        file = self._disk.open(self.path, create=True)
        try:
            if file.size() != size:
                file.truncate(size)
        finally:
            file.close()
