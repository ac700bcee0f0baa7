"""A broker's log dir on a simulated disk, the promises made about it, and a look at what is left.

`World` does what a broker does: it appends, syncs and then acknowledges, and keeps a note of every
promise. `examine` opens what a crash left, as the next start would, and compares it with the notes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla.broker.log.directories import LogDirError
from ottla.broker.log.log import UPPER_LOG_END, Log
from ottla.broker.log.manager import LogManager
from ottla.config.types import LogConfig
from ottla.protocol.records.batch import BatchHeader, iterate_headers
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from ottla.testing.clock import SimClock
from ottla.testing.disk import SimDisk
from tests.log.events import RecordedEvents
from tests.log.logs import delete_some_segments

LOG_DIR = "/data"
LEADER_EPOCH = 0
PRODUCER_EPOCH = 0

# Small enough that a dozen appends roll twice, with an index entry for nearly every batch.
CONFIG = LogConfig(
    segment_bytes=1000,
    segment_index_bytes=240,
    index_interval_bytes=100,
    retention_bytes=1000,
    file_delete_delay_ms=1000,
)

# Base offset, length and leader epoch: what the broker writes into a batch lies in these bytes.
STAMPED = 16

Key = tuple[str, int]


class Violation(AssertionError):
    """A promise was broken."""


@dataclass(slots=True)
class Sent:
    """A batch as the producer sent it, and, once it was appended, as it lies in the log."""

    raw: bytes
    producer_id: int
    sequence: int
    stored: bytes = b""
    base_offset: int = -1
    last_offset: int = -1
    acknowledged: bool = False


@dataclass(slots=True)
class Promised:
    """What clients were told of one partition."""

    topic_id: bytes
    sent: list[Sent] = field(default_factory=list)
    # Records below it were given up, by DeleteRecords or retention.
    start: int = 0


class World:
    """One broker on one disk; every promise is noted before it could be relied on."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.clock = SimClock()
        self.promises: dict[Key, Promised] = {}
        self.manager = new_manager(disk, self.clock)
        self.acknowledged = 0
        self._next_sequence: dict[tuple[Key, int], int] = {}
        self._filler = random.Random(7)

    def log(self, key: Key) -> Log:
        log = self.manager.get(*key)
        assert log is not None, key
        return log

    def create(self, key: Key, topic_id: bytes) -> None:
        self.promises[key] = Promised(topic_id)
        self._next_sequence = {k: v for k, v in self._next_sequence.items() if k[0] != key}
        self.manager.create(*key, topic_id, CONFIG)

    def delete(self, key: Key) -> None:
        del self.promises[key]
        self.manager.delete(*key)

    def append(self, key: Key, *, records: int = 1, producer_id: int = -1) -> Sent:
        """Appends without waiting for a sync: nothing is promised yet."""
        sequence = -1
        if producer_id >= 0:
            sequence = self._next_sequence.get((key, producer_id), 0)
            self._next_sequence[key, producer_id] = sequence + records
        raw = self._batch(records, producer_id, sequence)
        sent = Sent(raw, producer_id, sequence)
        self.promises[key].sent.append(sent)
        view = memoryview(bytearray(raw))
        result = self.log(key).append_as_leader(
            view, leader_epoch=LEADER_EPOCH, now_ms=self.clock.wall_ms()
        )
        sent.stored = bytes(view)
        sent.base_offset, sent.last_offset = result.base_offset, result.last_offset
        self.clock.advance(1)
        return sent

    def flush(self, key: Key) -> None:
        """One group commit, and the answers that it allows."""
        log = self.log(key)
        ticket = log.begin_flush()
        if ticket is not None:
            ticket.sync()
            log.finish_flush(ticket)
        log.set_high_watermark(log.visible_end)
        for sent in self.promises[key].sent:
            if 0 <= sent.last_offset < log.visible_end and not sent.acknowledged:
                sent.acknowledged = True
                self.acknowledged += 1

    def send(self, key: Key, *, records: int = 1, producer_id: int = -1) -> Sent:
        """Appends, syncs and acknowledges."""
        sent = self.append(key, records=records, producer_id=producer_id)
        self.flush(key)
        assert sent.acknowledged
        return sent

    def checkpoint(self) -> None:
        self.manager.checkpoint_recovery_points()
        self.manager.checkpoint_log_start_offsets()
        self.manager.checkpoint_high_watermarks()

    def mark(self, key: Key) -> None:
        """One turn of the keeper of waypoints, with appends and syncs between its steps."""
        log = self.log(key)
        ticket = log.begin_waypoint()
        assert ticket is not None
        self.append(key)
        ticket.write()
        log.waypoints.finish(ticket)
        self.flush(key)
        assert log.waypoints.is_nameable(log.durable_end)
        self.append(key)
        self.manager.checkpoint_recovery_points()
        log.waypoints.name()

    def delete_records(self, key: Key, offset: int) -> None:
        self.promises[key].start = offset
        self.log(key).delete_records(offset)

    def apply_retention(self) -> None:
        self.give_up_sealed_segments()
        self.manager.checkpoint_recovery_points()
        for log in self.manager.logs:
            assert not delete_some_segments(self.manager, log)
        for log, segments in self.manager.deletions.due_segments(self.manager.logs):
            list(self.manager.deletions.remove_segments(log, segments))

    def give_up_sealed_segments(self) -> None:
        for key, promised in self.promises.items():
            promised.start = max(promised.start, self.log(key).segments[-1].base_offset)

    def stop(self) -> None:
        self.manager.shutdown(broker_epoch=5)

    def die(self) -> None:
        """The process is killed; the machine goes on, so nothing is lost yet."""
        self.manager.unlock()

    def start(self) -> None:
        self.manager = new_manager(self.disk, self.clock)
        self.manager.load(config_of=lambda topic: CONFIG)
        name_waypoints(self.manager)
        for log in self.manager.logs:
            log.set_high_watermark(log.visible_end)

    def _batch(self, records: int, producer_id: int, sequence: int) -> bytes:
        now_ms = self.clock.wall_ms()
        rows = [
            Record(index, now_ms, b"key", self._filler.randbytes(20)) for index in range(records)
        ]
        if producer_id < 0:
            return bytes(build_batch(rows))
        return bytes(
            build_batch(
                rows,
                producer_id=producer_id,
                producer_epoch=PRODUCER_EPOCH,
                base_sequence=sequence,
            )
        )


def new_manager(disk: SimDisk, clock: SimClock) -> LogManager:
    return LogManager(
        disk,
        [LOG_DIR],
        clock=clock,
        events=RecordedEvents(),
        rng=random.Random(3),
        node_id=1,
        cluster_id="crash-sweep-cluster-01",
        default_config=CONFIG,
        recovery_threads=1,
    )


def batches_of(log: Log) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every batch from the log start to the log end, through the log's own reads."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, max_bytes=1 << 20, upper=UPPER_LOG_END, at_least_one=True)
        require(found is not None, "nothing to read at", offset, "of", log)
        assert found is not None
        data = found.read()
        before = offset
        for position, header in iterate_headers(data):
            batch = data[position : position + header.size]
            if len(batch) == header.size:
                yield header, batch
                offset = header.last_offset + 1
        require(offset > before, "no whole batch in a read at", before, "of", log)


def name_waypoints(manager: LogManager) -> None:
    """The keeper's first turn: what a recovery has written takes its name."""
    for log in manager.logs:
        if log.waypoints.is_nameable(log.durable_end):
            log.waypoints.name()


def examine(disk: SimDisk, promises: dict[Key, Promised]) -> LogManager:
    """Starts on what is left, and raises Violation where it is less than was promised."""
    clock = SimClock()
    manager = new_manager(disk, clock)
    try:
        manager.load(config_of=lambda topic: CONFIG)
    except LogDirError as error:
        raise Violation(f"the next start is refused: {error}") from error
    name_waypoints(manager)
    for log in manager.logs:
        promised = promises.get((log.topic, log.partition))
        if promised is None or log.topic_id != promised.topic_id:
            manager.set_aside(log.topic, log.partition)
    for key, promised in promises.items():
        examined = manager.get(*key)
        if examined is None:
            lost = [sent for sent in promised.sent if sent.acknowledged]
            require(not lost, f"{key} is gone, and {len(lost)} acknowledged batches with it")
        else:
            _examine_log(examined, promised)
    return manager


def retry_everything(manager: LogManager, promises: dict[Key, Promised]) -> None:
    """Every producer sends its last five batches again: each must be in the log once, no more."""
    for key, promised in promises.items():
        log = manager.get(*key)
        if log is None:
            continue
        present = {(h.producer_id, h.base_sequence) for h, _ in batches_of(log)}
        for sent in _retried(promised, log):
            end = log.log_end_offset
            result = log.append_as_leader(
                memoryview(bytearray(sent.raw)),
                leader_epoch=LEADER_EPOCH,
                now_ms=SimClock().wall_ms(),
            )
            doubled = (sent.producer_id, sent.sequence) in present
            require(
                result.duplicate == doubled and (not doubled or log.log_end_offset == end),
                *(sent.producer_id, sent.sequence, "of", key, "is appended again at", end),
            )
            if sent.acknowledged:
                require(
                    result.base_offset == sent.base_offset,
                    *("a retry of", sent.producer_id, sent.sequence, "to", key, "is answered"),
                    *(result.base_offset, "and was", sent.base_offset),
                )


def require(holds: bool, *otherwise: object) -> None:
    """Violation, in the words of `otherwise`, unless it holds."""
    if not holds:
        raise Violation(" ".join(str(word) for word in otherwise))


def _examine_log(log: Log, promised: Promised) -> None:
    require(
        log.log_start_offset <= max(promised.start, 0),
        *(log, "starts late: given up was what is below", promised.start),
    )
    marks = [log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset]
    require(marks == sorted(marks), "start, stable, high watermark, end of", log, "are", marks)
    require(
        log.durable_end == log.log_end_offset,
        *("the tail was not synced after recovery:", log),
    )
    stored: dict[int, bytes] = {}
    expected = None
    for header, batch in batches_of(log):
        # Segments that are being deleted may vanish in any order, but nothing above them.
        require(
            expected in (None, header.base_offset) or header.base_offset <= promised.start,
            *(log, "has", header.base_offset, "where", expected, "should follow"),
        )
        expected = header.last_offset + 1
        stored[header.base_offset] = batch
    sent_bodies = {sent.raw[STAMPED:] for sent in promised.sent}
    for base_offset, batch in stored.items():
        require(
            batch[STAMPED:] in sent_bodies,
            *(log, "holds a batch that nobody sent, at", base_offset),
        )
    for sent in promised.sent:
        if sent.acknowledged and sent.last_offset >= max(promised.start, log.log_start_offset):
            require(
                stored.get(sent.base_offset) == sent.stored,
                *(log, "lost or changed the batch acknowledged at", sent.base_offset),
            )


def _retried(promised: Promised, log: Log) -> Iterator[Sent]:
    """The last five of each producer, as far as they are in what the log still promises to hold."""
    by_producer: dict[int, list[Sent]] = {}
    for sent in promised.sent:
        if sent.producer_id >= 0:
            by_producer.setdefault(sent.producer_id, []).append(sent)
    for batches in by_producer.values():
        for sent in batches[-5:]:
            given_up = sent.acknowledged and sent.base_offset < max(
                promised.start, log.log_start_offset
            )
            if not given_up:
                yield sent
