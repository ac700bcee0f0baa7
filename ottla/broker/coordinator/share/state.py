"""What is known of one share partition: where its group begins to deliver, and the states of the
records behind that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.broker.coordinator.share.batches import (
    ACKNOWLEDGED,
    ARCHIVED,
    NO_OFFSET,
    StateBatch,
    merged_into,
)
from ottla.protocol.messages.coordinator_records import ShareSnapshotValue, ShareUpdateValue
from ottla.protocol.wire import INT32_MAX, uuid_text

NO_EPOCH = -1
NO_COUNT = -1
FIRST_EPOCH = 0


class SharePartitionKey(NamedTuple):
    """One partition as one group shares it."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def placed_by(self) -> str:
        """The text whose hash says which partition of __share_group_state has it, and by which
        FindCoordinator asks."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"


@dataclass(slots=True)
class ShareState:
    """The newest snapshot with all updates since. `least_leader_epoch` and `least_state_epoch` are
    those below which a request is fenced."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    created_ms: int
    written_ms: int
    batches: tuple[StateBatch, ...]
    least_leader_epoch: int
    least_state_epoch: int
    updates: int = 0
    is_ahead: bool = False
    """Whether its start was set behind the end of its log, and nothing was said of a record since.
    Its snapshot names no leader epoch, for it is of none that its log was written in."""

    @classmethod
    def from_snapshot(cls, value: ShareSnapshotValue, before: ShareState | None) -> ShareState:
        least_leader_epoch, least_state_epoch = value.leader_epoch, value.state_epoch
        if before is not None:
            least_leader_epoch = max(least_leader_epoch, before.least_leader_epoch)
            least_state_epoch = max(least_state_epoch, before.least_state_epoch)
        return cls(
            snapshot_epoch=value.snapshot_epoch,
            state_epoch=value.state_epoch,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            complete_count=value.delivery_complete_count,
            created_ms=value.create_timestamp,
            written_ms=value.write_timestamp,
            batches=tuple(_batch_of(batch) for batch in value.state_batches),
            least_leader_epoch=least_leader_epoch,
            least_state_epoch=least_state_epoch,
            is_ahead=(
                value.leader_epoch == NO_EPOCH
                and value.start_offset != NO_OFFSET
                and not value.state_batches
            ),
        )

    @classmethod
    def from_update(cls, value: ShareUpdateValue) -> ShareState:
        """An update whose snapshot is not in the log any more."""
        return cls(
            snapshot_epoch=value.snapshot_epoch,
            state_epoch=FIRST_EPOCH,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            complete_count=value.delivery_complete_count,
            created_ms=0,
            written_ms=0,
            batches=tuple(_batch_of(batch) for batch in value.state_batches),
            least_leader_epoch=value.leader_epoch,
            least_state_epoch=FIRST_EPOCH,
            updates=1,
        )

    def take(self, value: ShareUpdateValue) -> None:
        self.is_ahead = self.stays_ahead(value.start_offset, value.state_batches)
        if value.start_offset != NO_OFFSET:
            self.start_offset = value.start_offset
        if value.leader_epoch != NO_EPOCH:
            self.leader_epoch = value.leader_epoch
        self.complete_count = value.delivery_complete_count
        new = [_batch_of(batch) for batch in value.state_batches]
        self.batches = merged_into(self.batches, new, self.start_offset)
        self.least_leader_epoch = max(self.least_leader_epoch, value.leader_epoch)
        self.updates += 1

    def stays_ahead(self, start_offset: int, batches: Sequence[object]) -> bool:
        """Whether it is ahead of its log still, should this be said of it."""
        return self.is_ahead and not batches and start_offset in (NO_OFFSET, self.start_offset)

    @property
    def is_cold(self) -> bool:
        """Whether its snapshot repeats an older one."""
        return self.created_ms != self.written_ms

    @property
    def end_offset(self) -> int:
        """Nothing is said of records from here on."""
        return max(self.start_offset, self.batches[-1].last + 1 if self.batches else NO_OFFSET)

    def cut_at(self, end_offset: int, *, leader_epoch: int, now_ms: int) -> ShareSnapshotValue:
        """The next snapshot, which says nothing of records from an offset on."""
        batches = [
            batch._replace(last=min(batch.last, end_offset - 1))
            for batch in self.batches
            if batch.first < end_offset
        ]
        settled = sum(
            one.last - one.first + 1 for one in batches if one.state in (ACKNOWLEDGED, ARCHIVED)
        )
        return ShareSnapshotValue(
            snapshot_epoch=self.snapshot_epoch + 1,
            state_epoch=self.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=min(self.start_offset, end_offset),
            delivery_complete_count=min(settled, INT32_MAX),
            create_timestamp=now_ms,
            write_timestamp=now_ms,
            state_batches=in_snapshot(batches),
        )

    def snapshot(self, *, written_ms: int, created_ms: int | None = None) -> ShareSnapshotValue:
        """The next snapshot, of what stands here."""
        return ShareSnapshotValue(
            snapshot_epoch=self.snapshot_epoch + 1,
            state_epoch=self.state_epoch,
            leader_epoch=NO_EPOCH if self.is_ahead else max(self.leader_epoch, FIRST_EPOCH),
            start_offset=self.start_offset,
            delivery_complete_count=self.complete_count,
            create_timestamp=self.created_ms if created_ms is None else created_ms,
            write_timestamp=written_ms,
            state_batches=in_snapshot(self.batches),
        )


def in_snapshot(batches: Iterable[StateBatch]) -> list[ShareSnapshotValue.StateBatch]:
    return [ShareSnapshotValue.StateBatch(*batch) for batch in batches]


def in_update(batches: Iterable[StateBatch]) -> list[ShareUpdateValue.StateBatch]:
    return [ShareUpdateValue.StateBatch(*batch) for batch in batches]


def _batch_of(batch: ShareSnapshotValue.StateBatch | ShareUpdateValue.StateBatch) -> StateBatch:
    return StateBatch(
        batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count
    )
