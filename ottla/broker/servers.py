"""The end of a server of asyncio's."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from functools import partial


def close_server(server: asyncio.Server) -> None:
    """Accepts no more, and closes it a turn of the loop later; may be repeated.

    Whom the standard loop has accepted in this turn would else find the server closed: its protocol
    is never told of the connection, and nobody closes the socket. uvloop knows no reader of ours.
    """
    loop = server.get_loop()
    if server.sockets:
        for listening in server.sockets:
            loop.remove_reader(listening.fileno())
        loop.call_soon(partial(_close, server))


def stop_listening(sock: socket.socket) -> None:
    """A process that was forked meanwhile has the socket, too, and would go on listening."""
    with suppress(OSError):  # it does not listen
        sock.shutdown(socket.SHUT_RDWR)


def _close(server: asyncio.Server) -> None:
    for listening in server.sockets:
        # asyncio and uvloop lend a socket that cannot be shut down.
        own = socket.socket(fileno=listening.fileno())
        stop_listening(own)
        own.detach()
    server.close()
