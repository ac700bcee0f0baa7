"""A server whose handlers are the test's own, and a raw client for it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import structlog

from ottla.broker.handlers.answers import Pending
from ottla.broker.handlers.context import Rooms
from ottla.broker.handlers.produce_forms import ProduceForms
from ottla.broker.handlers.table import Entry
from ottla.broker.log.unreadable import UnreadableRanges
from ottla.broker.network.limits import Limits
from ottla.broker.network.listening import Listening
from ottla.broker.network.server import Server
from ottla.broker.replication.replicas import Replicas
from ottla.config.types import Listener
from ottla.protocol.api import SERVED, ApiKey
from ottla.protocol.frame import encode_request
from ottla.protocol.schema import Message
from ottla.testing.clock import SimClock

LIMITS = Limits(
    max_request_size=1024 * 1024,
    send_buffer_bytes=-1,
    receive_buffer_bytes=-1,
    backlog=50,
    max_connections=1000,
    max_connections_per_ip=1000,
    idle_ms=600_000,
    held_bytes_max=-1,
)


class Parked:
    """A handler whose answers the test gives, in the order it likes."""

    def __init__(self) -> None:
        self.pending: list[Pending] = []
        self.arrived = asyncio.Semaphore(0)

    def __call__(self, session: Any, request: Any, version: int) -> Pending:
        pending = Pending()
        self.pending.append(pending)
        self.arrived.release()
        return pending


class Raw:
    """Bytes out, whole frames in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, message: Message, version: int, correlation_id: int = 0) -> None:
        frame, _ = encode_request(message, version, correlation_id=correlation_id, client_id="raw")
        self.writer.write(frame)

    async def frame(self) -> bytes:
        """The next answer without its length; IncompleteReadError if the connection ended."""
        (size,) = struct.unpack(">i", await asyncio.wait_for(self.reader.readexactly(4), 10))
        return await asyncio.wait_for(self.reader.readexactly(size), 10)

    async def correlation_id(self) -> int:
        return cast(int, struct.unpack_from(">i", await self.frame())[0])

    async def closed(self) -> bool:
        """True when the server ends the connection without another byte."""
        try:
            return await asyncio.wait_for(self.reader.read(1), 10) == b""
        except ConnectionError:
            return True

    @property
    def name(self) -> str:
        """As the server calls its peer."""
        host, port = self.writer.get_extra_info("sockname")
        return f"{host}:{port}"

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Gone, and the server is told so: a close alone might be that of who still reads."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class Served:
    def __init__(self, server: Server, port: int, fatal: list[BaseException]) -> None:
        self.server = server
        self.port = port
        self.fatal = fatal

    async def connect(self, **options: Any) -> Raw:
        return Raw(*await asyncio.open_connection("127.0.0.1", self.port, **options))


@asynccontextmanager
async def serving(
    handlers: dict[ApiKey, Callable[..., Any]], limits: Limits = LIMITS
) -> AsyncIterator[Served]:
    fatal: list[BaseException] = []
    workers = ThreadPoolExecutor(1)
    no_partitions = Replicas(
        loop=asyncio.get_running_loop(),
        clock=SimClock(),
        events=structlog.get_logger(),
        workers=workers,
        on_disk_failed=lambda *_: None,
        on_fatal=fatal.append,
    )
    listening = Listening()
    plaintext = Listener("PLAINTEXT", "127.0.0.1", 0, "PLAINTEXT")
    bound = await listening.bind([plaintext])
    server = Server(
        listening=listening,
        rooms=cast(Rooms, SimpleNamespace(unreadable=UnreadableRanges(structlog.get_logger()))),
        table={key: Entry(SERVED[key], handle) for key, handle in handlers.items()},
        forms=ProduceForms(no_partitions, {}),  # no request here has a form
        limits=limits,
        workers=workers,
        events=structlog.get_logger(),
        on_fatal=fatal.append,
    )
    await server.serve()
    try:
        yield Served(server, bound[0].port, fatal)
    finally:
        await server.stop(grace_s=0.2)
        workers.shutdown()
