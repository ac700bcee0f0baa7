"""How many partitions a client may create and delete: the quota controller_mutation_rate (KIP-599).

An account holds as many partitions as its quota gives in all windows together
(controller.quota.window.num times controller.quota.window.size.seconds), and fills up at the rate
of the quota. Whoever has something left may take any number at once, and owes what is more. From
versions on that know the error, whoever owes is refused; in older ones it gets what it asks for and
waits. In both it is told how long: until it owes nothing.

Pure: time is passed in, in milliseconds of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.broker.controller.quota_accounts import Account, Accounts, wait_ms
from ottla.broker.metadata.image import QuotaEntity
from ottla.protocol.errors import ErrorCode, KafkaError

MUTATION_RATE = "controller_mutation_rate"

Charge = Callable[[int], None]
"""Is told how many partitions are about to be created or deleted; raises
THROTTLING_QUOTA_EXCEEDED if they may not."""


def nobody_pays(partitions: int) -> None:
    """What the broker creates for itself is on nobody's account."""


class Mutations:
    """What one request takes; `charge` is handed to the controller's command."""

    __slots__ = ("_account", "_accounts", "_is_strict", "_now_ms", "_wait_ms")

    def __init__(
        self, accounts: Accounts, account: Account, *, is_strict: bool, now_ms: int
    ) -> None:
        self._accounts = accounts
        self._account = account
        self._is_strict = is_strict
        self._now_ms = now_ms
        self._wait_ms = 0

    def charge(self, partitions: int) -> None:
        """Takes so many at once. Raises THROTTLING_QUOTA_EXCEEDED, and takes nothing, if the quota
        is used up and the request is one that can be told."""
        if self._is_strict:
            owed = -self._take(0)
            if owed > 0:
                self._wait_for(owed)
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            self._take(partitions)
        else:
            self._wait_for(-self._take(partitions))

    def wait_ms(self, now_ms: int) -> int:
        """What is left now of the time that the client is to wait."""
        return max(self._wait_ms - (now_ms - self._now_ms), 0)

    def _take(self, partitions: int) -> float:
        return self._accounts.take(self._account, partitions, self._now_ms)

    def _wait_for(self, owed: float) -> None:
        self._wait_ms = max(self._wait_ms, wait_ms(owed, self._account.limit))


class MutationQuotas:
    """The quotas in force and what was used of them; one per broker."""

    def __init__(self, window_ms: int) -> None:
        self._accounts = Accounts(MUTATION_RATE, window_ms)

    def __repr__(self) -> str:
        return f"<MutationQuotas {self._accounts!r}>"

    def update(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Takes what is set now; what accounts hold or owe stays."""
        self._accounts.update(quotas)

    def of(self, user: str, client_id: str, *, is_strict: bool, now_ms: int) -> Mutations | None:
        """For one request of a client, that can be told the error if `is_strict`; None if nothing
        limits it."""
        account = self._accounts.of(user, client_id)
        if account is None:
            return None
        return Mutations(self._accounts, account, is_strict=is_strict, now_ms=now_ms)

    def forget_idle(self, now_ms: int) -> None:
        """A periodic job: drops the accounts of who has not been here for long."""
        self._accounts.forget_idle(now_ms)
