"""The segments of a log, by base offset; the last one is the active one.

Sealed segments open their files when they are read. Of those so opened only the last few that
were used stay open: a descriptor for each of ten thousand segments would be too many.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import overload

from ottla.broker.log.segment import Segment

# Sealed segments of one log that stay open: readers that are behind are few, and each reads one.
OPEN_SEALED_MAX = 8


class Segments:
    """A sorted sequence of segments, never empty once the log is open."""

    __slots__ = ("_bases", "_opened", "_segments", "sealed_bytes")

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._segments: list[Segment] = []
        self._opened: dict[Segment, None] = {}
        # Of all segments but the active one.
        self.sealed_bytes = 0

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @overload
    def __getitem__(self, index: int) -> Segment: ...

    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...

    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        return self._segments[index]

    def add(self, segment: Segment) -> None:
        """Makes it the active one; its base offset is above all others."""
        assert not self._bases or segment.base_offset > self._bases[-1], segment
        if self._segments:
            self.sealed_bytes += self._segments[-1].size
            self._opened[self._segments[-1]] = None
        self._bases.append(segment.base_offset)
        self._segments.append(segment)
        if len(self._segments) > 2:
            self._segments[-3].forget_recent()
        self._close_surplus()

    def floor_index(self, offset: int) -> int:
        """The index of the last segment that begins at or below an offset; 0 before the first."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def read_from(self, segment: Segment) -> None:
        """To be called before a segment is read: a sealed one takes its place among the open."""
        if segment is self._segments[-1]:
            return
        opened = self._opened
        opened.pop(segment, None)
        opened[segment] = None
        self._close_surplus()

    def remove_first(self, count: int) -> list[Segment]:
        """Takes the oldest ones out; one must be left."""
        assert count < len(self._segments)
        removed = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        for segment in removed:
            self.sealed_bytes -= segment.size
            self._opened.pop(segment, None)
        return removed

    def remove_from(self, index: int) -> list[Segment]:
        """Takes the segments from an index on out, and the one before becomes the active one."""
        removed = self._segments[index:]
        del self._segments[index:], self._bases[index:]
        for segment in removed:
            self._opened.pop(segment, None)
        if self._segments:
            self._opened.pop(self._segments[-1], None)
        self.sealed_bytes = sum(segment.size for segment in self._segments[:-1])
        return removed

    def _close_surplus(self) -> None:
        while len(self._opened) > OPEN_SEALED_MAX:
            oldest = next(iter(self._opened))
            del self._opened[oldest]
            oldest.release()
