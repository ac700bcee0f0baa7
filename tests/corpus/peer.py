"""A blocking connection that sends whatever it is given and says what came back."""

from __future__ import annotations

import select
import socket
import struct
from types import TracebackType
from typing import Any

from ottla.protocol.connection import ClientConnection
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schema import Message

ANSWER_SECONDS_MAX = 30.0
"""Only a broker that hangs takes this long."""


class Peer:
    """One connection. Messages are encoded and decoded; bytes pass as they are."""

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(ANSWER_SECONDS_MAX)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = ClientConnection("corpus")

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def send_bytes(self, content: bytes | bytearray) -> None:
        """Sends it; a broker that closes before it has read everything is no error here."""
        try:
            self.socket.sendall(content)
        except (BrokenPipeError, ConnectionResetError):
            return

    def send(self, message: Message, version: int, *, answered: bool = True) -> None:
        self.send_bytes(self._frames.send(message, version, expects_response=answered))

    def receive(self) -> Any:
        """The next answer to a message sent; ConnectionError if the connection has ended."""
        while (response := self._frames.next_response()) is None:
            received = self.socket.recv(1 << 20)
            if not received:
                raise ConnectionResetError("closed by the broker")
            self._frames.receive(received)
        return response.message

    def request(self, message: Message, version: int) -> Any:
        self.send(message, version)
        return self.receive()

    def frame(self) -> bytes:
        """The next frame without its length, whatever it answers; for bytes that were sent."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def works(self) -> bool:
        """Whether a request is answered here."""
        answer: ApiVersionsResponse = self.request(ApiVersionsRequest("corpus", "1"), 3)
        return answer.error_code == 0

    def is_closed(self) -> bool:
        """Waits for the next byte; True when the connection ends before there is any."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def wait_for_answer(self) -> None:
        """Returns when an answer has begun to come; reads nothing of it."""
        assert self.socket.recv(1, socket.MSG_PEEK)

    def is_silent(self) -> bool:
        """Whether nothing has come, not even the end of the connection."""
        return not select.select([self.socket], [], [], 0)[0]

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        content = bytearray()
        while len(content) < size:
            received = self.socket.recv(size - len(content))
            if not received:
                raise ConnectionResetError("closed by the broker")
            content += received
        return bytes(content)
