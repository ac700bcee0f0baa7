"""Slices that have to be read from the disk: a worker sends them, and the loop goes on."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import threading
from collections.abc import AsyncIterator, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.log.file_slice import FileSlice
from ottla.broker.log.unreadable import UnreadableRanges
from ottla.broker.network import outbox
from ottla.broker.network.counters import NetworkCounters
from ottla.broker.network.outbox import (
    COLD_BYTES,
    STEP_BYTES,
    TURN_BYTES,
    Outbox,
    TurnEnd,
)
from ottla.broker.network.page_cache import PROBE_BYTES, WORKER_STEP_BYTES, PageCache
from ottla.broker.network.send_buffer import (
    COLD_WINDOWS,
    DEFAULT_BYTES,
    SendBuffer,
)
from ottla.broker.posix import PosixDisk, PosixFile
from tests.log.events import RecordedEvents

HEADERS = b"headers "
CONTENT = os.urandom(COLD_BYTES * 5 // 2)
WORKERS = 2
READERS, ROUNDS = 3, 60
ROOM_BYTES = 4096
"""Of the sockets: no step of the loop fits whole."""
LITTLE = 16 * 1024


class Sender:
    """An outbox on one end of a pair of sockets; `peer` is the other end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        cache: PageCache,
        *,
        turn_end: TurnEnd | None = None,
        send_buffer_bytes: int = -1,
    ) -> None:
        self.socket, self.peer = socket.socketpair()
        for end in (self.socket, self.peer):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM_BYTES)
        self.metrics = NetworkCounters()
        self.buffer = SendBuffer(self.socket, send_buffer_bytes)
        self.failures: list[str] = []
        self.drained = asyncio.Event()
        self.outbox = Outbox(
            loop,
            self.socket,
            self.buffer,
            cache,
            self.metrics,
            turn_end or TurnEnd(loop),
            self.drained.set,
            self.failures.append,
        )

    def send(self, file: PosixFile) -> None:
        self.outbox.put(bytearray(HEADERS), [(len(HEADERS), FileSlice(file, 0, len(CONTENT)))])
        self.outbox.schedule()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[PosixFile]:
    path = tmp_path / "slice"
    path.write_bytes(CONTENT)
    opened = PosixDisk().open(str(path))
    yield opened
    opened.close()


@pytest.fixture
async def cache() -> AsyncIterator[PageCache]:
    with ThreadPoolExecutor(WORKERS) as workers:
        yield PageCache(workers, UnreadableRanges(RecordedEvents()))


@pytest.fixture
def asked(cache: PageCache, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The position and size of what the cache is asked about; all is in memory."""
    ranges: list[tuple[int, int]] = []

    def holds(_descriptor: int, position: int, size: int = 1) -> bool:
        ranges.append((position, size))
        return True

    monkeypatch.setattr(cache, "holds", holds)
    return ranges


async def _received(peer: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = bytearray()
    while len(data) < size:
        part = await loop.sock_recv(peer, 1 << 16)
        assert part, "it was closed early"
        data += part
    return bytes(data)


@pytest.mark.parametrize("cold_probes", [0, 1, 1000])
async def test_what_is_cold_at_first_or_for_good_comes_whole(
    file: PosixFile, cache: PageCache, monkeypatch: pytest.MonkeyPatch, cold_probes: int
) -> None:
    """By the loop, by a worker at first and the loop then, by workers alone."""
    left = iter(range(cold_probes))
    monkeypatch.setattr(cache, "holds", lambda *_range: next(left, None) is None)
    sender = Sender(asyncio.get_running_loop(), cache)
    sender.send(file)
    expected = HEADERS + CONTENT

    assert await _received(sender.peer, len(expected)) == expected
    await sender.drained.wait()
    assert sender.metrics.sent_bytes == len(expected)
    assert sender.outbox.unsent_bytes == 0
    assert (cache.cold_sends > 0) == (cold_probes > 0)
    assert sender.failures == []
    sender.outbox.close()
    sender.peer.close()


@pytest.mark.interpreted  # sets a constant, which compiled code has in itself
@pytest.mark.parametrize(("seconds", "probes_a_window"), [(1000.0, 1), (-1.0, 2)])
async def test_a_window_is_asked_about_once_unless_its_reader_stands_still(
    file: PosixFile,
    cache: PageCache,
    monkeypatch: pytest.MonkeyPatch,
    asked: list[tuple[int, int]],
    seconds: float,
    probes_a_window: int,
) -> None:
    """The socket takes a little of each step; a second that is over at once is a standstill."""
    monkeypatch.setattr(outbox, "WARM_S", seconds)
    sender = Sender(asyncio.get_running_loop(), cache)
    sender.send(file)
    await _received(sender.peer, len(HEADERS) + len(CONTENT))

    if probes_a_window == 1:
        ends = [*range(2 * PROBE_BYTES, len(CONTENT), PROBE_BYTES), len(CONTENT)]
        assert asked == [(0, 1), (0, PROBE_BYTES), *((end - 1, 1) for end in ends)]
    else:
        assert len(asked) > probes_a_window * len(CONTENT) / PROBE_BYTES
    sender.outbox.close()
    sender.peer.close()


async def test_readers_of_the_same_ask_once_and_for_no_longer_than_one_may(
    file: PosixFile, cache: PageCache, asked: list[tuple[int, int]]
) -> None:
    end, descriptor = PROBE_BYTES, file.fileno()
    times = [cache.found_window(file, descriptor, 7, end, now_s) for now_s in (10.0, 10.9, 11.1)]

    assert times == [10.0, 10.0, 11.1]
    assert asked == [(7, end - 7)] * 2
    assert cache.found_window(file, descriptor, 8, end - 1, 11.2) == 11.1
    assert cache.found_window(file, descriptor, end, end + 1, 11.2) == 11.2


async def test_of_what_was_read_up_to_here_the_end_is_asked_and_of_others_all(
    file: PosixFile, cache: PageCache, asked: list[tuple[int, int]]
) -> None:
    for start, end in (
        (50, 100),
        (100, 200),  # behind it
        (60, 300),  # from within it
        (300, PROBE_BYTES),
        (PROBE_BYTES, PROBE_BYTES + 10),  # the next window
        (PROBE_BYTES + 11, PROBE_BYTES + 20),  # with a hole before
        (PROBE_BYTES + 5, PROBE_BYTES + 15),  # from before it
        (0, 60),  # from before all
        (7 * PROBE_BYTES, 8 * PROBE_BYTES),
    ):
        assert cache.found_window(file, file.fileno(), start, end, 1.0) == 1.0

    assert asked == [
        (50, 50),
        (199, 1),
        (299, 1),
        (PROBE_BYTES - 1, 1),
        (PROBE_BYTES + 9, 1),
        (PROBE_BYTES + 11, 9),
        (PROBE_BYTES + 5, 10),
        (0, 60),
        (7 * PROBE_BYTES, PROBE_BYTES),
    ]


async def test_of_a_file_that_was_cold_of_late_all_of_the_end_is_asked(
    file: PosixFile, cache: PageCache, asked: list[tuple[int, int]]
) -> None:
    cache.note_cold(file, 10.9)
    for start, end, now_s in (
        (0, 50, 11.0),
        (50, PROBE_BYTES, 11.1),
        (PROBE_BYTES, PROBE_BYTES + 50, 11.8),
        (PROBE_BYTES + 50, PROBE_BYTES + 90, 11.95),
    ):
        assert cache.found_window(file, file.fileno(), start, end, now_s) == now_s

    assert asked == [(0, 50), (PROBE_BYTES - 1, 1), (PROBE_BYTES, 50), (PROBE_BYTES + 89, 1)]


@pytest.mark.parametrize("warm", [[0, 1], [0, 1, 2, 4, 5], [], range(12)])
async def test_a_hole_between_what_is_in_memory_is_a_workers(
    file: PosixFile, cache: PageCache, monkeypatch: pytest.MonkeyPatch, warm: Collection[int]
) -> None:
    """Of twenty pages; the last is in memory since the start."""
    by_loop: list[int] = []
    loop_thread = threading.get_ident()
    sendfile = os.sendfile
    page = 16 * 1024
    pages = {*warm, 19}

    def watched(out: int, descriptor: int, position: int, size: int) -> int:
        if threading.get_ident() == loop_thread:
            by_loop.append(position)
        return sendfile(out, descriptor, position, size)

    def holds(_descriptor: int, position: int, size: int = 1) -> bool:
        return set(range(position // page, (position + size - 1) // page + 1)) <= pages

    monkeypatch.setattr(os, "sendfile", watched)
    monkeypatch.setattr(cache, "holds", holds)
    sender = Sender(asyncio.get_running_loop(), cache)
    sender.outbox.put(bytearray(HEADERS), [(len(HEADERS), FileSlice(file, 0, 20 * page))])
    sender.outbox.schedule()
    await _received(sender.peer, len(HEADERS) + 20 * page)

    behind = max(set(range(20)) - pages) + 1
    assert all(position >= behind * page for position in by_loop)
    assert cache.cold_sends > 0
    sender.outbox.close()
    sender.peer.close()


@pytest.mark.parametrize("warm_bytes", [1, 100, PROBE_BYTES - 1, PROBE_BYTES + 100])
async def test_what_was_read_ahead_in_part_is_a_workers(
    file: PosixFile, cache: PageCache, monkeypatch: pytest.MonkeyPatch, warm_bytes: int
) -> None:
    """Wherever it ends, the loop sends nothing behind it."""
    by_loop: list[int] = []
    loop_thread = threading.get_ident()
    sendfile = os.sendfile

    def watched(out: int, descriptor: int, position: int, size: int) -> int:
        if threading.get_ident() == loop_thread:
            by_loop.append(position + size)
        return sendfile(out, descriptor, position, size)

    monkeypatch.setattr(os, "sendfile", watched)
    monkeypatch.setattr(
        cache, "holds", lambda _descriptor, position, size=1: position + size <= warm_bytes
    )
    sender = Sender(asyncio.get_running_loop(), cache)
    sender.send(file)
    await _received(sender.peer, len(HEADERS) + len(CONTENT))

    assert by_loop == []
    sender.outbox.close()
    sender.peer.close()


async def test_what_a_worker_has_sent_is_not_asked_about_again(
    file: PosixFile, cache: PageCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def holds(_descriptor: int, position: int, size: int = 1) -> bool:
        """Of the loop's questions the first has no for an answer, and of the workers' none."""
        asked.append(position)
        return len(asked) > 1

    monkeypatch.setattr(cache, "holds", holds)
    sender = Sender(asyncio.get_running_loop(), cache)
    sender.send(file)
    await _received(sender.peer, len(HEADERS) + len(CONTENT))

    assert cache.cold_sends == 1
    assert asked.count(0) == 1
    sender.outbox.close()
    sender.peer.close()


@pytest.mark.parametrize(
    ("send_buffer_bytes", "misses", "shrinks"),
    [
        (DEFAULT_BYTES, COLD_WINDOWS, True),
        (DEFAULT_BYTES, COLD_WINDOWS - 1, False),
        (DEFAULT_BYTES + 1, COLD_WINDOWS, False),
        (-1, COLD_WINDOWS, False),
    ],
)
async def test_who_reads_much_from_the_disk_has_a_small_send_buffer_from_then_on(
    file: PosixFile,
    cache: PageCache,
    monkeypatch: pytest.MonkeyPatch,
    send_buffer_bytes: int,
    misses: int,
    shrinks: bool,
) -> None:
    """A probe that misses now and then, as it does while another reads the same, is no proof."""
    left = iter(range(misses))
    loop_thread = threading.get_ident()

    def holds(*_range: int) -> bool:
        return threading.get_ident() != loop_thread and next(left, None) is None

    monkeypatch.setattr(cache, "holds", holds)
    sender = Sender(asyncio.get_running_loop(), cache, send_buffer_bytes=send_buffer_bytes)
    for _ in range(4):
        sender.send(file)

    await _received(sender.peer, 4 * (len(HEADERS) + len(CONTENT)))
    await sender.drained.wait()
    after = sender.socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    assert (after in (DEFAULT_BYTES, 2 * DEFAULT_BYTES)) == shrinks  # Linux doubles it
    assert sender.failures == []
    sender.outbox.close()
    sender.peer.close()


async def test_the_kernel_is_asked_for_large_ranges_however_little_leaves_at_once(
    file: PosixFile, cache: PageCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(cache, "holds", lambda *_range: False)
    monkeypatch.setattr(
        os, "posix_fadvise", lambda _file, at, size, _advice: asked.append((at, size))
    )
    sendfile = os.sendfile
    monkeypatch.setattr(
        os, "sendfile", lambda out, file, at, size: sendfile(out, file, at, min(size, LITTLE))
    )
    sender = Sender(asyncio.get_running_loop(), cache)
    sender.send(file)
    await _received(sender.peer, len(HEADERS) + len(CONTENT))
    await sender.drained.wait()

    assert [at for at, _ in asked] == [0, COLD_BYTES, 2 * COLD_BYTES]
    assert sum(size for _, size in asked) == len(CONTENT)
    assert cache.cold_sends == len(CONTENT) // LITTLE, "each step was one of a worker"
    sender.outbox.close()
    sender.peer.close()


async def test_a_worker_sends_in_steps_and_what_it_cannot_read_is_said_of_the_place_itself(
    file: PosixFile, cache: PageCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call is not interrupted for the loop; what was sent before an error counts as sent."""
    bad = 3 * WORKER_STEP_BYTES
    sizes: list[int] = []
    sendfile = os.sendfile

    def broken(out: int, source: int, position: int, size: int) -> int:
        sizes.append(size)
        if position == bad:
            raise OSError(errno.EIO, "Input/output error")
        return sendfile(out, source, position, min(size, bad - position))

    monkeypatch.setattr(cache, "holds", lambda *_range: False)
    monkeypatch.setattr(os, "sendfile", broken)
    noted: list[tuple[int, int]] = []
    monkeypatch.setattr(
        UnreadableRanges, "note", lambda _self, _path, at, size, _error: noted.append((at, size))
    )
    sender = Sender(asyncio.get_running_loop(), cache, send_buffer_bytes=4 * bad)
    sender.send(file)

    assert await _received(sender.peer, len(HEADERS) + bad) == HEADERS + CONTENT[:bad]
    while not sender.failures:
        await asyncio.sleep(0)
    assert sender.failures == ["EIO"]
    assert noted == [(bad, WORKER_STEP_BYTES)]
    assert max(sizes) == WORKER_STEP_BYTES
    assert sender.metrics.sent_bytes == len(HEADERS) + bad
    sender.outbox.close()
    sender.peer.close()


@pytest.mark.parametrize("steps", [0, 1])
async def test_a_connection_that_ends_meanwhile_is_closed_when_the_worker_is_done(
    file: PosixFile, cache: PageCache, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Else the number of its descriptor would be another's, and that would be sent to."""
    is_in, may_go = threading.Event(), threading.Event()
    sendfile = os.sendfile
    left = iter(range(steps))

    def held(*args: Any) -> int:
        if next(left, None) is None:
            is_in.set()
            assert may_go.wait(10)
        return sendfile(*args)

    monkeypatch.setattr(cache, "holds", lambda *_range: False)
    monkeypatch.setattr(os, "sendfile", held)
    sender = Sender(asyncio.get_running_loop(), cache, send_buffer_bytes=4 * COLD_BYTES)
    sender.send(file)
    await asyncio.to_thread(is_in.wait, 10)
    sender.outbox.close()

    assert sender.socket.fileno() >= 0
    sent = HEADERS + CONTENT[: steps * WORKER_STEP_BYTES]
    assert await _received(sender.peer, len(sent)) == sent
    assert not await asyncio.get_running_loop().sock_recv(sender.peer, 1), "the peer hears of it"
    may_go.set()
    while sender.socket.fileno() >= 0:
        await asyncio.sleep(0)
    assert sender.failures == []
    sender.peer.close()


async def test_a_connection_that_ends_before_a_worker_has_the_time_is_closed_at_once(
    file: PosixFile, cache: PageCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a slow disk those who come and go would else keep a descriptor each."""
    may_go = threading.Event()
    busy = [cache.executor.submit(may_go.wait, 10) for _ in range(WORKERS)]
    monkeypatch.setattr(cache, "holds", lambda *_range: False)
    sender = Sender(asyncio.get_running_loop(), cache)
    sender.send(file)
    assert await _received(sender.peer, len(HEADERS)) == HEADERS
    assert cache.cold_sends == 1
    sender.outbox.close()

    assert sender.socket.fileno() == -1
    may_go.set()
    await asyncio.gather(*map(asyncio.wrap_future, busy))
    file.close()
    while file.fileno() >= 0:  # its pin is given back
        await asyncio.sleep(0)
    sender.peer.close()


async def test_no_worker_is_to_be_had(file: PosixFile, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor(1) as gone:
        cache = PageCache(gone, UnreadableRanges(RecordedEvents()))
    monkeypatch.setattr(cache, "holds", lambda *_range: False)
    sender = Sender(asyncio.get_running_loop(), cache)
    sender.send(file)
    await _received(sender.peer, len(HEADERS))
    (failure,) = sender.failures
    sender.outbox.close()

    assert "shutdown" in failure
    assert sender.socket.fileno() == -1
    sender.peer.close()


async def test_a_file_that_ends_early_fails_once(
    file: PosixFile, cache: PageCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "holds", lambda *_range: False)
    os.truncate(file.path, COLD_BYTES)
    sender = Sender(asyncio.get_running_loop(), cache)
    sender.send(file)
    await _received(sender.peer, len(HEADERS) + COLD_BYTES)
    while not sender.failures:
        await asyncio.sleep(0)
    tried = cache.cold_sends
    sender.outbox.schedule()
    for _ in range(5):
        await asyncio.sleep(0)

    assert cache.cold_sends == tried
    assert sender.failures == ["the file ended before the slice"]
    sender.outbox.close()
    sender.peer.close()


@pytest.mark.parametrize(
    "answer_bytes", [4 * TURN_BYTES, TURN_BYTES, TURN_BYTES - 1, TURN_BYTES // 2 + 1]
)
async def test_readers_whose_answers_fill_a_turn_each_have_their_turns(
    file: PosixFile, cache: PageCache, monkeypatch: pytest.MonkeyPatch, answer_bytes: int
) -> None:
    """Who has its answer with the last of a turn's share is not there to be sent to the end, and
    nobody else is sent there for it."""
    monkeypatch.setattr(cache, "holds", lambda *_range: True)
    turn_end = TurnEnd(asyncio.get_running_loop())
    senders = [Sender(asyncio.get_running_loop(), cache, turn_end=turn_end) for _ in range(READERS)]
    by_socket = {sender.socket.fileno(): number for number, sender in enumerate(senders)}
    sent = [0] * READERS
    in_this_turn = 0
    most_in_a_turn = 0

    def takes_all(out: int, _descriptor: int, _position: int, size: int) -> int:
        nonlocal in_this_turn
        sent[by_socket[out]] += size
        in_this_turn += size
        return size

    monkeypatch.setattr(os, "sendfile", takes_all)
    for _ in range(ROUNDS):
        for sender in senders:
            if not sender.outbox.unsent_bytes:
                sender.outbox.put(bytearray(), [(0, FileSlice(file, 0, answer_bytes))])
                sender.outbox.schedule()
        await asyncio.sleep(0)
        most_in_a_turn = max(most_in_a_turn, in_this_turn)
        in_this_turn = 0

    assert min(sent) >= max(sent) / 2
    assert most_in_a_turn <= TURN_BYTES - 1 + min(answer_bytes, STEP_BYTES)
    for sender in senders:
        sender.outbox.close()
        sender.peer.close()


@pytest.mark.parametrize("is_put_last", [False, True])
async def test_a_small_answer_waits_for_no_slice(
    file: PosixFile, cache: PageCache, monkeypatch: pytest.MonkeyPatch, is_put_last: bool
) -> None:
    """And among slices those that wait for their share are sent before new ones."""
    monkeypatch.setattr(cache, "holds", lambda *_range: True)
    turn_end = TurnEnd(asyncio.get_running_loop())
    senders = [Sender(asyncio.get_running_loop(), cache, turn_end=turn_end) for _ in range(3)]
    waiting, new, small = senders
    sent: list[tuple[int, bool]] = []

    def takes_all(out: int, _descriptor: int, _position: int, size: int) -> int:
        readable, _, _ = select.select([small.peer], [], [], 0)
        sent.append((out, bool(readable)))
        return size

    monkeypatch.setattr(os, "sendfile", takes_all)
    waiting.send(file)
    await asyncio.sleep(0)
    assert waiting.outbox.unsent_bytes > 0
    sent.clear()
    small.outbox.put(bytearray(HEADERS), [])
    for sender in (new, small) if is_put_last else (small, new):
        if sender is new:
            new.outbox.put(bytearray(), [(0, FileSlice(file, 0, len(CONTENT)))])
        sender.outbox.schedule()
    for _ in range(2 * len(CONTENT) // TURN_BYTES):
        await asyncio.sleep(0)

    assert sent[0] == (waiting.socket.fileno(), True)
    assert new.socket.fileno() in [out for out, _ in sent]
    for sender in senders:
        sender.outbox.close()
        sender.peer.close()


async def test_what_is_known_is_not_read(file: PosixFile, cache: PageCache) -> None:
    sender = Sender(asyncio.get_running_loop(), cache)
    known = b"not what the file has"
    sender.outbox.put(bytearray(HEADERS), [(len(HEADERS), FileSlice(file, 0, len(known), known))])
    sender.outbox.schedule()

    assert await _received(sender.peer, len(HEADERS + known)) == HEADERS + known
    sender.outbox.close()
    sender.peer.close()
