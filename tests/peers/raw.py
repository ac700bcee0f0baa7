"""A Kafka client of bare sockets: pipelined Produce and Fetch requests, built by hand.

It shares no code with the package, so that it is a witness of its own, and it does what libraries
never do: leave answers unread, send a batch twice under one sequence number, count what is under
way at the moment of a crash. Only non-flexible versions are spoken: Produce 7, Fetch 4,
InitProducerId 1.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import crc32c

PRODUCE, FETCH, INIT_PRODUCER_ID = 0, 1, 22
PRODUCE_VERSION = 7
ANSWER_SECONDS_MAX = 60.0
READ_BYTES = 64 * 1024
"""Read at once: nobody else has the processor while the kernel copies, and megabytes are copied in
half a millisecond, which a paced client beside it would count as the broker's."""
BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")


def _varint(value: int) -> bytes:
    """A zigzag varint."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _text(value: str | None) -> bytes:
    if value is None:
        return struct.pack(">h", -1)
    return struct.pack(">h", len(value)) + value.encode()


def batch(
    values: Sequence[bytes],
    *,
    timestamp: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
) -> bytes:
    """One uncompressed record batch; record k has no key and the value `values[k]`."""
    records = bytearray()
    for delta, value in enumerate(values):
        body = b"\x00\x00" + _varint(delta) + b"\x01" + _varint(len(value)) + value + b"\x00"
        records += _varint(len(body)) + body
    last = len(values) - 1
    tail = struct.pack(
        ">hiqqqhii",
        0,
        last,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        sequence,
        len(values),
    )
    content = tail + records
    head = struct.pack(">qiibI", 0, len(content) + 9, -1, 2, crc32c.crc32c(content))
    return head + content


def request(key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """A whole frame, its size before it."""
    header = struct.pack(">hhi", key, version, correlation_id) + _text("raw")
    return struct.pack(">i", len(header) + len(body)) + header + body


def produce_body(topic: str, partition: int, records: bytes, *, acks: int = -1) -> bytes:
    """A Produce of one partition."""
    body = _text(None) + struct.pack(">hii", acks, 30_000, 1) + _text(topic)
    return body + struct.pack(">iii", 1, partition, len(records)) + records


@dataclass(frozen=True, slots=True)
class Produced:
    """The answer to one Produce request of one partition."""

    correlation_id: int
    error: int
    base_offset: int


class AnsweredError(Exception):
    """A request was answered with an error code."""

    def __init__(self, request: str, code: int) -> None:
        super().__init__(f"{request} was answered with error {code}")
        self.code = code


class Connection:
    """One blocking connection. Requests may be sent ahead of reading answers."""

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self._socket = socket.socket()
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(ANSWER_SECONDS_MAX)
        self._socket.connect(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next_id = 0

    def _send(self, key: int, version: int, body: bytes) -> int:
        correlation_id = self._next_id
        self._next_id += 1
        self._socket.sendall(request(key, version, correlation_id, body))
        return correlation_id

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self._socket.recv_into(view, min(len(view), READ_BYTES))
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            view = view[count:]
        return data

    def wait_for_answer(self) -> None:
        """Returns when an answer has begun to come; reads nothing of it."""
        if not self._socket.recv(1, socket.MSG_PEEK):
            raise ConnectionResetError("the broker closed the connection")

    def receive(self) -> tuple[int, memoryview]:
        """(correlation id, body) of the next answer."""
        (size,) = struct.unpack(">i", self._read(4))
        frame = self._read(size)
        return struct.unpack_from(">i", frame)[0], memoryview(frame)[4:]

    def send_produce(self, topic: str, partition: int, records: bytes, *, acks: int = -1) -> int:
        """Sends a request; its answer is read with `receive_produced`."""
        return self._send(
            PRODUCE, PRODUCE_VERSION, produce_body(topic, partition, records, acks=acks)
        )

    def receive_produced(self) -> Produced:
        correlation_id, body = self.receive()
        (name_size,) = struct.unpack_from(">h", body, 4)
        error, base_offset = struct.unpack_from(">hq", body, 4 + 2 + name_size + 4 + 4)
        return Produced(correlation_id, error, base_offset)

    def send_fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int, wait_ms: int = 500
    ) -> int:
        body = struct.pack(">iiiibi", -1, wait_ms, 1, max_bytes, 0, 1) + _text(topic)
        body += struct.pack(">iiqi", 1, partition, offset, max_bytes)
        return self._send(FETCH, 4, body)

    def receive_fetched(self) -> memoryview:
        """The record bytes of the next answer of one partition, the last batch maybe cut."""
        _correlation_id, body = self.receive()
        (name_size,) = struct.unpack_from(">h", body, 8)
        position = 8 + 2 + name_size + 4 + 4
        (error,) = struct.unpack_from(">h", body, position)
        if error:
            raise AnsweredError("Fetch", error)
        (aborted,) = struct.unpack_from(">i", body, position + 18)
        position += 22 + 16 * max(aborted, 0)
        (size,) = struct.unpack_from(">i", body, position)
        return body[position + 4 : position + 4 + max(size, 0)]

    def init_producer_id(self) -> tuple[int, int]:
        """A producer id and its epoch, for an idempotent producer."""
        self._send(INIT_PRODUCER_ID, 1, _text(None) + struct.pack(">i", 60_000))
        _correlation_id, body = self.receive()
        error, producer_id, epoch = struct.unpack_from(">hqh", body, 4)
        if error:
            raise AnsweredError("InitProducerId", error)
        return producer_id, epoch

    def close(self) -> None:
        self._socket.close()


def whole_batches(records: memoryview) -> tuple[int, int]:
    """(bytes of the whole batches, next offset after them; -1 when there is none)."""
    position, following = 0, -1
    while position + BATCH_HEADER.size <= len(records):
        header = BATCH_HEADER.unpack_from(records, position)
        end = position + 12 + header[1]
        if end > len(records):
            break
        position, following = end, header[0] + header[6] + 1
    return position, following
