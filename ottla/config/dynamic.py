"""Broker settings that change at run time: which may, for whom, and to what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.config.broker import BrokerConfig
from ottla.config.catalogue import asks_for_protection, broker_key, split_listener_prefix
from ottla.config.keys import Dynamic
from ottla.config.types import ConfigError

NEVER_ZERO = ("log.cleaner.threads", "max.connections", "max.connection.creation.rate")
"""0 may stand in server.properties and is refused at run time, as in Kafka. Nobody could connect
any more, and take that 0 back."""
FIXED = ("listeners", "listener.security.protocol.map")
"""Keys that Kafka lets change at run time and that this version reads at the start only."""


def validate_broker_overrides(
    config: BrokerConfig, overrides: Mapping[str, str], *, one_broker: bool
) -> None:
    """Raises ConfigError, in Kafka's words, when these cannot be the settings made at run time.

    `overrides` is all that would then be set, for one broker or for all. A name that no broker
    knows is accepted, as Kafka accepts it: it may be a plugin's.
    """
    keys = {name: broker_key(name) for name in overrides}
    _refuse(
        "Cannot update these configs dynamically",
        (name for name, key in keys.items() if key is not None and key.dynamic is Dynamic.NO),
    )
    for name, text in overrides.items():
        _check_value(config, name, text)
    if not one_broker:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            (name for name, key in keys.items() if key and key.dynamic is Dynamic.BROKER),
        )
    layers = config.layers
    if one_broker:
        config.with_dynamic(default=layers.dynamic_default, broker=overrides)
    else:
        config.with_dynamic(default=overrides, broker=layers.dynamic_broker)


def _check_value(config: BrokerConfig, name: str, text: str) -> None:
    _, base = split_listener_prefix(name)
    if asks_for_protection(name, text.strip()):
        raise ConfigError(f"{name} asks for a protection that this version does not have.")
    key = broker_key(base)
    if key is None:
        return
    value = key.parse(text)
    if base in NEVER_ZERO and value == 0:
        raise ConfigError(f"Invalid {base} 0")
    if name in FIXED and value != config.value(name):
        raise ConfigError(f"{name} cannot be changed while the broker runs.")


def _refuse(sentence: str, names: Iterable[str]) -> None:
    refused = sorted(names)
    if refused:
        raise ConfigError(f"{sentence}: [{', '.join(refused)}]")
