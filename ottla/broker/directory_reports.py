"""What the controller is told of this broker's log dirs: which of them holds what, for the day when
one of them is missing, and which get no new partitions (KIP-1066).

A disk that is full keeps the metadata from being written. That ends nothing here: both are told
anew with the next change, and which dir holds what by a job as well (`is_behind`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ottla.broker.controller.brokers import assign_directories, cordon
from ottla.broker.log.manager import LogManager
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.ports import Events
from ottla.broker.quorum.driver import Quorum
from ottla.broker.replication.publishing import Publisher
from ottla.config.broker import BrokerConfig
from ottla.protocol.errors import KafkaError
from ottla.protocol.schema import Message

Command = Callable[[MetadataImage], tuple[list[Message], None]]


class DirectoryReports:
    """The reports of one registered broker."""

    def __init__(
        self, *, quorum: Quorum, logs: LogManager, publisher: Publisher, events: Events
    ) -> None:
        self._quorum = quorum
        self._logs = logs
        self._publisher = publisher
        self._events = events
        self.is_behind = False
        """Whether the controller could not be told which dir holds what."""

    def cordoned(self, config: BrokerConfig) -> list[bytes]:
        """The ids of the log dirs that get no new partitions."""
        cordoned = config.cordoned_dirs
        ids = self._logs.directory_ids
        return sorted(ids[path] for path in ids if path in cordoned)

    async def cordon(self, config: BrokerConfig) -> None:
        cordoned = self.cordoned(config)
        await self._submit(lambda image: cordon(image, config.node_id, cordoned))

    async def assign(self) -> None:
        if len(self._logs.dirs) == 1:
            return  # the controller knows where everything is
        places = self._publisher.places()
        self.is_behind = not await self._submit(
            partial(assign_directories, broker_id=self._logs.node_id, directories=places)
        )

    async def _submit(self, command: Command) -> bool:
        try:
            await self._quorum.submit(command)
        except KafkaError as error:
            self._events.warning("directories_not_reported", error=str(error))
            return False
        return True
