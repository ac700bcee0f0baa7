"""How clients reach the brokers of the cluster: the addresses that answers carry.

A client is told, for every broker, the address of the listener it came in on; a broker that is
fenced or has no such listener cannot be reached. Where nothing is advertised, this broker shows
the very address by which the client reached it, which is right behind port forwards, in
containers, and on ::1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.broker.handlers.context import Session
from ottla.broker.metadata.image import BrokerImage, PartitionImage

MAPPED_IPV4 = "::ffff:"


class Endpoint(NamedTuple):
    """One broker as one client is told it."""

    host: str
    port: int
    broker: BrokerImage


class Reachable(dict[int, Endpoint]):
    """Broker id -> endpoint, of the brokers that the client of one request can reach."""

    __slots__ = ("_online",)

    def __init__(self, endpoints: dict[int, Endpoint]) -> None:
        super().__init__(endpoints)
        self._online = {
            (broker_id, directory)
            for broker_id, (_, _, broker) in endpoints.items()
            for directory in broker.directories
        }

    def offline_replicas(self, partition: PartitionImage) -> list[int]:
        """The replicas that are away, or whose log directory is."""
        replicas, directories = partition.replicas, partition.directories
        if self._online.issuperset(zip(replicas, directories, strict=True)):
            return []
        return [
            replica
            for replica, directory in zip(replicas, directories, strict=True)
            if (endpoint := self.get(replica)) is None
            or not endpoint.broker.has_online_directory(directory)
        ]


def reachable_brokers(session: Session) -> Reachable:
    """The unfenced brokers by the listener that this session came in on."""
    rooms = session.rooms
    own_id = rooms.config.node_id
    listener = session.listener_name
    endpoints: dict[int, Endpoint] = {}
    for broker_id, broker in rooms.image.cluster.brokers.items():
        if broker.fenced:
            continue
        endpoint = own_endpoint(session, broker) if broker_id == own_id else None
        if endpoint is None:
            registered = broker.endpoints.get(listener)
            if registered is None:
                continue
            endpoint = Endpoint(registered.host, registered.port, broker)
        endpoints[broker_id] = endpoint
    return Reachable(endpoints)


def node_endpoints(
    session: Session, broker_ids: Iterable[int]
) -> list[tuple[int, str, int, str | None]]:
    """What a NodeEndpoint says (id, host, port, rack), of those brokers that can be reached."""
    reachable = reachable_brokers(session)
    return [
        (one, found.host, found.port, found.broker.rack)
        for one in sorted(broker_ids)
        if (found := reachable.get(one)) is not None
    ]


def own_endpoint(session: Session, broker: BrokerImage) -> Endpoint:
    """The address of this broker: as advertised, or as the client itself wrote it; an advertised
    port 0 is the one that is bound."""
    advertised = session.rooms.config.advertised.get(session.listener_name)
    if advertised is not None:
        return Endpoint(advertised.host, advertised.port or session.local_port, broker)
    return Endpoint(session.local_host.removeprefix(MAPPED_IPV4), session.local_port, broker)
