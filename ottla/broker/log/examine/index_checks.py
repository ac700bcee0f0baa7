"""Offset and time index held against the batches of their segment, in one walk.

A check is told of each batch in order (`batch`) and then of the end (`finish`); it answers with at
most one complaint, as an index that is wrong in one place is made anew as a whole. The zeros behind
the entries of an index that was not cut to size are none.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from ottla.broker.log import offset_index, time_index
from ottla.broker.log.examine.scan import Entry

NO_TIMESTAMP = time_index.NO_TIMESTAMP


class OffsetIndexCheck:
    """Each entry names the position of a batch, and an offset from that batch on. `data` may leave
    out zeros at the end of a file of `size` bytes."""

    def __init__(self, data: bytes, size: int, base_offset: int) -> None:
        self.complaint: tuple[int, str] | None = None
        self._base = base_offset
        self._entries = _entries(data, offset_index.ENTRY)
        self._at, self._offset, self._position = 0, -1, 0
        self._end_offset = base_offset
        self.is_empty = not data.strip(b"\0")
        if size % offset_index.ENTRY.size:
            self._complain(size, f"its size of {size} bytes is no number of entries")
        self._next()

    def batch(self, entry: Entry) -> None:
        while self._position and not self.complaint and self._position <= entry.position:
            if self._position < entry.position:
                self._complain(self._at, f"no batch begins at byte {self._position} of the log")
            elif self._offset < entry.base_offset:
                self._complain(
                    self._at,
                    f"it leads from offset {self._offset} to the batch at byte"
                    f" {entry.position}, which begins with {entry.base_offset}",
                )
            self._next()
        self._end_offset = entry.last_offset + 1

    def finish(self) -> None:
        if self._position:
            self._complain(self._at, f"no batch begins at byte {self._position} of the log")
        elif self._offset >= max(self._end_offset, self._base + 1):
            self._complain(self._at, f"it names offset {self._offset}, behind the segment's last")

    def _next(self) -> None:
        """The next entry becomes the one to be met; position 0 is the end."""
        before = (self._offset, self._position)
        self._at, fields = next(self._entries, (self._at, None))
        if fields is None:
            self._position = 0
            return
        self._offset, self._position = self._base + fields[0], fields[1]
        if before[1] and (self._offset <= before[0] or self._position <= before[1]):
            self._complain(self._at, "its entries do not ascend")
        elif fields[0] < 0 or fields[1] <= 0:
            self._complain(self._at, f"an entry says offset {fields[0]}, position {fields[1]}")

    def _complain(self, at: int, what: str) -> None:
        if self.complaint is None:
            self.complaint = (at, what)


class TimeIndexCheck:
    """Each entry names the greatest timestamp of all batches up to its offset. `data` as above."""

    def __init__(self, data: bytes, size: int, base_offset: int) -> None:
        self.complaint: tuple[int, str] | None = None
        self._base = base_offset
        self._entries = _entries(data, time_index.ENTRY)
        self._greatest = NO_TIMESTAMP
        self._at, self._timestamp, self._offset = 0, NO_TIMESTAMP, -1
        self._done = False
        self._last = NO_TIMESTAMP
        self.is_empty = not data.strip(b"\0")
        if size % time_index.ENTRY.size:
            self._complain(size, f"its size of {size} bytes is no number of entries")
        self._next()

    def batch(self, entry: Entry) -> None:
        while not self._done and not self.complaint and self._offset < entry.base_offset:
            self._compare()
        self._greatest = max(self._greatest, entry.max_timestamp)

    def finish(self, *, closed: bool) -> None:
        """`closed`: the segment is not the last one, so that it has its closing entry; but with
        indexes too small for an entry, see `time_index`."""
        while not self._done and not self.complaint:
            self._compare()
        if closed and self._last != self._greatest:
            self._complain(
                self._at,
                f"its last entry says {self._last}, and the greatest timestamp is {self._greatest}",
            )

    def _compare(self) -> None:
        if self._timestamp != self._greatest:
            self._complain(
                self._at,
                f"it says {self._timestamp} for offset {self._offset}, and the greatest"
                f" timestamp up to there is {self._greatest}",
            )
        self._last = self._timestamp
        self._next()

    def _next(self) -> None:
        before = (self._timestamp, self._offset)
        self._at, fields = next(self._entries, (self._at, None))
        if fields is None:
            self._done = True
            return
        self._timestamp, self._offset = fields[0], self._base + fields[1]
        if self._timestamp <= before[0] or self._offset < before[1]:
            self._complain(self._at, "its entries do not ascend")

    def _complain(self, at: int, what: str) -> None:
        if self.complaint is None:
            self.complaint = (at, what)


def _entries(data: bytes, entry: Struct) -> Iterator[tuple[int, tuple[int, ...] | None]]:
    """(byte, fields) of each entry before the unused tail; then None."""
    size = entry.size
    end = len(data.rstrip(b"\0"))
    for at in range(0, len(data) - size + 1, size):
        if at >= end:
            break
        yield at, entry.unpack_from(data, at)
    yield end, None
