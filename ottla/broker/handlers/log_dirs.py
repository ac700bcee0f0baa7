"""DescribeLogDirs and AlterReplicaLogDirs: what lies in each log directory, and moves between them.

The answers of AlterReplicaLogDirs, as Apache Kafka 4.3.1 gives them; the first that fits counts:

| what is asked for | answer |
|---|---|
| a topic whose name leaves no room for that of a copy | INVALID_TOPIC_EXCEPTION |
| a directory that is not one of log.dirs, by its absolute path | LOG_DIR_NOT_FOUND |
| a directory that is offline, a partition whose directory is | KAFKA_STORAGE_ERROR |
| a directory that is cordoned, be the partition there already | INVALID_REPLICA_ASSIGNMENT |
| a partition that there is not | UNKNOWN_TOPIC_OR_PARTITION |
| one that this broker does not serve | REPLICA_NOT_AVAILABLE |
| one that is there, or on its way there | NONE |
Of a partition that is named more than once the last directory counts, and it is answered once.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.handlers.partitions import absence
from ottla.broker.log.log import Log
from ottla.broker.log.moving import is_name_too_long
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

DirAnswer = DescribeLogDirsResponse.DescribeLogDirsResult
TopicAnswer = DescribeLogDirsResponse.DescribeLogDirsTopic
PartitionAnswer = DescribeLogDirsResponse.DescribeLogDirsPartition
Altered = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
AlteredPartition = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult

Wanted = Mapping[str, Set[int]] | None
"""Topic -> partitions; None for all."""


def handle_describe_log_dirs(
    session: Session, request: DescribeLogDirsRequest, version: int
) -> DescribeLogDirsResponse:
    """Every log directory, with those of the asked partitions that are in it, or on their way."""
    wanted = _wanted(request)
    rooms = session.rooms
    return DescribeLogDirsResponse(
        results=[_described(rooms, log_dir, wanted) for log_dir in rooms.logs.dirs]
    )


async def handle_alter_replica_log_dirs(
    session: Session, request: AlterReplicaLogDirsRequest, version: int
) -> AlterReplicaLogDirsResponse:
    """Begins the moves; an answer of NONE means that a restart would go on with it."""
    paths = {
        (topic.name, index): one.path
        for one in request.dirs
        for topic in one.topics
        for index in topic.partitions
    }
    answers: dict[str, Altered] = {}
    for (topic, index), path in paths.items():
        code = await _alter(session.rooms, topic, index, path)
        answer = answers.setdefault(topic, Altered(topic, []))
        answer.partitions.append(AlteredPartition(index, int(code)))
    return AlterReplicaLogDirsResponse(results=list(answers.values()))


def refused_moves(
    request: AlterReplicaLogDirsRequest, version: int, error: KafkaError
) -> AlterReplicaLogDirsResponse:
    """The same error for every partition; the answer has no directories."""
    return AlterReplicaLogDirsResponse(
        results=[
            Altered(
                topic.name,
                [AlteredPartition(index, int(error.code)) for index in topic.partitions],
            )
            for one in request.dirs
            for topic in one.topics
        ]
    )


async def _alter(rooms: Rooms, topic: str, index: int, path: str) -> ErrorCode:
    if is_name_too_long(topic, index):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path not in rooms.logs.dirs:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if path in rooms.logs.offline_dirs:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if _is_cordoned(rooms, path):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    partition = rooms.replicas.get(topic, index)
    if partition is None:
        code = absence(rooms, topic, index)
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return code
    try:
        await rooms.moves.begin(partition, path)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _wanted(request: DescribeLogDirsRequest) -> Wanted:
    if request.topics is None:
        return None
    wanted: dict[str, set[int]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.topic, set()).update(topic.partitions)
    return wanted


def _described(rooms: Rooms, log_dir: str, wanted: Wanted) -> DirAnswer:
    offline = DirAnswer(int(ErrorCode.KAFKA_STORAGE_ERROR), log_dir)
    if log_dir in rooms.logs.offline_dirs:
        return offline
    try:
        total_bytes, usable_bytes = rooms.logs.disk.space(log_dir)
    except OSError:
        return offline
    topics: dict[str, TopicAnswer] = {}
    for log in rooms.logs.logs_in(log_dir):
        lag = max(log.high_watermark - log.log_end_offset, 0)
        _add(topics, wanted, log, PartitionAnswer(log.partition, log.size_bytes, lag))
    for copy, log in rooms.moves.to(log_dir):
        lag = max(log.log_end_offset - copy.end_offset, 0)
        _add(topics, wanted, log, PartitionAnswer(log.partition, copy.size_bytes, lag, True))
    return DirAnswer(
        log_dir=log_dir,
        topics=list(topics.values()),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        is_cordoned=_is_cordoned(rooms, log_dir),
    )


def _is_cordoned(rooms: Rooms, log_dir: str) -> bool:
    broker = rooms.image.cluster.brokers.get(rooms.config.node_id)
    cordoned = (broker and broker.cordoned_directories) or ()
    return rooms.logs.directory_ids[log_dir] in cordoned


def _add(topics: dict[str, TopicAnswer], wanted: Wanted, log: Log, answer: PartitionAnswer) -> None:
    if wanted is not None and log.partition not in wanted.get(log.topic, ()):
        return
    topic = topics.get(log.topic)
    if topic is None:
        topic = topics[log.topic] = TopicAnswer(log.topic, [])
    topic.partitions.append(answer)
