"""Small answers to many connections leave in one call, and nothing else changes for them."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest

from ottla.broker import kernel_sends, linux_aio
from ottla.broker.kernel_sends import KernelSends
from ottla.broker.log.unreadable import UnreadableRanges
from ottla.broker.network.outbox import JOINT_MIN, Outbox, TurnEnd
from ottla.broker.network.page_cache import PageCache
from ottla.broker.network.send_buffer import DEFAULT_BYTES, SendBuffer
from tests.log.events import RecordedEvents

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="no AIO of Linux")

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    """Connections by TCP, none of which blocks: our ends, and those of the peers."""
    found: list[Pair] = []
    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        for _ in range(KernelSends.count_max):
            own = stack.enter_context(socket.create_connection(listening.getsockname()))
            peer = stack.enter_context(listening.accept()[0])
            own.setblocking(False)
            peer.setblocking(False)
            found.append((own, peer))
        yield found


def opened() -> KernelSends:
    sends = KernelSends.open()
    if sends is None:
        pytest.skip("this kernel does not do it")
    return sends


def received(peer: socket.socket) -> bytes:
    """Everything that is there."""
    whole = b""
    try:
        while data := peer.recv(1 << 20):
            whole += data
    except BlockingIOError:
        pass
    return whole


@needs_linux
@pytest.mark.parametrize("count", [1, 2, KernelSends.count_max])
def test_each_gets_its_own(pairs: list[Pair], count: int) -> None:
    sends = opened()
    for turn in range(3):
        answers = [
            bytearray(os.urandom((turn * 31 + i * 7) % sends.bytes_max + 1)) for i in range(count)
        ]
        wanted = [(own.fileno(), data) for (own, _), data in zip(pairs, answers, strict=False)]

        assert sends.send(wanted) == [len(data) for data in answers]
        assert [received(peer) for _, peer in pairs[:count]] == [bytes(data) for data in answers]


@needs_linux
def test_who_takes_nothing_does_not_concern_the_others(pairs: list[Pair]) -> None:
    """One is full, one is closed, one has gone; behind what is no socket nothing is begun."""
    sends = opened()
    full, shut, gone = pairs[1][0], pairs[3][0], pairs[4][1]
    while True:
        try:
            full.send(bytes(1 << 16))
        except BlockingIOError:
            break
    shut.shutdown(socket.SHUT_WR)
    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    gone.close()
    wanted = [(own.fileno(), bytearray(b"answer")) for own, _ in pairs[:8]]
    wanted[6] = (-1, wanted[6][1])

    assert sends.send(wanted) == [6, 0, 6, 0, 0, 6, 0, 0]
    assert [received(pairs[i][1]) for i in (0, 2, 5, 6, 7)] == [b"answer"] * 3 + [b""] * 2


@needs_linux
def test_a_full_socket_takes_what_it_has_room_for(pairs: list[Pair]) -> None:
    sends = opened()
    own, peer = pairs[0]
    expected = b""
    while True:
        data = bytearray(os.urandom(sends.bytes_max))
        (count,) = sends.send([(own.fileno(), data)])
        expected += data[:count]
        if count < len(data):
            break

    assert received(peer) == expected


@needs_linux
def test_a_kernel_that_does_not_do_it_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no AIO; there is, but of files alone; and it says that all is well, and is not."""
    opened()

    with monkeypatch.context() as patch:
        patch.setattr(linux_aio, "_CALLS", {})
        assert KernelSends.open() is None
    with monkeypatch.context() as patch:
        patch.setattr(linux_aio.Context, "submit", lambda _self, _count: 0)
        assert KernelSends.open() is None
    with monkeypatch.context() as patch:
        patch.setattr(kernel_sends, "_COMMAND_WRITE", 3)  # fdatasync, which no socket does
        assert KernelSends.open() is None
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "darwin")
        assert KernelSends.open() is None


class Metrics:
    sent_bytes = 0


class Scripted:
    """Sends a part of each, as a seed has it; notes how many it was given."""

    count_max = 16
    bytes_max = 100

    def __init__(self, sockets: dict[int, socket.socket], seed: int) -> None:
        self._sockets = sockets
        self._random = random.Random(seed)
        self.given: list[list[int]] = []

    def send(self, wanted: Sequence[tuple[int, bytearray]]) -> list[int]:
        self.given.append([len(data) for _, data in wanted])
        counts = [self._random.choice((0, len(data) // 2, len(data))) for _, data in wanted]
        for (descriptor, data), count in zip(wanted, counts, strict=True):
            self._sockets[descriptor].sendall(data[:count])
        return counts


class Answering:
    """Outboxes of connections that end their turns together."""

    def __init__(self, pairs: list[Pair], workers: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        self.turn_end = TurnEnd(loop)
        self.metrics, self.drained, self.failures = Metrics(), list[int](), list[str]()
        cache = PageCache(workers, UnreadableRanges(RecordedEvents()))
        self.outboxes = [
            Outbox(
                loop,
                own,
                SendBuffer(own, DEFAULT_BYTES),
                cache,
                self.metrics,
                self.turn_end,
                partial(self.drained.append, number),
                self.failures.append,
            )
            for number, (own, _) in enumerate(pairs)
        ]

    def put(self, number: int, data: bytes) -> None:
        self.outboxes[number].put(bytearray(data), [])
        self.outboxes[number].schedule()


@pytest.mark.parametrize("seed", range(5))
async def test_every_peer_reads_what_was_put_whatever_left_jointly(
    pairs: list[Pair], seed: int
) -> None:
    script = random.Random(seed)
    sockets = {own.fileno(): own for own, _ in pairs}
    joint = Scripted(sockets, seed)
    with ThreadPoolExecutor(1) as workers:
        house = Answering(pairs, workers)
        house.turn_end.send_jointly(joint)
        expected = [b""] * len(pairs)
        for _ in range(20):
            for number in script.sample(range(len(pairs)), script.randrange(1, len(pairs))):
                for _ in range(script.choice((1, 1, 1, 2))):
                    data = script.randbytes(script.choice((1, 60, 100, 101, 5000)))
                    expected[number] += data
                    house.put(number, data)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        assert [received(peer) for _, peer in pairs] == expected
        assert house.metrics.sent_bytes == sum(map(len, expected))
        assert {one.unsent_bytes for one in house.outboxes} == {0}
        assert set(house.drained) == {i for i, data in enumerate(expected) if data}
        assert house.failures == []
        assert any(joint.given)
        assert all(JOINT_MIN <= len(sizes) <= joint.count_max for sizes in joint.given)
        assert all(size <= joint.bytes_max for sizes in joint.given for size in sizes)


async def test_a_few_leave_one_by_one(pairs: list[Pair]) -> None:
    joint = Scripted({own.fileno(): own for own, _ in pairs}, 0)
    with ThreadPoolExecutor(1) as workers:
        house = Answering(pairs, workers)
        house.turn_end.send_jointly(joint)
        for number in range(JOINT_MIN):
            house.put(number, bytes(5000 if number == 0 else 50))
        await asyncio.sleep(0)

        assert joint.given == []
        assert [len(received(peer)) for _, peer in pairs[:JOINT_MIN]] == [5000, *[50] * 7]


@needs_linux
async def test_who_has_gone_is_told_apart_and_who_is_closed_gets_nothing(pairs: list[Pair]) -> None:
    with ThreadPoolExecutor(1) as workers:
        house = Answering(pairs, workers)
        house.turn_end.send_jointly(opened())
        pairs[2][0].shutdown(socket.SHUT_WR)
        for number in range(JOINT_MIN + 2):
            house.put(number, b"answer")
        house.outboxes[4].close()
        await asyncio.sleep(0)

        assert house.failures == ["EPIPE"]
        assert sorted(house.drained) == [0, 1, 3, *range(5, JOINT_MIN + 2)]
        assert [received(pairs[i][1]) for i in (0, 2, 4, 5)] == [b"answer", b"", b"", b"answer"]
