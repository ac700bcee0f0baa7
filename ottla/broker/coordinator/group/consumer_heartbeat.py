"""ConsumerGroupHeartbeat (KIP-848): a member joins, reports, changes its subscription, leaves.

Whatever can be refused is refused before the first record is written, for a command that has begun
to write is done.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.broker.coordinator.group import migration
from ottla.broker.coordinator.group.classic import ClassicGroup
from ottla.broker.coordinator.group.consumer import (
    AWAY_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    Owned,
)
from ottla.broker.coordinator.group.consumer_members import (
    advance,
    leave_for_a_while,
    replace_static,
    restart_session,
    take_out,
)
from ottla.broker.coordinator.group.consumer_regex import (
    Change,
    change_of,
    check_regex,
    forget_unwanted,
    resolve_if_due,
)
from ottla.broker.coordinator.group.joining import Caller
from ottla.broker.coordinator.group.modern import JOIN_EPOCH, LEAVE_EPOCH
from ottla.broker.coordinator.group.reconciling import Reported
from ottla.broker.coordinator.group.turn import Turn
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

NOT_SAID = -1
OWN_MEMBER_ID_SINCE_VERSION = 1

AssignedTopic = ConsumerGroupHeartbeatResponse.TopicPartitions


def check_request(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]
) -> None:
    """What is wrong with a request whatever the group: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR.

    As in Kafka it is told by any broker, whether it coordinates the group or not.
    """
    epoch = request.member_epoch
    if version >= OWN_MEMBER_ID_SINCE_VERSION or epoch > 0 or epoch == LEAVE_EPOCH:
        _check(_has_text(request.member_id), "MemberId can't be empty.")
    _check(_has_text(request.group_id), "GroupId can't be empty.")
    _check(_has_text(request.instance_id), "InstanceId can't be empty.")
    _check(_has_text(request.rack_id), "RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        is_told = request.rebalance_timeout_ms != NOT_SAID
        _check(is_told, "RebalanceTimeoutMs must be provided in first request.")
        _check(request.topic_partitions == [], "TopicPartitions must be empty when (re-)joining.")
        _check(
            request.subscribed_topic_names is not None
            or request.subscribed_topic_regex is not None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
            " (re-)joining.",
        )
    elif epoch == AWAY_EPOCH:
        _check(request.instance_id is not None, "InstanceId can't be null.")
    else:
        _check(epoch > AWAY_EPOCH, "MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors:"
            f" {', '.join(assignors)}.",
        )


def heartbeat(
    turn: Turn, caller: Caller, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """One heartbeat that `check_request` let through; the answer of one that is refused says
    why."""
    try:
        if request.member_epoch in (LEAVE_EPOCH, AWAY_EPOCH):
            return _leave(turn, request)
        return _beat(turn, caller, request)
    except KafkaError as error:
        if error.code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID):
            turn.tell(
                "group_member_fenced",
                request.group_id,
                error.message or error.code.name,
                member_id=request.member_id,
                instance_id=request.instance_id,
                epoch=request.member_epoch,
            )
        elif error.code is ErrorCode.UNRELEASED_INSTANCE_ID:
            turn.tell(
                "group_instance_taken",
                request.group_id,
                error.message or error.code.name,
                member_id=request.member_id,
                instance_id=request.instance_id,
                client_id=caller.client_id,
                client_host=caller.client_host,
            )
        return ConsumerGroupHeartbeatResponse(
            error_code=int(error.code), error_message=error.message
        )


def check_room(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    """GROUP_MAX_SIZE_REACHED if somebody who is no member comes to a full group."""
    max_size = turn.settings.consumer.max_size
    if len(group.members) >= max_size and member_id not in group.members:
        said = f"The consumer group has reached its maximum capacity of {max_size} members."
        turn.tell("group_full", group.group_id, "group.consumer.max.size is reached")
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, said)


def check_epoch(member: ConsumerMember, epoch: int, reported: Reported | None) -> None:
    """FENCED_MEMBER_EPOCH unless the member is where we know it to be, or has missed one answer."""
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    compared = "greater" if epoch > member.epoch else "smaller"
    has_missed_one = (
        epoch < member.epoch
        and epoch == member.previous_epoch
        and _is_within(reported, member.assigned)
    )
    if not has_missed_one:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {compared} member epoch ({epoch}) than the one known"
            f" by the group coordinator ({member.epoch}). The member must abandon all its"
            " partitions and rejoin.",
        )


def check_incarnation(
    static: ConsumerMember | None, instance_id: str, member_id: str
) -> ConsumerMember:
    """The static member; UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another has its name."""
    if static is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if static.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member"
            f" {static.member_id}.",
        )
    return static


def _beat(
    turn: Turn, caller: Caller, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    classic, group = _find(turn, request)
    check_room(turn, group, request.member_id)
    member_id = request.member_id or turn.shard.new_short_uuid()
    before, replaced = _member(group, request, member_id)
    check_regex(group, before, request.subscribed_topic_regex)
    # Nothing can be refused any more.
    if classic is not None:
        group = _convert(turn, classic, group)
    if replaced is not None:
        before = replace_static(turn, group, replaced, member_id)
    after = _updated(before, caller, request)
    is_new = member_id not in group.members
    if after != before or is_new:
        turn.write(*group.member_record(after))
        group = _registered(turn, request.group_id)
    names_changed = before.subscribed_names != after.subscribed_names
    change = change_of(group, before, after)
    forget_unwanted(turn, group)
    resolve_if_due(turn, group)
    reason = None
    if names_changed or change is Change.RESOLVED:
        how = "subscribed to other topics"
        if is_new or before.epoch == JOIN_EPOCH:  # an id by chance, which says nothing by itself
            how = f"joined ({after.client_id}, {after.client_host})"
        reason = f"{member_id} {how}"
    stepped = advance(
        turn,
        group,
        after,
        request.topic_partitions,
        reason=reason,
        has_changed=names_changed or change is not Change.NONE,
    )
    restart_session(turn, group, stepped)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=stepped.epoch,
        heartbeat_interval_ms=turn.shard.intervals_of(group).heartbeat_interval_ms,
    )
    if _is_full(request) or stepped.assigned != before.assigned:
        response.assignment = _shown(stepped.assigned)
    return response


def _find(
    turn: Turn, request: ConsumerGroupHeartbeatRequest
) -> tuple[ClassicGroup | None, ConsumerGroup]:
    """The group as it is, or as it will be when it takes the place of a classic one, which comes
    first then."""
    group = turn.shard.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup):
        return None, group
    is_joining = request.member_epoch == JOIN_EPOCH
    if group is None and is_joining:
        return None, ConsumerGroup(request.group_id)
    if isinstance(group, ClassicGroup) and is_joining:
        if group.is_empty:
            return group, ConsumerGroup(request.group_id)
        return group, migration.upgraded(turn, group)
    said = f"Consumer group {request.group_id} not found."
    if group is not None:
        said = f"Group {request.group_id} is not a consumer group."
    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, said)


def _convert(turn: Turn, classic: ClassicGroup, group: ConsumerGroup) -> ConsumerGroup:
    """Puts the consumer group in the place of the classic one."""
    if not classic.is_empty:
        migration.upgrade(turn, classic, group)
        return _registered(turn, group.group_id)
    for key in classic.tombstone_keys():
        turn.write(key, None)
    return group


def _registered(turn: Turn, group_id: str) -> ConsumerGroup:
    group = turn.shard.groups[group_id]
    assert isinstance(group, ConsumerGroup), group
    return group


def _member(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str
) -> tuple[ConsumerMember, ConsumerMember | None]:
    """The member as it is known so far, and whose place it takes, if it is static and comes anew.

    Raises the reason why it cannot be a member, or is none any more.
    """
    epoch, instance_id = request.member_epoch, request.instance_id
    is_joining = epoch == JOIN_EPOCH
    if instance_id is None or (is_joining and instance_id not in group.static_members):
        known = group.members.get(member_id)
        if known is None and not is_joining:
            known = group.known_member(member_id)
        if known is None:
            return ConsumerMember(member_id=member_id), None
        check_epoch(known, epoch, request.topic_partitions)
        return known, None
    static = group.static_member(instance_id)
    if not is_joining:
        static = check_incarnation(static, instance_id, member_id)
        check_epoch(static, epoch, request.topic_partitions)
        return static, None
    assert static is not None
    if static.classic is None and static.epoch != AWAY_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group"
            f" because the instance id is owned by {static.member_id} member.",
        )
    return static, static


def _updated(
    member: ConsumerMember, caller: Caller, request: ConsumerGroupHeartbeatRequest
) -> ConsumerMember:
    """The member with what the request says of it; what is null has not changed."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        subscribed_names=member.subscribed_names if names is None else frozenset(names),
        regex=member.regex if regex is None else regex,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if timeout_ms == NOT_SAID else timeout_ms
        ),
        server_assignor=(
            member.server_assignor if request.server_assignor is None else request.server_assignor
        ),
        classic=None,
    )


def _leave(turn: Turn, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    group = turn.shard.groups.get(request.group_id)
    if not isinstance(group, ConsumerGroup):
        what = "not found" if group is None else "is not a consumer group"
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} {what}.")
    if request.instance_id is None:
        member = group.known_member(request.member_id)
    else:
        static = group.static_member(request.instance_id)
        member = check_incarnation(static, request.instance_id, request.member_id)
    if request.member_epoch == AWAY_EPOCH:
        leave_for_a_while(turn, group, member)
    else:
        turn.tell(
            "group_member_left",
            group.group_id,
            "it says so",
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
        )
        take_out(turn, group, {member.member_id: "left"})
    return ConsumerGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member says everything, and so is told everything: it joins, or is not sure."""
    has_subscription = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != NOT_SAID
        and has_subscription
        and request.topic_partitions is not None
    )


def _shown(assigned: Owned) -> ConsumerGroupHeartbeatResponse.Assignment:
    return ConsumerGroupHeartbeatResponse.Assignment(
        [AssignedTopic(topic_id, sorted(epochs)) for topic_id, epochs in assigned.items()]
    )


def _is_within(reported: Reported | None, assigned: Owned) -> bool:
    return reported is not None and all(
        one.topic_id in assigned and assigned[one.topic_id].keys() >= set(one.partitions)
        for one in reported
    )


def _has_text(text: str | None) -> bool:
    return text is None or bool(text.strip())


def _check(is_right: bool, said: str) -> None:
    if not is_right:
        raise KafkaError(ErrorCode.INVALID_REQUEST, said)
