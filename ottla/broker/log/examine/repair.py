"""What is done about the findings of a verification; the log dir belongs to nobody else meanwhile.

    indexes, transaction index    made anew from the batches
    a bad tail                    cut off; bytes that are not all zeros go to N.<position>.cut first
    a bad range with more behind  goes to N.<position>.cut, and the segment is written anew without
                                  it, as the cleaner does: N.log.cleaned, N.log.swap, N.log;
                                  and so is the transaction index
    a snapshot that is not sound  removed: a start reads the log instead
    leader epochs                 written anew from the batch headers
    a waypoint                    removed with the first change of its segment
    a checkpoint, an orphan       renamed to NAME.cut: a start does without it
    a metadata log that a start   mended only by who names its directory alone (`metadata.py`);
    refuses                       the start goes on then, for what it refuses by is gone

A name that ends in .cut is never taken twice (`asides.py`).

Where a range goes that ends a segment, offsets are missing between two files. A recovery would take
that for a loss, and drop what follows, if it does not know that this was durable: so the recovery
point is raised first, behind the range.

Nothing that may be a record is thrown away, and a crash at any point leaves the old or the new.
Offsets of what was taken out are missing afterwards, as after compaction, and readers pass over
them; so no more is taken out than what no reader could have read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from ottla.broker.log.asides import free_name, keep_copy
from ottla.broker.log.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LEADER_EPOCH_FILE,
    RECOVERY_POINT_FILE,
    MalformedFile,
    format_rows,
    parent_of,
    parse_offsets,
    read_whole,
    write_atomically,
    write_offsets,
)
from ottla.broker.log.directories import Kind, parse_name
from ottla.broker.log.examine.files import LOG_DIR_KINDS, SEGMENT_KINDS, classify, holds
from ottla.broker.log.examine.findings import Finding, Fix
from ottla.broker.log.examine.partition import PartitionFacts, SegmentFacts
from ottla.broker.log.examine.scan import READ_BYTES, Damage
from ottla.broker.log.leader_epochs import LeaderEpochs
from ottla.broker.log.leftovers import CLEANED_SUFFIX, SWAP_SUFFIX
from ottla.broker.log.partition_dir import PartitionDir
from ottla.broker.log.segment import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, Segment
from ottla.broker.log.segments import sync_indexes
from ottla.broker.log.transaction_index import AbortedTransaction, pack
from ottla.broker.log.waypoints import WAYPOINT_FILE, read_waypoint
from ottla.broker.ports import Disk, Events, File
from ottla.config.types import LONG_MAX, LogConfig


def plan(findings: list[Finding]) -> Iterator[str]:
    """A sentence for each thing that a repair would do, in its order."""
    for finding in findings:
        if finding.fix is not Fix.NOTHING:
            yield sentence_of(finding)


def sentence_of(finding: Finding) -> str:
    """What a repair does about one finding, what it gives up, and where the bytes go."""
    where = "" if finding.position is None else f" at byte {finding.position}"
    does = _cut_of(finding) if finding.fix is Fix.CUT_TAIL else finding.fix.value
    given_up = f"; {finding.gives_up} are given up" if finding.gives_up else ""
    kept = f"; the bytes stay in {finding.keeps}" if finding.keeps else ""
    return f"{finding.path}{where}: {does}{given_up}{kept}"


def _cut_of(finding: Finding) -> str:
    does = f"cut off {finding.size} bytes behind the last whole batch"
    if not finding.keeps:
        return f"{does}, all of them zeros"
    return does if finding.gives_up else f"{does}, with which no batch begins"


class Repair:
    """Mends the findings of one partition, or of files beside them. Raises OSError."""

    def __init__(self, disk: Disk, config: LogConfig, events: Events, *, now_ms: int) -> None:
        self._disk = disk
        self._config = config
        self._events = events
        self._now_ms = now_ms

    def partition(self, facts: PartitionFacts, paths: Iterable[str] = ()) -> None:
        """Does for a partition what `plan` says of its findings.

        `paths` are those of its directory by which a broker may find it, if it has more than one.
        """
        paths = list(paths) or [facts.directory]
        directory = PartitionDir(self._disk, facts.directory, self._events)
        if any(finding.fix in (Fix.CUT_TAIL, Fix.TAKE_OUT) for finding in facts.findings):
            for path in paths:
                self._take_marker(parent_of(path))
        by_path: dict[str, set[Fix]] = {}
        for finding in facts.findings:
            by_path.setdefault(finding.path, set()).add(finding.fix)
        point = _behind_gaps(facts, by_path)
        if point > 0:
            self._raise_recovery_point(facts, paths, point)
        for segment in facts.segments:
            self._mend_segment(directory, segment, by_path)
        if any(Fix.REWRITE_EPOCHS in fixes for fixes in by_path.values()):
            rows = format_rows(f"{epoch} {start}" for epoch, start in facts.epochs)
            write_atomically(self._disk, f"{facts.directory}/{LEADER_EPOCH_FILE}", rows)
        for path, fixes in by_path.items():
            if Fix.REMOVE_SNAPSHOT in fixes:
                self._disk.remove(path)
            elif Fix.SET_ASIDE in fixes:
                self._disk.rename(path, free_name(self._disk, path))
        self._disk.sync_dir(facts.directory)

    def file(self, finding: Finding) -> None:
        """Does it for a file that belongs to no partition."""
        if finding.fix is Fix.SET_ASIDE:
            self._disk.rename(finding.path, free_name(self._disk, finding.path))
            self._disk.sync_dir(parent_of(finding.path))

    def _take_marker(self, log_dir: str) -> None:
        """A log that was cut was not stopped cleanly as it is now: the next start recovers it, and
        gives no offset again that was acknowledged."""
        marker = f"{log_dir}/{CLEAN_SHUTDOWN_FILE}"
        if self._disk.exists(marker):
            self._disk.remove(marker)
            self._disk.sync_dir(log_dir)

    def _raise_recovery_point(self, facts: PartitionFacts, paths: list[str], point: int) -> None:
        """Says of a partition in a log dir that it was durable up to an offset, and makes it so."""
        for path in paths:
            name = parse_name(path.rpartition("/")[2])
            rows_path = f"{parent_of(path)}/{RECOVERY_POINT_FILE}"
            if name is None or name.kind is not Kind.PARTITION:
                continue  # no broker has a row for it
            if not holds(self._disk, parent_of(path), LOG_DIR_KINDS):
                continue  # nor for a copy that lies elsewhere
            try:
                rows = parse_offsets(read_whole(self._disk, rows_path) or b"")
            except MalformedFile:
                rows = {}
                self._disk.rename(rows_path, free_name(self._disk, rows_path))
            if rows.get((name.topic, name.partition), 0) < point:
                self._sync_below(facts, point)
                rows[name.topic, name.partition] = point
                write_offsets(self._disk, rows_path, rows)

    def _sync_below(self, facts: PartitionFacts, point: int) -> None:
        """Brings to disk what no recovery reads again, and the leader epochs that only it finds."""
        for name in self._disk.list(facts.directory):
            found = classify(f"{facts.directory}/{name}")
            if found is not None and found.kind in SEGMENT_KINDS and found.base_offset < point:
                file = self._disk.open(found.path)
                try:
                    file.sync()
                finally:
                    file.close()
        path = f"{facts.directory}/{LEADER_EPOCH_FILE}"
        try:
            epochs = LeaderEpochs.parse(read_whole(self._disk, path) or b"")
        except MalformedFile:
            epochs = LeaderEpochs()
        for epoch, start in facts.epochs:
            if epoch > epochs.latest:
                epochs.assign(epoch, start)
        data = epochs.unwritten(LONG_MAX)
        if data is not None:
            write_atomically(self._disk, path, data)
        self._disk.sync_dir(facts.directory)

    def _take_waypoint(self, directory: PartitionDir, base_offset: int) -> None:
        """What it says of a segment is not so any more: the next start would only be told so."""
        found = read_waypoint(directory)
        if found is not None and found[0].base_offset == base_offset:
            self._disk.remove(f"{directory.path}/{WAYPOINT_FILE}")

    def _mend_segment(
        self, directory: PartitionDir, facts: SegmentFacts, by_path: dict[str, set[Fix]]
    ) -> None:
        path = facts.file.path
        stem = path.removesuffix(LOG_SUFFIX)
        fixes = set().union(
            *(by_path.get(stem + one, set()) for one in (LOG_SUFFIX, ".index", ".timeindex"))
        )
        inner = [one for one in facts.damages if Fix.TAKE_OUT in fixes and not _is_tail(facts, one)]
        tail = [one for one in facts.damages if Fix.CUT_TAIL in fixes and _is_tail(facts, one)]
        if facts.damages and not tail and Fix.TAKE_OUT in fixes:
            inner = facts.damages
        changes_indexes = bool(inner or tail or Fix.REBUILD_INDEXES in fixes)
        changes_transactions = Fix.REWRITE_TRANSACTIONS in by_path.get(stem + ".txnindex", set())
        if changes_indexes or changes_transactions:
            self._take_waypoint(directory, facts.file.base_offset)
        for damage in (*inner, *tail):
            if not damage.zeros:
                self._keep_aside(directory, facts, damage)
        if inner:
            self._take_out(directory, facts)
        elif tail:
            file = self._disk.open(path)
            try:
                file.truncate(tail[0].position)
                file.sync()
            finally:
                file.close()
        if changes_indexes:
            self._rebuild_indexes(directory, facts.file.base_offset)
        if changes_transactions:
            self._write_transactions(stem + ".txnindex", facts.aborted)

    def _keep_aside(self, directory: PartitionDir, facts: SegmentFacts, damage: Damage) -> None:
        file = self._disk.open(facts.file.path)
        try:
            keep_copy(self._disk, file, damage.position, damage.position + damage.size)
        finally:
            file.close()
        self._disk.sync_dir(directory.path)

    def _take_out(self, directory: PartitionDir, facts: SegmentFacts) -> None:
        """Writes the segment anew without its damaged ranges, and its transaction index with it: a
        start that has to end the exchange removes the one that is there."""
        path = facts.file.path
        replaced = [path]
        file = self._disk.open(path)
        cleaned = self._disk.open(path + CLEANED_SUFFIX, create=True)
        try:
            cleaned.truncate(0)
            read = written = 0
            for damage in facts.damages:
                written = _copy(file, cleaned, read, damage.position, written)
                read = damage.position + damage.size
            _copy(file, cleaned, read, facts.size, written)
            cleaned.sync()
        finally:
            cleaned.close()
            file.close()
        if facts.aborted:
            replaced.append(path.removesuffix(LOG_SUFFIX) + TRANSACTION_INDEX_SUFFIX)
            write_atomically(self._disk, replaced[-1] + CLEANED_SUFFIX, pack(facts.aborted))
        for name in replaced:
            self._disk.rename(name + CLEANED_SUFFIX, name + SWAP_SUFFIX)
        self._disk.sync_dir(directory.path)
        for name in replaced:  # the log first, also after a crash
            self._disk.rename(name + SWAP_SUFFIX, name)
            self._disk.sync_dir(directory.path)

    def _rebuild_indexes(self, directory: PartitionDir, base_offset: int) -> None:
        segment = Segment(directory, base_offset, config=self._config, now_ms=self._now_ms)
        segment.load_size()
        segment.rebuild_indexes()
        sync_indexes(segment)
        segment.release()

    def _write_transactions(self, path: str, aborted: list[AbortedTransaction]) -> None:
        if aborted:
            write_atomically(self._disk, path, pack(aborted))
        else:
            self._disk.remove(path)


def _behind_gaps(facts: PartitionFacts, by_path: dict[str, set[Fix]]) -> int:
    """Where the last segment begins before which a range is taken out at the end of another."""
    point = 0
    for segment, following in pairwise(facts.segments):
        is_taken = Fix.TAKE_OUT in by_path.get(segment.file.path, ())
        if is_taken and _is_tail(segment, segment.damages[-1]):
            point = following.file.base_offset
    return point


def _is_tail(facts: SegmentFacts, damage: Damage) -> bool:
    return damage.position + damage.size == facts.size


def _copy(source: File, target: File, start: int, end: int, to: int) -> int:
    """Copies bytes start to end of a file to a position of another; where that ended."""
    while start < end:
        chunk = source.pread(min(READ_BYTES, end - start), start)
        if not chunk:
            break
        target.pwrite(chunk, to)
        start += len(chunk)
        to += len(chunk)
    return to
