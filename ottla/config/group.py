"""Settings of one group: what it may set over the broker's, and between which bounds.

A setting has the broker's `group.<name>` as its default; where the broker has `group.<kind>.min.`
and `.max.` keys of it, those bound it. `share.*` and `streams.*` are kept for groups of those
kinds, as topics keep settings that nothing acts on yet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla.config.broker import BrokerConfig
from ottla.config.catalogue import broker_key
from ottla.config.keys import Key, Value
from ottla.config.types import LONG_MAX, ConfigError, ConfigType

BY_DURATION = "by_duration"
# That of java.time.Duration, whose numbers fit a LONG: none has more digits, but for zeros.
_NUMBER = r"\+?0*([0-9]{1,19})"
_DURATION = re.compile(
    rf"\+?P(?=.)(?:{_NUMBER}D)?"
    rf"(?:T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}(?:[.,]([0-9]{{0,9}}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_MS_PER_S = 1000


def duration_ms(reset: str) -> int | None:
    """How far by_duration:<ISO 8601> goes back. None for any other text, and for a duration that
    is negative or whose seconds do not fit a LONG."""
    kind, _, duration = reset.partition(":")
    match = _DURATION.fullmatch(duration) if kind == BY_DURATION else None
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups()[:4])
    total_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    fraction = (match.group(5) or "").ljust(3, "0")[:3]
    return None if total_s > LONG_MAX else total_s * _MS_PER_S + int(fraction)


def _check_reset(key: Key, value: Value) -> None:
    if value not in ("earliest", "latest") and duration_ms(str(value)) is None:
        said = (
            f"Invalid value `{value}` for configuration {key.name}. The value must be either"
            " 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
        )
        raise key.refuse(value, said)


def _whole(name: str, at_least: int, sentence: str) -> Key:
    return Key(name, ConfigType.INT, None, sentence, at_least=at_least)


GROUP_KEYS = {
    key.name: key
    for key in (
        _whole("consumer.assignment.interval.ms", 0, "Least time between two assignments."),
        _whole("consumer.heartbeat.interval.ms", 1, "How often members are asked to report."),
        _whole("consumer.session.timeout.ms", 1, "Silence after which a member is out."),
        _whole("share.assignment.interval.ms", 0, "Least time between two assignments."),
        Key(
            "share.auto.offset.reset",
            ConfigType.STRING,
            "latest",
            "Where a share group begins: latest, earliest, or by_duration:<ISO 8601>.",
            check=_check_reset,
        ),
        _whole("share.delivery.count.limit", 2, "How often a record is delivered at most."),
        _whole("share.heartbeat.interval.ms", 1, "How often members are asked to report."),
        Key(
            "share.isolation.level",
            ConfigType.STRING,
            "read_uncommitted",
            "Whether a share group sees records of open and aborted transactions.",
            choices=("read_committed", "read_uncommitted"),
        ),
        _whole("share.partition.max.record.locks", 100, "Records of a partition locked at once."),
        _whole("share.record.lock.duration.ms", 1000, "How long a record is locked."),
        Key(
            "share.renew.acknowledge.enable",
            ConfigType.BOOLEAN,
            "true",
            "Whether a member may keep a record for longer.",
        ),
        _whole("share.session.timeout.ms", 1, "Silence after which a member is out."),
        _whole("streams.assignment.interval.ms", 0, "Least time between two assignments."),
        _whole("streams.heartbeat.interval.ms", 1, "How often members are asked to report."),
        _whole("streams.initial.rebalance.delay.ms", 0, "Wait for more members at first."),
        _whole("streams.num.standby.replicas", 0, "Standby replicas of each task."),
        _whole("streams.session.timeout.ms", 1, "Silence after which a member is out."),
    )
}

_MOST_OF = {"streams.num.standby.replicas": "group.streams.max.standby.replicas"}


def broker_synonym(name: str) -> str | None:
    """The broker's key that gives a group's setting its default; None if there is none."""
    synonym = f"group.{name}"
    return synonym if broker_key(synonym) is not None else None


def validate_group_overrides(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raises ConfigError, in Kafka's words, when a group cannot have these settings."""
    for name in overrides:
        if name not in GROUP_KEYS:
            raise ConfigError(f"Unknown group config name: {name}")
    values = {name: GROUP_KEYS[name].parse(text) for name, text in overrides.items()}
    for name, value in values.items():
        _check_bound(broker, name, value, "min", "greater")
        _check_bound(broker, name, value, "max", "less")


def _check_bound(broker: BrokerConfig, name: str, value: Value, bound: str, compared: str) -> None:
    kind, _, rest = name.partition(".")
    limit_name = f"group.{kind}.{bound}.{rest}"
    if bound == "max":
        limit_name = _MOST_OF.get(name, limit_name)
    limit = _broker_value(broker, limit_name)
    if not isinstance(limit, int) or not isinstance(value, int):
        return
    if value < limit if bound == "min" else value > limit:
        raise ConfigError(f"{name} must be {compared} than or equal to {limit_name}")


def _broker_value(broker: BrokerConfig, name: str) -> Value | None:
    key = broker_key(name)
    if key is None:
        return None
    text = broker.layers.effective().get(name, key.default)
    return None if text is None else key.parse(text)
