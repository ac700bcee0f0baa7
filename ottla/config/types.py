"""Settings as the rooms below the configuration see them: plain values, already checked.

No pydantic here: the log, the coordinators and the controller import this module, and nothing
else of `config`. Names are Kafka's topic keys in snake_case; units stand in the name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

LONG_MAX: Final = 2**63 - 1
LOOPBACK_OF = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}


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


class ConfigError(Exception):
    """A setting that cannot be accepted; `message` is a sentence for whoever set it.

    `name` is the setting's if the sentence begins with it: who knows where it was set says so.
    """

    def __init__(self, message: str, *, name: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.name = name

    @classmethod
    def of(cls, name: str, value: object, reason: str) -> ConfigError:
        return cls(f"{name}={value}: {reason}", name=name)


def written(host: str, port: int) -> str:
    """HOST:PORT; an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def written_here(host: str, port: int) -> str:
    """HOST:PORT at which somebody on this machine finds who listens there."""
    return written(LOOPBACK_OF.get(host, host), port)


@dataclass(slots=True, frozen=True)
class Listener:
    """Where the broker listens, or where clients are told to go.

    `host` "" means every address; `protocol` is the security protocol that the name maps to.
    """

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{self.name}://{written(self.host, self.port)}"


class ConfigType(IntEnum):
    """Kafka's types of settings, by their number in DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from, by its number in DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(slots=True, frozen=True)
class Synonym:
    """One place, strongest first, that a setting's value could come from."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(slots=True, frozen=True)
class ConfigEntry:
    """One setting as DescribeConfigs and CreateTopics show it."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]
    doc: str
