"""From offsets to positions, sparsely: N.index.

    bytes   field
    0-3     int32 offset, less the segment's base: the last offset of the batch that was appended
    4-7     int32 position in the .log file where that batch begins

Both ascend strictly. An entry is written before the batch that follows more than
index.interval.bytes after the last entry, so position 0 has none. A reader goes to the last entry
at or below its offset and walks the batch headers from there.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ottla.broker.log.index import EntryFile, IndexCorrupt
from ottla.broker.ports import Disk

ENTRY: Final = Struct(">ii")
_KEY: Final = Struct(">i")

RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class OffsetIndex:
    """The offset index of one segment. Offsets here are whole, not relative."""

    __slots__ = ("base_offset", "entries", "last_offset")

    def __init__(self, disk: Disk, path: str, *, base_offset: int, max_bytes: int) -> None:
        self.base_offset = base_offset
        self.last_offset = base_offset
        self.entries = EntryFile(disk, path, key=_KEY, entry_size=ENTRY.size, max_bytes=max_bytes)

    @property
    def is_full(self) -> bool:
        return self.entries.count >= self.entries.max_entries

    def create(self) -> None:
        self.entries.create()
        self.last_offset = self.base_offset

    def load(self, log_size: int) -> bool:
        """Opens what is on disk; False if it cannot be the index of a .log file of that size."""
        self.last_offset = self.base_offset
        last = self.entries.load()
        before = (-1, 0)
        for relative, position in ENTRY.iter_unpack(last or b""):
            # A zero entry is the tail of a file that was never cut to its entries.
            if relative <= before[0] or not before[1] < position < log_size:
                return False
            before = (relative, position)
            self.last_offset = self.base_offset + relative
        return last is not None

    def resume(self, size: int, crc: int) -> None:
        """Takes the entries in the first `size` bytes. Raises IndexCorrupt if they are others."""
        last = self.entries.resume(size, crc)
        self.last_offset = self.base_offset + (ENTRY.unpack(last)[0] if last else 0)

    def append(self, offset: int, position: int) -> None:
        """Adds an entry behind all others; the index must not be full. Never fails."""
        entries = self.entries
        assert entries.count < entries.max_entries, f"{entries.path} is full"
        assert offset > self.last_offset or not entries.count, f"{entries.path}: {offset}"
        entries.append(ENTRY.pack(offset - self.base_offset, position))
        self.last_offset = offset

    def lookup(self, offset: int) -> tuple[int, int]:
        """The last entry at or below an offset, as (offset, position); (base, 0) before all.

        Raises IndexCorrupt, as every method here that reads an entry.
        """
        index = self.entries.floor(min(offset - self.base_offset, RELATIVE_OFFSET_MAX))
        return (self.base_offset, 0) if index < 0 else self.entry(index)

    def lookup_unwritten(self, offset: int) -> tuple[int, int] | None:
        """The same where the file need not be read for it, or else None."""
        relative = min(offset - self.base_offset, RELATIVE_OFFSET_MAX)
        index = self.entries.floor_unwritten(relative)
        if index is None:
            return None
        return (self.base_offset, 0) if index < 0 else self.entry(index)

    def map_cached(self, offset: int) -> bool:
        """Whether `lookup` waits for no disk, see `EntryFile`."""
        return self.entries.map_cached(min(offset - self.base_offset, RELATIVE_OFFSET_MAX))

    def entry_in(self, piece: bytes, offset: int) -> tuple[int, int] | None:
        """The last one at or below an offset of entries as they lie in the file, as (offset,
        position), or None. Nothing is checked."""
        index = self.entries.floor_in(piece, min(offset - self.base_offset, RELATIVE_OFFSET_MAX))
        if index < 0:
            return None
        relative, position = ENTRY.unpack_from(piece, index * ENTRY.size)
        return self.base_offset + relative, position

    def last(self) -> tuple[int, int]:
        """The last entry, or (base, 0)."""
        count = self.entries.count
        return self.entry(count - 1) if count else (self.base_offset, 0)

    def position_before(self, position: int) -> int:
        """The position of a batch at or before a position."""
        low, high = 0, self.entries.count
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[1] <= position:
                low = middle + 1
            else:
                high = middle
        return 0 if low == 0 else self.entry(low - 1)[1]

    def offset_behind(self, position: int) -> int | None:
        """An offset that no batch before a position reaches: that of the first entry at or behind
        it; None if there is none."""
        low, high = 0, self.entries.count
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[1] < position:
                low = middle + 1
            else:
                high = middle
        return None if low == self.entries.count else self.entry(low)[0]

    def entry(self, index: int) -> tuple[int, int]:
        relative, position = ENTRY.unpack(self.entries.read(index))
        if relative < 0 or position <= 0:
            raise IndexCorrupt(self.entries.path)
        return self.base_offset + relative, position

    def truncate_to(self, offset: int) -> None:
        """Keeps the entries below an offset."""
        entries = self.entries
        relative = min(offset - self.base_offset - 1, RELATIVE_OFFSET_MAX)
        entries.truncate(entries.floor(relative) + 1)
        self.last_offset = self.last()[0]
