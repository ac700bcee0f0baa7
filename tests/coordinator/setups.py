"""Under which settings each conversation is held, with a shard and with Apache Kafka alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from ottla.broker.coordinator.group.settings import GroupSettings, Intervals, ModernSettings
from tests.coordinator.consumer_conversations import CONSUMER
from tests.coordinator.consumer_scenario import ConsumerScript
from tests.coordinator.conversations import AT_ONCE, DELAY_MS, DELAYED, SIZE, SIZED
from tests.coordinator.scenario import Script


class Setup(NamedTuple):
    """The broker of some conversations; `kind` is the script that they are written in."""

    settings: GroupSettings
    conversations: tuple[Callable[[Any], None], ...]
    kind: type[Script] = Script

    @property
    def properties(self) -> dict[str, int]:
        """The same, as a broker is given them."""
        settings = self.settings
        default, least = settings.consumer.default, settings.consumer.least
        return {
            "group.min.session.timeout.ms": settings.min_session_timeout_ms,
            "group.initial.rebalance.delay.ms": settings.initial_rebalance_delay_ms,
            "group.max.size": settings.max_size,
            "group.consumer.assignment.interval.ms": default.assignment_interval_ms,
            "group.consumer.session.timeout.ms": default.session_timeout_ms,
            "group.consumer.min.session.timeout.ms": least.session_timeout_ms,
            "group.consumer.heartbeat.interval.ms": default.heartbeat_interval_ms,
            "group.consumer.min.heartbeat.interval.ms": least.heartbeat_interval_ms,
        }


QUICK = GroupSettings(min_session_timeout_ms=1_000, initial_rebalance_delay_ms=0)
BRISK = ModernSettings(Intervals(2_000, 100, 0), Intervals(1_000, 100, 0))
SETUPS = (
    Setup(QUICK, AT_ONCE),
    Setup(replace(QUICK, initial_rebalance_delay_ms=DELAY_MS), DELAYED),
    Setup(replace(QUICK, max_size=SIZE), SIZED),
    Setup(replace(QUICK, consumer=BRISK), CONSUMER, ConsumerScript),
)
