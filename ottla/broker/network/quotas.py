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

from ottla.broker.controller.quota_accounts import Account, Accounts, Payer, wait_ms
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
        self._accounts = {one: Accounts(one.value, window_ms) for one in Resource}

    def __repr__(self) -> str:
        return f"<ClientQuotas {[one for one in self._accounts.values() if one.enabled]}>"

    @property
    def enabled(self) -> bool:
        """Whether anything is limited for anybody."""
        return any(accounts.enabled for accounts in self._accounts.values())

    def update(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Takes what is set now; what accounts hold or owe stays."""
        for accounts in self._accounts.values():
            accounts.update(quotas)

    def account(self, resource: Resource, user: str, client_id: str) -> Account | None:
        """The quota that counts for a client; None if nothing limits it."""
        return self._accounts[resource].of(user, client_id)

    def charge(
        self, resource: Resource, user: str, client_id: str, value: float, now_ms: int
    ) -> int:
        """Counts what a client used; returns for how many milliseconds it is to wait.

        Bytes, or hundredths of a second of time.
        """
        accounts = self._accounts[resource]
        account = accounts.of(user, client_id)
        if account is None:
            return 0
        left = accounts.take(account, value, now_ms)
        if left >= 0:
            return 0
        owed_ms = wait_ms(-left, account.limit)
        return min(owed_ms, self._window_ms) if resource is Resource.TIME else owed_ms

    def waited(self, resource: Resource, user: str, client_id: str, wait_ms: int) -> None:
        """Counts what a client was told to wait after `charge`."""
        accounts = self._accounts[resource]
        account = accounts.of(user, client_id)
        if account is not None:
            accounts.waited(account, wait_ms)

    def longest_waits(self, count: int) -> list[tuple[Resource, Payer, int]]:
        """Of each quota: whose clients were told to wait for longest, and how many milliseconds."""
        return [
            (resource, payer, waited_ms)
            for resource, accounts in self._accounts.items()
            for payer, waited_ms in accounts.longest_waits(count)
        ]

    def at_most(self, resource: Resource, user: str, client_id: str) -> int | None:
        """What a new client could use at once without waiting; None if nothing limits it."""
        accounts = self._accounts[resource]
        account = accounts.of(user, client_id)
        return None if account is None else int(accounts.most(account))

    def forget_idle(self, now_ms: int) -> None:
        """A periodic job: drops the accounts of who has not been here for long."""
        for accounts in self._accounts.values():
            accounts.forget_idle(now_ms)
