"""From the metadata image to logs and leaders: what a committed change makes this broker do.

`open_all` runs once, after the logs are loaded; `apply` runs for each change, before the command
that made it is answered, so that a topic whose creation was answered can be written to at once.
Directories are made and renamed in a worker: a thousand of them stop nobody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from ottla.broker.log.checkpoints import PARTITION_METADATA_FILE, TopicPartition
from ottla.broker.log.directories import partition_name
from ottla.broker.log.log import Log
from ottla.broker.log.manager import NAMES_TOLD_MAX, LogManager
from ottla.broker.log.rearranging import Rearrangement
from ottla.broker.metadata.delta import Delta
from ottla.broker.metadata.image import MetadataImage, is_reserved_id
from ottla.broker.metadata.publish import LocalPartition, local_changes
from ottla.broker.ports import Events
from ottla.broker.replication.replicas import Partition, Replicas
from ottla.config.types import LogConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.wire import ZERO_UUID, uuid_text

InWorker = Callable[[Callable[[], None]], Awaitable[None]]
ConfigOf = Callable[[MetadataImage, str], LogConfig]
Refused = dict[TopicPartition, str]
"""Partitions that are to be led and cannot be, and why."""
Places = dict[tuple[bytes, int], bytes]
"""(topic id, partition) -> the id of the log dir that holds it."""


class Publisher:
    """Keeps the led partitions of one broker equal to the image."""

    def __init__(
        self,
        *,
        node_id: int,
        logs: LogManager,
        replicas: Replicas,
        config_of: ConfigOf,
        events: Events,
        in_worker: InWorker,
    ) -> None:
        """`in_worker` awaits what blocks."""
        self._node_id = node_id
        self._logs = logs
        self._replicas = replicas
        self._config_of = config_of
        self._events = events
        self._in_worker = in_worker
        # Partitions to be led whose log dir had no room to make them.
        self._unmade: dict[TopicPartition, None] = {}

    def open_all(self, image: MetadataImage) -> None:
        """Leads every partition that the image gives us; a log of no known topic is set aside, and
        one that may be of a known topic, or of an earlier one of its name, is left offline."""
        for log in self._logs.logs:
            topic = image.topics.by_name.get(log.topic)
            if topic is None or log.partition not in topic.partitions:
                self._logs.set_aside(log.topic, log.partition)
            elif log.topic_id == ZERO_UUID:
                self._identify(log, topic.topic_id)
            elif log.topic_id != topic.topic_id:
                self._logs.set_aside(log.topic, log.partition)
        missing = self._missing_dirs(image)
        work = Rearrangement()
        configs: dict[str, LogConfig] = {}
        refused: Refused = {}
        led: list[LocalPartition] = []
        for topic, index, partition in image.leaders(self._node_id):
            directory_id = partition.directory_of(self._node_id)
            is_elsewhere = missing and (is_reserved_id(directory_id) or directory_id in missing)
            if is_elsewhere and self._logs.get(topic.name, index) is None:
                self._leave_offline(topic.name, index, refused)
                continue
            wanted = LocalPartition(topic.name, topic.topic_id, index, partition)
            self._create(work, image, configs, wanted, refused)
            led.append(wanted)
        self._tell_vanished(work)
        self._logs.perform(work)
        self._logs.adopt(work)
        for one in led:
            self._lead(one, refused)
        self._tell(refused)

    def places(self) -> Places:
        """Of all that are led."""
        return self._places(self._replicas)

    def places_of(self, wanted: Iterable[tuple[bytes, int]]) -> Places:
        """Of those that are led among some, by topic id and partition."""
        found = (self._replicas.by_id(*one) for one in wanted)
        return self._places(one for one in found if one is not None)

    def _places(self, led: Iterable[Partition]) -> Places:
        ids = self._logs.directory_ids
        return {(one.topic_id, one.index): ids[self._logs.dir_of(one.log)] for one in led}

    def _identify(self, log: Log, topic_id: bytes) -> None:
        """The file that says whose log it is cannot be read.

        An empty one is nobody's. One with records is most likely the topic's, but nothing shows it:
        to serve it may bring back a topic that was deleted, and to set it aside would begin the
        partition anew at offset 0, without what was acknowledged.
        """
        if log.log_end_offset == 0:
            self._logs.assign_topic_id(log, topic_id)
            return
        path = f"{log.directory}/{PARTITION_METADATA_FILE}"
        self._logs.leave_out(log, f"{path} is missing or malformed")
        self._events.error(
            "partition_not_identified",
            path=path,
            end_offset=log.log_end_offset,
            reason="the file is missing or malformed, which says of which topic the records are:"
            " the partition is left offline, and its files as they are",
            remedy="stop the broker; if the topic was not deleted and made again since these"
            " records were written, write `version: 0` and"
            f" `topic_id: {uuid_text(topic_id)}` into the file, each on a line of its own, else"
            " move the directory away; and start again",
        )

    def _missing_dirs(self, image: MetadataImage) -> set[bytes]:
        """The log dirs in which a partition may lie that are not here, or not in order."""
        named = {
            partition.directory_of(self._node_id)
            for _, _, partition in image.leaders(self._node_id)
        }
        broker = image.cluster.brokers.get(self._node_id)
        if broker is not None:
            named.update(broker.directories)
        online = {
            directory_id
            for path, directory_id in self._logs.directory_ids.items()
            if path not in self._logs.offline_dirs
        }
        return {one for one in named if not is_reserved_id(one)} - online

    def _leave_offline(self, topic: str, index: int, refused: Refused) -> None:
        """An empty log in place of one on a disk that is away would hide what was acknowledged, and
        give its offsets again."""
        reason = "its log dir is missing or offline"
        self._logs.offline_partitions[topic, index] = reason
        refused[topic, index] = reason

    async def make_unmade(self, image_of: Callable[[], MetadataImage]) -> bool:
        """Tries again to make the partitions for which there was no room; whether one is led now.

        Until then their clients are answered KAFKA_STORAGE_ERROR. And what was deleted while there
        was none, not even for another name, gets it now.
        """
        if not self._unmade and not self._logs.has_refused():
            return False
        async with self._replicas.changes:
            image, work = image_of(), Rearrangement()
            self._logs.begin_again(work)
            configs: dict[str, LogConfig] = {}
            refused: Refused = {}
            wanted = [
                LocalPartition(topic.name, topic.topic_id, index, partition)
                for topic, index, partition in image.leaders(self._node_id)
                if (topic.name, index) in self._unmade
            ]
            for one in wanted:
                self._create(work, image, configs, one, refused)
            try:
                await self._in_worker(partial(self._logs.perform, work))
            finally:  # also where the job is cancelled
                logs = self._logs.adopt(work)
            made = {(log.topic, log.partition) for log in logs}
            planned = {one.key for one in work.creations}
            self._unmade = {key: None for key in self._unmade if key in planned - made}
            for one in wanted:
                if (one.topic, one.partition_id) in made:
                    self._lead(one, refused)
            self._tell(refused)
            return bool(made)

    async def apply(self, delta: Delta, image: MetadataImage, show: Callable[[], None]) -> None:
        """Makes what is new, then shows the change, then takes away what is gone.

        So whoever sees a topic can write to it, and whoever waits for one hears that it is gone.
        """
        async with self._replicas.changes:
            await self._apply(delta, image, show)

    async def _apply(self, delta: Delta, image: MetadataImage, show: Callable[[], None]) -> None:
        changes = local_changes(delta, image, self._node_id)
        coming = Rearrangement()
        configs: dict[str, LogConfig] = {}
        refused: Refused = {}
        for led in changes.leading:
            if self._replicas.by_id(led.topic_id, led.partition_id) is None:
                self._create(coming, image, configs, led, refused)
        if coming:
            await self._in_worker(partial(self._logs.perform, coming))
        show()
        self._logs.adopt(coming)
        going = Rearrangement()
        for gone in changes.deleted:
            self._delete(going, gone)
        for led in changes.leading:
            self._lead(led, refused)
        self._tell(refused)
        for followed in changes.following:
            # A single node follows nobody: a partition without a leader is only not led.
            partition = self._replicas.by_id(followed.topic_id, followed.partition_id)
            if partition is not None:
                self._replicas.drop(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        names = changes.topics_with_new_configs
        self._configure(image, image.topics.by_name if changes.broker_configs_changed else names)
        if going:
            await self._in_worker(partial(self._logs.perform, going))
            self._logs.adopt(going)

    def _create(
        self,
        work: Rearrangement,
        image: MetadataImage,
        configs: dict[str, LogConfig],
        wanted: LocalPartition,
        refused: Refused,
    ) -> None:
        """Plans the log of a partition that is to be led, unless there is one."""
        topic, index = wanted.topic, wanted.partition_id
        if self._logs.get(topic, index) is not None:
            return
        config = configs.get(topic)
        if config is None:
            config = configs[topic] = self._config_of(image, topic)
        try:
            self._logs.begin_create(work, topic, index, wanted.topic_id, config)
        except KafkaError as error:
            # The partition stays offline; its clients are answered KAFKA_STORAGE_ERROR.
            refused[topic, index] = str(error)

    def _lead(self, wanted: LocalPartition, refused: Refused) -> None:
        key = (wanted.topic, wanted.partition_id)
        leader_epoch = wanted.partition.leader_epoch
        led = self._replicas.by_id(wanted.topic_id, wanted.partition_id)
        if led is not None:
            self._replicas.change_epoch(led, leader_epoch)
            return
        log = self._logs.get(*key)
        if log is None:
            refused.setdefault(key, "its log dir failed")
            if key not in self._logs.offline_partitions:
                self._unmade[key] = None
        else:
            self._replicas.lead(log, leader_epoch, self._logs.dir_of(log))

    def _tell_vanished(self, work: Rearrangement) -> None:
        """Their log dir is here, and they are not: somebody has removed them while the broker was
        stopped. They are made anew, as by Kafka, and not in silence."""
        vanished = {
            one.key: self._logs.vanished[one.key]
            for one in work.creations
            if one.key in self._logs.vanished
        }
        if vanished:
            self._events.error(
                "partitions_vanished",
                count=len(vanished),
                partitions=[partition_name(*key) for key in vanished][:NAMES_TOLD_MAX],
                ends=list(vanished.values())[:NAMES_TOLD_MAX],
                reason="their directories were removed while the broker was stopped: they begin"
                " anew at offset 0, and what was acknowledged up to these ends is gone. Stop the"
                " broker and put the directories back, if there is a copy",
            )

    def _tell(self, refused: Refused) -> None:
        """Once, for a disk that fails has many partitions."""
        if refused:
            self._events.error(
                "partitions_not_opened",
                count=len(refused),
                partitions=[partition_name(*key) for key in refused][:NAMES_TOLD_MAX],
                error=next(iter(refused.values())),
            )

    def _delete(self, work: Rearrangement, gone: LocalPartition) -> None:
        led = self._replicas.by_id(gone.topic_id, gone.partition_id)
        if led is not None:
            self._replicas.drop(led, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        log = self._logs.get(gone.topic, gone.partition_id)
        offline = (gone.topic, gone.partition_id) in self._logs.offline_partitions
        if offline or (log is not None and log.topic_id == gone.topic_id):
            self._logs.begin_delete(work, gone.topic, gone.partition_id)

    def _configure(self, image: MetadataImage, topics: Iterable[str]) -> None:
        for name in topics:
            config = self._config_of(image, name)
            for index in image.topics.by_name[name].partitions:
                log = self._logs.get(name, index)
                if log is not None:
                    log.config = config
                    self._replicas.reconsider(name, index)
