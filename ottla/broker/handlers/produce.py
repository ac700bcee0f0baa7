"""Produce: check who may write where, append, answer when the append is as durable as promised.

The hot path. Per partition: one dict look-up, one `append` (which reads the 61 bytes of the batch
header, checks the CRC and writes once), one answer object. The answer leaves at once if every
append is visible, else when its last one is (`await_commit`); architecture.md section 5.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from ottla.broker.coordinator.transaction.shard import Asker
from ottla.broker.handlers import transactional
from ottla.broker.handlers.answers import (
    NO_ANSWER,
    WHOLE_LINE_BYTES,
    CloseConnection,
    NoAnswer,
    Pending,
)
from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.handlers.partitions import absence
from ottla.broker.handlers.topic_names import INTERNAL_TOPICS
from ottla.broker.handlers.transactional import Admission
from ottla.broker.replication.conversions import Drop
from ottla.broker.replication.replicas import Partition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.records.batch import MAGIC, MAGIC_POSITION
from ottla.protocol.records.codecs import Codec

PartResponse = ProduceResponse.PartitionProduceResponse
TopicResponse = ProduceResponse.TopicProduceResponse

ACKS_ALL = -1
VALID_ACKS = (ACKS_ALL, 0, 1)
UNLIMITED_MS = 2**31 - 1
ATTRIBUTES_LOW_BYTE: Final = 22
TRANSACTIONAL_BIT: Final = 0x10
CODEC_MASK = 0x07
ZSTD_SINCE_VERSION: Final = 7
TOPIC_IDS_SINCE_VERSION: Final = 13


class ProduceAnswer(Pending):
    """A Produce answer that waits for some of its partitions. Made when the first one has to."""

    __slots__ = ("drops", "is_silent", "waiting", "whole")

    def __init__(self, whole: ProduceResponse, acks: int) -> None:
        super().__init__()
        self.whole = whole
        self.is_silent = acks == 0
        self.waiting = 0
        self.drops: list[Drop] = []

    def committed(self, part: PartResponse) -> None:
        """One part of the answer is ready. `line` is None while the request is being served."""
        self.waiting -= 1
        if self.waiting or self.line is None or self.abandoned:
            return
        if not self.is_silent:
            self.complete(self.whole)
        elif (error := _first_error(self.whole)) is None:
            self.complete(NO_ANSWER)
        else:
            self.line.refused(self, CloseConnection(error))

    def on_abandoned(self) -> None:
        """What is not in a log yet never comes there: a producer that still wants it sends it
        again, and its memory is somebody else's now."""
        for drop in self.drops:
            drop()
        self.drops.clear()

    def failed(self, part: PartResponse, code: ErrorCode) -> None:
        refuse(part, code)
        self.committed(part)


def wait_limit_ms(request: ProduceRequest) -> int:
    """How long the answer may wait. The request's limit is for what acks=all waits for; with acks=1
    Kafka knows none, and to the leader's own sync there is no alternative."""
    return request.timeout_ms if request.acks == ACKS_ALL else UNLIMITED_MS


class Append:
    """What the appends of one request share."""

    __slots__ = ("_answer", "acks", "response", "rooms", "timeout_ms", "version")

    def __init__(
        self, rooms: Rooms, request: ProduceRequest, version: int, response: ProduceResponse
    ) -> None:
        self.rooms = rooms
        self.acks = request.acks
        self.timeout_ms = wait_limit_ms(request)
        self.version = version
        self.response = response
        self._answer: ProduceAnswer | None = None

    @property
    def answer(self) -> ProduceAnswer:
        if self._answer is None:
            self._answer = ProduceAnswer(self.response, self.acks)
        return self._answer

    @property
    def pending(self) -> ProduceAnswer | None:
        """What is still waited for; an append that fails its log dir ends the waits before it."""
        return self._answer if self._answer is not None and self._answer.waiting else None


def handle_produce(
    session: Session, request: ProduceRequest, version: int
) -> ProduceResponse | ProduceAnswer | NoAnswer:
    """Raises CloseConnection for a failed request with acks=0, as Kafka does."""
    response = ProduceResponse([])
    append = Append(session.rooms, request, version, response)
    replicas = session.rooms.replicas
    refused = None
    admissions: list[Admission] = []
    if request.acks not in VALID_ACKS or request.transactional_id is not None:
        refused = _refusal(request)
    by_id = version >= TOPIC_IDS_SINCE_VERSION
    for topic in request.topic_data:
        parts: list[PartResponse] = []
        response.responses.append(TopicResponse(topic.name, topic.topic_id, parts))
        for data in topic.partition_data:
            part = PartResponse(data.index)
            parts.append(part)
            if by_id:
                partition = replicas.by_id(topic.topic_id, data.index)
            else:
                partition = replicas.get(topic.name, data.index)
            if refused is not None:
                refuse(part, refused.code, refused.message)
                if partition is None and request.acks not in VALID_ACKS:
                    _refuse_unknown(part, _unknown(session.rooms, topic, data.index, by_id))
            elif partition is None:
                refuse(part, _unknown(session.rooms, topic, data.index, by_id))
            elif partition.topic in INTERNAL_TOPICS:
                refuse(part, ErrorCode.INVALID_TOPIC_EXCEPTION)
            elif request.transactional_id is None:
                _append(append, partition, data.records, part)
            else:
                _append_in_transaction(
                    append, partition, data.records, part, request.transactional_id, admissions
                )
    if admissions:
        transactional.admit(session.rooms, admissions, version)
    pending = append.pending
    if request.acks == 0:
        # What waits for a worker keeps its place in the line, so that who sends more than the
        # workers convert is not read from.
        return _without_answer(response) if pending is None else pending
    if by_id and len(response.responses) > 1:
        response.responses.sort(key=_has_unknown_id)  # Kafka lists them after the good ones
    return response if pending is None else pending


def refuse(part: PartResponse, code: ErrorCode, message: str | None = None) -> None:
    """Turns a partition's answer into an error."""
    part.error_code = int(code)
    part.base_offset = -1
    part.error_message = message


def refuse_by(part: PartResponse, error: KafkaError) -> None:
    """The same by what an append has raised."""
    refuse(part, error.code, error.message)
    part.log_start_offset = getattr(error, "log_start_offset", -1)
    for index, message in getattr(error, "record_errors", ()):
        part.record_errors.append(ProduceResponse.BatchIndexAndErrorMessage(index, message))


def _refuse_unknown(part: PartResponse, absence: ErrorCode) -> None:
    """Acks are judged before it matters who leads the partition, and after whether there is one."""
    if absence in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        refuse(part, absence)


def _has_unknown_id(topic: TopicResponse) -> bool:
    code = int(ErrorCode.UNKNOWN_TOPIC_ID)
    return any(part.error_code == code for part in topic.partition_responses)


def _refusal(request: ProduceRequest) -> KafkaError | None:
    """What is wrong with the whole request, if anything."""
    if request.acks not in VALID_ACKS:
        return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    return transactional.refusal(request)


def _unknown(
    rooms: Rooms, topic: ProduceRequest.TopicProduceData, index: int, by_id: bool
) -> ErrorCode:
    name = topic.name
    if by_id:
        known = rooms.image.topics.by_id.get(topic.topic_id)
        if known is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        name = known.name
    return absence(rooms, name, index)


def _append(
    append: Append,
    partition: Partition,
    records: memoryview | None,
    part: PartResponse,
    asker: Asker | None = None,
) -> None:
    """`asker` is who writes the batch in a transaction that has this partition."""
    if records is None:
        refuse(part, ErrorCode.INVALID_RECORD, "The records of a partition cannot be null.")
        return
    # In older formats other things stand there, and `check` says what is wrong.
    if len(records) > ATTRIBUTES_LOW_BYTE and records[MAGIC_POSITION] == MAGIC:
        attributes = records[ATTRIBUTES_LOW_BYTE]
        if attributes & TRANSACTIONAL_BIT and asker is None:
            refuse(part, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return
        if append.version < ZSTD_SINCE_VERSION and attributes & CODEC_MASK == Codec.ZSTD:
            refuse(part, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            return
    try:
        log = partition.log
        if partition.conversions is None and not (
            log.may_convert and log.needs_conversion(records)
        ):
            if asker is not None:
                transactional.check(append.rooms, partition, asker, records, append.version)
            _write(append, partition, records, part)
        else:
            _write_later(append, partition, records, part, asker)
    except KafkaError as error:
        refuse_by(part, error)


def _append_in_transaction(
    append: Append,
    partition: Partition,
    records: memoryview | None,
    part: PartResponse,
    transactional_id: str,
    admissions: list[Admission],
) -> None:
    """Appends at once while the producer's transaction is open here; before that it is to be asked
    whether the partition is in it. The frame's buffer is reused, so what waits is copied."""
    asker = transactional.asker(transactional_id, records)
    rooms, version = append.rooms, append.version
    if asker is None or not transactional.must_ask(rooms, partition, asker, version):
        _append(append, partition, records, part, asker)
        return
    refusal = None
    if records is not None and version >= ZSTD_SINCE_VERSION:  # before it, the codec is looked at
        refusal = partition.log.refusal_by_size(records, rooms.clock.wall_ms())
    own = memoryview(bytearray(b"" if refusal is not None else records or b""))
    answer = append.answer
    answer.waiting += 1
    answer.held_bytes += len(own)

    def then(code: ErrorCode) -> None:
        try:
            if code:
                raise transactional.refused(code, version)
            if not partition.online:
                raise KafkaError(absence(rooms, partition.topic, partition.index))
            if refusal is not None:
                raise refusal
            _append(append, partition, own, part, asker)
        except KafkaError as error:
            refuse_by(part, error)
        answer.committed(part)

    admissions.append((asker, partition, then))


def _write(append: Append, partition: Partition, records: memoryview, part: PartResponse) -> None:
    replicas = append.rooms.replicas
    result = replicas.append(partition, records)
    part.base_offset = result.base_offset
    part.log_append_time_ms = result.log_append_time_ms
    part.log_start_offset = result.log_start_offset
    if partition.log.high_watermark <= result.last_offset and append.acks:
        answer = append.answer
        answer.waiting += 1
        replicas.await_commit(
            partition,
            last_offset=result.last_offset,
            timeout_ms=append.timeout_ms,
            listener=answer,
            part=part,
        )


def _write_later(
    append: Append,
    partition: Partition,
    records: memoryview,
    part: PartResponse,
    asker: Asker | None,
) -> None:
    """Appends behind work off the loop. The frame's buffer is reused, so the batch is copied. Where
    enough waits already, its connection is not read from before it is answered."""
    answer = append.answer
    if answer.abandoned:  # while it was asked whether the batch is in its transaction
        return
    log = partition.log
    now_ms = append.rooms.clock.wall_ms()
    must_convert = log.needs_conversion(records)
    if must_convert or asker is None:  # else its transaction is judged first, when it is its turn
        refusal = log.refusal_by_size(records, now_ms)
        if refusal is not None:
            raise refusal
    own = bytearray(records)
    work = partial(log.prepare, memoryview(own), now_ms=now_ms) if must_convert else None
    replicas = append.rooms.replicas
    answer.waiting += 1
    answer.held_bytes += len(own)
    if replicas.conversions.is_full:
        answer.held_bytes += WHOLE_LINE_BYTES

    def then(converted: bytearray | memoryview | BaseException) -> None:
        try:
            if isinstance(converted, BaseException):
                raise converted
            if not partition.online:
                raise KafkaError(absence(append.rooms, partition.topic, partition.index))
            whole = memoryview(converted)
            if asker is not None:
                transactional.check(append.rooms, partition, asker, whole, append.version)
            _write(append, partition, whole, part)
        except KafkaError as error:
            refuse_by(part, error)
        except BaseException:
            answer.failed(part, ErrorCode.UNKNOWN_SERVER_ERROR)
            raise
        answer.committed(part)

    answer.drops.append(replicas.convert(partition, work, own, then))


def _without_answer(response: ProduceResponse) -> NoAnswer:
    """acks=0: success says nothing; an error ends the connection, so that the client asks again."""
    error = _first_error(response)
    if error is not None:
        raise CloseConnection(error)
    return NO_ANSWER


def _first_error(response: ProduceResponse) -> str | None:
    for topic in response.responses:
        for part in topic.partition_responses:
            if part.error_code:
                code = ErrorCode(part.error_code).name
                return f"Produce with acks=0 to {topic.name!r} failed: {code}"
    return None
