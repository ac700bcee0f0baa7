"""What no single broker key can say: settings that contradict each other, or ask for a role that
this version does not have. Each failure is a ConfigError with a sentence for the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.listeners import (
    NO_HOST,
    check_advertised,
    check_bindable,
    check_plaintext,
    is_host,
)
from ottla.config.types import ConfigError

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

SINGLE_NODE = "This version runs as a single node that is broker and controller in one"
BOUNDED = {
    "group.consumer": ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"),
    "group.share": (
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "assignment.interval.ms",
        "record.lock.duration.ms",
        "delivery.count.limit",
        "partition.max.record.locks",
    ),
}
"""Keys that lie between two others, of the same name with min and max in it."""
RETENTION_KEYS = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
"""The first of them that is set decides; the last always is."""


def check(config: BrokerConfig) -> None:
    _check_ids(config)
    _check_roles(config)
    _check_quorum(config)
    _check_listeners(config)
    _check_directories(config)
    _check_limits(config)
    _check_groups(config)


def _check_ids(config: BrokerConfig) -> None:
    if "broker_id" in config.model_fields_set and config.broker_id != config.node_id:
        raise ConfigError(
            f"broker.id={config.broker_id}, node.id={config.node_id}: set one, or both alike.",
            name="broker.id",
        )


def _check_roles(config: BrokerConfig) -> None:
    roles = config.process_roles
    shown = ",".join(roles)
    unknown = [role for role in roles if role not in ("broker", "controller")]
    if unknown or not roles:
        raise ConfigError.of("process.roles", shown, "allowed is broker,controller.")
    if set(roles) != {"broker", "controller"}:
        missing = "broker" if roles == ("controller",) else "controller"
        raise ConfigError.of(
            "process.roles",
            shown,
            f"the {missing} would have to be another process."
            f" {SINGLE_NODE}: process.roles=broker,controller, or leave the key out.",
        )


def _check_quorum(config: BrokerConfig) -> None:
    name = "controller.quorum.voters"
    for voter in config.controller_quorum_voters:
        identifier, at, address = voter.partition("@")
        if not at or not identifier.isdecimal() or ":" not in address:
            raise ConfigError.of(name, voter, "allowed is id@host:port.")
        if int(identifier) != config.node_id:
            raise ConfigError.of(
                name,
                ",".join(config.controller_quorum_voters),
                f"controller {identifier} is another node. {SINGLE_NODE};"
                f" node.id is {config.node_id}.",
            )
    servers = config.controller_quorum_bootstrap_servers
    if len(servers) > 1:
        raise ConfigError.of(
            "controller.quorum.bootstrap.servers",
            ",".join(servers),
            f"these are {len(servers)} controllers. {SINGLE_NODE}.",
        )


def _check_listeners(config: BrokerConfig) -> None:
    check_bindable(config.all_listeners)
    check_plaintext(config.all_listeners)
    if not config.broker_listeners:
        raise ConfigError.of(
            "listeners", ",".join(config.listeners), "none of them is for clients."
        )
    check_advertised(tuple(config.advertised.values()), config.broker_listeners)
    if not is_host(config.ottla_telemetry_host):
        raise ConfigError.of("ottla.telemetry.host", config.ottla_telemetry_host, NO_HOST)
    between = config.inter_broker_listener_name
    names = [listener.name for listener in config.broker_listeners]
    if between and between.upper() not in names:
        raise ConfigError.of(
            "inter.broker.listener.name", between, f"allowed is one of {', '.join(names)}."
        )


def _check_directories(config: BrokerConfig) -> None:
    directories = config.log_dir if config.log_dirs is None else config.log_dirs
    if not directories or not all(directories):
        name = "log.dir" if config.log_dirs is None else "log.dirs"
        raise ConfigError.of(
            name,
            ",".join(directories),
            "allowed is at least one directory, and no empty name.",
        )
    if config.metadata_log_dir and config.metadata_dir not in config.data_dirs:
        raise ConfigError.of(
            "metadata.log.dir",
            config.metadata_log_dir,
            f"allowed is one of {', '.join(directories)}.",
        )
    # An empty name would be the working directory.
    if not all(config.cordoned_log_dirs) or not config.cordoned_dirs <= set(config.data_dirs):
        raise ConfigError.of(
            "cordoned.log.dirs",
            ",".join(config.cordoned_log_dirs),
            f"allowed is * alone, or some of {', '.join(directories)}.",
        )


def _check_groups(config: BrokerConfig) -> None:
    if not config.group_consumer_assignors:
        raise ConfigError(
            "group.consumer.assignors is empty: name uniform, range or both.",
            name="group.consumer.assignors",
        )
    protocols = config.group_coordinator_rebalance_protocols
    if "classic" not in protocols:
        raise ConfigError.of(
            "group.coordinator.rebalance.protocols",
            ",".join(protocols),
            "classic groups are always served, so classic must be one of them.",
        )
    for kind, names in BOUNDED.items():
        for name in names:
            _check_bounds(config, kind, name)
        heartbeat, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
        if _number(config, heartbeat) >= _number(config, session):
            raise ConfigError.of(
                heartbeat,
                _number(config, heartbeat),
                f"it must be less than {session} ({_number(config, session)}).",
            )
    sessions, size = config.group_share_max_share_sessions, config.group_share_max_size
    if sessions < size:
        raise ConfigError.of(
            "group.share.max.share.sessions",
            sessions,
            f"allowed is at least group.share.max.size ({size}).",
        )


def _check_bounds(config: BrokerConfig, kind: str, name: str) -> None:
    """What groups may set for themselves, and what those have that set nothing."""
    least_name, most_name = f"{kind}.min.{name}", f"{kind}.max.{name}"
    least, most = _number(config, least_name), _number(config, most_name)
    if least > most:
        raise ConfigError.of(least_name, least, f"allowed is up to {most_name} ({most}).")
    value = _number(config, f"{kind}.{name}")
    if not least <= value <= most:
        raise ConfigError.of(
            f"{kind}.{name}",
            value,
            f"allowed is {least} to {most}, by {least_name} and {most_name}.",
        )


def _number(config: BrokerConfig, name: str) -> int:
    number = config.value(name)
    assert isinstance(number, int), name
    return number


def _check_limits(config: BrokerConfig) -> None:
    if config.retention_ms == 0:
        name = next(name for name in RETENTION_KEYS if config.value(name) is not None)
        raise ConfigError.of(name, 0, "allowed is -1 (for ever) or at least 1.")
    if not config.connections_of_host and config.max_connections_per_ip == 0:
        raise ConfigError.of(
            "max.connections.per.ip",
            0,
            "nobody could connect; allowed is at least 1,"
            " or 0 where max.connections.per.ip.overrides makes exceptions.",
        )
    queued = config.queued_max_request_bytes
    if 0 < queued < config.socket_request_max_bytes:
        raise ConfigError.of(
            "queued.max.request.bytes",
            queued,
            "allowed is -1 or at least socket.request.max.bytes"
            f" ({config.socket_request_max_bytes}).",
        )
    for name, size in (
        ("socket.send.buffer.bytes", config.socket_send_buffer_bytes),
        ("socket.receive.buffer.bytes", config.socket_receive_buffer_bytes),
    ):
        if size < -1 or size == 0:
            raise ConfigError.of(name, size, "allowed is -1 or at least 1.")
