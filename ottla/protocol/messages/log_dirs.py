"""The log directories of a broker, and moving a replica from one to another."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import int16, int32, int64


class DescribeLogDirsRequest(Message, key=35, versions="1-5", flexible="2+"):
    """The log directories of the broker and the replicas in them; null topics are all."""

    class DescribableLogDirTopic(Struct):
        topic: str = ""
        partitions: list[int32] = []

    topics: list[DescribableLogDirTopic] | None = []


class DescribeLogDirsResponse(Message, key=35, versions="1-5", flexible="2+"):
    """3 adds an error code for the whole answer, 4 the total and usable bytes, 5 whether a
    directory is cordoned.
    """

    class DescribeLogDirsPartition(Struct):
        partition_index: int32 = 0
        partition_size: int64 = 0
        offset_lag: int64 = 0
        is_future_key: bool = False

    class DescribeLogDirsTopic(Struct):
        name: str = ""
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = []

    class DescribeLogDirsResult(Struct):
        error_code: int16 = 0
        log_dir: str = ""
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = []
        total_bytes: int64 = field(-1, versions="4+", ignorable=True)
        usable_bytes: int64 = field(-1, versions="4+", ignorable=True)
        is_cordoned: bool = field(False, versions="5+", ignorable=True)

    throttle_time_ms: int32 = 0
    error_code: int16 = field(0, versions="3+", ignorable=True)
    results: list[DescribeLogDirsResult] = []


class AlterReplicaLogDirsRequest(Message, key=34, versions="1-2", flexible="2+"):
    """Move replicas to other log directories of the same broker."""

    class AlterReplicaLogDirTopic(Struct):
        name: str = ""
        partitions: list[int32] = []

    class AlterReplicaLogDir(Struct):
        path: str = ""
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = []

    dirs: list[AlterReplicaLogDir] = []


class AlterReplicaLogDirsResponse(Message, key=34, versions="1-2", flexible="2+"):
    """The answer to AlterReplicaLogDirs."""

    class AlterReplicaLogDirPartitionResult(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0

    class AlterReplicaLogDirTopicResult(Struct):
        topic_name: str = ""
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = []

    throttle_time_ms: int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = []
