"""ShareGroupHeartbeat and ShareGroupDescribe (KIP-932).

The rules are those of `broker.coordinator.group`. Between the two parts of a heartbeat the share
coordinator is asked for a state of the partitions that are new to the group.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ottla.broker.coordinator.group import share_heartbeat, share_offsets
from ottla.broker.coordinator.group.shard import GroupShard
from ottla.broker.coordinator.group.share import Partitions, ShareGroup
from ottla.broker.coordinator.group.turn import Turn
from ottla.broker.coordinator.runtime import Runner
from ottla.broker.coordinator.share.batches import NO_OFFSET
from ottla.broker.coordinator.share.coordinator import SHARE_GROUP_STATE
from ottla.broker.coordinator.share.shard import ShareShard
from ottla.broker.coordinator.share.state import SharePartitionKey
from ottla.broker.handlers import groups
from ottla.broker.handlers.answers import Awaited, Pending
from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.handlers.groups import GROUP_OPERATIONS, Found, Part, ask_each, caller_of
from ottla.broker.handlers.share_acknowledge import check_share_groups_served
from ottla.broker.handlers.share_state import epoch_of_start
from ottla.broker.share.sessions import Place
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.share_group import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.protocol.messages.share_state import InitializeShareGroupStateRequest

Described = ShareGroupDescribeResponse.DescribedGroup
StateCommand = Callable[[Runner[ShareShard], ShareShard, SharePartitionKey, Any], None]


async def handle_share_group_heartbeat(
    session: Session, request: ShareGroupHeartbeatRequest, version: int
) -> ShareGroupHeartbeatResponse:
    """Answered when what it says is durable, and its partitions can be delivered."""
    rooms = session.rooms
    try:
        check_share_groups_served(rooms)
        share_heartbeat.check_request(request)
        caller = caller_of(session, version)
        begin = partial(share_heartbeat.heartbeat, caller=caller, request=request)
        beaten = await asked(rooms, request.group_id, begin)
        if beaten.error_code:
            raise KafkaError(ErrorCode(beaten.error_code), beaten.error_message)
        if not beaten.to_initialize:
            response: ShareGroupHeartbeatResponse = beaten.response
            return response
        done, failed = await _initialize(rooms, request.group_id, beaten)
        finish = partial(
            share_heartbeat.initialized,
            group_id=request.group_id,
            member_id=request.member_id,
            done=done,
            failed=failed,
        )
        response = await asked(rooms, request.group_id, finish)
    except KafkaError as error:
        return ShareGroupHeartbeatResponse(error_code=int(error.code), error_message=error.message)
    return response


def handle_share_group_describe(
    session: Session, request: ShareGroupDescribeRequest, version: int
) -> ShareGroupDescribeResponse | Pending:
    """Each group by itself; one of another kind is not found, so that clients ask otherwise."""

    def make(described: list[Any]) -> ShareGroupDescribeResponse:
        for group in described:
            if request.include_authorized_operations and not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
        return ShareGroupDescribeResponse(groups=described)

    def ask(found: Found, group_id: str, part: Part) -> None:
        runner, shard = found
        command = partial(share_offsets.describe, group_id=group_id)
        runner.perform(shard.carry_out(command, part, runner.now()))

    def refuse(group_id: str, code: ErrorCode) -> Described:
        return Described(group_id=group_id, error_code=int(code))

    try:
        check_share_groups_served(session.rooms)
    except KafkaError as error:
        return make([refuse(group_id, error.code) for group_id in request.group_ids])
    return ask_each(session.rooms, request.group_ids, make, ask, refuse, named=True)


def handle_delete_groups(
    session: Session, request: DeleteGroupsRequest, version: int
) -> DeleteGroupsResponse | Pending | Awaitable[DeleteGroupsResponse]:
    """As for other groups, but what the share coordinator keeps of a share group goes before it."""
    for group_id in request.groups_names:
        if _empty_share_group(session.rooms, group_id) is not None:
            return _delete_groups(session.rooms, request)
    return groups.handle_delete_groups(session, request, version)


async def delete_states(rooms: Rooms, group_id: str, places: Partitions) -> dict[Place, Any]:
    """The share coordinator forgets these."""

    def delete(
        runner: Runner[ShareShard], shard: ShareShard, key: SharePartitionKey, reply: Any
    ) -> None:
        runner.perform(shard.delete(key, reply, runner.now()))

    rooms.shares.drop_group(group_id, "its offsets were deleted")
    return await state_results(rooms, group_id, places, delete)


async def asked(rooms: Rooms, group_id: str, command: Callable[[Turn], Any]) -> Any:
    """What a command of the group's coordinator answers. Raises why there is none."""
    found: tuple[Runner[GroupShard], GroupShard] = rooms.groups.runner(group_id)
    runner, shard = found
    reply = Awaited()
    runner.perform(shard.carry_out(command, reply, runner.now()))
    return await reply.future


async def state_results(
    rooms: Rooms, group_id: str, places: Partitions, command: StateCommand
) -> dict[Place, Any]:
    """What the share coordinator answers for each partition; KafkaError where it cannot."""
    waiting: dict[Place, Awaitable[Any]] = {}
    results: dict[Place, Any] = {}
    for topic_id, indexes in places.items():
        for index in sorted(indexes):
            key = SharePartitionKey(group_id, topic_id, index)
            try:
                runner, shard = rooms.share_state.runner(key.placed_by)
            except KafkaError as error:
                results[topic_id, index] = error
                continue
            reply = Awaited()
            command(runner, shard, key, reply)
            waiting[topic_id, index] = reply.future
    for place, future in waiting.items():
        result = await future
        if result.error_code:
            result = KafkaError(ErrorCode(result.error_code), result.error_message)
        results[place] = result
    return results


async def initialize_states(
    rooms: Rooms,
    group_id: str,
    starts: dict[Place, int],
    *,
    state_epoch: int,
    anew: frozenset[bytes],
) -> dict[Place, Any]:
    """The share coordinator has the group begin at these offsets, -1 for where its settings say.
    A state that is there is left as it is, but for those of the topics in `anew`.

    Its topic is made first if it is not there. Raises KafkaError if it cannot be.
    """
    await rooms.coordinator_topics.make(rooms, SHARE_GROUP_STATE)
    places: dict[bytes, set[int]] = {}
    for topic_id, index in starts:
        places.setdefault(topic_id, set()).add(index)

    def initialize(
        runner: Runner[ShareShard], shard: ShareShard, key: SharePartitionKey, reply: Any
    ) -> None:
        start = starts[key.topic_id, key.partition]
        request = InitializeShareGroupStateRequest.PartitionData(key.partition, state_epoch, start)
        leader_epoch = epoch_of_start(rooms, key, start)
        if_absent = key.topic_id not in anew
        now = runner.now()
        runner.perform(
            shard.initialize(key, request, reply, now, leader_epoch, if_absent=if_absent)
        )

    frozen = {topic_id: frozenset(indexes) for topic_id, indexes in places.items()}
    return await state_results(rooms, group_id, frozen, initialize)


def succeeded(results: dict[Place, Any]) -> tuple[Partitions, list[bytes]]:
    """(the partitions that came to have a state, the topics of those that did not)."""
    done: dict[bytes, set[int]] = {}
    failed: dict[bytes, None] = {}
    for (topic_id, index), result in results.items():
        if isinstance(result, KafkaError):
            failed[topic_id] = None
        else:
            done.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(parts) for topic_id, parts in done.items()}, list(failed)


async def _initialize(
    rooms: Rooms, group_id: str, beaten: share_heartbeat.Beaten
) -> tuple[Partitions, list[bytes]]:
    starts = {
        (topic_id, index): NO_OFFSET
        for topic_id, indexes in beaten.to_initialize.items()
        for index in indexes
    }
    try:
        results = await initialize_states(
            rooms, group_id, starts, state_epoch=beaten.state_epoch, anew=beaten.anew
        )
    except KafkaError as error:
        rooms.events.warning("share_state_not_initialized", group=group_id, error=str(error))
        return {}, list(beaten.to_initialize)
    done, failed = succeeded(results)
    if failed:
        reasons = {str(one) for one in results.values() if isinstance(one, KafkaError)}
        rooms.events.warning(
            "share_state_not_initialized", group=group_id, error=", ".join(sorted(reasons))
        )
    return done, failed


def _empty_share_group(rooms: Rooms, group_id: str) -> ShareGroup | None:
    try:
        _, shard = rooms.groups.runner(group_id)
    except KafkaError:
        return None
    group = shard.groups.get(group_id)
    return group if isinstance(group, ShareGroup) and group.is_empty else None


async def _delete_groups(rooms: Rooms, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    results: list[groups.Deleted] = []
    for group_id in dict.fromkeys(request.groups_names):
        try:
            if _empty_share_group(rooms, group_id) is not None:
                begin = partial(share_offsets.begin_delete_group, group_id=group_id)
                begun = await asked(rooms, group_id, begin)
                if begun.error_code:
                    raise KafkaError(ErrorCode(begun.error_code), begun.error_message)
                for result in (await delete_states(rooms, group_id, begun.places)).values():
                    if isinstance(result, KafkaError):
                        raise result
            runner, shard = rooms.groups.runner(group_id)
            reply = Awaited()
            runner.perform(shard.delete_group(group_id, reply, runner.now()))
            results.append(await reply.future)
        except KafkaError as error:
            results.append(groups.Deleted(group_id, int(error.code)))
    return DeleteGroupsResponse(results=results)
