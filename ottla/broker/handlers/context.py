"""What a handler is given besides the request: the broker's rooms, by their public verbs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.log.manager import LogManager
    from ottla.broker.metadata.image import MetadataImage
    from ottla.broker.ports import Clock, Events
    from ottla.broker.quorum.driver import Quorum
    from ottla.broker.replication.replicas import Replicas
    from ottla.config.broker import BrokerConfig


@dataclass(slots=True)
class Rooms:
    """The broker as handlers see it; one per broker, built by the composition root."""

    config: BrokerConfig
    clock: Clock
    events: Events
    logs: LogManager
    quorum: Quorum
    replicas: Replicas

    @property
    def image(self) -> MetadataImage:
        return self.quorum.image


@dataclass(slots=True)
class Session:
    """What is known of one connection; one per connection, shared by its requests."""

    rooms: Rooms
    listener_name: str
    local_host: str
    local_port: int
    peer: str
    client_id: str | None = None
