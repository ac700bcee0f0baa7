"""Small answers to many connections leave in one call, and nothing else changes for them."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import select
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.broker import kernel_sends, linux_aio, serve
from ottla.broker.broker import Broker
from ottla.broker.kernel_sends import COUNT_MAX, KernelSends
from ottla.broker.log.unreadable import UnreadableRanges
from ottla.broker.network.counters import NetworkCounters
from ottla.broker.network.outbox import GROUP, JOINT_MIN, Outbox, TurnEnd
from ottla.broker.network.page_cache import PageCache
from ottla.broker.network.send_buffer import DEFAULT_BYTES, SendBuffer
from tests.log.events import RecordedEvents

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="no AIO of Linux")

Pair = tuple[socket.socket, socket.socket]
FULL = 1


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    """Connections, none of which blocks: our ends, and those of the peers. All are by TCP but that
    at FULL: one that is full stays so, where TCP makes some room with a late acknowledgement."""
    found: list[Pair] = []
    with ExitStack() as stack, socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        for number in range(COUNT_MAX):
            if number == FULL:
                own, peer = map(stack.enter_context, socket.socketpair())
            else:
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


def filled(sock: socket.socket) -> None:
    """Sends until there is no room."""
    with suppress(BlockingIOError):
        while True:
            sock.send(bytes(1 << 12))


def gone(peer: socket.socket) -> None:
    """Ends a connection by a reset."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def received(peer: socket.socket, size: int = 0) -> bytes:
    """Everything that is there, and so many bytes at least."""
    whole = bytearray()
    with suppress(BlockingIOError):
        while len(whole) < size or select.select([peer], [], [], 0)[0]:
            assert select.select([peer], [], [], 10)[0], f"{len(whole)} of {size} bytes"
            data = peer.recv(1 << 20)
            if not data:
                break
            whole += data
    return bytes(whole)


@needs_linux
@pytest.mark.parametrize("count", [1, 2, COUNT_MAX])
def test_each_gets_its_own(pairs: list[Pair], count: int) -> None:
    sends = opened()
    for turn in range(3):
        answers = [
            bytearray(os.urandom((turn * 31 + i * 7) % sends.bytes_max + 1)) for i in range(count)
        ]
        wanted = [(own.fileno(), data) for (own, _), data in zip(pairs, answers, strict=False)]

        assert sends.send(wanted) == [len(data) for data in answers]
        peers = [peer for _, peer in pairs[:count]]
        read = [received(peer, len(data)) for peer, data in zip(peers, answers, strict=True)]
        assert read == [bytes(data) for data in answers]


@needs_linux
def test_who_takes_nothing_does_not_concern_the_others(pairs: list[Pair]) -> None:
    """One is full, one is shut, one has gone; behind what is no socket nothing is begun."""
    sends = opened()
    filled(pairs[FULL][0])
    pairs[3][0].shutdown(socket.SHUT_WR)
    gone(pairs[4][1])
    wanted = [(own.fileno(), bytearray(b"answer")) for own, _ in pairs[:8]]
    wanted[6] = (-1, wanted[6][1])

    expected = [6, -errno.EAGAIN, 6, -errno.EPIPE, -errno.ECONNRESET, 6, 0, 0]
    assert sends.send(wanted) == expected
    assert [received(pairs[i][1], 6) for i in (0, 2, 5)] == [b"answer"] * 3
    assert [received(pairs[i][1]) for i in (6, 7)] == [b""] * 2


@needs_linux
def test_results_may_be_seen_in_parts(monkeypatch: pytest.MonkeyPatch, pairs: list[Pair]) -> None:
    """A signal hides them all at the first look."""
    sends = opened()
    parts: list[list[tuple[int, int]]] = [[], [(1, 5)], [(0, 6), (2, -errno.EPIPE)]]
    with monkeypatch.context() as patch:
        patch.setattr(sends._context, "submit", lambda count: count)
        patch.setattr(sends._context, "ended", lambda: parts.pop(0))
        assert sends.send([(-1, bytearray(b"answer"))] * 3) == [6, 5, -errno.EPIPE]
    assert not parts


@needs_linux
def test_what_is_not_known_to_have_left_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    sends = opened()

    def refused() -> list[tuple[int, int]]:
        raise OSError(errno.EINVAL, "no")

    monkeypatch.setattr(sends._context, "submit", lambda count: count)
    for ended in (list[tuple[int, int]], refused):
        monkeypatch.setattr(sends._context, "ended", ended)
        with pytest.raises(AssertionError):
            sends.send([(-1, bytearray(b"answer"))])


def _says_it_did(_self: KernelSends, wanted: Sequence[object]) -> list[int]:
    return [3 for _ in wanted]


@needs_linux
@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (linux_aio, "_CALLS", {}),
        (linux_aio.Context, "submit", lambda _self, _count: 0),
        (linux_aio.Context, "submit", lambda _self, count: count),  # and it ends some time
        # fdatasync, which no socket does
        pytest.param(kernel_sends, "_COMMAND_WRITE", 3, marks=pytest.mark.interpreted),
        pytest.param(KernelSends, "send", _says_it_did, marks=pytest.mark.interpreted),
        (sys, "platform", "darwin"),
    ],
)
def test_a_kernel_that_does_not_do_it_is_found_out(
    owner: object, name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened()

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, value)
        assert KernelSends.open() is None


@needs_linux
@pytest.mark.parametrize("is_known", [True, False])
async def test_a_service_does_it(monkeypatch: pytest.MonkeyPatch, is_known: bool) -> None:
    opened()
    turn_end = SimpleNamespace(joint=None)
    server = SimpleNamespace(turn_end=turn_end, moderate=lambda _moderation: None)
    if not is_known:
        monkeypatch.setattr(linux_aio, "_CALLS", {})

    serve._share_processors(cast(Broker, SimpleNamespace(server=server)))
    assert type(turn_end.joint) is (KernelSends if is_known else type(None))


class Scripted:
    """Sends a part of each, as a seed has it; notes how many it was given."""

    count_max = 16
    bytes_max = 100

    def __init__(self, sockets: dict[int, socket.socket], seed: int) -> None:
        self._sockets = sockets
        self._random = random.Random(seed)
        self.given: list[list[int]] = []
        self.taken = 0

    def send(self, wanted: Sequence[tuple[int, bytearray]]) -> list[int]:
        self.given.append([len(data) for _, data in wanted])
        counts = [self._random.choice((0, len(data) // 2, len(data))) for _, data in wanted]
        for (descriptor, data), count in zip(wanted, counts, strict=True):
            self._sockets[descriptor].sendall(data[:count])
            self.taken += count > 0
        return counts


class Answering:
    """Outboxes of connections that end their turns together."""

    def __init__(self, pairs: list[Pair], workers: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        self.turn_end = TurnEnd(loop)
        self.metrics, self.drained, self.failures = NetworkCounters(), list[int](), list[str]()
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

    def answer(self, count: int) -> None:
        """The first so many connections."""
        for number in range(count):
            self.put(number, b"answer")


@pytest.mark.parametrize("seed", range(5))
async def test_every_peer_reads_what_was_put_whatever_left_jointly(
    pairs: list[Pair], seed: int
) -> None:
    script = random.Random(seed)
    sockets = {own.fileno(): own for own, _ in pairs}
    joint = Scripted(sockets, seed)
    with ThreadPoolExecutor(1) as workers:
        house = Answering(pairs, workers)
        house.turn_end.joint = joint
        expected = [b""] * len(pairs)
        for _ in range(20):
            for number in script.sample(range(len(pairs)), script.randrange(1, len(pairs))):
                for _ in range(script.choice((1, 1, 1, 2))):
                    data = script.randbytes(script.choice((1, 60, 100, 101, 5000)))
                    expected[number] += data
                    house.put(number, data)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        for (_, peer), data in zip(pairs, expected, strict=True):
            assert received(peer, len(data)) == data
        assert house.metrics.sent_bytes == sum(map(len, expected))
        assert house.turn_end.joint_sends == joint.taken > 0
        assert {one.unsent_bytes for one in house.outboxes} == {0}
        assert set(house.drained) == {i for i, data in enumerate(expected) if data}
        assert house.failures == []
        assert any(joint.given)
        assert all(JOINT_MIN <= len(sizes) <= joint.count_max for sizes in joint.given)
        assert all(size <= joint.bytes_max for sizes in joint.given for size in sizes)


async def test_those_of_a_long_turn_leave_before_its_end(pairs: list[Pair]) -> None:
    """And are told of it at the end, with those that left in parts."""
    joint = Scripted({own.fileno(): own for own, _ in pairs}, 0)
    with ThreadPoolExecutor(1) as workers:
        house = Answering(pairs, workers)
        house.turn_end.joint = joint
        sent: list[int] = []
        for number in range(2 * GROUP + 1):
            house.put(number, b"answer")
            sent.append(sum(map(len, joint.given)))
        assert sent == [*[0] * (GROUP - 1), *[GROUP] * GROUP, *[2 * GROUP] * 2]
        assert house.drained == []

        await asyncio.sleep(0)
        await asyncio.sleep(0)
        peers = [peer for _, peer in pairs[: 2 * GROUP + 1]]
        assert [received(peer, 6) for peer in peers] == [b"answer"] * len(peers)
        assert sorted(house.drained) == list(range(2 * GROUP + 1))


async def test_each_turn_has_its_groups(pairs: list[Pair]) -> None:
    joint = Scripted({own.fileno(): own for own, _ in pairs}, 0)
    with ThreadPoolExecutor(1) as workers:
        house = Answering(pairs, workers)
        house.turn_end.joint = joint
        for _ in range(2):
            before = sum(map(len, joint.given))
            house.answer(GROUP)
            assert sum(map(len, joint.given)) == before + GROUP
            await asyncio.sleep(0)
            await asyncio.sleep(0)


@needs_linux
@pytest.mark.parametrize("more", [b"", b" and more"])
async def test_who_had_no_room_in_a_group_waits_for_it(pairs: list[Pair], more: bytes) -> None:
    """And gets all in order, whatever else it was given meanwhile."""
    with ThreadPoolExecutor(1) as workers:
        house = Answering(pairs, workers)
        house.turn_end.joint = opened()
        filled(pairs[FULL][0])
        house.answer(GROUP)
        before = received(pairs[FULL][1])
        if more:
            house.put(FULL, more)
        async with asyncio.timeout(10):
            while len(house.drained) < GROUP:
                await asyncio.sleep(0)
        assert (received(pairs[FULL][1]), set(before)) == (b"answer" + more, {0})
        assert house.failures == []


async def test_a_few_leave_one_by_one(pairs: list[Pair]) -> None:
    joint = Scripted({own.fileno(): own for own, _ in pairs}, 0)
    with ThreadPoolExecutor(1) as workers:
        house = Answering(pairs, workers)
        house.turn_end.joint = joint
        for number in range(JOINT_MIN):
            house.put(number, bytes(5000 if number == 0 else 50))
        await asyncio.sleep(0)

        assert joint.given == []
        sizes = [5000, *[50] * (JOINT_MIN - 1)]
        for (_, peer), size in zip(pairs, sizes, strict=False):
            assert len(received(peer, size)) == size


@needs_linux
@pytest.mark.parametrize("count", [JOINT_MIN + 2, GROUP, GROUP + JOINT_MIN])
async def test_who_has_gone_is_told_apart(pairs: list[Pair], count: int) -> None:
    with ThreadPoolExecutor(1) as workers:
        house = Answering(pairs, workers)
        house.turn_end.joint = opened()
        pairs[2][0].shutdown(socket.SHUT_WR)
        gone(pairs[3][1])
        house.answer(count)
        await asyncio.sleep(0)

        assert house.failures == ["EPIPE", "ECONNRESET"]
        assert sorted(house.drained) == [0, 1, *range(4, count)]
        assert [received(pairs[i][1], 6) for i in (0, 4)] == [b"answer"] * 2
        assert received(pairs[2][1]) == b""


@needs_linux
async def test_who_has_no_room_gets_it_all_when_there_is_some(pairs: list[Pair]) -> None:
    with ThreadPoolExecutor(1) as workers:
        house = Answering(pairs, workers)
        house.turn_end.joint = opened()
        filled(pairs[FULL][0])
        house.answer(JOINT_MIN)
        await asyncio.sleep(0)
        assert sorted(house.drained) == [0, *range(2, JOINT_MIN)]

        before = received(pairs[FULL][1])
        async with asyncio.timeout(10):
            while len(house.drained) < JOINT_MIN:
                await asyncio.sleep(0)
        assert (received(pairs[FULL][1]), set(before)) == (b"answer", {0})
        assert house.failures == []


@needs_linux
async def test_who_is_full_or_closed_is_left_alone(pairs: list[Pair]) -> None:
    """The number of a socket that is closed may be another's by then."""
    joint = Scripted({own.fileno(): own for own, _ in pairs}, 0)
    with ThreadPoolExecutor(1) as workers, ExitStack() as stack:
        house = Answering(pairs, workers)
        house.turn_end.joint = joint
        filled(pairs[FULL][0])
        house.put(FULL, b"waits for room")
        await asyncio.sleep(0)
        house.answer(JOINT_MIN + 2)
        house.outboxes[4].close()
        stack.enter_context(pairs[5][0].dup())
        await asyncio.sleep(0)

        assert joint.given == [[6] * JOINT_MIN]
        assert received(pairs[5][1], 6) == b"answer"


@pytest.mark.parametrize("count", [JOINT_MIN, GROUP, GROUP + 1, 2 * GROUP])
@pytest.mark.parametrize("failure", [MemoryError(), AssertionError("lost"), OSError("lost")])
async def test_what_was_not_sent_leaves_with_the_next_turn(
    pairs: list[Pair], failure: Exception, count: int
) -> None:
    """No memory was left for it, say. Nobody who answers hears of it, and nothing leaves before the
    loop has: a broken invariant ends the broker there."""

    class Failing(Scripted):
        def send(self, wanted: Sequence[tuple[int, bytearray]]) -> list[int]:
            if not self.given:
                self.given.append([])
                raise failure
            return super().send(wanted)

    def note(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        told.append((context["exception"], [received(peer) for _, peer in pairs]))

    told: list[tuple[object, list[bytes]]] = []
    asyncio.get_running_loop().set_exception_handler(note)
    with ThreadPoolExecutor(1) as workers:
        house = Answering(pairs, workers)
        house.turn_end.joint = Failing({own.fileno(): own for own, _ in pairs}, 0)
        house.answer(count)
        assert [received(peer) for _, peer in pairs] == [b""] * len(pairs)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

        assert [received(peer, 6) for _, peer in pairs[:count]] == [b"answer"] * count
        assert told == [(failure, [b""] * len(pairs))]
