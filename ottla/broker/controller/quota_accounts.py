"""Accounts that fill at the rate of a quota, and whose quota it is that counts for a client.

Of the quotas that match a client the first of these is the one that counts, and whom else it
matches by name shares its account:

    user and client id, user and default client, user,
    default user and client id, default user and default client, default user,
    client id, default client

Pure: time is passed in, in milliseconds of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nlargest
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from ottla.broker.controller.client_quotas import CLIENT_ID, USER
from ottla.broker.metadata.image import QuotaEntity

ANONYMOUS = "ANONYMOUS"
"""The user of a connection without authentication, as Kafka calls it."""
IDLE_MS = 3_600_000
"""An account that nothing was charged to for so long is forgotten; Kafka's own figure."""
SECOND_MS = 1000
WAIT_MS_MAX = 2**31 - 1
"""What an answer can say."""
UNLIMITED = 1e18
"""A quota as large as this, or infinite as some may be, limits nothing; sums of what it gives would
be numbers no more."""


Payer: TypeAlias = tuple[str | None, str | None]
"""The user and the client id of an account; None for what does not matter to its quota."""


class Balance:
    """What an account holds; below 0 is what it owes."""

    __slots__ = ("held", "last_ms", "waited_ms")

    def __init__(self, held: float, now_ms: int) -> None:
        self.held = held
        self.last_ms = now_ms
        self.waited_ms = 0
        """What its clients were told to wait, in all."""

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


class Accounts:
    """The accounts of all who pay from one kind of quota, `quota` by its name. Each holds at most
    what its quota gives in `window_ms`, and begins with that."""

    __slots__ = ("_balances", "_limits", "_quota", "_window_ms")

    def __init__(self, quota: str, window_ms: int) -> None:
        self._quota = quota
        self._window_ms = window_ms
        self._limits: dict[QuotaEntity, float] = {}
        self._balances: dict[Payer, Balance] = {}

    def __repr__(self) -> str:
        return f"<Accounts {self._quota} limits={len(self._limits)} held={len(self._balances)}>"

    @property
    def enabled(self) -> bool:
        """Whether anything is limited for anybody."""
        return bool(self._limits)

    def update(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Takes what is set now; what accounts hold or owe stays."""
        self._limits = limits_of(quotas, self._quota)
        if not self._limits:
            self._balances.clear()

    def of(self, user: str, client_id: str) -> Account | None:
        """The account that pays for a client; None if nothing limits it."""
        return account_of(self._limits, user, client_id) if self._limits else None

    def most(self, account: Account) -> float:
        """What an account can hold."""
        return account.limit * self._window_ms / SECOND_MS

    def take(self, account: Account, value: float, now_ms: int) -> float:
        """What is left on the account."""
        key = account.user, account.client_id
        most = self.most(account)
        balance = self._balances.get(key)
        if balance is None:
            balance = self._balances[key] = Balance(most, now_ms)
        return balance.take(value, limit=account.limit, most=most, now_ms=now_ms)

    def waited(self, account: Account, wait_ms: int) -> None:
        """A client was told to wait; something was taken from its account before."""
        self._balances[account.user, account.client_id].waited_ms += wait_ms

    def longest_waits(self, count: int) -> list[tuple[Payer, int]]:
        """Whose clients were told to wait for longest, and how long in milliseconds."""
        waits = ((payer, one.waited_ms) for payer, one in self._balances.items() if one.waited_ms)
        return nlargest(count, waits, key=itemgetter(1))

    def forget_idle(self, now_ms: int) -> None:
        """A periodic job: drops the accounts of who has not been here for long."""
        idle = [key for key, one in self._balances.items() if now_ms - one.last_ms > IDLE_MS]
        for key in idle:
            del self._balances[key]


def limits_of(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], name: str
) -> dict[QuotaEntity, float]:
    """The quotas of one kind."""
    return {entity: values[name] for entity, values in quotas.items() if name in values}


def account_of(limits: Mapping[QuotaEntity, float], user: str, client_id: str) -> Account | None:
    """The quota that counts for a client; None if nothing limits it.

    An empty client id has no quota by client id, not even the default.
    """
    account = _matching(limits, user, client_id)
    # A directory of Kafka's may say NaN, which limits nothing there.
    return account if account is not None and account.limit < UNLIMITED else None


def wait_ms(owed: float, limit: float) -> int:
    """How long it takes to earn what is owed, as far as an answer can say it."""
    return round(min(owed / limit * SECOND_MS, WAIT_MS_MAX))


def _matching(limits: Mapping[QuotaEntity, float], user: str, client_id: str) -> Account | None:
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
