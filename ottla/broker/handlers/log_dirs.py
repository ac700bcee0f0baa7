"""DescribeLogDirs: what lies in each log directory, and how much space its disk has."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.log.log import Log
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

DirAnswer = DescribeLogDirsResponse.DescribeLogDirsResult
TopicAnswer = DescribeLogDirsResponse.DescribeLogDirsTopic
PartitionAnswer = DescribeLogDirsResponse.DescribeLogDirsPartition

Wanted = Mapping[str, frozenset[int]] | None
"""Topic -> partitions; None for all."""


def handle_describe_log_dirs(
    session: Session, request: DescribeLogDirsRequest, version: int
) -> DescribeLogDirsResponse:
    """Every log directory, with those of the asked partitions that are in it."""
    wanted: Wanted = None
    if request.topics is not None:
        wanted = {topic.topic: frozenset(topic.partitions) for topic in request.topics}
    rooms = session.rooms
    logs_by_dir: dict[str, list[Log]] = {log_dir: [] for log_dir in rooms.logs.dirs}
    for log in rooms.logs.logs:
        logs_by_dir[rooms.logs.dir_of(log)].append(log)
    return DescribeLogDirsResponse(
        results=[_described(rooms, log_dir, logs, wanted) for log_dir, logs in logs_by_dir.items()]
    )


def _described(rooms: Rooms, log_dir: str, logs: list[Log], wanted: Wanted) -> DirAnswer:
    shown_path = os.path.abspath(log_dir)
    offline = DirAnswer(int(ErrorCode.KAFKA_STORAGE_ERROR), shown_path)
    if log_dir in rooms.logs.offline_dirs:
        return offline
    try:
        total_bytes, usable_bytes = rooms.logs.disk.space(log_dir)
    except OSError:
        return offline
    topics: dict[str, TopicAnswer] = {}
    for log in logs:
        if wanted is not None and log.partition not in wanted.get(log.topic, ()):
            continue
        topic = topics.get(log.topic)
        if topic is None:
            topic = topics[log.topic] = TopicAnswer(log.topic, [])
        lag = max(log.high_watermark - log.log_end_offset, 0)
        topic.partitions.append(PartitionAnswer(log.partition, log.size_bytes, lag))
    broker = rooms.image.cluster.brokers.get(rooms.config.node_id)
    cordoned = (broker and broker.cordoned_directories) or ()
    return DirAnswer(
        log_dir=shown_path,
        topics=list(topics.values()),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        is_cordoned=rooms.logs.directory_ids[log_dir] in cordoned,
    )
