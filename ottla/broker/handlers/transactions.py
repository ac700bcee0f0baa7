"""Transactions: AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers, and what shows them:
DescribeTransactions, ListTransactions.

The rules are those of `broker.coordinator.transaction`; here a request finds its shard, what does
not exist is refused, and an error finds the name that its version has for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from ottla.broker.coordinator.group.coordinator import CONSUMER_OFFSETS
from ottla.broker.coordinator.group.patterns import check_pattern, resolve
from ottla.broker.coordinator.outcome import EndMarker, Outcome, Reply
from ottla.broker.coordinator.placement import partition_for
from ottla.broker.coordinator.runtime import Runner
from ottla.broker.coordinator.transaction.markers import MARKERS_PER_TURN, Asked
from ottla.broker.coordinator.transaction.shard import (
    NEWER,
    Asker,
    Enlisted,
    TransactionShard,
)
from ottla.broker.coordinator.transaction.states import NAMES, NEVER_SHOWN
from ottla.broker.coordinator.transaction.transaction import Place, Transaction, is_exhausted
from ottla.broker.handlers.answers import Awaited, Pending
from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.handlers.groups import Gathering
from ottla.broker.handlers.topic_names import INTERNAL_TOPICS
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

SEVERAL_SINCE_VERSION = 4
FENCED_SINCE_VERSION = 2
"""Before it a client takes no other error for the end of its producer."""
NEWER_SINCE_VERSION = 5
MARKERS_TIMEOUT_S = 30.0
OLDER = 0

AddedTopic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
AddedPartition = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
AddedTransaction = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
AskedTopic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
Marker = WriteTxnMarkersRequest.WritableTxnMarker
MarkedTopic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
MarkedPartition = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult
Marked = WriteTxnMarkersResponse.WritableTxnMarkerResult
Listed = ListTransactionsResponse.TransactionState
Described = DescribeTransactionsResponse.TransactionState

Command = Callable[[TransactionShard, Runner[TransactionShard], Reply], Outcome]


class Mapped(Pending):
    """An answer to come, made of what comes."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__()
        self._make = make

    def complete(self, response: Any) -> None:
        super().complete(self._make(response))


def handle_add_partitions_to_txn(
    session: Session, request: AddPartitionsToTxnRequest, version: int
) -> AddPartitionsToTxnResponse | Pending:
    """Of one transaction, all of its partitions or none; from version 4 on of several, as brokers
    ask, also only whether they are in. Without partitions a transaction begins all the same."""
    rooms = session.rooms
    if version >= SEVERAL_SINCE_VERSION:
        return _add_several(rooms, request)
    topics = request.v3_and_below_topics
    refused = _unknown(rooms, topics, are_internal_refused=True)
    if refused is not None:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=refused)
    asker = Asker(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
    )
    places = _places(topics)

    def make(enlisted: Enlisted) -> AddPartitionsToTxnResponse:
        codes = [_older(code, version) for code in enlisted.codes]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, codes))

    pending = Mapped(make)
    _ask(
        rooms,
        asker.transactional_id,
        lambda shard, runner, reply: shard.enlist(
            asker, places, reply, runner.now(), version=OLDER
        ),
        pending,
        lambda code: Enlisted([code] * len(places)),
    )
    return pending


def handle_add_offsets_to_txn(
    session: Session, request: AddOffsetsToTxnRequest, version: int
) -> Pending | Awaitable[AddOffsetsToTxnResponse]:
    """The partition of __consumer_offsets that has the group, which need not exist."""
    if CONSUMER_OFFSETS not in session.rooms.image.topics.by_name:
        return _add_offsets_with_topic(session.rooms, request, version)
    pending = Mapped(partial(_offsets_added, version))
    _add_offsets(session.rooms, request, pending)
    return pending


def handle_end_txn(
    session: Session, request: EndTxnRequest, version: int
) -> EndTxnResponse | Pending | Awaitable[EndTxnResponse]:
    """Answered when the decision is durable; from version 5 on with the producer that goes on."""
    rooms = session.rooms
    takes_id = version >= NEWER_SINCE_VERSION and is_exhausted(request.producer_epoch)
    if takes_id and not rooms.producer_ids.left:
        return _end_refilled(rooms, request, version)
    pending = Mapped(partial(_ended, version))
    _end(rooms, request, version, pending)
    return pending


async def handle_write_txn_markers(
    session: Session, request: WriteTxnMarkersRequest, version: int
) -> WriteTxnMarkersResponse:
    """Ends transactions in partitions, whatever their coordinator says: it is who decides, or an
    administrator who ends one that hangs. Who names a partition twice has one marker written."""
    rooms = session.rooms
    codes: dict[tuple[int, Place], ErrorCode] = {}
    wanted: dict[tuple[int, Place], Asked] = {}
    existing = [dict.fromkeys(_existing(rooms, marker)) for marker in request.markers]
    for number, marker in enumerate(request.markers):
        if marker.producer_id >= 0 and marker.producer_epoch >= 0:
            asked = _asked(marker)
            wanted.update({(number, place): asked for place in existing[number]})
    written = Awaited()

    def then(key: tuple[int, Place], code: ErrorCode) -> None:
        codes[key] = code
        if len(codes) == len(wanted):
            written.complete(None)

    for count, (key, asked) in enumerate(wanted.items(), 1):
        rooms.transactions.markers.write(key[1], asked, partial(then, key))
        if count % MARKERS_PER_TURN == 0:
            await asyncio.sleep(0)
    if wanted:
        with suppress(TimeoutError):
            async with asyncio.timeout(MARKERS_TIMEOUT_S):
                await written.future

    def code_of(number: int, place: Place) -> ErrorCode:
        if place not in existing[number]:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if (number, place) not in wanted:
            return ErrorCode.UNKNOWN_SERVER_ERROR  # what Kafka says of a producer that is none
        return codes.get((number, place), ErrorCode.REQUEST_TIMED_OUT)

    response = WriteTxnMarkersResponse()
    for number, marker in enumerate(request.markers):
        topics = []
        for topic in marker.topics:
            found = [
                MarkedPartition(index, int(code_of(number, (topic.name, index))))
                for index in topic.partition_indexes
            ]
            topics.append(MarkedTopic(topic.name, found))
        response.markers.append(Marked(marker.producer_id, topics))
    return response


def _existing(rooms: Rooms, marker: Marker) -> Iterator[Place]:
    for topic in marker.topics:
        known = rooms.image.topics.by_name.get(topic.name)
        exists = () if known is None else known.partitions
        yield from ((topic.name, index) for index in topic.partition_indexes if index in exists)


def _asked(marker: Marker) -> Asked:
    return Asked(
        EndMarker(
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
        ),
        marker.transaction_version,
    )


def handle_describe_transactions(
    session: Session, request: DescribeTransactionsRequest, version: int
) -> DescribeTransactionsResponse | Pending:
    """Each by itself; one that is named again gets the same answer again, as in Kafka."""
    asked = request.transactional_ids
    if not asked:
        return DescribeTransactionsResponse()
    names = list(dict.fromkeys(asked))

    def response(parts: list[Described]) -> DescribeTransactionsResponse:
        by_name = dict(zip(names, parts, strict=True))
        return DescribeTransactionsResponse(transaction_states=[by_name[name] for name in asked])

    gathering = Gathering(len(names), response)
    for index, name in enumerate(names):
        _describe(session.rooms, name, gathering.part(index))
    return gathering


def handle_list_transactions(
    session: Session, request: ListTransactionsRequest, version: int
) -> ListTransactionsResponse:
    """The transactional ids coordinated here that all filters let through."""
    rooms = session.rooms
    known = {*NAMES.values(), *NEVER_SHOWN}
    unknown = [name for name in request.state_filters if name not in known]
    pattern = request.transactional_id_pattern
    try:
        if pattern:
            check_pattern(pattern)
        shards = rooms.transactions.shards()
    except KafkaError as error:
        return ListTransactionsResponse(error_code=int(error.code))
    now_ms = rooms.clock.wall_ms()
    found = [
        one
        for shard in shards
        for one in shard.transactions.values()
        if _is_listed(one, request, now_ms)
    ]
    if pattern:
        matching = resolve([pattern], [one.transactional_id for one in found])[pattern]
        found = [one for one in found if one.transactional_id in matching]
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            Listed(one.transactional_id, one.producer_id, NAMES[one.state]) for one in found
        ],
    )


def _is_listed(transaction: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    return (
        (not request.producer_id_filters or transaction.producer_id in request.producer_id_filters)
        and (not request.state_filters or NAMES[transaction.state] in request.state_filters)
        and (
            request.duration_filter < 0 or now_ms - transaction.started_ms > request.duration_filter
        )
    )


def _describe(rooms: Rooms, name: str, reply: Reply) -> None:
    def refused(code: ErrorCode) -> Described:
        return Described(error_code=int(code), transactional_id=name)

    if not name:
        reply.complete(refused(ErrorCode.INVALID_REQUEST))
        return
    _ask(
        rooms,
        name,
        lambda shard, runner, reply: shard.describe(name, reply, runner.now()),
        reply,
        refused,
    )


def _ask(
    rooms: Rooms,
    transactional_id: str,
    command: Command,
    reply: Reply,
    refused: Callable[[ErrorCode], Any],
) -> None:
    """Has the shard of an id do something, or answers why there is none."""
    try:
        runner, shard = rooms.transactions.runner(transactional_id)
    except KafkaError as error:
        reply.complete(refused(error.code))
        return
    runner.perform(command(shard, runner, reply))


def _add_several(
    rooms: Rooms, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Pending:
    asked = request.transactions
    if not asked:
        return AddPartitionsToTxnResponse()
    gathering = Gathering(
        len(asked), lambda parts: AddPartitionsToTxnResponse(results_by_transaction=parts)
    )
    for index, one in enumerate(asked):
        _add(rooms, one, gathering.part(index))
    return gathering


def _add(
    rooms: Rooms, asked: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction, reply: Reply
) -> None:
    """One transaction of several: adds its partitions, or looks whether they are in."""
    name, topics = asked.transactional_id, asked.topics
    refused = _unknown(rooms, topics, are_internal_refused=False)
    places = _places(topics)
    if refused is not None:
        reply.complete(AddedTransaction(name, refused))
        return
    asker = Asker(name, asked.producer_id, asked.producer_epoch)

    def command(shard: TransactionShard, runner: Runner[TransactionShard], reply: Reply) -> Outcome:
        if asked.verify_only:
            return shard.verify(asker, places, reply, runner.now())
        return shard.enlist(asker, places, reply, runner.now(), version=NEWER)

    made = _Made(reply, name, topics)
    _ask(rooms, name, command, made, lambda code: Enlisted([code] * len(places)))


class _Made:
    """The place of one transaction in an answer of several."""

    __slots__ = ("_name", "_reply", "_topics")

    def __init__(self, reply: Reply, name: str, topics: list[AskedTopic]) -> None:
        self._reply = reply
        self._name = name
        self._topics = topics

    def complete(self, enlisted: Enlisted) -> None:
        self._reply.complete(AddedTransaction(self._name, _results(self._topics, enlisted.codes)))


def _places(topics: list[AskedTopic]) -> list[Place]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _results(topics: list[AskedTopic], codes: list[ErrorCode]) -> list[AddedTopic]:
    coming = iter(codes)
    return [
        AddedTopic(
            topic.name, [AddedPartition(index, int(next(coming))) for index in topic.partitions]
        )
        for topic in topics
    ]


def _unknown(
    rooms: Rooms, topics: list[AskedTopic], *, are_internal_refused: bool
) -> list[AddedTopic] | None:
    """The answer if a partition cannot be added: then none is. None if all can."""
    known = rooms.image.topics.by_name

    def code_of(topic: str, index: int) -> ErrorCode:
        if are_internal_refused and topic in INTERNAL_TOPICS:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic not in known or index not in known[topic].partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    codes = [code_of(*place) for place in _places(topics)]
    if not any(codes):
        return None
    return _results(topics, [code or ErrorCode.OPERATION_NOT_ATTEMPTED for code in codes])


def _older(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE_VERSION:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


async def _add_offsets_with_topic(
    rooms: Rooms, request: AddOffsetsToTxnRequest, version: int
) -> AddOffsetsToTxnResponse:
    try:
        await rooms.coordinator_topics.make(rooms, CONSUMER_OFFSETS)
    except KafkaError as error:
        rooms.events.warning(
            "coordinator_topic_not_created", topic=CONSUMER_OFFSETS, error=str(error)
        )
        return AddOffsetsToTxnResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    reply = Awaited()
    _add_offsets(rooms, request, reply)
    return _offsets_added(version, await reply.future)


def _add_offsets(rooms: Rooms, request: AddOffsetsToTxnRequest, reply: Reply) -> None:
    count = len(rooms.image.topics.by_name[CONSUMER_OFFSETS].partitions)
    place = CONSUMER_OFFSETS, partition_for(request.group_id, count)
    asker = Asker(request.transactional_id, request.producer_id, request.producer_epoch)
    _ask(
        rooms,
        request.transactional_id,
        lambda shard, runner, reply: shard.enlist(
            asker, [place], reply, runner.now(), version=OLDER
        ),
        reply,
        lambda code: Enlisted([code]),
    )


def _offsets_added(version: int, enlisted: Enlisted) -> AddOffsetsToTxnResponse:
    (code,) = enlisted.codes
    return AddOffsetsToTxnResponse(error_code=int(_older(code, version)))


async def _end_refilled(rooms: Rooms, request: EndTxnRequest, version: int) -> EndTxnResponse:
    while not rooms.producer_ids.left:
        await rooms.producer_ids.refill(rooms)
    reply = Awaited()
    _end(rooms, request, version, reply)
    return _ended(version, await reply.future)


def _end(rooms: Rooms, request: EndTxnRequest, version: int, reply: Reply) -> None:
    asker = Asker(request.transactional_id, request.producer_id, request.producer_epoch)
    _ask(
        rooms,
        request.transactional_id,
        lambda shard, runner, reply: shard.end(
            asker,
            reply,
            runner.now(),
            committed=request.committed,
            is_newer=version >= NEWER_SINCE_VERSION,
        ),
        reply,
        lambda code: EndTxnResponse(error_code=int(code)),
    )


def _ended(version: int, response: EndTxnResponse) -> EndTxnResponse:
    response.error_code = int(_older(ErrorCode(response.error_code), version))
    return response
