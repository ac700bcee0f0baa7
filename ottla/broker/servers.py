"""The end of a server of asyncio's."""

from __future__ import annotations

import asyncio


def close_server(server: asyncio.Server) -> None:
    """Accepts no more, and closes it a turn of the loop later; may be repeated.

    Whom the standard loop has accepted in this turn would else find the server closed: its protocol
    is never told of the connection, and nobody closes the socket. uvloop knows no reader of ours.
    """
    loop = server.get_loop()
    if server.sockets:
        for listening in server.sockets:
            loop.remove_reader(listening.fileno())
        loop.call_soon(server.close)
