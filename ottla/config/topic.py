"""A topic's settings: Kafka's 33 keys, what they fall back to, and what a log needs of them.

A topic stores only what was set for it. Any other key takes the broker's setting of the same
meaning (`BROKER_KEY_OF`), which may change at run time, or else its own default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict

from ottla.config.broker import BrokerConfig, acting_keys
from ottla.config.keys import (
    Bool,
    CleanupPolicy,
    CompressionType,
    Double,
    GzipLevel,
    Int,
    Key,
    Long,
    OptionalInt,
    Texts,
    TimestampType,
    Value,
    dotted,
    key,
    key_of,
)
from ottla.config.types import LONG_MAX, ConfigError, LogConfig

_REPLICA = re.compile(r"[0-9]+:[0-9]+", re.ASCII)
_DERIVED = {
    "retention.ms": "retention_ms",
    "segment.ms": "roll_ms",
    "segment.jitter.ms": "roll_jitter_ms",
    "flush.ms": "flush_ms",
}
"""Topic keys whose broker value comes of several broker keys."""
INTERNAL_SEGMENT_BYTES_MIN = 1
"""Kafka has no limit here; but no file can be made at a size below zero, as preallocate asks."""


class TopicConfig(BaseModel):
    """The declaration of the topic keys, in the order in which Kafka checks them."""

    model_config = ConfigDict(
        alias_generator=dotted,
        validate_by_name=True,
        validate_by_alias=True,
        frozen=True,
        extra="forbid",
        defer_build=True,
    )

    segment_bytes: Int = key(
        1_073_741_824, "Size at which a new segment file is begun.", at_least=1_048_576
    )
    segment_ms: Long = key(604_800_000, "Age at which a new segment is begun.", at_least=1)
    segment_jitter_ms: Long = key(0, "Most that is taken off that age by chance.", at_least=0)
    segment_index_bytes: Int = key(10_485_760, "Size of an index file.", at_least=4)
    flush_messages: Long = key(
        1, "Records that may wait unsynced; with 1 every acknowledged one is on disk.", at_least=1
    )
    flush_ms: Long = key(LONG_MAX, "Longest that records stay unsynced.", at_least=0)
    retention_bytes: Long = key(
        -1, "Size above which a partition's oldest segments are deleted; -1 means no limit."
    )
    retention_ms: Long = key(
        604_800_000, "Age at which records are deleted; -1 means never.", at_least=-1
    )
    max_message_bytes: Int = key(1_048_588, "Largest record batch, as it comes.", at_least=0)
    index_interval_bytes: Int = key(4_096, "Bytes of log between two index entries.", at_least=0)
    delete_retention_ms: Long = key(
        86_400_000, "How long a compacted log keeps its tombstones.", at_least=0, acts=False
    )
    min_compaction_lag_ms: Long = key(
        0, "Age below which records are not compacted.", at_least=0, acts=False
    )
    max_compaction_lag_ms: Long = key(
        LONG_MAX, "Age at which records must be compacted.", at_least=1, acts=False
    )
    file_delete_delay_ms: Long = key(
        60_000,
        "Wait between taking a segment out of service and unlinking its files.",
        at_least=0,
    )
    min_cleanable_dirty_ratio: Double = key(
        0.5,
        "Share of uncompacted bytes at which a log is compacted.",
        at_least=0,
        at_most=1,
        acts=False,
    )
    cleanup_policy: CleanupPolicy = key(
        ("delete",), "What becomes of old records: delete, compact, or both."
    )
    unclean_leader_election_enable: Bool = key(
        False,
        "Whether a replica that lags may lead when no other is left; records can be lost.",
        acts=False,
    )
    min_insync_replicas: Int = key(1, "In-sync replicas that an acks=all write needs.", at_least=1)
    compression_type: CompressionType = key(
        "producer", "Codec in which batches are stored; producer keeps the one they come in."
    )
    compression_gzip_level: GzipLevel = key(
        -1, "Level used when compression.type is gzip; -1 is the codec's own."
    )
    compression_lz4_level: Int = key(
        9,
        "Level used when compression.type is lz4; 9 is the codec's fast form.",
        at_least=1,
        at_most=17,
    )
    compression_zstd_level: Int = key(
        3, "Level used when compression.type is zstd.", at_least=-131_072, at_most=22
    )
    preallocate: Bool = key(False, "Whether a segment file is made at its full size.")
    message_timestamp_type: TimestampType = key(
        "CreateTime", "Whether a record keeps its producer's time or gets the time of its append."
    )
    message_timestamp_before_max_ms: Long = key(
        LONG_MAX, "Most that a record's time may lie before the broker's clock.", at_least=0
    )
    message_timestamp_after_max_ms: Long = key(
        3_600_000, "Most that a record's time may lie ahead of the broker's clock.", at_least=0
    )
    leader_replication_throttled_replicas: Texts = key(
        (), "Replicas, as partition:broker or *, to which leaders send slowly.", acts=False
    )
    follower_replication_throttled_replicas: Texts = key(
        (), "Replicas, as partition:broker or *, that fetch slowly.", acts=False
    )
    remote_storage_enable: Bool = key(False, "Whether old data goes to remote storage.", acts=False)
    local_retention_ms: Long = key(
        -2,
        "Age of data kept on local disk when older data is remote; -2 as retention.ms.",
        at_least=-2,
        acts=False,
    )
    local_retention_bytes: Long = key(
        -2,
        "Size kept on local disk when older data is remote; -2 as retention.bytes.",
        at_least=-2,
        acts=False,
    )
    remote_log_copy_disable: Bool = key(
        False, "Whether no more data goes to remote storage.", acts=False
    )
    remote_log_delete_on_disable: Bool = key(
        False, "Whether remote data is deleted when remote storage is turned off.", acts=False
    )
    internal_segment_bytes: OptionalInt = key(
        None, "Segment size below the least that segment.bytes allows, for tests.", internal=True
    )


BROKER_KEY_OF = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}


@cache
def topic_keys() -> dict[str, Key]:
    """The topic keys by name, in Kafka's order; the last one is internal."""
    keys = {dotted(name): key_of(name, field) for name, field in TopicConfig.model_fields.items()}
    for name in (
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    ):
        keys[name] = replace(keys[name], check=_check_throttled)
    return keys


def topic_defaults(broker: BrokerConfig) -> dict[str, Value]:
    """The value of every topic key for a topic that sets none."""
    given = broker.layers.effective()
    defaults: dict[str, Value] = {}
    for name, topic_key in topic_keys().items():
        broker_key = BROKER_KEY_OF.get(name)
        if name in _DERIVED:
            defaults[name] = getattr(broker, _DERIVED[name])
        elif broker_key is not None and broker_key in acting_keys():
            defaults[name] = broker.value(broker_key)
        else:
            text = topic_key.default
            if broker_key is not None:
                text = given.get(broker_key, text)
            defaults[name] = None if text is None else topic_key.parse(text)
    return defaults


def check_topic_overrides(
    overrides: Mapping[str, str | None], defaults: Mapping[str, Value]
) -> None:
    """Raises ConfigError, in Kafka's words, when a topic cannot have these settings.

    `defaults` are those of all topics, with which settings are compared.
    """
    null = [name for name, text in overrides.items() if text is None]
    if null:
        raise ConfigError(f"Null value not supported for topic configs: {','.join(null)}")
    keys = topic_keys()
    for name in overrides:
        if name not in keys:
            raise ConfigError(f"Unknown topic config name: {name}")
    values = with_overrides(defaults, overrides)
    if values["remote.storage.enable"]:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker."
            " Topic cannot be configured with remote log storage."
        )
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(low, int)
    assert isinstance(high, int)
    if low > high:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({low})"
            f" > max.compaction.lag.ms ({high})"
        )
    segment_bytes = values["internal.segment.bytes"]
    if isinstance(segment_bytes, int) and segment_bytes < INTERNAL_SEGMENT_BYTES_MIN:
        raise keys["internal.segment.bytes"].refuse(
            segment_bytes, f"Value must be at least {INTERNAL_SEGMENT_BYTES_MIN}"
        )


def with_overrides(
    defaults: Mapping[str, Value], overrides: Mapping[str, str | None]
) -> dict[str, Value]:
    """The value of every topic key for a topic with these (known) settings of its own, which are
    parsed in Kafka's order of keys; `defaults` are those of all topics."""
    values = dict(defaults)
    if overrides:
        for name, topic_key in topic_keys().items():
            text = overrides.get(name)
            if text is not None:
                values[name] = topic_key.parse(text)
    return values


def effective_log_config(broker: BrokerConfig, overrides: Mapping[str, str | None]) -> LogConfig:
    """What the log of a topic with these (valid) settings goes by."""
    values = with_overrides(topic_defaults(broker), overrides)
    chosen: dict[str, Any] = {
        field.name: values[dotted(field.name)]
        for field in fields(LogConfig)
        if dotted(field.name) in values
    }
    chosen["cleanup_policy"] = frozenset(chosen["cleanup_policy"])
    chosen["compression_level"] = _compression_level(values)
    segment_bytes = values["internal.segment.bytes"]
    if isinstance(segment_bytes, int):
        # A topic may have had less since before less was refused.
        chosen["segment_bytes"] = max(segment_bytes, INTERNAL_SEGMENT_BYTES_MIN)
    return LogConfig(**chosen)


def _compression_level(values: Mapping[str, Value]) -> int | None:
    """None leaves the level to the codec, as Kafka's defaults for gzip and lz4 do."""
    codec = values["compression.type"]
    level = values.get(f"compression.{codec}.level")
    default_level = {"gzip": -1, "lz4": 9}.get(str(codec))
    assert level is None or isinstance(level, int)
    return None if level == default_level else level


def _check_throttled(key: Key, value: Value) -> None:
    """Empty entries stand for nothing."""
    assert isinstance(value, tuple)
    if "".join(value) == "*" or all(_REPLICA.fullmatch(one) for one in value if one):
        return
    raise key.refuse(
        f"[{', '.join(value)}]",
        f"{key.name} must be the literal '*' or a list of replicas in the following format:"
        " [partitionId]:[brokerId],[partitionId]:[brokerId],...",
    )
