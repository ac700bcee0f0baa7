"""What a broker grants its peers, by its settings and by the files that it may have open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.broker import open_files
from ottla.broker.network.accept_rates import AcceptRates
from ottla.broker.network.refusals import DESCRIPTORS, MAX_CONNECTIONS
from ottla.config.broker import BrokerConfig

MS_PER_S = 1000
BETWEEN_BROKERS = "PLAINTEXT"
"""The listener that brokers have among themselves, if inter.broker.listener.name names none."""


@dataclass(slots=True, frozen=True)
class Limits:
    """What one broker grants its peers; sizes in bytes."""

    max_request_size: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    backlog: int
    max_connections: int
    """The least of what is set and what is possible; `limited_by` says which of the two it is."""
    max_connections_per_ip: int
    idle_ms: int
    held_bytes_max: int
    """All receive buffers together (queued.max.request.bytes); -1 is no limit."""
    quota_window_ms: int = 1000
    quota_window_count: int = 11
    waiting_max: int = open_files.WAITING_MAX
    """Connections that are not served and not closed yet, for their address makes too many."""
    limited_by: str = MAX_CONNECTIONS
    connections_of_host: Mapping[str, int] = field(default_factory=dict)
    """Exceptions to max_connections_per_ip, by address or by a host's name."""

    @classmethod
    def of(cls, config: BrokerConfig, open_files_max: int) -> Limits:
        """Those of a broker with these settings that may have so many files open."""
        possible = open_files.connections_max(open_files_max)
        return cls(
            max_request_size=config.socket_request_max_bytes,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
            backlog=config.socket_listen_backlog_size,
            max_connections=min(config.max_connections, possible),
            limited_by=MAX_CONNECTIONS if config.max_connections <= possible else DESCRIPTORS,
            max_connections_per_ip=config.max_connections_per_ip,
            connections_of_host=config.connections_of_host,
            idle_ms=config.connections_max_idle_ms,
            held_bytes_max=config.queued_max_request_bytes,
            quota_window_ms=config.quota_window_size_seconds * MS_PER_S,
            quota_window_count=config.quota_window_num,
            waiting_max=open_files.waiting_max(open_files_max),
        )


def limit_accepting(rates: AcceptRates, config: BrokerConfig) -> None:
    """New connections a second, of the broker and of each listener. That of the brokers among
    themselves has its own alone, if there is another."""
    listeners = [listener.name for listener in config.broker_listeners]
    between = (config.inter_broker_listener_name or BETWEEN_BROKERS).upper()
    rates.update(
        config.max_connection_creation_rate,
        {name: config.creation_rate_of(name) for name in listeners},
        apart=between if len(listeners) > 1 else None,
    )
