"""Peers that are busy, and a process that is short of descriptors."""

from __future__ import annotations

import asyncio
import errno
import socket
from time import perf_counter
from typing import Any

import pytest

from ottla.broker.handlers.answers import NO_ANSWER, Pending
from ottla.broker.network import connection
from ottla.broker.network.connection import (
    FRAME_SECONDS,
    HELD_BYTES_MAX,
    PARTITION_ANSWER_BYTES,
    TURN_SECONDS,
)
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import encode_request
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.network.served import Parked, serving


def answer_at_once(session: Any, request: Any, version: int) -> ApiVersionsResponse:
    return ApiVersionsResponse()


class Holding(Parked):
    """A handler whose answers hold 3,000 bytes each until the test gives them."""

    def __call__(self, session: Any, request: Any, version: int) -> Pending:
        pending = super().__call__(session, request, version)
        pending.held_bytes = 3_000
        return pending


async def test_a_frame_is_always_open_on_a_busy_connection() -> None:
    loop = asyncio.get_running_loop()
    frame, _ = encode_request(ApiVersionsRequest(), 0, correlation_id=1, client_id="busy")
    middle = len(frame) // 2
    async with serving({ApiKey.API_VERSIONS: answer_at_once}) as served:
        raw = await served.connect()
        raw.writer.write(frame[:middle])
        for _ in range(200):
            before_s = loop.time()
            raw.writer.write(frame[middle:] + frame[:middle])
            assert await raw.correlation_id() == 1
        (busy,) = served.server.connections

        assert not busy.overdue(before_s + FRAME_SECONDS)
        assert busy.overdue(loop.time() + FRAME_SECONDS + 1)
        raw.close()


async def test_a_connection_without_a_descriptor_for_its_answers_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left(descriptor: int) -> int:
        raise OSError(errno.EMFILE, "no descriptor is left")

    async with serving({ApiKey.API_VERSIONS: answer_at_once}) as served:
        with monkeypatch.context() as patch:
            patch.setattr(socket, "dup", none_left)
            raw = await served.connect()
            raw.send(ApiVersionsRequest(), 0, 1)
            assert await raw.closed()
            raw.close()
        assert served.server.connections == []
        assert served.fatal == []

        raw = await served.connect()
        raw.send(ApiVersionsRequest(), 0, 2)
        assert await raw.correlation_id() == 2
        raw.close()


@pytest.mark.interpreted  # sets a constant, which compiled code has in itself
async def test_who_sends_more_than_workers_take_is_not_read_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "HELD_BYTES_MAX", 10_000)
    hold = Holding()
    waiting = hold.pending
    async with serving({ApiKey.PRODUCE: hold, ApiKey.API_VERSIONS: answer_at_once}) as served:
        raw = await served.connect()
        for number in range(20):
            raw.send(ProduceRequest(), 9, number)
        await until(waiting, 4)
        beside = await served.connect()  # a round trip later nothing more was taken
        beside.send(ApiVersionsRequest(), 0, 1)
        assert await beside.correlation_id() == 1
        beside.close()
        assert len(waiting) == 4

        for number in range(20):  # an answer that is none, as for acks=0, makes room, too
            await until(waiting, number + 1)
            waiting[number].complete(NO_ANSWER)
        assert len(waiting) == 20
        raw.close()


async def test_answers_that_wait_for_those_before_them_are_few() -> None:
    """Such an answer is larger than its request, which names partitions that are not there."""
    asked: list[int] = []

    def produce(session: Any, request: ProduceRequest, version: int) -> Any:
        asked.append(len(request.topic_data))
        return Pending() if len(asked) == 1 else ProduceResponse()

    parts = [ProduceRequest.PartitionProduceData(9, memoryview(b"")) for _ in range(10_000)]
    topic = ProduceRequest.TopicProduceData("t", partition_data=parts)
    async with serving({ApiKey.PRODUCE: produce, ApiKey.API_VERSIONS: answer_at_once}) as served:
        raw, beside = await served.connect(), await served.connect()
        raw.send(ProduceRequest(), 9)
        for _ in range(20):
            raw.send(ProduceRequest(topic_data=[topic]), 9)
        (one,) = (each for each in served.server.connections if each.peer == raw.name)
        async with asyncio.timeout(10):
            while not one._paused:
                await asyncio.sleep(0)
        beside.send(ApiVersionsRequest(), 0, 1)
        assert await beside.correlation_id() == 1
        assert len(asked) == 1 + HELD_BYTES_MAX // (PARTITION_ANSWER_BYTES * 10_000) + 1
        for each in (raw, beside):
            each.close()


async def test_a_client_that_pipelines_has_a_small_buffer_however_long_it_goes_on() -> None:
    """Nothing is read while whole frames are left, one of which is taken up with each answer."""
    parked = Parked()
    async with serving({ApiKey.METADATA: parked}) as served:
        raw = await served.connect()
        (one,) = served.server.connections
        for number in range(20_000):
            raw.send(MetadataRequest(), 1, number)
        for number in range(200):
            await parked.arrived.acquire()
            parked.pending[number].complete(MetadataResponse())
            assert await raw.correlation_id() == number
        assert len(one._frames._buffer) <= 64 * 1024
        raw.reset()


@pytest.mark.interpreted  # sets a constant, which compiled code has in itself
async def test_what_a_request_comes_to_hold_later_makes_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch that is copied behind its coordinator's answer was none when it was counted."""
    monkeypatch.setattr(connection, "HELD_BYTES_MAX", 10_000)
    hold = Holding()
    waiting = hold.pending
    async with serving({ApiKey.PRODUCE: hold}) as served:
        raw = await served.connect()
        (one,) = served.server.connections
        for number in range(10):
            raw.send(ProduceRequest(), 9, number)
            await until(waiting, number + 1)
            waiting[number].held_bytes += 3_000
            waiting[number].complete(NO_ANSWER)

        assert one._line_bytes == 0
        raw.close()


async def until(waiting: list[Pending], count: int) -> None:
    async with asyncio.timeout(5):
        while len(waiting) < count:
            await asyncio.sleep(0)


async def test_who_asks_for_no_answers_holds_up_nobody() -> None:
    many = 400
    acks: list[int] = []

    def produce(session: Any, request: ProduceRequest, version: int) -> Any:
        acks.append(request.acks)
        ends_s = perf_counter() + TURN_SECONDS / 4
        while perf_counter() < ends_s:
            pass
        return ProduceResponse() if request.acks else NO_ANSWER

    async with serving({ApiKey.PRODUCE: produce}) as served:
        greedy, waiting = await served.connect(), await served.connect()
        # What is large leaves room for all that is small behind it.
        greedy.send(ProduceRequest("x" * 32_000, acks=0), 7)
        for number in range(1, many):
            greedy.send(ProduceRequest(acks=0), 7, number)
        for number in range(8):
            before = len(acks)
            waiting.send(ProduceRequest(acks=1), 7, number)
            assert await waiting.correlation_id() == number
            assert len(acks) - before < many // 8

        greedy.send(ProduceRequest(acks=1), 7, many)
        assert await greedy.correlation_id() == many
        assert acks.count(0) == many
        for raw in (greedy, waiting):
            raw.close()
        assert served.fatal == []
