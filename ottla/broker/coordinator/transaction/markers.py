"""The markers that end a transaction, one in each of its partitions, and when all are durable.

A partition that cannot take its marker now (its log dir is offline, its coordinator is being
loaded) is asked again until it can; one that has been deleted needs none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ottla.broker.coordinator.gathering import Fence
from ottla.broker.coordinator.group.coordinator import CONSUMER_OFFSETS, GroupCoordinator
from ottla.broker.coordinator.group.refusals import shown
from ottla.broker.coordinator.outcome import EndMarker
from ottla.broker.coordinator.transaction.shard import NEWER, MarkersDue
from ottla.broker.coordinator.transaction.transaction import Place
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.ports import Clock, Events
from ottla.broker.replication.replicas import Partition, Replicas
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.control import build_marker

MARKERS_PER_TURN = 50
"""Of one decision, or one request, that are written before others get the loop: some
milliseconds."""
RETRY_S = 0.1
DOUBLINGS_MAX = 6
"""How soon a partition that could not take its marker is asked again; how often that doubles."""
TRIES_UNTOLD = 6
"""After so many, some seconds, the log says for which partition a transaction waits."""
GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Somebody has ended it there by a later marker: nothing of this transaction is open."""

Then = Callable[[ErrorCode], None]


class Asked(NamedTuple):
    """A marker that is to be written. `decides` is true of the coordinator's own."""

    marker: EndMarker
    version: int
    decides: bool = False

    def checked(self, fence: Fence) -> EndMarker:
        """The marker as it is to be written where a producer has come so far; raises KafkaError.

        One of the newer protocol must be above the epoch of an open transaction (KIP-890). But what
        is open is closed by its coordinator, whatever epochs somebody else has brought there: it
        has told the producer that the transaction is over. No such marker comes late: the next
        transaction begins when all of this one's are durable.
        """
        marker = self.marker
        if self.decides and fence.is_open:
            return marker._replace(
                producer_epoch=max(marker.producer_epoch, fence.producer_epoch),
                coordinator_epoch=max(marker.coordinator_epoch, fence.coordinator_epoch),
            )
        is_same = marker.producer_epoch == fence.producer_epoch
        if marker.producer_epoch < fence.producer_epoch or (
            self.version >= NEWER and is_same and fence.is_open
        ):
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        if marker.coordinator_epoch < fence.coordinator_epoch:
            raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        return marker


class _Waiter:
    """One marker on its way to the disk."""

    __slots__ = ("_then",)

    def __init__(self, then: Then) -> None:
        self._then = then

    def committed(self, part: object) -> None:
        self._then(ErrorCode.NONE)

    def failed(self, part: object, code: ErrorCode) -> None:
        self._then(code)

    def complete(self, code: ErrorCode) -> None:
        self._then(code)


class Markers:
    """Writes markers; one per broker. Everything runs on the loop."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        events: Events,
        replicas: Replicas,
        groups: GroupCoordinator,
        image: Callable[[], MetadataImage],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._events = events
        self._replicas = replicas
        self._groups = groups
        self._image = image
        self._closed = False

    def close(self) -> None:
        """The broker stops; the next start begins where this one ended."""
        self._closed = True

    def send(
        self,
        due: MarkersDue,
        coordinator_epoch: int,
        is_wanted: Callable[[], bool],
        done: Callable[[], None],
    ) -> None:
        """Writes all markers of a decision, so many a turn, and calls `done` when all are durable.
        No partition is asked, or asked again, when they are not wanted any more: with the older
        protocol the next transaction has the same epoch, and a late marker would end that."""
        tries = dict.fromkeys(due.places, 0)
        if not tries:
            done()
            return
        asked = Asked(
            EndMarker(due.producer_id, due.producer_epoch, due.committed, coordinator_epoch),
            due.version,
            decides=True,
        )

        def again(place: Place) -> None:
            if not self._closed and is_wanted():
                self.write(place, asked, partial(then, place))

        def then(place: Place, code: ErrorCode) -> None:
            if place not in tries:
                return
            if code and code not in GONE | FENCED:
                tries[place] += 1
                if tries[place] == TRIES_UNTOLD:
                    self._tell("transaction_marker_waits", due, place, code)
                wait_s = RETRY_S * 2 ** min(tries[place] - 1, DOUBLINGS_MAX)
                self._loop.call_later(wait_s, again, place)
                return
            if code in FENCED:
                self._tell("transaction_marker_refused", due, place, code)
            del tries[place]
            if not tries:
                done()

        def write_from(first: int) -> None:
            end = first + MARKERS_PER_TURN
            for place in due.places[first:end]:
                again(place)
            if end < len(due.places):
                self._loop.call_soon(write_from, end)

        write_from(0)

    def _tell(self, event: str, due: MarkersDue, place: Place, code: ErrorCode) -> None:
        topic, partition = place
        self._events.warning(
            event,
            transactional_id=due.transactional_id,
            topic=topic,
            partition=partition,
            reason=code.name,
        )

    def write(self, place: Place, asked: Asked, then: Then) -> None:
        """Writes one marker. `then` hears NONE when it is durable, or why it cannot be."""
        topic, index = place
        partition = self._replicas.get(topic, index)
        if partition is None:
            known = self._image().topics.by_name.get(topic)
            is_known = known is not None and index in known.partitions
            absent = ErrorCode.NOT_LEADER_OR_FOLLOWER
            then(absent if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif topic == CONSUMER_OFFSETS:
            self._write_offsets(index, asked, then)
        else:
            append = partial(self._append, partition, asked, then)
            if not self._replicas.in_turn(partition, append):
                append()

    def _append(self, partition: Partition, asked: Asked, then: Then) -> None:
        if not partition.online:
            then(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        try:
            producer = partition.log.producer_state.producers.get(asked.marker.producer_id)
            marker = asked.checked(Fence.of(producer))
            batch = build_marker(**marker._asdict(), timestamp=self._clock.wall_ms())
            result = self._replicas.append_internal(partition, memoryview(batch))
        except KafkaError as error:
            then(error.code)
            return
        self._replicas.await_durable(
            partition, last_offset=result.last_offset, listener=_Waiter(then), part=None
        )

    def _write_offsets(self, index: int, asked: Asked, then: Then) -> None:
        """Through the group coordinator, for whom the offsets are committed now, or forgotten."""
        try:
            runner, shard = self._groups.runner_of(index)
            marker = asked.checked(runner.fence(asked.marker.producer_id))
        except KafkaError as error:
            then(shown(error.code))
            return
        runner.perform(shard.decide_transaction(marker, _Waiter(then), runner.now()))
