"""How many connections one address may have at once: max.connections.per.ip and its exceptions.

An exception (max.connections.per.ip.overrides) may be made for a host by its name: it holds for the
addresses that the host has when the settings change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.broker.network.connection_rates import canonical


class AddressLimits:
    """The limits in force; one per broker."""

    def __init__(self) -> None:
        self._most = 0
        self._exceptions: Mapping[str, int] = {}
        self._by_address: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<AddressLimits {self._most} exceptions={self._by_address}>"

    def update(self, most: int, exceptions: Mapping[str, int]) -> list[str]:
        """Takes what is set now, and returns the names of hosts: `found` is to say what addresses
        they have."""
        self._most = most
        if exceptions == self._exceptions:
            return []
        self._exceptions = dict(exceptions)
        self._by_address = {}
        hosts = []
        for host, limit in exceptions.items():
            address = canonical(host)
            if address is None:
                hosts.append(host)
            else:
                self._by_address[address] = limit
        return hosts

    def found(self, host: str, addresses: Iterable[str]) -> None:
        """A host has these addresses. An exception that one of them has by itself goes first."""
        limit = self._exceptions.get(host)
        if limit is not None:
            for address in map(canonical, addresses):
                if address is not None:
                    self._by_address.setdefault(address, limit)

    def of(self, peer: str) -> int:
        if not self._by_address:
            return self._most
        return self._by_address.get(canonical(peer) or peer, self._most)
