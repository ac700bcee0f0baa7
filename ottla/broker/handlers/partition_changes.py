"""AlterPartitionReassignments, ListPartitionReassignments and ElectLeaders: who carries and leads.

The controller decides, here it is awaited. As for topics, a timeout of 0 is over as soon as it
begins: what is asked for is done, and said to be late.
"""

from __future__ import annotations

from ottla.broker.controller import elect_leaders as election_commands
from ottla.broker.controller import reassignments
from ottla.broker.handlers.context import Session
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

TIMED_OUT = KafkaError(ErrorCode.REQUEST_TIMED_OUT)


async def handle_alter_partition_reassignments(
    session: Session, request: AlterPartitionReassignmentsRequest, version: int
) -> AlterPartitionReassignmentsResponse:
    """Answered when a reassignment has begun; whether it is through, the list says."""
    response = await session.rooms.quorum.submit(
        lambda image: reassignments.alter_partition_reassignments(image, request)
    )
    if request.timeout_ms <= 0 and request.topics:
        response.error_code = int(TIMED_OUT.code)
        for topic in response.responses:
            for one in topic.partitions:
                one.error_code, one.error_message = int(TIMED_OUT.code), None
    return response


def handle_list_partition_reassignments(
    session: Session, request: ListPartitionReassignmentsRequest, version: int
) -> ListPartitionReassignmentsResponse:
    """The reassignments that are not through."""
    return reassignments.list_partition_reassignments(session.rooms.image, request)


async def handle_elect_leaders(
    session: Session, request: ElectLeadersRequest, version: int
) -> ElectLeadersResponse:
    """The leaders are elected, and this broker leads what it won, when the answer leaves."""
    response = await session.rooms.quorum.submit(
        lambda image: election_commands.elect_leaders(image, request)
    )
    if request.timeout_ms <= 0:
        return election_commands.refused_election(request, version, TIMED_OUT)
    return response
