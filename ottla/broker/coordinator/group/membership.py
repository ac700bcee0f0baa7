"""SyncGroup, Heartbeat, LeaveGroup, and the end of a silent member's session."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.coordinator.group.classic import ClassicGroup, Member
from ottla.broker.coordinator.group.joining import NO_MEMBER_ID, Caller, said
from ottla.broker.coordinator.group.rebalance import (
    complete_if_joined,
    join_time_is_up,
    prepare,
    rebalance,
    sync_time_is_up,
)
from ottla.broker.coordinator.group.states import ON_HEARTBEAT, ON_SYNC, State
from ottla.broker.coordinator.group.turn import Timer, TimerKind, Turn
from ottla.broker.coordinator.outcome import Reply
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

SEVERAL_LEAVE_SINCE_VERSION = 3
PROTOCOL_NAMED_SINCE_VERSION = 5

Leaver = LeaveGroupRequest.MemberIdentity
Left = LeaveGroupResponse.MemberResponse


def names_its_protocol(request: SyncGroupRequest, version: int) -> bool:
    """Whether a SyncGroup has what its version must have, whatever group it is for."""
    names = (request.protocol_type, request.protocol_name)
    return version < PROTOCOL_NAMED_SINCE_VERSION or None not in names


def sync(turn: Turn, request: SyncGroupRequest, reply: Reply) -> None:
    """One SyncGroup: the leader's brings the assignment, every other waits for it."""
    try:
        group, refusal = _check_sync(turn, request)
    except KafkaError as error:
        turn.answer(reply, SyncGroupResponse(error_code=int(error.code)))
        return
    if refusal:
        turn.answer(reply, SyncGroupResponse(error_code=int(refusal)))
        return
    member = group.members[request.member_id]
    group.pending_sync.pop(member.member_id, None)
    if group.state is State.STABLE:
        turn.restart_session(group, member)
        _answer_assignment(turn, group, member, reply)
        return
    if member.sync_reply is not None:
        # It asks again on another connection; nobody reads the first answer.
        code = int(ErrorCode.REBALANCE_IN_PROGRESS)
        turn.answer(member.sync_reply, SyncGroupResponse(error_code=code))
    member.sync_reply = reply
    if member.member_id == group.leader:
        _store_assignment(turn, group, request)


def heartbeat(turn: Turn, request: HeartbeatRequest) -> ErrorCode:
    """One Heartbeat; REBALANCE_IN_PROGRESS asks the member to join again."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    try:
        group = turn.shard.group_of_member(request.group_id)
        member = group.check_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        _tell_if_fenced(turn, request, error, "Heartbeat")
        return error.code
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    turn.restart_session(group, member)
    return ON_HEARTBEAT[group.state]


def leave(
    turn: Turn,
    caller: Caller,
    request: LeaveGroupRequest,
    leave_all: Callable[[list[Leaver]], list[ErrorCode]],
) -> LeaveGroupResponse:
    """One LeaveGroup; before version 3 it has one member, whose error is that of the request.
    `leave_all` is what the group does."""
    if not request.group_id:
        return LeaveGroupResponse(error_code=int(ErrorCode.INVALID_GROUP_ID))
    leavers = request.members
    if caller.version < SEVERAL_LEAVE_SINCE_VERSION:
        leavers = [Leaver(request.member_id)]
    codes = leave_all(leavers)
    if caller.version < SEVERAL_LEAVE_SINCE_VERSION:
        return LeaveGroupResponse(error_code=int(codes[0]))
    return LeaveGroupResponse(
        members=[
            Left(leaver.member_id, leaver.group_instance_id, int(code))
            for leaver, code in zip(leavers, codes, strict=True)
        ]
    )


def leave_classic(turn: Turn, group: ClassicGroup, leavers: list[Leaver]) -> list[ErrorCode]:
    """Takes out those who leave; those who are left rebalance once."""
    codes = [_leave_one(turn, group, leaver) for leaver in leavers]
    gone = [
        leaver.group_instance_id or leaver.member_id
        for leaver, code in zip(leavers, codes, strict=True)
        if not code
    ]
    if gone:
        _go_on_without(turn, group, f"{', '.join(gone)} left")
    return codes


def time_is_up(turn: Turn, group: ClassicGroup, timer: Timer) -> None:
    """A deadline of the group has come."""
    kind, _, member_id = timer
    match kind:
        case TimerKind.JOIN:
            join_time_is_up(turn, group)
        case TimerKind.SYNC:
            sync_time_is_up(turn, group)
        case TimerKind.SETTLE:
            complete_if_joined(turn, group)
        case TimerKind.SESSION:
            session_is_over(turn, group, member_id)


def loaded(turn: Turn, group: ClassicGroup) -> None:
    """The group has just been replayed: sessions begin anew, and if it is over its size it
    rebalances, as it does if it was made of a consumer group and has no generation of its own."""
    for member in group.members.values():
        turn.restart_session(group, member)
    if group.members and group.leader is None:
        prepare(turn, group, "the group was loaded, and was downgraded without a rebalance since")
    elif len(group.members) > turn.settings.max_size:
        prepare(turn, group, "the group was loaded and is over group.max.size")


def unloaded(turn: Turn, group: ClassicGroup) -> None:
    """This broker coordinates the group no more: whoever waits is sent away."""
    for member in group.members.values():
        turn.refuse_waiting(group, member, ErrorCode.NOT_COORDINATOR, member_id=member.member_id)


def session_is_over(turn: Turn, group: ClassicGroup, member_id: str) -> None:
    """Nothing was heard of a member for its session timeout."""
    if member_id in group.pending_join:
        group.remove(member_id)
        reason = "it was given a member id and did not come back with it"
        turn.tell("group_member_evicted", group.group_id, reason, member_id=member_id)
        complete_if_joined(turn, group)
        return
    member = group.members.get(member_id)
    # Who waits for an answer of ours need not send heartbeats; its session begins with the answer.
    if member is not None and not member.awaits_answer:
        reason = f"its session of {member.session_timeout_ms} ms is over"
        if member.is_new:
            reason = "it waited too long for its first generation"
        turn.evict(group, member, reason)
        _go_on_without(turn, group, f"{member_id} was evicted: {reason}")


def _check_sync(turn: Turn, request: SyncGroupRequest) -> tuple[ClassicGroup, ErrorCode]:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    group = turn.shard.group_of_member(request.group_id)
    try:
        group.check_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        _tell_if_fenced(turn, request, error, "SyncGroup")
        raise
    if request.generation_id != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    types, names = (None, group.protocol_type), (None, group.protocol)
    if request.protocol_type not in types or request.protocol_name not in names:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return group, ON_SYNC[group.state]


def _store_assignment(turn: Turn, group: ClassicGroup, request: SyncGroupRequest) -> None:
    """The leader has assigned; a member that it left out has nothing to do."""
    brought = {one.member_id: one.assignment for one in request.assignments}
    turn.write_group(group, brought)
    for member in group.members.values():
        if member.sync_reply is not None:
            reply, member.sync_reply = member.sync_reply, None
            _answer_assignment(turn, group, member, reply)
            turn.restart_session(group, member)
    turn.tell(
        "group_stable",
        group.group_id,
        "the leader has assigned",
        generation=group.generation,
        members=len(group.members),
    )


def _answer_assignment(turn: Turn, group: ClassicGroup, member: Member, reply: Reply) -> None:
    """The assignment when it is durable. If the next rebalance has begun by then the member is told
    so instead, as it is by Kafka: else it would hear of it by its next heartbeat only."""
    generation = group.generation
    assignment = SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )

    def overtaken() -> SyncGroupResponse | None:
        if group.state is State.STABLE and group.generation == generation:
            return None
        return SyncGroupResponse(error_code=int(ErrorCode.REBALANCE_IN_PROGRESS))

    turn.answer(reply, assignment, overtaken=overtaken)


def _leave_one(turn: Turn, group: ClassicGroup, leaver: Leaver) -> ErrorCode:
    member_id, instance_id = leaver.member_id, leaver.group_instance_id
    if member_id == NO_MEMBER_ID:
        # An administrator names a static member by its instance.
        known = None if instance_id is None else group.static_members.get(instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = known
    elif member_id in group.pending_join:
        group.remove(member_id)
        turn.timers.cancel((TimerKind.SESSION, group.group_id, member_id))
        return ErrorCode.NONE
    try:
        member = group.check_member(member_id, instance_id)
    except KafkaError as error:
        if error.code is ErrorCode.FENCED_INSTANCE_ID:
            turn.shard.tell_fenced(turn, group, member_id, instance_id, "LeaveGroup")
        return error.code
    turn.tell(
        "group_member_left",
        group.group_id,
        said(leaver.reason),
        member_id=member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
    )
    turn.forget(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
    return ErrorCode.NONE


def _go_on_without(turn: Turn, group: ClassicGroup, reason: str) -> None:
    """Members are gone: those who are left rebalance, or are complete now."""
    if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
        rebalance(turn, group, reason)
    else:
        complete_if_joined(turn, group)


def _tell_if_fenced(
    turn: Turn, request: SyncGroupRequest | HeartbeatRequest, error: KafkaError, api: str
) -> None:
    if error.code is ErrorCode.FENCED_INSTANCE_ID:
        group = turn.shard.group_of_member(request.group_id)
        turn.shard.tell_fenced(turn, group, request.member_id, request.group_instance_id, api)
