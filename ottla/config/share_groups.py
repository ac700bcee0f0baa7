"""The broker's settings for share groups (KIP-932) and their state; `BrokerConfig` has them as its
own fields. What one group may set over them, and within which bounds, stands in `group.py`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict

from ottla.config.keys import Dynamic, Int, Short, key
from ottla.config.types import ConfigType

Assignors = Annotated[tuple[Literal["simple"], ...], ConfigType.LIST]


class ShareGroupConfig(BaseModel):
    """Kafka's group.share.* and share.coordinator.* keys that Ottla acts on."""

    model_config = ConfigDict(defer_build=True)

    group_share_assignment_interval_ms: Int = key(
        1_000,
        "Least time between two assignments of a share group.",
        at_least=0,
        dynamic=Dynamic.CLUSTER,
    )
    group_share_assignors: Assignors = key(
        ("simple",), "Assignors on offer to share groups.", not_empty=True
    )
    group_share_delivery_count_limit: Int = key(
        5,
        "How often a record is delivered to a share group before it is given up.",
        at_least=2,
        at_most=10,
    )
    group_share_heartbeat_interval_ms: Int = key(
        5_000, "How often members of a share group are asked to report.", at_least=1
    )
    group_share_initialize_retry_interval_ms: Int = key(
        30_000,
        "Wait before setting up a share group's state is tried again.",
        at_least=1,
        internal=True,
    )
    group_share_max_share_sessions: Int = key(
        2_000, "Most share sessions on one broker.", at_least=1
    )
    group_share_max_size: Int = key(
        200, "Most members of a share group.", at_least=1, at_most=1_000
    )
    group_share_max_assignment_interval_ms: Int = key(
        15_000, "Most that a share group may set as its assignment interval.", at_least=0
    )
    group_share_max_delivery_count_limit: Int = key(
        10, "Most that a share group may set as its delivery limit.", at_least=5, at_most=25
    )
    group_share_max_heartbeat_interval_ms: Int = key(
        15_000, "Most that a share group may set as its heartbeat interval.", at_least=1
    )
    group_share_max_partition_max_record_locks: Int = key(
        4_000, "Most that a share group may set as its lock limit.", at_least=2_000, at_most=10_000
    )
    group_share_max_record_lock_duration_ms: Int = key(
        60_000, "Longest that a share group may lock a record.", at_least=30_000, at_most=3_600_000
    )
    group_share_max_session_timeout_ms: Int = key(
        60_000, "Most that a share group may set as its session timeout.", at_least=1
    )
    group_share_min_assignment_interval_ms: Int = key(
        0, "Least that a share group may set as its assignment interval.", at_least=0
    )
    group_share_min_delivery_count_limit: Int = key(
        2, "Least that a share group may set as its delivery limit.", at_least=2, at_most=5
    )
    group_share_min_heartbeat_interval_ms: Int = key(
        5_000, "Least that a share group may set as its heartbeat interval.", at_least=1
    )
    group_share_min_partition_max_record_locks: Int = key(
        100, "Least that a share group may set as its lock limit.", at_least=100, at_most=2_000
    )
    group_share_min_record_lock_duration_ms: Int = key(
        15_000, "Shortest that a share group may lock a record.", at_least=1_000, at_most=30_000
    )
    group_share_min_session_timeout_ms: Int = key(
        45_000, "Least that a share group may set as its session timeout.", at_least=1
    )
    group_share_partition_max_record_locks: Int = key(
        2_000,
        "Most records of one partition that a share group holds locked.",
        at_least=100,
        at_most=10_000,
    )
    group_share_record_lock_duration_ms: Int = key(
        30_000,
        "How long a record stays locked for the member that fetched it.",
        at_least=1_000,
        at_most=3_600_000,
    )
    group_share_session_timeout_ms: Int = key(
        45_000, "Silence after which a member of a share group is dropped.", at_least=1
    )

    share_coordinator_cold_partition_snapshot_interval_ms: Int = key(
        300_000,
        "Age from which a share partition's snapshot is copied, unless all are copies already.",
        at_least=1,
        internal=True,
    )
    share_coordinator_snapshot_update_records_per_snapshot: Int = key(
        500, "Updates of a share partition between two snapshots.", at_least=0, at_most=500
    )
    share_coordinator_state_topic_compression_codec: Int = key(
        0, "Codec number of the share state topic.", at_least=0, at_most=4
    )
    share_coordinator_state_topic_min_isr: Short = key(
        2, "In-sync replicas that a write to the share state topic needs.", at_least=1
    )
    share_coordinator_state_topic_num_partitions: Int = key(
        50, "Partitions of the share state topic.", at_least=1
    )
    share_coordinator_state_topic_prune_interval_ms: Int = key(
        300_000,
        "How often old records of the share state topic are deleted.",
        at_least=1,
        internal=True,
    )
    share_coordinator_state_topic_replication_factor: Short = key(
        3,
        "Replicas of the share state topic; fewer if there are fewer brokers.",
        at_least=1,
    )
    share_coordinator_state_topic_segment_bytes: Int = key(
        104_857_600, "Segment size of the share state topic.", at_least=1
    )
    share_coordinator_write_timeout_ms: Int = key(
        5_000,
        "Longest that a write to the share state topic waits for its replicas.",
        at_least=1,
    )
