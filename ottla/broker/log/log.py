"""The log of one partition: appends, reads, and what is durable and visible of it.

Offsets of one log, in their order:
    log_start_offset <= last_stable_offset <= high_watermark <= visible_end <= log_end_offset
    log_start_offset <= durable_end <= visible_end

`durable_end` is covered by a sync that returned; only `finish_flush` moves it, and it is the
recovery point. `visible_end` is the last batch boundary less than flush.messages records above
it: an append that ends there may be answered and read at once, any other waits for a sync. The
high watermark is set by the replication room; readers of committed data stop at the last stable
offset, before the oldest transaction that is not decided.

Everything runs on one thread, but `FlushTicket.sync`, and `prepare`, which reads only the rules.

Errors. KafkaError refuses one operation. A disk that is full, and a process short of descriptors
or memory, refuse an append with KAFKA_STORAGE_ERROR after the file is cut back to its last good
end. Any other OSError of a write, and any of a sync, sets `failed`: the caller takes the log dir
offline, and this log refuses every later append.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import NoReturn

from ottla.broker.log import lookup
from ottla.broker.log.append_result import AppendResult
from ottla.broker.log.checkpoints import LEADER_EPOCH_FILE, write_atomically
from ottla.broker.log.flush import REFUSALS, FlushTicket
from ottla.broker.log.opening import (
    OpenedFiles,
    aborted_by,
    apply_batch,
    open_files,
    reload_producers,
    remove_snapshots,
)
from ottla.broker.log.partition_dir import PartitionDir
from ottla.broker.log.producer_state import KnownBatch
from ottla.broker.log.quarantine import Quarantine
from ottla.broker.log.retention import Doomed, doomed_segments
from ottla.broker.log.segment import FileSlice, Segment
from ottla.broker.log.segments import write_snapshot
from ottla.broker.log.validation import (
    BatchFields,
    RefusedBatch,
    Rules,
    check_batches,
    check_internal,
)
from ottla.broker.log.waypoints import WaypointTicket
from ottla.broker.ports import Disk, Events
from ottla.config.types import LONG_MAX, LogConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import (
    CONTROL,
    TIMESTAMP_TYPE,
    BatchHeader,
    read_header,
    set_create_time,
    set_log_append_time,
    stamp,
)

UPPER_LOG_END = 0
UPPER_HIGH_WATERMARK = 1
UPPER_LAST_STABLE = 2


class Log:
    """One partition. Made by `Log.open`; see the module for offsets, threads and errors."""

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
        self._ticket: FlushTicket | None = None
        self._config = config
        self.config = config

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        *,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig,
        recovery_point: int,
        log_start_offset: int,
        high_watermark: int,
        clean: bool,
        now_ms: int,
        events: Events,
    ) -> Log:
        """Loads the log in a directory, or makes it; recovers it unless the stop was `clean`.

        The offsets are those of the checkpoints. All that it has is durable when this returns.
        """
        home = PartitionDir(disk, directory, events)
        opened = open_files(
            home,
            config,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean=clean,
            now_ms=now_ms,
        )
        log = cls(home, opened, config, topic=topic, partition=partition, topic_id=topic_id)
        log._move_high_watermark(max(log.log_start_offset, min(high_watermark, log.log_end_offset)))
        return log

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
    def recovery_point(self) -> int:
        """Where a recovery after a crash begins: nothing below it can be missing."""
        return self.durable_end

    @property
    def size_bytes(self) -> int:
        """Of the .log files of all segments."""
        return self.segments.sealed_bytes + self.segments.active.size

    # appending

    def needs_conversion(self, records: memoryview) -> bool:
        """Whether a client's batch must pass `prepare` before it is appended."""
        return self._rules.needs_conversion(records)

    def prepare(self, records: memoryview, *, now_ms: int) -> bytearray:
        """The batch to be appended in place of a client's. Slow, thread-safe: for a worker.

        Raises KafkaError as an append would.
        """
        return self._rules.prepare(records, now_ms)

    def append_as_leader(
        self, records: memoryview, *, leader_epoch: int, now_ms: int, internal: bool = False
    ) -> AppendResult:
        """Checks, numbers and writes one batch; `records` is writable and is changed in place.

        `internal` batches are the broker's own: control batches pass, sizes and times are not
        looked at. Raises KafkaError if it is refused, OSError if the disk failed; then nothing
        was appended. What it returns is durable when `visible_end` is above `last_offset`.
        """
        if self.failed is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        rules = self._rules
        try:
            fields = check_internal(records) if internal else rules.check(records, now_ms)
            attributes, last_delta, max_timestamp = fields[5], fields[6], fields[8]
            producer = None
            is_known = fields[9] >= 0 and (fields[11] >= 0 or attributes & CONTROL)
            if is_known:
                producer = self.producer_state.expecting(fields)
                if producer is None:
                    original = self._check_producer(records, fields)
                    if original is not None:
                        return AppendResult(
                            original.base_offset,
                            original.last_offset,
                            original.timestamp,
                            self.log_start_offset,
                            True,
                        )
        except RefusedBatch as refused:
            if refused.reached_log:
                refused.log_start_offset = self.log_start_offset
            raise
        base_offset = self.log_end_offset
        last_offset = base_offset + last_delta
        log_append_time_ms = -1
        if rules.log_append_time:
            log_append_time_ms = max_timestamp = now_ms
            set_log_append_time(records, now_ms)
        elif attributes & TIMESTAMP_TYPE:
            set_create_time(records, max_timestamp)
        stamp(records, base_offset, leader_epoch)
        segment = self.segments.take(len(records), last_offset, max_timestamp, now_ms)
        if segment is None:
            segment = self._roll(now_ms)
        try:
            segment.append(records, last_offset, max_timestamp)
        except OSError as error:
            self._undo_write(error)
        segment.last_modified = now_ms
        if leader_epoch != self.latest_epoch:
            self.epochs.assign(leader_epoch, base_offset)
            self.latest_epoch = self.epochs.latest
        if producer is not None:
            producer.add(
                KnownBatch(
                    fields[11], fields[11] + last_delta, base_offset, last_offset, max_timestamp
                )
            )
            producer.last_seen_ms = now_ms
        elif is_known:
            self._take_up(read_header(records), records, now_ms)
        self._move_end(last_offset + 1)
        return AppendResult(base_offset, last_offset, log_append_time_ms, self.log_start_offset)

    def append_as_follower(self, records: memoryview, *, now_ms: int) -> AppendResult:
        """Writes batches that a leader has numbered, one behind the other; each must be whole.

        Raises CORRUPT_MESSAGE unless each has its CRC and begins at or above the end of the one
        before, and as `append_as_leader` where the disk says no.
        """
        if self.failed is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        batches = check_batches(records, self.log_end_offset)
        first, last = batches[0][1], batches[-1][1]
        max_timestamp = max(header.max_timestamp for _, header in batches)
        segment = self.segments.take(len(records), last.last_offset, max_timestamp, now_ms)
        if segment is None:
            segment = self._roll(now_ms)
        try:
            segment.append_all(records, batches)
        except OSError as error:
            self._undo_write(error)
        segment.last_modified = now_ms
        for position, header in batches:
            if header.partition_leader_epoch > self.latest_epoch:
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)
                self.latest_epoch = self.epochs.latest
            view = records[position : position + header.size]
            self._take_up(header, view, now_ms)
        self._move_end(last.last_offset + 1)
        return AppendResult(first.base_offset, last.last_offset, -1, self.log_start_offset)

    def assign_epoch(self, epoch: int) -> None:
        """This broker leads from the end of the log on, in a new epoch."""
        if epoch > self.epochs.latest:
            self.epochs.assign(epoch, self.log_end_offset)
            self.latest_epoch = self.epochs.latest

    # reading

    def read(
        self, offset: int, *, max_bytes: int, upper: int, at_least_one: bool
    ) -> FileSlice | None:
        """From the batch that holds `offset` on, below the upper end; None if nothing is there.

        The slice lies in one segment and may cut its last batch at `max_bytes`; `at_least_one`
        gives the first batch whole. Raises OFFSET_OUT_OF_RANGE outside of the log, and
        CORRUPT_MESSAGE where the chain of headers is broken.
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
            size = batch_size if at_least_one and batch_size > max_bytes else max_bytes
        if size <= 0:
            return None
        return FileSlice(segment.file or segment.open(), position, size)

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

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, epoch) of the first record with at least that timestamp."""
        return lookup.offset_for_timestamp(self.segments, timestamp, self.log_start_offset)

    def max_timestamp_offset(self) -> tuple[int, int, int] | None:
        """(offset, timestamp, epoch) of the first record with the greatest timestamp."""
        return lookup.max_timestamp_offset(self.segments, self.log_start_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The newest epoch that is not above `epoch` and where it ends; (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # watermarks

    def set_high_watermark(self, offset: int) -> None:
        """What is below `offset`, the end of a batch, is committed."""
        if offset != self.high_watermark:
            assert self.log_start_offset <= offset <= self.log_end_offset, (self, offset)
            self._move_high_watermark(offset)

    # flushing

    @property
    def must_flush(self) -> bool:
        """Whether flush.messages, or a sealed segment, asks for a flush now."""
        unsynced = self.log_end_offset - self.durable_end
        return unsynced >= self._flush_messages or self.segments.has_unsynced

    def begin_flush(self) -> FlushTicket | None:
        """A ticket for all that is not durable, or None if there is nothing to do.

        One ticket at a time. Whoever takes it calls `sync`, in a worker, and then `finish_flush`;
        if `sync` raised, the log has failed.
        """
        assert self._ticket is None, self
        end_offset = self.log_end_offset
        segments = self.segments
        is_synced = end_offset == self.durable_end and not segments.has_unsynced
        if self.failed is not None or is_synced:
            return None
        files, own_files = segments.open_unsynced()
        for file in files:
            file.pin()
        ticket = FlushTicket(
            directory=self._directory,
            end_offset=end_offset,
            files=files,
            own_files=own_files,
            leader_epochs=self.epochs.unwritten(end_offset) if self.epochs.dirty else None,
            new_names=segments.new_names,
            on_error=self._fail,
        )
        segments.forget_unsynced()
        self._ticket = ticket
        return ticket

    def finish_flush(self, ticket: FlushTicket) -> None:
        """The ticket's sync has returned: what it covers is durable."""
        assert ticket is self._ticket, self
        assert ticket.error is None, self
        self._ticket = None
        ticket.release()
        if ticket.epochs_written:
            assert ticket.leader_epochs is not None
            self.epochs.wrote(ticket.leader_epochs)
        if ticket.end_offset > self.durable_end:
            self.durable_end = ticket.end_offset
        self._reveal()

    def begin_waypoint(self) -> WaypointTicket | None:
        """A ticket for the end of the log, from which a recovery may begin then; or None.

        Whoever takes it calls `write`, in a worker, and then `waypoints.finish`. Raises OSError.
        """
        end_offset = self.log_end_offset
        if self.failed is not None or self.epochs.unwritten(end_offset) is not None:
            return None
        return self.waypoints.begin(self.segments.active, end_offset, self.producer_state)

    @property
    def unmarked_bytes(self) -> int:
        """What lies in the active segment behind the last waypoint; 0 if none can be made now."""
        return 0 if self._is_closed else self.waypoints.unmarked_bytes(self.segments.active)

    # trimming

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
        """Deletes what the retention rule dooms, oldest first: of what ends at or below an offset,
        so many segments at most. Their files go later, by `segments.take_deleted`. Raises
        KafkaError where the times of the segments cannot be read, OSError as an append."""
        try:
            doomed = doomed_segments(
                self.segments[:],
                config=self._config,
                log_start_offset=self.log_start_offset,
                high_watermark=min(self.high_watermark, below),
                log_end_offset=self.log_end_offset,
                now_ms=now_ms,
            )[:at_most]
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if len(doomed) == len(self.segments):
            try:
                self._roll(now_ms)
            except KafkaError:
                doomed.pop()  # a full disk: what goes now may make room for the next time
        if not doomed:
            return doomed
        for segment, why in zip(self.segments.retire(len(doomed), now_ms), doomed, strict=True):
            self._directory.events.info(
                "segment_deleted", path=segment.log_path, reason=why.reason.value
            )
        self._start_at(max(self.log_start_offset, self.segments[0].base_offset))
        self._move_high_watermark(self.high_watermark)
        return doomed

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
            self._directory.disk.sync_dir(self.directory)
        self._set_end(self.segments.active.truncate_to(offset))

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Empties the log; its next offset is `offset`."""
        now_ms = self.segments.active.last_modified
        self.waypoints.forget()
        self.segments.remove_from(0)
        remove_snapshots(self._directory)
        self.segments.begin(offset, now_ms)
        self._directory.disk.sync_dir(self.directory)
        self.epochs.clear()
        self.log_start_offset = self.durable_end = self.visible_end = offset
        self._set_end(offset)

    def set_directory_aside(self, path: str) -> None:
        """Renames the directory of a log that is out of service; for a worker. Raises OSError."""
        self._directory.move_to(path)

    def close(self, clean: bool = True) -> None:
        """Ends all use. `clean` first syncs all, cuts the indexes to size and writes a snapshot.

        Raises OSError if that fails, or has failed before: then the log dir is not clean.
        """
        if self._ticket is not None:
            assert not clean, "a flush is under way"
            self._ticket.release()
            self._ticket = None
        if clean and self.failed is not None:
            raise self.failed
        if clean and not self._is_closed:
            try:
                self._finish_files()
            except OSError as error:
                self._fail(error)
                raise
        self.segments.release()

    # inside: appending

    def _roll(self, now_ms: int) -> Segment:
        """Begins a new segment at the end of the log."""
        try:
            return self.segments.roll(self.log_end_offset, now_ms, self.producer_state.snapshot())
        except OSError as error:
            self._refuse(error)

    def _undo_write(self, error: OSError) -> NoReturn:
        """Cuts off what a failed write has left behind the last good end."""
        segment = self.segments.active
        try:
            segment.open().truncate(segment.size)
        except OSError as second:
            self._fail(second)
            raise second from error
        self._refuse(error)

    def _refuse(self, error: OSError) -> NoReturn:
        if error.errno in REFUSALS:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        self._fail(error)
        raise error

    def _fail(self, error: OSError) -> None:
        self.failed = error
        self._directory.doubt_tail()

    def _check_producer(self, records: memoryview, fields: BatchFields) -> KnownBatch | None:
        """The batch that this one repeats, if it does; raises RefusedBatch."""
        try:
            return self.producer_state.check_batch(
                records, fields, lambda end: lookup.headers_before(self.segments, end)
            )
        except KafkaError as error:
            raise RefusedBatch(error.code, error.message) from None

    def _take_up(self, header: BatchHeader, view: memoryview, now_ms: int) -> None:
        """What a batch that was written does to producers and transactions."""
        state = self.producer_state
        ended = apply_batch(state, header, view, now_ms)
        if ended is not None and not ended.committed:
            self.segments.active.transactions.append(aborted_by(ended, state))
        if header.is_transactional:
            self._find_stable()

    def _move_end(self, end_offset: int) -> None:
        self.log_end_offset = end_offset
        self._is_closed = False
        if end_offset - self.durable_end < self._flush_messages:
            self.visible_end = end_offset
        else:
            self._hidden_ends.append(end_offset)

    def _reveal(self) -> None:
        """Moves the visible end to the last batch end less than flush.messages above durable."""
        hidden = self._hidden_ends
        count = bisect_right(hidden, self.durable_end + self._flush_messages - 1)
        if count:
            self.visible_end = hidden[count - 1]
            del hidden[:count]

    # inside: reading

    def _upper_end(self, upper: int) -> tuple[int, Segment, int]:
        """An upper end as (offset, segment, position)."""
        if upper == UPPER_LOG_END:
            return self.log_end_offset, self.segments.active, self.segments.active.size
        stable = self.last_stable_offset
        if upper == UPPER_HIGH_WATERMARK or stable == self.high_watermark:
            return self.high_watermark, self._high_segment, self._high_position
        segment = self.segments[self.segments.floor_index(stable)]
        return stable, segment, segment.locate(stable)[0]

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
                size = batch_size if at_least_one and batch_size > max_bytes else max_bytes
                is_last = True
            if size > 0:
                if self.quarantine:
                    size = self.quarantine.bound(segment, position, size)
                return FileSlice(segment.open(), position, size)
            if is_last:
                break
        return None

    def _move_high_watermark(self, offset: int) -> None:
        segment = self.segments.active
        if offset == self.log_end_offset:
            position = segment.size
        else:
            if offset < segment.base_offset:
                segment = self.segments[self.segments.floor_index(offset)]
                self.segments.read_from(segment)
            position, _ = segment.locate(offset)
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

    # inside: trimming

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

    def _finish_files(self) -> None:
        """Leaves the files as a clean stop does; all that was appended is durable then."""
        end_offset = self.log_end_offset
        self.segments.active.seal()
        logs, others = self.segments.open_unsynced()
        try:
            for file in others + logs:
                file.sync()
        finally:
            for file in others:
                file.close()
        if self.segments.new_names:
            self._directory.disk.sync_dir(self.directory)
        epochs = self.epochs.unwritten(end_offset) if self.epochs.dirty else None
        if epochs is not None:
            path = f"{self.directory}/{LEADER_EPOCH_FILE}"
            write_atomically(self._directory.disk, path, epochs)
            self.epochs.wrote(epochs)
        # An empty segment has its snapshot since it was begun, and that one is synced.
        if self.segments.active.size:
            write_snapshot(self._directory, end_offset, self.producer_state.snapshot())
        self.segments.forget_unsynced()
        self.durable_end = end_offset
        self._reveal()
        self._is_closed = True
