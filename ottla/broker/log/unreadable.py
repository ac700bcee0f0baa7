"""Ranges of log files that the disk could not read (DF9 of the reliability page).

A slice is read when it is sent, after the headers in front of it; an error then can only end the
connection. So the sender notes the range here, and the next fetch of it is answered
KAFKA_STORAGE_ERROR for that partition while all others, and what lies before the range, are served.
Kept in memory: a restart may find the sector mended, or the file restored.
"""

from __future__ import annotations

from collections.abc import Collection

from ottla.broker.log.file_slice import FileSlice
from ottla.broker.ports import Events


class UnreadableRanges:
    """By path of the file. Belongs to the loop's thread."""

    __slots__ = ("_events", "_ranges")

    def __init__(self, events: Events) -> None:
        self._events = events
        self._ranges: dict[str, list[tuple[int, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __repr__(self) -> str:
        return f"<UnreadableRanges {self._ranges}>"

    def note(self, path: str, position: int, size: int, error: OSError) -> None:
        """A read of that range failed."""
        ranges = self._ranges.setdefault(path, [])
        if (position, position + size) not in ranges:
            ranges.append((position, position + size))
            self._events.error(
                "log_range_unreadable", path=path, position=position, size=size, error=str(error)
            )

    def forget(self, topics: Collection[str]) -> None:
        """They are deleted: who makes one of that name anew writes to files of the same paths."""
        for path in list(self._ranges):
            directory = path.rpartition("/")[0].rpartition("/")[2]
            if directory.rpartition("-")[0] in topics:
                del self._ranges[path]

    def begins_at(self, slice_: FileSlice) -> int | None:
        """Where in the file the first range begins that a slice meets; None if it meets none."""
        end = slice_.position + slice_.size
        starts = [
            start
            for start, stop in self._ranges.get(slice_.file.path, ())
            if start < end and stop > slice_.position
        ]
        return min(starts, default=None)
