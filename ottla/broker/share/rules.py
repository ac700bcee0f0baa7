"""What a share group goes by: the broker's settings, and the group's own over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ottla.broker.share.window import Limits
from ottla.config.broker import BrokerConfig
from ottla.config.group import GROUP_KEYS
from ottla.config.keys import Value
from ottla.config.types import ConfigError
from ottla.protocol.errors import ErrorCode, KafkaError

LATEST = "latest"
EARLIEST = "earliest"
NO_GROUP = ""


@dataclass(slots=True, frozen=True)
class ShareRules:
    """Of one group. `reset` is latest, earliest or by_duration:<ISO 8601>; or why the group cannot
    begin by what it has set, which an older broker has taken."""

    limits: Limits
    reset: str | KafkaError = LATEST
    read_committed: bool = False


class LiveRules:
    """The rules of each group, made anew when the broker's or its own settings have changed. A
    bound that has become narrower since a group set something holds for it, too (KIP-1221)."""

    __slots__ = ("_config", "_known", "_of", "_overrides")

    def __init__(
        self, config: Callable[[], BrokerConfig], overrides: Callable[[str], Mapping[str, str]]
    ) -> None:
        self._config = config
        self._overrides = overrides
        self._of: BrokerConfig | None = None
        self._known: dict[str, tuple[Mapping[str, str], ShareRules]] = {}

    def __call__(self, group_id: str) -> ShareRules:
        config = self._config()
        if config is not self._of:
            self._of = config
            self._known.clear()
        overrides = self._overrides(group_id)
        if not overrides:
            # Anybody may name any group: only those that have settings are kept by name.
            group_id = NO_GROUP
        known = self._known.get(group_id)
        if known is None or known[0] is not overrides:
            known = self._known[group_id] = overrides, _rules(config, overrides)
        return known[1]

    def forget(self, group_id: str) -> None:
        self._known.pop(group_id, None)


def _rules(config: BrokerConfig, overrides: Mapping[str, str]) -> ShareRules:
    def said(name: str, default: Value) -> Value:
        text = overrides.get(name)
        return default if text is None else GROUP_KEYS[name].parse(text)

    def whole(name: str, default: int, least: int, most: int) -> int:
        value = said(name, default)
        assert isinstance(value, int), name
        return min(max(value, least), most)

    limits = Limits(
        delivery_count=whole(
            "share.delivery.count.limit",
            config.group_share_delivery_count_limit,
            config.group_share_min_delivery_count_limit,
            config.group_share_max_delivery_count_limit,
        ),
        record_locks=whole(
            "share.partition.max.record.locks",
            config.group_share_partition_max_record_locks,
            config.group_share_min_partition_max_record_locks,
            config.group_share_max_partition_max_record_locks,
        ),
        lock_ms=whole(
            "share.record.lock.duration.ms",
            config.group_share_record_lock_duration_ms,
            config.group_share_min_record_lock_duration_ms,
            config.group_share_max_record_lock_duration_ms,
        ),
        may_renew=said("share.renew.acknowledge.enable", True) is True,
    )
    return ShareRules(
        limits,
        _reset(overrides),
        said("share.isolation.level", None) == "read_committed",
    )


def _reset(overrides: Mapping[str, str]) -> str | KafkaError:
    name = "share.auto.offset.reset"
    try:
        return str(GROUP_KEYS[name].parse(overrides.get(name, LATEST)))
    except ConfigError:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name} of the group is invalid.")
