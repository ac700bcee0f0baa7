"""What the controller is told of this broker's log dirs: which of them holds what, for the day when
one of them is missing, and which get no new partitions (KIP-1066).

Which dir holds what is told whole at a start, behind a move, and where it could not be told before;
of a change only what it made or changed is looked at, by one report at a time.

A disk that is full keeps the metadata from being written. That ends nothing here: both are told
anew with the next change, and which dir holds what by a job as well (`is_behind`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ottla.broker.controller.brokers import assign_directories, cordon
from ottla.broker.log.manager import LogManager
from ottla.broker.metadata.delta import Delta
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.records import METADATA_VERSION
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
        # What the next report tells: all, or partitions by topic id.
        self._tells_all = False
        self._changed: dict[tuple[bytes, int], None] = {}
        # Whether a report is under way, or is about to be.
        self._is_begun = False
        self._reporting = asyncio.Lock()

    def cordoned(self, config: BrokerConfig) -> list[bytes]:
        """The ids of the log dirs that get no new partitions."""
        cordoned = config.cordoned_dirs
        ids = self._logs.directory_ids
        return sorted(ids[path] for path in ids if path in cordoned)

    async def cordon(self, config: BrokerConfig) -> None:
        cordoned = self.cordoned(config)
        await self._submit(lambda image: cordon(image, config.node_id, cordoned))

    async def assign(self) -> None:
        """Tells where all partitions lie. Who comes while a report is under way waits for it."""
        if len(self._logs.dirs) == 1:
            return  # the controller knows where everything is
        self._tells_all = True
        await self.assign_changed()

    def take_up(self, delta: Delta, image: MetadataImage) -> bool:
        """Notes what was made or changed, and lies where the image does not say; whether
        `assign_changed` has to run for it, for none is under way that will tell it."""
        if len(self._logs.dirs) == 1 or not image.has_directories:
            return False
        if METADATA_VERSION in delta.changed_features or (
            self.is_behind and delta.changed_partitions
        ):
            self._tells_all = True
        node_id, known = self._logs.node_id, set(self._logs.directory_ids.values())
        for topic_id, partitions in delta.changed_partitions.items():
            for index, partition in partitions.items():
                if node_id in partition.replicas and partition.directory_of(node_id) not in known:
                    self._changed[topic_id, index] = None
        if self._is_begun or not (self._tells_all or self._changed):
            return False
        self._is_begun = True
        return True

    async def assign_changed(self) -> None:
        """Tells what was taken up, and what is taken up meanwhile."""
        async with self._reporting:
            self._is_begun = True
            try:
                while self._tells_all or self._changed:
                    await self._tell()
            finally:
                self._is_begun = False

    async def _tell(self) -> None:
        tells_all, self._tells_all = self._tells_all, False
        changed, self._changed = self._changed, {}
        places = self._publisher.places() if tells_all else self._publisher.places_of(changed)
        is_told = await self._submit(
            partial(assign_directories, broker_id=self._logs.node_id, directories=places)
        )
        self.is_behind = not is_told or (self.is_behind and not tells_all)

    async def _submit(self, command: Command) -> bool:
        try:
            await self._quorum.submit(command)
        except KafkaError as error:
            self._events.warning("directories_not_reported", error=str(error))
            return False
        return True
