"""The broker's settings for consumer groups (KIP-848); `BrokerConfig` has them as its own fields.
What one group may set over them stands in `group.py`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict

from ottla.config.keys import INT_MAX, Dynamic, Int, Text, key
from ottla.config.types import ConfigType

MIGRATION_POLICIES = ("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL")

Assignors = Annotated[tuple[Literal["uniform", "range"], ...], ConfigType.LIST]
Protocols = Annotated[
    tuple[Literal["consumer", "classic", "share", "streams"], ...], ConfigType.LIST
]


class ConsumerGroupConfig(BaseModel):
    """Kafka's group.consumer.* keys, and which kinds of groups are served at all."""

    model_config = ConfigDict(defer_build=True)

    group_consumer_assignment_interval_ms: Int = key(
        1_000,
        "Least time between two assignments of a consumer group.",
        at_least=0,
        dynamic=Dynamic.CLUSTER,
    )
    group_consumer_assignors: Assignors = key(
        ("uniform", "range"),
        "Assignors on offer to consumer groups, the default first.",
        not_empty=True,
    )
    group_consumer_heartbeat_interval_ms: Int = key(
        5_000, "How often members of a consumer group are asked to report.", at_least=1
    )
    group_consumer_max_assignment_interval_ms: Int = key(
        15_000, "Most that a group may set as its assignment interval.", at_least=0
    )
    group_consumer_max_heartbeat_interval_ms: Int = key(
        15_000, "Most that a group may set as its heartbeat interval.", at_least=1
    )
    group_consumer_max_session_timeout_ms: Int = key(
        60_000, "Most that a group may set as its session timeout.", at_least=1
    )
    group_consumer_max_size: Int = key(INT_MAX, "Most members of a consumer group.", at_least=1)
    group_consumer_migration_policy: Text = key(
        "bidirectional",
        "Whether classic groups and consumer groups turn into each other while in use.",
        any_case_of=MIGRATION_POLICIES,
    )
    group_consumer_min_assignment_interval_ms: Int = key(
        0, "Least that a group may set as its assignment interval.", at_least=0
    )
    group_consumer_min_heartbeat_interval_ms: Int = key(
        5_000, "Least that a group may set as its heartbeat interval.", at_least=1
    )
    group_consumer_min_session_timeout_ms: Int = key(
        45_000, "Least that a group may set as its session timeout.", at_least=1
    )
    group_consumer_regex_refresh_interval_ms: Int = key(
        600_000,
        "How often subscribed patterns are matched against the topics again.",
        at_least=10_000,
        internal=True,
    )
    group_consumer_session_timeout_ms: Int = key(
        45_000, "Silence after which a member of a consumer group is dropped.", at_least=1
    )
    group_coordinator_rebalance_protocols: Protocols = key(
        ("classic", "consumer", "streams"),
        "Kinds of groups that are served; classic ones always are.",
        not_empty=True,
    )
