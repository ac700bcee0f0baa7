"""Settings of a subscription to client metrics (KIP-714): kept and shown.

What a broker without a receiver of metrics does with them is nothing, as in Apache Kafka: clients
are not told of telemetry at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla.config.keys import Key, Value
from ottla.config.types import ConfigError, ConfigType

INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
MATCHED = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What a pattern of `match` may look at."""


def _check_prefixes(key: Key, value: Value) -> None:
    assert isinstance(value, tuple), key.name
    if not all(value):
        raise ConfigError(f"Configuration '{key.name}' values must not be empty.")


CLIENT_METRICS_KEYS = {
    key.name: key
    for key in (
        Key("interval.ms", ConfigType.INT, "300000", "How often clients send their metrics."),
        Key("match", ConfigType.LIST, "", "Which clients: name=regular expression, all of them."),
        Key(
            "metrics",
            ConfigType.LIST,
            "",
            "Prefixes of names of metrics; * is all.",
            check=_check_prefixes,
        ),
    )
}


class SubscriptionError(ConfigError):
    """A setting that Kafka answers with INVALID_REQUEST, not with INVALID_CONFIG."""


def validate_client_metrics(overrides: Mapping[str, str]) -> None:
    """Raises ConfigError, in Kafka's words, when a subscription cannot have these settings."""
    for name in overrides:
        if name not in CLIENT_METRICS_KEYS:
            raise SubscriptionError(f"Unknown client metrics configuration: {name}")
    values = {name: CLIENT_METRICS_KEYS[name].parse(text) for name, text in overrides.items()}
    interval_ms = values.get("interval.ms")
    if isinstance(interval_ms, int) and not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise SubscriptionError(
            f"Invalid value {interval_ms} for interval.ms, interval must be between"
            f" {INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)"
        )
    patterns = values.get("match", ())
    for pattern in patterns if isinstance(patterns, tuple) else ():
        _check_pattern(pattern)


def _check_pattern(pattern: str) -> None:
    # As Java splits: empty parts at the end are none.
    parts = [part.strip() for part in pattern.rstrip("=").split("=")]
    if len(parts) == 2 and parts[0] in MATCHED:
        try:
            re.compile(parts[1])
        except (re.error, OverflowError, RecursionError):
            pass
        else:
            return
    raise ConfigError(f"Illegal client matching pattern: {pattern}")
