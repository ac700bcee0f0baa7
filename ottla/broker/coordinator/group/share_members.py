"""How members of a share group take up their target, go and are thrown out, and how the partitions
that they want come to have a state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ottla.broker.coordinator.group.assignors.simple import assign_simply
from ottla.broker.coordinator.group.modern import NOTHING, MemberState
from ottla.broker.coordinator.group.share import Partitions, ShareGroup, ShareMember
from ottla.broker.coordinator.group.targets import bump_if_due, retarget_if_due
from ottla.broker.coordinator.group.turn import Timer, TimerKind, Turn


def advance(
    turn: Turn,
    group: ShareGroup,
    member: ShareMember,
    *,
    reason: str | None,
    has_changed: bool,
    may_assign: bool,
    at_once: bool = False,
) -> ShareMember:
    """What follows when a member has been heard of: maybe a group epoch, maybe a target for it, and
    this member takes up what there is. `at_once`: without regard to the assignment interval."""
    if reason is None and group.target.epoch >= group.epoch and _has_unassigned(turn, group):
        reason = "partitions can be delivered now"
    bump_if_due(turn, group, reason)
    if may_assign:
        initialized = group.state_of.initialized
        interval_ms = turn.shard.intervals_of(group).assignment_interval_ms
        retarget_if_due(
            turn,
            group,
            assign_simply,
            interval_ms=0 if at_once else interval_ms,
            assignable=lambda topic_id, count: sorted(
                index for index in initialized.get(topic_id, ()) if index < count
            ),
        )
    after = _reconciled(turn, group, member, has_changed=has_changed)
    if after != member:
        turn.write(*group.current_record(after))
    return after


def begin_initializing(turn: Turn, group: ShareGroup) -> Partitions:
    """The partitions that members want and that have no state yet are noted; who is to ask the
    share coordinator for them now. What was asked for and not answered is asked for again after
    group.share.initialize.retry.interval.ms, and not before: an admin may have asked, who said
    where the group is to begin."""
    now_ms = turn.now.monotonic_ms
    retry_ms = turn.settings.share_retry_ms
    wanted: dict[bytes, frozenset[int]] = {}
    names: dict[bytes, str] = {}
    for name in sorted(group.wanted_names):
        topic = turn.shard.topics.named(name)
        if topic is None:
            continue
        missing = frozenset(range(topic.partition_count)) - group.state_of.initialized.get(
            topic.topic_id, frozenset()
        )
        asked_ms = group.asked_ms.get(topic.topic_id)
        if asked_ms is not None and now_ms - asked_ms < retry_ms:
            missing -= group.state_of.initializing.get(topic.topic_id, frozenset())
        if missing:
            wanted[topic.topic_id] = missing
            names[topic.topic_id] = name
    note_asked(turn, group, wanted)
    state_of = group.state_of.with_initializing(wanted, names)
    if state_of != group.state_of:
        turn.write(*group.state_record(state_of))
    return wanted


def note_asked(turn: Turn, group: ShareGroup, topic_ids: Collection[bytes]) -> None:
    """The share coordinator is being asked for these now."""
    for topic_id in topic_ids:
        group.asked_ms[topic_id] = turn.now.monotonic_ms


def note_initialized(turn: Turn, group: ShareGroup, done: Partitions) -> None:
    """The share coordinator has a state for these."""
    state_of = group.state_of.with_initialized(done)
    for topic_id in done:
        if topic_id not in state_of.initializing:
            group.asked_ms.pop(topic_id, None)
    if state_of != group.state_of:
        turn.write(*group.state_record(state_of))


def note_not_initialized(group: ShareGroup, topic_ids: Collection[bytes]) -> None:
    """The share coordinator could not be asked: the next heartbeat asks for what has no state."""
    for topic_id in topic_ids:
        group.asked_ms.pop(topic_id, None)


def take_out(turn: Turn, group: ShareGroup, gone: Mapping[str, str]) -> None:
    """Members leave for good, each for its reason."""
    for member_id in gone:
        for key in group.member_tombstone_keys(member_id):
            turn.write(key, None)
        turn.cancel_member_timers(group.group_id, member_id)
    shown = ", ".join(f"{member_id} {reason}" for member_id, reason in gone.items())
    bump_if_due(turn, group, shown)


def time_is_up(turn: Turn, group: ShareGroup, timer: Timer) -> None:
    kind, _, member_id = timer
    member = group.members.get(member_id)
    if member is None or kind is not TimerKind.SESSION:
        return
    turn.tell(
        "group_member_evicted",
        group.group_id,
        "its session timed out",
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        epoch=member.epoch,
    )
    take_out(turn, group, {member.member_id: "was silent for too long"})


def loaded(turn: Turn, group: ShareGroup) -> None:
    for member in group.members.values():
        restart_session(turn, group, member)


def restart_session(turn: Turn, group: ShareGroup, member: ShareMember) -> None:
    """The member has just been heard of."""
    timeout_ms = turn.shard.intervals_of(group).session_timeout_ms
    turn.start((TimerKind.SESSION, group.group_id, member.member_id), timeout_ms)


def topics_deleted(turn: Turn, group: ShareGroup) -> None:
    """What is kept of topics that are gone is forgotten, as the share coordinator does."""
    state_of = group.state_of
    known = {*state_of.initializing, *state_of.initialized, *state_of.deleting}
    gone = frozenset(one for one in known if turn.shard.topics.of_id(one) is None)
    if gone:
        turn.write(*group.state_record(state_of.without_topics(gone)))


def _reconciled(
    turn: Turn, group: ShareGroup, member: ShareMember, *, has_changed: bool
) -> ShareMember:
    target_epoch = group.target.epoch
    if member.epoch == target_epoch and not has_changed:
        return member
    wanted = {
        topic.topic_id
        for topic in map(turn.shard.topics.named, member.subscribed_names)
        if topic is not None
    }
    target = group.target_of.get(member.member_id, NOTHING)
    assigned = {topic_id: parts for topic_id, parts in target.items() if topic_id in wanted}
    epochs = (member.epoch, member.previous_epoch)
    if member.epoch != target_epoch:
        epochs = (target_epoch, member.epoch)
    return replace(
        member,
        epoch=epochs[0],
        previous_epoch=epochs[1],
        state=MemberState.STABLE,
        assigned=assigned,
    )


def _has_unassigned(turn: Turn, group: ShareGroup) -> bool:
    """Whether a partition could be delivered that somebody wants and nobody has."""
    initialized = group.state_of.initialized
    if not initialized or not group.members:
        return False
    topics = turn.shard.topics
    for name in group.wanted_names:
        topic = topics.named(name)
        if topic is None:
            continue
        ready = initialized.get(topic.topic_id)
        if ready and not ready <= _assigned(group, topic.topic_id):
            return True
    return False


def _assigned(group: ShareGroup, topic_id: bytes) -> frozenset[int]:
    nothing: frozenset[int] = frozenset()
    return nothing.union(*(one.get(topic_id, nothing) for one in group.target_of.values()))
