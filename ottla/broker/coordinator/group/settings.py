"""The settings that groups go by, as the broker's configuration gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ottla.broker.coordinator.group.kinds import Kind
from ottla.config.broker import BrokerConfig

MINUTE_MS = 60_000
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * MINUTE_MS
"""Kafka's own: a client that is given no member id before it is in (JoinGroup 0 to 3) may give up
and come again as another one; so long the group waits for the first."""

CAN_UPGRADE = frozenset({"UPGRADE", "BIDIRECTIONAL"})
CAN_DOWNGRADE = frozenset({"DOWNGRADE", "BIDIRECTIONAL"})

NEWCOMERS_MS = 50
"""The least initial delay, and again as often as one came; and so long a later generation waits
after the last of several. Consumers that start together are some tens of milliseconds apart, and
who comes after the assignment has left waits for the heartbeats of all the others: seconds."""
SETTLE_MS_MAX = 3_000
"""So long a later generation waits for newcomers in all, however many follow one another. It is
Kafka's own group.initial.rebalance.delay.ms; without it a client that joins in a loop would hold
all the others up to their rebalance timeout, by default five minutes."""


@dataclass(slots=True, frozen=True)
class Intervals:
    """Times of modern groups, in milliseconds."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


@dataclass(slots=True, frozen=True)
class ModernSettings:
    """What one kind of modern group goes by; a group may set its own times within the bounds."""

    default: Intervals = Intervals(45_000, 5_000, 1_000)
    least: Intervals = Intervals(45_000, 5_000, 0)
    most: Intervals = Intervals(60_000, 15_000, 15_000)
    max_size: int = 2**31 - 1

    def of_group(self, kind: Kind, overrides: Mapping[str, str]) -> Intervals:
        """The times of a group with these settings of its own. A bound that has become narrower
        since they were set holds for them, too."""
        if not overrides:
            return self.default

        def time_ms(name: str, default: int, least: int, most: int) -> int:
            text = overrides.get(f"{kind.value}.{name}.ms")
            return default if text is None else min(max(int(text), least), most)

        default, least, most = self.default, self.least, self.most
        return Intervals(
            time_ms(
                "session.timeout",
                default.session_timeout_ms,
                least.session_timeout_ms,
                most.session_timeout_ms,
            ),
            time_ms(
                "heartbeat.interval",
                default.heartbeat_interval_ms,
                least.heartbeat_interval_ms,
                most.heartbeat_interval_ms,
            ),
            time_ms(
                "assignment.interval",
                default.assignment_interval_ms,
                least.assignment_interval_ms,
                most.assignment_interval_ms,
            ),
        )


@dataclass(slots=True, frozen=True)
class GroupSettings:
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    newcomers_ms: int = 0
    """How far apart those who start together may be; Kafka waits for nobody."""
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    consumer: ModernSettings = ModernSettings()
    share: ModernSettings = ModernSettings(max_size=200)
    share_retry_ms: int = 30_000
    assignors: tuple[str, ...] = ("uniform", "range")
    """Of consumer groups, the default first."""
    can_upgrade: bool = True
    """Whether a classic group turns into a consumer group while it has members."""
    can_downgrade: bool = True
    regex_refresh_ms: int = 10 * MINUTE_MS

    def of_kind(self, kind: Kind) -> ModernSettings:
        """The settings of a kind of modern group."""
        match kind:
            case Kind.CONSUMER:
                return self.consumer
            case Kind.SHARE:
                return self.share
            case _:
                raise AssertionError(f"{kind} is not modern")


class LiveSettings:
    """The settings of a configuration that changes at run time, made anew when it has."""

    __slots__ = ("_config", "_of", "_settings")

    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        self._config = config
        self._of: BrokerConfig | None = None
        self._settings = GroupSettings()

    def __call__(self) -> GroupSettings:
        config = self._config()
        if config is not self._of:
            self._of = config
            self._settings = GroupSettings(
                min_session_timeout_ms=config.group_min_session_timeout_ms,
                max_session_timeout_ms=config.group_max_session_timeout_ms,
                initial_rebalance_delay_ms=max(
                    config.group_initial_rebalance_delay_ms, NEWCOMERS_MS
                ),
                newcomers_ms=NEWCOMERS_MS,
                max_size=config.group_max_size,
                offset_metadata_max_bytes=config.offset_metadata_max_bytes,
                offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
                consumer=_consumer_settings(config),
                share=_share_settings(config),
                share_retry_ms=config.group_share_initialize_retry_interval_ms,
                assignors=config.group_consumer_assignors,
                can_upgrade=config.group_consumer_migration_policy.upper() in CAN_UPGRADE,
                can_downgrade=config.group_consumer_migration_policy.upper() in CAN_DOWNGRADE,
                regex_refresh_ms=config.group_consumer_regex_refresh_interval_ms,
            )
        return self._settings


def _consumer_settings(config: BrokerConfig) -> ModernSettings:
    return ModernSettings(
        Intervals(
            config.group_consumer_session_timeout_ms,
            config.group_consumer_heartbeat_interval_ms,
            config.group_consumer_assignment_interval_ms,
        ),
        Intervals(
            config.group_consumer_min_session_timeout_ms,
            config.group_consumer_min_heartbeat_interval_ms,
            config.group_consumer_min_assignment_interval_ms,
        ),
        Intervals(
            config.group_consumer_max_session_timeout_ms,
            config.group_consumer_max_heartbeat_interval_ms,
            config.group_consumer_max_assignment_interval_ms,
        ),
        config.group_consumer_max_size,
    )


def _share_settings(config: BrokerConfig) -> ModernSettings:
    return ModernSettings(
        Intervals(
            config.group_share_session_timeout_ms,
            config.group_share_heartbeat_interval_ms,
            config.group_share_assignment_interval_ms,
        ),
        Intervals(
            config.group_share_min_session_timeout_ms,
            config.group_share_min_heartbeat_interval_ms,
            config.group_share_min_assignment_interval_ms,
        ),
        Intervals(
            config.group_share_max_session_timeout_ms,
            config.group_share_max_heartbeat_interval_ms,
            config.group_share_max_assignment_interval_ms,
        ),
        config.group_share_max_size,
    )
