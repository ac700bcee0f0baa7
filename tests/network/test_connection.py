"""One connection: order, pipelining, bad frames, limits. Handlers are the tests' own."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.broker.handlers.answers import NO_ANSWER, CloseConnection, Pending
from ottla.broker.log.file_slice import FileSlice
from ottla.broker.posix import PosixDisk
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError, ResponseTooLarge
from ottla.protocol.frame import encode_request
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.schema import Message
from tests.log.events import RecordedEvents
from tests.network.served import LIMITS, Parked, serving


def answer_at_once(session: Any, request: Any, version: int) -> ApiVersionsResponse:
    return ApiVersionsResponse()


async def test_answers_keep_the_order_of_requests() -> None:
    parked = Parked()
    async with serving({ApiKey.PRODUCE: parked, ApiKey.API_VERSIONS: answer_at_once}) as served:
        raw = await served.connect()
        raw.send(ProduceRequest(), 9, correlation_id=1)
        raw.send(ProduceRequest(), 9, correlation_id=2)
        raw.send(ApiVersionsRequest(), 0, correlation_id=3)
        await parked.arrived.acquire()
        await parked.arrived.acquire()
        parked.pending[1].complete(ProduceResponse())
        parked.pending[0].complete(ProduceResponse())

        assert [await raw.correlation_id() for _ in range(3)] == [1, 2, 3]
        raw.close()


@pytest.mark.parametrize(
    ("first", "then", "overlap"),
    [
        (ApiKey.PRODUCE, ApiKey.PRODUCE, True),
        (ApiKey.PRODUCE, ApiKey.METADATA, False),
        (ApiKey.METADATA, ApiKey.PRODUCE, False),
        (ApiKey.METADATA, ApiKey.METADATA, False),
    ],
    ids=lambda value: getattr(value, "name", None),
)
async def test_a_request_is_taken_up_when_those_before_it_are_answered(
    first: ApiKey, then: ApiKey, overlap: bool
) -> None:
    """Kafka has one of each connection under way; what it shows includes what was acknowledged."""
    requests: dict[ApiKey, tuple[Message, int, Message]] = {
        ApiKey.PRODUCE: (ProduceRequest(), 9, ProduceResponse()),
        ApiKey.METADATA: (MetadataRequest(), 1, MetadataResponse()),
    }
    parked = {key: Parked() for key in requests}
    async with serving({**parked, ApiKey.API_VERSIONS: answer_at_once}) as served:
        raw, other = await served.connect(), await served.connect()
        raw.send(*requests[first][:2], correlation_id=1)
        raw.send(*requests[then][:2], correlation_id=2)
        raw.send(ApiVersionsRequest(), 0, correlation_id=3)
        await parked[first].arrived.acquire()
        if overlap:
            await parked[then].arrived.acquire()
        other.send(ApiVersionsRequest(), 0)
        await other.frame()  # a turn of the loop or two
        taken = sum(len(one.pending) for one in parked.values())
        assert taken == (2 if overlap else 1)

        parked[first].pending[0].complete(requests[first][2])
        assert await raw.correlation_id() == 1
        if not overlap:
            await parked[then].arrived.acquire()
        parked[then].pending[-1].complete(requests[then][2])
        assert [await raw.correlation_id() for _ in range(2)] == [2, 3]
        for one in (raw, other):
            one.close()


async def test_who_only_ends_its_sending_gets_its_answers() -> None:
    parked = Parked()
    async with serving({ApiKey.METADATA: parked, ApiKey.API_VERSIONS: answer_at_once}) as served:
        raw = await served.connect()
        raw.send(MetadataRequest(), 1, correlation_id=1)
        for correlation_id in range(2, 100):
            raw.send(ApiVersionsRequest(), 0, correlation_id)
        await parked.arrived.acquire()
        raw.writer.write_eof()
        served.server.sweep()
        parked.pending[0].complete(MetadataResponse())

        assert [await raw.correlation_id() for _ in range(1, 100)] == list(range(1, 100))
        assert await raw.closed()
        assert served.server.metrics.closed_by_reason == {}
        raw.close()
        await raw.writer.wait_closed()


async def test_a_connection_whose_last_requests_have_no_answer_ends_with_them() -> None:
    served_acks: list[int] = []

    def produce(session: Any, request: ProduceRequest, version: int) -> Any:
        served_acks.append(request.acks)
        return NO_ANSWER

    async with serving({ApiKey.PRODUCE: produce, ApiKey.API_VERSIONS: answer_at_once}) as served:
        raw = await served.connect()
        for correlation_id in range(3):
            raw.send(ApiVersionsRequest(), 0, correlation_id)
            raw.send(ProduceRequest(acks=0), 9)
        raw.writer.write_eof()

        assert [await raw.correlation_id() for _ in range(3)] == [0, 1, 2]
        assert await raw.closed()
        assert served_acks == [0, 0, 0]
        raw.close()
        await raw.writer.wait_closed()


async def test_who_ends_its_sending_is_not_kept_waiting_for_more() -> None:
    hurried: list[Pending] = []

    class Waiting(Pending):
        __slots__ = ()

        def hurry(self) -> None:
            hurried.append(self)
            self.complete(MetadataResponse())

    handlers: dict[ApiKey, Callable[..., Any]] = {
        ApiKey.METADATA: lambda *_: Waiting(),
        ApiKey.API_VERSIONS: answer_at_once,
    }
    async with serving(handlers) as served:
        raw = await served.connect()
        for correlation_id in range(3):
            raw.send(MetadataRequest(), 1, correlation_id)
        raw.writer.write_eof()
        async with asyncio.timeout(10):
            while not hurried:  # not read from: a sweep finds it
                served.server.sweep()
                await asyncio.sleep(0)

        assert [await raw.correlation_id() for _ in range(3)] == [0, 1, 2]
        assert await raw.closed()
        assert len(hurried) == 3
        raw.close()
        await raw.writer.wait_closed()


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_came_before_the_request_that_ends_a_connection_is_answered(
    at_once: bool,
) -> None:
    parked = Parked()
    handle = parked if not at_once else lambda *_: ProduceResponse()
    handlers: dict[ApiKey, Callable[..., Any]] = {
        ApiKey.PRODUCE: handle,
        ApiKey.API_VERSIONS: answer_at_once,
    }
    async with serving(handlers) as served:
        raw = await served.connect()
        raw.send(ApiVersionsRequest(), 0, correlation_id=1)
        raw.send(ProduceRequest(), 9, correlation_id=2)
        raw.writer.write(struct.pack(">ihhih", 10, 9999, 0, 3, -1))
        raw.send(ApiVersionsRequest(), 0, correlation_id=4)
        if not at_once:
            await parked.arrived.acquire()
            parked.pending[0].complete(ProduceResponse())

        assert [await raw.correlation_id() for _ in range(2)] == [1, 2]
        assert await raw.closed()
        assert served.server.metrics.closed_by_reason == {"protocol_error": 1}
        raw.close()
        await raw.writer.wait_closed()


async def test_an_answer_that_ends_a_connection_lets_those_before_it_leave() -> None:
    parked = Parked()
    async with serving({ApiKey.PRODUCE: parked}) as served:
        raw = await served.connect()
        for correlation_id in range(3):
            raw.send(ProduceRequest(), 9, correlation_id)
        for _ in range(3):
            await parked.arrived.acquire()
        first, ends, behind = parked.pending
        assert ends.line is not None
        ends.line.refused(ends, CloseConnection("acks=0 failed"))
        assert behind.abandoned
        first.complete(ProduceResponse())

        assert await raw.correlation_id() == 0
        assert await raw.closed()
        raw.close()
        await raw.writer.wait_closed()


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ValueError(), "unwritable_answer"), (ResponseTooLarge("Produce", 1), "response_too_large")],
)
async def test_an_answer_that_cannot_be_written_lets_those_before_it_leave(
    error: Exception, reason: str
) -> None:
    parked = Parked()
    async with serving({ApiKey.PRODUCE: parked}) as served:
        entry = served.server.table[int(ApiKey.PRODUCE)]
        encode = entry.encoders[9]

        def encode_or_fail(correlation_id: int, response: Any) -> Any:
            if correlation_id == 1:
                raise error
            return encode(correlation_id, response)

        entry.encoders = cast(Any, {9: encode_or_fail})
        raw = await served.connect()
        for correlation_id in range(4):
            raw.send(ProduceRequest(), 9, correlation_id)
        for _ in range(4):
            await parked.arrived.acquire()
        first, unwritable, ready, behind = parked.pending
        ready.complete(ProduceResponse())
        unwritable.complete(ProduceResponse())
        first.complete(ProduceResponse())

        assert await raw.correlation_id() == 0
        assert await raw.closed()
        assert [one.abandoned for one in parked.pending] == [False, False, False, True]
        assert behind.line is None
        assert served.server.metrics.closed_by_reason == {reason: 1}
        raw.close()
        await raw.writer.wait_closed()


@pytest.mark.parametrize("size", [100, 100_000])
async def test_a_send_that_fails_by_no_peer_is_told(size: int, tmp_path: Path) -> None:
    path = tmp_path / "slice"
    path.write_bytes(bytes(size))
    file = PosixDisk().open(str(path))
    file.close()

    def fetch(session: Any, request: Any, version: int) -> FetchResponse:
        part = FetchResponse.PartitionData(records=FileSlice(file, 0, size))
        return FetchResponse(
            responses=[FetchResponse.FetchableTopicResponse("t", partitions=[part])]
        )

    async with serving({ApiKey.FETCH: fetch}) as served:
        events = served.server.events = RecordedEvents()
        raw = await served.connect()
        raw.send(FetchRequest(), 12)

        with suppress(ConnectionError):
            assert len(await asyncio.wait_for(raw.reader.read(), 10)) < 100  # of its headers
        assert events.fields("answer_not_sent") == {"peer": raw.name, "reason": "EBADF"}
        assert served.server.metrics.closed_by_reason == {"send_failed": 1}
        raw.close()
        await raw.writer.wait_closed()


async def test_while_an_answer_is_refused_another_may_turn_out_to_be_unwritable() -> None:
    waiting: list[Pending] = []

    class Ties(Pending):
        def on_abandoned(self) -> None:
            waiting[0].complete(ProduceResponse(throttle_time_ms=1 << 40))

    def park(*_: Any) -> Pending:
        waiting.append(Ties() if len(waiting) == 2 else Pending())
        return waiting[-1]

    async with serving({ApiKey.PRODUCE: park}) as served:
        raw = await served.connect()
        for correlation_id in range(3):
            raw.send(ProduceRequest(), 9, correlation_id)
        await until(lambda: len(waiting) == 3)
        line = waiting[1].line
        assert line is not None
        line.refused(waiting[1], CloseConnection("acks=0 failed"))

        assert await raw.closed()
        assert [one.abandoned for one in waiting] == [False, False, True]
        raw.close()
        await raw.writer.wait_closed()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


async def test_who_is_abandoned_may_complete_another_of_the_connection() -> None:
    waiting: list[Pending] = []

    class Ties(Pending):
        def on_abandoned(self) -> None:
            waiting[1].complete(ProduceResponse())

    def park(*_: Any) -> Pending:
        waiting.append(Pending() if waiting else Ties())
        return waiting[-1]

    async with serving({ApiKey.PRODUCE: park}) as served:
        raw = await served.connect()
        raw.send(ProduceRequest(), 9, 0)
        raw.send(ProduceRequest(), 9, 1)
        await until(lambda: len(waiting) == 2)
        raw.reset()
        await until(lambda: served.server.connections == [])

        assert [one.abandoned for one in waiting] == [True, False]
        assert served.fatal == []


async def test_a_frame_may_come_byte_by_byte_and_many_in_one_segment() -> None:
    async with serving({ApiKey.API_VERSIONS: answer_at_once}) as served:
        raw = await served.connect()
        for correlation_id in range(1000):
            raw.send(ApiVersionsRequest(), 0, correlation_id)
        assert [await raw.correlation_id() for _ in range(1000)] == list(range(1000))

        frame = struct.pack(">ihhih", 10, 18, 0, 77, -1)
        for byte in frame:
            raw.writer.write(bytes([byte]))
            await raw.writer.drain()
            await asyncio.sleep(0)
        assert await raw.correlation_id() == 77
        raw.close()


@pytest.mark.parametrize("turns", range(4))
async def test_who_connects_as_the_server_stops_is_closed(turns: int) -> None:
    """On the standard loop it is accepted in the turn of the stop with 2, before it with 3."""
    with ExitStack() as held:
        async with serving({}) as served:
            raw = await served.connect()
            late = held.enter_context(socket.create_connection(("127.0.0.1", served.port)))
            for _ in range(turns):
                await asyncio.sleep(0)
            raw.close()
        late.setblocking(False)
        with suppress(ConnectionError):
            received = asyncio.get_running_loop().sock_recv(late, 1)
            assert await asyncio.wait_for(received, 10) == b""


async def test_a_handler_that_awaits_keeps_its_place() -> None:
    gate = asyncio.Event()

    async def slow(session: Any, request: Any, version: int) -> MetadataResponse:
        await gate.wait()
        return MetadataResponse()

    async with serving({ApiKey.METADATA: slow, ApiKey.API_VERSIONS: answer_at_once}) as served:
        raw = await served.connect()
        raw.send(MetadataRequest(), 1, correlation_id=1)
        raw.send(ApiVersionsRequest(), 0, correlation_id=2)
        gate.set()

        assert [await raw.correlation_id() for _ in range(2)] == [1, 2]
        raw.close()


async def test_no_answer_takes_no_place() -> None:
    def silent(session: Any, request: Any, version: int) -> Any:
        return NO_ANSWER

    async with serving({ApiKey.PRODUCE: silent, ApiKey.API_VERSIONS: answer_at_once}) as served:
        raw = await served.connect()
        raw.send(ProduceRequest(acks=0), 9, correlation_id=1)
        raw.send(ApiVersionsRequest(), 0, correlation_id=2)

        assert await raw.correlation_id() == 2
        raw.close()


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 3),
        struct.pack(">i", LIMITS.max_request_size + 1),
        b"GET / HTTP/1.1\r\n\r\n",
        bytes.fromhex("16030102000100"),
        struct.pack(">ihhih", 10, 4, 0, 1, -1),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, -1, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 14, 1, -1),
        struct.pack(">ihhih", 10, 3, -1, 1, -1),
        struct.pack(">ihhih", 10, 3, 0, 1, 500),
        struct.pack(">ihhihi", 14, 3, 0, 1, -1, 2**31 - 1),
    ],
)
async def test_what_cannot_be_read_ends_that_connection_only(sent: bytes) -> None:
    def metadata(session: Any, request: Any, version: int) -> MetadataResponse:
        return MetadataResponse()

    async with serving({ApiKey.METADATA: metadata, ApiKey.API_VERSIONS: answer_at_once}) as served:
        other = await served.connect()
        raw = await served.connect()
        raw.writer.write(sent)

        assert await raw.closed()
        other.send(ApiVersionsRequest(), 0, correlation_id=5)
        assert await other.correlation_id() == 5
        other.close()
        raw.close()


@pytest.mark.parametrize("version", [99, -1])
async def test_an_unknown_api_versions_version_is_answered_in_version_0(version: int) -> None:
    async with serving({ApiKey.API_VERSIONS: answer_at_once}) as served:
        raw = await served.connect()
        raw.writer.write(struct.pack(">ihhihb", 11, 18, version, 6, -1, 0))
        frame = await raw.frame()

        assert frame == bytes.fromhex("00000006 0023 00000001 0012 0000 0004")
        raw.close()


async def test_a_handler_that_fails_is_answered_and_told() -> None:
    def broken(session: Any, request: Any, version: int) -> Any:
        raise RuntimeError("a bug of ours")

    def refused(session: Any, request: Any, version: int) -> Any:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)

    async with serving({ApiKey.API_VERSIONS: broken}) as served:
        raw = await served.connect()
        raw.send(ApiVersionsRequest(), 0, correlation_id=1)
        frame = await raw.frame()

        assert struct.unpack_from(">ih", frame) == (1, -1)
        assert served.server.metrics.handler_errors == 1
        raw.close()
    async with serving({ApiKey.API_VERSIONS: refused}) as served:
        raw = await served.connect()
        raw.send(ApiVersionsRequest(), 0, correlation_id=1)

        assert struct.unpack_from(">ih", await raw.frame()) == (1, 44)
        raw.close()


@pytest.mark.parametrize("at_once", [True, False])
async def test_an_answer_that_its_message_cannot_hold_ends_that_connection_only(
    at_once: bool,
) -> None:
    too_long = ProduceResponse.PartitionProduceResponse(error_message="x" * 40_000)
    answer = ProduceResponse(
        [ProduceResponse.TopicProduceResponse("t", partition_responses=[too_long])]
    )

    def produce(session: Any, request: Any, version: int) -> Any:
        async def later() -> ProduceResponse:
            return answer

        return answer if at_once else later()

    async with serving({ApiKey.PRODUCE: produce, ApiKey.API_VERSIONS: answer_at_once}) as served:
        other, raw = await served.connect(), await served.connect()
        raw.send(ProduceRequest(), 9)

        assert await raw.closed()
        other.send(ApiVersionsRequest(), 0, correlation_id=5)
        assert await other.correlation_id() == 5
        assert served.server.metrics.handler_errors == 1
        assert served.fatal == []
        other.close()
        raw.close()


async def test_behind_an_answer_that_could_not_be_sent_none_is() -> None:
    """The client would take it for the answer to the first of its requests."""
    too_long = ProduceResponse.PartitionProduceResponse(error_message="x" * 40_000)
    topic = ProduceResponse.TopicProduceResponse("t", partition_responses=[too_long])
    served_versions: list[int] = []

    def answer_later(session: Any, request: Any, version: int) -> ApiVersionsResponse:
        served_versions.append(version)
        return ApiVersionsResponse()

    handlers: dict[ApiKey, Callable[..., Any]] = {
        ApiKey.PRODUCE: lambda *_: ProduceResponse([topic]),
        ApiKey.API_VERSIONS: answer_later,
    }
    async with serving(handlers) as served:
        raw = await served.connect()
        both, _ = encode_request(ProduceRequest(), 9, correlation_id=1, client_id="raw")
        behind, _ = encode_request(ApiVersionsRequest(), 0, correlation_id=2, client_id="raw")
        (one,) = served.server.connections
        # A turn's end is due already, as where another connection has answered in this turn.
        one.buffer_updated(_fill(one.get_buffer(-1), both + behind))
        assert one._outbox is not None
        one._outbox.schedule()

        assert await raw.closed()
        assert served_versions == []
        assert not one.hung_up()
        raw.close()


def _fill(buffer: memoryview, data: bytearray) -> int:
    buffer[: len(data)] = data
    return len(data)


async def test_a_broken_invariant_ends_the_broker() -> None:
    def broken(session: Any, request: Any, version: int) -> Any:
        raise AssertionError("two and two are five")

    async with serving({ApiKey.API_VERSIONS: broken}) as served:
        raw = await served.connect()
        raw.send(ApiVersionsRequest(), 0)

        assert await raw.closed()
        assert len(served.fatal) == 1
        raw.close()


async def test_a_request_may_end_its_connection() -> None:
    def refuse(session: Any, request: Any, version: int) -> Any:
        raise CloseConnection("as Kafka does")

    async with serving({ApiKey.PRODUCE: refuse}) as served:
        raw = await served.connect()
        raw.send(ProduceRequest(acks=0), 9)

        assert await raw.closed()
        raw.close()


async def test_a_parked_request_is_abandoned_with_its_connection() -> None:
    abandoned = asyncio.Event()

    class Tracked(Pending):
        __slots__ = ()

        def on_abandoned(self) -> None:
            abandoned.set()

    def park(session: Any, request: Any, version: int) -> Pending:
        return Tracked()

    async with serving({ApiKey.METADATA: park}) as served:
        raw = await served.connect()
        raw.send(MetadataRequest(), 1)
        await raw.writer.drain()
        raw.reset()

        await asyncio.wait_for(abandoned.wait(), 5)
        assert served.server.connections == []


async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    served_count = 0

    def large(session: Any, request: Any, version: int) -> ProduceResponse:
        nonlocal served_count
        served_count += 1
        part = ProduceResponse.PartitionProduceResponse(error_message="x" * 30_000)
        return ProduceResponse(
            [ProduceResponse.TopicProduceResponse("t", partition_responses=[part])]
        )

    async with serving({ApiKey.PRODUCE: large}) as served:
        raw = await served.connect()
        for number in range(1000):
            raw.send(ProduceRequest(), 9, number)
        await raw.correlation_id()
        connection = served.server.connections[0]
        async with asyncio.timeout(10):
            while "paused" not in repr(connection):
                await asyncio.sleep(0)
        assert served_count < 1000

        assert [await raw.correlation_id() for _ in range(999)] == list(range(1, 1000))
        assert served_count == 1000
        raw.close()


async def test_connections_above_the_limit_are_closed() -> None:
    limits = dataclasses.replace(LIMITS, max_connections=2)
    async with serving({ApiKey.API_VERSIONS: answer_at_once}, limits) as served:
        first, second = await served.connect(), await served.connect()
        for raw in (first, second):
            raw.send(ApiVersionsRequest(), 0)
            await raw.frame()
        third = await served.connect()

        assert await third.closed()
        for raw in (first, second, third):
            raw.close()


async def test_unfinished_frames_over_the_budget_are_shed() -> None:
    limits = dataclasses.replace(LIMITS, held_bytes_max=100_000)
    async with serving({ApiKey.API_VERSIONS: answer_at_once}, limits) as served:
        raws = [await served.connect() for _ in range(4)]
        for raw in raws:
            raw.writer.write(struct.pack(">i", 500_000) + bytes(60_000))
            await raw.writer.drain()
        async with asyncio.timeout(10):
            while served.server.held_bytes < 240_000:
                await asyncio.sleep(0)
        served.server.sweep()

        assert served.server.held_bytes <= 100_000
        for raw in raws:
            raw.close()


async def test_who_is_refused_is_told_by_address_listener_and_a_plain_reason() -> None:
    events = RecordedEvents()
    async with serving({ApiKey.API_VERSIONS: answer_at_once}) as served:
        served.server.events = events
        raw = await served.connect()
        _, port = raw.writer.get_extra_info("sockname")
        raw.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await raw.closed()
        raw.close()

    assert events.fields("connection_closed") == {
        "peer": f"127.0.0.1:{port}",
        "listener": "PLAINTEXT",
        "reason": "this is HTTP, and the listener speaks Kafka's protocol",
    }
