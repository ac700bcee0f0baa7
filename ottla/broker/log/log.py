"""The log of one partition: appends to it, flushes, and its end.

Three classes on top of one another, by what they change. `ReadableLog` (`readable.py`) has the
offsets, in whose order all is told, and the reads; `TrimmableLog` (`trimmable.py`) cuts at either
end and knows how a log fails; `Log` makes it longer and brings it to disk.

Everything runs on one thread, but `FlushTicket.sync`, and `prepare`, which reads only the rules and
where the log starts.

Errors. KafkaError refuses one operation. A disk that is full, and a process short of descriptors
or memory, refuse an append with KAFKA_STORAGE_ERROR after the file is cut back to its last good
end. Any other OSError of a write, and any of a sync, sets `failed`: the caller takes the log dir
offline, and this log refuses every later append.
"""

from __future__ import annotations

from typing import NoReturn

from ottla.broker.log import lookup
from ottla.broker.log.append_result import AppendResult
from ottla.broker.log.checkpoints import LEADER_EPOCH_FILE, write_atomically
from ottla.broker.log.flush import LARGE_BYTES, REFUSALS, FlushTicket
from ottla.broker.log.offset_index import RELATIVE_OFFSET_MAX
from ottla.broker.log.opening import aborted_by, apply_batch, open_files
from ottla.broker.log.partition_dir import PartitionDir
from ottla.broker.log.producer_state import KnownBatch
from ottla.broker.log.readable import UPPER_HIGH_WATERMARK, UPPER_LAST_STABLE, UPPER_LOG_END
from ottla.broker.log.segments import write_snapshot
from ottla.broker.log.trimmable import TrimmableLog
from ottla.broker.log.validation import BatchFields, RefusedBatch, check_batches, check_internal
from ottla.broker.log.waypoints import WaypointTicket
from ottla.broker.ports import Disk, Events
from ottla.config.types import LogConfig
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
from ottla.protocol.records.record import GiveWay

# Who reads a log has its upper ends from here, too.
__all__ = ["UPPER_HIGH_WATERMARK", "UPPER_LAST_STABLE", "UPPER_LOG_END", "Log"]


class Log(TrimmableLog):
    """One partition. Made by `Log.open`; see the module for offsets, threads and errors."""

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
        log._begin_high_watermark(
            max(log.log_start_offset, min(high_watermark, log.log_end_offset))
        )
        return log

    # appending

    def needs_conversion(self, records: memoryview) -> bool:
        """Whether a client's batch must pass `prepare` before it is appended."""
        return self._rules.needs_conversion(records)

    def refusal_by_size(self, records: memoryview, now_ms: int) -> RefusedBatch | None:
        """What an append would raise of a client's batch that is too large; None of any other.
        Soon told, for who would have to copy it."""
        if not self._rules.is_too_large(len(records)):
            return None
        try:
            self._rules.check(records, now_ms)
        except RefusedBatch as refused:
            self._tell_start(refused)
            return refused
        raise AssertionError(self)

    def prepare(
        self,
        records: memoryview,
        *,
        now_ms: int,
        alone: bool = False,
        give_way: GiveWay | None = None,
    ) -> bytearray:
        """The batch to be appended in place of a client's. Slow, thread-safe: for a worker.

        `give_way` is called every few records. Raises KafkaError as an append would; LargeBatch if
        it has to be said to be `alone`, which one conversion of a broker may be at a time.
        """
        try:
            return self._rules.prepare(records, now_ms, alone=alone, give_way=give_way)
        except RefusedBatch as refused:
            self._tell_start(refused)
            raise

    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        internal: bool = False,
        is_awaited: bool = False,
    ) -> AppendResult:
        """Checks, numbers and writes one batch; `records` is writable and is changed in place.

        `internal` batches are the broker's own: control batches pass, sizes and times are not
        looked at. `is_awaited` says that somebody waits to read it. Raises KafkaError if it is
        refused, OSError if the disk failed; then nothing was appended. What it returns is durable
        when `visible_end` is above `last_offset`.
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
                    original = self._check_producer(records, fields, internal=internal)
                    if original is not None:
                        return AppendResult(
                            original.base_offset,
                            original.last_offset,
                            original.timestamp,
                            self.log_start_offset,
                            True,
                        )
        except RefusedBatch as refused:
            self._tell_start(refused)
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
            segment.append(records, last_offset, max_timestamp, is_awaited=is_awaited)
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
        before, OFFSET_OUT_OF_RANGE where a gap is wider than a segment, and as `append_as_leader`
        where the disk says no.
        """
        if self.failed is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        batches = check_batches(records, self.log_end_offset)
        first, last = batches[0][1], batches[-1][1]
        max_timestamp = max(header.max_timestamp for _, header in batches)
        segment = self.segments.take(len(records), last.last_offset, max_timestamp, now_ms)
        if segment is None:
            segment = self._roll(now_ms)
        if last.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            reason = f"no segment has room from offset {segment.base_offset} to {last.last_offset}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, reason)
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
            self._move_end(header.last_offset + 1)
        return AppendResult(first.base_offset, last.last_offset, -1, self.log_start_offset)

    def assign_epoch(self, epoch: int) -> None:
        """This broker leads from the end of the log on, in a new epoch."""
        if epoch > self.epochs.latest:
            self.epochs.assign(epoch, self.log_end_offset)
            self.latest_epoch = self.epochs.latest

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
        epochs = self.epochs.unwritten(end_offset) if self.epochs.dirty else None
        ticket = FlushTicket(
            files,
            end_offset,
            own_files,
            epochs,
            self._directory,
            segments.new_names,
            self._fail,
            segments.unflushed_bytes >= LARGE_BYTES,
        )
        segments.forget_unsynced()
        self._ticket = ticket
        return ticket

    def finish_flush(self, ticket: FlushTicket) -> None:
        """The ticket's sync has returned: what it covers is durable."""
        assert ticket is self._ticket, self
        assert ticket.error is None, self
        assert not ticket.is_put_off, self
        self._ticket = None
        ticket.release()
        if ticket.epochs_written:
            assert ticket.leader_epochs is not None
            self.epochs.wrote(ticket.leader_epochs)
        if ticket.end_offset > self.durable_end:
            self.durable_end = ticket.end_offset
        self.segments.synced()
        self._reveal()

    def put_off_flush(self, ticket: FlushTicket) -> None:
        """The ticket's sync could not come to its end, and nothing has failed: the next one has all
        of it to do."""
        assert ticket is self._ticket, self
        assert ticket.is_put_off, self
        self._ticket = None
        ticket.release()
        self.segments.not_synced()

    def give_up_flush(self, ticket: FlushTicket) -> None:
        """The ticket's sync has returned or failed, and nothing comes of it: the log has failed, or
        is out of service."""
        assert ticket is self._ticket, self
        self._ticket = None
        ticket.release()

    @property
    def is_flushing(self) -> bool:
        """Whether a ticket is out: its files must stay open."""
        return self._ticket is not None

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

    # the end

    def close(self, clean: bool = True) -> None:
        """Ends all use. `clean` first syncs all, cuts the indexes to size and writes a snapshot.

        Raises OSError if that fails, or has failed before: then the log dir is not clean. Unless it
        has `failed`, all that was appended is on disk, and what a start makes anew is not.
        """
        if self._ticket is not None:
            assert not clean, "a flush is under way"
            self._ticket.release()
            self._ticket = None
        if clean and self.failed is not None:
            raise self.failed
        if clean and not self._is_closed:
            try:
                refused = self._seal()
                self._sync_files()
            except OSError as error:
                self._fail(error)
                raise
            if refused is not None:
                raise refused
            self._write_beside()
        self.segments.release()

    # inside

    def _tell_start(self, refused: RefusedBatch) -> None:
        if refused.reached_log:
            refused.log_start_offset = self.log_start_offset

    def _undo_write(self, error: OSError) -> NoReturn:
        """Cuts off what a failed write has left behind the last good end."""
        segment = self.segments.active
        if segment.file is not None:  # else it could not be opened, and nothing was written
            self._is_closed = False  # a crash must not undo the cut and leave the bytes
            try:
                segment.file.truncate(segment.size)
            except OSError as second:
                self._fail(second)
                raise second from error
        self._refuse(error)

    def _check_producer(
        self, records: memoryview, fields: BatchFields, *, internal: bool
    ) -> KnownBatch | None:
        """The batch that this one repeats, if it does; raises RefusedBatch."""
        try:
            return self.producer_state.check_batch(
                records,
                fields,
                lambda end: lookup.headers_before(self.segments, end),
                internal=internal,
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

    def _seal(self) -> OSError | None:
        """Seals the active segment; what the disk said if it had no room for its indexes, which is
        no reason not to sync its batches."""
        try:
            self.segments.active.seal()
        except OSError as error:
            if error.errno in REFUSALS:
                return error
            raise
        return None

    def _sync_files(self) -> None:
        """All that was appended is durable then."""
        logs, others = self.segments.open_unsynced()
        try:
            for file in others + logs:
                file.sync()
        finally:
            for file in others:
                file.close()
        # A transaction index is made when it is written, and none looks like no aborts.
        if self.segments.new_names or self.segments.active.transactions.has_file:
            self._directory.disk.sync_dir(self.directory)
        self.segments.forget_unsynced()
        self.segments.synced()
        self.durable_end = self.log_end_offset
        self._reveal()

    def _write_beside(self) -> None:
        """What a clean stop leaves beside the segments, and a start can do without."""
        end_offset = self.log_end_offset
        epochs = self.epochs.unwritten(end_offset) if self.epochs.dirty else None
        if epochs is not None:
            path = f"{self.directory}/{LEADER_EPOCH_FILE}"
            write_atomically(self._directory.disk, path, epochs)
            self.epochs.wrote(epochs)
        # An empty segment has its snapshot since it was begun, and that one is synced.
        if self.segments.active.size:
            write_snapshot(self._directory, end_offset, self.producer_state.snapshot())
        self._is_closed = True
