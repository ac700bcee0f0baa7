"""What groups make of the broker's configuration."""

from __future__ import annotations

from ottla.broker.coordinator.group.settings import NEWCOMERS_MS, LiveSettings
from ottla.config.broker import BrokerConfig


def test_settings_follow_the_configuration() -> None:
    config = BrokerConfig()
    settings = LiveSettings(lambda: config)
    assert settings().max_size == config.group_max_size
    config = config.model_copy(update={"group_max_size": 7})

    assert settings().max_size == 7
    assert settings() is settings()


def test_a_first_rebalance_waits_for_who_starts_together() -> None:
    def delay_ms(configured: int) -> int:
        config = BrokerConfig().model_copy(update={"group_initial_rebalance_delay_ms": configured})
        return LiveSettings(lambda: config)().initial_rebalance_delay_ms

    assert delay_ms(0) == NEWCOMERS_MS
    assert delay_ms(3_000) == 3_000
