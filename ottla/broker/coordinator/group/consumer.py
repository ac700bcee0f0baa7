"""A consumer group (KIP-848) and its members: what is known of them, and how it is written down.

    Empty --join--> Assigning --target made--> Reconciling --all members have theirs--> Stable

A member may use the classic protocol in such a group, while its clients change from one to the
other: it has `classic`, its protocols as it brought them, and is asked to join again when it is to
take up another assignment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, NamedTuple

from ottla.broker.coordinator.group.classic import CONSUMER_PROTOCOL
from ottla.broker.coordinator.group.kinds import Kind
from ottla.broker.coordinator.group.modern import (
    Assignment,
    MemberState,
    ModernGroup,
    ModernMember,
    Target,
)
from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.schema import Message

AWAY_EPOCH = -2
"""Of a static member that has left for a while: it has kept its partitions."""
NO_REGEX = ""

Owned = Mapping[bytes, Mapping[int, int]]
"""Topic id -> partition -> the member epoch in which it was given; not to be changed."""
NOTHING_OWNED: Owned = {}

MemberValue = ConsumerGroupMemberMetadataValue
OwnedTopic = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
TargetTopic = ConsumerGroupTargetAssignmentMemberValue.TopicPartition


class ConsumerState(Enum):
    """By Kafka's names, which are shown."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The group epoch has no target yet."""
    RECONCILING = "Reconciling"
    """Not every member has what the target gives it."""
    STABLE = "Stable"


class ClassicProtocols(NamedTuple):
    """What a member of the classic protocol has brought: name and metadata, as it likes them."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def chosen(self) -> str:
        """The protocol that it is told; to a server that assigns they are all alike."""
        return self.protocols[0][0]


class Resolved(NamedTuple):
    """The topics that a regular expression stands for, by the metadata of that version."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(slots=True, frozen=True, kw_only=True)
class ConsumerMember(ModernMember):
    """One member; a change makes another one."""

    rebalance_timeout_ms: int = -1
    regex: str = NO_REGEX
    server_assignor: str | None = None
    classic: ClassicProtocols | None = None
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)
    """What it has to give up, and has not said that it has."""


class ConsumerGroup(ModernGroup[ConsumerMember]):
    """One group."""

    kind: ClassVar[Kind] = Kind.CONSUMER

    __slots__ = (
        "_classic_count",
        "_classic_names",
        "_owners",
        "_reconciled",
        "_regexes",
        "has_partition_metadata",
        "is_resolving",
        "resolved",
        "static_members",
    )

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.static_members: dict[str, str] = {}
        self.resolved: dict[str, Resolved] = {}
        self.has_partition_metadata = False
        """Whether there is a record that Kafka wrote before 4.1 and wants to be deleted."""
        self.is_resolving = False
        """Soft: its regular expressions are being matched just now."""
        self._owners: dict[bytes, dict[int, str]] = {}
        self._regexes: Counter[str] = Counter()
        self._reconciled: Counter[int] = Counter()
        """How many members have what the target of an epoch gives them."""
        self._classic_count = 0
        self._classic_names: Counter[str] = Counter()

    # what records say

    def put_member(self, member: ConsumerMember) -> None:
        old = self.members.get(member.member_id)
        super().put_member(member)
        if old is None or old.regex != member.regex:
            if old is not None:
                self._forget_regex(old)
            if member.regex:
                self._regexes[member.regex] += 1
        if old is None or old.instance_id != member.instance_id:
            if old is not None:
                self._forget_static(old)
            if member.instance_id is not None:
                self.static_members[member.instance_id] = member.member_id
        if old is None or old.classic is not member.classic:
            if old is not None:
                self._count_classic(old, -1)
            self._count_classic(member, 1)
        if old is None or (old.state, old.epoch) != (member.state, member.epoch):
            if old is not None:
                self._count_reconciled(old, -1)
            self._count_reconciled(member, 1)
        if old is None or (old.assigned, old.revoking) != (member.assigned, member.revoking):
            if old is not None:
                self._forget_owner(old)
            self._own(member)

    def remove_member(self, member_id: str) -> ConsumerMember | None:
        member = super().remove_member(member_id)
        if member is not None:
            self._forget_regex(member)
            self._forget_static(member)
            self._count_reconciled(member, -1)
            self._count_classic(member, -1)
            self._forget_owner(member)
        return member

    def put_resolved(self, regex: str, resolved: Resolved | None) -> None:
        """A regular expression stands for other topics, or, None, is not wanted any more."""
        self._wanted = None
        if resolved is None:
            self.resolved.pop(regex, None)
        else:
            self.resolved[regex] = resolved

    def take_stock(self) -> None:
        """All records are replayed. Those that were compacted away may have left a trace in who
        owns what: it is as the members have it now."""
        self._owners.clear()
        for member in self.members.values():
            self._own(member)

    # how it is written down

    def epoch_record(self, epoch: int, metadata_hash: int) -> CoordinatorRecord:
        return CoordinatorRecord(
            ConsumerGroupMetadataKey(self.group_id),
            ConsumerGroupMetadataValue(epoch, metadata_hash),
        )

    def member_record(self, member: ConsumerMember) -> CoordinatorRecord:
        classic = member.classic
        return CoordinatorRecord(
            ConsumerGroupMemberMetadataKey(self.group_id, member.member_id),
            MemberValue(
                member.instance_id,
                member.rack_id,
                member.client_id,
                member.client_host,
                sorted(member.subscribed_names),
                member.regex,
                member.rebalance_timeout_ms,
                member.server_assignor,
                None
                if classic is None
                else MemberValue.ClassicMemberMetadata(
                    classic.session_timeout_ms,
                    [MemberValue.ClassicProtocol(*one) for one in classic.protocols],
                ),
            ),
        )

    def target_record(self, member_id: str, assignment: Assignment) -> CoordinatorRecord:
        return CoordinatorRecord(
            ConsumerGroupTargetAssignmentMemberKey(self.group_id, member_id),
            ConsumerGroupTargetAssignmentMemberValue(
                [TargetTopic(topic_id, sorted(parts)) for topic_id, parts in assignment.items()]
            ),
        )

    def target_epoch_record(self, target: Target) -> CoordinatorRecord:
        return CoordinatorRecord(
            ConsumerGroupTargetAssignmentMetadataKey(self.group_id),
            ConsumerGroupTargetAssignmentMetadataValue(target.epoch, target.timestamp_ms),
        )

    def current_record(self, member: ConsumerMember) -> CoordinatorRecord:
        return CoordinatorRecord(
            ConsumerGroupCurrentMemberAssignmentKey(self.group_id, member.member_id),
            ConsumerGroupCurrentMemberAssignmentValue(
                member.epoch,
                member.previous_epoch,
                member.state,
                _owned_topics(member.assigned),
                _owned_topics(member.revoking),
            ),
        )

    def resolved_record(self, regex: str, resolved: Resolved) -> CoordinatorRecord:
        return CoordinatorRecord(
            ConsumerGroupRegularExpressionKey(self.group_id, regex),
            ConsumerGroupRegularExpressionValue(
                sorted(resolved.topics), resolved.version, resolved.timestamp_ms
            ),
        )

    def member_tombstone_keys(self, member_id: str) -> Iterator[Message]:
        """The keys of the records of one member, in the order in which to delete them."""
        yield ConsumerGroupCurrentMemberAssignmentKey(self.group_id, member_id)
        yield ConsumerGroupTargetAssignmentMemberKey(self.group_id, member_id)
        yield ConsumerGroupMemberMetadataKey(self.group_id, member_id)

    def tombstone_keys(self) -> Iterator[Message]:
        for member_id in self.members:
            yield ConsumerGroupCurrentMemberAssignmentKey(self.group_id, member_id)
        for member_id in self.target_of:
            yield ConsumerGroupTargetAssignmentMemberKey(self.group_id, member_id)
        yield ConsumerGroupTargetAssignmentMetadataKey(self.group_id)
        for member_id in self.members:
            yield ConsumerGroupMemberMetadataKey(self.group_id, member_id)
        for regex in self.resolved:
            yield ConsumerGroupRegularExpressionKey(self.group_id, regex)
        if self.has_partition_metadata:
            yield ConsumerGroupPartitionMetadataKey(self.group_id)
        yield ConsumerGroupMetadataKey(self.group_id)

    # questions

    @property
    def protocol_type_shown(self) -> str:
        return CONSUMER_PROTOCOL

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def state(self) -> ConsumerState:
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.target.epoch:
            return ConsumerState.ASSIGNING
        if self._reconciled[self.target.epoch] == len(self.members):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    @property
    def regexes(self) -> Mapping[str, int]:
        """The regular expressions that members subscribe to, and how many of them do."""
        return self._regexes

    def refuse_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def owner_of(self, topic_id: bytes, partition: int) -> str | None:
        """The member that has a partition, be it that it is to give it up."""
        partitions = self._owners.get(topic_id)
        return None if partitions is None else partitions.get(partition)

    def names_wanted_by(self, member: ConsumerMember) -> frozenset[str]:
        resolved = self.resolved.get(member.regex)
        if resolved is None:
            return member.subscribed_names
        return member.subscribed_names | resolved.topics

    @property
    def is_all_classic(self) -> bool:
        """Whether no member uses the consumer protocol."""
        return self._classic_count == len(self.members)

    def supports_any(self, protocols: Iterable[str]) -> bool:
        """Whether all members of the classic protocol know one of these, by its name."""
        return any(self._classic_names[name] == self._classic_count for name in protocols)

    def known_member(self, member_id: str) -> ConsumerMember:
        """The member; UNKNOWN_MEMBER_ID if there is none."""
        member = self.members.get(member_id)
        if member is None:
            said = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, said)
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        if instance_id is None:
            return None
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    # inside

    def _also_wanted(self) -> frozenset[str]:
        return frozenset().union(*(one.topics for one in self.resolved.values()))

    def _forget_regex(self, member: ConsumerMember) -> None:
        if member.regex:
            self._regexes[member.regex] -= 1
            if not self._regexes[member.regex]:
                del self._regexes[member.regex]

    def _forget_static(self, member: ConsumerMember) -> None:
        instance_id = member.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]

    def _count_classic(self, member: ConsumerMember, sign: int) -> None:
        if member.classic is not None:
            self._classic_count += sign
            for name in dict.fromkeys(name for name, _ in member.classic.protocols):
                self._classic_names[name] += sign
                if not self._classic_names[name]:
                    del self._classic_names[name]

    def _count_reconciled(self, member: ConsumerMember, sign: int) -> None:
        if member.state is MemberState.STABLE:
            self._reconciled[member.epoch] += sign
            if not self._reconciled[member.epoch]:
                del self._reconciled[member.epoch]

    def _forget_owner(self, member: ConsumerMember) -> None:
        for owned in (member.assigned, member.revoking):
            for topic_id, partitions in owned.items():
                owners = self._owners.get(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]

    def _own(self, member: ConsumerMember) -> None:
        for owned in (member.assigned, member.revoking):
            for topic_id, partitions in owned.items():
                owners = self._owners.setdefault(topic_id, {})
                owners.update(dict.fromkeys(partitions, member.member_id))


def _owned_topics(owned: Owned) -> list[OwnedTopic]:
    topics: list[OwnedTopic] = []
    for topic_id, epochs in owned.items():
        partitions = sorted(epochs)
        topics.append(OwnedTopic(topic_id, partitions, [epochs[one] for one in partitions]))
    return topics
