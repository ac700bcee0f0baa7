"""The share partitions that this broker delivers from, by group, and the sessions of their members.

A share partition is made, and its state read, with the first fetch of its group. It goes when the
broker leads the partition no more, when its state was fenced, or with its group's last session.

Sessions know nothing of who is a member of the group: as in Kafka a member that has left it, or was
silent for too long, may still say what became of its records, until its connection is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any

from ottla.broker.coordinator.history import History
from ottla.broker.coordinator.outcome import Moment, Told
from ottla.broker.coordinator.runtime import Spawn
from ottla.broker.coordinator.share.coordinator import ShareCoordinator
from ottla.broker.coordinator.share.state import SharePartitionKey
from ottla.broker.log.time_search import Steps, TimedOffset
from ottla.broker.lookups import Lookups
from ottla.broker.metadata.delta import Delta
from ottla.broker.metadata.image import GROUP_RESOURCE, MetadataImage
from ottla.broker.ports import Clock
from ottla.broker.replication.replicas import Partition, Replicas
from ottla.broker.replication.time_steps import steps_in
from ottla.broker.share.counts import ShareCounts
from ottla.broker.share.overdue import Lapsed, Overdue
from ottla.broker.share.partition import SharePartition
from ottla.broker.share.passing import Passing
from ottla.broker.share.rules import LiveRules
from ottla.broker.share.sessions import Place, ShareSession, ShareSessions
from ottla.broker.share.store import ShareStore
from ottla.config.broker import BrokerConfig
from ottla.protocol.errors import ErrorCode, KafkaError

TELL_EVERY_S = 1.0
"""So late it is told whose locks have ended: those of many partitions then do together."""


class SharePartitions:
    """One per broker; everything runs on the loop."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        history: History,
        replicas: Replicas,
        coordinator: ShareCoordinator,
        config: Callable[[], BrokerConfig],
        image: Callable[[], MetadataImage],
        lookups: Lookups,
        spawn: Spawn,
    ) -> None:
        self.loop = loop
        self.clock = clock
        self.store = ShareStore(coordinator, loop)
        self.sessions = ShareSessions(partition_count=replicas.count)
        self.counts = ShareCounts(lambda group_id: group_id in self._groups)
        self.passing = Passing(loop.call_soon)
        self._history = history
        self._replicas = replicas
        self._lookups = lookups
        self._spawn = spawn
        self._config = config
        self._groups: dict[str, dict[Place, SharePartition]] = {}
        self._overdue = Overdue()
        self._telling: asyncio.TimerHandle | None = None

        def overrides(group_id: str) -> Mapping[str, str]:
            return image().configs.get(GROUP_RESOURCE, group_id)

        self.rules = LiveRules(config, overrides)

    def __repr__(self) -> str:
        count = sum(map(len, self._groups.values()))
        return f"<SharePartitions {count} groups={len(self._groups)} sessions={len(self.sessions)}>"

    def by_group(self) -> Iterator[tuple[str, list[SharePartition]]]:
        """What is delivered from just now; it may change while somebody looks at it."""
        for group_id, own in list(self._groups.items()):
            yield group_id, list(own.values())

    def get(self, group_id: str, place: Place) -> SharePartition | None:
        """One that is delivered from, if it still can be."""
        share = self._groups.get(group_id, {}).get(place)
        if share is not None and not self._is_led(share.partition):
            self.drop(share, "its partition is not led here any more")
            return None
        return share

    def take_up(self, group_id: str, partition: Partition) -> SharePartition:
        """The one of a partition that is led here; its state is read if it is new."""
        place = partition.topic_id, partition.index
        share = self.get(group_id, place)
        if share is None:
            key = SharePartitionKey(group_id, partition.topic_id, partition.index)
            share = SharePartition(self, key, partition)
            self._groups.setdefault(group_id, {})[place] = share
            share.load()
        return share

    def first_since(
        self,
        partition: Partition,
        since_ms: int,
        then: Callable[[TimedOffset | KafkaError | None], None],
    ) -> None:
        """Calls `then`, later, with the first record of a time or later, or with the reason why
        that cannot be said."""
        outcome: TimedOffset | KafkaError | None = None

        def led() -> Partition:
            if not self._is_led(partition):
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return partition

        def steps() -> Steps:
            nonlocal outcome
            try:
                outcome = yield from steps_in(led, lambda log: log.steps_to_timestamp(since_ms))
            except KafkaError as error:
                outcome = error
            except OSError as error:
                outcome = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            return None

        async def look_up() -> None:
            nonlocal outcome
            try:
                await self._lookups.queue(steps())
            except RuntimeError as error:  # no thread can be started, or the broker has stopped
                outcome = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
            then(outcome)

        self._spawn(look_up(), "share-start")

    def drop(self, share: SharePartition, reason: str) -> None:
        """Delivers no more from it; the next fetch reads its state anew."""
        key = share.key
        if self._take_out(share):
            self.tell(
                "share_partition_dropped",
                key.group_id,
                reason,
                topic=share.partition.topic,
                partition=key.partition,
            )

    def drop_group(self, group_id: str, reason: str) -> None:
        """All of a group's at once, and one event of it: a topic may have thousands."""
        shares = list(self._groups.get(group_id, {}).values())
        dropped = sum([self._take_out(share) for share in shares])
        if dropped:
            self.tell("share_partitions_dropped", group_id, reason, partitions=dropped)

    def _take_out(self, share: SharePartition) -> bool:
        """Whether it delivered until now."""
        key = share.key
        own = self._groups.get(key.group_id, {})
        if own.get((key.topic_id, key.partition)) is share:
            del own[key.topic_id, key.partition]
            if not own:
                del self._groups[key.group_id]
                self.rules.forget(key.group_id)
        if share.is_fenced:
            return False
        share.fence()
        return True

    def open_session(
        self, group_id: str, member_id: str, places: Iterable[Place], connection: Hashable
    ) -> ShareSession:
        """In place of the member's old one, whose records it goes on to hold. Raises
        SHARE_SESSION_LIMIT_REACHED; then they go back."""
        most = self._config().group_share_max_share_sessions
        old = self.sessions.remove(group_id, member_id)
        try:
            return self.sessions.open(group_id, member_id, places, connection, most=most)
        except KafkaError:
            if old is not None:
                self._give_back(group_id, member_id, "there was no room for a new one")
            raise

    def end_session(self, group_id: str, member_id: str, reason: str) -> None:
        """The member's session ends, if it has one, and what it holds goes back."""
        if self.sessions.remove(group_id, member_id) is not None:
            self._give_back(group_id, member_id, reason)

    def _give_back(self, group_id: str, member_id: str, reason: str) -> None:
        self.tell("share_session_ended", group_id, reason, member_id=member_id)
        for share in list(self._groups.get(group_id, {}).values()):
            share.release(member_id, "its member's session ended")
        if not self.sessions.has_any(group_id):
            self.drop_group(group_id, "its group has no sessions")

    def connection_closed(self, connection: Hashable) -> None:
        for session in self.sessions.of_connection(connection):
            self.end_session(session.group_id, session.member_id, "its connection was closed")

    def locks_ended(self, share: SharePartition, lapsed: Lapsed) -> None:
        """Locks of records have ended, and that is written: it counts, and will be told."""
        group_id, partition = share.key.group_id, share.partition
        self.counts.of(group_id).add_timeouts(lapsed)
        self._overdue.add(group_id, partition.topic, partition.index, lapsed.records)
        if self._telling is None:
            self._telling = self.loop.call_later(TELL_EVERY_S, self._tell_overdue)

    def published(self, delta: Delta) -> None:
        """A change of the metadata is in force."""
        if not delta.changed_partitions and not delta.deleted_topics:
            return
        for own in list(self._groups.values()):
            for share in list(own.values()):
                if not self._is_led(share.partition):
                    self.drop(share, "its partition is not led here any more")

    def close(self) -> None:
        """Sends away who waits: the broker stops."""
        for own in list(self._groups.values()):
            for share in own.values():
                share.fence()
        self._groups.clear()
        if self._telling is not None:
            self._telling.cancel()
            self._tell_overdue()

    def tell(self, event: str, group_id: str, reason: str, **fields: Any) -> None:
        now = Moment(self.clock.monotonic_ms(), self.clock.wall_ms())
        self._history.add([Told(event, group_id, reason, fields)], now)

    def _tell_overdue(self) -> None:
        """Somebody will ask why records came twice."""
        self._telling = None
        for (group_id, member_id), lapse in self._overdue.take().items():
            self.tell(
                "share_locks_ended",
                group_id,
                "the member did not acknowledge the records before their lock ended",
                member_id=member_id,
                topics=sorted({topic for topic, _ in lapse.places}),
                partitions=len(lapse.places),
                records=lapse.records,
            )

    def _is_led(self, partition: Partition) -> bool:
        return partition.online and (
            self._replicas.by_id(partition.topic_id, partition.index) is partition
        )
