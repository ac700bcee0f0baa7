"""The script of `scenario.py` with a look into the coordinators' own topics.

A record is shown with every field it has; of a time only that there is one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ottla.broker.coordinator.placement import partition_for
from ottla.protocol.codec import decoder
from ottla.protocol.messages.coordinator_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogKey,
    TransactionLogValue,
)
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.records.batch import BatchHeader
from ottla.protocol.records.record import Record
from tests.transactions.names import OFFSETS, PARTITION_COUNT, Names
from tests.transactions.offset_scenario import OffsetScript
from tests.transactions.scenario import GROUP
from tests.transactions.shown import batches_of, marker

TRANSACTIONS = "__transaction_state"
BYTES_MAX = 2**24
OFFSET_COMMIT = 1
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
)
_INT16 = struct.Struct(">h")


class LogScript(OffsetScript):
    """A script that also shows what stands in the logs."""

    def show_transactions(self, txn: str = "x", *, last: int = 0) -> None:
        """The records of a transactional id; `last`: only so many."""
        own = self._names.on_wire(txn)
        found = []
        for header, record in self._records(TRANSACTIONS, partition_for(own, PARTITION_COUNT)):
            assert record.key is not None
            key, _ = decoder(TransactionLogKey, 0)(memoryview(record.key), _INT16.size)
            if key.transactional_id == own:
                found.append(f"  {_head(self._names, header)} {self._value(txn, record)}")
        self.lines += found[-last:]

    def show_offsets(self, group: str = GROUP) -> None:
        """The offsets of a group, and the markers of this conversation's producers."""
        own = self._names.on_wire(group)
        for header, record in self._records(OFFSETS, self._names.home(group)):
            assert record.key is not None
            if header.is_control:
                if self._names.knows(header.producer_id):
                    self.lines.append(f"  {_head(self._names, header)} {marker(record)}")
            elif own.encode() in record.key:
                self.lines.append(f"  {_head(self._names, header)} {self._offset(record)}")

    def _records(self, topic: str, partition: int) -> Iterator[tuple[BatchHeader, Record]]:
        offset = 0
        while True:
            one = FetchRequest.FetchPartition(
                partition, fetch_offset=offset, partition_max_bytes=BYTES_MAX
            )
            asked = FetchRequest.FetchTopic(topic, partitions=[one])
            request = FetchRequest(max_bytes=BYTES_MAX, topics=[asked])
            answer = self._line.ask("reader", request, 12)
            found = list(batches_of(answer.responses[0].partitions[0].records))
            if not found:
                return
            for header, records in found:
                yield from ((header, record) for record in records)
                offset = header.last_offset + 1

    def _value(self, txn: str, record: Record) -> str:
        if record.value is None:
            return f"{txn} tombstone"
        (version,) = _INT16.unpack_from(record.value)
        value, end = decoder(TransactionLogValue, version)(memoryview(record.value), _INT16.size)
        assert end == len(record.value)
        started = value.transaction_start_timestamp_ms
        updated = value.transaction_last_update_timestamp_ms
        places = value.transaction_partitions
        if places is not None:
            shown = (self._names.place(p.topic, i) for p in places for i in p.partition_ids)
            found = f"[{', '.join(sorted(shown))}]"
        return (
            f"{txn} v{version} {STATES[value.transaction_status]}"
            f" {self._names.producer(value.producer_id, value.producer_epoch)}"
            f" previous={self._names.pid(value.previous_producer_id)}"
            f" next={self._names.producer(value.next_producer_id, value.next_producer_epoch)}"
            f" timeout={value.transaction_timeout_ms}"
            f" partitions={'null' if places is None else found}"
            f" updated={'yes' if updated > 0 else updated}"
            f" started={'yes' if started > 0 else started}"
            f" tv={value.client_transaction_version}"
        )

    def _offset(self, record: Record) -> str:
        assert record.key is not None
        (kind,) = _INT16.unpack_from(record.key)
        if kind != OFFSET_COMMIT:
            return f"{'tombstone' if record.value is None else 'record'} of type {kind}"
        key, _ = decoder(OffsetCommitKey, 0)(memoryview(record.key), _INT16.size)
        place = f"{self._names.shown(key.group)} {self._names.shown(key.topic)}-{key.partition}"
        if record.value is None:
            return f"{place} tombstone"
        (version,) = _INT16.unpack_from(record.value)
        value, _ = decoder(OffsetCommitValue, version)(memoryview(record.value), _INT16.size)
        topic_id = "yes" if any(value.topic_id) else "no"
        return (
            f"{place} v{version} at {value.offset} epoch={value.leader_epoch}"
            f" {value.metadata!r} topic_id={topic_id}"
        )


def _head(names: Names, header: BatchHeader) -> str:
    """How many records a batch has is shown where it is one request's."""
    shown = (
        f"{names.producer(header.producer_id, header.producer_epoch)} seq={header.base_sequence}"
    )
    if header.is_transactional:
        shown += f" x{header.record_count} txn"
    return f"{shown}{' control' if header.is_control else ''}:"
