"""Batches of the metadata log turned into an image, metadata transactions included.

Records between BeginTransaction and EndTransaction count only when the end is there, and
AbortTransaction drops them (KIP-868). Such a transaction may span batches, so an image can end
before the last record that was read: `in_transaction` says so.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.metadata.delta import Delta
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.records import MetadataError
from ottla.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from ottla.protocol.schema import Message


class Replay:
    """Reads on from an image; `finish` gives what changed and the new image, once."""

    __slots__ = ("_delta", "_epoch", "_offset", "_pending", "_timestamp", "base")

    def __init__(self, base: MetadataImage, *, in_transaction: bool = False) -> None:
        """`in_transaction`: the base ends inside a transaction, which can only be aborted."""
        self.base = base
        self._delta = Delta(base)
        self._pending: list[Message] | None = [] if in_transaction else None
        self._offset = base.offset
        self._epoch = base.epoch
        self._timestamp = base.timestamp

    @property
    def in_transaction(self) -> bool:
        return self._pending is not None

    def add(
        self, records: Iterable[Message], *, last_offset: int, epoch: int, timestamp: int
    ) -> None:
        """One batch of records, whose last has this offset. MetadataError on a wrong one."""
        apply = self._delta.apply
        for record in records:
            cls = type(record)
            if cls is BeginTransactionRecord:
                if self._pending is not None:
                    raise MetadataError("a metadata transaction begins inside another")
                self._pending = []
            elif cls is EndTransactionRecord or cls is AbortTransactionRecord:
                pending = self._pending
                if pending is None:
                    raise MetadataError("a metadata transaction ends that did not begin")
                self._pending = None
                if cls is EndTransactionRecord:
                    for held in pending:
                        apply(held)
            elif self._pending is not None:
                self._pending.append(record)
            else:
                apply(record)
        self._reach(last_offset, epoch, timestamp)

    def add_control(
        self, *, kraft_version: int | None, last_offset: int, epoch: int, timestamp: int
    ) -> None:
        """One batch of control records; the level of kraft.version if it holds one."""
        if kraft_version is not None:
            self._delta.set_kraft_version(kraft_version)
        self._reach(last_offset, epoch, timestamp)

    def finish(self) -> tuple[Delta, MetadataImage]:
        """An open transaction is not in the image."""
        image = self._delta.finish(
            offset=self._offset, epoch=self._epoch, timestamp=self._timestamp
        )
        return self._delta, image

    def _reach(self, last_offset: int, epoch: int, timestamp: int) -> None:
        assert last_offset >= self._offset, "batches are replayed in order"
        self._offset = last_offset
        self._epoch = epoch
        self._timestamp = timestamp
