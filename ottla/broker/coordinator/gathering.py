"""What is to be appended next: records in their order, as batches of a reasonable size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.broker.coordinator.outcome import EndMarker, Outcome, Stamp
from ottla.broker.coordinator.record_format import RecordFormat
from ottla.broker.log.producer_state import NO_COORDINATOR_EPOCH, Producer
from ottla.protocol.records.batch import NO_PRODUCER_EPOCH
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import build_marker
from ottla.protocol.records.record import Record

BATCH_BYTES_MAX = 512 * 1024
"""Keys and values of one batch, but for a single record that is larger: half of Kafka's default
message.max.bytes, so that a Kafka broker takes over what we wrote."""


class Fence(NamedTuple):
    """How far a producer has come in a partition: what is older than its epochs is refused."""

    producer_epoch: int
    coordinator_epoch: int
    is_open: bool

    @classmethod
    def of(cls, producer: Producer | None) -> Fence:
        """Of one that a log knows, or does not."""
        if producer is None:
            return NOWHERE
        is_open = producer.transaction_start is not None
        return cls(producer.epoch, producer.coordinator_epoch, is_open)

    def behind(self, stamp: Stamp | EndMarker) -> Fence:
        """The same when this is written, too."""
        if isinstance(stamp, EndMarker):
            return Fence(stamp.producer_epoch, stamp.coordinator_epoch, is_open=False)
        return Fence(stamp.producer_epoch, self.coordinator_epoch, is_open=True)


NOWHERE = Fence(NO_PRODUCER_EPOCH, NO_COORDINATOR_EPOCH, is_open=False)


class _Piece:
    """Records of one transaction, or of none, and the marker behind them, if there is one."""

    __slots__ = ("marker", "records", "stamp", "time_ms")

    def __init__(self, stamp: Stamp | None, records: list[Record], time_ms: int) -> None:
        self.stamp = stamp
        self.records = records
        self.marker: EndMarker | None = None
        self.time_ms = time_ms


class Gathered:
    """Begun when there is something, and given away with the append that takes it."""

    __slots__ = ("_fences", "_format", "_pieces")

    def __init__(self, record_format: RecordFormat) -> None:
        self._format = record_format
        self._pieces: list[_Piece] = []
        self._fences: dict[int, Fence] = {}  # of the producers that have something in it

    def __repr__(self) -> str:
        return f"<Gathered records={sum(len(one.records) for one in self._pieces)}>"

    def add(self, outcome: Outcome) -> None:
        """The records and the marker of an outcome that has some."""
        # First what may raise: a piece without anything would be waited for.
        encode, now_ms = self._format.encode, outcome.now.wall_ms
        records = [encode(record, now_ms) for record in outcome.records]
        pieces = self._pieces
        last = pieces[-1] if pieces else None
        if last is None or last.marker is not None or last.stamp != outcome.stamp:
            last = _Piece(outcome.stamp, records, now_ms)
            pieces.append(last)
        else:
            last.records += records
        last.marker = outcome.marker
        for stamp in (outcome.stamp, outcome.marker):
            if stamp is not None:
                before = self._fences.get(stamp.producer_id, NOWHERE)
                self._fences[stamp.producer_id] = before.behind(stamp)

    def fence(self, producer_id: int, fence: Fence) -> Fence:
        """How far a producer is when all of this is written; `fence` is what the log says."""
        own = self._fences.get(producer_id)
        if own is None:
            return fence
        return own._replace(coordinator_epoch=max(own.coordinator_epoch, fence.coordinator_epoch))

    def batches(self) -> Iterator[bytearray]:
        for piece in self._pieces:
            for records in _parted(piece.records):
                yield self._batch(records, piece.stamp)
            if piece.marker is not None:
                yield build_marker(**piece.marker._asdict(), timestamp=piece.time_ms)

    def _batch(self, records: list[Record], stamp: Stamp | None) -> bytearray:
        if stamp is None:
            return build_batch(records, base_sequence=self._format.base_sequence)
        return build_batch(
            records,
            base_sequence=self._format.base_sequence,
            producer_id=stamp.producer_id,
            producer_epoch=stamp.producer_epoch,
            transactional=True,
        )


def _parted(records: list[Record]) -> list[list[Record]]:
    if len(records) == 1:
        return [records]  # as nearly always
    parts: list[list[Record]] = []
    size = 0
    for record in records:
        length = len(record.key or b"") + len(record.value or b"")
        size += length
        if not parts or size > BATCH_BYTES_MAX:
            parts.append([])
            size = length
        parts[-1].append(record)
    return parts
