"""Rows 28 to 33: requests that decode well and ask for what no client should, as data.

Each row is one message, in a version, to a broker with a topic of one partition that holds three
records, and another that is empty. `errors` are the error codes of the answer that are not 0, in
the order in which they stand in it; `judge` looks at what else matters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.offsets import (
    DeleteRecordsRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from ottla.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from ottla.protocol.schema import Message

TOPIC = "corpus"
COLLIDING = "corpus.ab."
RECORDS = 3
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
BAD_NAME = ErrorCode.INVALID_TOPIC_EXCEPTION
BAD_REQUEST = ErrorCode.INVALID_REQUEST
POLICY = ErrorCode.POLICY_VIOLATION
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE
BAD_VERSION = ErrorCode.UNSUPPORTED_VERSION
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@dataclass(slots=True, frozen=True)
class Row:
    number: int
    name: str
    message: Message
    version: int
    errors: tuple[ErrorCode, ...] = ()
    judge: Callable[[Any], bool] | None = None


BAD_NAMES = {
    "empty": "",
    "dot": ".",
    "two dots": "..",
    "a path": "../../etc/passwd",
    "an absolute path": "/etc/passwd",
    "a slash": "a/b",
    "a backslash": "a\\b",
    "a space": "a b",
    "NUL": "a\0b",
    "a line end": "a\n",
    "an escape": "a\x1b[31m",
    "a letter outside of ASCII": "caf\u00e9",
    "a digit outside of ASCII": "a\u0663",
    "outside of the first plane": "a\U0001f600",
    "a percent sign": "a%2e%2e",
    "250 characters": "n" * 250,
    "32767 characters": "n" * 32767,
}


def _create(
    name: str = "corpus-not-made",
    partitions: int = 1,
    factor: int = 1,
    *,
    assignments: list[tuple[int, list[int]]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(
        name,
        partitions,
        factor,
        [CreateTopicsRequest.CreatableReplicaAssignment(*one) for one in assignments or []],
        [CreateTopicsRequest.CreatableTopicConfig(*one) for one in (configs or {}).items()],
    )


def _metadata(*names: str, create: bool = True) -> MetadataRequest:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics, create)


def _creation(number: int, name: str, topic: Any, *errors: ErrorCode) -> Row:
    return Row(number, name, CreateTopicsRequest([topic]), 7, errors)


NAMES = [
    *(
        row
        for said, name in BAD_NAMES.items()
        for row in (
            _creation(28, f"create a topic, its name: {said}", _create(name), BAD_NAME),
            Row(28, f"ask for a topic, its name: {said}", _metadata(name), 12, (BAD_NAME,)),
        )
    ),
    # Names of metrics have underscores for dots, so COLLIDING would have the metrics of another.
    Row(
        28,
        f"names that collide with {COLLIDING}",
        CreateTopicsRequest([_create("corpus_ab_"), _create("corpus.ab_"), _create("corpus_ab.")]),
        7,
        (BAD_NAME,) * 3,
    ),
    Row(
        28,
        "delete a path",
        DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState("../../etc/passwd")]),
        6,
        (UNKNOWN,),
    ),
]

ASSIGNMENT_ERROR = ErrorCode.INVALID_REPLICA_ASSIGNMENT
BAD_CONFIG = ErrorCode.INVALID_CONFIG


def _grow(*topics: tuple[str, int], validate_only: bool = False) -> CreatePartitionsRequest:
    wanted = CreatePartitionsRequest.CreatePartitionsTopic
    return CreatePartitionsRequest(
        [wanted(name, count, None) for name, count in topics], 60_000, validate_only
    )


COUNTS = [
    *(
        _creation(29, f"{count} partitions", _create(partitions=count), code)
        for count, code in (
            (0, ErrorCode.INVALID_PARTITIONS),
            (-2, ErrorCode.INVALID_PARTITIONS),
            (-(2**31), ErrorCode.INVALID_PARTITIONS),
            (10_001, POLICY),
            (1_000_000, POLICY),
            (INT32_MAX, POLICY),
        )
    ),
    *(
        _creation(
            29,
            f"replication factor {factor}",
            _create(factor=factor),
            ErrorCode.INVALID_REPLICATION_FACTOR,
        )
        for factor in (0, -2, 2, 2**15 - 1, -(2**15))
    ),
    Row(
        29,
        "partitions whose sum is small",
        CreateTopicsRequest(
            [_create("corpus-many", INT32_MAX), _create("corpus-less", -INT32_MAX)]
        ),
        7,
        (POLICY, POLICY),
    ),
    Row(
        29,
        "20,000 topics in one request",
        CreateTopicsRequest([_create(f"corpus-{number}") for number in range(20_000)]),
        7,
        (POLICY,) * 20_000,
    ),
    Row(
        29,
        "a topic 20,000 times",
        CreateTopicsRequest([_create(partitions=0)] * 20_000),
        7,
        (BAD_REQUEST,),
    ),
    _creation(29, "a count and an assignment", _create(assignments=[(0, [1])]), BAD_REQUEST),
    _creation(
        29, "an assignment to nobody", _create("c", -1, -1, assignments=[(0, [])]), ASSIGNMENT_ERROR
    ),
    _creation(
        29,
        "an assignment with a gap",
        _create("c", -1, -1, assignments=[(0, [1]), (INT32_MAX, [1])]),
        ASSIGNMENT_ERROR,
    ),
    _creation(
        29,
        "an assignment to 10,000 times one broker",
        _create("c", -1, -1, assignments=[(0, [1] * 10_000)]),
        ASSIGNMENT_ERROR,
    ),
    Row(29, "a name twice", CreateTopicsRequest([_create(), _create()]), 7, (BAD_REQUEST,)),
    _creation(29, "an unknown setting", _create(configs={"nope": "1"}), BAD_CONFIG),
    _creation(29, "a setting of 32767 characters", _create(configs={"s" * 32767: "1"}), BAD_CONFIG),
    _creation(
        29,
        "a value of 32767 characters",
        _create(configs={"retention.ms": "9" * 32767}),
        BAD_CONFIG,
    ),
    _creation(29, "a null value", _create(configs={"retention.ms": None}), BAD_CONFIG),
    *(
        Row(29, f"grow to {count}", _grow((TOPIC, count)), 3, (code,))
        for count, code in (
            (1, ErrorCode.INVALID_PARTITIONS),
            (0, ErrorCode.INVALID_PARTITIONS),
            (-(2**31), ErrorCode.INVALID_PARTITIONS),
            (20_000, POLICY),
            (INT32_MAX, POLICY),
        )
    ),
    Row(
        29,
        "grow two topics by what one alone might",
        _grow((TOPIC, 9_000), (COLLIDING, 9_000), validate_only=True),
        3,
        (POLICY,),
    ),
]


def _fetch(
    offset: int = 0,
    *,
    topic: str = TOPIC,
    partition: int = 0,
    part_bytes: int = 1 << 20,
    epoch: int = -1,
    fetched_epoch: int = -1,
    forgotten: list[int] | None = None,
    **request: Any,
) -> FetchRequest:
    asked = FetchRequest.FetchPartition(
        partition, epoch, offset, fetched_epoch, partition_max_bytes=part_bytes
    )
    settings: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1} | request
    return FetchRequest(
        topics=[FetchRequest.FetchTopic(topic, partitions=[asked])],
        forgotten_topics_data=[FetchRequest.ForgottenTopic(topic, partitions=forgotten or [])],
        **settings,
    )


def _has_records(answer: Any) -> bool:
    (topic,) = answer.responses
    return len(topic.partitions[0].records) > 61


def _is_empty(answer: Any) -> bool:
    (topic,) = answer.responses
    return len(topic.partitions[0].records) == 0


def _shows_nothing(answer: Any) -> bool:
    """An error tells no offsets, and there are no records."""
    part = answer.responses[0].partitions[0]
    return _is_empty(answer) and part.high_watermark == part.last_stable_offset == -1


FETCHES = [
    *(
        Row(31, f"fetch at {offset}", _fetch(offset), 12, (OUT_OF_RANGE,), _shows_nothing)
        for offset in (-1, -2, -(2**63), RECORDS + 1, INT64_MAX)
    ),
    Row(31, "fetch at the end", _fetch(RECORDS), 12, (), _is_empty),
    *(
        Row(31, f"max_bytes {size}", _fetch(max_bytes=size), 12, (), _has_records)
        for size in (0, 1, -1, -(2**31), INT32_MAX)
    ),
    *(
        Row(31, f"partition_max_bytes {size}", _fetch(part_bytes=size), 12, (), _has_records)
        for size in (0, 1, -1, -(2**31), INT32_MAX)
    ),
    *(
        Row(31, f"min_bytes {size}, no wait", _fetch(min_bytes=size), 12, (), _has_records)
        for size in (0, -1, -(2**31), INT32_MAX)
    ),
    *(
        Row(31, f"max_wait_ms {wait} at the end", _fetch(3, max_wait_ms=wait), 12, (), _is_empty)
        for wait in (0, -1, -(2**31))
    ),
    Row(
        31,
        "max_wait_ms 2^31 - 1 with records there",
        _fetch(max_wait_ms=INT32_MAX),
        12,
        (),
        _has_records,
    ),
    Row(31, "a leader epoch too new", _fetch(epoch=99), 12, (ErrorCode.UNKNOWN_LEADER_EPOCH,)),
    Row(31, "leader epoch -2", _fetch(epoch=-2), 12, (), _has_records),
    Row(31, "an epoch fetched that is too new", _fetch(fetched_epoch=99), 12, (OUT_OF_RANGE,)),
    *(
        Row(31, f"fetch partition {index}", _fetch(partition=index), 12, (UNKNOWN,), _shows_nothing)
        for index in (1, -1, INT32_MAX, -(2**31))
    ),
    Row(31, "fetch a path", _fetch(topic="../corpus"), 12, (UNKNOWN,), _shows_nothing),
    Row(31, "fetch the zero id", _fetch(), 17, (ErrorCode.UNKNOWN_TOPIC_ID,), _shows_nothing),
    *(
        Row(
            31,
            f"isolation level {level}",
            _fetch(isolation_level=level),
            12,
            (BAD_REQUEST, BAD_REQUEST),
            _shows_nothing,
        )
        for level in (2, 127, -1)
    ),
    Row(
        31,
        "partitions forgotten that were never known",
        _fetch(forgotten=[0, 7, -1, INT32_MAX]),
        12,
        (),
        _has_records,
    ),
    *(
        Row(
            31,
            f"session {number}, epoch {epoch}",
            _fetch(session_id=number, session_epoch=epoch),
            12,
            (code,),
        )
        for number, epoch, code in (
            (0, 5, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            (99, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            (-1, INT32_MAX, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            (99, -2, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        )
    ),
    Row(
        31,
        "session 99, epoch -1",
        _fetch(session_id=99, session_epoch=-1),
        12,
        (),
        _has_records,
    ),
]

REPLICA_IDS = (0, 1, 2, INT32_MAX)
REPLICAS = [
    *(
        row
        for replica in REPLICA_IDS
        for row in (
            Row(
                32,
                f"fetch as replica {replica}",
                _fetch(RECORDS, replica_id=replica),
                11,
                (REFUSED, REFUSED),
                _shows_nothing,
            ),
            Row(
                32,
                f"fetch as replica {replica} by its state",
                _fetch(replica_state=FetchRequest.ReplicaState(replica, 1)),
                15,
                (REFUSED, REFUSED),
                _shows_nothing,
            ),
        )
    ),
    Row(
        32,
        "fetch as replica -2, a consumer that debugs",
        _fetch(replica_id=-2),
        11,
        (),
        _has_records,
    ),
]


def _list(
    timestamp: int,
    *,
    partition: int = 0,
    epoch: int = -1,
    replica_id: int = -1,
    isolation: int = 0,
    times: int = 1,
) -> ListOffsetsRequest:
    asked = ListOffsetsRequest.ListOffsetsPartition(partition, epoch, timestamp)
    topic = ListOffsetsRequest.ListOffsetsTopic(TOPIC, [asked] * times)
    return ListOffsetsRequest(replica_id, isolation, [topic])


def _offset_is(offset: int) -> Callable[[Any], bool]:
    def judge(answer: Any) -> bool:
        return bool(answer.topics[0].partitions[0].offset == offset)

    return judge


OFFSETS = [
    *(
        Row(33, f"timestamp {time} in version {version}", _list(time), version, (BAD_VERSION,))
        for time, version in (
            (-99, 11),
            (-7, 11),
            (-(2**63), 11),
            (-6, 10),
            (-5, 8),
            (-4, 7),
            (-3, 6),
        )
    ),
    *(
        Row(33, f"timestamp {time}", _list(time), 11, (), _offset_is(offset))
        for time, offset in ((-1, RECORDS), (-2, 0), (-4, 0), (-5, -1), (-6, -1), (0, 0))
    ),
    Row(33, "timestamp 2^63 - 1", _list(INT64_MAX), 11, (), _offset_is(-1)),
    *(
        Row(33, f"isolation level {level}", _list(-1, isolation=level), 11, (BAD_REQUEST,))
        for level in (2, 7, 127, -1)
    ),
    *(
        Row(33, f"list partition {index}", _list(-1, partition=index), 11, (UNKNOWN,))
        for index in (1, -1, INT32_MAX)
    ),
    Row(
        33, "list with an epoch too new", _list(-1, epoch=5), 11, (ErrorCode.UNKNOWN_LEADER_EPOCH,)
    ),
    Row(33, "list a partition twice", _list(-1, times=2), 11, (BAD_REQUEST,)),
    *(
        Row(33, f"list as replica {replica}", _list(-1, replica_id=replica), 11, (), _offset_is(3))
        for replica in (0, 5, -2, INT32_MAX)
    ),
]


def _epoch(epoch: int, *, current: int = -1, partition: int = 0) -> OffsetForLeaderEpochRequest:
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition, current, epoch)
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(TOPIC, [asked])
    return OffsetForLeaderEpochRequest(-1, [topic])


def _ends_at(epoch: int, offset: int) -> Callable[[Any], bool]:
    def judge(answer: Any) -> bool:
        part = answer.topics[0].partitions[0]
        return bool((part.leader_epoch, part.end_offset) == (epoch, offset))

    return judge


def _delete(offset: int, *, topic: str = TOPIC, partition: int = 0) -> DeleteRecordsRequest:
    asked = DeleteRecordsRequest.DeleteRecordsPartition(partition, offset)
    return DeleteRecordsRequest([DeleteRecordsRequest.DeleteRecordsTopic(topic, [asked])], 1000)


EPOCHS = [
    Row(33, "end of epoch 0", _epoch(0), 4, (), _ends_at(0, RECORDS)),
    *(
        Row(33, f"end of epoch {epoch}", _epoch(epoch), 4, (), _ends_at(-1, -1))
        for epoch in (-1, 5, INT32_MAX)
    ),
    *(
        Row(33, f"end of epoch {epoch}", _epoch(epoch), 4, (), _ends_at(epoch, 0))
        for epoch in (-2, -(2**31))
    ),
    Row(33, "end seen from epoch 5", _epoch(0, current=5), 4, (ErrorCode.UNKNOWN_LEADER_EPOCH,)),
    Row(33, "end of epoch, partition -1", _epoch(0, partition=-1), 4, (UNKNOWN,)),
    *(
        Row(33, f"delete records to {offset}", _delete(offset), 2, (OUT_OF_RANGE,))
        for offset in (RECORDS + 1, -2, -(2**63), INT64_MAX)
    ),
    Row(33, "delete records of partition -1", _delete(0, partition=-1), 2, (UNKNOWN,)),
    Row(33, "delete records of a path", _delete(0, topic="../corpus"), 2, (UNKNOWN,)),
]

ROWS: tuple[Row, ...] = (*NAMES, *COUNTS, *FETCHES, *REPLICAS, *OFFSETS, *EPOCHS)
