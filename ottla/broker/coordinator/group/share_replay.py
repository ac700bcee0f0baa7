"""What each record of a share group changes, whether it has just been written or is replayed.

As with consumer groups, a log that was compacted may hold the end of a story without its beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.broker.coordinator.group.modern import LEAVE_EPOCH, NOTHING, MemberState
from ottla.broker.coordinator.group.modern_replay import Replay, partitions_of
from ottla.broker.coordinator.group.share import ShareGroup, ShareMember, StateOf
from ottla.protocol.messages.coordinator_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)
from ottla.protocol.schema import Message

if TYPE_CHECKING:
    from ottla.broker.coordinator.group.shard import GroupShard

_groups = Replay(ShareGroup, "share")


def _apply_member(
    shard: GroupShard,
    key: ShareGroupMemberMetadataKey,
    value: ShareGroupMemberMetadataValue | None,
) -> None:
    group = _groups.found(shard, key.group_id, value)
    if group is None:
        return
    if value is None:
        group.remove_member(key.member_id)
        return
    group.put_member(
        replace(
            group.members.get(key.member_id) or ShareMember(member_id=key.member_id),
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_names=frozenset(value.subscribed_topic_names),
        )
    )


def _apply_current(
    shard: GroupShard,
    key: ShareGroupCurrentMemberAssignmentKey,
    value: ShareGroupCurrentMemberAssignmentValue | None,
) -> None:
    group = _groups.found(shard, key.group_id, value)
    if group is None:
        return
    member = group.members.get(key.member_id)
    if value is None:
        if member is not None:
            gone = replace(member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=NOTHING)
            group.put_member(gone)
        return
    group.put_member(
        replace(
            member or ShareMember(member_id=key.member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=partitions_of(value.assigned_partitions),
        )
    )


def _apply_state(
    shard: GroupShard,
    key: ShareGroupStatePartitionMetadataKey,
    value: ShareGroupStatePartitionMetadataValue | None,
) -> None:
    group = _groups.found(shard, key.group_id, value)
    if group is None:
        return
    if value is None:
        group.state_of = StateOf()
        return
    named: list[Any] = [
        *value.initializing_topics,
        *value.initialized_topics,
        *value.deleting_topics,
    ]
    group.state_of = StateOf(
        partitions_of(value.initializing_topics),
        partitions_of(value.initialized_topics),
        frozenset(one.topic_id for one in value.deleting_topics),
        {one.topic_id: one.topic_name for one in named},
    )


APPLIERS: dict[type[Message], Callable[[GroupShard, Any, Any], None]] = {
    ShareGroupMetadataKey: _groups.apply_group,
    ShareGroupMemberMetadataKey: _apply_member,
    ShareGroupTargetAssignmentMetadataKey: _groups.apply_target,
    ShareGroupTargetAssignmentMemberKey: _groups.apply_target_member,
    ShareGroupCurrentMemberAssignmentKey: _apply_current,
    ShareGroupStatePartitionMetadataKey: _apply_state,
}
