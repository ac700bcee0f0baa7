"""The classic group protocol and the administration of groups: JoinGroup, SyncGroup, Heartbeat,
LeaveGroup, ListGroups, DescribeGroups, DeleteGroups.

The rules are those of `broker.coordinator.group`; here a request finds its shard, and the answer
finds its way back. A request for a group that is not coordinated here, or not yet, is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from ottla.broker.coordinator.group.inspection import describe, list_groups
from ottla.broker.coordinator.group.joining import Caller
from ottla.broker.coordinator.group.shard import GroupShard
from ottla.broker.coordinator.runtime import Runner
from ottla.broker.handlers.answers import Pending
from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.handlers.endpoints import MAPPED_IPV4
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

NULL_PROTOCOL_NAME_SINCE_VERSION = 7
READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 3, 6, 8, 10, 11
GROUP_OPERATIONS = (
    1 << READ | 1 << DELETE | 1 << DESCRIBE | 1 << DESCRIBE_CONFIGS | 1 << ALTER_CONFIGS
)
"""What may be done to a group, as bits by the numbers of the operations; without an authorizer
everybody may do all of it."""

HOSTS_REMEMBERED = 1024
"""Of peers: a member asks again and again from the same port."""

R = TypeVar("R")
Found = tuple[Runner[GroupShard], GroupShard]
Deleted = DeleteGroupsResponse.DeletableGroupResult
Described = DescribeGroupsResponse.DescribedGroup


class JoinPending(Pending):
    """A JoinGroup answer to come, in a version that may have no place for a null protocol."""

    __slots__ = ("_asked_version",)

    def __init__(self, version: int) -> None:
        super().__init__()
        self._asked_version = version

    def complete(self, response: JoinGroupResponse) -> None:
        super().complete(with_protocol_name(response, self._asked_version))


def with_protocol_name(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """The answer in a version that may have no null for "no protocol"."""
    if response.protocol_name is None and version < NULL_PROTOCOL_NAME_SINCE_VERSION:
        response.protocol_name = ""
    return response


class Gathering(Pending):
    """One answer out of several that come one by one, kept in the order of the questions."""

    __slots__ = ("_make", "_missing", "_parts")

    def __init__(self, count: int, make: Callable[[list[Any]], Any]) -> None:
        super().__init__()
        self._parts: list[Any] = [None] * count
        self._missing = count
        self._make = make

    def part(self, index: int) -> Part:
        """Whoever answers the question of that index."""
        return Part(self, index)

    def put(self, index: int, response: Any) -> None:
        assert self._parts[index] is None
        self._parts[index] = response
        self._missing -= 1
        if self._missing == 0:
            self.complete(self._make(self._parts))


class Part:
    __slots__ = ("_gathering", "_index")

    def __init__(self, gathering: Gathering, index: int) -> None:
        self._gathering = gathering
        self._index = index

    def complete(self, response: Any) -> None:
        self._gathering.put(self._index, response)


def handle_join_group(
    session: Session, request: JoinGroupRequest, version: int
) -> JoinGroupResponse | Pending:
    """Parked until the generation is complete, unless there is nothing to wait for."""
    try:
        runner, shard = session.rooms.groups.runner(request.group_id)
    except KafkaError as error:
        code = error.code if request.group_id else ErrorCode.INVALID_GROUP_ID
        response = JoinGroupResponse(
            error_code=int(code), protocol_name=None, member_id=request.member_id
        )
        return with_protocol_name(response, version)
    pending = JoinPending(version)
    runner.perform(shard.join(caller_of(session, version), request, pending, runner.now()))
    return pending


def handle_sync_group(
    session: Session, request: SyncGroupRequest, version: int
) -> SyncGroupResponse | Pending:
    """Parked until the leader has assigned, and that is durable."""
    found = _find(session.rooms, request.group_id)
    if isinstance(found, ErrorCode):
        if found is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # What was joined before the coordinator moved here is to be joined again.
            found = ErrorCode.REBALANCE_IN_PROGRESS
        return SyncGroupResponse(error_code=int(found))
    runner, shard = found
    pending = Pending()
    runner.perform(shard.sync(caller_of(session, version), request, pending, runner.now()))
    return pending


def handle_heartbeat(
    session: Session, request: HeartbeatRequest, version: int
) -> HeartbeatResponse | Pending:
    """While its group is loaded a member is taken for alive."""
    found = _find(session.rooms, request.group_id)
    if isinstance(found, ErrorCode):
        if found is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            found = ErrorCode.NONE
        return HeartbeatResponse(error_code=int(found))
    runner, shard = found
    pending = Pending()
    runner.perform(shard.heartbeat(request, pending, runner.now()))
    return pending


def handle_leave_group(
    session: Session, request: LeaveGroupRequest, version: int
) -> LeaveGroupResponse | Pending:
    found = _find(session.rooms, request.group_id)
    if isinstance(found, ErrorCode):
        return LeaveGroupResponse(error_code=int(found))
    runner, shard = found
    pending = Pending()
    runner.perform(shard.leave(caller_of(session, version), request, pending, runner.now()))
    return pending


def handle_list_groups(
    session: Session, request: ListGroupsRequest, version: int
) -> ListGroupsResponse:
    """The groups coordinated here."""
    try:
        shards = session.rooms.groups.shards()
    except KafkaError as error:
        return ListGroupsResponse(error_code=int(error.code))
    found = (group for shard in shards for group in shard.groups.values())
    return ListGroupsResponse(groups=list_groups(found, request))


def handle_describe_groups(
    session: Session, request: DescribeGroupsRequest, version: int
) -> DescribeGroupsResponse | Pending:
    """State and members of each; what nobody knows is Dead."""

    def make(groups: list[Any]) -> DescribeGroupsResponse:
        for group in groups:
            if request.include_authorized_operations and not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=groups)

    def ask(found: Found, group_id: str, part: Part) -> None:
        runner, shard = found
        runner.answer(part, describe(shard, group_id, version))

    def refuse(group_id: str, code: ErrorCode) -> Described:
        return Described(group_id=group_id, error_code=int(code))

    return ask_each(session.rooms, request.groups, make, ask, refuse)


def handle_delete_groups(
    session: Session, request: DeleteGroupsRequest, version: int
) -> DeleteGroupsResponse | Pending:
    """Each group is deleted, with its offsets, or refused on its own."""

    def ask(found: Found, group_id: str, part: Part) -> None:
        runner, shard = found
        runner.perform(shard.delete_group(group_id, part, runner.now()))

    def refuse(group_id: str, code: ErrorCode) -> Deleted:
        return Deleted(group_id, int(code))

    # Named twice is deleted once.
    names = list(dict.fromkeys(request.groups_names))
    return ask_each(
        session.rooms, names, lambda parts: DeleteGroupsResponse(results=parts), ask, refuse
    )


def ask_each(
    rooms: Rooms,
    group_ids: list[str],
    make: Callable[[list[Any]], R],
    ask: Callable[[Found, str, Part], None],
    refuse: Callable[[str, ErrorCode], Any],
    *,
    named: bool = False,
) -> R | Pending:
    """One answer for several groups, each of which may be somewhere else. `named`: an empty id is
    INVALID_GROUP_ID, for no group of the kind has it."""
    # Named twice is answered once: a thousand times the same members would be the whole memory.
    group_ids = list(dict.fromkeys(group_ids))
    if not group_ids:
        return make([])
    gathering = Gathering(len(group_ids), make)
    for index, group_id in enumerate(group_ids):
        part = gathering.part(index)
        if named and not group_id:
            part.complete(refuse(group_id, ErrorCode.INVALID_GROUP_ID))
            continue
        try:
            found = rooms.groups.runner(group_id)
        except KafkaError as error:
            part.complete(refuse(group_id, error.code))
            continue
        ask(found, group_id, part)
    return gathering


def _find(rooms: Rooms, group_id: str) -> Found | ErrorCode:
    """Who coordinates a group that has members, or why the request is refused."""
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    try:
        return rooms.groups.runner(group_id)
    except KafkaError as error:
        return error.code


def caller_of(session: Session, version: int) -> Caller:
    return Caller(session.client_id or "", _host_of(session.peer), version)


@lru_cache(HOSTS_REMEMBERED)
def _host_of(peer: str) -> str:
    """As Java prints an address that has no name."""
    host = peer.rpartition(":")[0].removeprefix(MAPPED_IPV4)
    return f"/{host}"
