"""A log as its readers see it: its offsets in their order, and slices of what lies between them.

    log_start_offset <= last_stable_offset <= high_watermark <= visible_end <= log_end_offset
    log_start_offset <= durable_end <= visible_end

`durable_end` is covered by a sync that returned; only `Log.finish_flush` moves it, and it is the
recovery point. `visible_end` is the last batch boundary less than flush.messages records above
it: an append that ends there may be answered and read at once, any other waits for a sync. The
high watermark is set by the replication room; readers of committed data stop at the last stable
offset, before the oldest transaction that is not decided.

What cuts a log at either end stands in `trimmable.py`, what makes it grow in `log.py`: each is a
class on top of the one before, so that no call of the hot path goes through more than one method.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

from ottla.broker.log import lookup, time_search
from ottla.broker.log.file_slice import FileSlice
from ottla.broker.log.first_touch import Openings, Place, place_of
from ottla.broker.log.flush import FlushTicket
from ottla.broker.log.opening import OpenedFiles
from ottla.broker.log.partition_dir import PartitionDir
from ottla.broker.log.quarantine import Quarantine
from ottla.broker.log.segment import Segment
from ottla.broker.log.time_search import Steps
from ottla.broker.log.validation import Rules
from ottla.config.types import LogConfig
from ottla.protocol.errors import ErrorCode, KafkaError

UPPER_LOG_END: Final = 0
UPPER_HIGH_WATERMARK: Final = 1
UPPER_LAST_STABLE: Final = 2

TRANSACTION_INDEXES_AT_ONCE: Final = 16
"""Each may be the last that matters to a reader."""


class ReadableLog:
    """One partition, to be read; see the module for its offsets."""

    def __init__(
        self,
        directory: PartitionDir,
        opened: OpenedFiles,
        config: LogConfig,
        *,
        topic: str,
        partition: int,
        topic_id: bytes,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.directory = directory.path
        self.segments = opened.segments
        self.producer_state = opened.producers
        self.epochs = opened.epochs
        self.recovery = opened.report
        self.quarantine = Quarantine()
        self.waypoints = opened.waypoints
        # Why no append is taken any more.
        self.failed: OSError | None = None
        self.latest_epoch = opened.epochs.latest
        self.log_start_offset = opened.log_start_offset
        self.log_end_offset = opened.end_offset
        self.durable_end = opened.end_offset
        self.visible_end = opened.end_offset
        self.high_watermark = opened.end_offset
        self.last_stable_offset = opened.end_offset
        self._directory = directory
        self._high_segment = self.segments.active
        self._high_position = self._high_segment.size
        # Batch ends above the visible end, which wait for a sync.
        self._hidden_ends = array("q")
        # Whether the files are as a clean stop leaves them.
        self._is_closed = opened.is_closed
        # The flush under way.
        self._ticket: FlushTicket | None = None
        self._config = config
        self.config = config
        directory.is_durable = self._is_durable

    def __repr__(self) -> str:
        return (
            f"<Log {self.topic}-{self.partition} {self.log_start_offset}"
            f"<={self.last_stable_offset}<={self.high_watermark}<={self.visible_end}"
            f"<={self.log_end_offset} durable={self.durable_end} epoch={self.latest_epoch}>"
        )

    @property
    def config(self) -> LogConfig:
        """The topic's configuration in force; may be set at any time."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._rules = Rules(config, f"{self.topic}-{self.partition}")
        # Whether the configuration can ask for the conversion of any batch.
        self.may_convert = self._rules.codec is not None or self._rules.compacted
        self._flush_messages = config.flush_messages
        self.segments.configure(config)
        self._reveal()

    @property
    def home(self) -> PartitionDir:
        """Through which workers do what they do by name."""
        return self._directory

    @property
    def recovery_point(self) -> int:
        """Where a recovery after a crash begins: nothing below it can be missing, nor the leader
        epoch of it in the file."""
        return min(self.durable_end, self.epochs.first_unwritten)

    @property
    def size_bytes(self) -> int:
        """Of the .log files of all segments."""
        return self.segments.sealed_bytes + self.segments.active.size

    # reading

    def read(
        self, offset: int, *, max_bytes: int, upper: int, at_least_one: bool
    ) -> FileSlice | None:
        """From the batch that holds `offset` on, below the upper end; None if nothing is there.

        The slice lies in one segment and may cut its last batch at `max_bytes`, but not its first:
        where that has no room it is given whole by `at_least_one`, and else nothing is. Raises
        OFFSET_OUT_OF_RANGE outside of the log, and CORRUPT_MESSAGE where the chain of headers is
        broken.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if upper == UPPER_HIGH_WATERMARK:
            end, end_segment, end_position = (
                self.high_watermark,
                self._high_segment,
                self._high_position,
            )
        else:
            end, end_segment, end_position = self._upper_end(upper)
        if offset >= end:
            return None
        segment = self.segments.active
        if offset < segment.base_offset:
            return self._read_sealed(offset, max_bytes, at_least_one, end_segment, end_position)
        position, batch_size = segment.locate(offset)
        size = (end_position if segment is end_segment else segment.size) - position
        if size > max_bytes:
            if batch_size <= max_bytes:
                size = max_bytes
            elif at_least_one:
                size = batch_size
            else:
                return None
        if size <= 0:
            return None
        return segment.slice(position, size)

    def places_to_touch(self, offset: int, *, upper: int, openings: Openings) -> list[Place]:
        """What a read from `offset` on would have to read from the disk; nothing where it finds all
        in memory, or nothing to read. See `first_touch.py`."""
        end = self.high_watermark if upper != UPPER_LAST_STABLE else self.last_stable_offset
        if not self.log_start_offset <= offset < end:
            return []
        segments = self.segments
        segment = segments.active
        if offset < segment.base_offset:
            segment = segments[segments.floor_index(offset)]
        found = self._place_of(segment, offset, openings)
        if end != self.high_watermark:
            segment = segments[segments.floor_index(end)]
            if end != segment.base_offset:
                found += self._place_of(segment, end, openings)
        return found

    def _place_of(self, segment: Segment, offset: int, openings: Openings) -> list[Place]:
        place = place_of(segment, offset, openings)
        if segment.file is not None:
            self.segments.read_from(segment)
        return [] if place is None else [place]

    def transactions_to_touch(self, offset: int) -> list[Place]:
        """The transaction indexes behind an offset that are not in memory, as many as may matter to
        who reads from there."""
        segments = self.segments
        behind = segments[segments.floor_index(offset) :]
        unknown = [one for one in behind if not one.transactions.is_known]
        return [
            Place(segment, None, None, has_transactions=True)
            for segment in unknown[:TRANSACTION_INDEXES_AT_ONCE]
        ]

    def bytes_available(self, offset: int, upper: int, limit: int) -> int:
        """How much a read would find, up to `limit`; `limit` where that takes a closer look."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            return limit
        end, end_segment, end_position = self._upper_end(upper)
        if offset >= end:
            return 0
        if offset < end_segment.base_offset:
            return limit
        position, _ = end_segment.locate(offset)
        return max(0, min(limit, end_position - position))

    def aborted_transactions(self, offset: int, upper_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that a read of that range meets."""
        return lookup.aborted_transactions(self.segments, offset, upper_offset)

    def aborted_in(self, offset: int, found: FileSlice) -> list[tuple[int, int]]:
        """The same for a slice that a read from `offset` on gave, below the last stable offset."""
        return lookup.aborted_in(self.segments, offset, found, self.last_stable_offset)

    def knows_aborted_in(self, offset: int, found: FileSlice) -> bool:
        """Whether `aborted_in` reads no file for that."""
        return lookup.knows_aborted_in(self.segments, offset, found, self.last_stable_offset)

    def steps_to_timestamp(self, timestamp: int) -> Steps:
        """To the first record with at least that timestamp, by whoever gives way meanwhile; see
        `time_search.py`."""
        return time_search.first_at(self.segments, timestamp, self.log_start_offset)

    def steps_to_max_timestamp(self) -> Steps:
        """To the first record with the greatest timestamp, in the same way."""
        return time_search.first_with_greatest(self.segments, self.log_start_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The newest epoch that is not above `epoch` and where it ends; (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # watermarks

    def set_high_watermark(self, offset: int) -> None:
        """What is below `offset`, the end of a batch, is committed."""
        if offset != self.high_watermark:
            assert self.log_start_offset <= offset <= self.log_end_offset, (self, offset)
            self._move_high_watermark(offset)

    # inside

    def _is_durable(self, base_offset: int) -> bool:
        """Whether every batch of the segment that begins there is; of one that is gone, too."""
        segments = self.segments
        if base_offset < segments[0].base_offset:
            return True
        if base_offset >= segments.active.base_offset:
            return self.durable_end >= self.log_end_offset
        following = segments[segments.floor_index(base_offset) + 1]
        return self.durable_end >= following.base_offset

    def _reveal(self) -> None:
        """Moves the visible end to the last batch end less than flush.messages above durable."""
        hidden = self._hidden_ends
        count = bisect_right(hidden, self.durable_end + self._flush_messages - 1)
        if count:
            self.visible_end = hidden[count - 1]
            del hidden[:count]

    def _upper_end(self, upper: int) -> tuple[int, Segment, int]:
        """An upper end as (offset, segment, position)."""
        if upper == UPPER_LOG_END:
            return self.log_end_offset, self.segments.active, self.segments.active.size
        stable = self.last_stable_offset
        if upper == UPPER_HIGH_WATERMARK or stable == self.high_watermark:
            return self.high_watermark, self._high_segment, self._high_position
        segment = self.segments[self.segments.floor_index(stable)]
        try:
            return stable, segment, self._position_of(segment, stable)
        except KafkaError:  # who reads before the damage loses nothing by it
            return stable, segment, lookup.end_before_damage(segment, stable)

    def _read_sealed(
        self,
        offset: int,
        max_bytes: int,
        at_least_one: bool,
        end_segment: Segment,
        end_position: int,
    ) -> FileSlice | None:
        segments = self.segments
        for segment in segments[segments.floor_index(offset) :]:
            segments.read_from(segment)
            if self.quarantine:
                position, batch_size = self.quarantine.locate(segment, offset)
            else:
                position, batch_size = segment.locate(offset)
            is_last = segment is end_segment
            size = (end_position if is_last else segment.size) - position
            if size > max_bytes:
                if batch_size > max_bytes and not at_least_one:
                    return None
                size = max(batch_size, max_bytes)
                is_last = True
            if size > 0:
                if self.quarantine:
                    size = self.quarantine.bound(segment, position, size)
                return segment.slice(position, size)
            if is_last:
                break
        return None

    def _position_of(self, segment: Segment, offset: int) -> int:
        if offset == segment.base_offset:
            return 0  # also where it begins with a hole
        if self.quarantine:
            return self.quarantine.locate(segment, offset)[0]
        return segment.locate(offset)[0]

    def _begin_high_watermark(self, offset: int) -> None:
        """The first one, as a checkpoint has it. Behind a hole in its segment nobody finds the
        batch: then nothing of the segment is committed until somebody says so again."""
        try:
            self._move_high_watermark(offset)
        except KafkaError:
            segment = self.segments[self.segments.floor_index(offset)]
            self.high_watermark = max(segment.base_offset, self.log_start_offset)
            self._high_segment = segment
            self._high_position = 0  # no reader asks for less than the start of the log
            self._find_stable()

    def _move_high_watermark(self, offset: int) -> None:
        segment = self.segments.active
        if offset == self.log_end_offset:
            position = segment.size
        else:
            if offset < segment.base_offset:
                segment = self.segments[self.segments.floor_index(offset)]
                self.segments.read_from(segment)
            position = self._position_of(segment, offset)
        self.high_watermark = offset
        self._high_segment = segment
        self._high_position = position
        if self.producer_state.has_transactions:
            self._find_stable()
        else:
            self.last_stable_offset = offset

    def _find_stable(self) -> None:
        first = self.producer_state.first_unstable(self.high_watermark)
        stable = self.high_watermark if first is None else min(first, self.high_watermark)
        self.last_stable_offset = max(stable, self.log_start_offset)
