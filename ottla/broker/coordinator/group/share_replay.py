"""What each record of a share group changes, whether it has just been written or is replayed.

As with consumer groups, a log that was compacted may hold the end of a story without its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.broker.coordinator.group.classic import ClassicGroup
from ottla.broker.coordinator.group.modern import LEAVE_EPOCH, NOTHING, MemberState, Target
from ottla.broker.coordinator.group.share import Partitions, ShareGroup, ShareMember, StateOf
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.coordinator_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.schema import Message

if TYPE_CHECKING:
    from ottla.broker.coordinator.group.shard import GroupShard


def _apply_group(
    shard: GroupShard, key: ShareGroupMetadataKey, value: ShareGroupMetadataValue | None
) -> None:
    if value is None:
        if isinstance(shard.groups.get(key.group_id), ShareGroup):
            del shard.groups[key.group_id]
        return
    group = _made(shard, key.group_id)
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash


def _apply_member(
    shard: GroupShard,
    key: ShareGroupMemberMetadataKey,
    value: ShareGroupMemberMetadataValue | None,
) -> None:
    group = _found(shard, key.group_id, value)
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


def _apply_target(
    shard: GroupShard,
    key: ShareGroupTargetAssignmentMetadataKey,
    value: ShareGroupTargetAssignmentMetadataValue | None,
) -> None:
    group = _found(shard, key.group_id, value)
    if group is not None:
        group.target = (
            Target(LEAVE_EPOCH)
            if value is None
            else Target(value.assignment_epoch, value.assignment_timestamp)
        )


def _apply_target_member(
    shard: GroupShard,
    key: ShareGroupTargetAssignmentMemberKey,
    value: ShareGroupTargetAssignmentMemberValue | None,
) -> None:
    group = _found(shard, key.group_id, value)
    if group is None:
        return
    if value is None:
        group.target_of.pop(key.member_id, None)
    else:
        group.target_of[key.member_id] = _partitions(value.topic_partitions)


def _apply_current(
    shard: GroupShard,
    key: ShareGroupCurrentMemberAssignmentKey,
    value: ShareGroupCurrentMemberAssignmentValue | None,
) -> None:
    group = _found(shard, key.group_id, value)
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
            assigned=_partitions(value.assigned_partitions),
        )
    )


def _apply_state(
    shard: GroupShard,
    key: ShareGroupStatePartitionMetadataKey,
    value: ShareGroupStatePartitionMetadataValue | None,
) -> None:
    group = _found(shard, key.group_id, value)
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
        _partitions(value.initializing_topics),
        _partitions(value.initialized_topics),
        frozenset(one.topic_id for one in value.deleting_topics),
        {one.topic_id: one.topic_name for one in named},
    )


APPLIERS: dict[type[Message], Callable[[GroupShard, Any, Any], None]] = {
    ShareGroupMetadataKey: _apply_group,
    ShareGroupMemberMetadataKey: _apply_member,
    ShareGroupTargetAssignmentMetadataKey: _apply_target,
    ShareGroupTargetAssignmentMemberKey: _apply_target_member,
    ShareGroupCurrentMemberAssignmentKey: _apply_current,
    ShareGroupStatePartitionMetadataKey: _apply_state,
}


def _partitions(topics: Sequence[Any]) -> Partitions:
    return {one.topic_id: frozenset(one.partitions) for one in topics if one.partitions}


def _found(shard: GroupShard, group_id: str, value: Message | None) -> ShareGroup | None:
    """The group, made if a value is to go into it; None if a tombstone finds none."""
    if value is not None:
        return _made(shard, group_id)
    group = shard.groups.get(group_id)
    return group if isinstance(group, ShareGroup) else None


def _made(shard: GroupShard, group_id: str) -> ShareGroup:
    """The group; a classic one that is known by its offsets only turns into it."""
    group = shard.groups.get(group_id)
    if isinstance(group, ShareGroup):
        return group
    if group is not None and not (isinstance(group, ClassicGroup) and group.is_simple):
        said = f"Group {group_id} is not a share group."
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, said)
    made = shard.groups[group_id] = ShareGroup(group_id)
    return made
