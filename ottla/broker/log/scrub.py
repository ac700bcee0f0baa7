"""Old segments, read again from time to time: a disk forgets in silence.

A round takes every sealed segment once, log by log, and begins at one drawn at random, so that a
broker that is restarted often does not look at the same ones each time. One segment is in hand:

    work = scrubber.begin(now_ms, interval)   on the loop: the segment in hand, or None
    read = work.read(budget)                  in a worker: a few batches, on a file of its own
    changed = scrubber.finish(work, read)     on the loop: what was found holds for the log now
    work.mend()                               in a worker, if `to_mend`: the transaction index
    scrubber.mended(work)                     on the loop: readers go by it

What does not agree with its CRC is quarantined (see `quarantine`), and what is quarantined and
agrees again is let go. The batches also say which transactions were aborted: if the index of the
segment lacks one, or is gone, that is added, for readers of committed data go by it.

The active segment is left alone. Its tail is being written and its older part is what readers and
the page cache have in hand; segment.ms seals it (a week, by default), and a start after a crash
reads what its recovery point leaves. A hole in it could not be told to readers either, without a
look at the quarantine in every fetch at the end of the log.

The worker's share of the interpreter is what a turn costs the loop, so batches count as well as
bytes. Pages that are in memory are not read from the disk again: they are looked at as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from ottla.broker.log.checkpoints import TopicPartition
from ottla.broker.log.examine.scan import Damage, Entry, LogScan
from ottla.broker.log.log import Log
from ottla.broker.log.opening import aborted_by, apply_batch
from ottla.broker.log.producer_state import ProducerState, SnapshotCorrupt
from ottla.broker.log.quarantine import DamagedRange
from ottla.broker.log.segment import DELETED_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, Segment
from ottla.broker.log.transaction_index import AbortedTransaction, pack
from ottla.broker.ports import Events, File, Rng
from ottla.protocol.records.batch import CONTROL, TRANSACTIONAL, BatchHeader

# What a batch counts for at least: 10 MiB/s of small batches are then 2,560 a second, some
# hundredths of a core.
BATCH_COST_BYTES = 4096


_OF_TRANSACTIONS = TRANSACTIONAL | CONTROL


class SegmentScrub:
    """The reading of one sealed segment, a few batches at a time."""

    __slots__ = (
        "_file",
        "_found",
        "_limit",
        "_producers",
        "aborted",
        "damages",
        "done",
        "error",
        "is_mended",
        "log",
        "missing",
        "segment",
        "to_mend",
    )

    def __init__(self, log: Log, segment: Segment, limit: int) -> None:
        self.log = log
        self.segment = segment
        self.damages: list[Damage] = []
        # The transactions that its batches say were aborted in it.
        self.aborted: list[AbortedTransaction] = []
        # What the transaction index is to have, where it lacks something.
        self.to_mend: list[AbortedTransaction] = []
        self.missing = 0
        # Whether that has been written; not where the log was deleted meanwhile.
        self.is_mended = False
        # What is known of producers, up to where the reading has come; None if it is not.
        self._producers: ProducerState | None = None
        self.done = False
        self.error: OSError | None = None
        self._limit = limit
        self._file: File | None = None
        self._found: Iterator[Entry | Damage] | None = None

    def __repr__(self) -> str:
        return f"<SegmentScrub {self.segment.log_path} done={self.done}>"

    def read(self, budget: int) -> int:
        """Reads until the budget of bytes is spent, or the end is reached; bytes read."""
        read = spent = 0
        try:
            if self._found is None:
                segment = self.segment
                self._producers = self._read_producers()
                self._file = self.log.home.open_file(_name_of(segment.log_path))
                scan = LogScan(self._file, segment.size, segment.base_offset, self._limit)
                self._found = iter(scan)
            while spent < budget:
                found = next(self._found, None)
                if found is None:
                    self.done = True
                    break
                if isinstance(found, Damage):
                    self.damages.append(found)
                elif (header := found.header) is not None and header.attributes & _OF_TRANSACTIONS:
                    self._follow(header, found.data)
                read += found.size
                spent += max(found.size, BATCH_COST_BYTES)
        except OSError as error:
            self.error = error
            self.done = True
        if self.done:
            self.close()
        return read

    @property
    def knows_transactions(self) -> bool:
        """Whether `aborted` is all that there is."""
        return self._producers is not None and not self.damages and self.error is None

    def mend(self) -> None:
        """Writes the transaction index anew and waits until it is on disk; keeps the `error`.

        Once its segment is below the recovery point nothing but another round of scrubbing would
        notice that it is gone, and none may follow for a week. So it is replaced as a whole: after
        a crash there is what there was, or all of it.
        """
        try:
            self.is_mended = self.log.home.replace_file(_index_name(self), pack(self.to_mend))
        except FileNotFoundError:
            pass  # it has gone with its directory
        except OSError as error:
            self.error = error

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read_producers(self) -> ProducerState | None:
        """The producers where the segment begins: a transaction may have begun before it."""
        base_offset = self.segment.base_offset
        path = self.segment.log_path.removesuffix(LOG_SUFFIX) + SNAPSHOT_SUFFIX
        try:
            file = self.log.home.open_file(_name_of(path))
        except FileNotFoundError:
            return ProducerState() if base_offset == 0 else None
        try:
            return ProducerState.from_snapshot(file.pread(file.size(), 0), base_offset, 0)
        except SnapshotCorrupt:
            return None
        finally:
            file.close()

    def _follow(self, header: BatchHeader, batch: memoryview) -> None:
        producers = self._producers
        if producers is None:
            return
        ended = apply_batch(producers, header, batch, 0)
        if ended is not None and not ended.committed:
            self.aborted.append(aborted_by(ended, producers))


class Scrubber:
    """Which segment is read next, and what becomes of what was found. Belongs to the loop."""

    def __init__(
        self,
        *,
        list_logs: Callable[[], Sequence[Log]],
        find_log: Callable[[str, int], Log | None],
        events: Events,
        rng: Rng,
    ) -> None:
        self.scrubbed_bytes = 0
        self._list_logs = list_logs
        self._find_log = find_log
        self._events = events
        self._rng = rng
        self._waiting: deque[tuple[TopicPartition, int]] = deque()
        self._in_hand: SegmentScrub | None = None
        self._next_round_ms = 0

    def __repr__(self) -> str:
        return f"<Scrubber waiting={len(self._waiting)} in_hand={self._in_hand}>"

    def begin(self, *, now_ms: int, interval_ms: int) -> SegmentScrub | None:
        """The segment to go on with; None until the next round, `interval_ms` after this began."""
        if self._in_hand is not None:
            return self._in_hand
        if not self._waiting:
            if now_ms < self._next_round_ms:
                return None
            self._next_round_ms = now_ms + interval_ms
            self._begin_round()
        while self._waiting:
            key, base_offset = self._waiting.popleft()
            log = self._find_log(*key)
            if log is None:
                continue
            index = log.segments.floor_index(base_offset)
            segment = log.segments[index]
            if segment.base_offset == base_offset and segment is not log.segments.active:
                limit = log.segments[index + 1].base_offset
                self._in_hand = SegmentScrub(log, segment, limit)
                break
        return self._in_hand

    def finish(self, work: SegmentScrub, read: int) -> bool:
        """Takes up what a turn has read; whether a log's damaged ranges are others now.

        If `work.to_mend` says so, its `mend` is to be called in a worker, and then `mended`.
        """
        self.scrubbed_bytes += read
        if not work.done:
            return False
        self._in_hand = None
        log, segment = work.log, work.segment
        if work.error is not None:
            # Gone meanwhile, or a range that cannot be read: its readers are told that, too.
            if not isinstance(work.error, FileNotFoundError):
                self._events.error(
                    "scrub_read_failed", path=segment.log_path, error=str(work.error)
                )
            return False
        if not _is_there(work) or segment is log.segments.active:
            return False
        if work.knows_transactions:
            self._compare_transactions(work)
        ranges = [DamagedRange(segment.base_offset, one.position, one.size) for one in work.damages]
        log.quarantine.keep(one.base_offset for one in log.segments)
        changed = log.quarantine.replace(segment.base_offset, ranges)
        for one in work.damages if changed else ():
            self._events.error(
                "segment_damaged",
                path=segment.log_path,
                position=one.position,
                size=one.size,
                first_offset=one.first_offset,
                end_offset=one.end_offset,
                reason=one.reason,
            )
        if changed and not ranges:
            self._events.warning("segment_readable_again", path=segment.log_path)
        return changed

    def _compare_transactions(self, work: SegmentScrub) -> None:
        """What the transaction index is to have: readers of committed data go by it.

        What it has besides stays: it may tell of batches that compaction has taken.
        """
        index = work.segment.transactions
        try:
            stored = index.entries()
        except OSError as error:  # the next round finds it again
            self._not_mended(work, error)
            return
        known = {one[:3] for one in stored}
        missing = [one for one in work.aborted if one[:3] not in known]
        if missing:
            work.to_mend = sorted([*stored, *missing], key=lambda one: one.last_offset)
            work.missing = len(missing)
        index.release()

    def mended(self, work: SegmentScrub) -> None:
        """Takes up what `work.mend` has written, or tells why it could not."""
        if work.error is not None:
            if _is_there(work):
                self._not_mended(work, work.error)
            return
        if not work.is_mended:
            return  # it is gone, and its files with it
        segments = work.log.segments
        if not _is_there(work) or work.segment is segments.active:
            try:
                _undo(work)
            except OSError as error:
                self._not_mended(work, error)
            return
        index = work.segment.transactions
        index.take(work.to_mend)
        index.release()
        self._events.error("transaction_index_mended", path=index.path, missing=work.missing)

    def _not_mended(self, work: SegmentScrub, error: OSError) -> None:
        if isinstance(error, FileNotFoundError) and work.log.home.has_moved():
            return
        path = work.segment.transactions.path
        self._events.error("transaction_index_not_mended", path=path, error=str(error))

    def close(self) -> None:
        """Gives back the file in hand; no worker may be reading it."""
        if self._in_hand is not None:
            self._in_hand.close()
            self._in_hand = None

    def _begin_round(self) -> None:
        self._waiting.extend(
            ((log.topic, log.partition), segment.base_offset)
            for log in sorted(self._list_logs(), key=lambda one: (one.topic, one.partition))
            for segment in log.segments[:-1]
        )
        if self._waiting:
            self._waiting.rotate(-self._rng.randrange(len(self._waiting)))


def _is_there(work: SegmentScrub) -> bool:
    segments = work.log.segments
    return segments[segments.floor_index(work.segment.base_offset)] is work.segment


def _index_name(work: SegmentScrub) -> str:
    return _name_of(work.segment.transactions.path)


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]


def _undo(work: SegmentScrub) -> None:
    """Its segment went, or was cut, while its index was written. Raises OSError."""
    segments, home, name = work.log.segments, work.log.home, _index_name(work)
    now = segments[segments.floor_index(work.segment.base_offset)]
    # What was cut knows what it had, and what came since.
    is_same = now.base_offset == work.segment.base_offset
    known = now.transactions.entries() if is_same else []
    if not known:
        home.add_suffix(name, DELETED_SUFFIX)
        if is_same:
            now.transactions.take([])
    elif home.replace_file(name, pack(known)):
        now.transactions.take(known)


def restore(log: Log, ranges: Sequence[DamagedRange]) -> None:
    """Puts into a log's quarantine what was known before, as far as it is still so.

    Also what its recovery has found below the recovery point. Raises OSError.
    """
    recovered = [
        DamagedRange(int(_name_of(one.path).removesuffix(LOG_SUFFIX)), one.position, one.size)
        for one in log.recovery.damaged
    ]
    by_base: dict[int, list[DamagedRange]] = {}
    for one in {*ranges, *recovered}:
        index = log.segments.floor_index(one.base_offset)
        segment = log.segments[index]
        is_sealed = segment.base_offset == one.base_offset and segment is not log.segments.active
        if not is_sealed or one.position + one.size > segment.size:
            continue
        if _is_damaged(segment, one, log.segments[index + 1].base_offset):
            by_base.setdefault(one.base_offset, []).append(one)
    for base_offset, found in by_base.items():
        log.quarantine.replace(base_offset, found)


def _is_damaged(segment: Segment, wanted: DamagedRange, limit: int) -> bool:
    # From before it to the end of the segment: its neighbours tell whether an offset is wrong.
    start = segment.position_before(max(wanted.position - 1, 0))
    scan = LogScan(segment.open(), segment.size, segment.base_offset, limit, start=start)
    for found in scan:
        if found.position + found.size > wanted.position:
            return isinstance(found, Damage)
    return False
