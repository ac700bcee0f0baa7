"""A rebalance of a classic group, from its reason to its next generation.

    prepare --all joined, or the time is up--> complete_join --leader's SyncGroup--> stored
       ^                                            |
       +---- a change, a death, a missing Sync -----+

The first rebalance of an empty group waits `group.initial.rebalance.delay.ms` for more members, and
again as often as one came, up to the rebalance timeout (and 50 ms for one that has just been given
its id); every later one ends when all known members have joined again. The rules and their order
are those of Apache Kafka's GroupMetadataManager.

One rule is ours: while newcomers follow one another the generation waits for the next of them, for
three seconds at most. A client that is sent back twice within a second rests for two (librdkafka
does).
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.coordinator.group.classic import ClassicGroup, InitialDelay, Member
from ottla.broker.coordinator.group.settings import SETTLE_MS_MAX
from ottla.broker.coordinator.group.states import State
from ottla.broker.coordinator.group.turn import NO_MEMBER, TimerKind, Turn
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.groups import JoinGroupResponse, SyncGroupResponse

REBALANCING = frozenset({State.PREPARING_REBALANCE})
STATIC_WAIT_MS_MIN = 1_000
"""How soon a group looks again for static members that have not come back, whatever they have set:
at 0 and below it would do nothing else until their sessions end."""


def rebalance(turn: Turn, group: ClassicGroup, reason: str) -> None:
    """Something has changed: begins a rebalance, or sees whether the one under way is over."""
    if group.state in REBALANCING:
        complete_if_joined(turn, group)
    else:
        prepare(turn, group, reason)


def prepare(turn: Turn, group: ClassicGroup, reason: str) -> None:
    """Every member is to join again."""
    if group.state is State.COMPLETING_REBALANCE:
        _refuse_syncs(turn, group)
    group.pending_sync.clear()
    turn.timers.cancel((TimerKind.SYNC, group.group_id, NO_MEMBER))
    is_initial = group.state is State.EMPTY
    group.become(State.PREPARING_REBALANCE, turn.now.wall_ms)
    turn.tell(
        "group_rebalances",
        group.group_id,
        reason,
        generation=group.generation,
        members=len(group.members),
    )
    if is_initial:
        delay_ms = turn.settings.initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.initial_delay = InitialDelay(delay_ms, remaining_ms)
        turn.start((TimerKind.JOIN, group.group_id, NO_MEMBER), delay_ms)
    else:
        complete_if_joined(turn, group)
        if group.state in REBALANCING:
            turn.start((TimerKind.JOIN, group.group_id, NO_MEMBER), group.rebalance_timeout_ms)


def complete_if_joined(turn: Turn, group: ClassicGroup) -> None:
    """Ends the join phase if nobody is missing, and no more newcomers are likely; not the first
    one, which waits for them in its own way."""
    if group.state not in REBALANCING or group.initial_delay is not None or not group.all_joined:
        return
    wait_ms = _settles_in_ms(turn, group)
    if wait_ms > 0:
        turn.start((TimerKind.SETTLE, group.group_id, NO_MEMBER), wait_ms)
    else:
        complete_join(turn, group)


def join_time_is_up(turn: Turn, group: ClassicGroup) -> None:
    """The join phase has taken as long as it may, or its initial delay is over."""
    if group.state not in REBALANCING:
        return
    delay = group.initial_delay
    if delay is None or delay.remaining_ms == 0:
        complete_join(turn, group)
        return
    if delay.has_new_member:
        wanted_ms = turn.settings.initial_rebalance_delay_ms
    elif delay.expects_member:
        wanted_ms = turn.settings.newcomers_ms
    else:
        complete_join(turn, group)
        return
    step_ms = min(wanted_ms, delay.remaining_ms)
    group.initial_delay = InitialDelay(step_ms, max(delay.remaining_ms - delay.step_ms, 0))
    turn.start((TimerKind.JOIN, group.group_id, NO_MEMBER), step_ms)


def complete_join(turn: Turn, group: ClassicGroup) -> None:
    """Whoever has joined is the next generation; dynamic members that have not are out."""
    turn.timers.cancel((TimerKind.JOIN, group.group_id, NO_MEMBER))
    turn.timers.cancel((TimerKind.SETTLE, group.group_id, NO_MEMBER))
    group.initial_delay = None
    group.settles_since_ms = None
    for member in list(group.members.values()):
        if member.join_reply is None and member.instance_id is None:
            turn.evict(group, member, "it did not join in time")
    if not group.members:
        _become_empty(turn, group)
    elif not group.elect_leader():
        # Only static members are left, and none has come back yet.
        wait_ms = max(group.rebalance_timeout_ms, STATIC_WAIT_MS_MIN)
        turn.start((TimerKind.JOIN, group.group_id, NO_MEMBER), wait_ms)
    else:
        _begin_generation(turn, group)


def sync_time_is_up(turn: Turn, group: ClassicGroup) -> None:
    """Who has not fetched its assignment is out, and the rest rebalances."""
    if group.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not group.pending_sync:
        return
    missing = [group.members[member_id] for member_id in group.pending_sync]
    for member in missing:
        turn.evict(group, member, "it did not send SyncGroup in time")
    names = ", ".join(member.member_id for member in missing)
    prepare(turn, group, f"no SyncGroup came from {names}")


def answer_joined(
    turn: Turn, group: ClassicGroup, member: Member, *, as_leader: bool, skip: bool = False
) -> JoinGroupResponse:
    """The current generation as one member is told it."""
    members = []
    if as_leader:
        protocol = group.protocol or ""
        ordered: Iterable[Member] = group.members.values()
        if group.static_members:
            # Static ones first: kafka-python's range assignor leaves a member out where they stand
            # between others. Kafka's own order is that of a hash map.
            ordered = sorted(ordered, key=lambda one: one.instance_id is None)
        members = [
            JoinGroupResponse.JoinGroupResponseMember(
                one.member_id, one.instance_id, one.protocols[protocol]
            )
            for one in ordered
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        skip_assignment=skip,
        member_id=member.member_id,
        members=members,
    )


def join_refused(code: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=int(code), protocol_name=None, member_id=member_id)


def _settles_in_ms(turn: Turn, group: ClassicGroup) -> int:
    """How long to wait for one more newcomer; nobody waits in a group that all have left."""
    now_ms = turn.now.monotonic_ms
    wait_ms = group.settles_in_ms(now_ms, turn.settings.newcomers_ms)
    if not wait_ms or not group.members:
        return 0
    if group.settles_since_ms is None:
        group.settles_since_ms = now_ms
    return min(wait_ms, group.settles_since_ms + SETTLE_MS_MAX - now_ms)


def _refuse_syncs(turn: Turn, group: ClassicGroup) -> None:
    """The generation is over before it had an assignment."""
    for member in group.members.values():
        member.assignment = b""
        if member.sync_reply is not None:
            reply, member.sync_reply = member.sync_reply, None
            code = int(ErrorCode.REBALANCE_IN_PROGRESS)
            turn.answer(reply, SyncGroupResponse(error_code=code))
            turn.restart_session(group, member)


def _become_empty(turn: Turn, group: ClassicGroup) -> None:
    group.generation += 1
    group.protocol = None
    group.leader = None
    turn.write_group(group, {})
    turn.tell("group_empty", group.group_id, "no member is left", generation=group.generation)


def _begin_generation(turn: Turn, group: ClassicGroup) -> None:
    group.next_generation(turn.now.wall_ms)
    for member in group.members.values():
        reply = group.take_join_reply(member)
        if reply is not None:
            is_leader = member.member_id == group.leader
            # Its assignment will be written, the generation by itself is not.
            turn.answer_now(reply, answer_joined(turn, group, member, as_leader=is_leader))
        turn.restart_session(group, member)
        member.is_new = False
    turn.start((TimerKind.SYNC, group.group_id, NO_MEMBER), group.rebalance_timeout_ms)
    turn.tell(
        "group_generation",
        group.group_id,
        "all members have joined",
        generation=group.generation,
        members=len(group.members),
        leader=group.leader,
        protocol=group.protocol,
    )
