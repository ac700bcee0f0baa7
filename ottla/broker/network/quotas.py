"""What a client may use, and how long it waits when it has used more: Kafka's client quotas.

Three things are counted by user and client id: bytes produced, bytes fetched, and the percentage
of the loop's time that requests take. `controller/quota_accounts.py` says whose quota counts.
Changes of topics (`controller/mutation_quotas.py`) and new connections (`connection_rates.py`) have
quotas of their own.

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

from ottla.broker.controller.quota_accounts import (
    IDLE_MS,
    SECOND_MS,
    Account,
    Balance,
    account_of,
    limits_of,
    wait_ms,
)
from ottla.broker.metadata.image import QuotaEntity


class Resource(Enum):
    """What is counted, by the name of its quota."""

    PRODUCED = "producer_byte_rate"
    FETCHED = "consumer_byte_rate"
    TIME = "request_percentage"


class ClientQuotas:
    """The quotas in force and what was used of them."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._limits: dict[Resource, dict[QuotaEntity, float]] = {}
        self._balances: dict[tuple[Resource, str | None, str | None], Balance] = {}

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
            limits = limits_of(quotas, resource.value)
            if limits:
                self._limits[resource] = limits
        for key in [key for key in self._balances if key[0] not in self._limits]:
            del self._balances[key]

    def account(self, resource: Resource, user: str, client_id: str) -> Account | None:
        """The quota that counts for a client; None if nothing limits it."""
        limits = self._limits.get(resource)
        return None if limits is None else account_of(limits, user, client_id)

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
            balance = self._balances[key] = Balance(most, now_ms)
        left = balance.take(value, limit=account.limit, most=most, now_ms=now_ms)
        if left >= 0:
            return 0
        owed_ms = wait_ms(-left, account.limit)
        return min(owed_ms, self._window_ms) if resource is Resource.TIME else owed_ms

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
