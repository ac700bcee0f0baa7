"""Random operations on a log beside a model of it that is a list of batches.

The model knows what was appended, what was synced, and what a reader must get. Each step draws from
a seed of its own, so that a run without some of its steps does in the others what it did before: a
failure can be shrunk. `random_ops.py` is the command; `faulty_model.py` adds a disk that fails.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ottla.broker.log.log import UPPER_HIGH_WATERMARK, UPPER_LAST_STABLE, UPPER_LOG_END, Log
from ottla.broker.log.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from ottla.config.types import LogConfig
from ottla.protocol.records.batch import read_header
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import build_marker
from ottla.protocol.records.record import Record, iterate_records
from ottla.testing.platter import CrashMode
from tests.log.events import RecordedEvents
from tests.log.logs import (
    DIRECTORY,
    NOW,
    SMALL,
    first_at_time,
    new_disk,
    open_log,
    read_all,
    run_all,
)

PRODUCERS = (11, 12, 13)
# A batch that the disk had no room for must not look whole because its rest is zeros, as is what
# lies in the file where a crash has lost a later write.
NO_ZERO_AT_THE_END = (("", b"."),)
# Above every timestamp of a record, so that the rule for future timestamps stays quiet.
CLOCK = NOW + 1_000_000


@dataclass(slots=True, frozen=True)
class Stored:
    """A batch as it lies in the log."""

    base_offset: int
    last_offset: int
    data: bytes
    producer_id: int = -1
    sequence: int = -1
    # None: not transactional; else the producer's marker, True for a commit.
    transactional: bool = False
    marker: bool | None = None


class LogModel:
    """One log, its model, and the operations on both."""

    def __init__(self, seed: int | str, config: LogConfig | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(f"{seed} config")
        self.config = config or self._draw_config()
        self.crashes = 0
        self.step = 0
        # Whether nobody has meddled with an index file: then none may ever be made anew.
        self.indexes_sound = True
        self._begin_anew()

    def _draw_config(self) -> LogConfig:
        choice = self.rng.choice
        return replace(
            SMALL,
            flush_messages=choice((1, 1, 4, 2**63 - 1)),
            segment_bytes=choice((600, 1000, 3000, 20_000, 500_000)),
            index_interval_bytes=choice((1, 100, 400)),
            segment_index_bytes=choice((4, 12, 120, 240, 240, 60_000)),
            segment_ms=choice((200, SMALL.segment_ms, SMALL.segment_ms)),
            segment_jitter_ms=choice((0, 0, 100)),
            preallocate=choice((False, False, True)),
        )

    @property
    def operations(self) -> list[tuple[int, Callable[[], None]]]:
        """What a step may be, with the weights by which it is drawn."""
        return [
            (40, self.append),
            (8, self.repeat),
            (10, self.transact),
            (12, self.flush),
            (12, self.read),
            (6, self.look_up),
            (4, self.note_checkpoint),
            (3, self.stop_and_start),
            (4, self.crash),
            (3, self.truncate),
            (2, self.delete_records),
            (2, self.delete_segments),
            (3, self.damage_index),
            (2, self.lead_anew),
        ]

    def _begin_anew(self) -> None:
        self.disk = new_disk()
        self.events = RecordedEvents()
        # What a reader gets, and that with what retention took: producers outlive their records.
        self.batches: list[Stored] = []
        self.written: list[Stored] = []
        self.start = 0
        self.epoch = 0
        self.checkpoint = 0
        self.start_checkpoint = 0
        self.sequences: dict[int, int] = {}
        self.open: dict[int, int] = {}
        self.timestamp = NOW
        self.log = self._open(clean=True)

    def run(self, steps: Iterable[int]) -> None:
        """Does the steps of these numbers; an error notes its step."""
        operations = self.operations
        weights = [weight for weight, _ in operations]
        for self.step in steps:
            self.rng = random.Random(f"{self.seed} {self.step}")
            _, operation = self.rng.choices(operations, weights)[0]
            try:
                operation()
                self.check()
            except BaseException as error:
                error.add_note(f"step {self.step}: {operation.__name__}, {self.log!r}")
                raise

    # operations

    def append(self) -> None:
        producer_id = self.rng.choice((-1, -1, *PRODUCERS))
        if producer_id in self.open:
            producer_id = -1
        self._append(producer_id, transactional=False)

    def repeat(self) -> None:
        """A retry of one of a producer's last batches is not appended again."""
        producer_id = self.rng.choice(PRODUCERS)
        known = self._known_batches(producer_id)
        if not known or producer_id in self.open:
            return
        present = [one for one in known if one in self.batches]
        original = self.rng.choice([known[-1], *present])
        records = memoryview(bytearray(original.data))
        records[:8] = bytes(8)
        result = self.log.append_as_leader(records, leader_epoch=self.epoch, now_ms=CLOCK)
        assert result.duplicate
        assert (result.base_offset, result.last_offset) == (
            original.base_offset,
            original.last_offset,
        )

    def transact(self) -> None:
        producer_id = self.rng.choice(PRODUCERS)
        if producer_id not in self.open or self.rng.random() < 0.5:
            self._append(producer_id, transactional=True)
            return
        committed = self.rng.random() < 0.5
        marker = build_marker(
            producer_id=producer_id,
            producer_epoch=0,
            committed=committed,
            coordinator_epoch=0,
            timestamp=self._tick(),
        )
        view = memoryview(marker)
        result = self.log.append_as_leader(
            view, leader_epoch=self.epoch, now_ms=CLOCK, internal=True
        )
        self._note(result.base_offset, view, producer_id, -1, transactional=True, marker=committed)

    def flush(self) -> None:
        ticket = self.log.begin_flush()
        if ticket is None:
            assert self.log.durable_end == self.log.log_end_offset
            return
        for _ in range(self.rng.randrange(3)):
            self.append()
        ticket.sync()
        self.log.finish_flush(ticket)
        assert self.log.durable_end == ticket.end_offset
        self.log.set_high_watermark(self.log.visible_end)

    def read(self) -> None:
        upper = self.rng.choice((UPPER_LOG_END, UPPER_HIGH_WATERMARK, UPPER_LAST_STABLE))
        end = {
            UPPER_LOG_END: self.log.log_end_offset,
            UPPER_HIGH_WATERMARK: self.log.high_watermark,
            UPPER_LAST_STABLE: self.log.last_stable_offset,
        }[upper]
        offset = self.rng.randrange(self.start, self.log.log_end_offset + 1)
        max_bytes = self.rng.choice((0, 1, 100, 500, 5000))
        at_least_one = self.rng.random() < 0.7
        found = self.log.read(offset, max_bytes=max_bytes, upper=upper, at_least_one=at_least_one)
        wanted = b"".join(
            one.data for one in self.batches if one.last_offset >= offset and one.base_offset < end
        )
        if found is None:
            has_room = at_least_one or not wanted or read_header(wanted).size <= max_bytes
            assert not wanted or offset >= end or not has_room
            return
        data = found.read()
        assert wanted.startswith(data)
        assert found.known in (b"", data)
        first = read_header(wanted).size
        assert first <= len(data) <= (max(max_bytes, first) if at_least_one else max_bytes)
        available = self.log.bytes_available(offset, upper, 10**6)
        assert available >= min(len(data), len(wanted))

    def look_up(self) -> None:
        """Every look-up answers as a walk over all records would."""
        timestamp = self.timestamp - self.rng.randrange(60)
        records = [
            (record.offset, record.timestamp)
            for one in self.batches
            for record in iterate_records(one.data)
            if record.offset >= self.start
        ]
        expected = next((one for one in records if one[1] >= timestamp), None)
        found = first_at_time(self.log, timestamp)
        assert expected == (found and found[:2]), (timestamp, expected, found)
        greatest = max((one[1] for one in records), default=None)
        newest = run_all(self.log.steps_to_max_timestamp())
        if newest is not None and greatest is not None and newest[1] >= greatest:
            assert newest[:2] == next(one for one in records if one[1] == greatest)

    def note_checkpoint(self) -> None:
        self.checkpoint = self.log.recovery_point
        self.start_checkpoint = self.log.log_start_offset

    def stop_and_start(self) -> None:
        self.log.close()
        assert self.log.durable_end == self.log.log_end_offset
        self.note_checkpoint()
        self.log = self._open(clean=True)
        self.log.set_high_watermark(self.log.visible_end)

    def crash(self) -> None:
        """What was durable is there; what was not may be, as a whole prefix of it."""
        mode = self.rng.choice(list(CrashMode))
        durable_end = self.log.durable_end
        sealed_at = {segment.base_offset for segment in self.log.segments[1:]}
        if durable_end < self.start or durable_end in sealed_at:
            # Segments below the log start are not recovered, nor is one that was whole on disk when
            # it was sealed; and what was not synced of their indexes may be lost.
            self.indexes_sound = False
        self.disk = self.disk.crash(self.rng, mode)
        self.events.told.clear()
        self.log = self._open(clean=False)
        end = self.log.log_end_offset
        assert durable_end <= end
        first = self.log.segments[0].base_offset
        assert end in {durable_end, first, *(one.last_offset + 1 for one in self.batches)}
        if "log_ends_below_its_start" in self.events.names:
            self.batches.clear()
            self.written.clear()
        if mode is CrashMode.PROCESS:
            assert end == (self.batches[-1].last_offset + 1 if self.batches else end)
        assert self.log.durable_end == end
        assert self.start_checkpoint <= self.log.log_start_offset
        if durable_end < self.log.log_start_offset:
            # What was deleted had not been synced: of its producers a snapshot may know, or not, so
            # the model cannot follow.
            assert self.log.log_start_offset <= self.start or durable_end <= self.start
            self._begin_anew()
            return
        assert self.log.log_start_offset <= self.start
        self.start = self.log.log_start_offset
        self.batches = [one for one in self.written if one.last_offset >= first]
        self._cut(end)
        self.log.set_high_watermark(self.log.visible_end)
        self.crashes += 1

    def truncate(self) -> None:
        offset = self.rng.randrange(self.start, self.log.log_end_offset + 1)
        if self.rng.random() < 0.7:
            offset = max(self.start, self.log.log_end_offset - self.rng.randrange(8))
        self.log.truncate_to(offset)
        kept = [one for one in self.batches if one.last_offset < offset]
        end = kept[-1].last_offset + 1 if kept else min(offset, self.log.log_end_offset)
        assert self.log.log_end_offset == end
        self._cut(end)
        self.start = self.log.log_start_offset
        self.start_checkpoint = min(self.start_checkpoint, self.start)
        self.checkpoint = min(self.checkpoint, self.log.recovery_point)

    def delete_records(self) -> None:
        offset = self.rng.randrange(self.start, self.log.high_watermark + 1)
        assert self.log.delete_records(offset) == offset
        self.start = offset

    def delete_segments(self) -> None:
        self.log.config = replace(self.config, retention_bytes=self.rng.choice((0, 1000, 5000)))
        self.log.delete_old_segments(CLOCK)
        due = self.log.segments.take_deleted(CLOCK + self.config.file_delete_delay_ms)
        list(self.log.segments.remove_deleted(due))
        self.log.config = self.config
        self.start = self.log.log_start_offset
        first = self.log.segments[0].base_offset
        self.batches = [one for one in self.batches if one.base_offset >= first]

    def damage_index(self) -> None:
        """An index is a hint: a bad one changes no answer. Only at a stop, for maps are private."""
        self.indexes_sound = False
        self.log.close()
        for segment in self.log.segments:
            suffix = self.rng.choice((INDEX_SUFFIX, TIME_INDEX_SUFFIX))
            path = f"{DIRECTORY}/{segment.base_offset:020d}{suffix}"
            if not self.disk.exists(path):
                continue
            size = self.disk.open(path).size()
            match self.rng.randrange(6):
                case 0:
                    self.disk.remove(path)
                case 1 if suffix == INDEX_SUFFIX:
                    self.disk.open(path).truncate(self.rng.randrange(size + 1))
                case 1:  # a part of its entries would be sound, and where times go back, silent
                    self.disk.open(path).truncate(0)
                case 2:
                    self.disk.open(path).truncate(size + self.rng.randrange(100))
                case 3 if size:
                    garbage = bytes(self.rng.randrange(256) for _ in range(4))
                    self.disk.corrupt(path, self.rng.randrange(max(size - 4, 1)), garbage)
        self.note_checkpoint()
        self.log = self._open(clean=True)
        self.log.set_high_watermark(self.log.visible_end)

    def lead_anew(self) -> None:
        self.epoch += 1
        self.log.assign_epoch(self.epoch)

    def check(self) -> None:
        """What must hold after each step."""
        log = self.log
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark
        assert log.high_watermark <= log.visible_end <= log.log_end_offset
        assert log.durable_end <= log.visible_end
        assert log.log_start_offset == self.start
        end = self.batches[-1].last_offset + 1 if self.batches else log.log_end_offset
        assert log.log_end_offset == end
        reach = log.durable_end + self.config.flush_messages
        below = bisect_left(self.written, reach, key=lambda one: one.last_offset + 1)
        reached = self.written[below - 1].last_offset + 1 if below else 0
        assert log.visible_end == max(log.durable_end, reached, end if end < reach else 0)
        opened = [first for first in self.open.values() if first < log.high_watermark]
        if opened:
            assert log.last_stable_offset <= max(min(opened), self.start)
        assert log.size_bytes == sum(segment.size for segment in log.segments)
        assert not self.indexes_sound or "index_rebuilt" not in self.events.names
        if self.rng.random() < 0.1:
            self.check_all()

    def check_all(self) -> None:
        """Every byte, every producer, every aborted transaction."""
        visible = [one for one in self.batches if one.last_offset >= self.start]
        assert read_all(self.log) == b"".join(one.data for one in visible)
        for producer_id in PRODUCERS:
            known = self._known_batches(producer_id)
            producer = self.log.producer_state.producers.get(producer_id)
            if known:
                assert producer is not None
                assert producer.batches[-1].last_offset == known[-1].last_offset
        upper = self.log.last_stable_offset
        if upper > self.start:
            found = self.log.aborted_transactions(self.start, upper)
            assert set(found) == self._aborted(self.start, upper)

    # inside

    def _open(self, *, clean: bool) -> Log:
        return open_log(
            self.disk,
            self.config,
            clean=clean,
            recovery_point=self.checkpoint,
            log_start_offset=self.start_checkpoint,
            high_watermark=self.rng.choice((0, 10**9)),
            now_ms=CLOCK,
            events=self.events,
        )

    def _append(self, producer_id: int, *, transactional: bool) -> None:
        count = self.rng.choice((1, 1, 2, 5))
        records = [
            Record(0, self._tick(), b"k", bytes(self.rng.randrange(80)), NO_ZERO_AT_THE_END)
            for _ in range(count)
        ]
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        view = memoryview(
            build_batch(
                records,
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=sequence,
                transactional=transactional,
                codec=self.rng.choice((0, 0, 0, 2)),
            )
        )
        result = self.log.append_as_leader(
            view, leader_epoch=self.epoch, now_ms=CLOCK, is_awaited=self.step % 2 == 0
        )
        assert not result.duplicate
        assert result.last_offset == result.base_offset + count - 1
        self._note(result.base_offset, view, producer_id, sequence, transactional=transactional)
        if self.log.visible_end != self.log.high_watermark:
            self.log.set_high_watermark(self.log.visible_end)

    def _note(
        self,
        base_offset: int,
        view: memoryview,
        producer_id: int,
        sequence: int,
        *,
        transactional: bool = False,
        marker: bool | None = None,
    ) -> None:
        header = read_header(view)
        assert header.base_offset == base_offset
        assert header.partition_leader_epoch == self.epoch
        stored = Stored(
            base_offset,
            header.last_offset,
            bytes(view),
            producer_id,
            sequence,
            transactional,
            marker,
        )
        self.batches.append(stored)
        self.written.append(stored)
        self._take(stored)

    def _cut(self, end: int) -> None:
        self.batches = [one for one in self.batches if one.last_offset < end]
        self.written = [one for one in self.written if one.last_offset < end]
        self._fold()

    def _fold(self) -> None:
        """What the batches say of sequences and open transactions."""
        self.sequences.clear()
        self.open.clear()
        for one in self.written:
            self._take(one)

    def _take(self, one: Stored) -> None:
        if one.producer_id < 0:
            return
        if one.marker is not None:
            self.open.pop(one.producer_id, None)
            return
        self.sequences[one.producer_id] = one.sequence + one.last_offset - one.base_offset + 1
        if one.transactional:
            self.open.setdefault(one.producer_id, one.base_offset)

    def _known_batches(self, producer_id: int) -> list[Stored]:
        """Its last five batches; a snapshot and retention may leave only the last of them."""
        found = [
            one for one in self.written if one.producer_id == producer_id and one.marker is None
        ]
        return found[-5:]

    def _aborted(self, start: int, upper: int) -> set[tuple[int, int]]:
        found: set[tuple[int, int]] = set()
        begun: dict[int, int] = {}
        for one in self.written:
            if one.producer_id < 0 or not one.transactional:
                continue
            if one.marker is None:
                begun.setdefault(one.producer_id, one.base_offset)
            else:
                first = begun.pop(one.producer_id, None)
                is_met = first is not None and one.last_offset >= start and first < upper
                if first is not None and one.marker is False and is_met:
                    found.add((one.producer_id, first))
        return found

    def _tick(self) -> int:
        """The time of the next record: mostly later, at times earlier than the last."""
        self.timestamp += self.rng.randrange(5)
        return self.timestamp - self.rng.choice((0, 0, 0, 30))
