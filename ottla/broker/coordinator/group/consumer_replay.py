"""What each record of a consumer group changes, whether it has just been written or is replayed.

A log that was compacted may hold the end of a story without its beginning: the tombstone of a group
or a member that nothing else is known of changes nothing, and the first record that is left, of
whichever type, makes its group and its member.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.broker.coordinator.group.classic import ClassicGroup
from ottla.broker.coordinator.group.consumer import (
    NO_REGEX,
    NOTHING_OWNED,
    ClassicProtocols,
    ConsumerGroup,
    ConsumerMember,
    Owned,
    OwnedTopic,
    Resolved,
)
from ottla.broker.coordinator.group.modern import LEAVE_EPOCH, MemberState, Target
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.schema import Message

if TYPE_CHECKING:
    from ottla.broker.coordinator.group.shard import GroupShard


def _apply_group(
    shard: GroupShard, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None
) -> None:
    if value is None:
        if isinstance(shard.groups.get(key.group_id), ConsumerGroup):
            del shard.groups[key.group_id]
        return
    group = _made(shard, key.group_id)
    group.epoch = value.epoch
    group.metadata_hash = value.metadata_hash


def _apply_partition_metadata(
    shard: GroupShard,
    key: ConsumerGroupPartitionMetadataKey,
    value: ConsumerGroupPartitionMetadataValue | None,
) -> None:
    group = _found(shard, key.group_id, value)
    if group is not None:
        group.has_partition_metadata = value is not None


def _apply_member(
    shard: GroupShard,
    key: ConsumerGroupMemberMetadataKey,
    value: ConsumerGroupMemberMetadataValue | None,
) -> None:
    group = _found(shard, key.group_id, value)
    if group is None:
        return
    if value is None:
        group.remove_member(key.member_id)
        return
    classic = value.classic_member_metadata
    group.put_member(
        replace(
            group.members.get(key.member_id) or ConsumerMember(member_id=key.member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_names=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or NO_REGEX,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=None
            if classic is None
            else ClassicProtocols(
                classic.session_timeout_ms,
                tuple((one.name, one.metadata) for one in classic.supported_protocols),
            ),
        )
    )


def _apply_target(
    shard: GroupShard,
    key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
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
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    group = _found(shard, key.group_id, value)
    if group is None:
        return
    if value is None:
        group.target_of.pop(key.member_id, None)
    else:
        group.target_of[key.member_id] = {
            one.topic_id: frozenset(one.partitions) for one in value.topic_partitions
        }


def _apply_current(
    shard: GroupShard,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    group = _found(shard, key.group_id, value)
    if group is None:
        return
    member = group.members.get(key.member_id)
    if value is None:
        if member is not None:
            gone = replace(
                member,
                epoch=LEAVE_EPOCH,
                previous_epoch=LEAVE_EPOCH,
                assigned=NOTHING_OWNED,
                revoking=NOTHING_OWNED,
            )
            group.put_member(gone)
        return
    group.put_member(
        replace(
            member or ConsumerMember(member_id=key.member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=_owned(value.assigned_partitions, value.member_epoch),
            revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
        )
    )


def _apply_resolved(
    shard: GroupShard,
    key: ConsumerGroupRegularExpressionKey,
    value: ConsumerGroupRegularExpressionValue | None,
) -> None:
    group = _found(shard, key.group_id, value)
    if group is not None:
        resolved = (
            None
            if value is None
            else Resolved(frozenset(value.topics), value.version, value.timestamp)
        )
        group.put_resolved(key.regular_expression, resolved)


APPLIERS: dict[type[Message], Callable[[GroupShard, Any, Any], None]] = {
    ConsumerGroupMetadataKey: _apply_group,
    ConsumerGroupPartitionMetadataKey: _apply_partition_metadata,
    ConsumerGroupMemberMetadataKey: _apply_member,
    ConsumerGroupTargetAssignmentMetadataKey: _apply_target,
    ConsumerGroupTargetAssignmentMemberKey: _apply_target_member,
    ConsumerGroupCurrentMemberAssignmentKey: _apply_current,
    ConsumerGroupRegularExpressionKey: _apply_resolved,
}


def _found(shard: GroupShard, group_id: str, value: Message | None) -> ConsumerGroup | None:
    """The group, made if a value is to go into it; None if a tombstone finds none."""
    if value is not None:
        return _made(shard, group_id)
    group = shard.groups.get(group_id)
    return group if isinstance(group, ConsumerGroup) else None


def _made(shard: GroupShard, group_id: str) -> ConsumerGroup:
    """The group; a classic one that is known by its offsets only turns into it."""
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    if group is not None and not (isinstance(group, ClassicGroup) and group.is_simple):
        said = f"Group {group_id} is not a consumer group."
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, said)
    made = shard.groups[group_id] = ConsumerGroup(group_id)
    return made


def _owned(topics: list[OwnedTopic], epoch: int) -> Owned:
    """Records of Kafka before 4.2 have no epochs: what they give counts from the member's own."""
    owned: dict[bytes, dict[int, int]] = {}
    for one in topics:
        epochs = one.assignment_epochs or [epoch] * len(one.partitions)
        owned[one.topic_id] = dict(zip(one.partitions, epochs, strict=True))
    return owned
