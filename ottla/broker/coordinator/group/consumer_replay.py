"""What each record of a consumer group changes, whether it has just been written or is replayed.

A log that was compacted may hold the end of a story without its beginning: the tombstone of a group
or a member that nothing else is known of changes nothing, and the first record that is left, of
whichever type, makes its group and its member.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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
from ottla.broker.coordinator.group.modern import LEAVE_EPOCH, MemberState
from ottla.broker.coordinator.group.modern_replay import Replay
from ottla.protocol.messages.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from ottla.protocol.schema import Message

if TYPE_CHECKING:
    from ottla.broker.coordinator.group.shard import GroupShard

_groups = Replay(ConsumerGroup, "consumer")


def _apply_partition_metadata(
    shard: GroupShard,
    key: ConsumerGroupPartitionMetadataKey,
    value: ConsumerGroupPartitionMetadataValue | None,
) -> None:
    group = _groups.found(shard, key.group_id, value)
    if group is not None:
        group.has_partition_metadata = value is not None


def _apply_member(
    shard: GroupShard,
    key: ConsumerGroupMemberMetadataKey,
    value: ConsumerGroupMemberMetadataValue | None,
) -> None:
    group = _groups.found(shard, key.group_id, value)
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


def _apply_current(
    shard: GroupShard,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    group = _groups.found(shard, key.group_id, value)
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
    group = _groups.found(shard, key.group_id, value)
    if group is not None:
        resolved = (
            None
            if value is None
            else Resolved(frozenset(value.topics), value.version, value.timestamp)
        )
        group.put_resolved(key.regular_expression, resolved)


APPLIERS: dict[type[Message], Callable[[GroupShard, Any, Any], None]] = {
    ConsumerGroupMetadataKey: _groups.apply_group,
    ConsumerGroupPartitionMetadataKey: _apply_partition_metadata,
    ConsumerGroupMemberMetadataKey: _apply_member,
    ConsumerGroupTargetAssignmentMetadataKey: _groups.apply_target,
    ConsumerGroupTargetAssignmentMemberKey: _groups.apply_target_member,
    ConsumerGroupCurrentMemberAssignmentKey: _apply_current,
    ConsumerGroupRegularExpressionKey: _apply_resolved,
}


def _owned(topics: list[OwnedTopic], epoch: int) -> Owned:
    """Records of Kafka before 4.2 have no epochs: what they give counts from the member's own."""
    owned: dict[bytes, dict[int, int]] = {}
    for one in topics:
        epochs = one.assignment_epochs or [epoch] * len(one.partitions)
        owned[one.topic_id] = dict(zip(one.partitions, epochs, strict=True))
    return owned
