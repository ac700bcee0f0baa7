"""Consumer groups become classic ones, and nobody loses or doubles partitions by it."""

from __future__ import annotations

from typing import Any

from ottla.broker.coordinator.group.classic import ClassicGroup
from ottla.broker.coordinator.group.settings import GroupSettings, Intervals, ModernSettings
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import groups
from ottla.protocol.messages.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.coordinator.shards import Lone

AT_ONCE = GroupSettings(consumer=ModernSettings(Intervals(45_000, 5_000, 0)))
TIMEOUT_MS = 60_000
WANTS_T = bytes.fromhex("0000 00000001 0001 74 ffffffff")
HAS_T = bytes.fromhex("0001 00000001 0001 74 ffffffff 00000001 0001 74 00000008") + b"".join(
    partition.to_bytes(4, "big") for partition in range(8)
)
ALL_OF_T = bytes.fromhex("0000 00000001 0001 74 00000008") + HAS_T[-32:] + b"\xff" * 4
WANTS_NOTHING = bytes.fromhex("0000 00000000 ffffffff")


def _ask(lone: Lone, request: Any, version: int) -> Any:
    lone.send("x", request, version)
    ((_, answer),) = lone.answers()
    return answer


def _join(
    lone: Lone, member_id: str, instance_id: str | None, metadata: bytes = WANTS_T
) -> groups.JoinGroupResponse:
    protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol("range", metadata)
    request = groups.JoinGroupRequest(
        "g", TIMEOUT_MS, TIMEOUT_MS, member_id, instance_id, "consumer", [protocol]
    )
    answer = _ask(lone, request, 9)
    assert isinstance(answer, groups.JoinGroupResponse)
    return answer


def _beat(
    lone: Lone, epoch: int, member_id: str = "A", instance_id: str | None = "i", **fields: Any
) -> ConsumerGroupHeartbeatResponse:
    """Of a member of the consumer protocol."""
    request = ConsumerGroupHeartbeatRequest("g", member_id, epoch, instance_id, **fields)
    answer = _ask(lone, request, 1)
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    return answer


def _with_two() -> tuple[Lone, int]:
    """A has all of the topic; B, of the classic protocol, waits for half of it in this epoch."""
    lone = Lone(AT_ONCE)
    _beat(
        lone,
        0,
        rebalance_timeout_ms=TIMEOUT_MS,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    joined = _join(lone, "B", None)
    assert joined.error_code == ErrorCode.NONE
    return lone, joined.generation_id


def _heartbeat(lone: Lone, generation: int) -> int:
    code: int = _ask(lone, groups.HeartbeatRequest("g", generation, "B"), 4).error_code
    return code


def test_who_waits_for_partitions_when_a_group_becomes_classic_is_told_to_join() -> None:
    """Half of them would be nobody's: A has come back and is given its half alone."""
    lone, epoch = _with_two()
    assert _heartbeat(lone, epoch) == ErrorCode.NONE

    _join(lone, "", "i")

    assert isinstance(lone.shard.groups["g"], ClassicGroup)
    assert _heartbeat(lone, epoch) == ErrorCode.REBALANCE_IN_PROGRESS


def test_nobody_is_disturbed_who_has_what_the_target_gives() -> None:
    lone, epoch = _with_two()
    half = ConsumerGroupHeartbeatRequest.TopicPartitions(lone.topic_id("t"), [0, 1, 2, 3])
    _beat(lone, 2)
    _beat(lone, 2, topic_partitions=[half])
    assert _heartbeat(lone, epoch) == ErrorCode.REBALANCE_IN_PROGRESS
    assert _join(lone, "B", None).generation_id == epoch

    joined = _join(lone, "", "i")

    group = lone.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert (group.state_name, joined.generation_id) == ("Stable", epoch)
    assert _heartbeat(lone, epoch) == ErrorCode.NONE


def test_who_is_up_to_date_is_not_fenced_by_a_group_that_becomes_classic() -> None:
    """It would drop what it has without a commit."""
    lone, epoch = _with_two()

    _join(lone, "", "i", WANTS_NOTHING)

    assert isinstance(lone.shard.groups["g"], ClassicGroup)
    assert _heartbeat(lone, epoch) == ErrorCode.REBALANCE_IN_PROGRESS
    # What it joined with is nobody's any more.
    assert _heartbeat(lone, epoch + 1) == ErrorCode.ILLEGAL_GENERATION


def test_nobody_is_given_what_a_classic_member_was_giving_up() -> None:
    """It is asked to by a group that becomes a classic one before it has, and then a consumer
    group again."""
    lone = Lone(AT_ONCE)
    fields: dict[str, Any] = {
        "rebalance_timeout_ms": TIMEOUT_MS,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    _beat(lone, 0, **fields)
    _join(lone, "B", None)
    left = _ask(lone, ConsumerGroupHeartbeatRequest("g", "A", -1, "i"), 1)
    assert left.error_code == ErrorCode.NONE
    joined = _join(lone, "B", None, HAS_T)
    dealt = groups.SyncGroupRequest.SyncGroupRequestAssignment("B", ALL_OF_T)
    generation = joined.generation_id
    sync = groups.SyncGroupRequest("g", generation, "B", None, "consumer", "range", [dealt])
    assert _ask(lone, sync, 5).error_code == ErrorCode.NONE
    _beat(lone, 0, **fields)
    # B learns that it is to give up a half, and says that it has it yet.
    assert _heartbeat(lone, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    _join(lone, "B", None, HAS_T)
    _beat(lone, -1)
    assert isinstance(lone.shard.groups["g"], ClassicGroup)

    came = _beat(lone, 0, "C", None, **fields)

    assert came.assignment is not None
    assert came.assignment.topic_partitions == []


def test_who_is_not_in_the_group_hears_that_before_its_metadata_is_read() -> None:
    lone, _ = _with_two()

    assert _join(lone, "nobody", "j", metadata=b"").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert _join(lone, "nobody", "i", metadata=b"").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert _join(lone, "", "i", metadata=b"").error_code == ErrorCode.UNKNOWN_SERVER_ERROR
