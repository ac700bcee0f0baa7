"""A classic group and its members: what is known of them, and the rules that need nothing else.

Two kinds of state live here. What the last GroupMetadata record says (generation, protocol, leader,
members with their subscriptions and assignments) changes in `take` alone, live and in a replay. All
else is soft: it belongs to a rebalance under way and is lost with the process (see `outcome.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from ottla.broker.coordinator.group.kinds import Group, Kind
from ottla.broker.coordinator.group.states import TRANSITIONS, State
from ottla.broker.coordinator.outcome import Reply
from ottla.protocol.codec import decoder
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.messages.coordinator_records import GroupMetadataKey, GroupMetadataValue
from ottla.protocol.messages.groups import ConsumerProtocolSubscription
from ottla.protocol.schema import Message

CONSUMER_PROTOCOL = "consumer"
"""The protocol type whose metadata a broker reads, for the topics that its members want."""
NO_TIMEOUT = -1
NO_TIMESTAMP = -1
NO_GENERATION = -1

_SUBSCRIPTION_VERSION_SIZE = 2


@dataclass(slots=True)
class Member:
    """One member. `protocols` are in the order in which it likes them."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: dict[str, bytes]
    assignment: bytes = b""
    is_new: bool = False
    """Has never been in a generation; the one that it waits for may come without it."""
    join_reply: Reply | None = None
    sync_reply: Reply | None = None

    @property
    def awaits_answer(self) -> bool:
        """Whether silence is no fault of its own, for it waits for us."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def vote(self, candidates: Iterable[str]) -> str:
        """The first of its protocols that is a candidate; there is one."""
        return next(name for name in self.protocols if name in candidates)


@dataclass(slots=True)
class InitialDelay:
    """How long a group that was empty waits for more members, in steps."""

    step_ms: int
    remaining_ms: int
    has_new_member: bool = False
    expects_member: bool = False
    """Somebody was given a member id, and is about to join with it."""


class ClassicGroup(Group):
    """One group. It begins Empty, in generation 0."""

    kind: ClassVar[Kind] = Kind.CLASSIC

    __slots__ = (
        "_newcomer_ms",
        "_newcomers_follow",
        "_protocol_counts",
        "awaiting_join_count",
        "generation",
        "group_id",
        "initial_delay",
        "leader",
        "members",
        "pending_join",
        "pending_sync",
        "protocol",
        "protocol_type",
        "settles_since_ms",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, now_wall_ms: int) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.state_timestamp_ms = now_wall_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_join: dict[str, None] = {}
        self.pending_sync: dict[str, None] = {}
        self.awaiting_join_count = 0
        self.initial_delay: InitialDelay | None = None
        # When, in this join phase, all had joined for the first time, and newcomers followed.
        self.settles_since_ms: int | None = None
        self._newcomer_ms: int | None = None
        self._newcomers_follow = False
        self.subscribed_topics: frozenset[str] | None = None
        # How many members know each protocol.
        self._protocol_counts: dict[str, int] = {}

    def __repr__(self) -> str:
        return (
            f"<ClassicGroup {self.group_id} {self.state.value} generation={self.generation}"
            f" members={len(self.members)} joined={self.awaiting_join_count}"
            f" pending={len(self.pending_join)}>"
        )

    # what a record says

    def take(self, value: GroupMetadataValue) -> None:
        """A GroupMetadata record was written, by us now or by whoever wrote the log."""
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.leader = value.leader
        self.protocol = value.protocol
        if self.state is State.COMPLETING_REBALANCE:
            # No replay comes by here: `next_generation` has just seen to all but the assignments,
            # and whatever changes a member in this state ends it.
            for one in value.members:
                self.members[one.member_id].assignment = one.assignment
        else:
            self._restore_members(value)
        # Not through `become`: a group that is loaded has come a way that nobody saw.
        self.state = State.STABLE if value.members else State.EMPTY
        self.state_timestamp_ms = value.current_state_timestamp

    def _restore_members(self, value: GroupMetadataValue) -> None:
        """They may be others than those who are here, and want something else."""
        known = self.members
        self.members = {
            one.member_id: _restored(one, known.get(one.member_id), value.protocol or "")
            for one in value.members
        }
        self.static_members = {}
        self._protocol_counts = {}
        self.awaiting_join_count = 0
        for member in self.members.values():
            if member.instance_id is not None:
                self.static_members[member.instance_id] = member.member_id
            self._count_protocols(member, 1)
            self.awaiting_join_count += member.join_reply is not None
        self.subscribed_topics = self._compute_subscribed_topics()

    def to_value(self, now_wall_ms: int, assignments: dict[str, bytes]) -> GroupMetadataValue:
        """The record of this group as it is, its members having these assignments."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=now_wall_ms,
            members=[
                GroupMetadataValue.MemberMetadata(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.protocols.get(self.protocol or "", b""),
                    assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ],
        )

    # soft state

    def become(self, state: State, now_wall_ms: int) -> None:
        assert state in TRANSITIONS[self.state], (self, state)
        self.state = state
        self.state_timestamp_ms = now_wall_ms

    def add(self, member: Member, protocol_type: str) -> None:
        assert member.member_id not in self.members, (self, member.member_id)
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, (self, member.instance_id)
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        self.awaiting_join_count += member.join_reply is not None
        self.pending_join.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Forgets a member, pending or not, or does nothing."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            self.awaiting_join_count -= member.join_reply is not None
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_join.pop(member_id, None)
        self.pending_sync.pop(member_id, None)

    def replace_static(self, old_id: str, new_id: str) -> tuple[Member, Member]:
        """The old incarnation of a static member and the new one, which has all but the name."""
        old = self.members.pop(old_id)
        assert old.instance_id is not None
        self.awaiting_join_count -= old.join_reply is not None
        new = Member(
            new_id,
            old.instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        self.members[new_id] = new
        self.static_members[old.instance_id] = new_id
        self.pending_sync.pop(old_id, None)
        if self.leader == old_id:
            self.leader = new_id
        return old, new

    def note_newcomer(self, now_ms: int, apart_ms: int) -> None:
        """Somebody new asks to come in; `now_ms` is monotonic. Those who start together are some
        `apart_ms` apart."""
        last_ms = self._newcomer_ms
        self._newcomers_follow = last_ms is not None and now_ms - last_ms <= 2 * apart_ms
        self._newcomer_ms = now_ms

    def settles_in_ms(self, now_ms: int, apart_ms: int) -> int:
        """For how long one more newcomer is likely, since the last followed another one."""
        if not self._newcomers_follow or self._newcomer_ms is None:
            return 0
        return max(self._newcomer_ms + apart_ms - now_ms, 0)

    def park_join(self, member: Member, reply: Reply) -> None:
        self.awaiting_join_count += member.join_reply is None
        member.join_reply = reply

    def take_join_reply(self, member: Member) -> Reply | None:
        """Who waits for the member's JoinGroup answer; nobody does afterwards."""
        reply, member.join_reply = member.join_reply, None
        self.awaiting_join_count -= reply is not None
        return reply

    def set_protocols(self, member: Member, protocols: dict[str, bytes]) -> None:
        if protocols.keys() == member.protocols.keys():
            member.protocols = protocols
            return
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def next_generation(self, now_wall_ms: int) -> None:
        """All who will be in it have joined; there is somebody."""
        self.generation += 1
        self.protocol = self.select_protocol()
        self.subscribed_topics = self._compute_subscribed_topics()
        self.become(State.COMPLETING_REBALANCE, now_wall_ms)
        self.pending_sync = dict.fromkeys(self.members)

    def elect_leader(self) -> bool:
        """Keeps the leader if it has joined, or takes the first who has; False if nobody has."""
        leader = None if self.leader is None else self.members.get(self.leader)
        if leader is not None and leader.join_reply is not None:
            return True
        for member in self.members.values():
            if member.join_reply is not None:
                self.leader = member.member_id
                return True
        return False

    # questions

    @property
    def protocol_type_shown(self) -> str:
        return self.protocol_type or ""

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def member_count(self) -> int:
        return len(self.members)

    def refuse_offset_delete(self) -> ErrorCode:
        if self.is_empty or self.uses_consumer_protocol:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def tombstone_keys(self) -> Iterator[Message]:
        yield GroupMetadataKey(self.group_id)

    @property
    def is_simple(self) -> bool:
        """Whether it is known by its offsets only: nobody has ever been a member."""
        return self.protocol_type is None and self.state is State.EMPTY and not self.pending_join

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    @property
    def all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_join

    @property
    def rebalance_timeout_ms(self) -> int:
        """The most patient member's."""
        longest_ms = 0
        for member in self.members.values():
            if member.rebalance_timeout_ms > longest_ms:
                longest_ms = member.rebalance_timeout_ms
        return longest_ms

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member; KafkaError if it is unknown or another has taken its instance id."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def accepts(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a newcomer with these protocols can be in this group."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and any(True for _ in protocols)
        if self.protocol_type != protocol_type:
            return False
        count = len(self.members)
        return any(self._protocol_counts.get(name, 0) == count for name in protocols)

    def select_protocol(self) -> str:
        """The one with most votes of those that all members know; of equals the first voted."""
        count = len(self.members)
        candidates = {name for name, known in self._protocol_counts.items() if known == count}
        if len(candidates) == 1:
            return candidates.pop()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=lambda name: votes[name])

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member wants the topic, as far as a broker can tell: when in doubt it does."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def _count_protocols(self, member: Member, times: int) -> None:
        counts = self._protocol_counts
        for name in member.protocols:
            count = counts.get(name, 0) + times
            if count:
                counts[name] = count
            else:
                del counts[name]  # whose names they are chooses them

    def _compute_subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            subscribed = _subscribed_topics(member.protocols.get(self.protocol or ""))
            if subscribed is None:
                return None
            topics.update(subscribed)
        return frozenset(topics)


def _restored(
    value: GroupMetadataValue.MemberMetadata, known: Member | None, protocol: str
) -> Member:
    if known is not None and _says_the_same(value, known, protocol):
        known.assignment = value.assignment
        return known
    rebalance_ms = value.rebalance_timeout
    return Member(
        value.member_id,
        value.group_instance_id,
        value.client_id,
        value.client_host,
        value.session_timeout if rebalance_ms == NO_TIMEOUT else rebalance_ms,
        value.session_timeout,
        {protocol: value.subscription},
        value.assignment,
    )


def _says_the_same(value: GroupMetadataValue.MemberMetadata, known: Member, protocol: str) -> bool:
    """Whether the record was made of the member as it is here, where more is known of it. In a
    replay the member is that of an older record."""
    return (
        value.group_instance_id == known.instance_id
        and value.client_id == known.client_id
        and value.client_host == known.client_host
        and value.rebalance_timeout == known.rebalance_timeout_ms
        and value.session_timeout == known.session_timeout_ms
        and value.subscription == known.protocols.get(protocol, b"")
    )


def _subscribed_topics(metadata: bytes | None) -> list[str] | None:
    """The topics of a consumer's subscription, of which every version begins with them."""
    if metadata is None or len(metadata) < _SUBSCRIPTION_VERSION_SIZE:
        return None
    try:
        subscription, _ = decoder(ConsumerProtocolSubscription, 0)(
            memoryview(metadata), _SUBSCRIPTION_VERSION_SIZE
        )
    except ProtocolError:
        return None
    return subscription.topics
