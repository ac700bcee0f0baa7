"""Connections that came faster than their address may make them (KIP-612): nothing is read from
them, and they are closed when one more would be let in. Closed at once, their clients would be back
at once."""

from __future__ import annotations

import asyncio

MS_PER_S = 1000


class WaitingRoom:
    """One for all connections of a broker; where `most` wait already the next is closed at once."""

    __slots__ = ("_loop", "_most", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, most: int) -> None:
        self._loop = loop
        self._most = most
        self._waiting: dict[asyncio.Transport, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def hold(self, transport: asyncio.Transport, wait_ms: int) -> None:
        """Takes the connection over from its protocol, and closes it after this time."""
        if len(self._waiting) >= self._most:
            transport.abort()
            return
        transport.set_protocol(_Guest(self, transport))
        self._waiting[transport] = self._loop.call_later(wait_ms / MS_PER_S, transport.abort)

    def left(self, transport: asyncio.Transport) -> None:
        """Its time was over, or the peer has gone before."""
        timer = self._waiting.pop(transport, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """Sends all away."""
        for transport in list(self._waiting):
            transport.abort()


class _Guest(asyncio.Protocol):
    """In the place of a connection that is not served."""

    def __init__(self, room: WaitingRoom, transport: asyncio.Transport) -> None:
        self._room = room
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """What has come before reading could be stopped is thrown away."""
        self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._room.left(self._transport)
