"""The topics that belong to the broker itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ottla.config.broker import BrokerConfig
from ottla.config.topic import effective_log_config
from ottla.config.types import LogConfig

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def log_config_of(
    topic: str, broker: BrokerConfig, overrides: Mapping[str, str | None]
) -> LogConfig:
    """What the log of a topic with these settings goes by. What coordinators write is synced before
    they answer, whatever is set."""
    config = effective_log_config(broker, overrides)
    return replace(config, flush_messages=1) if topic in INTERNAL_TOPICS else config
