"""From timestamps to offsets, sparsely: N.timeindex.

    bytes   field
    0-7     int64 greatest timestamp of the segment so far
    8-11    int32 offset, less the segment's base: the last offset of the batch that has it

An entry says that every record at or below that offset has at most that timestamp. Timestamps
ascend strictly: while no greater one comes, no entry is written. The last slot is kept for the
closing entry, which a segment gets when it is rolled or closed, so that the last entry of a
sealed segment names its greatest timestamp. A file too small for a single entry has none: there
the batches behind the last entry of the offset index say it, as in the active segment.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ottla.broker.log.index import EntryFile, IndexCorrupt
from ottla.broker.ports import Disk

ENTRY: Final = Struct(">qi")
_KEY: Final = Struct(">q")

NO_TIMESTAMP: Final = -1


class TimeIndex:
    """The time index of one segment. Offsets here are whole, not relative."""

    __slots__ = ("base_offset", "entries", "last_offset", "last_timestamp")

    def __init__(self, disk: Disk, path: str, *, base_offset: int, max_bytes: int) -> None:
        self.base_offset = base_offset
        self.last_timestamp = NO_TIMESTAMP
        self.last_offset = base_offset
        self.entries = EntryFile(disk, path, key=_KEY, entry_size=ENTRY.size, max_bytes=max_bytes)

    @property
    def is_full(self) -> bool:
        """Whether only the slot of the closing entry is left."""
        return self.entries.count >= self.entries.max_entries - 1

    def create(self) -> None:
        self.entries.create()
        self.last_timestamp, self.last_offset = NO_TIMESTAMP, self.base_offset

    def load(self) -> bool:
        """Opens what is on disk; False if it can be no time index of this segment."""
        last = self.entries.load()
        self.last_timestamp, self.last_offset = NO_TIMESTAMP, self.base_offset
        for timestamp, relative in ENTRY.iter_unpack(last or b""):
            # A zero entry is the tail of a file that was never cut to its entries.
            if timestamp <= self.last_timestamp or self.base_offset + relative < self.last_offset:
                self.last_timestamp, self.last_offset = NO_TIMESTAMP, self.base_offset
                return False
            self.last_timestamp, self.last_offset = timestamp, self.base_offset + relative
        return last is not None

    def resume(self, size: int, crc: int) -> None:
        """Takes the entries in the first `size` bytes. Raises IndexCorrupt if they are others."""
        last = self.entries.resume(size, crc)
        self.last_timestamp, relative = ENTRY.unpack(last) if last else (NO_TIMESTAMP, 0)
        self.last_offset = self.base_offset + relative

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds an entry if the timestamp is greater than the last one's. Never fails."""
        if timestamp <= self.last_timestamp:
            return
        entries = self.entries
        assert entries.count < entries.max_entries, f"{entries.path} is full"
        assert offset >= self.last_offset, f"{entries.path}: {offset} after {self.last_offset}"
        entries.append(ENTRY.pack(timestamp, offset - self.base_offset))
        self.last_timestamp = timestamp
        self.last_offset = offset

    def close(self, timestamp: int, offset: int) -> None:
        """Adds the closing entry if it is needed and there is a slot for it. Never fails."""
        if self.entries.count < self.entries.max_entries:
            self.maybe_append(timestamp, offset)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry at or below a timestamp, as (timestamp, offset); (-1, base) before all.

        Raises IndexCorrupt, as every method here that reads an entry.
        """
        index = self.entries.floor(timestamp)
        return (NO_TIMESTAMP, self.base_offset) if index < 0 else self.entry(index)

    def entry(self, index: int) -> tuple[int, int]:
        timestamp, relative = ENTRY.unpack(self.entries.read(index))
        if relative < 0:
            raise IndexCorrupt(self.entries.path)
        return timestamp, self.base_offset + relative

    def truncate_to(self, offset: int) -> None:
        """Keeps the entries whose batch ends below an offset."""
        low, high = 0, self.entries.count
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[1] < offset:
                low = middle + 1
            else:
                high = middle
        self.entries.truncate(low)
        self.last_timestamp, self.last_offset = (
            self.entry(low - 1) if low else (NO_TIMESTAMP, self.base_offset)
        )
