"""A connection's bytes as frames, on either side; no socket here.

The receiver's rules: bytes land in a buffer once and stay there; a frame is handed out as a view
of them. The buffer begins small, doubles only when it is full of bytes that did arrive, never
beyond the frame that is being received, and becomes small again after large frames. Bytes move
only when a frame that was cut off would not fit behind its beginning.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from ottla.protocol.api import response_header_version
from ottla.protocol.codec import Decoder, decoder
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.frame import LENGTH, LENGTH_SIZE, encode_request
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from ottla.protocol.schema import Message, response_type
from ottla.protocol.wire import skip_tags

# One producer's default batch (16 KiB) fits; thousands of connections cost little.
BUFFER_SIZE_SMALL: Final = 16 * 1024
# Moving fewer bytes than this costs less than a read that the little space behind them cuts short.
MOVE_SIZE_FREE: Final = 4 * 1024
# A large buffer is given up after so many reads into it without a frame that needed it.
SMALL_READS_BEFORE_SHRINK: Final = 64
# What a response may be at most for our client: Kafka's clients accept any, librdkafka 100 MB.
RESPONSE_SIZE_MAX: Final = 512 * 1024 * 1024

_REQUEST_SIZE_MIN: Final = 8
_RESPONSE_SIZE_MIN: Final = 4
_HTTP_VERBS: Final = (b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN")
_unpack_length: Final = LENGTH.unpack_from


class FrameReader:
    """Receives bytes and hands out whole frames.

    A caller reads into `get_buffer()`, tells `received(count)`, and takes frames by `next_frame()`
    until that is None, before it reads again.
    """

    __slots__ = (
        "_buffer",
        "_size_max",
        "_size_min",
        "_small_reads",
        "_start",
        "_view",
        "buffered",
    )

    def __init__(self, size_max: int, size_min: int) -> None:
        self._size_max = size_max
        self._size_min = size_min
        self._small_reads = 0
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self._start = 0
        self.buffered = 0
        """Bytes received that no frame was made of yet."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} holds={self.buffered} buffer={len(self._buffer)}>"

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Where the next bytes go; never empty. Frames handed out before are no longer valid."""
        held, size = self.buffered, len(self._buffer)
        if not held:
            if size != BUFFER_SIZE_SMALL:
                self._fit_to_nothing(size)
            self._start = 0
            return self._view
        start = self._start
        end = start + held
        frame_size = self._frame_size()
        if start and (start + frame_size > size or held <= MOVE_SIZE_FREE):
            self._view[:held] = self._view[start:end]
            self._start = 0
            start, end = 0, held
        if end == size:
            grown = bytearray(min(2 * size, frame_size) if frame_size > size else 2 * size)
            grown[:held] = self._view[start:end]
            self._replace(grown, held)
            return self._view[held:]
        frame_end = start + frame_size
        if end + BUFFER_SIZE_SMALL <= frame_end <= size:
            # To stop at the end of a large frame is to let the next one begin at the front.
            return self._view[end:frame_end]
        return self._view[end:]

    def received(self, count: int) -> None:
        """`count` bytes were written to what `get_buffer` gave."""
        assert count >= 0
        held = self.buffered = self.buffered + count
        assert held <= len(self._buffer) - self._start

    def next_frame(self) -> memoryview | None:
        """The content of the next whole frame, writable, valid until the next `get_buffer`.

        None when more bytes are needed. ProtocolError when the length cannot be one.
        """
        held = self.buffered
        if held < LENGTH_SIZE:
            return None
        start = self._start
        length: int = _unpack_length(self._buffer, start)[0]
        if length > self._size_max or length < self._size_min:
            raise ProtocolError(self._bad_length(length))
        size = LENGTH_SIZE + length
        if size > held:
            return None
        self._start = stop = start + size
        self.buffered = held - size
        if length >= BUFFER_SIZE_SMALL:
            self._small_reads = 0
        return self._view[start + LENGTH_SIZE : stop]

    def put_back(self, frame: memoryview) -> None:
        """The frame that was handed out last is the next one again."""
        size = LENGTH_SIZE + len(frame)
        self._start -= size
        self.buffered += size

    def detach(self) -> None:
        """Let all frames handed out so far stay valid for as long as they are referred to."""
        held = self.buffered
        fresh = bytearray(max(BUFFER_SIZE_SMALL, held) if held else 0)
        fresh[:held] = self._view[self._start : self._start + held]
        self._replace(fresh, held)

    def shrink(self) -> None:
        """Give the buffer's memory back, if nothing is held; for a connection that is idle."""
        if not self.buffered:
            self._replace(bytearray(), 0)

    def _fit_to_nothing(self, size: int) -> None:
        """Makes the first buffer, or a small one after a large one."""
        self._small_reads += 1
        if not size or self._small_reads > SMALL_READS_BEFORE_SHRINK:
            self._replace(bytearray(BUFFER_SIZE_SMALL), 0)

    def _frame_size(self) -> int:
        """The size of the frame that began to arrive, as far as that is known."""
        if self.buffered < LENGTH_SIZE:
            return LENGTH_SIZE
        length: int = _unpack_length(self._buffer, self._start)[0]
        return LENGTH_SIZE + min(max(length, 0), self._size_max)

    def _replace(self, buffer: bytearray, held: int) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._start, self.buffered = 0, held

    def _bad_length(self, length: int) -> str:
        first = bytes(self._view[self._start : self._start + LENGTH_SIZE])
        if first in _HTTP_VERBS:
            return "this is HTTP, and the listener speaks Kafka's protocol"
        if first[:2] == b"\x16\x03":
            return "this is a TLS hello, and the listener is PLAINTEXT"
        return f"frame of {length} bytes, {self._size_min} to {self._size_max} allowed"


class ServerConnection(FrameReader):
    """The receiving side of a broker's connection: frames are requests."""

    __slots__ = ()

    def __init__(self, max_request_size: int) -> None:
        super().__init__(max_request_size, _REQUEST_SIZE_MIN)

    def _bad_length(self, length: int) -> str:
        reason = super()._bad_length(length)
        is_large = reason.startswith("frame") and length > self._size_max
        return f"{reason} by socket.request.max.bytes" if is_large else reason


@dataclass(slots=True)
class Response:
    """An answer and the correlation id of its request."""

    correlation_id: int
    message: Message


@dataclass(slots=True)
class _Pending:
    correlation_id: int
    decode: Decoder[Message]
    header_version: int
    is_api_versions: bool


class ClientConnection:
    """Builds requests and matches responses to them, which come in the order of the requests."""

    def __init__(self, client_id: str | None, max_response_size: int = RESPONSE_SIZE_MAX) -> None:
        self.client_id = client_id
        self._frames = FrameReader(max_response_size, _RESPONSE_SIZE_MIN)
        self._next_correlation_id = 0
        self._pending: deque[_Pending] = deque()

    @property
    def pending_count(self) -> int:
        """How many requests are unanswered."""
        return len(self._pending)

    def send(self, request: Message, version: int, *, expects_response: bool = True) -> bytes:
        """The bytes of a request. A Produce with acks=0 expects no response. Payloads that are no
        bytes are refused: a client sends what it holds."""
        correlation_id = self._next_correlation_id
        out, payloads = encode_request(
            request, version, correlation_id=correlation_id, client_id=self.client_id
        )
        if payloads:
            raise ValueError("a client's records are bytes")
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        if expects_response:
            key = request.__schema__.key
            assert key is not None
            response = response_type(type(request))
            self._pending.append(
                _Pending(
                    correlation_id,
                    decoder(response, version),
                    response_header_version(key, version),
                    response is ApiVersionsResponse,
                )
            )
        return bytes(out)

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes came from the broker."""
        left = memoryview(data)
        while left:
            space = self._frames.get_buffer(len(left))
            count = min(len(space), len(left))
            space[:count] = left[:count]
            self._frames.received(count)
            left = left[count:]

    def next_response(self) -> Response | None:
        """The next response, or None when more bytes are needed.

        ProtocolError when it answers no request of ours or cannot be decoded.
        """
        frame = self._frames.next_frame()
        if frame is None:
            return None
        view = memoryview(bytes(frame))
        correlation_id: int = _unpack_length(view, 0)[0]
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            raise ProtocolError(f"response {correlation_id} answers no request, or not the next")
        pending = self._pending.popleft()
        position = 4
        if pending.header_version:
            try:
                count = view[4]
            except IndexError as error:
                raise ProtocolError("response header is cut off") from error
            position, _ = skip_tags(count, view, 5, len(view))
        message, _ = _decode(pending, view, position)
        return Response(correlation_id, message)


_UNSUPPORTED_VERSION: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


def _decode(pending: _Pending, view: memoryview, position: int) -> tuple[Message, int]:
    """A broker that does not know our ApiVersions version answers it in version 0 (KIP-511)."""
    if pending.is_api_versions and view[position : position + 2] == _UNSUPPORTED_VERSION:
        return decoder(ApiVersionsResponse, 0)(view, position)
    return pending.decode(view, position)
