"""What takes something off a log: retention and DeleteRecords at its start, truncation at its end.

It also knows how a log fails, for whoever cuts or rolls it meets the disk. KafkaError refuses one
operation. A disk that is full, and a process short of descriptors or memory, refuse an append or a
roll with KAFKA_STORAGE_ERROR. Any other OSError of a write, and any of a sync, sets `failed`: the
caller takes the log dir offline, and this log refuses every later append.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import NoReturn

from ottla.broker.log.final_syncs import SyncFailed, run_sync
from ottla.broker.log.flush import REFUSALS
from ottla.broker.log.opening import reload_producers, remove_snapshots
from ottla.broker.log.readable import ReadableLog
from ottla.broker.log.retention import Doomed, doomed_segments, newest_of
from ottla.broker.log.segment import Segment
from ottla.config.types import LONG_MAX
from ottla.protocol.errors import ErrorCode, KafkaError


class TrimmableLog(ReadableLog):
    """One partition, to be read and cut."""

    def delete_records(self, offset: int) -> int:
        """Moves the log start up to `offset`, at most the high watermark; where it is then.

        Whole segments below it go with the next `delete_old_segments`.
        """
        if offset > self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset > self.log_start_offset:
            self._start_at(offset)
        return self.log_start_offset

    def delete_old_segments(
        self, now_ms: int, *, below: int = LONG_MAX, at_most: int | None = None
    ) -> list[Doomed]:
        """As `retire_old_segments` and what comes after it, at once; blocks.

        A rename that was refused is tried again when the files go.
        """
        doomed, retired, _ = self.retire_old_segments(now_ms, below=below, at_most=at_most)
        self.segments.await_removal(retired, now_ms)
        self.segments.set_aside(retired)
        return doomed

    def retire_old_segments(
        self,
        now_ms: int,
        *,
        below: int = LONG_MAX,
        at_most: int | None = None,
        newest: Callable[[Segment], int] = newest_of,
    ) -> tuple[list[Doomed], list[Segment], bool]:
        """Takes out of the log what the retention rule dooms, oldest first: of what ends at or
        below an offset, so many segments at most. For `segments.set_aside`, which may run in a
        worker, and then `segments.await_removal`. Also whether others are doomed that end above
        that offset.

        Where all are doomed a new one begins, and the last of them stays until a flush has synced
        that: `segments.awaits_sync` says so. Raises KafkaError where the times of the segments
        cannot be read, OSError as an append, and before it does anything what `newest` raises.
        """
        try:
            doomed = doomed_segments(
                self.segments[:],
                config=self._config,
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
                log_end_offset=self.log_end_offset,
                now_ms=now_ms,
                at_most=at_most,
                newest=newest,
            )
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        ends = [segment.base_offset for segment in self.segments[1 : len(doomed) + 1]]
        free = bisect_right([*ends, self.log_end_offset], below, hi=len(doomed))
        is_held_back = free < len(doomed)
        del doomed[free:]
        if len(doomed) == len(self.segments):
            try:
                self._roll(now_ms)
            except KafkaError:
                doomed.pop()  # a full disk: what goes now may make room for the next time
        if doomed:
            doomed = doomed[: self.segments.count_synced(len(doomed))]
        if not doomed:
            return doomed, [], is_held_back
        retired = self.segments.retire(len(doomed))
        for segment, why in zip(retired, doomed, strict=True):
            self._directory.events.info(
                "segment_deleted", path=segment.log_path, reason=why.reason.value
            )
        self._start_at(max(self.log_start_offset, self.segments[0].base_offset))
        if self._high_segment in retired:  # it is where they end
            self._high_segment, self._high_position = self.segments[0], 0
        return doomed, retired, is_held_back

    def truncate_to(self, offset: int) -> None:
        """Cuts off every batch that ends at or above `offset`.

        The recovery point may move back: its checkpoint is to be written before the next append.
        """
        if offset >= self.log_end_offset:
            return
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        index = self.segments.floor_index(offset)
        if index + 1 < len(self.segments):
            self.segments.remove_from(index + 1)
            self._sync_names()
        self._set_end(self.segments.active.truncate_to(offset))

    def truncate_fully_and_start_at(self, offset: int, *, producers: bytes | None = None) -> None:
        """Empties the log; its next offset is `offset`.

        `producers` is the snapshot of those that it is to know there; the next flush syncs it.
        """
        now_ms = self.segments.active.last_modified
        self.waypoints.forget()
        self.segments.remove_from(0)
        remove_snapshots(self._directory)
        self.segments.begin_anew(offset, now_ms)
        if producers is not None:
            self.segments.keep_snapshot(offset, producers)
        self._sync_names()
        self.epochs.clear()
        self.log_start_offset = self.durable_end = self.visible_end = offset
        del self._hidden_ends[:]  # also those below an offset that lies higher
        self._set_end(offset)

    # inside

    def _roll(self, now_ms: int) -> Segment:
        """Begins a new segment at the end of the log."""
        self._is_closed = False
        try:
            return self.segments.roll(self.log_end_offset, now_ms, self.producer_state.snapshot())
        except OSError as error:
            if self.segments.stray is not None:
                self._remove_stray()
            self._refuse(error)

    def _remove_stray(self) -> None:
        """Takes away what a roll has begun, for good, so that smaller batches may go on.

        A start that found it again would cut the segment before it at its offset. Raises as `_roll`
        where it may stay: then the next batch has to roll, too.
        """
        segments = self.segments
        try:
            segments.remove_stray()
            self._sync_names()
        except OSError as error:
            if self.failed is not None:
                raise
            self._refuse(error)
        segments.stray = None

    def _sync_names(self) -> None:
        """What was removed does not come back, and what was begun is there, when this returns."""
        try:
            run_sync(self._directory.sync)
        except SyncFailed as error:
            self._fail(error)
            raise

    def _refuse(self, error: OSError) -> NoReturn:
        if error.errno in REFUSALS:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, disk_error=error) from error
        self._fail(error)
        raise error

    def _fail(self, error: OSError) -> None:
        self.failed = error
        self._directory.doubt_tail()

    def _start_at(self, offset: int) -> None:
        self.log_start_offset = offset
        self.epochs.start_at(offset)
        if self.last_stable_offset < offset:
            self._find_stable()

    def _set_end(self, end_offset: int) -> None:
        """Everything above an offset is gone."""
        self.waypoints.forget()
        self.log_end_offset = end_offset
        self.durable_end = min(self.durable_end, end_offset)
        self.visible_end = min(self.visible_end, end_offset)
        self.log_start_offset = min(self.log_start_offset, end_offset)
        hidden = self._hidden_ends
        del hidden[bisect_right(hidden, end_offset) :]
        if self._ticket is not None:
            self._ticket.end_offset = min(self._ticket.end_offset, end_offset)
        self.epochs.truncate_to(end_offset)
        self.latest_epoch = self.epochs.latest
        self._is_closed = False
        self.producer_state = reload_producers(
            self._directory,
            self.segments[:],
            end_offset=end_offset,
            now_ms=self.segments.active.last_modified,
        )
        self._move_high_watermark(max(self.log_start_offset, min(self.high_watermark, end_offset)))
