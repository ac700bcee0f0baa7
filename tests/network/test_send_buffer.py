"""How much the kernel holds of what is sent: of copies little, of slices what the reader takes."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.log.file_slice import FileSlice
from ottla.broker.log.unreadable import UnreadableRanges
from ottla.broker.network import connection, send_buffer
from ottla.broker.network.counters import NetworkCounters
from ottla.broker.network.outbox import SENDFILE_MIN, Outbox, TurnEnd
from ottla.broker.network.page_cache import PageCache
from ottla.broker.network.send_buffer import (
    DEFAULT_BYTES,
    NOT_SENT_BYTES_MAX,
    PACED_BYTES,
    READ_BYTES,
    READ_NOT_SENT_BYTES_MAX,
    SLICES_NOT_SENT_BYTES_MAX,
    SendBuffer,
)
from ottla.broker.posix import PosixDisk
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from tests.log.events import RecordedEvents
from tests.network.served import LIMITS, serving
from tests.network.test_connection import answer_at_once

needs_limit = pytest.mark.skipif(
    not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the system has no such limit"
)


def not_sent_max(sock: socket.socket) -> int:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)


@pytest.fixture
async def pair() -> AsyncIterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection by TCP; neither blocks."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        own = socket.create_connection(listening.getsockname())
        peer, _ = listening.accept()
    for end in (own, peer):
        end.setblocking(False)
    if hasattr(socket, "TCP_CONGESTION"):
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    yield own, peer
    own.close()
    peer.close()


@needs_limit
@pytest.mark.parametrize(
    ("wanted_bytes", "before_slices", "with_slices"),
    [
        (DEFAULT_BYTES, NOT_SENT_BYTES_MAX, SLICES_NOT_SENT_BYTES_MAX),
        (-1, 0, 0),
        (DEFAULT_BYTES // 2, 0, 0),
    ],
)
async def test_copies_have_little_room_until_the_first_slice(
    pair: tuple[socket.socket, socket.socket],
    tmp_path: Path,
    wanted_bytes: int,
    before_slices: int,
    with_slices: int,
) -> None:
    (tmp_path / "slice").write_bytes(bytes(SENDFILE_MIN))
    file = PosixDisk().open(str(tmp_path / "slice"))
    loop = asyncio.get_running_loop()
    own, peer = pair
    drained = asyncio.Event()
    with ThreadPoolExecutor(1) as workers:
        cache = PageCache(workers, UnreadableRanges(RecordedEvents()))
        buffer = SendBuffer(own, wanted_bytes)
        metrics, failures = NetworkCounters(), list[str]()
        outbox = Outbox(
            loop, own, buffer, cache, metrics, TurnEnd(loop), drained.set, failures.append
        )
        outbox.put(bytearray(b"copy"), [])
        outbox.flush()
        assert await loop.sock_recv(peer, 100) == b"copy"
        assert not_sent_max(own) == before_slices
        before = own.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)

        drained.clear()
        outbox.put(bytearray(), [(0, FileSlice(file, 0, SENDFILE_MIN))])
        outbox.flush()
        await drained.wait()
        assert not_sent_max(own) == with_slices
        # Linux goes on sizing what nobody has sized.
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= before
        assert failures == []
        outbox.close()
    file.close()


@needs_limit
@pytest.mark.parametrize("left_out", [1, 0])
async def test_who_has_read_much_has_more_room(
    pair: tuple[socket.socket, socket.socket], tmp_path: Path, left_out: int
) -> None:
    """The slice behind so much of slices is the first that finds it, and not one byte before."""
    (tmp_path / "slice").write_bytes(bytes(READ_BYTES))
    file = PosixDisk().open(str(tmp_path / "slice"))
    loop = asyncio.get_running_loop()
    own, peer = pair
    limits = list[int]()
    with ThreadPoolExecutor(1) as workers:
        cache = PageCache(workers, UnreadableRanges(RecordedEvents()))
        drained, failures = asyncio.Event(), list[str]()
        outbox = Outbox(
            loop,
            own,
            SendBuffer(own, DEFAULT_BYTES),
            cache,
            NetworkCounters(),
            TurnEnd(loop),
            drained.set,
            failures.append,
        )
        for size in (READ_BYTES - left_out, SENDFILE_MIN):
            drained.clear()
            outbox.put(bytearray(), [(0, FileSlice(file, 0, size))])
            outbox.schedule()
            while size:
                size -= len(await loop.sock_recv(peer, size))
            await drained.wait()
            limits.append(not_sent_max(own))
        outbox.close()
    file.close()
    assert failures == []
    most = SLICES_NOT_SENT_BYTES_MAX if left_out else READ_NOT_SENT_BYTES_MAX
    assert limits == [SLICES_NOT_SENT_BYTES_MAX, most]


@pytest.mark.parametrize("wanted_bytes", [DEFAULT_BYTES, 50_000, -1])
async def test_a_connection_has_the_buffer_that_was_configured(
    monkeypatch: pytest.MonkeyPatch, wanted_bytes: int
) -> None:
    made: list[int] = []

    class Noted(SendBuffer):
        def __init__(self, sock: socket.socket, wanted_bytes: int) -> None:
            made.append(wanted_bytes)
            super().__init__(sock, wanted_bytes)

    monkeypatch.setattr(connection, "SendBuffer", Noted)
    limits = dataclasses.replace(LIMITS, send_buffer_bytes=wanted_bytes)
    async with serving({ApiKey.API_VERSIONS: answer_at_once}, limits) as served:
        raw = await served.connect()
        raw.send(ApiVersionsRequest(), 0)
        await raw.frame()
        raw.close()

    assert made == [wanted_bytes]


async def test_a_connection_whose_socket_cannot_be_set_up_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_args: Any) -> None:
        raise OSError(22, "Invalid argument")

    limits = dataclasses.replace(LIMITS, max_connections=1)
    async with serving({ApiKey.API_VERSIONS: answer_at_once}, limits) as served:
        with monkeypatch.context() as patched:
            patched.setattr(connection, "SendBuffer", refused)
            first = await served.connect()
            assert await first.closed()
        second = await served.connect()
        second.send(ApiVersionsRequest(), 0)
        assert await second.frame()
        assert served.fatal == []
        first.close()
        second.close()


@needs_limit
async def test_who_is_sent_slices_at_a_pace_has_room_for_two_steps(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_buffer, "UNPACED", (b"cubic",))
    buffer = SendBuffer(pair[0], DEFAULT_BYTES)
    buffer.widen()
    assert not_sent_max(pair[0]) == 0
    if sys.platform == "linux":
        most = int(Path("/proc/sys/net/core/wmem_max").read_text(encoding="ascii"))
        size = pair[0].getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        assert size == 2 * min(PACED_BYTES, most)


async def test_slices_are_sent_where_the_system_knows_neither_a_limit_nor_of_paces(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(socket, "TCP_NOTSENT_LOWAT", raising=False)
    monkeypatch.delattr(socket, "TCP_CONGESTION", raising=False)
    before = pair[0].getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    buffer = SendBuffer(pair[0], DEFAULT_BYTES)
    buffer.widen()
    buffer.widen()
    assert pair[0].getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == before


async def test_a_socket_of_another_family_is_not_paced() -> None:
    own, peer = socket.socketpair(socket.AF_UNIX)
    with own, peer:
        before = own.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        SendBuffer(own, DEFAULT_BYTES).widen()
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == before
