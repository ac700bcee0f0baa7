"""What leaves one connection: bytes and slices of files, in order, without blocking the loop.

The transport only reads. Everything is sent here, on a dup of its socket: uvloop has no
`loop.sendfile`, and a send at the end of a turn costs less than the transport's write queue.
Bytes that are ready together leave in one sendmsg; a slice of SENDFILE_MIN and more goes by
sendfile from the page cache, a smaller one is read and joined to its headers, which is cheaper.

A slice that is not in the page cache would stop the whole loop for a disk read. So each step
first asks the kernel (`preadv` with RWF_NOWAIT) and, on a miss, reads ahead in a worker thread:
one cold consumer stalls nobody else.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol

from ottla.broker.log.segment import FileSlice

SENDFILE_MIN = 32 * 1024
"""Measured: below it a pread joined to the headers in one send is cheaper than sendfile."""
STEP_BYTES = 512 * 1024
"""Sent at most per sendfile call, and the unit of the page cache probe."""
PROBE_BYTES = 128 * 1024
"""Linux reads ahead in windows of this size, so a probe per window finds any cold range."""
IOV_MAX = 64

_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


class PageCache:
    """Is a range of a file in memory? A file system that cannot say (EOPNOTSUPP) is asked once."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.can_probe = bool(_RWF_NOWAIT) and hasattr(os, "preadv")
        self.cold_reads = 0
        self._byte = bytearray(1)

    def holds(self, descriptor: int, position: int, size: int) -> bool:
        if not self.can_probe:
            return True
        last = position + size - 1
        probes = [*range(position, last, PROBE_BYTES), last]
        return all(self._holds_byte(descriptor, at) for at in probes)

    def read_cached(self, descriptor: int, position: int, size: int) -> bytearray | None:
        """The bytes if they are all in memory, else None."""
        data = bytearray(size)
        if not self.can_probe:
            return data if os.preadv(descriptor, [data], position) == size else None
        try:
            count = os.preadv(descriptor, [data], position, _RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            self.can_probe = False
            count = os.preadv(descriptor, [data], position)
        return data if count == size else None

    def read_ahead(self, descriptor: int, position: int, size: int) -> None:
        """Runs in a worker: brings the range into the page cache, and no copy of it is kept."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, position, size, os.POSIX_FADV_WILLNEED)
        end = position + size
        scratch = bytearray(min(size, PROBE_BYTES))
        while position < end:
            count = os.preadv(descriptor, [scratch], position)
            if count == 0:
                return
            position += count

    def _holds_byte(self, descriptor: int, position: int) -> bool:
        try:
            return os.preadv(descriptor, [self._byte], position, _RWF_NOWAIT) == 1
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            self.can_probe = False
            return True


class _Slice:
    """What is left to send of a file slice; holds a pin on its file until it is sent or dropped."""

    __slots__ = ("descriptor", "pinned", "position", "size", "warm_until")

    def __init__(self, source: FileSlice) -> None:
        source.file.pin()
        self.pinned = source.file
        self.descriptor = source.file.fileno()
        self.position = source.position
        self.size = source.size
        self.warm_until = source.position


class SentBytes(Protocol):
    """Whoever counts what left all connections."""

    sent_bytes: int


class TurnEnd:
    """The outboxes that something was put into in this turn of the loop; one callback sends all.

    Sending while requests are still being read would wake each client at once, and on few cores
    it then runs before us: measured with 64 connections, three sends at the end of a turn cost
    what two cost in its middle.
    """

    __slots__ = ("_loop", "_outboxes")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._outboxes: list[Outbox] = []

    def add(self, outbox: Outbox) -> None:
        if not self._outboxes:
            self._loop.call_soon(self._send)
        self._outboxes.append(outbox)

    def _send(self) -> None:
        outboxes, self._outboxes = self._outboxes, []
        for outbox in outboxes:
            outbox.flush()


class Outbox:
    """The unsent end of one connection. All methods run on the loop.

    `on_drained` is called when everything is sent, `on_failed` once when the peer is gone or a
    file ended early; after that the outbox drops what it has and what it is given.
    """

    __slots__ = (
        "_cache",
        "_closed",
        "_items",
        "_loop",
        "_metrics",
        "_on_drained",
        "_on_failed",
        "_scheduled",
        "_socket",
        "_stopped",
        "_turn_end",
        "unsent_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        cache: PageCache,
        metrics: SentBytes,
        turn_end: TurnEnd,
        on_drained: Callable[[], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._cache = cache
        self._metrics = metrics
        self._turn_end = turn_end
        self._on_drained = on_drained
        self._on_failed = on_failed
        self._items: deque[bytearray | memoryview | _Slice] = deque()
        self._scheduled = False
        self._stopped = False  # waiting for writability or for a read-ahead
        self._closed = False
        self.unsent_bytes = 0

    def put(self, data: bytearray, slices: list[tuple[int, FileSlice]]) -> None:
        """Queues one answer: `data` with each slice at its position in it. Does not send yet."""
        if self._closed:
            return
        self.unsent_bytes += len(data)
        if not slices:
            self._items.append(data)
            return
        view = memoryview(data)
        start = 0
        for position, source in slices:
            if position > start:
                self._items.append(view[start:position])
            start = position
            self.unsent_bytes += source.size
            self._put_slice(source)
        if start < len(data):
            self._items.append(view[start:])

    def schedule(self) -> None:
        """Sends at the end of this turn of the loop, together with what else is ready then."""
        if not self._scheduled:
            self._scheduled = True
            self._turn_end.add(self)

    def flush(self) -> None:
        """Sends until all is gone or the socket is full."""
        self._scheduled = False
        if self._stopped or self._closed:
            return
        items = self._items
        try:
            while items:
                head = items[0]
                if not (self._send_slice(head) if type(head) is _Slice else self._send_bytes()):
                    return
        except (BlockingIOError, InterruptedError):
            self._stopped = True
            self._loop.add_writer(self._socket.fileno(), self._resume)
            return
        except OSError as error:
            self._fail(errno.errorcode.get(error.errno or 0, str(error)))
            return
        self._on_drained()

    def close(self) -> None:
        """Drops what is unsent and closes the socket's dup. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_writer(self._socket.fileno())
        for item in self._items:
            if type(item) is _Slice:
                item.pinned.unpin()
        self._items.clear()
        self.unsent_bytes = 0
        self._socket.close()

    def _put_slice(self, source: FileSlice) -> None:
        if source.size < SENDFILE_MIN:
            data = self._cache.read_cached(source.file.fileno(), source.position, source.size)
            if data is not None:
                self._items.append(data)
                return
        self._items.append(_Slice(source))

    def _send_bytes(self) -> bool:
        """One send of all bytes up to the next slice; True if they are all gone."""
        items = self._items
        if len(items) == 1:
            batch = [items[0]]
            count = self._socket.send(batch[0])  # type: ignore[arg-type]
        else:
            batch = []
            for item in items:
                if type(item) is _Slice or len(batch) == IOV_MAX:
                    break
                batch.append(item)
            more = socket.MSG_MORE if len(batch) < len(items) and _HAS_MORE else 0
            count = self._socket.sendmsg(batch, (), more)  # type: ignore[arg-type]
        self.unsent_bytes -= count
        self._metrics.sent_bytes += count
        for item in batch:
            size = len(item)  # type: ignore[arg-type]
            if count < size:
                items[0] = memoryview(item)[count:]  # type: ignore[arg-type]
                raise BlockingIOError
            count -= size
            items.popleft()
        return True

    def _send_slice(self, piece: _Slice) -> bool:
        """One step of a slice; False while a worker reads it into the page cache."""
        size = min(piece.size, STEP_BYTES)
        if piece.position >= piece.warm_until:
            if not self._cache.holds(piece.descriptor, piece.position, size):
                self._read_ahead(piece, size)
                return False
            piece.warm_until = piece.position + size
        count = os.sendfile(self._socket.fileno(), piece.descriptor, piece.position, size)
        if count == 0:
            self._fail("the file ended before the slice")
            return False
        self.unsent_bytes -= count
        self._metrics.sent_bytes += count
        piece.position += count
        piece.size -= count
        if piece.size == 0:
            piece.pinned.unpin()
            self._items.popleft()
        return True

    def _read_ahead(self, piece: _Slice, size: int) -> None:
        self._stopped = True
        self._cache.cold_reads += 1
        piece.pinned.pin()
        future = self._loop.run_in_executor(
            self._cache.executor, self._cache.read_ahead, piece.descriptor, piece.position, size
        )

        def done(result: asyncio.Future[None]) -> None:
            piece.pinned.unpin()
            if self._closed:
                return
            error = result.exception()
            if error is not None:
                self._fail(str(error))
                return
            piece.warm_until = piece.position + size
            self._stopped = False
            self.flush()

        future.add_done_callback(done)

    def _resume(self) -> None:
        self._loop.remove_writer(self._socket.fileno())
        self._stopped = False
        self.flush()

    def _fail(self, reason: str) -> None:
        self._on_failed(reason)


_HAS_MORE = hasattr(socket, "MSG_MORE")
