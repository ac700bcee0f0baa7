"""What was set at run time over what the start says, where the two may contradict each other."""

from __future__ import annotations

from collections.abc import Callable

from ottla.config.broker import BrokerConfig
from ottla.config.types import ConfigError

PassedOver = Callable[[str, str], None]
"""Hears of a setting, and why."""


def with_settings(
    static: BrokerConfig,
    *,
    default: dict[str, str],
    broker: dict[str, str],
    passed_over: PassedOver,
) -> BrokerConfig:
    """The configuration of a start, valid by itself, under what was set for all brokers and for
    this one.

    That was set while the start had other settings, and may contradict those of now. It is told
    and passed over, for nobody could take it back where no broker starts.
    """
    while True:
        try:
            return static.with_dynamic(default=default, broker=broker)
        except ConfigError as error:
            layer, name = _to_blame(static, default, broker, error)
            passed_over(name, error.message)
            del layer[name]


def _to_blame(
    static: BrokerConfig, default: dict[str, str], broker: dict[str, str], error: ConfigError
) -> tuple[dict[str, str], str]:
    """What was set at run time and is named by the error; else what it is that contradicts the
    setting of the start that it names."""
    for layer in (broker, default):
        if error.name in layer:
            return layer, error.name
    settings = [(layer, name) for layer in (broker, default) for name in layer]
    for layer, name in settings:
        value = layer.pop(name)
        try:
            static.with_dynamic(default=default, broker=broker)
        except ConfigError:
            continue
        else:
            return layer, name
        finally:
            layer[name] = value
    if not settings:
        raise error
    return settings[0]
