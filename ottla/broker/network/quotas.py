"""What a client may use, and how long it waits when it has used more: Kafka's client quotas.

Three things are counted by user and client id: bytes produced, bytes fetched, and the percentage
of the loop's time that requests take. Of the quotas that match a client the first of these is
the one that counts, and whom else it matches by name shares its account:

    user and client id, user and default client, user,
    default user and client id, default user and default client, default user,
    client id, default client

An account holds what its quota gives in one window (quota.window.size.seconds) and fills up at the
rate of the quota. Who has taken more than there is waits until it is back at nothing (KIP-124); for
time, one window at most. So whatever 30 s one looks at, a greedy client gets its limit, and one
window's worth more after a pause. Kafka averages over eleven windows, which lets a fast client have
ten seconds' worth at once, nothing for the next ten seconds, and so on.

Pure: time is passed in, in milliseconds of a monotonic clock.
"""

from __future__ import annotations

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


class _Balance:
    """What an account holds; below 0 is what it owes."""

    __slots__ = ("held", "last_ms")

    def __init__(self, held: float, now_ms: int) -> None:
        self.held = held
        self.last_ms = now_ms

    def take(self, value: float, *, limit: float, most: float, now_ms: int) -> float:
        """What is left. `limit` is per second, `most` the largest balance."""
        earned = (now_ms - self.last_ms) * limit / SECOND_MS
        self.held = min(self.held + earned, most) - value
        self.last_ms = now_ms
        return self.held


class Account(NamedTuple):
    """Who pays from one quota: None for what does not matter to it. `limit` is per second."""

    user: str | None
    client_id: str | None
    limit: float


class ClientQuotas:
    """The quotas in force and what was used of them."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._limits: dict[Resource, dict[QuotaEntity, float]] = {}
        self._balances: dict[tuple[Resource, str | None, str | None], _Balance] = {}

    def __repr__(self) -> str:
        shown = {resource.value: len(limits) for resource, limits in self._limits.items()}
        return f"<ClientQuotas {shown} accounts={len(self._balances)}>"

    @property
    def enabled(self) -> bool:
        """Whether anything is limited for anybody."""
        return bool(self._limits)

    def update(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Takes what is set now; what accounts hold or owe stays."""
        self._limits = {}
        for resource in Resource:
            limits = {
                entity: values[resource.value]
                for entity, values in quotas.items()
                if resource.value in values
            }
            if limits:
                self._limits[resource] = limits
        for key in [key for key in self._balances if key[0] not in self._limits]:
            del self._balances[key]

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
        most = account.limit * self._window_ms / SECOND_MS
        balance = self._balances.get(key)
        if balance is None:
            balance = self._balances[key] = _Balance(most, now_ms)
        left = balance.take(value, limit=account.limit, most=most, now_ms=now_ms)
        if left >= 0:
            return 0
        wait_ms = round(-left / account.limit * SECOND_MS)
        return min(wait_ms, self._window_ms) if resource is Resource.TIME else wait_ms

    def at_most(self, resource: Resource, user: str, client_id: str) -> int | None:
        """What a new client could use at once without waiting; None if nothing limits it."""
        account = self.account(resource, user, client_id)
        if account is None:
            return None
        return int(account.limit * self._window_ms / SECOND_MS)

    def forget_idle(self, now_ms: int) -> None:
        """A periodic job: drops the accounts of who has not been here for long."""
        idle = [key for key, one in self._balances.items() if now_ms - one.last_ms > IDLE_MS]
        for key in idle:
            del self._balances[key]
