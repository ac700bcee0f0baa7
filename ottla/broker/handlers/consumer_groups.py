"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848).

The rules are those of `broker.coordinator.group`. Both are refused as a version that is not there
while the cluster's feature group.version is 0, or the broker is set to serve no such groups.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.controller.features import GROUP_VERSION
from ottla.broker.coordinator.group.consumer_heartbeat import check_request
from ottla.broker.coordinator.group.describing import describe
from ottla.broker.coordinator.group.kinds import Kind
from ottla.broker.handlers.answers import Pending
from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.handlers.groups import GROUP_OPERATIONS, Found, Part, ask_each, caller_of
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

Described = ConsumerGroupDescribeResponse.DescribedGroup


def handle_consumer_group_heartbeat(
    session: Session, request: ConsumerGroupHeartbeatRequest, version: int
) -> ConsumerGroupHeartbeatResponse | Pending:
    """Answered when what it says is durable."""
    rooms = session.rooms
    try:
        _check_served(rooms)
        check_request(request, version, rooms.config.group_consumer_assignors)
        runner, shard = rooms.groups.runner(request.group_id)
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(
            error_code=int(error.code), error_message=error.message
        )
    pending = Pending()
    caller = caller_of(session, version)
    runner.perform(shard.consumer_heartbeat(caller, request, pending, runner.now()))
    return pending


def handle_consumer_group_describe(
    session: Session, request: ConsumerGroupDescribeRequest, version: int
) -> ConsumerGroupDescribeResponse | Pending:
    """Each group by itself; one of another kind is not found, so that clients ask otherwise."""

    def make(groups: list[Any]) -> ConsumerGroupDescribeResponse:
        for group in groups:
            if request.include_authorized_operations and not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
        return ConsumerGroupDescribeResponse(groups=groups)

    def ask(found: Found, group_id: str, part: Part) -> None:
        runner, shard = found
        runner.answer(part, describe(shard, group_id))

    def refuse(group_id: str, code: ErrorCode) -> Described:
        return Described(group_id=group_id, error_code=int(code))

    try:
        _check_served(session.rooms)
    except KafkaError as error:
        return make([refuse(group_id, error.code) for group_id in request.group_ids])
    return ask_each(session.rooms, request.group_ids, make, ask, refuse, named=True)


def _check_served(rooms: Rooms) -> None:
    is_set = Kind.CONSUMER.value in rooms.config.group_coordinator_rebalance_protocols
    if not is_set or not rooms.image.features.get(GROUP_VERSION):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
