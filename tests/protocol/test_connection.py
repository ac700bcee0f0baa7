"""Frames out of bytes that come in any pieces, and responses in the order of requests."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.api import SERVED, ApiKey
from ottla.protocol.connection import (
    BUFFER_SIZE_SMALL,
    SMALL_READS_BEFORE_SHRINK,
    ClientConnection,
    ServerConnection,
)
from ottla.protocol.errors import ProtocolError
from ottla.protocol.frame import response_encoder
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse

LIMIT = 1_000_000


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def frame_of(size: int, mark: int = 0) -> bytes:
    return framed(bytes((mark + i) & 0xFF for i in range(size)))


def feed(connection: ServerConnection, data: bytes) -> int:
    """As much of `data` as the connection takes in one read."""
    buffer = connection.get_buffer(-1)
    assert len(buffer) > 0
    count = min(len(buffer), len(data))
    buffer[:count] = data[:count]
    connection.received(count)
    return count


def all_frames(connection: ServerConnection, data: bytes) -> list[bytes]:
    frames = []
    while data:
        data = data[feed(connection, data) :]
        while (frame := connection.next_frame()) is not None:
            frames.append(bytes(frame))
    return frames


def buffer_size(connection: ServerConnection) -> int:
    return int(repr(connection).rpartition("buffer=")[2].rstrip(">"))


@settings(max_examples=60, deadline=None, database=None)
@given(
    sizes=st.lists(
        st.one_of(st.integers(8, 300), st.integers(BUFFER_SIZE_SMALL - 8, 70_000)), max_size=12
    ),
    pieces=st.lists(st.integers(1, 40_000), min_size=1, max_size=20),
)
def test_frames_are_whole_however_they_arrive(sizes: list[int], pieces: list[int]) -> None:
    contents = [frame_of(size, mark)[4:] for mark, size in enumerate(sizes)]
    stream = b"".join(framed(content) for content in contents)
    connection = ServerConnection(LIMIT)
    found, turn = [], 0
    while stream:
        piece = pieces[turn % len(pieces)]
        turn += 1
        stream = stream[feed(connection, stream[:piece]) :]
        while (frame := connection.next_frame()) is not None:
            found.append(bytes(frame))

    assert found == contents


def test_a_frame_is_a_writable_view_without_its_length() -> None:
    connection = ServerConnection(LIMIT)
    feed(connection, framed(b"12345678"))
    frame = connection.next_frame()
    assert frame is not None
    frame[0] = ord("x")

    assert bytes(frame) == b"x2345678"
    assert connection.next_frame() is None


def test_pipelined_frames_come_out_of_one_read() -> None:
    connection = ServerConnection(LIMIT)
    feed(connection, frame_of(8, 1) + frame_of(9, 2) + frame_of(10, 3)[:6])

    assert [len(frame) for frame in iter(connection.next_frame, None)] == [8, 9]


@pytest.mark.parametrize("length", [-1, 0, 3, 7, LIMIT + 1, 2**31 - 1])
def test_a_bad_length_is_refused(length: int) -> None:
    connection = ServerConnection(LIMIT)
    feed(connection, struct.pack(">i", length))
    with pytest.raises(ProtocolError, match=f"frame of {length} bytes"):
        connection.next_frame()


@pytest.mark.parametrize(
    ("hello", "reason"), [(b"GET / HTTP/1.1\r\n", "HTTP"), (b"\x16\x03\x01\x02\x00\x01", "TLS")]
)
def test_other_protocols_are_named(hello: bytes, reason: str) -> None:
    connection = ServerConnection(104_857_600)
    feed(connection, hello)
    with pytest.raises(ProtocolError, match=reason):
        connection.next_frame()


def test_the_largest_length_is_waited_for_and_allocates_nothing() -> None:
    connection = ServerConnection(LIMIT)
    feed(connection, struct.pack(">i", LIMIT))

    assert connection.next_frame() is None
    assert len(connection.get_buffer()) <= BUFFER_SIZE_SMALL


def test_the_buffer_grows_only_with_bytes_that_came() -> None:
    connection = ServerConnection(LIMIT)
    data = frame_of(LIMIT)
    came = 0
    while came < len(data):
        came += feed(connection, data[came : came + 5000])
        assert buffer_size(connection) <= max(BUFFER_SIZE_SMALL, 2 * came)
    frame = connection.next_frame()

    assert frame is not None
    assert bytes(frame) == data[4:]
    assert buffer_size(connection) == len(data)


def test_a_large_frame_is_not_read_beyond_its_end() -> None:
    """So the next one begins at the front, and nothing is moved."""
    connection = ServerConnection(LIMIT)
    all_frames(connection, frame_of(200_000))
    feed(connection, frame_of(150_000)[:1000])

    assert len(connection.get_buffer()) == 150_004 - 1000


def test_small_frames_give_a_large_buffer_back() -> None:
    connection = ServerConnection(LIMIT)
    all_frames(connection, frame_of(200_000))
    assert buffer_size(connection) > BUFFER_SIZE_SMALL
    for _ in range(SMALL_READS_BEFORE_SHRINK + 1):
        all_frames(connection, frame_of(100))

    assert buffer_size(connection) == BUFFER_SIZE_SMALL


def test_an_idle_connection_holds_no_buffer() -> None:
    connection = ServerConnection(LIMIT)
    all_frames(connection, frame_of(100))
    connection.shrink()
    assert buffer_size(connection) == 0
    feed(connection, frame_of(100)[:50])
    connection.shrink()

    assert all_frames(connection, frame_of(100)[50:]) == [frame_of(100)[4:]]


def test_detached_frames_stay_valid() -> None:
    connection = ServerConnection(LIMIT)
    feed(connection, frame_of(100, 1) + frame_of(100, 2)[:40])
    frame = connection.next_frame()
    assert frame is not None
    connection.detach()

    assert all_frames(connection, frame_of(100, 2)[40:]) == [frame_of(100, 2)[4:]]
    assert bytes(frame) == frame_of(100, 1)[4:]


def test_frames_left_in_the_buffer_do_not_stop_reading() -> None:
    """A caller that holds back still gets room for more bytes."""
    connection = ServerConnection(LIMIT)
    stream = frame_of(5000) * 20
    rest = stream
    while rest:
        rest = rest[feed(connection, rest) :]

    assert [len(frame) for frame in iter(connection.next_frame, None)] == [5000] * 20


def answer(key: ApiKey, version: int, correlation_id: int, message: object) -> bytes:
    frame, _ = response_encoder(SERVED[key], version)(correlation_id, message)  # type: ignore[arg-type]
    return bytes(frame)


def test_a_client_matches_responses_to_requests() -> None:
    client = ClientConnection("me")
    client.send(ApiVersionsRequest("ottla", "1"), 3)
    client.send(MetadataRequest(), 12)
    data = answer(ApiKey.API_VERSIONS, 3, 0, ApiVersionsResponse(throttle_time_ms=4))
    data += answer(ApiKey.METADATA, 12, 1, MetadataResponse(cluster_id="c"))
    client.receive(data[:9])
    assert client.next_response() is None
    client.receive(data[9:])
    first, second = client.next_response(), client.next_response()

    assert first is not None
    assert first.message == ApiVersionsResponse(throttle_time_ms=4)
    assert second is not None
    assert (second.correlation_id, second.message) == (1, MetadataResponse(cluster_id="c"))
    assert client.next_response() is None
    assert client.pending_count == 0


def test_a_client_reads_the_answer_to_an_unknown_api_versions_version() -> None:
    client = ClientConnection("me")
    client.send(ApiVersionsRequest("ottla", "1"), 4)
    refusal = ApiVersionsResponse(35, [ApiVersionsResponse.ApiVersion(18, 0, 3)])
    client.receive(answer(ApiKey.API_VERSIONS, 0, 0, refusal))
    response = client.next_response()

    assert response is not None
    assert response.message == refusal


def test_a_client_refuses_a_response_out_of_order() -> None:
    client = ClientConnection(None)
    client.send(MetadataRequest(), 12)
    client.receive(answer(ApiKey.METADATA, 12, 5, MetadataResponse()))
    with pytest.raises(ProtocolError, match="response 5"):
        client.next_response()


def test_a_client_refuses_a_response_that_is_cut_off() -> None:
    for content in (b"\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\x00"):
        client = ClientConnection(None)
        client.send(MetadataRequest(), 12)
        client.receive(framed(content))
        with pytest.raises(ProtocolError):
            client.next_response()


def test_a_request_without_response_is_not_waited_for() -> None:
    client = ClientConnection(None)
    client.send(MetadataRequest(), 12, expects_response=False)

    assert client.pending_count == 0
