"""One asyncio connection to a broker: requests out, answers in, matched by their order.

The least a client needs; producer, consumer and admin will stand on it. Requests pipeline:
`request` may be awaited by many tasks at once, and the broker answers in the order of sending.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

from ottla.protocol.connection import ClientConnection
from ottla.protocol.errors import ProtocolError


class Connection(asyncio.Protocol):
    """`await Connection.open(host, port)`, then `await connection.request(message, version)`.

    A connection that ends fails every open request with ConnectionError; so does an answer that
    cannot be read, which ends the connection.
    """

    def __init__(self, client_id: str) -> None:
        self._frames = ClientConnection(client_id)
        self._open: deque[asyncio.Future[Any]] = deque()
        self._transport: asyncio.Transport | None = None
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, host: str, port: int, *, client_id: str = "ottla") -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: cls(client_id), host, port)
        return connection

    async def request(self, message: Any, version: int) -> Any:
        """The response message; ConnectionError if the connection ends before it comes."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionError("the connection is closed")
        data = self._frames.send(message, version)  # one that cannot be written waits for nothing
        answer = asyncio.get_running_loop().create_future()
        self._open.append(answer)
        self._transport.write(data)
        return await answer

    def send_without_answer(self, message: Any, version: int) -> None:
        """For Produce with acks=0, which is never answered."""
        assert self._transport is not None
        self._transport.write(self._frames.send(message, version, expects_response=False))

    async def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        await asyncio.shield(self._closed)  # which others may wait for

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._frames.receive(data)
            while (response := self._frames.next_response()) is not None:
                answer = self._open.popleft()
                if not answer.done():
                    answer.set_result(response.message)
        except ProtocolError as error:
            said = f"the broker's answer cannot be read: {error}"
            if data.startswith(b"HTTP/"):
                said = "what answers there speaks HTTP: a telemetry port, perhaps"
            self._fail(ConnectionError(said))
            assert self._transport is not None
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionError(f"the connection ended: {exc or 'closed by the broker'}"))
        if not self._closed.done():
            self._closed.set_result(None)

    def _fail(self, error: ConnectionError) -> None:
        while self._open:
            answer = self._open.popleft()
            if not answer.done():
                answer.set_exception(error)
