"""Clients that ask for much and read nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.peers.raw import Connection

CLIENTS = 200
ASKED_BYTES = 50_000_000
FETCHES_MAX = 200
"""Of one client: more than the broker takes in before it stops to read from it."""
RECEIVE_BUFFER = 8192
"""Small, so that what is unread waits in the broker and not in the kernel."""


@contextmanager
def silent_clients(port: int, topic: str, *, fetch_bytes: int = ASKED_BYTES) -> Iterator[None]:
    """For the block, CLIENTS connections that asked for ASKED_BYTES each, in fetches of that size.

    The first answer of each has begun to come when the block begins; none is read.
    """
    connections = [Connection(port, receive_buffer=RECEIVE_BUFFER) for _ in range(CLIENTS)]
    try:
        for connection in connections:
            for _ in range(min(ASKED_BYTES // fetch_bytes, FETCHES_MAX)):
                connection.send_fetch(topic, 0, 0, max_bytes=fetch_bytes)
        for connection in connections:
            connection.wait_for_answer()
        yield
    finally:
        for connection in connections:
            connection.close()
