"""One partition's directory, verified: each file by itself, and all of them against the log.

The log is read once, from front to back. On the way the indexes are held against it, producer
state and transactions are followed as a start follows them, and compared with what the snapshots
and transaction indexes say. `facts` is what a repair needs of all this.

Offsets may be missing: they are damaged, a repair took them out, or compaction did. Of what stood
there a snapshot or a transaction index may know more than the log, and is believed. So damage and
the gap that its repair leaves are judged alike, and what was repaired once has no finding more.

A directory of any other name is verified as one named topic-N is. Without a .log file it is none,
but a place to which somebody put single files: those may be the only copies, and keep as they are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.broker.log import checkpoints, transaction_index
from ottla.broker.log.asides import free_name, name_of_copy
from ottla.broker.log.checkpoints import MalformedFile
from ottla.broker.log.directories import parse_name
from ottla.broker.log.examine.files import FileKind, LogFile, classify, read_index
from ottla.broker.log.examine.findings import ALONE, INDEX_REMEDY, REPAIRED, Finding, Fix
from ottla.broker.log.examine.index_checks import OffsetIndexCheck, TimeIndexCheck
from ottla.broker.log.examine.metadata import with_refusal
from ottla.broker.log.examine.records import describe_records
from ottla.broker.log.examine.scan import Damage, Entry, LogScan
from ottla.broker.log.leader_epochs import LeaderEpochs
from ottla.broker.log.opening import aborted_by, apply_batch
from ottla.broker.log.producer_state import Producer, ProducerState, SnapshotCorrupt
from ottla.broker.log.transaction_index import AbortedTransaction
from ottla.broker.log.waypoints import WAYPOINT_FILE, parse_waypoint
from ottla.broker.ports import Disk
from ottla.config.types import LONG_MAX
from ottla.protocol.errors import KafkaError

Progress = Callable[[int], None]


@dataclass(slots=True)
class SegmentFacts:
    """What the walk has seen of one segment."""

    file: LogFile
    size: int = 0
    end_offset: int = 0
    damages: list[Damage] = field(default_factory=list)
    # What its transaction index is to have.
    aborted: list[AbortedTransaction] = field(default_factory=list)


@dataclass(slots=True)
class PartitionFacts:
    """What the walk has seen of a partition; `epochs` are (leader epoch, first offset)."""

    directory: str
    findings: list[Finding] = field(default_factory=list)
    segments: list[SegmentFacts] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    end_offset: int = 0


def verify_partition(
    disk: Disk, directory: str, *, deep: bool, progress: Progress
) -> PartitionFacts:
    """Reads the whole partition; `deep` reads every record, too. Raises OSError."""
    return _Verification(disk, directory, deep, progress).run()


class _Verification:
    def __init__(self, disk: Disk, directory: str, deep: bool, progress: Progress) -> None:
        self._disk = disk
        self._deep = deep
        self._progress = progress
        self._facts = PartitionFacts(directory)
        self._files: dict[FileKind, list[LogFile]] = {}
        self._is_partition = True
        self._producers = ProducerState()
        self._stored_epochs: LeaderEpochs | None = None
        self._epochs_told = False
        self._epoch = -1
        self._expected = 0
        # Offsets of which the log has no batch, from one up to another.
        self._gaps: list[tuple[int, int]] = []
        self._read_bytes = 0

    def run(self) -> PartitionFacts:
        facts = self._facts
        for name in self._disk.list(facts.directory):
            file = classify(f"{facts.directory}/{name}")
            # What waits to be removed or swapped in is the business of the next start.
            if file is not None and not name.endswith((".deleted", ".swap", ".cleaned")):
                self._files.setdefault(file.kind, []).append(file)
        logs = self._files.get(FileKind.LOG, [])
        self._is_partition = (
            bool(logs) or parse_name(facts.directory.rpartition("/")[2]) is not None
        )
        self._stored_epochs = self._read_epochs()
        self._check_topic_id()
        self._check_orphans(logs)
        if logs:
            self._expected = logs[0].base_offset
            self._seed_producers(logs[0].base_offset)
        for index, log in enumerate(logs):
            following = logs[index + 1].base_offset if index + 1 < len(logs) else None
            self._check_segment(log, following)
        facts.end_offset = self._expected
        for snapshot in self._files.get(FileKind.PRODUCER_SNAPSHOT, []):
            self._check_snapshot_end(snapshot)
        facts.findings = with_refusal(self._disk, facts.directory, facts.findings)
        return facts

    def _find(
        self,
        file: LogFile | str,
        what: str,
        remedy: str,
        *,
        position: int | None = None,
        size: int = 0,
        fix: Fix = Fix.NOTHING,
        gives_up: str = "",
        keeps: str = "",
    ) -> None:
        path = file if isinstance(file, str) else file.path
        if fix is not Fix.NOTHING and not self._is_partition:
            remedy, fix, gives_up, keeps = ALONE, Fix.NOTHING, "", ""
        self._facts.findings.append(
            Finding(path, what, remedy, position, size, fix, gives_up, keeps)
        )

    def _data(self, file: LogFile | None) -> bytes:
        return b"" if file is None else checkpoints.read_whole(self._disk, file.path) or b""

    def _entries(self, file: LogFile | None) -> tuple[bytes, int]:
        return (file and read_index(self._disk, file.path)) or (b"", 0)

    # one segment

    def _check_segment(self, log: LogFile, following: int | None) -> None:
        segment = SegmentFacts(log)
        self._facts.segments.append(segment)
        self._check_snapshot_at(log.base_offset)
        offset_file = self._index_of(log, FileKind.OFFSET_INDEX)
        time_file = self._index_of(log, FileKind.TIME_INDEX)
        offsets = OffsetIndexCheck(*self._entries(offset_file), log.base_offset)
        times = TimeIndexCheck(*self._entries(time_file), log.base_offset)
        opened = self._disk.open(log.path)
        try:
            segment.size = opened.size()
            scan = LogScan(opened, segment.size, log.base_offset, following)
            for found in scan:
                self._progress(self._read_bytes + scan.position)
                if isinstance(found, Damage):
                    segment.damages.append(found)
                    continue
                self._take(segment, found)
                offsets.batch(found)
                times.batch(found)
        finally:
            opened.close()
        self._read_bytes += segment.size
        if following is not None:
            self._expect(following)
        segment.end_offset = self._expected
        self._tell_damages(segment, last=following is None)
        if not segment.damages:  # else the indexes are made anew with the log
            offsets.finish()
            is_empty = offsets.is_empty and times.is_empty
            times.finish(closed=following is not None and not is_empty)
            for file, complaint in ((offset_file, offsets.complaint), (time_file, times.complaint)):
                if file is not None and complaint is not None:
                    at, what = complaint
                    self._find(file, what, INDEX_REMEDY, position=at, fix=Fix.REBUILD_INDEXES)
        made_anew_from = self._made_anew_from(log) if following is None else LONG_MAX
        self._check_transactions(segment, made_anew_from)

    def _made_anew_from(self, last: LogFile) -> int:
        """From which offset on a start makes the transaction index of the last segment anew: what a
        broker has in memory there need not be in the file, while it runs and behind a crash. A log
        dir that was stopped cleanly, or a partition that lies in none, has no such part."""
        log_dir = checkpoints.parent_of(self._facts.directory)
        exists = self._disk.exists
        if exists(f"{log_dir}/{checkpoints.CLEAN_SHUTDOWN_FILE}") or not exists(
            f"{log_dir}/{checkpoints.META_PROPERTIES_FILE}"
        ):
            return LONG_MAX
        data = checkpoints.read_whole(self._disk, f"{self._facts.directory}/{WAYPOINT_FILE}")
        try:
            waypoint, _ = parse_waypoint(data or b"")
        except MalformedFile:
            return last.base_offset
        is_of_it = waypoint.base_offset == last.base_offset
        return waypoint.offset if is_of_it else last.base_offset

    def _expect(self, offset: int) -> None:
        """What comes next has this offset."""
        if offset > self._expected:
            self._gaps.append((self._expected, offset))
            self._expected = offset

    def _has_lost(self, first: int, end: int) -> bool:
        """Whether some of the offsets from one up to another are missing."""
        before = bisect_left(self._gaps, (end, 0))
        return before > 0 and self._gaps[before - 1][1] > first

    def _take(self, segment: SegmentFacts, entry: Entry) -> None:
        self._expect(entry.base_offset)
        self._expected = entry.last_offset + 1
        header = entry.header
        if header is not None:
            self._check_epoch(segment, entry, header.partition_leader_epoch)
            if header.is_control or header.is_transactional or header.producer_id >= 0:
                view = entry.data if header.is_control else None
                ended = apply_batch(self._producers, header, view, 0)
                if ended is not None and not ended.committed:
                    segment.aborted.append(aborted_by(ended, self._producers))
        if self._deep:
            try:
                for _ in describe_records(entry, segment.file.topic):
                    pass
            except KafkaError as error:
                self._find(
                    segment.file,
                    f"the records of a batch whose CRC is right cannot be read: {error.message}",
                    "Its producer wrote it so; consumers stop there. Seek over"
                    f" {entry.base_offset}-{entry.last_offset}, or delete records up to there.",
                    position=entry.position,
                )

    def _check_epoch(self, segment: SegmentFacts, entry: Entry, epoch: int) -> None:
        if epoch < self._epoch:
            self._find(
                segment.file,
                f"a batch has leader epoch {epoch} behind one of {self._epoch}",
                "Two leaders wrote here at once, or files were put together by hand; compare"
                " with another replica.",
                position=entry.position,
            )
        elif epoch > self._epoch:
            self._epoch = epoch
            self._facts.epochs.append((epoch, entry.base_offset))
        stored = self._stored_epochs
        if stored is None or self._epochs_told or epoch > stored.latest:
            return  # an epoch that is not written yet is found in the batches at the next start
        says = stored.epoch_of(entry.base_offset)
        if says not in (-1, epoch):
            self._epochs_told = True
            self._find(
                self._files[FileKind.LEADER_EPOCHS][0],
                f"it says epoch {says} for offset {entry.base_offset}, and the batch says {epoch}",
                "`ottla log repair` writes it anew from the batches.",
                fix=Fix.REWRITE_EPOCHS,
            )

    def _tell_damages(self, segment: SegmentFacts, *, last: bool) -> None:
        for damage in segment.damages:
            is_tail = last and damage.position + damage.size == segment.size
            kept = "" if damage.zeros else self._side_of(segment.file, damage)
            if damage.zeros and is_tail:
                what = f"{damage.size} zeros behind the last batch, a size without its data"
            else:
                what = f"{damage.reason}; {damage.size} bytes hold no valid batch"
            if is_tail:
                self._find(
                    segment.file,
                    what,
                    "The next start cuts it if it was never acknowledged; `ottla log repair` cuts"
                    " it and keeps what is no zeros in a side file.",
                    position=damage.position,
                    size=damage.size,
                    fix=Fix.CUT_TAIL,
                    gives_up=_given_up(damage),
                    keeps=kept,
                )
                continue
            end = "the next segment" if damage.end_offset < 0 else damage.end_offset
            self._find(
                segment.file,
                f"{what}; offsets from {damage.first_offset} up to {end} are lost",
                "Consumers stop there, or take what is damaged for good if they check no CRC. Take"
                " the records from another replica or a backup, or let `ottla log repair` move the"
                " bytes to a side file, so that consumers go on behind them.",
                position=damage.position,
                size=damage.size,
                fix=Fix.TAKE_OUT,
                gives_up=f"offsets from {damage.first_offset} up to {end}",
                keeps=kept,
            )

    def _side_of(self, log: LogFile, damage: Damage) -> str:
        """The file to which a repair copies what is damaged."""
        file = self._disk.open(log.path)
        try:
            return name_of_copy(self._disk, file, damage.position, damage.position + damage.size)
        finally:
            file.close()

    # indexes

    def _index_of(self, log: LogFile, kind: FileKind) -> LogFile | None:
        for file in self._files.get(kind, []):
            if file.base_offset == log.base_offset:
                return file
        self._find(log, f"its {kind.value} is missing", INDEX_REMEDY, fix=Fix.REBUILD_INDEXES)
        return None

    def _check_orphans(self, logs: list[LogFile]) -> None:
        bases = {log.base_offset for log in logs}
        for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX):
            for file in self._files.get(kind, []):
                if file.base_offset not in bases:
                    self._find(
                        file,
                        "there is no .log file of this name",
                        f"Its log is gone. {REPAIRED}",
                        fix=Fix.SET_ASIDE,
                        keeps=free_name(self._disk, file.path),
                    )

    def _check_transactions(self, segment: SegmentFacts, made_anew_from: int) -> None:
        path = segment.file.path.removesuffix(".log") + ".txnindex"
        stored = {
            (one.producer_id, one.last_offset): one for one in self._read_transactions(segment)
        }
        wanted = {(one.producer_id, one.last_offset): one for one in segment.aborted}
        for key, one in wanted.items():
            known = stored.get(key)
            if known is not None and (
                known.first_offset == one.first_offset
                or self._has_lost(min(known.first_offset, one.first_offset), one.last_offset)
            ):
                wanted[key] = known
                continue
            if known is None and one.last_offset >= made_anew_from:
                continue
            self._find(
                path,
                f"the transaction of producer {one.producer_id} from offset {one.first_offset} was"
                f" aborted at {one.last_offset}, and has no entry",
                "Readers of committed data would be given its records: `ottla log repair` writes"
                " the index anew.",
                fix=Fix.REWRITE_TRANSACTIONS,
            )
        for key, one in stored.items():
            if wanted.get(key) is one:
                continue
            if key not in wanted and self._may_be_gone(one):
                wanted[key] = one
                continue
            self._find(
                path,
                f"it says that producer {one.producer_id} aborted"
                f" {one.first_offset}-{one.last_offset}, and the log does not",
                "Readers of committed data would miss records: `ottla log repair` writes the index"
                " anew.",
                fix=Fix.REWRITE_TRANSACTIONS,
            )
        segment.aborted = sorted(wanted.values(), key=lambda one: one.last_offset)

    def _read_transactions(self, segment: SegmentFacts) -> list[AbortedTransaction]:
        """The entries of the segment's transaction index, in the order of their markers."""
        size = transaction_index.ENTRY.size
        stored: list[AbortedTransaction] = []
        for file in self._files.get(FileKind.TRANSACTION_INDEX, []):
            if file.base_offset != segment.file.base_offset:
                continue
            data = self._data(file)
            if len(data) % size:
                what = f"its size of {len(data)} bytes is no number of entries"
                self._find(file, what, INDEX_REMEDY, fix=Fix.REWRITE_TRANSACTIONS)
            whole = data[: len(data) - len(data) % size]
            stored = [
                AbortedTransaction(*fields[1:])
                for fields in transaction_index.ENTRY.iter_unpack(whole)
            ]
        return sorted(stored, key=lambda one: one.last_offset)

    def _may_be_gone(self, aborted: AbortedTransaction) -> bool:
        """Whether the batches of a transaction, or its marker, may be among what the log lost."""
        first, last = aborted.first_offset, aborted.last_offset
        if first > last:
            return False
        began_before = first < self._facts.segments[0].file.base_offset
        return began_before or self._has_lost(first, first + 1) or self._has_lost(last, last + 1)

    # producers and epochs

    def _seed_producers(self, base_offset: int) -> None:
        """What was known before the first batch, if a snapshot says so."""
        for file in self._files.get(FileKind.PRODUCER_SNAPSHOT, []):
            if file.base_offset == base_offset:
                found = self._read_snapshot(file, tell=False)
                if found is not None:
                    self._producers = found

    def _check_snapshot_at(self, base_offset: int) -> None:
        """The snapshot at an offset that the walk has come to, held against the walk."""
        for file in self._files.get(FileKind.PRODUCER_SNAPSHOT, []):
            if file.base_offset != base_offset:
                continue
            stored = self._read_snapshot(file, tell=True)
            if stored is None:
                continue
            for producer_id, said in stored.producers.items():
                known = self._producers.producers.get(producer_id)
                if known is None or not known.batches or not said.batches:
                    continue
                if self._contradicts(known, said, base_offset):
                    self._find(
                        file,
                        f"it says of producer {producer_id} last offset"
                        f" {said.batches[-1].last_offset}, transaction from"
                        f" {said.transaction_start}, and the log says"
                        f" {known.batches[-1].last_offset}, {known.transaction_start}",
                        REPAIRED,
                        fix=Fix.REMOVE_SNAPSHOT,
                    )
                    break
            else:
                if self._gaps:
                    self._producers = stored  # as a start does, which begins with a snapshot

    def _contradicts(self, known: Producer, said: Producer, offset: int) -> bool:
        """Whether the log says of a producer what the snapshot at an offset cannot have known."""
        last, said_last = known.batches[-1].last_offset, said.batches[-1].last_offset
        if (known.epoch, last) != (said.epoch, said_last):
            return said_last < last or not self._has_lost(last + 1, offset)
        if known.transaction_start == said.transaction_start:
            return False
        starts = (known.transaction_start, said.transaction_start)
        return not self._has_lost(min(one for one in starts if one is not None), offset)

    def _check_snapshot_end(self, file: LogFile) -> None:
        """Those that no segment begins at: sound, and not behind the log."""
        if any(one.file.base_offset == file.base_offset for one in self._facts.segments):
            return
        if file.base_offset == self._expected:
            self._check_snapshot_at(file.base_offset)
        elif self._read_snapshot(file, tell=True) is None or not self._is_partition:
            return
        elif file.base_offset > self._expected:
            what = f"it stands at an offset behind the log, which ends at {self._expected}"
            self._find(file, what, REPAIRED, fix=Fix.REMOVE_SNAPSHOT)

    def _read_snapshot(self, file: LogFile, *, tell: bool) -> ProducerState | None:
        try:
            return ProducerState.from_snapshot(self._data(file), file.base_offset, 0)
        except SnapshotCorrupt as error:
            if tell:
                self._find(file, str(error), REPAIRED, fix=Fix.REMOVE_SNAPSHOT)
            return None

    def _read_epochs(self) -> LeaderEpochs | None:
        for file in self._files.get(FileKind.LEADER_EPOCHS, []):
            try:
                return LeaderEpochs.parse(self._data(file))
            except MalformedFile as error:
                remedy = "`ottla log repair` writes it anew from the batches."
                self._find(file, str(error), remedy, fix=Fix.REWRITE_EPOCHS)
        return None

    def _check_topic_id(self) -> None:
        for file in self._files.get(FileKind.PARTITION_METADATA, []):
            try:
                checkpoints.parse_partition_metadata(self._data(file))
            except MalformedFile as error:
                self._find(
                    file,
                    str(error),
                    "The id of the topic stands in its TopicRecord: `ottla log dump --deep` of"
                    " __cluster_metadata-0. Write `version: 0` and `topic_id: ...` into the file.",
                )


def _given_up(damage: Damage) -> str:
    """What a tail says that it is, if it is more than bytes that no batch begins with."""
    claim = damage.claim
    if claim is None:
        return ""
    offsets = f"offsets from {claim.first_offset} up to {claim.last_offset + 1}"
    return (
        offsets if claim.end >= damage.position + damage.size else f"{offsets}, and what followed,"
    )
