"""What no single broker key can say: settings that contradict each other, or ask for a role that
this version does not have. Each failure is a ConfigError with a sentence for the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.listeners import check_advertised, check_bindable, check_plaintext
from ottla.config.types import ConfigError

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

SINGLE_NODE = "This version runs as a single node that is broker and controller in one"


def check(config: BrokerConfig) -> None:
    _check_ids(config)
    _check_roles(config)
    _check_quorum(config)
    _check_listeners(config)
    _check_directories(config)
    _check_limits(config)
    _check_consumer_groups(config)


def _check_ids(config: BrokerConfig) -> None:
    if "broker_id" in config.model_fields_set and config.broker_id != config.node_id:
        raise ConfigError(
            f"broker.id={config.broker_id}, node.id={config.node_id}: set one, or both alike."
        )


def _check_roles(config: BrokerConfig) -> None:
    roles = config.process_roles
    shown = ",".join(roles)
    unknown = [role for role in roles if role not in ("broker", "controller")]
    if unknown or not roles:
        raise ConfigError(f"process.roles={shown}: allowed is broker,controller.")
    if set(roles) != {"broker", "controller"}:
        missing = "broker" if roles == ("controller",) else "controller"
        raise ConfigError(
            f"process.roles={shown}: the {missing} would have to be another process."
            f" {SINGLE_NODE}: process.roles=broker,controller, or leave the key out."
        )


def _check_quorum(config: BrokerConfig) -> None:
    for voter in config.controller_quorum_voters:
        identifier, at, address = voter.partition("@")
        if not at or not identifier.isdecimal() or ":" not in address:
            raise ConfigError(f"controller.quorum.voters={voter}: allowed is id@host:port.")
        if int(identifier) != config.node_id:
            raise ConfigError(
                f"controller.quorum.voters={','.join(config.controller_quorum_voters)}: controller"
                f" {identifier} is another node. {SINGLE_NODE}; node.id is {config.node_id}."
            )
    servers = config.controller_quorum_bootstrap_servers
    if len(servers) > 1:
        raise ConfigError(
            f"controller.quorum.bootstrap.servers={','.join(servers)}: these are {len(servers)}"
            f" controllers. {SINGLE_NODE}."
        )


def _check_listeners(config: BrokerConfig) -> None:
    check_bindable(config.all_listeners)
    check_plaintext(config.all_listeners)
    if not config.broker_listeners:
        raise ConfigError(f"listeners={','.join(config.listeners)}: none of them is for clients.")
    check_advertised(tuple(config.advertised.values()), config.broker_listeners)
    between = config.inter_broker_listener_name
    names = [listener.name for listener in config.broker_listeners]
    if between and between.upper() not in names:
        raise ConfigError(
            f"inter.broker.listener.name={between}: allowed is one of {', '.join(names)}."
        )


def _check_directories(config: BrokerConfig) -> None:
    directories = config.data_dirs
    if not directories or not all(directories):
        name = "log.dir" if config.log_dirs is None else "log.dirs"
        raise ConfigError(
            f"{name}={','.join(directories)}: allowed is at least one directory, and no empty name."
        )
    if config.metadata_log_dir and config.metadata_log_dir not in directories:
        raise ConfigError(
            f"metadata.log.dir={config.metadata_log_dir}: allowed is one of"
            f" {', '.join(directories)}."
        )


def _check_consumer_groups(config: BrokerConfig) -> None:
    if not config.group_consumer_assignors:
        raise ConfigError("group.consumer.assignors is empty: name uniform, range or both.")
    protocols = config.group_coordinator_rebalance_protocols
    if "classic" not in protocols:
        raise ConfigError(
            f"group.coordinator.rebalance.protocols={','.join(protocols)}: classic groups are"
            " always served, so classic must be one of them."
        )
    session_ms = config.group_consumer_session_timeout_ms
    heartbeat_ms = config.group_consumer_heartbeat_interval_ms
    for what, least, value, most in (
        (
            "session.timeout.ms",
            config.group_consumer_min_session_timeout_ms,
            session_ms,
            config.group_consumer_max_session_timeout_ms,
        ),
        (
            "heartbeat.interval.ms",
            config.group_consumer_min_heartbeat_interval_ms,
            heartbeat_ms,
            config.group_consumer_max_heartbeat_interval_ms,
        ),
        (
            "assignment.interval.ms",
            config.group_consumer_min_assignment_interval_ms,
            config.group_consumer_assignment_interval_ms,
            config.group_consumer_max_assignment_interval_ms,
        ),
    ):
        name = f"group.consumer.{what}"
        if not least <= value <= most:
            raise ConfigError(
                f"{name}={value}: allowed is {least} to {most}, by group.consumer.min.{what} and"
                f" group.consumer.max.{what}."
            )
    if heartbeat_ms >= session_ms:
        raise ConfigError(
            f"group.consumer.heartbeat.interval.ms={heartbeat_ms}: it must be less than"
            f" group.consumer.session.timeout.ms ({session_ms})."
        )


def _check_limits(config: BrokerConfig) -> None:
    if config.log_retention_ms == 0 or config.retention_ms == 0:
        raise ConfigError("log.retention.ms=0: allowed is -1 (for ever) or at least 1.")
    queued = config.queued_max_request_bytes
    if 0 < queued < config.socket_request_max_bytes:
        raise ConfigError(
            f"queued.max.request.bytes={queued}: allowed is -1 or at least"
            f" socket.request.max.bytes ({config.socket_request_max_bytes})."
        )
    for name, size in (
        ("socket.send.buffer.bytes", config.socket_send_buffer_bytes),
        ("socket.receive.buffer.bytes", config.socket_receive_buffer_bytes),
    ):
        if size < -1 or size == 0:
            raise ConfigError(f"{name}={size}: allowed is -1 or at least 1.")
