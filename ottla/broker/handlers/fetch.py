"""Fetch: answered at once, or when there is enough.

A fetch that finds less than `min_bytes` is parked at its partitions until one advances or
`max_wait_ms` is over; one that names a thousand partitions that there are not does not wait. What
it reads, and what is enough, stands in `fetch_reading.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Final

from ottla.broker.handlers.answers import Pending
from ottla.broker.handlers.context import Session
from ottla.broker.handlers.fetch_forms import FetchForm
from ottla.broker.handlers.fetch_reading import FetchReading
from ottla.broker.replication.deadlines import Deadlines
from ottla.broker.replication.fetch_session import (
    NO_ERROR,
    SESSIONLESS_EPOCH,
    Resolved,
    wanted_by,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse

TOPIC_IDS_SINCE_VERSION: Final = 13
NAMES_LEADER_SINCE_VERSION: Final = 16
"""KIP-951."""
MS_PER_S: Final = 1000


def handle_fetch(
    session: Session, request: FetchRequest, version: int
) -> FetchResponse | ParkedFetch:
    by_id = version >= TOPIC_IDS_SINCE_VERSION
    rooms = session.rooms
    if request.session_epoch == SESSIONLESS_EPOCH and request.session_id == 0:
        resolved = Resolved(wanted_by(request))
    else:
        now_ms = rooms.clock.monotonic_ms()
        resolved = rooms.fetch_sessions.resolve(request, by_topic_id=by_id, now_ms=now_ms)
    if resolved.error is not NO_ERROR:
        return FetchResponse(error_code=int(resolved.error))
    names_leader = version >= NAMES_LEADER_SINCE_VERSION
    reading = FetchReading(session, request, resolved, by_id=by_id, names_leader=names_leader)
    refused = _refusal(request)
    if refused is not None:
        return reading.refuse(refused)
    count = len(resolved.wanted)
    wait_ms = request.max_wait_ms
    may_wait = wait_ms > 0 and count > 0 and rooms.fetch_sessions.may_name(count)
    if not (may_wait and reading.is_at_the_end()):
        response = reading.attempt(waits_for_disk=False)
        if reading.is_held_up:
            following = rooms.lookups.follow(reading.first_reads())
            assert following is not None, "the first step is a worker's"
            return FetchBehindReads(reading, rooms.deadlines, wait_ms, following)
        if reading.satisfied or not may_wait or reading.has_left_more():
            return reading.leaves(response)
    form = None
    if count == 1 and request.min_bytes <= 1 and resolved.session is None:
        is_of_committed = request.isolation_level == 1
        wanted = resolved.wanted[0]
        form = rooms.fetch_forms.of(version, wanted, names_aborted=is_of_committed)
    return ParkedFetch(reading, rooms.deadlines, wait_ms, form)


def _refusal(request: FetchRequest) -> ErrorCode | None:
    if request.isolation_level not in (0, 1):
        return ErrorCode.INVALID_REQUEST
    state = request.replica_state
    if request.replica_id >= 0 or state.replica_id >= 0:
        # A single node has no other replica; a claim to be one moves no high watermark.
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return None


class ParkedFetch(Pending):
    """A fetch that waits at its partitions until there is enough."""

    __slots__ = ("_deadline", "_deadlines", "_form", "_partitions", "_reading", "of_several")

    def __init__(
        self,
        reading: FetchReading,
        deadlines: Deadlines,
        max_wait_ms: int,
        form: FetchForm | None = None,
    ) -> None:
        super().__init__()
        self._reading = reading
        self._form = form
        self._partitions = reading.partitions
        self.of_several = len(self._partitions) > 1
        for partition in self._partitions:
            partition.fetch_waiters[self] = None
        self._deadlines = deadlines
        self._deadline = deadlines.add(self, max_wait_ms / MS_PER_S)

    def advanced(self) -> None:
        """A partition moved: answer if there is enough now."""
        self.woken(self._look)

    def interrupted(self) -> None:
        """A partition is gone or changed its epoch: the answer says so."""
        self.woken(self._answer_now)

    def expired(self) -> None:
        self.woken(self._answer_now)

    def hurry(self) -> None:
        self.woken(self._answer_now)

    def on_abandoned(self) -> None:
        self._leave()

    # inside

    def _look(self) -> None:
        if self._form is not None and not self.is_metered:
            frame = self._reading.answer_by(self._form, self.correlation_id)
            if frame is not None:
                self._leave()
                self.complete(frame)
                return
        response = self._reading.answer_if_enough()
        if response is not None:
            self._finish(response)

    def _answer_now(self) -> None:
        self._finish(self._reading.attempt())

    def _finish(self, response: FetchResponse) -> None:
        self._leave()
        self.complete(self._reading.leaves(response))

    def _leave(self) -> None:
        self._deadlines.cancel(self._deadline)
        for partition in self._partitions:
            partition.fetch_waiters.pop(self, None)


class FetchBehindReads(ParkedFetch):
    """A fetch of what is not in memory: others have the loop while a worker waits for the disk, and
    between what the loop then does for each partition. It is answered, or waits like any other,
    when all is done."""

    __slots__ = ("_following", "_is_due")

    def __init__(
        self,
        reading: FetchReading,
        deadlines: Deadlines,
        max_wait_ms: int,
        following: Awaitable[None],
    ) -> None:
        super().__init__(reading, deadlines, max_wait_ms)
        self._is_due = False
        self._following: asyncio.Future[None] | None = asyncio.ensure_future(following)
        self._following.add_done_callback(self._all_read)

    def advanced(self) -> None:
        if self._following is None:
            super().advanced()

    def interrupted(self) -> None:
        self._end_of_wait()

    def expired(self) -> None:
        self._end_of_wait()

    def hurry(self) -> None:
        self._end_of_wait()

    def on_abandoned(self) -> None:
        super().on_abandoned()
        if self._following is not None:
            self._following.cancel()

    # inside

    def _end_of_wait(self) -> None:
        if self._following is None:
            self.woken(self._answer_now)
        else:
            self._is_due = True

    def _all_read(self, following: asyncio.Future[None]) -> None:
        self._following = None
        if not (following.cancelled() or self.abandoned):
            self.woken(partial(self._go_on, following))

    def _go_on(self, following: asyncio.Future[None]) -> None:
        following.result()  # what a partition cannot read is said by its own answer
        if self._is_due:
            self._answer_now()
        else:
            self._look()
