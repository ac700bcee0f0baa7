"""ShareGroupHeartbeat (KIP-932): a member joins, reports, changes its subscription, leaves.

A heartbeat has two parts if members want partitions that have no state yet: the share coordinator,
which may be another broker, is asked between them. Apache Kafka answers the first heartbeat without
them, and assigns with the next; here the member gets them with the first.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from ottla.broker.coordinator.group.joining import Caller
from ottla.broker.coordinator.group.modern import JOIN_EPOCH, LEAVE_EPOCH, Assignment
from ottla.broker.coordinator.group.share import Partitions, ShareGroup, ShareMember
from ottla.broker.coordinator.group.share_members import (
    advance,
    begin_initializing,
    note_initialized,
    note_not_initialized,
    restart_session,
    take_out,
)
from ottla.broker.coordinator.group.turn import Turn
from ottla.protocol.errors import ErrorCode, KafkaError, cut_message
from ottla.protocol.messages.share_group import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

MEMBER_ID_LENGTH_MAX = 36
"""A UUID as a text; whoever has a longer one could not fetch, either."""

AssignedTopic = ShareGroupHeartbeatResponse.TopicPartitions


@dataclass(slots=True)
class Beaten:
    """A heartbeat whose second part is to come if there is something to initialize: states of these
    partitions, for this epoch of the group. Those of the topics in `anew` were to be deleted: one
    that is left is written over. Any other that is there is where the group has come to, for who
    was to initialize it before, a member or an admin, may have been stopped by a crash."""

    error_code: int = 0
    error_message: str | None = None
    response: ShareGroupHeartbeatResponse = field(default_factory=ShareGroupHeartbeatResponse)
    to_initialize: Partitions = field(default_factory=dict)
    anew: frozenset[bytes] = frozenset()
    state_epoch: int = 0


def check_request(request: ShareGroupHeartbeatRequest) -> None:
    """What is wrong with a request whatever the group: INVALID_REQUEST.

    As in Kafka it is told by any broker, whether it coordinates the group or not.
    """
    _check(bool(request.member_id.strip()), "MemberId can't be empty.")
    _check(
        len(request.member_id) <= MEMBER_ID_LENGTH_MAX,
        f"MemberId can't have more than {MEMBER_ID_LENGTH_MAX} characters.",
    )
    _check(bool(request.group_id.strip()), "GroupId can't be empty.")
    _check(request.rack_id is None or bool(request.rack_id.strip()), "RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        names = request.subscribed_topic_names
        _check(bool(names), "SubscribedTopicNames must be set in first request.")
    else:
        _check(request.member_epoch >= LEAVE_EPOCH, "MemberEpoch is invalid.")


def heartbeat(turn: Turn, caller: Caller, request: ShareGroupHeartbeatRequest) -> Beaten:
    """The first part of a heartbeat that `check_request` let through, and the only one if there is
    nothing to initialize."""
    try:
        if request.member_epoch == LEAVE_EPOCH:
            return Beaten(response=_leave(turn, request))
        return _beat(turn, caller, request)
    except KafkaError as error:
        if error.code is ErrorCode.FENCED_MEMBER_EPOCH:
            turn.tell(
                "group_member_fenced",
                request.group_id,
                error.message or error.code.name,
                member_id=request.member_id,
                epoch=request.member_epoch,
            )
        return Beaten(int(error.code), error.message)


def initialized(
    turn: Turn, group_id: str, member_id: str, done: Partitions, failed: Collection[bytes]
) -> ShareGroupHeartbeatResponse:
    """The second part: these partitions have a state now, those of the topics in `failed` not."""
    group = turn.shard.groups.get(group_id)
    if not isinstance(group, ShareGroup) or member_id not in group.members:
        said = cut_message(f"Member {member_id} is not a member of group {group_id}.")
        code = int(ErrorCode.UNKNOWN_MEMBER_ID)
        return ShareGroupHeartbeatResponse(error_code=code, error_message=said)
    note_initialized(turn, group, done)
    note_not_initialized(group, failed)
    before = group.members[member_id]
    # Others may have been assigned meanwhile, without these partitions.
    after = advance(
        turn, group, before, reason=None, has_changed=False, may_assign=True, at_once=True
    )
    restart_session(turn, group, after)
    return _response(turn, group, after, after.assigned)


def _beat(turn: Turn, caller: Caller, request: ShareGroupHeartbeatRequest) -> Beaten:
    group = _find(turn, request)
    _check_room(turn, group, request.member_id)
    before = _member(group, request)
    # Nothing can be refused any more.
    names = request.subscribed_topic_names
    after = replace(
        before,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        subscribed_names=before.subscribed_names if names is None else frozenset(names),
    )
    is_new = request.member_id not in group.members
    if after != before or is_new:
        turn.write(*group.member_record(after))
        group = registered(turn, request.group_id)
    has_changed = before.subscribed_names != after.subscribed_names
    reason = None
    if is_new or has_changed:
        reason = f"{after.member_id} {'joined' if is_new else 'subscribed to other topics'}"
    deleting = group.state_of.deleting
    to_initialize = begin_initializing(turn, group)
    after = advance(
        turn,
        group,
        after,
        reason=reason,
        has_changed=has_changed,
        may_assign=not to_initialize,
    )
    restart_session(turn, group, after)
    is_told = request.member_epoch == JOIN_EPOCH or after.assigned != before.assigned
    response = _response(turn, group, after, after.assigned if is_told else None)
    return Beaten(
        response=response,
        to_initialize=to_initialize,
        anew=deleting.intersection(to_initialize),
        state_epoch=group.epoch,
    )


def _find(turn: Turn, request: ShareGroupHeartbeatRequest) -> ShareGroup:
    """The group as it is, or as it will be when its first member has joined."""
    group = turn.shard.groups.get(request.group_id)
    if isinstance(group, ShareGroup):
        return group
    if group is None and request.member_epoch == JOIN_EPOCH:
        return ShareGroup(request.group_id)
    said = not_found(turn, request.group_id)
    if group is None:
        said = f"Share group {request.group_id} not found."  # Kafka's words differ here
    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, said)


def not_found(turn: Turn, group_id: str) -> str:
    """Why a group is no share group."""
    if turn.shard.groups.get(group_id) is None:
        return cut_message(f"Group {group_id} not found.")
    return cut_message(f"Group {group_id} is not a share group.")


def registered(turn: Turn, group_id: str) -> ShareGroup:
    """The group, which is there."""
    group = turn.shard.groups[group_id]
    assert isinstance(group, ShareGroup), group
    return group


def _check_room(turn: Turn, group: ShareGroup, member_id: str) -> None:
    max_size = turn.settings.share.max_size
    if len(group.members) >= max_size and member_id not in group.members:
        said = f"The share group has reached its maximum capacity of {max_size} members."
        turn.tell("group_full", group.group_id, "group.share.max.size is reached")
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, said)


def _member(group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareMember:
    """The member as it is known so far; FENCED_MEMBER_EPOCH unless it is where we know it to be, or
    has missed one answer."""
    epoch = request.member_epoch
    if epoch == JOIN_EPOCH:
        known = group.members.get(request.member_id)
        return known or ShareMember(member_id=request.member_id)
    member = group.known_member(request.member_id)
    if epoch not in (member.epoch, member.previous_epoch) or epoch > member.epoch:
        compared = "greater" if epoch > member.epoch else "smaller"
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a {compared} member epoch ({epoch}) than the one known by"
            f" the group coordinator ({member.epoch}). The member must abandon all its partitions"
            " and rejoin.",
        )
    return member


def _leave(turn: Turn, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    group = turn.shard.groups.get(request.group_id)
    if not isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, not_found(turn, request.group_id))
    member = group.known_member(request.member_id)
    turn.tell(
        "group_member_left",
        group.group_id,
        "it says so",
        member_id=member.member_id,
        client_id=member.client_id,
    )
    take_out(turn, group, {member.member_id: "left"})
    return ShareGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )


def _response(
    turn: Turn, group: ShareGroup, member: ShareMember, assigned: Assignment | None
) -> ShareGroupHeartbeatResponse:
    shown = None
    if assigned is not None:
        shown = ShareGroupHeartbeatResponse.Assignment(
            [AssignedTopic(topic_id, sorted(parts)) for topic_id, parts in assigned.items()]
        )
    return ShareGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=turn.shard.intervals_of(group).heartbeat_interval_ms,
        assignment=shown,
    )


def _check(is_right: bool, said: str) -> None:
    if not is_right:
        raise KafkaError(ErrorCode.INVALID_REQUEST, said)
