"""The persister of share groups: its state, read and written by partition leaders."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import ZERO_UUID, int8, int16, int32, int64, uuid


class InitializeShareGroupStateRequest(Message, key=83, versions="0", flexible="0+"):
    """Create the state of share partitions."""

    class PartitionData(Struct):
        partition: int32 = 0
        state_epoch: int32 = 0
        start_offset: int64 = 0

    class InitializeStateData(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[InitializeShareGroupStateRequest.PartitionData] = []

    group_id: str = ""
    topics: list[InitializeStateData] = []


class InitializeShareGroupStateResponse(Message, key=83, versions="0", flexible="0+"):
    """The answer to InitializeShareGroupState."""

    class PartitionResult(Struct):
        partition: int32 = 0
        error_code: int16 = 0
        error_message: str | None = None

    class InitializeStateResult(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[InitializeShareGroupStateResponse.PartitionResult] = []

    results: list[InitializeStateResult] = []


class ReadShareGroupStateRequest(Message, key=84, versions="0", flexible="0+"):
    """Read the state of share partitions, and fence earlier leaders."""

    class PartitionData(Struct):
        partition: int32 = 0
        leader_epoch: int32 = 0

    class ReadStateData(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[ReadShareGroupStateRequest.PartitionData] = []

    group_id: str = ""
    topics: list[ReadStateData] = []


class ReadShareGroupStateResponse(Message, key=84, versions="0", flexible="0+"):
    """The answer to ReadShareGroupState."""

    class StateBatch(Struct):
        first_offset: int64 = 0
        last_offset: int64 = 0
        delivery_state: int8 = 0
        delivery_count: int16 = 0

    class PartitionResult(Struct):
        partition: int32 = 0
        error_code: int16 = 0
        error_message: str | None = None
        state_epoch: int32 = 0
        start_offset: int64 = 0
        state_batches: list[ReadShareGroupStateResponse.StateBatch] = []

    class ReadStateResult(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[ReadShareGroupStateResponse.PartitionResult] = []

    results: list[ReadStateResult] = []


class WriteShareGroupStateRequest(Message, key=85, versions="0-1", flexible="0+"):
    """Write changes to the state of share partitions. 1 adds the count of deliveries completed."""

    class StateBatch(Struct):
        first_offset: int64 = 0
        last_offset: int64 = 0
        delivery_state: int8 = 0
        delivery_count: int16 = 0

    class PartitionData(Struct):
        partition: int32 = 0
        state_epoch: int32 = 0
        leader_epoch: int32 = 0
        start_offset: int64 = 0
        delivery_complete_count: int32 = field(-1, versions="1+", ignorable=True)
        state_batches: list[WriteShareGroupStateRequest.StateBatch] = []

    class WriteStateData(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[WriteShareGroupStateRequest.PartitionData] = []

    group_id: str = ""
    topics: list[WriteStateData] = []


class WriteShareGroupStateResponse(Message, key=85, versions="0-1", flexible="0+"):
    """The answer to WriteShareGroupState."""

    class PartitionResult(Struct):
        partition: int32 = 0
        error_code: int16 = 0
        error_message: str | None = None

    class WriteStateResult(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[WriteShareGroupStateResponse.PartitionResult] = []

    results: list[WriteStateResult] = []


class DeleteShareGroupStateRequest(Message, key=86, versions="0", flexible="0+"):
    """Delete the state of share partitions."""

    class PartitionData(Struct):
        partition: int32 = 0

    class DeleteStateData(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[DeleteShareGroupStateRequest.PartitionData] = []

    group_id: str = ""
    topics: list[DeleteStateData] = []


class DeleteShareGroupStateResponse(Message, key=86, versions="0", flexible="0+"):
    """The answer to DeleteShareGroupState."""

    class PartitionResult(Struct):
        partition: int32 = 0
        error_code: int16 = 0
        error_message: str | None = None

    class DeleteStateResult(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[DeleteShareGroupStateResponse.PartitionResult] = []

    results: list[DeleteStateResult] = []


class ReadShareGroupStateSummaryRequest(Message, key=87, versions="0-1", flexible="0+"):
    """Read where share partitions begin, without their batches. The answer of 1 adds the count of
    deliveries completed.
    """

    class PartitionData(Struct):
        partition: int32 = 0
        leader_epoch: int32 = 0

    class ReadStateSummaryData(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[ReadShareGroupStateSummaryRequest.PartitionData] = []

    group_id: str = ""
    topics: list[ReadStateSummaryData] = []


class ReadShareGroupStateSummaryResponse(Message, key=87, versions="0-1", flexible="0+"):
    """The answer to ReadShareGroupStateSummary."""

    class PartitionResult(Struct):
        partition: int32 = 0
        error_code: int16 = 0
        error_message: str | None = None
        state_epoch: int32 = 0
        leader_epoch: int32 = 0
        start_offset: int64 = 0
        delivery_complete_count: int32 = field(-1, versions="1+", ignorable=True)

    class ReadStateSummaryResult(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[ReadShareGroupStateSummaryResponse.PartitionResult] = []

    results: list[ReadStateSummaryResult] = []
