"""What a handler is given besides the request: the broker's rooms, by their public verbs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.broker.telemetry.shown import shown

if TYPE_CHECKING:
    from ottla.broker.controller.mutation_quotas import MutationQuotas
    from ottla.broker.coordinator.group.coordinator import GroupCoordinator
    from ottla.broker.coordinator.share.coordinator import ShareCoordinator
    from ottla.broker.coordinator.transaction.coordinator import TransactionCoordinator
    from ottla.broker.handlers.auto_create import AutoCreation
    from ottla.broker.handlers.coordinators import CoordinatorTopics
    from ottla.broker.handlers.enlisting import Enlisting
    from ottla.broker.handlers.fetch_forms import FetchForms
    from ottla.broker.handlers.metadata import PartitionAnswers
    from ottla.broker.handlers.producer_ids import ProducerIds
    from ottla.broker.handlers.setting_history import SettingHistory
    from ottla.broker.log.manager import LogManager
    from ottla.broker.log.reserves import Reserves
    from ottla.broker.log.unreadable import UnreadableRanges
    from ottla.broker.lookups import Lookups
    from ottla.broker.metadata.image import MetadataImage
    from ottla.broker.ports import Clock, Events, Rng
    from ottla.broker.quorum.driver import Quorum
    from ottla.broker.replication.deadlines import Deadlines
    from ottla.broker.replication.fetch_session import FetchSessions
    from ottla.broker.replication.moves import ReplicaMoves
    from ottla.broker.replication.replicas import Replicas
    from ottla.broker.share.partitions import SharePartitions
    from ottla.config.broker import BrokerConfig


@dataclass(slots=True)
class Rooms:
    """The broker as handlers see it; one per broker, built by the composition root."""

    config: BrokerConfig
    clock: Clock
    events: Events
    rng: Rng
    logs: LogManager
    quorum: Quorum
    replicas: Replicas
    moves: ReplicaMoves
    fetch_sessions: FetchSessions
    fetch_forms: FetchForms
    deadlines: Deadlines
    producer_ids: ProducerIds
    auto_creation: AutoCreation
    groups: GroupCoordinator
    share_state: ShareCoordinator
    transactions: TransactionCoordinator
    enlisting: Enlisting
    shares: SharePartitions
    coordinator_topics: CoordinatorTopics
    mutation_quotas: MutationQuotas
    unreadable: UnreadableRanges
    setting_history: SettingHistory
    partition_answers: PartitionAnswers
    lookups: Lookups
    reserves: Reserves

    @property
    def coordinators(self) -> tuple[ShareCoordinator, GroupCoordinator, TransactionCoordinator]:
        """Those that keep their state in topics of their own."""
        return self.share_state, self.groups, self.transactions

    @property
    def image(self) -> MetadataImage:
        return self.quorum.image

    @property
    def cluster_id(self) -> str:
        """Known since the log directories are loaded."""
        assert self.logs.cluster_id is not None
        return self.logs.cluster_id


@dataclass(slots=True, eq=False)
class Session:
    """What is known of one connection; one per connection, shared by its requests."""

    rooms: Rooms
    listener_name: str
    local_host: str
    local_port: int
    peer: str
    client_id: str | None = None
    on_closed: Callable[[Session], None] | None = None
    """Told when the connection is gone, if anything hangs on it."""

    @property
    def asker(self) -> dict[str, str | None]:
        """Who asks, as events tell it."""
        return {"client_id": shown(self.client_id), "address": self.peer}
