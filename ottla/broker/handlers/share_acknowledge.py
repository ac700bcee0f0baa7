"""ShareAcknowledge: what members of share groups say of the records that they hold (KIP-932).

Each partition is answered on its own, when what was said of it is durable. ShareFetch brings
acknowledgements, too, and has them done here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.broker.controller.features import SHARE_VERSION
from ottla.broker.coordinator.group.share_heartbeat import MEMBER_ID_LENGTH_MAX
from ottla.broker.handlers.answers import Pending
from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.handlers.endpoints import node_endpoints
from ottla.broker.handlers.partitions import absence
from ottla.broker.share.partition import SharePartition
from ottla.broker.share.sessions import FIRST_EPOCH, LAST_EPOCH, Place
from ottla.broker.share.window import ACCEPT, RENEW, Acknowledgement
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.share_group import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
)

RENEW_SINCE_VERSION = 2
_TYPES_MAX = {True: RENEW, False: RENEW - 1}
LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""Whoever is told one of these is told who leads, too."""

Batches = (
    Sequence[ShareFetchRequest.AcknowledgementBatch]
    | Sequence[ShareAcknowledgeRequest.AcknowledgementBatch]
)
PartitionAnswer = ShareAcknowledgeResponse.PartitionData
TopicAnswer = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
Results = dict[Place, KafkaError | None]


class Said(NamedTuple):
    """Who says something, and whether that may be that records are held for longer."""

    group_id: str
    member_id: str
    may_renew: bool
    is_renewal: bool


def handle_share_acknowledge(
    session: Session, request: ShareAcknowledgeRequest, version: int
) -> ShareAcknowledgeResponse | Pending:
    """With epoch -1 it is the last request of the member's session."""
    shares = session.rooms.shares
    try:
        group_id, member_id = checked_names(session.rooms, request.group_id, request.member_id)
        if request.share_session_epoch == FIRST_EPOCH:
            reason = "A session is opened by a fetch."
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, reason)
        if request.share_session_epoch == LAST_EPOCH:
            share_session = shares.sessions.get(group_id, member_id)
        else:
            share_session = shares.sessions.go_on(group_id, member_id, request.share_session_epoch)
    except KafkaError as error:
        return ShareAcknowledgeResponse(error_code=int(error.code), error_message=error.message)
    pending = Pending()

    def answer(results: Results) -> None:
        # Meanwhile the member may have opened another one, which ended this one.
        if request.share_session_epoch == LAST_EPOCH and share_session.is_open:
            shares.end_session(group_id, member_id, "the member closed it")
        lock_ms = shares.rules(group_id).limits.lock_ms
        pending.complete(_response(session, results, lock_ms))

    said = Said(group_id, member_id, version >= RENEW_SINCE_VERSION, request.is_renew_ack)
    asked: list[tuple[Place, Batches]] = [
        ((topic.topic_id, part.partition_index), part.acknowledgement_batches)
        for topic in request.topics
        for part in topic.partitions
    ]
    acknowledge(session.rooms, said, asked, answer)
    return pending


def check_share_groups_served(rooms: Rooms) -> None:
    """UNSUPPORTED_VERSION while the cluster's feature share.version is 0."""
    if not rooms.image.features.get(SHARE_VERSION):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def checked_names(rooms: Rooms, group_id: str | None, member_id: str | None) -> tuple[str, str]:
    """Raises INVALID_REQUEST for names that no member has."""
    check_share_groups_served(rooms)
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names no group.")
    if not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names no member.")
    return group_id, member_id


def acknowledge(
    rooms: Rooms,
    said: Said,
    asked: Sequence[tuple[Place, Batches]],
    then: Callable[[Results], None],
) -> None:
    """Calls `then` with what became of each partition, when all of it is durable."""
    results: Results = {}
    started: dict[Place, None] = {}
    complete = False

    def done(place: Place, error: KafkaError | None) -> None:
        # Not the frames that it came through: they would keep the request while the answer waits.
        results[place] = None if error is None else error.with_traceback(None)
        if complete and len(results) == len(started):
            then(results)

    for place, batches in asked:
        if place in started:
            continue
        started[place] = None
        try:
            read = _checked(batches, said)
            share = _find(rooms, said.group_id, place) if read else None
        except KafkaError as error:
            done(place, error)
            continue
        if share is None:
            done(place, None)
        else:
            share.acknowledge(said.member_id, read, _Done(place, done))
    complete = True
    if len(results) == len(started):
        then(results)


def leader_of(session: Session, place: Place) -> tuple[int, int]:
    """The leader of a partition and its epoch, -1 for what is not known."""
    topic = session.rooms.image.topics.by_id.get(place[0])
    partition = None if topic is None else topic.partitions.get(place[1])
    return (-1, -1) if partition is None else (partition.leader, partition.leader_epoch)


class _Done:
    """Knows of which partition it is told."""

    __slots__ = ("_place", "_then")

    def __init__(self, place: Place, then: Callable[[Place, KafkaError | None], None]) -> None:
        self._place = place
        self._then = then

    def __call__(self, error: KafkaError | None) -> None:
        self._then(self._place, error)


def _find(rooms: Rooms, group_id: str, place: Place) -> SharePartition:
    topic = rooms.image.topics.by_id.get(place[0])
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if place[1] not in topic.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    share = rooms.shares.get(group_id, place)
    if share is None:
        if rooms.replicas.by_id(*place) is None:
            raise KafkaError(absence(rooms, topic.name, place[1]))
        # Nobody has fetched from it since this broker leads it: what was held then is forgotten.
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return share


def _checked(batches: Batches, said: Said) -> list[Acknowledgement]:
    """Raises INVALID_REQUEST for ranges out of order and for types that there are not."""
    read: list[Acknowledgement] = []
    before = -1
    most = _TYPES_MAX[said.may_renew]
    for batch in batches:
        types = batch.acknowledge_types
        count = batch.last_offset - batch.first_offset + 1
        if count < 1 or batch.first_offset < max(before, 0):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The ranges are out of order.")
        if not types or len(types) not in (1, count):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Not one type for each record.")
        if min(types) < 0 or max(types) > most:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "There is no such type.")
        if max(types) > ACCEPT and RENEW in types and not said.is_renewal:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The request is no renewal.")
        read.append(Acknowledgement(batch.first_offset, batch.last_offset, types))
        before = batch.last_offset
    return read


def _response(session: Session, results: Results, lock_ms: int) -> ShareAcknowledgeResponse:
    response = ShareAcknowledgeResponse(acquisition_lock_timeout_ms=lock_ms)
    topics: dict[bytes, list[PartitionAnswer]] = {}
    leaders: set[int] = set()
    for place, error in results.items():
        part = PartitionAnswer(place[1])
        if error is not None:
            part.error_code = int(error.code)
            part.error_message = error.message
            if error.code in LEADER_ERRORS:
                leader, epoch = leader_of(session, place)
                part.current_leader = ShareAcknowledgeResponse.LeaderIdAndEpoch(leader, epoch)
                leaders.add(leader)
        topics.setdefault(place[0], []).append(part)
    response.responses = [TopicAnswer(topic_id, parts) for topic_id, parts in topics.items()]
    if leaders:
        response.node_endpoints = [
            ShareAcknowledgeResponse.NodeEndpoint(*one) for one in node_endpoints(session, leaders)
        ]
    return response
