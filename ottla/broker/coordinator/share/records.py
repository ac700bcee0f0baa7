"""The records of __share_group_state: a snapshot of a share partition's state, and what changed
since. Both are keyed by (group, topic id, partition); a null snapshot ends the share partition."""

from __future__ import annotations

from ottla.broker.coordinator.record_format import RecordFormat
from ottla.protocol.messages.coordinator_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)

SHARE_RECORDS = RecordFormat(
    {0: (ShareSnapshotKey, ShareSnapshotValue), 1: (ShareUpdateKey, ShareUpdateValue)},
    lambda value: 0,
)
