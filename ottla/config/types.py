"""Settings as the rooms below the configuration see them: plain values, already checked.

No pydantic here: the log, the coordinators and the controller import this module, and nothing
else of `config`. Names are Kafka's topic keys in snake_case; units stand in the name.
"""

from __future__ import annotations

from dataclasses import dataclass

LONG_MAX = 2**63 - 1


@dataclass(slots=True, frozen=True)
class LogConfig:
    """What one partition's log needs of its topic's configuration (effective values)."""

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    flush_messages: int = 1
    flush_ms: int = LONG_MAX
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1_048_588
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = "producer"
    compression_level: int | None = None
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    min_insync_replicas: int = 1
    preallocate: bool = False
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy
