"""A share group (KIP-932) and its members: what is known of them, and how it is written down.

    Empty <--last member leaves-- Stable

A member takes up its target at once, for nobody has to give anything up first: a partition may be
delivered to several members. But it can be delivered only when the share coordinator has a state
for it, so a partition is first `initializing`, then `initialized`, and only then assigned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from ottla.broker.coordinator.group.kinds import Kind
from ottla.broker.coordinator.group.modern import Assignment, ModernGroup, ModernMember, Target
from ottla.broker.coordinator.outcome import CoordinatorRecord
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

SHARE_PROTOCOL = "share"
EMPTY = "Empty"
STABLE = "Stable"

StateTopic = ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo
Partitions = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions, never empty ones; not to be changed."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ShareMember(ModernMember):
    """One member; a change makes another one."""

    assigned: Assignment = field(default_factory=dict)


class StateOf(NamedTuple):
    """Of which partitions the share coordinator has a state, or will have one, or had one; and the
    names of their topics."""

    initializing: Partitions = {}
    initialized: Partitions = {}
    deleting: frozenset[bytes] = frozenset()
    names: Mapping[bytes, str] = {}

    def with_initializing(self, more: Partitions, names: Mapping[bytes, str]) -> StateOf:
        """These are to be initialized, perhaps anew."""
        return StateOf(
            _joined(self.initializing, more),
            _without(self.initialized, more),
            self.deleting - more.keys(),
            {**self.names, **names},
        )

    def with_initialized(self, more: Partitions) -> StateOf:
        """Those of them that still are to be: a topic may have gone meanwhile."""
        left = _without(self.initializing, more)
        return self._replace(
            initializing=left,
            initialized=_joined(self.initialized, _without(self.initializing, left)),
        )

    def without_topics(self, topic_ids: frozenset[bytes]) -> StateOf:
        def kept(partitions: Partitions) -> Partitions:
            return {one: parts for one, parts in partitions.items() if one not in topic_ids}

        return StateOf(
            kept(self.initializing),
            kept(self.initialized),
            self.deleting - topic_ids,
            {one: name for one, name in self.names.items() if one not in topic_ids},
        )

    @property
    def all_partitions(self) -> Partitions:
        return _joined(self.initializing, self.initialized)


class ShareGroup(ModernGroup[ShareMember]):
    """One group."""

    kind: ClassVar[Kind] = Kind.SHARE

    __slots__ = ("asked_ms", "state_of")

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.state_of = StateOf()
        self.asked_ms: dict[bytes, int] = {}
        """Soft: when the share coordinator was asked to initialize a topic, in monotonic time."""

    # how it is written down

    def epoch_record(self, epoch: int, metadata_hash: int) -> CoordinatorRecord:
        return CoordinatorRecord(
            ShareGroupMetadataKey(self.group_id), ShareGroupMetadataValue(epoch, metadata_hash)
        )

    def member_record(self, member: ShareMember) -> CoordinatorRecord:
        return CoordinatorRecord(
            ShareGroupMemberMetadataKey(self.group_id, member.member_id),
            ShareGroupMemberMetadataValue(
                member.rack_id,
                member.client_id,
                member.client_host,
                sorted(member.subscribed_names),
            ),
        )

    def target_record(self, member_id: str, assignment: Assignment) -> CoordinatorRecord:
        topic = ShareGroupTargetAssignmentMemberValue.TopicPartition
        return CoordinatorRecord(
            ShareGroupTargetAssignmentMemberKey(self.group_id, member_id),
            ShareGroupTargetAssignmentMemberValue(
                [topic(topic_id, sorted(parts)) for topic_id, parts in assignment.items()]
            ),
        )

    def target_epoch_record(self, target: Target) -> CoordinatorRecord:
        return CoordinatorRecord(
            ShareGroupTargetAssignmentMetadataKey(self.group_id),
            ShareGroupTargetAssignmentMetadataValue(target.epoch, target.timestamp_ms),
        )

    def current_record(self, member: ShareMember) -> CoordinatorRecord:
        topic = ShareGroupCurrentMemberAssignmentValue.TopicPartitions
        return CoordinatorRecord(
            ShareGroupCurrentMemberAssignmentKey(self.group_id, member.member_id),
            ShareGroupCurrentMemberAssignmentValue(
                member.epoch,
                member.previous_epoch,
                member.state,
                [topic(topic_id, sorted(parts)) for topic_id, parts in member.assigned.items()],
            ),
        )

    def state_record(self, state_of: StateOf) -> CoordinatorRecord:
        def shown(partitions: Partitions) -> list[StateTopic]:
            return [
                StateTopic(one, state_of.names.get(one, ""), sorted(parts))
                for one, parts in partitions.items()
            ]

        return CoordinatorRecord(
            ShareGroupStatePartitionMetadataKey(self.group_id),
            ShareGroupStatePartitionMetadataValue(
                shown(state_of.initializing),
                shown(state_of.initialized),
                [
                    ShareGroupStatePartitionMetadataValue.TopicInfo(
                        one, state_of.names.get(one, "")
                    )
                    for one in sorted(state_of.deleting)
                ],
            ),
        )

    def member_tombstone_keys(self, member_id: str) -> Iterator[Message]:
        """The keys of the records of one member, in the order in which to delete them."""
        yield ShareGroupCurrentMemberAssignmentKey(self.group_id, member_id)
        yield ShareGroupTargetAssignmentMemberKey(self.group_id, member_id)
        yield ShareGroupMemberMetadataKey(self.group_id, member_id)

    def tombstone_keys(self) -> Iterator[Message]:
        for member_id in self.members:
            yield ShareGroupCurrentMemberAssignmentKey(self.group_id, member_id)
        for member_id in self.target_of:
            yield ShareGroupTargetAssignmentMemberKey(self.group_id, member_id)
        yield ShareGroupTargetAssignmentMetadataKey(self.group_id)
        for member_id in self.members:
            yield ShareGroupMemberMetadataKey(self.group_id, member_id)
        yield ShareGroupStatePartitionMetadataKey(self.group_id)
        yield ShareGroupMetadataKey(self.group_id)

    # questions

    @property
    def protocol_type_shown(self) -> str:
        return SHARE_PROTOCOL

    @property
    def state_name(self) -> str:
        return STABLE if self.members else EMPTY

    @property
    def expires(self) -> bool:
        """It has no committed offsets; its state stays until somebody deletes it."""
        return False

    def refuse_offset_delete(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def known_member(self, member_id: str) -> ShareMember:
        """The member; UNKNOWN_MEMBER_ID if there is none."""
        member = self.members.get(member_id)
        if member is None:
            said = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, said)
        return member


def _joined(some: Partitions, more: Partitions) -> Partitions:
    return {
        one: some.get(one, frozenset()) | more.get(one, frozenset()) for one in {**some, **more}
    }


def _without(some: Partitions, less: Partitions) -> Partitions:
    left = {one: parts - less.get(one, frozenset()) for one, parts in some.items()}
    return {one: parts for one, parts in left.items() if parts}
