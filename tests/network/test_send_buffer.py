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

from ottla.broker.log.segment import FileSlice
from ottla.broker.log.unreadable import UnreadableRanges
from ottla.broker.network import connection
from ottla.broker.network.outbox import SENDFILE_MIN, Outbox, PageCache, TurnEnd
from ottla.broker.network.send_buffer import (
    DEFAULT_BYTES,
    NOT_SENT_BYTES_MAX,
    SLICES_BYTES,
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


class Metrics:
    sent_bytes = 0


@pytest.fixture
async def pair() -> AsyncIterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection by TCP; neither blocks."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        own = socket.create_connection(listening.getsockname())
        peer, _ = listening.accept()
    for end in (own, peer):
        end.setblocking(False)
    yield own, peer
    own.close()
    peer.close()


@needs_limit
@pytest.mark.parametrize(
    ("wanted_bytes", "limit_bytes"),
    [(DEFAULT_BYTES, NOT_SENT_BYTES_MAX), (-1, 0), (DEFAULT_BYTES // 2, 0)],
)
async def test_copies_have_little_room_until_the_first_slice(
    pair: tuple[socket.socket, socket.socket], tmp_path: Path, wanted_bytes: int, limit_bytes: int
) -> None:
    (tmp_path / "slice").write_bytes(bytes(SENDFILE_MIN))
    file = PosixDisk().open(str(tmp_path / "slice"))
    loop = asyncio.get_running_loop()
    own, peer = pair
    drained = asyncio.Event()
    with ThreadPoolExecutor(1) as workers:
        cache = PageCache(workers, UnreadableRanges(RecordedEvents()))
        buffer = SendBuffer(own, wanted_bytes)
        metrics, failures = Metrics(), list[str]()
        outbox = Outbox(
            loop, own, buffer, cache, metrics, TurnEnd(loop), drained.set, failures.append
        )
        outbox.put(bytearray(b"copy"), [])
        outbox.flush()
        assert await loop.sock_recv(peer, 100) == b"copy"
        assert not_sent_max(own) == limit_bytes
        before = own.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)

        drained.clear()
        outbox.put(bytearray(), [(0, FileSlice(file, 0, SENDFILE_MIN))])
        outbox.flush()
        await drained.wait()
        assert not_sent_max(own) == 0
        after = own.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        if wanted_bytes == DEFAULT_BYTES and sys.platform == "linux":
            most = int(Path("/proc/sys/net/core/wmem_max").read_text(encoding="ascii"))
            assert after == 2 * min(SLICES_BYTES, most)
        else:
            assert after == before
        assert failures == []
        outbox.close()
    file.close()


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


async def test_where_there_is_no_such_limit_slices_have_their_size_all_the_same(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(socket, "TCP_NOTSENT_LOWAT", raising=False)
    buffer = SendBuffer(pair[0], DEFAULT_BYTES)
    assert buffer.awaits_slice
    buffer.widen()
    assert not buffer.awaits_slice
    assert pair[0].getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= SLICES_BYTES
