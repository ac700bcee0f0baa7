"""What a client may use, and how long it waits when it has used more: Kafka's client quotas.

Three things are counted by user and client id: bytes produced, bytes fetched, and the percentage
of the loop's time that requests take. Of the quotas that match a client the first of these is
the one that counts, and whom else it matches by name shares its account:

    user and client id, user and default client, user,
    default user and client id, default user and default client, default user,
    client id, default client

A rate is what was counted in the last windows (quota.window.num of quota.window.size.seconds each)
over the time that they span. Who is over its rate waits until the rate, with nothing more counted,
is down at the quota again (KIP-124); for time, one window at most. A new client is taken to have
been here for one window; Kafka takes it to have been quiet for all of them, so that a fast one gets
ten seconds' worth at once, nothing for the next ten seconds, and so on.

Pure: time is passed in, in milliseconds of a monotonic clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from ottla.broker.metadata.image import QuotaEntity

USER, CLIENT_ID = "user", "client-id"
ANONYMOUS = "ANONYMOUS"
"""The user of a connection without authentication, as Kafka calls it."""

IDLE_MS = 3_600_000
"""An account that nothing was charged to for so long is forgotten; Kafka's own figure."""

SECOND_MS = 1000


class Resource(Enum):
    """What is counted, by the name of its quota."""

    PRODUCED = "producer_byte_rate"
    FETCHED = "consumer_byte_rate"
    TIME = "request_percentage"


class Windows(NamedTuple):
    """How the past is cut: quota.window.num and quota.window.size.seconds."""

    number: int = 11
    size_ms: int = SECOND_MS


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = now_ms
        self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """What was counted lately, per second."""

    __slots__ = ("_samples", "_windows", "last_ms")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        # One more than the windows: the oldest may have begun before the time that is looked at.
        self._samples: deque[_Sample] = deque(maxlen=windows.number + 1)
        self.last_ms = 0

    def add(self, value: float, now_ms: int) -> None:
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._windows.size_ms:
            samples.append(_Sample(now_ms))
        samples[-1].value += value
        samples[-1].last_ms = self.last_ms = now_ms

    def per_second(self, now_ms: int) -> float:
        span_ms = self.span_ms(now_ms)
        return sum(sample.value for sample in self._samples) * SECOND_MS / span_ms

    def span_ms(self, now_ms: int) -> int:
        """The time that the rate is over; what lies before it is forgotten here."""
        samples, (number, size_ms) = self._samples, self._windows
        while samples and now_ms - samples[0].last_ms >= number * size_ms:
            samples.popleft()
        elapsed_ms = now_ms - samples[0].start_ms if samples else 0
        return max(elapsed_ms, size_ms)


class Account(NamedTuple):
    """Who pays from one quota: None for what does not matter to it. `limit` is per second."""

    user: str | None
    client_id: str | None
    limit: float


class ClientQuotas:
    """The quotas in force and what was used of them."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._limits: dict[Resource, dict[QuotaEntity, float]] = {}
        self._rates: dict[tuple[Resource, str | None, str | None], Rate] = {}

    def __repr__(self) -> str:
        shown = {resource.value: len(limits) for resource, limits in self._limits.items()}
        return f"<ClientQuotas {shown} accounts={len(self._rates)}>"

    @property
    def enabled(self) -> bool:
        """Whether anything is limited for anybody."""
        return bool(self._limits)

    def update(self, quotas: Mapping[QuotaEntity, Mapping[str, float]], windows: Windows) -> None:
        """Takes what is set now; what was counted so far stays, unless the windows change."""
        if windows != self._windows:
            self._windows = windows
            self._rates.clear()
        self._limits = {}
        for resource in Resource:
            limits = {
                entity: values[resource.value]
                for entity, values in quotas.items()
                if resource.value in values
            }
            if limits:
                self._limits[resource] = limits
        for key in [key for key in self._rates if key[0] not in self._limits]:
            del self._rates[key]

    def account(self, resource: Resource, user: str, client_id: str) -> Account | None:
        """The quota that counts for a client; None if nothing limits it.

        An empty client id has no quota by client id, not even the default.
        """
        limits = self._limits.get(resource)
        if limits is None:
            return None
        clients = (client_id, None) if client_id else ()
        for some_user in (user, None):
            for client in clients:
                limit = limits.get(((CLIENT_ID, client), (USER, some_user)))
                if limit is not None:
                    return Account(user, client_id, limit)
            limit = limits.get(((USER, some_user),))
            if limit is not None:
                return Account(user, None, limit)
        for client in clients:
            limit = limits.get(((CLIENT_ID, client),))
            if limit is not None:
                return Account(None, client_id, limit)
        return None

    def charge(
        self, resource: Resource, user: str, client_id: str, value: float, now_ms: int
    ) -> int:
        """Counts what a client used; returns for how many milliseconds it is to wait.

        Bytes, or hundredths of a second of time.
        """
        account = self.account(resource, user, client_id)
        if account is None:
            return 0
        key = (resource, account.user, account.client_id)
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = Rate(self._windows)
        rate.add(value, now_ms)
        over = rate.per_second(now_ms) - account.limit
        if over <= 0:
            return 0
        wait_ms = round(over / account.limit * rate.span_ms(now_ms))
        return min(wait_ms, self._windows.size_ms) if resource is Resource.TIME else wait_ms

    def at_most(self, resource: Resource, user: str, client_id: str) -> int | None:
        """What a new client could use at once without waiting; None if nothing limits it."""
        account = self.account(resource, user, client_id)
        if account is None:
            return None
        return int(account.limit * self._windows.size_ms / SECOND_MS)

    def forget_idle(self, now_ms: int) -> None:
        """A periodic job: drops the accounts of who has not been here for long."""
        for key in [key for key, rate in self._rates.items() if now_ms - rate.last_ms > IDLE_MS]:
            del self._rates[key]
