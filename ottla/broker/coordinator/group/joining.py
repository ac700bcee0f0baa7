"""JoinGroup: who may come in, as whom, and whether the group rebalances for it.

A newcomer without an instance id is first given a member id and sent back (from version 4 on), so
that a client which gives up while it waits leaves no member behind. A static member (KIP-345) that
comes without a member id takes the place of its former incarnation, which is fenced.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.coordinator.group.classic import ClassicGroup, Member
from ottla.broker.coordinator.group.consumer import ConsumerGroup
from ottla.broker.coordinator.group.rebalance import (
    answer_joined,
    complete_if_joined,
    join_refused,
    prepare,
    rebalance,
)
from ottla.broker.coordinator.group.settings import NEW_MEMBER_JOIN_TIMEOUT_MS
from ottla.broker.coordinator.group.states import ON_REJOIN, Reaction, State
from ottla.broker.coordinator.group.turn import TimerKind, Turn
from ottla.broker.coordinator.outcome import Reply
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.groups import JoinGroupRequest

MEMBER_ID_REQUIRED_SINCE_VERSION = 4
SKIP_ASSIGNMENT_SINCE_VERSION = 9
NO_MEMBER_ID = ""
REASON_LENGTH_MAX = 255
"""Of what a client says why it joins or leaves; Kafka's own client cuts there, too."""
PREFIX_MAX = 1024
"""Of a client or instance id, in a member's id."""


class Caller(NamedTuple):
    """Who asks, and in which version of the API."""

    client_id: str
    client_host: str
    version: int


class Join(NamedTuple):
    """One JoinGroup request under way."""

    caller: Caller
    request: JoinGroupRequest
    reply: Reply
    protocols: dict[str, bytes]

    @property
    def rebalance_timeout_ms(self) -> int:
        """Version 0 has none of its own."""
        if self.caller.version == 0:
            return self.request.session_timeout_ms
        return self.request.rebalance_timeout_ms

    @property
    def reason(self) -> str:
        return said(self.request.reason)


def said(reason: str | None) -> str:
    """What a client gives as its reason, as a part of a sentence."""
    return f"it says: {reason[:REASON_LENGTH_MAX]}" if reason else "it gives no reason"


def check_join(turn: Turn, caller: Caller, request: JoinGroupRequest, reply: Reply) -> Join | None:
    """The request, or None if it is refused whatever the group."""
    settings = turn.settings
    member_id = request.member_id
    if not request.group_id:
        turn.answer(reply, join_refused(ErrorCode.INVALID_GROUP_ID, member_id))
        return None
    low_ms, high_ms = settings.min_session_timeout_ms, settings.max_session_timeout_ms
    if not low_ms <= request.session_timeout_ms <= high_ms:
        turn.answer(reply, join_refused(ErrorCode.INVALID_SESSION_TIMEOUT, member_id))
        return None
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)
    return Join(caller, request, reply, protocols)


def join(turn: Turn, asked: Join) -> None:
    """One JoinGroup to a classic group; its answer may come much later."""
    _, request, reply, protocols = asked
    member_id = request.member_id
    group = turn.shard.groups.get(request.group_id)
    if not isinstance(group, ClassicGroup):
        if group is not None and not (isinstance(group, ConsumerGroup) and group.is_empty):
            turn.answer(reply, join_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
            return
        if member_id != NO_MEMBER_ID:
            turn.answer(reply, join_refused(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
            return
        if group is not None:
            if not (request.protocol_type and protocols):
                # No group takes these, so the empty one keeps its place.
                _refuse_protocols(turn, asked)
                return
            for key in list(group.tombstone_keys()):
                turn.write(key, None)
        group = turn.shard.create(turn, request.group_id)
    if not _has_room(group, member_id, turn.settings.max_size):
        group.remove(member_id)
        turn.tell(
            "group_full", group.group_id, "group.max.size is reached", members=len(group.members)
        )
        turn.answer(reply, join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID))
        complete_if_joined(turn, group)
    elif not group.accepts(request.protocol_type, protocols):
        _refuse_protocols(turn, asked)
    elif member_id == NO_MEMBER_ID:
        _join_newcomer(turn, group, asked)
    else:
        _join_known(turn, group, asked)


def _refuse_protocols(turn: Turn, asked: Join) -> None:
    caller, request, reply, protocols = asked
    turn.tell(
        "group_member_refused",
        request.group_id,
        "its protocols are not those of the group",
        client_id=caller.client_id,
        protocol_type=request.protocol_type,
        protocols=list(protocols),
    )
    refused = join_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
    turn.answer(reply, refused)


def _has_room(group: ClassicGroup, member_id: str, max_size: int) -> bool:
    if group.state is State.EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state is State.PREPARING_REBALANCE:
        is_waiting = member is not None and member.join_reply is not None
        return is_waiting or group.awaiting_join_count < max_size
    return member is not None or len(group.members) < max_size


def _join_newcomer(turn: Turn, group: ClassicGroup, asked: Join) -> None:
    instance_id = asked.request.group_instance_id
    prefix = asked.caller.client_id if instance_id is None else instance_id
    # All of a string's 32767 bytes, and the id behind them would fit into no answer.
    new_id = f"{prefix[:PREFIX_MAX]}-{turn.shard.new_uuid()}"
    if instance_id is not None:
        old_id = group.static_members.get(instance_id)
        if old_id is None:
            _note(turn, group)
            _add(turn, group, asked, new_id)
        else:
            _replace_static(turn, group, asked, old_id, new_id)
    elif asked.caller.version >= MEMBER_ID_REQUIRED_SINCE_VERSION:
        _note(turn, group)
        group.pending_join[new_id] = None
        if group.initial_delay is not None:
            group.initial_delay.expects_member = True
        timer = (TimerKind.SESSION, group.group_id, new_id)
        turn.start(timer, asked.request.session_timeout_ms)
        turn.answer_now(asked.reply, join_refused(ErrorCode.MEMBER_ID_REQUIRED, new_id))
    else:
        _note(turn, group)
        _add(turn, group, asked, new_id)


def _note(turn: Turn, group: ClassicGroup) -> None:
    group.note_newcomer(turn.now.monotonic_ms, turn.settings.newcomers_ms)


def _join_known(turn: Turn, group: ClassicGroup, asked: Join) -> None:
    request = asked.request
    member_id = request.member_id
    if member_id in group.pending_join and request.group_instance_id is None:
        _add(turn, group, asked, member_id)
        return
    try:
        member = group.check_member(member_id, request.group_instance_id)
    except KafkaError as error:
        if error.code is ErrorCode.FENCED_INSTANCE_ID:
            turn.shard.tell_fenced(turn, group, member_id, request.group_instance_id, "JoinGroup")
        turn.answer(asked.reply, join_refused(error.code, member_id))
        return
    is_leader = member_id == group.leader
    # A leader of a Stable group joins again because it wants to assign anew.
    wants_anew = is_leader and group.state is State.STABLE
    is_same = not wants_anew and _is_same(member.protocols, asked.protocols)
    match ON_REJOIN[group.state][is_same]:
        case Reaction.REFUSE:
            turn.answer(asked.reply, join_refused(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
        case Reaction.ANSWER:
            turn.restart_session(group, member)
            as_leader = is_leader and group.state is State.COMPLETING_REBALANCE
            turn.answer(asked.reply, answer_joined(turn, group, member, as_leader=as_leader))
        case Reaction.PARK | Reaction.REBALANCE:
            what = "the leader joined again" if is_leader else "a member joined again"
            _update(turn, group, member, asked)
            rebalance(turn, group, f"{what} ({member_id}; {asked.reason})")


def _is_same(known: dict[str, bytes], brought: dict[str, bytes]) -> bool:
    """In their order, too, which says what the member likes best."""
    return known == brought and list(known) == list(brought)


def _update(turn: Turn, group: ClassicGroup, member: Member, asked: Join) -> None:
    """The member brings its metadata anew, and waits for the next generation."""
    # A client that asks twice, its first answer being lost with its connection, waits once.
    turn.refuse_waiting(group, member, ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
    group.set_protocols(member, asked.protocols)
    member.rebalance_timeout_ms = asked.rebalance_timeout_ms
    member.session_timeout_ms = asked.request.session_timeout_ms
    group.park_join(member, asked.reply)


def _add(turn: Turn, group: ClassicGroup, asked: Join, member_id: str) -> None:
    request, caller = asked.request, asked.caller
    member = Member(
        member_id,
        request.group_instance_id,
        caller.client_id,
        caller.client_host,
        asked.rebalance_timeout_ms,
        request.session_timeout_ms,
        asked.protocols,
        is_new=True,
        join_reply=asked.reply,
    )
    if group.initial_delay is not None:
        group.initial_delay.has_new_member = True
    group.add(member, request.protocol_type)
    # By itself, for a rebalance that is under way has the reason of the first who came.
    turn.tell(
        "group_member_joined",
        group.group_id,
        asked.reason,
        member_id=member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        members=len(group.members),
    )
    turn.restart_session(group, member, timeout_ms=NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalance(turn, group, f"a new member joined ({member_id}; {asked.reason})")


def _replace_static(turn: Turn, group: ClassicGroup, asked: Join, old_id: str, new_id: str) -> None:
    """A static member has come back: it is who it was, by another name."""
    request = asked.request
    leader_before = group.leader
    turn.timers.cancel((TimerKind.SESSION, group.group_id, old_id))
    old, new = group.replace_static(old_id, new_id)
    if old.join_reply is not None:
        fenced = join_refused(ErrorCode.FENCED_INSTANCE_ID, old_id)
        turn.answer(old.join_reply, fenced)
        old.join_reply = None
    turn.refuse_waiting(group, old, ErrorCode.FENCED_INSTANCE_ID, member_id=old_id)
    turn.tell(
        "group_static_member_replaced",
        group.group_id,
        f"the instance joined without a member id ({asked.reason})",
        instance_id=new.instance_id,
        old_member_id=old_id,
        member_id=new_id,
        client_id=asked.caller.client_id,
    )
    group.set_protocols(new, asked.protocols)
    new.rebalance_timeout_ms = asked.rebalance_timeout_ms
    new.session_timeout_ms = request.session_timeout_ms
    turn.restart_session(group, new)
    reason = f"static member {new.instance_id} came back"
    match group.state:
        case State.STABLE if group.select_protocol() == group.protocol:
            _take_up_assignment(turn, group, asked, new, leader_before)
        case State.STABLE:
            group.park_join(new, asked.reply)
            prepare(turn, group, f"{reason} with another protocol ({asked.reason})")
        case State.COMPLETING_REBALANCE:
            group.park_join(new, asked.reply)
            prepare(turn, group, f"{reason} ({asked.reason})")
        case _:
            group.park_join(new, asked.reply)
            complete_if_joined(turn, group)


def _take_up_assignment(
    turn: Turn, group: ClassicGroup, asked: Join, member: Member, leader_before: str | None
) -> None:
    """The generation goes on with the new name in it. A leader must not assign again: from version
    9 on it is told so, before it is told that its former self leads."""
    assignments = {one.member_id: one.assignment for one in group.members.values()}
    turn.write_group(group, assignments)
    if asked.caller.version >= SKIP_ASSIGNMENT_SINCE_VERSION:
        is_leader = member.member_id == group.leader
        response = answer_joined(turn, group, member, as_leader=is_leader, skip=is_leader)
    else:
        response = answer_joined(turn, group, member, as_leader=False)
        response.leader = leader_before or ""
    turn.answer(asked.reply, response)
