"""How many connections a broker and each of its listeners take in a second (KIP-612): the setting
max.connection.creation.rate.

Who comes when there is no room left is not served before its turn, and not read from until then. As
many may wait as socket.listen.backlog.size says; who comes then is closed. In Kafka nobody is
accepted meanwhile, so they wait in that backlog. The listener that brokers have among themselves
does not count for the broker where there are others: it waits for none of their clients.

An account holds what its rate gives in all windows but one (quota.window.num,
quota.window.size.seconds), which is what Kafka lets a quiet listener take in at once.

Pure: time is passed in, in milliseconds of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.controller.quota_accounts import SECOND_MS, Balance, wait_ms

MAX_CREATION_RATE = "max.connection.creation.rate"
UNLIMITED = 2**31 - 1
"""Kafka's default."""
BROKER = ""
"""The account of all listeners; none has this name."""


class AcceptRates:
    """The rates in force and what was used of them; one per broker."""

    __slots__ = ("_apart", "_balances", "_burst_ms", "_limits", "_waiting_max", "_window_ms")

    def __init__(self, *, window_ms: int, window_count: int, waiting_max: int) -> None:
        self._window_ms = window_ms
        self._burst_ms = window_ms * max(window_count - 1, 1)
        self._waiting_max = waiting_max
        self._apart: str | None = None
        self._limits: dict[str, float] = {}
        self._balances: dict[str, Balance] = {}

    def __repr__(self) -> str:
        return f"<AcceptRates {self._limits}>"

    @property
    def enabled(self) -> bool:
        """Whether anything is limited."""
        return bool(self._limits)

    def update(self, broker: int, listeners: Mapping[str, int], *, apart: str | None) -> None:
        """Takes the rates that are set now; what accounts hold or owe stays. `apart` is the
        listener that the broker's rate is not for."""
        rates = {BROKER: broker, **listeners}
        # At 0 Kafka lets one in for each window, for nobody waits longer than that.
        least = SECOND_MS / self._window_ms
        self._limits = {name: max(rate, least) for name, rate in rates.items() if rate < UNLIMITED}
        self._apart = apart
        self._balances = {
            name: balance for name, balance in self._balances.items() if name in self._limits
        }

    def take(self, listener: str, now_ms: int) -> int | None:
        """Somebody connects: how many milliseconds it is to wait for its turn, None if too many do
        already."""
        payers = (listener,) if listener == self._apart else (listener, BROKER)
        limited = [name for name in payers if name in self._limits]
        if any(self._pay(name, 0, now_ms) < 1 - self._waiting_max for name in limited):
            return None
        longest_ms = 0
        for name in limited:
            left = self._pay(name, 1, now_ms)
            if left < 0:
                longest_ms = max(longest_ms, wait_ms(-left, self._limits[name]))
        return longest_ms

    def _pay(self, name: str, connections: int, now_ms: int) -> float:
        limit = self._limits[name]
        most = max(limit * self._burst_ms / SECOND_MS, 1)
        balance = self._balances.get(name)
        if balance is None:
            balance = self._balances[name] = Balance(most, now_ms)
        return balance.take(connections, limit=limit, most=most, now_ms=now_ms)
