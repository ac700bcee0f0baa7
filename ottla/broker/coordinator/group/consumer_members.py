"""How members of a consumer group change, go and are thrown out, whatever made it happen."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ottla.broker.coordinator.group import migration
from ottla.broker.coordinator.group.assignors import CONSUMER_ASSIGNORS
from ottla.broker.coordinator.group.consumer import AWAY_EPOCH, ConsumerGroup, ConsumerMember
from ottla.broker.coordinator.group.consumer_regex import forget_unwanted
from ottla.broker.coordinator.group.modern import JOIN_EPOCH, NOTHING, MemberState
from ottla.broker.coordinator.group.reconciling import Aim, Reported, reconcile
from ottla.broker.coordinator.group.targets import Assignor, bump_if_due, retarget_if_due
from ottla.broker.coordinator.group.turn import Timer, TimerKind, Turn


def advance(
    turn: Turn,
    group: ConsumerGroup,
    member: ConsumerMember,
    reported: Reported | None,
    *,
    reason: str | None,
    has_changed: bool,
) -> ConsumerMember:
    """What follows when a member has been heard of: maybe a group epoch, for this `reason` or since
    the topics have changed, maybe a target for it, maybe a step of this member towards it."""
    retarget(turn, group, reason)
    return step(turn, group, member, reported, has_changed=has_changed)


def retarget(turn: Turn, group: ConsumerGroup, reason: str | None) -> None:
    """A group epoch if it is time for one, and a target for it if it is time for that."""
    bump_if_due(turn, group, reason)
    if group.target.epoch < group.epoch:
        interval_ms = turn.shard.intervals_of(group).assignment_interval_ms
        retarget_if_due(turn, group, assignor_of(turn, group), interval_ms=interval_ms)


def step(
    turn: Turn,
    group: ConsumerGroup,
    member: ConsumerMember,
    reported: Reported | None,
    *,
    has_changed: bool,
) -> ConsumerMember:
    """The member after one step towards the target there is."""
    if not has_changed and member.is_reconciled_to(group.target.epoch):
        return member
    topics = turn.shard.topics
    wanted = map(topics.named, group.names_wanted_by(member))
    aim = Aim(
        group.target.epoch,
        group.target_of.get(member.member_id, NOTHING),
        frozenset(topic.topic_id for topic in wanted if topic is not None),
        group.owner_of,
    )
    after = reconcile(member, aim, reported, has_changed=has_changed)
    if after != member:
        turn.write(*group.current_record(after))
        if after.classic is None:
            _await_revocation(turn, group, after)
    return after


def assignor_of(turn: Turn, group: ConsumerGroup) -> Assignor:
    return CONSUMER_ASSIGNORS[preferred_assignor(turn.settings.assignors, group)]


def preferred_assignor(offered: Collection[str], group: ConsumerGroup) -> str:
    """The one that most members ask for, or the first on offer if none does."""
    votes: dict[str, int] = {}
    for member in group.members.values():
        if member.server_assignor is not None and member.server_assignor in offered:
            votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
    return max(votes, key=lambda name: votes[name]) if votes else next(iter(offered))


def replace_static(
    turn: Turn, group: ConsumerGroup, old: ConsumerMember, member_id: str
) -> ConsumerMember:
    """A static member has come back: it has what it had, by another name, and begins anew."""
    turn.tell(
        "group_static_member_replaced",
        group.group_id,
        "the instance joined anew",
        instance_id=old.instance_id,
        old_member_id=old.member_id,
        member_id=member_id,
    )
    target = group.target_of.get(old.member_id, NOTHING)
    _remove(turn, group, old.member_id)
    new = replace(old, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    turn.write(*group.member_record(new))
    turn.write(*group.target_record(member_id, target))
    turn.write(*group.current_record(new))
    return new


def leave_for_a_while(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """A static member goes and keeps its partitions, until it comes back or its session is over."""
    away = replace(
        member,
        epoch=AWAY_EPOCH,
        assigned={
            topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()
        },
        revoking={},
    )
    turn.write(*group.current_record(away))
    _await_revocation(turn, group, away)
    turn.tell(
        "group_member_left",
        group.group_id,
        "it is static, and says that it will be back",
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
    )


def take_out(turn: Turn, group: ConsumerGroup, members: Mapping[str, str]) -> None:
    """Members are gone: by member id, and why. The others share what they had; if all of those use
    the classic protocol the group becomes a classic one."""
    if not members:
        return
    reason = "; ".join(f"{member_id} {why}" for member_id, why in members.items())
    if migration.can_downgrade(turn, group, members):
        migration.downgrade(turn, group, without=members, reason=reason)
        return
    for member_id in members:
        _remove(turn, group, member_id)
    forget_unwanted(turn, group)
    bump_if_due(turn, group, reason)


def evict(turn: Turn, group: ConsumerGroup, member: ConsumerMember, reason: str) -> None:
    """Takes a member out against its will."""
    turn.tell(
        "group_member_evicted",
        group.group_id,
        reason,
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        epoch=member.epoch,
    )
    take_out(turn, group, {member.member_id: f"was evicted: {reason}"})


def time_is_up(turn: Turn, group: ConsumerGroup, timer: Timer) -> None:
    """A deadline of a member has come."""
    kind, _, member_id = timer
    member = group.members.get(member_id)
    if member is None:
        return
    match kind:
        case TimerKind.SESSION:
            session_ms = session_timeout_ms(turn, group, member)
            evict(turn, group, member, f"its session of {session_ms} ms is over")
        case TimerKind.REVOKE if member.state is MemberState.UNREVOKED_PARTITIONS:
            reason = f"it did not give up its partitions within {member.rebalance_timeout_ms} ms"
            evict(turn, group, member, reason)
        case TimerKind.MEMBER_JOIN if member.classic is not None:
            evict(turn, group, member, "it was to join again and did not in time")
        case TimerKind.MEMBER_SYNC if member.classic is not None:
            evict(turn, group, member, "it did not send SyncGroup in time")


def loaded(turn: Turn, group: ConsumerGroup) -> None:
    """The group has just been replayed: every member has a session again, and those who are to give
    something up have as long as at first."""
    group.take_stock()
    for member in group.members.values():
        restart_session(turn, group, member)
        if member.classic is None:
            _await_revocation(turn, group, member)


def restart_session(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """The member has just been heard of."""
    session_ms = session_timeout_ms(turn, group, member)
    turn.start((TimerKind.SESSION, group.group_id, member.member_id), session_ms)


def session_timeout_ms(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> int:
    """A member of the classic protocol says how long; else the group's settings do."""
    if member.classic is not None:
        return member.classic.session_timeout_ms
    return turn.shard.intervals_of(group).session_timeout_ms


def _await_revocation(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    timer = (TimerKind.REVOKE, group.group_id, member.member_id)
    if member.state is MemberState.UNREVOKED_PARTITIONS and member.epoch != AWAY_EPOCH:
        turn.start(timer, member.rebalance_timeout_ms)
    else:
        turn.timers.cancel(timer)


def _remove(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    for key in group.member_tombstone_keys(member_id):
        turn.write(key, None)
    turn.cancel_member_timers(group.group_id, member_id)
