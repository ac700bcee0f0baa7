"""The sockets of a broker's listeners: taken before all else at a start, and served at its end.

A port on which somebody listens is found before anything was written to a disk. A socket that is
bound and does not listen has its port, and nobody can connect to it: until `serve` clients are
refused, and come again. Two brokers that start at once may both bind a port, for SO_REUSEADDR tells
them apart no sooner than one listens: the other then learns of it in `serve`, with its logs open.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import NamedTuple

from ottla.broker.servers import close_server, stop_listening
from ottla.config.types import Listener, written

LOOPBACK_CONGESTION = b"reno"
"""Every kernel has it, and every process may choose it."""
BACKLOG_MIN = 1024
"""Connections that the system keeps for us at least, until the loop takes them in: it has other
things to do, and one takes 0.1 ms. Kafka has a thread for that, and 50 by default. Who finds no
room tries again a second later, all at once with the others, and then after two, four, eight: of
500 clients that came together the last was once served after 51 s."""
NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class _Address(NamedTuple):
    family: socket.AddressFamily
    host: str
    rest: tuple[int, ...]
    """What stands behind the port: flow and scope, for IPv6."""


class Listening:
    """The bound listeners of one broker, on the running loop; `close` gives their ports back."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._sockets: list[tuple[str, socket.socket]] = []
        self._servers: list[asyncio.Server] = []
        self.exposed: list[Listener] = []
        """Of those that are bound, which have an address that is not loopback."""

    async def bind(self, listeners: Sequence[Listener]) -> list[Listener]:
        """Takes the port of every listener; returns them with their real ports.

        Raises OSError, which names the address.
        """
        return [await self._bind(listener) for listener in listeners]

    async def serve(
        self, new_connection: Callable[[str], asyncio.BaseProtocol], *, backlog: int
    ) -> None:
        """Begins to accept; `new_connection(listener name)` makes the protocol of a connection.
        As many as `backlog` may wait for that, and no fewer than BACKLOG_MIN.

        Raises OSError as `bind` does: of two that have bound one port, who listens first has it.
        """
        backlog = max(backlog, BACKLOG_MIN)
        names: dict[int, str] = {}
        for name, sock in self._sockets:
            host, port, *_ = sock.getsockname()
            try:
                sock.listen(backlog)
            except OSError as error:
                other = names.get(port, name)
                if error.errno != errno.EADDRINUSE or other == name:
                    raise _cannot_listen(host, port, error) from error
                said = f"the listeners {other} and {name} both ask for {written(host, port)}"
                raise OSError(
                    error.errno, f"{said}: choose another port for one of them."
                ) from error
            names[port] = name
        while self._sockets:
            name, sock = self._sockets[0]
            connected = partial(new_connection, name)
            server = await self._loop.create_server(connected, sock=sock, backlog=backlog)
            self._servers.append(server)  # it is the one to close the socket now
            self._sockets.pop(0)

    def close(self) -> None:
        """Accepts no more; may be repeated."""
        for server in self._servers:
            close_server(server)
        for _, sock in self._sockets:
            stop_listening(sock)
            sock.close()
        self._sockets.clear()

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)  # `close` takes a turn
        for server in self._servers:
            await server.wait_closed()

    async def _bind(self, listener: Listener) -> Listener:
        port = listener.port
        has_one = is_exposed = False
        for address in await self._addresses(listener):
            try:
                sock = _bound(address, port)
            except OSError as error:
                if has_one and address.family == socket.AF_INET6 and error.errno in NO_IPV6:
                    continue
                raise _cannot_listen(address.host, port, error) from error
            has_one = True
            self._sockets.append((listener.name, sock))
            port = sock.getsockname()[1]
            is_exposed = is_exposed or not ip_address(address.host).is_loopback
        bound = Listener(
            name=listener.name, host=listener.host, port=port, protocol=listener.protocol
        )
        if is_exposed:
            self.exposed.append(bound)
        return bound

    async def _addresses(self, listener: Listener) -> list[_Address]:
        """Of each socket that a listener needs, IPv4 first."""
        found: dict[_Address, None] = {}
        for host in _hosts(listener.host):
            try:
                infos = await self._loop.getaddrinfo(
                    host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
                )
            except OSError as error:
                if found and host == "::1":
                    continue
                raise _cannot_listen(host or "*", listener.port, error) from error
            for family, _, _, _, (name, _, *rest) in infos:
                found[_Address(family, str(name), tuple(map(int, rest)))] = None
        return sorted(found, key=lambda one: one.family == socket.AF_INET6)


def _bound(address: _Address, port: int) -> socket.socket:
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address.family == socket.AF_INET6:
            # IPv4 has a socket of its own.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address.host, port, *address.rest))
        if ip_address(address.host).is_loopback:
            _send_at_once(sock)
    except OSError:
        sock.close()
        raise
    return sock


def _send_at_once(sock: socket.socket) -> None:
    """Whoever connects by loopback is sent what there is room for. Where the system's congestion
    control is BBR, each 64 KiB would wait for a timer, on a line that has no bandwidth to find:
    eight readers cost 1.2 to 1.8 times the CPU. A connection that has begun with BBR stays paced,
    so this is said to the listener."""
    option = getattr(socket, "TCP_CONGESTION", None)
    if option is not None:
        with suppress(OSError):  # a sandbox may not know it
            sock.setsockopt(socket.IPPROTO_TCP, option, LOOPBACK_CONGESTION)


def _hosts(host: str) -> list[str | None]:
    """`localhost` is both loopbacks; an empty host is every address."""
    if host == "localhost":
        return ["127.0.0.1", "::1"]
    return [host or None]


def _cannot_listen(host: str, port: int, error: OSError) -> OSError:
    # A resolver has words of its own for its numbers.
    is_resolver = isinstance(error, socket.gaierror) or error.errno is None
    reason = error.strerror if is_resolver else os.strerror(error.errno or 0)
    return OSError(error.errno, f"cannot listen on {written(host, port)}: {reason}")
