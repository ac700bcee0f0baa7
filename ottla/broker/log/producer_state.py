"""What a partition knows of its producers: their epochs, their last batches, open transactions.

A producer that is idempotent numbers its batches. The partition keeps the last five of each
producer: a batch that equals one of them is a retry and is answered with the offset of the first
time; any other must begin behind the last. A transactional batch opens a transaction of its
producer in this partition, a marker ends it; the first offset of the oldest open one bounds what
a reader of committed data sees.

| batch of a known producer | answer |
|---|---|
| epoch below the known one | INVALID_PRODUCER_EPOCH |
| same epoch, sequences of one of the last five batches | the answer of that batch |
| higher epoch, sequence 0, or none known by now | taken |
| same epoch, behind the last sequence (after 2147483647 comes 0) | taken |
| any other sequence | OUT_OF_ORDER_SEQUENCE_NUMBER |
| not transactional while the producer's transaction is open | INVALID_TXN_STATE |
An unknown producer id is taken with any sequence.

The state is a function of the batches in the log. A snapshot file keeps it at an offset, so that
only the batches behind that are read at a start; it keeps one batch a producer, and up to four
older ones are read out of the log when a retry asks for them (`wants_history`).

N.snapshot, N being the offset behind the last batch it knows:
    bytes   field
    0-1     int16 version (1)
    2-5     uint32 CRC-32C of all that follows
    6-9     int32 count of producers, then for each 46 bytes:
    0-7     int64 producer id
    8-9     int16 producer epoch
    10-13   int32 last sequence (-1: no batch is known)
    14-21   int64 last offset (-1)
    22-25   int32 offset delta: last offset less the first of that batch
    26-33   int64 timestamp of the last batch or marker
    34-37   int32 epoch of the coordinator that wrote the last marker (-1)
    38-45   int64 first offset of the open transaction (-1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import CONTROL, NO_SEQUENCE, TRANSACTIONAL, BatchHeader
from ottla.protocol.records.control import Marker, read_marker
from ottla.protocol.records.crc import crc32c

# Kafka's figure: clients have at most five batches in flight for a partition.
BATCHES_KEPT: Final = 5

# Kafka's default of producer.id.expiration.ms.
EXPIRATION_MS: Final = 86_400_000

NO_OFFSET: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
SEQUENCE_MAX: Final = 2**31 - 1

SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEADER: Final = Struct(">hIi")
_SNAPSHOT_ENTRY: Final = Struct(">qhiqiqiq")
_CRC_START: Final = 6

_NOT_PLAIN: Final = TRANSACTIONAL | CONTROL


class SnapshotCorrupt(ValueError):
    """The bytes are no producer snapshot; an older one, or the log itself, must do."""


class KnownBatch(NamedTuple):
    """A batch that a producer wrote: what a retry is compared to and answered with."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class Producer:
    """One producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_seen_ms",
        "last_timestamp",
        "next_sequence",
        "seen_at_look_ms",
        "silent_since_ms",
        "transaction_start",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[KnownBatch] = []
        self.next_sequence = 0
        self.last_timestamp = -1
        # Wall time, which may be set: for `expire` it only tells whether there was a write.
        self.last_seen_ms = 0
        self.seen_at_look_ms = -1
        self.silent_since_ms = 0
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.transaction_start: int | None = None

    def add(self, batch: KnownBatch) -> None:
        """Takes up its next batch, of the same epoch."""
        batches = self.batches
        batches.append(batch)
        if len(batches) > BATCHES_KEPT:
            del batches[0]
        last_sequence = batch[1]
        self.next_sequence = 0 if last_sequence == SEQUENCE_MAX else last_sequence + 1
        self.last_timestamp = batch[4]

    def __repr__(self) -> str:
        return (
            f"<Producer epoch={self.epoch} next={self.next_sequence}"
            f" transaction={self.transaction_start}>"
        )


class EndedTransaction(NamedTuple):
    """A transaction whose marker is in the log."""

    producer_id: int
    first_offset: int
    last_offset: int
    committed: bool


class ProducerState:
    """The producers of one partition, up to `end_offset`."""

    __slots__ = ("_open", "_unreplicated", "end_offset", "history_end", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        # The first offsets of open transactions, ascending, and whose they are.
        self._open: dict[int, int] = {}
        # Transactions that ended above the high watermark: their records are not stable yet.
        self._unreplicated: list[EndedTransaction] = []
        self.end_offset = 0
        # Below this offset lie batches that a snapshot left out; None if there is nothing to gain.
        self.history_end: int | None = None

    def __repr__(self) -> str:
        return f"<ProducerState producers={len(self.producers)} open={len(self._open)}>"

    def expecting(self, fields: tuple[int, ...]) -> Producer | None:
        """The producer of a batch, if this is the one it is expected to send next.

        The quick way past `check` for what nearly every batch is: neither transactional nor a
        control batch, in order, with sequences that do not wrap.
        """
        producer = self.producers.get(fields[9])
        if (
            producer is not None
            and producer.next_sequence == fields[11]
            and producer.epoch == fields[10]
            and producer.transaction_start is None
            and not fields[5] & _NOT_PLAIN
            and fields[11] + fields[6] <= SEQUENCE_MAX
        ):
            return producer
        return None

    def check_batch(
        self,
        records: memoryview,
        fields: tuple[int, ...],
        headers_before: Callable[[int], Iterable[BatchHeader]],
        *,
        internal: bool,
    ) -> KnownBatch | None:
        """As `check`, of a whole batch and its header's fields; markers are checked, too.

        `headers_before` reads the log below an offset: for what a snapshot left out. A coordinator
        writes `internal` batches for a producer: each once, and all with the same sequence.
        """
        attributes, last_delta, producer_id, epoch = fields[5], fields[6], fields[9], fields[10]
        base_sequence = fields[11]
        if attributes & CONTROL:
            marker = read_marker(records)
            if marker is not None:
                self.check_marker(marker)
            return None
        if internal:
            producer = self.producers.get(producer_id)
            if producer is not None and epoch < producer.epoch:
                raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
            return None
        if self.history_end is not None and self.wants_history(producer_id, epoch, base_sequence):
            self.add_history(headers_before(self.history_end))
        return self.check(
            producer_id,
            epoch,
            base_sequence,
            (base_sequence + last_delta) & SEQUENCE_MAX,
            transactional=attributes & TRANSACTIONAL != 0,
        )

    def check(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_sequence: int,
        *,
        transactional: bool,
    ) -> KnownBatch | None:
        """The batch that this one repeats, or None if it may be written; raises KafkaError."""
        producer = self.producers.get(producer_id)
        if producer is None:
            return None
        if producer.epoch == epoch:
            if base_sequence != producer.next_sequence:
                return self._find_repeated(producer, base_sequence, last_sequence)
        elif epoch < producer.epoch:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        elif base_sequence != 0:
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if producer.transaction_start is not None and not transactional:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        return None

    @property
    def has_transactions(self) -> bool:
        """Whether there are transactions that are open, or ended above the high watermark."""
        return bool(self._open or self._unreplicated)

    def wants_history(self, producer_id: int, epoch: int, base_sequence: int) -> bool:
        """Whether `check` would refuse a batch that may be among those a snapshot left out."""
        producer = self.producers.get(producer_id)
        return (
            self.history_end is not None
            and producer is not None
            and producer.epoch == epoch
            and base_sequence != producer.next_sequence
            and len(producer.batches) < BATCHES_KEPT
            and bool(producer.batches)
            and producer.batches[0].base_offset < self.history_end
            and all(one.base_sequence != base_sequence for one in producer.batches)
        )

    def add(
        self,
        producer_id: int,
        epoch: int,
        batch: KnownBatch,
        *,
        transactional: bool,
        now_ms: int,
    ) -> None:
        """Takes up a batch that was written."""
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer(epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        producer.add(batch)
        producer.last_seen_ms = now_ms
        if transactional and producer.transaction_start is None:
            producer.transaction_start = batch.base_offset
            self._open[batch.base_offset] = producer_id

    def add_header(self, header: BatchHeader, now_ms: int) -> None:
        """Takes up a batch that lies in the log. Markers need `end_transaction` instead."""
        if header.producer_id >= 0 and header.base_sequence >= 0 and not header.is_control:
            batch = KnownBatch(
                header.base_sequence,
                header.last_sequence,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
            )
            self.add(
                header.producer_id,
                header.producer_epoch,
                batch,
                transactional=header.is_transactional,
                now_ms=now_ms,
            )

    def take_expected(self, header: BatchHeader, now_ms: int) -> bool:
        """`add_header`, quickly, if this is the batch that its producer is expected to send."""
        producer = self.expecting(header)
        if producer is None:
            return False
        last_sequence = header[11] + header[6]
        base_offset = header[0]
        producer.add(
            KnownBatch(header[11], last_sequence, base_offset, base_offset + header[6], header[8])
        )
        producer.last_seen_ms = now_ms
        return True

    def check_marker(self, marker: Marker) -> None:
        """Raises KafkaError unless the marker may be written."""
        producer = self.producers.get(marker.producer_id)
        if producer is None:
            return
        if marker.producer_epoch < producer.epoch:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)

    def end_transaction(self, marker: Marker, now_ms: int) -> EndedTransaction | None:
        """Takes up a marker that was written; the transaction it ended, if one was open."""
        producer = self.producers.get(marker.producer_id)
        if producer is None:
            producer = self.producers[marker.producer_id] = Producer(marker.producer_epoch)
        elif producer.epoch != marker.producer_epoch:
            producer.epoch = marker.producer_epoch
            producer.batches.clear()
            producer.next_sequence = 0
        producer.last_timestamp = marker.timestamp
        producer.last_seen_ms = now_ms
        producer.coordinator_epoch = marker.coordinator_epoch
        first_offset, producer.transaction_start = producer.transaction_start, None
        if first_offset is None:
            return None
        del self._open[first_offset]
        ended = EndedTransaction(marker.producer_id, first_offset, marker.offset, marker.committed)
        self._unreplicated.append(ended)
        return ended

    @property
    def first_open(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self._open), None)

    @property
    def open_transactions(self) -> dict[int, int]:
        """First offset -> producer id, oldest first."""
        return dict(self._open)

    def first_unstable(self, high_watermark: int) -> int | None:
        """The first offset whose transaction is not decided below the high watermark."""
        ended = self._unreplicated
        if ended:
            ended[:] = [one for one in ended if one.last_offset >= high_watermark]
        first = self.first_open
        for one in ended:
            if first is None or one.first_offset < first:
                first = one.first_offset
        return first

    def expire(self, now_ms: int, expiration_ms: int = EXPIRATION_MS) -> int:
        """Forgets producers that wrote nothing for so long, as far as the times of these calls can
        tell; how many. `now_ms` is monotonic.

        Goes by when they wrote, not by the time of their records as Kafka does, which forgets who
        replays old data while it still writes; nor by the wall clock: one that is set forward would
        have all forgotten, and a retry on its way written twice.
        """
        silent: list[int] = []
        for producer_id, producer in self.producers.items():
            if producer.last_seen_ms != producer.seen_at_look_ms:
                producer.seen_at_look_ms = producer.last_seen_ms
                producer.silent_since_ms = now_ms
            if (
                producer.transaction_start is None
                and now_ms - producer.silent_since_ms >= expiration_ms
            ):
                silent.append(producer_id)
        for producer_id in silent:
            del self.producers[producer_id]
        return len(silent)

    def add_history(self, headers: Iterable[BatchHeader]) -> None:
        """Puts batches of the log, in its order, before those that a snapshot kept."""
        older: dict[int, list[KnownBatch]] = {}
        for header in headers:
            producer = self.producers.get(header.producer_id)
            if (
                producer is not None
                and producer.batches
                and header.producer_epoch == producer.epoch
                and not header.is_control
                and header.last_offset < producer.batches[0].base_offset
            ):
                older.setdefault(header.producer_id, []).append(
                    KnownBatch(
                        header.base_sequence,
                        header.last_sequence,
                        header.base_offset,
                        header.last_offset,
                        header.max_timestamp,
                    )
                )
        for producer_id, batches in older.items():
            producer = self.producers[producer_id]
            producer.batches[:0] = batches
            del producer.batches[:-BATCHES_KEPT]
        self.history_end = None

    def snapshot(self, *, below: int | None = None) -> bytes:
        """The file that keeps this state; or, of the producers that batches from an offset on say
        nothing of, what it was there: of those whose last batch lies below it."""
        entries = bytearray()
        count = 0
        for producer_id, producer in self.producers.items():
            if below is not None and producer.batches and producer.batches[-1].last_offset >= below:
                continue
            count += 1
            if producer.batches:
                last = producer.batches[-1]
                sequence, offset = last.last_sequence, last.last_offset
                delta = last.last_offset - last.base_offset
            else:
                sequence, offset, delta = NO_SEQUENCE, NO_OFFSET, 0
            start = producer.transaction_start
            entries += _SNAPSHOT_ENTRY.pack(
                producer_id,
                producer.epoch,
                sequence,
                offset,
                delta,
                producer.last_timestamp,
                producer.coordinator_epoch,
                NO_OFFSET if start is None else start,
            )
        body = count.to_bytes(4, "big") + entries
        return _SNAPSHOT_HEADER.pack(SNAPSHOT_VERSION, crc32c(body), count) + entries

    @classmethod
    def from_snapshot(cls, data: bytes, end_offset: int, now_ms: int) -> ProducerState:
        """The state at `end_offset`. Raises SnapshotCorrupt."""
        try:
            version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
        except StructError:
            raise SnapshotCorrupt(f"{len(data)} bytes") from None
        if version != SNAPSHOT_VERSION:
            raise SnapshotCorrupt(f"version {version}")
        if crc32c(data[_CRC_START:]) != crc:
            raise SnapshotCorrupt("its CRC does not match")
        if len(data) - _SNAPSHOT_HEADER.size != count * _SNAPSHOT_ENTRY.size:
            raise SnapshotCorrupt(f"{count} producers in {len(data)} bytes")
        state = cls()
        state.end_offset = end_offset
        state.history_end = end_offset if count else None
        starts: list[tuple[int, int]] = []
        for entry in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEADER.size :]):
            producer_id, epoch, sequence, offset, delta, timestamp, coordinator, start = entry
            producer = state.producers[producer_id] = Producer(epoch)
            producer.last_timestamp = timestamp
            producer.last_seen_ms = now_ms
            producer.coordinator_epoch = coordinator
            if offset >= 0:
                base_sequence = (sequence - delta) & SEQUENCE_MAX
                producer.batches.append(
                    KnownBatch(base_sequence, sequence, offset - delta, offset, timestamp)
                )
                producer.next_sequence = 0 if sequence == SEQUENCE_MAX else sequence + 1
            if start >= 0:
                producer.transaction_start = start
                starts.append((start, producer_id))
        state._open = dict(sorted(starts))
        return state

    def _find_repeated(
        self, producer: Producer, base_sequence: int, last_sequence: int
    ) -> KnownBatch:
        for batch in producer.batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
        raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
