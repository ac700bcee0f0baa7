"""The classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup of members
that have not changed over yet (KIP-848).

Such a member is told nothing by its heartbeats but that it is to join again: its JoinGroup is the
step towards the target that another member's ConsumerGroupHeartbeat would be, its generation is
its member epoch, and SyncGroup fetches what it has. Nobody leads, and nobody waits for the others.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.broker.coordinator.group import migration
from ottla.broker.coordinator.group.classic import CONSUMER_PROTOCOL
from ottla.broker.coordinator.group.consumer import (
    NO_REGEX,
    ClassicProtocols,
    ConsumerGroup,
    ConsumerMember,
)
from ottla.broker.coordinator.group.consumer_heartbeat import check_incarnation, check_room
from ottla.broker.coordinator.group.consumer_members import (
    advance,
    replace_static,
    restart_session,
    retarget,
    step,
    take_out,
)
from ottla.broker.coordinator.group.consumer_regex import forget_unwanted
from ottla.broker.coordinator.group.embedded import read_subscription, reported_by
from ottla.broker.coordinator.group.joining import (
    MEMBER_ID_REQUIRED_SINCE_VERSION,
    NO_MEMBER_ID,
    Join,
    said,
)
from ottla.broker.coordinator.group.modern import NOTHING, MemberState
from ottla.broker.coordinator.group.rebalance import join_refused
from ottla.broker.coordinator.group.reconciling import Reported
from ottla.broker.coordinator.group.targets import bump_if_due
from ottla.broker.coordinator.group.turn import TimerKind, Turn
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.messages.groups import (
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)


def join(turn: Turn, group: ConsumerGroup, asked: Join) -> None:
    """One JoinGroup; it is answered at once."""
    member_id = asked.request.member_id
    try:
        response = _join(turn, group, asked)
    except KafkaError as error:
        _tell_fenced(turn, group, error, member_id, asked.request.group_instance_id, "JoinGroup")
        is_unreadable = error.code is ErrorCode.UNKNOWN_SERVER_ERROR
        response = join_refused(error.code, NO_MEMBER_ID if is_unreadable else member_id)
    turn.answer(asked.reply, response)


def sync(turn: Turn, group: ConsumerGroup, request: SyncGroupRequest) -> SyncGroupResponse:
    """What the member has, as it is told in the classic protocol."""
    try:
        return _sync(turn, group, request)
    except KafkaError as error:
        _tell_fenced(turn, group, error, request.member_id, request.group_instance_id, "SyncGroup")
        return SyncGroupResponse(error_code=int(error.code))


def _sync(turn: Turn, group: ConsumerGroup, request: SyncGroupRequest) -> SyncGroupResponse:
    member = _known(group, request.member_id, request.group_instance_id, request.generation_id)
    assert member.classic is not None
    types, names = (None, CONSUMER_PROTOCOL), (None, member.classic.chosen)
    if request.protocol_type not in types or request.protocol_name not in names:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.target.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _await_join(turn, group, member)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    turn.timers.cancel((TimerKind.MEMBER_SYNC, group.group_id, member.member_id))
    restart_session(turn, group, member)
    return SyncGroupResponse(
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=member.classic.chosen,
        assignment=migration.embedded_assignment(turn.shard.topics, member),
    )


def heartbeat(turn: Turn, group: ConsumerGroup, request: HeartbeatRequest) -> ErrorCode:
    """REBALANCE_IN_PROGRESS if there is something to give up or to take up."""
    try:
        member = _known(group, request.member_id, request.group_instance_id, request.generation_id)
    except KafkaError as error:
        _tell_fenced(turn, group, error, request.member_id, request.group_instance_id, "Heartbeat")
        return error.code
    restart_session(turn, group, member)
    _retarget_if_alone(turn, group)
    if (
        member.epoch < group.target.epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (
            member.state is MemberState.UNRELEASED_PARTITIONS
            and not _waits_for_others(group, member)
        )
    ):
        _await_join(turn, group, member)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave(
    turn: Turn, group: ConsumerGroup, leavers: list[LeaveGroupRequest.MemberIdentity]
) -> list[ErrorCode]:
    """Takes out those who leave, all at once; members of either protocol may be named."""
    codes: list[ErrorCode] = []
    gone: dict[str, str] = {}
    for leaver in leavers:
        try:
            if leaver.group_instance_id is None:
                member = group.known_member(leaver.member_id)
            else:
                static = group.static_member(leaver.group_instance_id)
                member_id = leaver.member_id
                if member_id == NO_MEMBER_ID and static is not None:
                    # An administrator names a static member by its instance.
                    member_id = static.member_id
                member = check_incarnation(static, leaver.group_instance_id, member_id)
        except KafkaError as error:
            instance_id = leaver.group_instance_id
            _tell_fenced(turn, group, error, leaver.member_id, instance_id, "LeaveGroup")
            codes.append(error.code)
            continue
        gone[member.member_id] = "left"
        codes.append(ErrorCode.NONE)
        turn.tell(
            "group_member_left",
            group.group_id,
            said(leaver.reason),
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
        )
    take_out(turn, group, gone)
    return codes


def _join(turn: Turn, group: ConsumerGroup, asked: Join) -> JoinGroupResponse:
    request, caller = asked.request, asked.caller
    is_unknown = request.member_id == NO_MEMBER_ID
    member_id = turn.shard.new_short_uuid() if is_unknown else request.member_id
    check_room(turn, group, member_id)
    if not turn.settings.can_upgrade and not turn.settings.can_downgrade:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_consumer = request.protocol_type == CONSUMER_PROTOCOL
    if not is_consumer or not group.supports_any(asked.protocols):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    instance_id = request.group_instance_id
    needs_id = is_unknown and instance_id is None
    if needs_id and caller.version >= MEMBER_ID_REQUIRED_SINCE_VERSION:
        return join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    static = group.static_member(instance_id)
    if instance_id is not None and not is_unknown:
        static = check_incarnation(static, instance_id, member_id)
    try:
        subscription = read_subscription(next(iter(asked.protocols.values())))
    except ProtocolError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
    # Nothing can be refused any more.
    is_downgrade = static is not None and migration.can_downgrade_for(turn, group, static)
    if static is not None and is_unknown:
        before = replace_static(turn, group, static, member_id)
    else:
        before = group.members.get(member_id) or ConsumerMember(member_id=member_id)
    after = _updated(before, asked, subscription)
    if after != before:
        turn.write(*group.member_record(after))
    forget_unwanted(turn, group)
    has_changed = before.subscribed_names != after.subscribed_names or before.regex != after.regex
    reason = f"{member_id} joined with the classic protocol ({asked.reason})"
    reported = reported_by(subscription, turn.shard.topics)
    if is_downgrade:
        return _join_last(turn, group, after, reported, reason if has_changed else None)
    stepped = advance(
        turn,
        group,
        after,
        reported,
        reason=reason if has_changed else None,
        has_changed=has_changed,
    )
    turn.timers.cancel((TimerKind.MEMBER_JOIN, group.group_id, member_id))
    restart_session(turn, group, stepped)
    timer = (TimerKind.MEMBER_SYNC, group.group_id, member_id)
    turn.start(timer, asked.rebalance_timeout_ms)
    return _joined(stepped)


def _join_last(
    turn: Turn,
    group: ConsumerGroup,
    member: ConsumerMember,
    reported: Reported,
    reason: str | None,
) -> JoinGroupResponse:
    """The last member of the consumer protocol was static, and its place is taken by one of the
    classic protocol: the group is a classic one. It rebalances unless everybody has what the target
    gives; nothing else would tell a member of what it is to have yet."""
    bump_if_due(turn, group, reason)
    is_current = group.target.epoch >= group.epoch
    if is_current:
        member = step(turn, group, member, reported, has_changed=False)
    target_epoch = group.target.epoch
    is_settled = all(one.is_reconciled_to(target_epoch) for one in group.members.values())
    why = None if is_current and is_settled else "not everybody has the newest assignment"
    migration.downgrade(turn, group, without=(), reason=why)
    return _joined(member)


def _updated(
    member: ConsumerMember, asked: Join, subscription: ConsumerProtocolSubscription
) -> ConsumerMember:
    request = asked.request
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=asked.caller.client_id,
        client_host=asked.caller.client_host,
        subscribed_names=frozenset(subscription.topics),
        regex=NO_REGEX,
        rebalance_timeout_ms=asked.rebalance_timeout_ms,
        classic=ClassicProtocols(request.session_timeout_ms, tuple(asked.protocols.items())),
    )


def _joined(member: ConsumerMember) -> JoinGroupResponse:
    assert member.classic is not None
    return JoinGroupResponse(
        generation_id=member.epoch,
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=member.classic.chosen,
        member_id=member.member_id,
    )


def _known(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ConsumerMember:
    """The member of the classic protocol that sends this; UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or
    ILLEGAL_GENERATION if it is not what it thinks it is."""
    if instance_id is None:
        member = group.known_member(member_id)
    else:
        member = check_incarnation(group.static_member(instance_id), instance_id, member_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if generation != member.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member


def _tell_fenced(
    turn: Turn,
    group: ConsumerGroup,
    error: KafkaError,
    member_id: str,
    instance_id: str | None,
    api: str,
) -> None:
    if error.code is ErrorCode.FENCED_INSTANCE_ID:
        turn.shard.tell_fenced(turn, group, member_id, instance_id, api)


def _retarget_if_alone(turn: Turn, group: ConsumerGroup) -> None:
    """Members of the consumer protocol see to it that there is a target by their heartbeats. In a
    group that may not become a classic one there may be none left."""
    is_due = group.metadata_is_stale or group.target.epoch < group.epoch
    if is_due and group.is_all_classic:
        retarget(turn, group, None)


def _await_join(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """The member is asked to join again; however often, it has its rebalance timeout once."""
    timer = (TimerKind.MEMBER_JOIN, group.group_id, member.member_id)
    if turn.timers.deadline_ms(timer) is None:
        turn.start(timer, member.rebalance_timeout_ms)


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether something that the member is to have is another's still."""
    target = group.target_of.get(member.member_id, NOTHING)
    return any(
        partition not in member.assigned.get(topic_id, {})
        and group.owner_of(topic_id, partition) is not None
        for topic_id, partitions in target.items()
        for partition in partitions
    )
