"""How many connections an address may make a second: the quota connection_creation_rate (KIP-612).

Each address has an account that holds so many connections and fills up at the rate of its quota,
its own or the default. It begins with what Apache Kafka lets a quiet address have at once: all
windows but one (quota.window.num, quota.window.size.seconds). A connection that comes when there is
none left is not taken in, costs nothing, and waits for one window at most. An account that is full
again is forgotten, for a new one is no different.

A quota may be set for a host by its name: it holds for the addresses that the host has when the
quotas change.

Pure: time is passed in, in milliseconds of a monotonic clock.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Mapping

from ottla.broker.controller.client_quotas import IP
from ottla.broker.controller.quota_accounts import SECOND_MS, Balance, limits_of
from ottla.broker.metadata.image import QuotaEntity

CREATION_RATE = "connection_creation_rate"


class ConnectionRates:
    """The quotas in force and what was used of them; one per broker."""

    def __init__(self, *, window_ms: int, window_count: int) -> None:
        self._window_ms = window_ms
        self._burst_ms = window_ms * max(window_count - 1, 1)
        self._quotas: dict[str | None, float] = {}
        self._found: dict[str, list[str]] = {}
        self._limits: dict[str, float] = {}
        self._balances: dict[str, Balance] = {}

    def __repr__(self) -> str:
        return f"<ConnectionRates {len(self._quotas)} accounts={len(self._balances)}>"

    @property
    def enabled(self) -> bool:
        """Whether anything is limited for anybody."""
        return bool(self._quotas)

    def update(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> list[str]:
        """Takes what is set now, and returns the names of hosts: `found` is to say what addresses
        they have."""
        limits = limits_of(quotas, CREATION_RATE)
        self._quotas = {dict(entity)[IP]: limit for entity, limit in limits.items()}
        hosts = [name for name in self._quotas if name is not None and canonical(name) is None]
        self._found = {host: self._found.get(host, []) for host in hosts}
        self._apply()
        if not self._quotas:
            self._balances.clear()
        return hosts

    def found(self, host: str, addresses: Iterable[str]) -> None:
        """A host has these addresses. A quota that one of them has by itself goes first."""
        if host in self._found:
            found = map(canonical, addresses)
            self._found[host] = [address for address in found if address is not None]
            self._apply()

    def take(self, peer: str, now_ms: int) -> int:
        """Somebody connects: 0 if it is taken in, else how many milliseconds it is to wait."""
        address = canonical(peer) or peer
        limit = self._limits.get(address, self._quotas.get(None))
        if limit is None:
            return 0
        most = limit * self._burst_ms / SECOND_MS
        balance = self._balances.get(address)
        if balance is None:
            balance = self._balances[address] = Balance(most, now_ms)
        held = balance.take(0, limit=limit, most=most, now_ms=now_ms)
        if held < 1:
            # The other way round: a quota of next to nothing has no wait that is a number.
            earned = limit * self._window_ms / SECOND_MS
            if held + earned <= 1:
                return self._window_ms
            return math.ceil((1 - held) / limit * SECOND_MS)
        balance.take(1, limit=limit, most=most, now_ms=now_ms)
        return 0

    def forget_full(self, now_ms: int) -> None:
        """A periodic job: drops the accounts that have filled up since they were last used."""
        full = [
            address
            for address, balance in self._balances.items()
            if now_ms - balance.last_ms >= self._burst_ms
        ]
        for address in full:
            del self._balances[address]

    def _apply(self) -> None:
        self._limits = {}
        for host, addresses in self._found.items():
            self._limits.update(dict.fromkeys(addresses, self._quotas[host]))
        for name, limit in self._quotas.items():
            address = None if name is None else canonical(name)
            if address is not None:
                self._limits[address] = limit


def canonical(text: str) -> str | None:
    """An address as it is compared: without a zone, an IPv4 address that is mapped as itself; None
    if it is none."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
