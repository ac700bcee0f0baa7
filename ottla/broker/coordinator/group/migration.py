"""A classic group becomes a consumer group and the other way round, while it is in use (KIP-848).

A group of consumers is upgraded by the first member that sends ConsumerGroupHeartbeat, and
downgraded when the last such member goes. Offsets stay as they are. Epoch and generation are one
number that goes on, and members have afterwards what they had before.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ottla.broker.coordinator.group import rebalance
from ottla.broker.coordinator.group.classic import CONSUMER_PROTOCOL, ClassicGroup, Member
from ottla.broker.coordinator.group.consumer import (
    ClassicProtocols,
    ConsumerGroup,
    ConsumerMember,
    Owned,
)
from ottla.broker.coordinator.group.embedded import (
    AssignedTopic,
    read_assignment,
    read_subscription,
    read_version,
    write_assignment,
)
from ottla.broker.coordinator.group.modern import FIRST_EPOCH, Target
from ottla.broker.coordinator.group.topics import Topics
from ottla.broker.coordinator.group.turn import TimerKind, Turn
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError


def upgraded(turn: Turn, classic: ClassicGroup) -> ConsumerGroup:
    """The classic group as a consumer group, which nobody knows of yet.

    Raises GROUP_ID_NOT_FOUND, with the reason, if it cannot be one.
    """
    settings = turn.settings
    if not settings.can_upgrade:
        raise _refused(classic, "online upgrade is disabled")
    if not classic.uses_consumer_protocol:
        raise _refused(classic, "the group does not use the consumer embedded protocol")
    if len(classic.members) > settings.consumer.max_size:
        raise _refused(classic, "the group size exceeds the consumer group maximum size")
    group = ConsumerGroup(classic.group_id)
    # A member's epoch is never 0, even if nobody has been in a generation: 0 asks to join.
    group.epoch = max(classic.generation, FIRST_EPOCH)
    group.target = Target(classic.generation)
    for member in classic.members.values():
        try:
            _take_over(turn.shard.topics, classic, member, group)
        except ProtocolError as error:
            raise _refused(classic, "the embedded consumer protocol is malformed") from error
    group.metadata_hash = turn.shard.topics.group_hash(group.wanted_names)
    return group


def upgrade(turn: Turn, classic: ClassicGroup, group: ConsumerGroup) -> None:
    """Puts what `upgraded` made in the place of the classic group."""
    for member in classic.members.values():
        turn.refuse_waiting(
            classic, member, ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id
        )
    for key in classic.tombstone_keys():
        turn.write(key, None)
    members = list(group.members.values())
    for one in members:
        turn.write(*group.member_record(one))
    turn.write(*group.epoch_record(group.epoch, group.metadata_hash))
    for one in members:
        turn.write(*group.target_record(one.member_id, group.target_of[one.member_id]))
    turn.write(*group.target_epoch_record(group.target))
    for one in members:
        turn.write(*group.current_record(one))
        assert one.classic is not None
        timer = (TimerKind.SESSION, group.group_id, one.member_id)
        turn.start(timer, one.classic.session_timeout_ms)
    turn.tell(
        "group_upgraded",
        group.group_id,
        "a member of the consumer protocol joined",
        epoch=group.epoch,
        members=len(members),
    )


def can_downgrade(turn: Turn, group: ConsumerGroup, without: Collection[str]) -> bool:
    """Whether the group is to be a classic one when these members are gone: there are others, and
    they all use the classic protocol."""
    left = [one for one in group.members.values() if one.member_id not in without]
    return bool(left) and _may_be_classic(turn, left)


def can_downgrade_for(turn: Turn, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
    """The same if a static member of the consumer protocol comes back with the classic one."""
    others = [one for one in group.members.values() if one is not replaced]
    return replaced.classic is None and _may_be_classic(turn, others)


def _may_be_classic(turn: Turn, left: Collection[ConsumerMember]) -> bool:
    return (
        all(one.classic is not None for one in left)
        and turn.settings.can_downgrade
        and len(left) <= turn.settings.max_size
    )


def downgrade(
    turn: Turn, group: ConsumerGroup, *, without: Collection[str], reason: str | None
) -> None:
    """Makes a classic group of the members that are left; it rebalances if there is a `reason`.

    Its generation is the epoch of the target, which is what members have who are up to date: they
    are told to join again, and need not give up what they have as if they were fenced.
    """
    left = [one for one in group.members.values() if one.member_id not in without]
    classic = ClassicGroup(group.group_id, turn.now.wall_ms)
    assignments: dict[str, bytes] = {}
    for one in left:
        assert one.classic is not None, one
        member = Member(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            one.rebalance_timeout_ms,
            one.classic.session_timeout_ms,
            dict(one.classic.protocols),
        )
        classic.add(member, CONSUMER_PROTOCOL)
        assignments[one.member_id] = embedded_assignment(turn.shard.topics, _with_all(one))
    classic.generation = group.target.epoch
    classic.protocol = classic.select_protocol()
    if reason is not None:
        # By this a restart knows that the rebalance has yet to come: nobody has dealt out what
        # those had who are gone, and who is left has nothing to notice it by.
        classic.leader = None
    for member_id in group.members:
        turn.cancel_member_timers(group.group_id, member_id)
    for key in list(group.tombstone_keys()):
        turn.write(key, None)
    # Its record has of each member the one protocol that is chosen; all are known while it lives.
    turn.shard.groups[group.group_id] = classic
    turn.write_group(classic, assignments)
    # Whoever comes next is no leader by that.
    classic.leader = next(iter(classic.members))
    for member in classic.members.values():
        turn.restart_session(classic, member)
    turn.tell(
        "group_downgraded",
        group.group_id,
        "no member of the consumer protocol is left",
        generation=classic.generation,
        members=len(classic.members),
    )
    if reason is not None:
        rebalance.prepare(turn, classic, reason)


def _with_all(member: ConsumerMember) -> ConsumerMember:
    """With what it is to give up, and may read still."""
    assigned = {topic_id: dict(epochs) for topic_id, epochs in member.assigned.items()}
    for topic_id, epochs in member.revoking.items():
        assigned.setdefault(topic_id, {}).update(epochs)
    return replace(member, assigned=assigned)


def embedded_assignment(topics: Topics, member: ConsumerMember) -> bytes:
    """What a member of the classic protocol has, in the version of its subscription."""
    assert member.classic is not None, member
    named: list[AssignedTopic] = []
    for topic_id, epochs in member.assigned.items():
        topic = topics.of_id(topic_id)
        if topic is not None:
            named.append(AssignedTopic(topic.name, sorted(epochs)))
    try:
        version = read_version(member.classic.protocols[0][1])
    except ProtocolError:
        # It was taken in by another of its protocols; every consumer reads the first version.
        version = 0
    return write_assignment(named, version)


def _take_over(topics: Topics, classic: ClassicGroup, member: Member, group: ConsumerGroup) -> None:
    protocol = classic.protocol
    if protocol is None or protocol not in member.protocols:
        # It has never been in a generation: what it likes best says what it wants.
        protocol = next(iter(member.protocols))
    subscription = read_subscription(member.protocols[protocol])
    owned: dict[bytes, dict[int, int]] = {}
    if member.assignment:
        assignment = read_assignment(member.assignment)
        if assignment.user_data:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {classic.group_id} to consumer group because an"
                " unsupported custom assignor is in use. Please refer to the documentation or"
                " switch to a default assignor before re-attempting the upgrade.",
            )
        for one in assignment.assigned_partitions:
            topic = topics.named(one.topic)
            if topic is not None:
                owned[topic.topic_id] = dict.fromkeys(one.partitions, classic.generation)
    group.target_of[member.member_id] = _without_epochs(owned)
    group.put_member(
        replace(
            ConsumerMember(member_id=member.member_id),
            instance_id=member.instance_id,
            rack_id=subscription.rack_id or None,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_names=frozenset(subscription.topics),
            epoch=classic.generation,
            previous_epoch=classic.generation,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicProtocols(member.session_timeout_ms, tuple(member.protocols.items())),
            assigned=owned,
        )
    )


def _without_epochs(owned: Owned) -> dict[bytes, frozenset[int]]:
    return {topic_id: frozenset(epochs) for topic_id, epochs in owned.items() if epochs}


def _refused(classic: ClassicGroup, reason: str) -> KafkaError:
    said = f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, said)
