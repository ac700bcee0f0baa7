"""Which segments of a log go, and why: one rule, and the jobs only obey it.

Segments go from the oldest on, and the first that must stay stops the rest. A segment goes if
    log start   the next segment begins at or below the log start offset, so that all of this one
                is below it (DeleteRecords); this holds whatever cleanup.policy says
    size        without it the log still holds retention.bytes or more
    time        its greatest record timestamp is older than retention.ms
The last two need `delete` in cleanup.policy. Record time counts, not the file's: only a segment
without any timestamp is aged by its file. Never goes a segment that ends above the high watermark,
nor an empty last one; if every segment goes, the caller first rolls a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from ottla.config.types import LogConfig

NO_TIMESTAMP = -1


class Reason(Enum):
    """The text is what the log line says."""

    LOG_START = "below the log start offset"
    SIZE = "the log is larger than retention.bytes"
    TIME = "its newest record is older than retention.ms"


class SegmentFacts(Protocol):
    """What the rule looks at; a Segment has it."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def max_timestamp(self) -> int: ...

    @property
    def last_modified(self) -> int: ...


S = TypeVar("S", bound=SegmentFacts)


def newest_of(segment: SegmentFacts) -> int:
    """Its greatest record timestamp; -1 if no record has one."""
    return segment.max_timestamp


@dataclass(slots=True, frozen=True)
class Doomed:
    """A segment that goes, by its place among those given, and the reason."""

    index: int
    base_offset: int
    reason: Reason


def doomed_segments(
    segments: Sequence[S],
    *,
    config: LogConfig,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
    at_most: int | None = None,
    newest: Callable[[S], int] = newest_of,
) -> list[Doomed]:
    """The leading segments that go now, so many at most; the rest are not asked for their times
    (`newest`), which may be in their files. `segments` are all of the log's, the active one last.
    Raises what `newest` does."""
    doomed: list[Doomed] = []
    surplus = _surplus_bytes(segments, config)
    last = len(segments) - 1
    for index, segment in enumerate(segments):
        if len(doomed) == at_most:
            break
        end = segments[index + 1].base_offset if index < last else log_end_offset
        if end > high_watermark or (index == last and segment.size == 0):
            break
        if index < last and end <= log_start_offset:
            reason = Reason.LOG_START
        elif segment.size <= surplus:
            reason = Reason.SIZE
        elif _is_old(segment, config, now_ms, newest):
            reason = Reason.TIME
        else:
            break
        surplus -= segment.size
        doomed.append(Doomed(index, segment.base_offset, reason))
    return doomed


def _surplus_bytes(segments: Sequence[SegmentFacts], config: LogConfig) -> int:
    """What may go by size; negative if nothing may."""
    if "delete" not in config.cleanup_policy or config.retention_bytes < 0:
        return -1
    return sum(segment.size for segment in segments) - config.retention_bytes


def _is_old(segment: S, config: LogConfig, now_ms: int, newest: Callable[[S], int]) -> bool:
    if "delete" not in config.cleanup_policy or config.retention_ms < 0:
        return False
    timestamp = newest(segment)
    if timestamp == NO_TIMESTAMP:
        timestamp = segment.last_modified
    return now_ms - timestamp > config.retention_ms
