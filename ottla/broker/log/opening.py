"""Opening a partition's log: leftovers, segments, recovery, producers, leader epochs.

`open_files` returns the parts from which `Log` is made. The rules of recovery stand in
`recovery.py`, those of leftovers in `leftovers.py`; this is the order in which they apply.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ottla.broker.log.checkpoints import (
    CLEANER_FILE,
    LEADER_EPOCH_FILE,
    MalformedFile,
    read_offsets,
    read_whole,
    write_anew,
)
from ottla.broker.log.directories import Kind, parse_name
from ottla.broker.log.final_syncs import doubting, run_sync
from ottla.broker.log.flush import REFUSALS
from ottla.broker.log.index import IndexCorrupt
from ottla.broker.log.leader_epochs import LeaderEpochs
from ottla.broker.log.leftovers import Contents, tidy
from ottla.broker.log.partition_dir import PartitionDir
from ottla.broker.log.producer_state import EndedTransaction, ProducerState, SnapshotCorrupt
from ottla.broker.log.recovery import Recovery, RecoveryReport, tell_shorter
from ottla.broker.log.segment import SNAPSHOT_SUFFIX, Segment
from ottla.broker.log.segments import Segments, sync_indexes
from ottla.broker.log.transaction_index import AbortedTransaction, completed
from ottla.broker.log.waypoints import Waypoints, read_waypoint, resume
from ottla.config.types import LONG_MAX, LogConfig
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import BatchHeader, read_header
from ottla.protocol.records.control import Marker, read_marker

# A recovery that scanned more index intervals than this leaves a waypoint at its end.
WAYPOINT_INTERVALS = 4


@dataclass(slots=True)
class OpenedFiles:
    """What a log is made of."""

    segments: Segments
    end_offset: int
    log_start_offset: int
    producers: ProducerState
    epochs: LeaderEpochs
    report: RecoveryReport
    waypoints: Waypoints
    # Whether the last stop left all indexes cut to size and a snapshot at the end.
    is_closed: bool


def open_files(
    directory: PartitionDir,
    config: LogConfig,
    *,
    recovery_point: int,
    log_start_offset: int,
    clean: bool,
    now_ms: int,
) -> OpenedFiles:
    """Loads the files, recovers them where they were not stopped cleanly, creates missing ones.

    A sync that fails here ends the start, and leaves a mark for the next one.
    """
    with doubting(directory):
        return _Opening(directory, config, now_ms).run(recovery_point, log_start_offset, clean)


def replay(
    directory: PartitionDir,
    segments: list[Segment],
    producers: ProducerState,
    *,
    end_offset: int,
    now_ms: int,
) -> bool:
    """Takes up the batches of the log from the state's end to `end_offset`; headers only.

    Whether it could: batches behind a broken header are passed over, up to the next segment.
    """
    is_whole = True
    for index, segment in enumerate(segments):
        is_behind = index + 1 < len(segments)
        if is_behind and segments[index + 1].base_offset <= producers.end_offset:
            continue
        try:
            position, _ = segment.locate(max(producers.end_offset, segment.base_offset))
            for at, header in segment.headers(position):
                if header.base_offset >= end_offset:
                    return is_whole
                view = segment.batch_at(at, header.size) if header.is_control else None
                apply_batch(producers, header, view, now_ms)
        except KafkaError as error:
            directory.events.error("producer_replay_broken", reason=error.message)
            is_whole = False
    producers.end_offset = end_offset
    return is_whole


def apply_batch(
    producers: ProducerState, header: BatchHeader, view: memoryview | None, now_ms: int
) -> EndedTransaction | None:
    """Takes up one batch of the log; the transaction that it ended, if it did.

    `view` is the whole batch, and may be left out unless it is a control batch.
    """
    if header.producer_id < 0:
        return None
    if not header.is_control:
        producers.add_header(header, now_ms)
        return None
    assert view is not None
    marker = read_marker(view)
    return None if marker is None else producers.end_transaction(marker, now_ms)


def remove_snapshots(directory: PartitionDir, *, above: int = -1) -> list[int]:
    """Removes the producer snapshots above an offset; the offsets of those that stay."""
    kept: list[int] = []
    for name in directory.disk.list(directory.path):
        if name.endswith(SNAPSHOT_SUFFIX):
            offset = int(name.removesuffix(SNAPSHOT_SUFFIX))
            if offset > above:
                directory.remove(f"{directory.path}/{name}")
            else:
                kept.append(offset)
    return kept


def aborted_in(
    directory: PartitionDir,
    segments: list[Segment],
    segment: Segment,
    producers: ProducerState,
    *,
    end_offset: int,
    now_ms: int,
) -> list[AbortedTransaction]:
    """The transactions that were aborted in a segment, by its batches and the producers before.

    Where a header is broken they say nothing of what lies behind it: there its index is believed,
    and where the producers before are not known it is believed in all that it says.
    """
    base_offset = segment.base_offset
    knows_before = replay(directory, segments, producers, end_offset=base_offset, now_ms=now_ms)
    aborted: list[AbortedTransaction] = []
    unseen: int | None = base_offset
    try:
        for position, header in segment.headers():
            view = segment.batch_at(position, header.size) if header.is_control else None
            ended = apply_batch(producers, header, view, now_ms)
            if ended is not None and not ended.committed:
                aborted.append(aborted_by(ended, producers))
            unseen = header.last_offset + 1
        unseen = None
    except KafkaError as error:
        directory.events.error("transactions_rebuild_broken", reason=error.message)
    if not knows_before:
        unseen = base_offset
    if unseen is None:
        return aborted
    return completed(aborted, segment.transactions.entries(), unseen=unseen, below=end_offset)


def reload_producers(
    directory: PartitionDir, segments: list[Segment], *, end_offset: int, now_ms: int
) -> ProducerState:
    """What a log that was cut says of its producers; snapshots above its end are removed."""
    snapshots = remove_snapshots(directory, above=end_offset)
    producers = load_snapshot(directory, snapshots, at_most=end_offset, now_ms=now_ms)
    replay(directory, segments, producers, end_offset=end_offset, now_ms=now_ms)
    return producers


def load_snapshot(
    directory: PartitionDir, snapshots: list[int], *, at_most: int, now_ms: int
) -> ProducerState:
    """The state of the newest sound snapshot at or below an offset; an empty one if there is none.

    Snapshots that are not sound are removed.
    """
    for offset in sorted(snapshots, reverse=True):
        if offset > at_most:
            continue
        path = directory.file(offset, SNAPSHOT_SUFFIX)
        data = read_whole(directory.disk, path)
        if data is None:
            continue
        try:
            return ProducerState.from_snapshot(data, offset, now_ms)
        except SnapshotCorrupt as error:
            directory.events.warning("producer_snapshot_corrupt", path=path, reason=str(error))
            directory.disk.remove(path)
            snapshots.remove(offset)
    return ProducerState()


def aborted_by(ended: EndedTransaction, producers: ProducerState) -> AbortedTransaction:
    """The index entry of a transaction that an abort marker has just ended."""
    first_open = producers.first_open
    stable = ended.last_offset + 1 if first_open is None else first_open
    return AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, stable)


class _Opening:
    def __init__(self, directory: PartitionDir, config: LogConfig, now_ms: int) -> None:
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._contents = Contents()
        self._first_base = 0
        self._sound_snapshots: list[int] = []
        # Whether a name was made or removed that is not synced yet.
        self._changed_names = False
        # Whether what the last process did to names is durable.
        self._synced_names = False
        self._report = RecoveryReport(clean=True)
        self._epochs = LeaderEpochs()
        self._producers = ProducerState()
        self._waypoints = Waypoints(directory)

    def run(self, recovery_point: int, log_start_offset: int, clean: bool) -> OpenedFiles:
        self._contents = tidy(self._directory, self._config, self._now_ms)
        self._changed_names = self._contents.changed
        clean = clean and not self._contents.doubtful
        self._report.clean = clean
        self._epochs = self._read_epochs()
        segments = [self._load_segment(base) for base in sorted(self._contents.segments)]
        end_offset = self._find_end(segments, recovery_point, log_start_offset) if clean else None
        is_closed = end_offset is not None and end_offset in self._contents.snapshots
        needs_segment = False
        if end_offset is not None:
            self._load_producers(segments, end_offset)
        elif segments:
            self._report.clean = False
            recovery = self._recovery(recovery_point)
            # A segment that ends at the recovery point may have been sealed after that sync.
            first = max(recovery_point - 1, log_start_offset)
            segments, end_offset = self._recover(segments, recovery, first, recovery_point)
            needs_segment = recovery.needs_segment
        else:
            end_offset = log_start_offset
            if end_offset < recovery_point:
                # As where the end of a file is lost: no offset is given twice.
                self._report.clean = False
                tell_shorter(self._directory, end_offset, recovery_point)
                end_offset = log_start_offset = recovery_point
        self._settle_names()
        opened = Segments(self._directory, self._config)
        opened.load(segments)
        log_start_offset = max(log_start_offset, segments[0].base_offset if segments else 0)
        if log_start_offset > end_offset:
            self._start_over(opened, end_offset, log_start_offset)
            end_offset, needs_segment = log_start_offset, True
        if needs_segment and len(opened):
            opened.active.seal()
            sync_indexes(opened.active)
        if needs_segment or not len(opened):
            opened.begin_anew(end_offset, self._now_ms)
            if end_offset > 0:
                # What was removed must not come back behind what is written next.
                run_sync(self._directory.sync)
                opened.new_names = self._changed_names = False
        for index, segment in enumerate(opened):
            end = opened[index + 1].base_offset if index + 1 < len(opened) else end_offset
            self._check_transactions(opened, segment, end)
            if segment is not opened.active:
                segment.transactions.release()
        self._tell_open_transactions()
        self._epochs.truncate_to(end_offset)
        self._epochs.start_at(log_start_offset)
        self._producers.end_offset = end_offset
        self._remove_deleted()
        self._remove_snapshots([one.base_offset for one in opened], end_offset)
        with suppress(OSError):  # whoever appends meets it, too
            opened.look_at_age()
        opened.active.release()
        opened.new_names = opened.new_names or self._changed_names
        return OpenedFiles(
            segments=opened,
            end_offset=end_offset,
            log_start_offset=log_start_offset,
            producers=self._producers,
            epochs=self._epochs,
            report=self._report,
            waypoints=self._waypoints,
            is_closed=is_closed and not opened.new_names,
        )

    def _load_segment(self, base_offset: int) -> Segment:
        segment = Segment(
            self._directory,
            base_offset,
            config=self._config,
            now_ms=self._now_ms,
            has_transaction_index=base_offset in self._contents.transaction_indexes,
        )
        segment.load_size()
        return segment

    def _find_end(
        self, segments: list[Segment], recovery_point: int, log_start_offset: int
    ) -> int | None:
        """Where a cleanly stopped log ends, or None if its last segment does not end well, or
        ends below what was synced: a file is missing, or was emptied or cut between two batches."""
        try:
            end_offset = log_start_offset
            if segments:
                segments[-1].open()
                end_offset = segments[-1].find_end()
        except KafkaError as error:
            reason = error.message
        else:
            if end_offset >= recovery_point:
                return end_offset
            reason = f"it ends at offset {end_offset}, and was synced up to {recovery_point}"
        self._directory.events.error("clean_log_broken", path=self._directory.path, reason=reason)
        return None

    def _load_producers(self, segments: list[Segment], end_offset: int) -> None:
        self._producers = load_snapshot(
            self._directory, self._contents.snapshots, at_most=end_offset, now_ms=self._now_ms
        )
        self._sound_snapshots.append(self._producers.end_offset)
        if self._producers.end_offset < end_offset:
            replay(
                self._directory,
                segments,
                self._producers,
                end_offset=end_offset,
                now_ms=self._now_ms,
            )

    def _recovery(self, recovery_point: int) -> Recovery:
        return Recovery(
            self._directory,
            self._report,
            recovery_point=recovery_point,
            cleaned_end=self._cleaned_end if self._config.compacted else None,
            deleted=self._contents.deleted_segments,
            on_segment=self._keep_producers,
            on_batch=self._take_up,
            on_lost=self._end_by_index,
        )

    def _cleaned_end(self) -> int:
        """How far Apache Kafka's cleaner has come. A copy, which may begin again, has the gaps of
        its log, wherever that was cleaned."""
        log_dir, _, name = self._directory.path.rpartition("/")
        known = parse_name(name)
        if known is None or known.kind is not Kind.PARTITION:
            return LONG_MAX
        rows = read_offsets(
            self._directory.disk, f"{log_dir}/{CLEANER_FILE}", self._directory.events
        )
        return rows.get((known.topic, known.partition), 0)

    def _recover(
        self, segments: list[Segment], recovery: Recovery, offset: int, recovery_point: int
    ) -> tuple[list[Segment], int]:
        """Scans from the segment that holds an offset on: what is below it is durable, or gone."""
        first = max(
            (index for index, one in enumerate(segments) if one.base_offset <= offset),
            default=0,
        )
        self._first_base = segments[0].base_offset
        resumed_at = self._resume(segments[first], recovery_point)
        if resumed_at is None:
            # Only segments that the scan leaves alone may speak for the producers before it.
            self._load_producers(segments[:first], segments[first].base_offset)
        kept, end_offset = recovery.run(segments[first:], resumed_at)
        for segment in kept[:-1]:
            segment.seal()
        self._sync(kept, anew=self._contents.doubtful)
        self._settle_names()
        if kept and not recovery.needs_segment:
            self._save_waypoint(kept[-1], end_offset)
        for segment in kept:
            segment.release()
        return segments[:first] + kept, end_offset

    def _sync(self, kept: list[Segment], *, anew: bool) -> None:
        """What was recovered is durable then, names included; in new files, if it was doubtful."""
        for segment in kept[:-1]:
            run_sync(partial(sync_indexes, segment))
        for segment in kept:
            if anew:
                segment.rewrite()
            run_sync(segment.open().sync)
        run_sync(self._directory.sync)
        self._synced_names = True

    def _settle_names(self) -> None:
        """What goes has lost its old names for good behind this: the row of the log start, which
        makes up for those that come back, is given up once the log is open."""
        contents = self._contents
        if (contents.deleted_names or contents.doubtful) and not self._synced_names:
            run_sync(self._directory.sync)
            self._synced_names = True
        if contents.doubtful:
            self._directory.trust_tail()
            contents.doubtful, self._changed_names = False, True
            self._directory.events.warning("doubtful_tail_rewritten", path=self._directory.path)

    def _resume(self, segment: Segment, recovery_point: int) -> int | None:
        """The offset at which the scan may begin inside the segment, by its waypoint."""
        found = read_waypoint(self._directory)
        if found is None:
            return None
        waypoint, snapshot = found
        if waypoint.base_offset != segment.base_offset or waypoint.offset > recovery_point:
            return None
        if read_header(waypoint.last_header).partition_leader_epoch > self._epochs.latest:
            return None  # the file of epochs is lost, and only the batches have them
        producers = resume(segment, waypoint, snapshot, now_ms=self._now_ms)
        if producers is None:
            self._directory.events.warning("waypoint_not_true", path=segment.log_path)
            return None
        self._producers = producers
        self._waypoints.reached(segment, waypoint.position)
        return waypoint.offset

    def _save_waypoint(self, segment: Segment, end_offset: int) -> None:
        """Where the scan was long, the next one shall not be; see `waypoints`."""
        unmarked = self._waypoints.unmarked_bytes(segment)
        if unmarked <= WAYPOINT_INTERVALS * self._config.index_interval_bytes:
            return
        try:
            ticket = self._waypoints.begin(segment, end_offset, self._producers)
            if ticket is not None:
                try:
                    ticket.write()
                finally:
                    self._waypoints.finish(ticket)
        except OSError as error:
            if error.errno not in REFUSALS:
                raise

    def _keep_producers(self, segment: Segment) -> None:
        """Each segment has a snapshot at its base; a crash may have taken it."""
        base_offset = segment.base_offset
        if base_offset != self._first_base and base_offset not in self._sound_snapshots:
            # In a new file: after a sync that failed neither bytes nor name of an old one are sure.
            path = self._directory.file(base_offset, SNAPSHOT_SUFFIX)
            write_anew(self._directory.disk, path, self._producers.snapshot())
            if base_offset not in self._contents.snapshots:
                self._contents.snapshots.append(base_offset)

    def _take_up(self, segment: Segment, header: BatchHeader, view: memoryview) -> None:
        """What the scan does with each valid batch."""
        if header.partition_leader_epoch > self._epochs.latest:
            self._epochs.assign(header.partition_leader_epoch, header.base_offset)
        if self._producers.take_expected(header, self._now_ms):
            return
        ended = apply_batch(self._producers, header, view, self._now_ms)
        if ended is not None and not ended.committed:
            segment.transactions.append(aborted_by(ended, self._producers))

    def _end_by_index(self, aborted: AbortedTransaction) -> None:
        """The marker is damaged: without it the transaction would stay open for good."""
        producer = self._producers.producers.get(aborted.producer_id)
        if producer is None or producer.transaction_start is None:
            return
        marker = Marker(
            offset=aborted.last_offset,
            timestamp=producer.last_timestamp,
            producer_id=aborted.producer_id,
            producer_epoch=producer.epoch,
            committed=False,
            coordinator_epoch=producer.coordinator_epoch,
        )
        self._producers.end_transaction(marker, self._now_ms)

    def _check_transactions(self, segments: Segments, segment: Segment, end_offset: int) -> None:
        """Makes a transaction index anew that cannot be right."""
        try:
            segment.transactions.check(segment.base_offset, end_offset)
        except IndexCorrupt:
            self._directory.events.warning("index_rebuilt", path=segment.transactions.path)
        else:
            return
        producers = load_snapshot(
            self._directory,
            self._contents.snapshots,
            at_most=segment.base_offset,
            now_ms=self._now_ms,
        )
        aborted = aborted_in(
            self._directory,
            segments[:],
            segment,
            producers,
            end_offset=end_offset,
            now_ms=self._now_ms,
        )
        segment.transactions.replace(aborted)

    def _tell_open_transactions(self) -> None:
        """Readers of committed data wait at an open transaction until somebody ends it.

        That is its client or its coordinator, as a rule; nobody, where both have forgotten it.
        """
        for start, producer_id in self._producers.open_transactions.items():
            topic, _, partition = self._directory.path.rpartition("/")[2].rpartition("-")
            self._directory.events.info(
                "transaction_left_open",
                path=self._directory.path,
                producer_id=producer_id,
                producer_epoch=self._producers.producers[producer_id].epoch,
                start_offset=start,
                last_timestamp=self._producers.producers[producer_id].last_timestamp,
                remedy="none as a rule: its coordinator aborts it at its transaction.timeout.ms; if"
                " it is still open then: kafka-transactions.sh --bootstrap-server ... abort"
                f" --topic {topic} --partition {partition} --start-offset {start}",
            )

    def _start_over(self, segments: Segments, end_offset: int, log_start_offset: int) -> None:
        """The log ends below its start: nothing of it is wanted any more."""
        self._directory.events.warning(
            "log_ends_below_its_start",
            path=self._directory.path,
            end_offset=end_offset,
            log_start_offset=log_start_offset,
        )
        segments.remove_from(0)
        self._epochs.clear()
        self._producers = ProducerState()

    def _read_epochs(self) -> LeaderEpochs:
        path = f"{self._directory.path}/{LEADER_EPOCH_FILE}"
        data = read_whole(self._directory.disk, path)
        if data is None:
            return LeaderEpochs()
        try:
            return LeaderEpochs.parse(data)
        except MalformedFile as error:
            self._directory.events.warning(
                "checkpoint_malformed", path=path, reason=str(error), treated_as="absent"
            )
            return LeaderEpochs()

    def _remove_deleted(self) -> None:
        for name in self._contents.deleted_names:
            self._directory.disk.remove(f"{self._directory.path}/{name}")
            self._changed_names = True

    def _remove_snapshots(self, bases: list[int], end_offset: int) -> None:
        """Keeps the snapshots at the bases of segments, and the one of a clean stop at the end.

        Behind a crash the latter may be of what was cut off before it, and come back with it.
        """
        kept = {base for base in bases if base <= end_offset}
        if self._report.clean:
            kept.add(end_offset)
        for offset in self._contents.snapshots:
            if offset in kept:
                continue
            path = self._directory.file(offset, SNAPSHOT_SUFFIX)
            if self._directory.disk.exists(path):
                self._directory.disk.remove(path)
                self._changed_names = True
