"""The topics that belong to the broker itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.config.topic import effective_log_config
from ottla.config.types import LogConfig

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)


class LogConfigs:
    """What the logs of topics go by. What coordinators write is synced before they answer, whatever
    is set. Most topics have no settings of their own: theirs is one object, made once."""

    def __init__(self) -> None:
        self._unset: tuple[BrokerConfig, LogConfig] | None = None

    def of(
        self, topic: str, broker: BrokerConfig, overrides: Mapping[str, str | None]
    ) -> LogConfig:
        if topic in INTERNAL_TOPICS:
            return replace(effective_log_config(broker, overrides), flush_messages=1)
        if overrides:
            return effective_log_config(broker, overrides)
        unset = self._unset
        if unset is None or unset[0] is not broker:
            unset = self._unset = broker, effective_log_config(broker, {})
        return unset[1]
