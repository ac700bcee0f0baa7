"""From the files of a partition to a log that can be served.

After a clean stop every file is as it was left: only the end of the last segment is looked at.
After any other stop the segments from the one with the recovery point on are read, the first of
them from its waypoint on if it has a sound one (`waypoints.py`), else as a whole, as are the rest.
Each batch must follow the one before and agree with its CRC; where one does not, and what
follows, is decided by two facts, `durable` (the first offset that is missing there was synced)
and `followed` (batches that are valid lie behind it in the same file):

| durable | followed | decision |
|---|---|---|
| no | no | CUT: a torn tail, or the zeros of a size that was written before its data |
| no | yes | KEEP_ASIDE: cut, but the bytes go to a side file first (`asides.py`) |
| yes | no | LEAVE: the disk lost what it had promised; nothing is cut, and the log goes on in a |
| | | new segment at the first offset that was never durable |
| yes | yes | SKIP: the damaged range stays as it lies, and the scan goes on behind it |

A batch whose CRC is right may still have a wrong offset, which no CRC covers: `numbering.py`. Where
it would be cut it is kept aside. What stays damaged in the last segment ends it, too: readers are
told of holes in sealed ones.

Behind a cut later segments go, too, last one first, so that a crash on the way leaves no hole:
removed if they hold no valid batch, else set aside (N.log.cut). The same holds where offsets are
missing between two segments, but for two cases. Compaction leaves such gaps as far as it has come.
And where a deleted segment lay there, the ones before it had been deleted, too, and a crash undid
that: they go again, and the rest stays.

The scan makes the indexes anew, and brings producer state and leader epochs up to the end. Of
aborted transactions behind damage the index knows what batches do not say any more: it is believed
as far as it was durable. What was recovered is synced before this returns, so that a reader is
never shown what the next crash may take away. Recovering twice gives what recovering once gave.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from ottla.broker.log import asides, old_messages
from ottla.broker.log.batch_reader import BatchReader
from ottla.broker.log.final_syncs import run_sync
from ottla.broker.log.offset_index import RELATIVE_OFFSET_MAX
from ottla.broker.log.partition_dir import PartitionDir
from ottla.broker.log.segment import Segment
from ottla.broker.log.transaction_index import AbortedTransaction
from ottla.broker.ports import File
from ottla.protocol.records.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    BatchHeader,
)
from ottla.protocol.records.crc import crc32c

OnSegment = Callable[[Segment], None]
OnBatch = Callable[[Segment, BatchHeader, memoryview], None]
OnLost = Callable[[AbortedTransaction], None]


class Decision(Enum):
    """What becomes of the bytes from the first bad batch on."""

    CUT = "cut"
    KEEP_ASIDE = "cut, and kept in a side file"
    LEAVE = "left, the log goes on in a new segment"
    SKIP = "left, the scan goes on behind it"


# (durable, followed) -> decision
DECISIONS: dict[tuple[bool, bool], Decision] = {
    (False, False): Decision.CUT,
    (False, True): Decision.KEEP_ASIDE,
    (True, False): Decision.LEAVE,
    (True, True): Decision.SKIP,
}


@dataclass(slots=True, frozen=True)
class Damage:
    """A range of a durable file that holds no valid batch."""

    path: str
    position: int
    size: int
    # The first offset that is missing there.
    first_offset: int


@dataclass(slots=True)
class RecoveryReport:
    """What a start found, and did about it."""

    clean: bool
    segments_scanned: int = 0
    bytes_scanned: int = 0
    bytes_cut: int = 0
    segments_dropped: int = 0
    kept_aside: list[str] = field(default_factory=list)
    damaged: list[Damage] = field(default_factory=list)


class Recovery:
    """The scan of one partition's unsynced segments."""

    def __init__(
        self,
        directory: PartitionDir,
        report: RecoveryReport,
        *,
        recovery_point: int,
        cleaned_end: Callable[[], int] | None,
        deleted: list[int],
        on_segment: OnSegment,
        on_batch: OnBatch,
        on_lost: OnLost,
    ) -> None:
        """Below `cleaned_end`, which is asked where there is a gap, compaction may have left it;
        None if the log is not compacted.
        `on_segment` hears of each segment before its first batch, `on_batch` of each batch, and
        `on_lost` of each aborted transaction whose marker damage has taken."""
        self.report = report
        # Set when the last segment must not be appended to.
        self.needs_segment = False
        self._directory = directory
        self._recovery_point = recovery_point
        self._cleaned_end = cleaned_end
        self._deleted = deleted
        self._on_segment = on_segment
        self._on_batch = on_batch
        self._on_lost = on_lost
        self._latest_epoch = NO_LEADER_EPOCH
        # The last one with damage that stays.
        self._holed: Segment | None = None

    def run(
        self, segments: list[Segment], resumed_at: int | None = None
    ) -> tuple[list[Segment], int]:
        """Scans the segments, oldest first; those that stay, and the offset where the log ends.
        Raises OSError, SyncFailed among them.

        With `resumed_at` the first of them is known up to its `size`, where that offset begins.
        """
        end_offset = segments[0].base_offset
        kept = 0
        for index, segment in enumerate(segments):
            start, end = end_offset, segment.base_offset
            if end > start and not self._is_compacted(segments[index - 1].base_offset, end):
                if self._cleaned_end is None and self._has_deleted(start, end):
                    self._drop(segments[kept:index])
                    kept = index
                elif end_offset >= self._recovery_point:
                    self._drop(segments[index:])
                    return self._end_behind_hole(segments[kept:index]), end_offset
            limit = segments[index + 1].base_offset if index + 1 < len(segments) else None
            end_offset, bad_position = self._scan(segment, limit, resumed_at)
            resumed_at = None
            if bad_position is not None:
                self._drop(segments[index + 1 :])
                self._cut(segment, bad_position)
                return self._end_behind_hole(segments[kept : index + 1]), end_offset
        if end_offset < self._recovery_point:
            # Offsets that were acknowledged are never given again.
            tell_shorter(self._directory, end_offset, self._recovery_point)
            self.needs_segment = True
            end_offset = self._recovery_point
        return self._end_behind_hole(segments[kept:]), end_offset

    def _is_compacted(self, start: int, end: int) -> bool:
        """Whether the cleaner may have left the gap before an offset, behind the segment that
        begins at another. It says so when it has cleaned all that it went for; until then the
        segments that it has replaced lie there."""
        if self._cleaned_end is None:
            return False
        return end <= self._cleaned_end() or self._has_deleted(start, end)

    def _has_deleted(self, start: int, end: int) -> bool:
        return any(start <= base < end for base in self._deleted)

    def _end_behind_hole(self, kept: list[Segment]) -> list[Segment]:
        if kept and kept[-1] is self._holed:
            self.needs_segment = True
        return kept

    def _scan(
        self, segment: Segment, limit: int | None, resumed_at: int | None
    ) -> tuple[int, int | None]:
        """Takes up the batches of a segment: the offset behind the last, and where to cut it."""
        greatest = _limit_of(segment)
        limit = greatest if limit is None else min(limit, greatest)
        file = segment.open()
        size = file.size()
        if resumed_at is None:
            self._start_anew(segment)
            expected, position = segment.base_offset, 0
        else:
            expected, position = resumed_at, segment.size
        self.report.segments_scanned += 1
        self.report.bytes_scanned += size - position
        reader = BatchReader(file, size, self._recovery_point)
        # From here on the batches do not say all. What damage took before bears on what follows.
        unseen = None if self._holed is None else expected
        while position < size:
            position, expected = self._take_run(segment, reader, position, expected, limit)
            if position == size:
                break
            taken = self._take_messages(segment, reader, position, expected, limit)
            if taken is not None:
                position, expected = taken
                continue
            behind = reader.find_behind(position, expected, limit)
            durable = expected < self._recovery_point
            decision = DECISIONS[durable, behind is not None]
            if decision is Decision.CUT and reader.is_whole(position):
                decision = Decision.KEEP_ASIDE  # nothing but its offset is wrong
            match decision:
                case Decision.CUT:
                    size = position
                    break
                case Decision.KEEP_ASIDE:
                    self._keep_aside(file, position, size)
                    size = position
                    break
                case Decision.LEAVE:
                    behind = size
                case Decision.SKIP:
                    pass
            assert behind is not None
            self._note_damage(segment, position, behind, expected)
            self._tell_lost(segment, expected, reader.first_offset_at(behind))
            unseen = expected if unseen is None else unseen
            position = behind
        segment.size = size
        segment.transactions.settle(unseen=unseen, below=min(self._recovery_point, limit))
        return expected, position if size < reader.size else None

    def _start_anew(self, segment: Segment) -> None:
        self._on_segment(segment)
        try:
            segment.transactions.start_anew()
        except OSError as error:
            # The batches say nearly all that it did.
            self._directory.events.error(
                "index_unreadable", path=segment.transactions.path, reason=str(error)
            )
            segment.transactions.forget()
        segment.start_rebuild()

    def _take_run(
        self, segment: Segment, reader: BatchReader, position: int, expected: int, limit: int
    ) -> tuple[int, int]:
        """Takes up batches as long as they are valid: the position and offset behind them.

        This loop is what a start after a crash waits for. What it does with every batch stands in
        it, and anything else is called for few: with a batch of one small record, each call more
        is a tenth of the time.
        """
        unpack, on_batch = HEADER.unpack_from, self._on_batch
        interval = segment.index_interval
        since_entry, max_timestamp, max_timestamp_offset = segment.notes
        latest_epoch = self._latest_epoch
        lasts, positions = array("q"), array("q")
        size, at_least = reader.size, 0
        while position < size:
            chunk = reader.chunk_from(position, at_least)
            start, at, end = position, 0, len(chunk)
            while at + HEADER_SIZE <= end:
                fields = unpack(chunk, at)
                batch_size = fields[1] + LOG_OVERHEAD
                behind = at + batch_size
                last_offset = fields[0] + fields[6]
                if (
                    behind > end
                    or fields[3] != MAGIC
                    or batch_size < HEADER_SIZE
                    or fields[0] < expected
                    or fields[6] < 0
                    or last_offset >= limit
                    or crc32c(chunk[at + CRC_START : behind]) != fields[4]
                    or (
                        fields[0] > expected
                        and reader.is_misnumbered(fields, start + at, expected, limit)
                    )
                ):
                    break
                if fields[9] >= 0 or fields[2] > latest_epoch:
                    on_batch(segment, tuple.__new__(BatchHeader, fields), chunk[at:behind])
                    latest_epoch = max(latest_epoch, fields[2])
                if fields[8] > max_timestamp:
                    max_timestamp, max_timestamp_offset = fields[8], last_offset
                if since_entry > interval:
                    segment.add_entry(last_offset, start + at, max_timestamp, max_timestamp_offset)
                    since_entry = 0
                since_entry += batch_size
                lasts.append(last_offset)
                positions.append(start + at)
                expected = last_offset + 1
                at = behind
            position = start + at
            segment.notes = since_entry, max_timestamp, max_timestamp_offset
            segment.remember(lasts, positions)
            if at:
                at_least = 0
            elif (batch_size := reader.size_of_longer(position)) > at_least:
                at_least = batch_size
            else:
                break
        self._latest_epoch = latest_epoch
        segment.size = position
        return position, expected

    def _take_messages(
        self, segment: Segment, reader: BatchReader, position: int, expected: int, limit: int
    ) -> tuple[int, int] | None:
        """As `_take_run`, for messages of magic 0 and 1; None if none begins at the position."""
        start = position
        while True:
            chunk = reader.chunk_from(position, 0)
            at = 0
            while (header := old_messages.read_message(chunk, at)) is not None:
                if at + header.size > len(chunk):
                    if at:
                        break  # it is whole in the next chunk
                    chunk = reader.chunk_from(position, header.size)
                view = chunk[at : at + header.size]
                offset = header.base_offset
                if (
                    len(view) < header.size
                    or offset < expected
                    or offset >= limit
                    or not old_messages.is_sound(view, header)
                ):
                    break
                segment.index.entries.make_room()
                segment.time_index.entries.make_room()
                segment.note_batch(position + at, header.size, offset, header.max_timestamp)
                at += header.size
                expected = offset + 1
            if not at:
                return None if position == start else (position, expected)
            position += at

    def _note_damage(self, segment: Segment, position: int, end: int, first_offset: int) -> None:
        # What the segment remembers must not lead a reader over the hole.
        segment.forget_recent()
        damage = Damage(segment.log_path, position, end - position, first_offset)
        self._holed = segment
        self.report.damaged.append(damage)
        self._directory.events.error(
            "durable_range_damaged", path=damage.path, position=position, size=damage.size
        )

    def _tell_lost(self, segment: Segment, start: int, end: int | None) -> None:
        durable = self._recovery_point
        for one in segment.transactions.left_in(
            start, durable if end is None else min(end, durable)
        ):
            self._on_lost(one)

    def _keep_aside(self, file: File, position: int, end: int) -> None:
        path = asides.keep_copy(self._directory.disk, file, position, end)
        run_sync(self._directory.sync)
        self.report.kept_aside.append(path)

    def _cut(self, segment: Segment, position: int) -> None:
        file = segment.open()
        cut = file.size() - position
        self.report.bytes_cut += cut
        self._directory.events.warning(
            "log_tail_cut",
            path=file.path,
            position=position,
            bytes_cut=cut,
            kept_aside=self.report.kept_aside,
        )
        file.truncate(position)

    def _drop(self, segments: list[Segment]) -> None:
        """Takes segments away, the last one first."""
        disk = self._directory.disk
        for segment in reversed(segments):
            file = segment.open()
            size = file.size()
            reader, limit = BatchReader(file, size), _limit_of(segment)
            followed = reader.find(0, segment.base_offset, limit) is not None
            segment.release()
            aside = None
            if followed:
                aside = asides.free_name(disk, segment.log_path)
                disk.rename(segment.log_path, aside)
                self._directory.note_removed(segment.log_path)
                self.report.kept_aside.append(aside)
            else:
                self._directory.remove(segment.log_path)
            self.report.segments_dropped += 1
            self.report.bytes_cut += size
            self._directory.events.warning(
                "segment_dropped", path=segment.log_path, size=size, kept_aside=aside
            )
            remove_indexes(self._directory, segment)
            run_sync(self._directory.sync)


def _limit_of(segment: Segment) -> int:
    """Below it are all offsets for which an index has room; no CRC covers that of a batch."""
    return segment.base_offset + RELATIVE_OFFSET_MAX + 1


def tell_shorter(directory: PartitionDir, end_offset: int, recovery_point: int) -> None:
    """What was synced is gone; the log goes on at the recovery point."""
    directory.events.error(
        "log_shorter_than_recovery_point",
        path=directory.path,
        end_offset=end_offset,
        recovery_point=recovery_point,
    )


def remove_indexes(directory: PartitionDir, segment: Segment) -> None:
    """Removes the indexes of a segment whose .log file is gone."""
    for index in (segment.index.entries.path, segment.time_index.entries.path):
        if directory.disk.exists(index):
            directory.remove(index)
    if segment.transactions.has_file:
        directory.note_removed(segment.transactions.path)
    segment.transactions.forget()
