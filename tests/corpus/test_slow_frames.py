"""Row 3: frames that begin and do not come cost no more than what came, and end in time.

The loop's clock is moved on by hand; the broker, its sockets and its sweep are real.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.broker.replication.replicas import Partition
from ottla.client.connection import Connection
from ottla.protocol.frame import encode_request
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.topics import CreateTopicsRequest
from ottla.testing.embedded import Broker
from tests.broker.small_client import client_of
from tests.corpus.memory import MIB, growth_at_most
from tests.network.served import Raw

DECLARED = struct.pack(">i", 99 << 20)
FRAME_SECONDS = 30
IDLE_MS = 600_000
LARGE_BATCHES = 64
"""Of half a megabyte: more than the sockets of one connection hold."""


class LateLoop(asyncio.SelectorEventLoop):
    """The standard loop, later by `late_s` than it is."""

    late_s = 0.0

    def time(self) -> float:
        return super().time() + self.late_s


class House:
    """A broker on such a loop."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.port = int(broker.bootstrap_servers.rpartition(":")[2])
        self.server = broker.running.server

    async def connect(self) -> Raw:
        return Raw(*await asyncio.open_connection("127.0.0.1", self.port))

    async def received(self, count: int) -> None:
        """Waits until the broker has read that many bytes in all."""
        while self.server.metrics.received_bytes < count:
            await asyncio.sleep(0)

    async def read(self) -> None:
        """Waits until no connection that is read from has a part of a frame."""
        while any(one._frames.buffered and not one._paused for one in self.server.connections):
            await asyncio.sleep(0)

    def partition(self, topic: str) -> Partition:
        found = self.broker.running.replicas.get(topic, 0)
        assert found is not None
        return found

    def unsent(self) -> int:
        """What the broker has not handed to the kernel yet, of all answers."""
        return sum(one._unsent for one in self.server.connections)

    def later(self, seconds: float) -> None:
        """Moves the clock on, and lets the sweep see it."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, LateLoop)
        loop.late_s += seconds
        self.server.sweep()


Scenario = Callable[[House], Coroutine[Any, Any, None]]


def run(scenario: Scenario) -> None:
    async def main() -> None:
        async with Broker(config={"connections.max.idle.ms": IDLE_MS}) as broker:
            await scenario(House(broker))
            assert broker.running.server.metrics.handler_errors == 0
            assert not broker.running.failed.done()

    with asyncio.Runner(loop_factory=LateLoop) as runner:
        runner.run(main())


def test_frames_that_never_come_are_ended() -> None:
    async def scenario(house: House) -> None:
        slow = [await house.connect() for _ in range(100)]
        with growth_at_most(24 * MIB):
            for raw in slow:
                raw.writer.write(DECLARED + bytes(1000))
            await house.received(100 * 1004)
            assert house.server.held_bytes == 100 * 1004
        house.later(FRAME_SECONDS - 1)
        assert len(house.server.connections) == 100
        house.later(2)

        for raw in slow:
            assert await raw.closed()
        assert house.server.metrics.closed_by_reason == {"slow_frame": 100}
        assert house.server.held_bytes == 0
        for raw in slow:
            raw.close()

    run(scenario)


@pytest.mark.parametrize("begun", [b"\0", b"\0\0\0", DECLARED])
def test_a_length_alone_is_a_frame_that_has_begun(begun: bytes) -> None:
    async def scenario(house: House) -> None:
        raw = await house.connect()
        raw.writer.write(begun)
        await house.received(len(begun))
        house.later(FRAME_SECONDS + 1)

        assert await raw.closed()
        raw.close()

    run(scenario)


def test_a_frame_that_comes_at_a_rate_has_its_time() -> None:
    async def scenario(house: House) -> None:
        raw = await house.connect()
        sent = 0
        raw.writer.write(DECLARED)
        for _ in range(4):
            raw.writer.write(bytes(20 * 65536))
            sent += 20 * 65536
            await house.received(sent)
            house.later(20)
            assert len(house.server.connections) == 1

        house.later(FRAME_SECONDS + 1)
        assert await raw.closed()
        raw.close()

    run(scenario)


def test_a_busy_connection_whose_last_frame_is_never_whole_goes_on() -> None:
    async def scenario(house: House) -> None:
        raw = await house.connect()
        frame, _ = encode_request(ApiVersionsRequest(), 0, correlation_id=7, client_id=None)
        raw.writer.write(frame[:6])
        for _ in range(8):
            raw.writer.write(frame[6:] + frame[:6])
            assert await raw.correlation_id() == 7
            house.later(FRAME_SECONDS - 5)

        assert len(house.server.connections) == 1
        raw.close()

    run(scenario)


def test_requests_that_wait_behind_parked_ones_are_not_slow() -> None:
    async def scenario(house: House) -> None:
        client = await Connection.open("127.0.0.1", house.port)
        topic = CreateTopicsRequest.CreatableTopic("parked", 1, 1)
        await client.request(CreateTopicsRequest([topic]), 7)
        await client.close()
        raw = await house.connect()
        wanted = FetchRequest.FetchTopic("parked", partitions=[FetchRequest.FetchPartition(0)])
        parked = FetchRequest(max_wait_ms=40_000, min_bytes=1, topics=[wanted])
        for number in range(10):
            raw.send(parked, 12, number)
        waiters = house.partition("parked").fetch_waiters
        for number in range(10):
            while not waiters or (number < 9 and "paused" not in repr(house.server.connections)):
                await asyncio.sleep(0)
            house.later(FRAME_SECONDS + 1)
            assert len(house.server.connections) == 1
            house.later(10)
            assert await raw.correlation_id() == number
        raw.close()

    run(scenario)


def test_idle_connections_end_and_give_back_what_they_held() -> None:
    async def scenario(house: House) -> None:
        large, _ = encode_request(ApiVersionsRequest(), 0, correlation_id=7, client_id=None)
        large += bytes(4 * MIB)
        large[:4] = struct.pack(">i", len(large) - 4)
        idle = [await house.connect() for _ in range(16)]
        for raw in idle:
            raw.writer.write(large)
            assert await raw.correlation_id() == 7
        house.later(11)
        assert all("buffer=0" in repr(one._frames) for one in house.server.connections)

        house.later(IDLE_MS / 1000)
        for raw in idle:
            assert await raw.closed()
            raw.close()
        assert house.server.metrics.closed_by_reason == {"idle": 16}

    run(scenario)


def test_a_connection_that_waited_long_for_its_answer_is_not_idle_when_it_comes() -> None:
    async def scenario(house: House) -> None:
        async with client_of(house.broker) as client:
            await client.create("quiet")
            raw = await house.connect()
            asked = FetchRequest.FetchPartition(0, partition_max_bytes=MIB)
            wanted = FetchRequest.FetchTopic("quiet", partitions=[asked])
            raw.send(FetchRequest(max_wait_ms=2**31 - 1, min_bytes=1, topics=[wanted]), 12, 7)
            while not house.partition("quiet").fetch_waiters:
                await asyncio.sleep(0)
            house.later(IDLE_MS / 1000 + 1)

        async with client_of(house.broker) as client:
            await client.produce("quiet", b"at last")
            assert await raw.correlation_id() == 7
            house.later(1)
            raw.send(ApiVersionsRequest(), 0, 8)

            assert await raw.correlation_id() == 8
        raw.close()

    run(scenario)


def test_a_client_that_reads_slowly_is_not_idle_while_it_reads() -> None:
    async def scenario(house: House) -> None:
        async with client_of(house.broker) as client:
            await client.create("large")
            for _ in range(LARGE_BATCHES):
                await client.produce("large", bytes(MIB // 2))
        raw = await house.connect()
        asked = FetchRequest.FetchPartition(0, partition_max_bytes=2**31 - 1)
        raw.send(FetchRequest(topics=[FetchRequest.FetchTopic("large", partitions=[asked])]), 12)
        while not (unsent := house.unsent()):
            await asyncio.sleep(0)
        for _ in range(4):
            while house.unsent() == unsent:
                await raw.reader.readexactly(65536)
            unsent = house.unsent()
            house.later(IDLE_MS / 1000 - 1)
            assert not house.server.metrics.closed_by_reason
        house.later(IDLE_MS / 1000 + 1)  # perhaps the kernel took the last of it meanwhile
        house.later(IDLE_MS / 1000 + 1)

        assert house.server.metrics.closed_by_reason == {"idle": 1}
        raw.close()

    run(scenario)
