"""One connection's use of its quotas: what its requests cost, and when it is to wait.

A connection has a meter only while some quota is set. What is produced is charged when it has come,
for a client may have sent much more when the first of it is synced; all else when the answer is
about to leave, but for the time that it takes to write it: that is charged behind it, as the time
of Kafka's network threads is, and the next answer tells of it. The answer says how long the client
is to wait (throttle_time_ms) and is not held back; the connection is not read from until that time
is over (KIP-219). A fetch is cut to what its quota gives in one window, sent and counted; Kafka
sends nothing once the quota is used up, and has the client ask again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ottla.broker.controller.quota_accounts import ANONYMOUS
from ottla.broker.handlers.answers import NO_ANSWER, Pending
from ottla.broker.network.quotas import ClientQuotas, Resource
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.share_group import ShareFetchRequest, ShareFetchResponse

if TYPE_CHECKING:
    from ottla.broker.ports import Clock

HUNDREDTHS = 100.0
"""The request quota is a percentage: a second of the loop's time a second is 100."""
FETCHES = (ApiKey.FETCH, ApiKey.SHARE_FETCH)
FETCH_BYTES_MIN = 1
"""The first batch of a fetch is sent whole, whatever its size."""


class _Cost:
    """What one request has cost so far, and who pays."""

    __slots__ = ("client_id", "key", "seconds", "wait_ms")

    def __init__(self, key: int, client_id: str) -> None:
        self.key = key
        self.client_id = client_id
        self.seconds = 0.0
        self.wait_ms = 0


class AnswerTime:
    """What the answers of all connections have taken so far. One that is written while another
    connection's request is handled, which completed it, is not that request's to pay."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0


class _Timed(Generator[Any, Any, Any]):
    """A handler that awaits: `spent` hears how long the loop was in each of its steps."""

    __slots__ = ("_answered", "_spent", "_steps")

    def __init__(
        self, work: Awaitable[Any], answered: AnswerTime, spent: Callable[[float], None]
    ) -> None:
        self._steps = work.__await__()
        self._answered = answered
        self._spent = spent

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def send(self, value: Any) -> Any:
        return self._timed(partial(self._steps.send, value))

    def throw(self, *error: Any) -> Any:
        return self._timed(partial(self._steps.throw, *error))

    def close(self) -> None:
        self._steps.close()

    def _timed(self, step: Callable[[], Any]) -> Any:
        answered_before, began_s = self._answered.seconds, perf_counter()
        try:
            return step()
        finally:
            others_s = self._answered.seconds - answered_before
            self._spent(perf_counter() - began_s - others_s)


class Meter:
    """Counts for one connection; the user is the connection's."""

    __slots__ = (
        "_answered",
        "_answered_before",
        "_clock",
        "_costs",
        "_current",
        "_is_lost",
        "_leaving",
        "_quotas",
        "_user",
    )

    def __init__(self, quotas: ClientQuotas, clock: Clock, answered: AnswerTime) -> None:
        self._quotas = quotas
        self._clock = clock
        self._answered = answered
        self._answered_before = 0.0
        self._is_lost = False
        self._user = ANONYMOUS
        self._current: _Cost | None = None
        self._leaving: _Cost | None = None
        self._costs: dict[Pending, _Cost] = {}

    def arrived(self, key: int, request: Any, client_id: str | None, size: int) -> int:
        """A request is about to be handled; `size` is that of its frame.

        Returns how many milliseconds the connection is to wait.
        """
        cost = self._current = _Cost(key, client_id or "")
        self._answered_before = self._answered.seconds
        if key == ApiKey.PRODUCE:
            cost.wait_ms = self._wait(Resource.PRODUCED, cost, size)
        elif isinstance(request, FetchRequest | ShareFetchRequest):
            most = self._quotas.at_most(Resource.FETCHED, self._user, cost.client_id)
            if most is not None and request.max_bytes > most:  # 0 stays: a renewal must ask for 0
                request.max_bytes = max(most, FETCH_BYTES_MIN)
        return cost.wait_ms

    def timed(self, work: Awaitable[Any]) -> Awaitable[Any]:
        """The same work, of a request that has arrived, whose steps are part of its cost."""
        assert self._current is not None
        return _Timed(work, self._answered, partial(self._worked, self._current))

    def waits(self, pending: Pending, seconds: float) -> None:
        """The request was handled, which took the loop so long; its answer is here or will be."""
        assert self._current is not None
        self._current.seconds = seconds - (self._answered.seconds - self._answered_before)
        self._costs[pending] = self._current
        pending.is_metered = True
        self._current = None

    def leaves(self, pending: Pending) -> int:
        """An answer is about to be written, and is told how long the client is to wait.

        Returns that in milliseconds, or 0 for a wait that has begun when the request came.
        """
        self._leaving = None
        cost = self._costs.pop(pending, None)
        if cost is None:  # it came before there was any quota
            return 0
        response = pending.response
        wait_ms = cost.wait_ms
        if cost.key in FETCHES:
            wait_ms = self._wait(Resource.FETCHED, cost, _fetched_bytes(response))
        if response is not NO_ANSWER:  # without one (acks=0) time is not counted, as in Kafka
            self._leaving = cost
            time_ms = self._wait(Resource.TIME, cost, cost.seconds * HUNDREDTHS)
            wait_ms = max(wait_ms, time_ms)
            if wait_ms and hasattr(response, "throttle_time_ms"):
                # The handler may have said that it is longer (`Endpoint.run`).
                response.throttle_time_ms = max(response.throttle_time_ms, wait_ms)
        return 0 if wait_ms == cost.wait_ms else wait_ms

    def left(self, seconds: float) -> None:
        """The answer was metered and written, which took the loop so long."""
        self._answered.seconds += seconds
        cost, self._leaving = self._leaving, None
        if cost is not None:
            self._charge(Resource.TIME, cost, seconds * HUNDREDTHS)

    def lost(self) -> None:
        """The connection is gone. What was and will be done for it is paid for, answered or not."""
        self._is_lost = True
        for cost in self._costs.values():
            self._charge(Resource.TIME, cost, cost.seconds * HUNDREDTHS)
        self._costs.clear()

    def _worked(self, cost: _Cost, seconds: float) -> None:
        if self._is_lost:
            self._charge(Resource.TIME, cost, seconds * HUNDREDTHS)
        else:
            cost.seconds += seconds

    def _wait(self, resource: Resource, cost: _Cost, value: float) -> int:
        """Charges what the client is to be told of."""
        wait_ms = self._charge(resource, cost, value)
        if wait_ms:
            self._quotas.waited(resource, self._user, cost.client_id, wait_ms)
        return wait_ms

    def _charge(self, resource: Resource, cost: _Cost, value: float) -> int:
        now_ms = self._clock.monotonic_ms()
        return self._quotas.charge(resource, self._user, cost.client_id, value, now_ms)


def _fetched_bytes(response: FetchResponse | ShareFetchResponse) -> int:
    total = 0
    for topic in response.responses:
        for part in topic.partitions:
            records = part.records
            if records is not None:
                total += records.size if hasattr(records, "size") else len(records)
    return total
