"""What leaves one connection: bytes and slices of files, in order, without blocking the loop.

The transport only reads. Everything is sent here, on a dup of its socket: uvloop has no
`loop.sendfile`, and a send at the end of a turn costs less than the transport's write queue.
Bytes that are ready together leave in one sendmsg; a slice of SENDFILE_MIN and more goes by
sendfile from the page cache, a smaller one is read and joined to its headers, which is cheaper.

A slice that is not in the page cache would stop the whole loop for a disk read. So each step
first asks the kernel (`preadv` with RWF_NOWAIT) and, on a miss, a worker thread sends it, and goes
on with this connection until it finds in memory what it is to send: one cold consumer stalls nobody
else.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from enum import Enum, auto
from typing import Final, Protocol

from ottla.broker.linux_aio import os_error
from ottla.broker.log.file_slice import FileSlice
from ottla.broker.network.counters import NetworkCounters
from ottla.broker.network.moderation import Moderation
from ottla.broker.network.page_cache import PROBE_BYTES, WARM_S, WORKER_STEP_BYTES, PageCache
from ottla.broker.network.send_buffer import SendBuffer

SENDFILE_MIN: Final = 32 * 1024
"""Measured: below it a pread joined to the headers in one send is cheaper than sendfile."""
JOINED_BYTES_MAX: Final = 128 * 1024
"""Unless so much is unsent: who does not read, or asks for a thousand small slices at once, is
answered from the file, which costs no memory."""
INSERTED_BYTES_MAX: Final = 4096
"""Up to this a slice is copied once more, into its headers, which costs less than a list of three
buffers; a larger one is read into a buffer of its own and copied no more."""
STEP_BYTES: Final = 768 * 1024
"""Sent by the loop at most per sendfile call, in some 60 us. What a socket has no room for would
stay in the call for as long as its reader makes room (`send_buffer.py`)."""
TURN_BYTES: Final = 768 * 1024
"""When so much of slices was sent in one turn of the loop, by all connections together, the rest
waits for the next. A consumer that reads as fast as we send would else hold the loop for the whole
of its answer."""
COLD_BYTES: Final = 512 * 1024
"""What the kernel is asked to read at once, for a worker that sends it: asked for twice as much, it
keeps a processor for longer when that has come."""
IOV_MAX: Final = 64
JOINT_MIN: Final = 8
"""So many small answers of one turn leave in one call. It costs 10 us more than one send and half a
microsecond more than each, which fewer, of clients for whom there is a processor, do not bring."""
GROUP: Final = 24
"""Small answers of a turn that wait for others at most. With 64 clients on two processors a turn
has 32 requests in the median, and for a quarter of the time one processor was idle, for nobody had
an answer before its end. 16 and 28 did as well; with eight the broker loses its processor in the
midst of a turn more often."""

# Linux alone tells of a peer that has closed while its bytes are unread; all tell of a reset.
_SENDS_NO_MORE: Final = getattr(select, "POLLRDHUP", 0)
_IS_GONE: Final = select.POLLHUP | select.POLLERR


class End(Enum):
    """What a peer has ended: its sending, which it may read behind, or all of the connection."""

    SENDING = auto()
    GONE = auto()


class _Slice:
    """What is left to send of a file slice; holds a pin on its file until it is sent or dropped."""

    __slots__ = (
        "ahead_end",
        "descriptor",
        "pinned",
        "position",
        "probed_s",
        "size",
        "warm_end",
    )

    def __init__(self, source: FileSlice) -> None:
        source.file.pin()
        self.pinned = source.file
        self.descriptor = source.file.fileno()
        self.position = source.position
        self.size = source.size
        self.ahead_end = source.position
        """Up to there the kernel was asked to read ahead."""
        self.warm_end = -1
        """Up to there it was in memory, at `probed_s`."""
        self.probed_s = 0.0

    def next_ahead(self) -> range:
        """What the kernel is to read now: a window when less than half of one is left, so that it
        is asked for large ranges however little the socket takes at once."""
        start = self.ahead_end = max(self.ahead_end, self.position)
        if start - self.position < COLD_BYTES // 2:
            self.ahead_end = min(start + COLD_BYTES, self.position + self.size)
        return range(start, self.ahead_end)


class JointSends(Protocol):
    """What sends small answers to several sockets in one system call."""

    count_max: int
    bytes_max: int

    def send(self, wanted: Sequence[tuple[int, bytearray]]) -> list[int]:
        """To each descriptor `bytes_max` bytes at most; to no more than `count_max` of them.
        Returns how many bytes each took, or an error's number below zero; 0 if it was not asked.
        AssertionError if that is not known."""


class TurnEnd:
    """The outboxes that something was put into in this turn of the loop; one callback sends all.

    A send wakes its client at once, and on few cores the client then runs before us. Measured
    with 64 connections beside a broker that sent in the middle of the turn: 1.33 times the
    requests at 0.76 times the CPU each. And where many are answered, what is small leaves in one
    call: 1.07 to 1.10 times the requests at 0.93 to 0.96 times the CPU of a call for each. A long
    turn does so for each GROUP, so that the first clients work while the last are answered.

    What is small leaves first: it takes some microseconds, and a share of slices a tenth of a
    millisecond.
    """

    __slots__ = (
        "_failure",
        "_grouped",
        "_is_due",
        "_is_held_up",
        "_loop",
        "_moderation",
        "_outboxes",
        "_waiting",
        "has_slices",
        "joint",
        "joint_sends",
        "slice_budget",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._moderation: Moderation | None = None
        self.joint: JointSends | None = None
        """Sends small answers together. None, as it begins: each is sent by itself."""
        self.joint_sends = 0
        """Answers that it has sent, whole or in part."""
        self._is_held_up: Callable[[], bool] = _nobody
        self.has_slices = False
        """Whether this turn sends from files, itself or by a worker."""
        self._is_due = False
        self.slice_budget = TURN_BYTES
        self._outboxes: list[Outbox] = []
        self._grouped = 0
        """So many of them have been in a group."""
        self._failure: Exception | None = None
        """Of a group, which the end of the turn raises: whoever answers is not to blame for it."""
        self._waiting: deque[Outbox] = deque()

    def moderate(self, moderation: Moderation, is_held_up: Callable[[], bool]) -> None:
        """Has the loop rest from now on, where that is worth it and nobody but those who wait for
        small answers is held up by it; `is_held_up` says whether somebody is."""
        self._moderation = moderation
        self._is_held_up = is_held_up

    def add(self, outbox: Outbox) -> None:
        self._outboxes.append(outbox)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._send)
        elif self.joint is not None and len(self._outboxes) - self._grouped >= GROUP:
            self._send_group(self.joint)

    def wait_for_share(self, outbox: Outbox) -> None:
        """Called in a flush: the share is used, and the rest has its turn behind who came before.
        Who waits here costs a turn nothing, however many they are."""
        self._waiting.append(outbox)

    def _send_group(self, joint: JointSends) -> None:
        """Sends what is small now; nobody is told of it before the end of the turn."""
        group = self._outboxes[self._grouped :]
        self._grouped = len(self._outboxes)
        if self._failure is None:
            try:
                self.joint_sends += _send_jointly(joint, group)
            except (AssertionError, MemoryError, OSError) as failure:
                self._failure = failure

    def _send(self) -> None:
        small, large = _by_size(self._outboxes)
        outboxes = small + large if large else small
        self._outboxes = []
        self._grouped = 0
        self.slice_budget = TURN_BYTES
        self.has_slices = False
        self._is_due = False
        sent = 0
        try:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self.joint is not None and len(small) >= JOINT_MIN:
                self.joint_sends += _send_jointly(self.joint, small)
            for outbox in small:
                sent += 1
                outbox.flush()
            while self._waiting and self.slice_budget > 0:
                self._waiting.popleft().flush()
            for outbox in large:
                sent += 1
                outbox.flush()
        finally:
            # One of them may have broken: those behind it are not to blame.
            if sent < len(outboxes):
                self._outboxes = outboxes[sent:] + self._outboxes
            self._grouped = 0
            if (self._outboxes or self._waiting) and not self._is_due:
                self._is_due = True
                self._loop.call_soon(self._send)
        moderation = self._moderation
        if moderation is None:
            return
        is_held_up = self.has_slices or self._is_due or self._is_held_up()
        if moderation.turn(outboxes, self._loop.time(), is_held_up=is_held_up):
            moderation.rest()


def _by_size(outboxes: list[Outbox]) -> tuple[list[Outbox], list[Outbox]]:
    """Those that have less to send than goes by sendfile, and the others."""
    small: list[Outbox] = []
    large: list[Outbox] = []
    for outbox in outboxes:
        (small if outbox.unsent_bytes < SENDFILE_MIN else large).append(outbox)
    return small, large


def _send_jointly(joint: JointSends, outboxes: list[Outbox]) -> int:
    """Sends what is small, and returns how many answers left, whole or in part. Each outbox is
    flushed behind this, and acts there on what it met."""
    left = 0
    count_max, bytes_max = joint.count_max, joint.bytes_max
    chosen: list[Outbox] = []
    wanted: list[tuple[int, bytearray]] = []
    for outbox in outboxes:
        data = outbox.only_item
        if data is not None and len(data) <= bytes_max:
            chosen.append(outbox)
            wanted.append((outbox.fileno(), data))
            if len(wanted) == count_max:
                left += _note(chosen, joint.send(wanted))
                chosen, wanted = [], []
    if len(wanted) >= JOINT_MIN:
        left += _note(chosen, joint.send(wanted))
    return left


def _note(outboxes: list[Outbox], results: list[int]) -> int:
    left = 0
    for outbox, result in zip(outboxes, results, strict=True):
        if result >= 0:
            outbox.sent(result)
            left += result > 0
        else:
            outbox.refused(os_error(-result))
    return left


class Outbox:
    """The unsent end of one connection. All methods run on the loop.

    `on_drained` is called when everything is sent, `on_failed` once when the peer is gone or a
    file ended early; after that the outbox drops what it has and what it is given.
    """

    __slots__ = (
        "_buffer",
        "_cache",
        "_closed",
        "_error",
        "_is_cold",
        "_items",
        "_lent",
        "_loop",
        "_metrics",
        "_on_drained",
        "_on_failed",
        "_scheduled",
        "_slice_bytes",
        "_socket",
        "_stopped",
        "_turn_end",
        "_watched",
        "unsent_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        buffer: SendBuffer,
        cache: PageCache,
        metrics: NetworkCounters,
        turn_end: TurnEnd,
        on_drained: Callable[[], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._buffer = buffer
        self._cache = cache
        self._metrics = metrics
        self._turn_end = turn_end
        self._on_drained = on_drained
        self._on_failed = on_failed
        self._items: deque[bytearray | memoryview | _Slice] = deque()
        self._scheduled = False
        self._slice_bytes = 0  # of slices that have left
        self._stopped = False  # waiting for writability or for a worker
        self._watched = False  # the loop tells of writability
        self._lent: Future[tuple[int, bool]] | None = None  # the socket, to a worker
        self._is_cold = False  # what follows is a worker's, without a probe
        self._closed = False
        self._error: OSError | None = None  # of a joint send
        self.unsent_bytes = 0

    def put(self, data: bytearray, slices: list[tuple[int, FileSlice]]) -> None:
        """Queues one answer: `data` with each slice at its position in it. Does not send yet."""
        if self._closed:
            return
        if not slices or (len(slices) == 1 and self._joined(data, *slices[0])):
            self.unsent_bytes += len(data)
            self._items.append(data)
            return
        self.unsent_bytes += len(data)
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
        """Sends at the end of this turn of the loop, together with what else is ready then, or
        before it in a group."""
        if not self._scheduled:
            self._scheduled = True
            self._turn_end.add(self)

    def fileno(self) -> int:
        """The socket's; -1 once it is closed."""
        return self._socket.fileno()

    @property
    def only_item(self) -> bytearray | None:
        """What is to be sent now, if it is all in one piece. What a socket has refused is not."""
        is_refused = self._error is not None
        if self._stopped or self._closed or is_refused or len(self._items) != 1:
            return None
        item = self._items[0]
        return item if isinstance(item, bytearray) else None

    def sent(self, count: int) -> None:
        """So many bytes of `only_item` have left."""
        item = self._items[0]
        assert not isinstance(item, _Slice)
        self.unsent_bytes -= count
        self._metrics.sent_bytes += count
        if count == len(item):
            self._items.clear()
        elif count:
            self._items[0] = memoryview(item)[count:]

    def refused(self, error: OSError) -> None:
        """The socket has not taken `only_item`. It says why once, so `flush` is told."""
        self._error = error

    def flush(self) -> None:
        """Sends until all is gone, the socket is full, or the turn's share of slices is used."""
        self._scheduled = False
        if self._stopped or self._closed:
            return
        items = self._items
        try:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            while items:
                head = items[0]
                if not isinstance(head, _Slice):
                    if len(items) == 1:
                        self._send_last(head)
                    else:
                        self._send_joined()
                elif self._turn_end.slice_budget <= 0 and not self._is_cold:
                    self._scheduled = True
                    self._turn_end.wait_for_share(self)
                    return
                elif not self._send_slice(head):
                    return
        except (BlockingIOError, InterruptedError):
            self._wait_for_room()
            return
        except OSError as failure:
            self._fail(_reason(failure))
            return
        if self._watched:
            self._unwatch()
        self._on_drained()

    def end_of_peer(self) -> End | None:
        """Asks the kernel: who reads nothing is told nothing."""
        if self._closed:
            return None  # by us, and the transport tells of that
        poll = select.poll()
        poll.register(self._socket, _SENDS_NO_MORE | _IS_GONE)
        events = sum(flags for _, flags in poll.poll(0))
        if events & _IS_GONE:
            return End.GONE
        return End.SENDING if events else None

    def close(self) -> None:
        """Drops what is unsent and closes the socket's dup, at once or when a worker that is
        sending on it is done. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._unwatch()
        for item in self._items:
            if type(item) is _Slice:
                item.pinned.unpin()
        self._items.clear()
        self.unsent_bytes = 0
        # What has left still arrives. Closing alone ends nothing where a process that was forked
        # has the socket, too, or where a worker is sending on it.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        # The number of one that a worker has must not become another's meanwhile.
        if self._lent is None or self._lent.cancel():
            self._socket.close()

    def _joined(self, data: bytearray, position: int, source: FileSlice) -> bool:
        """Puts the only slice of an answer into its headers, if it is tiny and at hand."""
        if source.size > INSERTED_BYTES_MAX:
            return False
        small = self._read_small(source)
        if small is None:
            return False
        data[position:position] = small
        return True

    def _put_slice(self, source: FileSlice) -> None:
        data = self._read_small(source)
        self._items.append(_Slice(source) if data is None else data)

    def _read_small(self, source: FileSlice) -> bytearray | None:
        """The bytes of a slice that is better copied than sent by sendfile; None for another."""
        if source.size >= SENDFILE_MIN or self.unsent_bytes > JOINED_BYTES_MAX:
            return None
        if source.known:
            return bytearray(source.known)
        try:
            return self._cache.read_cached(source.file.fileno(), source.position, source.size)
        except OSError as error:
            path = source.file.path
            self._cache.unreadable.note(path, source.position, source.size, error)
            raise

    def _send_last(self, item: bytearray | memoryview) -> None:
        """One send of all that is left. BlockingIOError when the socket is full."""
        self.sent(self._socket.send(item))
        if self._items:
            raise BlockingIOError

    def _send_joined(self) -> None:
        """One send of all bytes up to the next slice. BlockingIOError when the socket is full."""
        items = self._items
        batch: list[bytearray | memoryview] = []
        for item in items:
            if isinstance(item, _Slice) or len(batch) == IOV_MAX:
                break
            batch.append(item)
        more = socket.MSG_MORE if len(batch) < len(items) and _HAS_MORE else 0
        count = self._socket.sendmsg(batch, (), more)
        self.unsent_bytes -= count
        self._metrics.sent_bytes += count
        for item in batch:
            size = len(item)
            if count < size:
                items[0] = memoryview(item)[count:]
                raise BlockingIOError
            count -= size
            items.popleft()

    def _send_slice(self, piece: _Slice) -> bool:
        """One step of a slice; False when nothing more can be sent in this turn."""
        size = min(piece.size, STEP_BYTES)
        self._turn_end.has_slices = True
        if self._slice_bytes >= self._buffer.widens_at_bytes:
            self._buffer.widen()
        if self._is_cold or not self._is_warm(piece, piece.position + size):
            self._send_in_worker(piece)
            return False
        try:
            count = os.sendfile(self._socket.fileno(), piece.descriptor, piece.position, size)
        except OSError as error:
            if error.errno == errno.EIO:  # of the file: a socket has no such error
                self._cache.unreadable.note(piece.pinned.path, piece.position, size, error)
            raise
        self._turn_end.slice_budget -= count
        if self._took(piece, count) and count < size:
            raise BlockingIOError
        return count > 0

    def _is_warm(self, piece: _Slice, end: int) -> bool:
        """Whether a slice is in memory up to `end`, by the last byte of each window: what was read
        ahead ends somewhere. The socket may take a part of what was asked for, so what was found
        is remembered: asked anew each time, the kernel was asked twice for every window, which was
        a fifth of what a reader cost."""
        now_s = self._loop.time()
        if now_s - piece.probed_s > WARM_S or piece.warm_end < piece.position:
            if not self._cache.holds(piece.descriptor, piece.position):
                return False
            piece.warm_end = piece.position
        slice_end = piece.position + piece.size
        while piece.warm_end < end:
            window_end = (piece.warm_end // PROBE_BYTES + 1) * PROBE_BYTES
            window_end = min(window_end, slice_end)
            found_s = self._cache.found_window(
                piece.pinned, piece.descriptor, piece.warm_end, window_end, now_s
            )
            if found_s is None:
                return False
            piece.warm_end = window_end
            piece.probed_s = found_s
        return True

    def _send_in_worker(self, piece: _Slice) -> None:
        """One step of a slice that may have to be read from the disk; nothing else is sent until
        it has left."""
        ahead = piece.next_ahead()
        position, size = piece.position, piece.ahead_end - piece.position
        try:
            lent = self._cache.executor.submit(
                self._cache.send_cold, self._socket, piece.descriptor, position, size, ahead
            )
        except RuntimeError as error:  # the broker has stopped, or no thread can be started
            self._fail(str(error))
            return
        self._stopped = True
        self._unwatch()
        self._cache.note_cold(piece.pinned, self._loop.time())
        self._lent = lent
        piece.pinned.pin()

        def done(result: asyncio.Future[tuple[int, bool]]) -> None:
            piece.pinned.unpin()
            self._cache.cold_sends_under_way -= 1
            self._lent = None
            if result.cancelled():
                return  # the connection ended before a worker had the time
            error = result.exception()
            if isinstance(error, OSError) and error.errno == errno.EIO:
                tried = min(size, WORKER_STEP_BYTES)
                self._cache.unreadable.note(piece.pinned.path, position, tried, error)
            if self._closed:
                self._socket.close()
            elif error is None:
                count, self._is_cold = result.result()
                if ahead:
                    self._buffer.sent_window(is_cold=self._is_cold)
                if self._took(piece, count):
                    self._go_on(is_full=count < size)
            elif isinstance(error, BlockingIOError):
                self._go_on(is_full=True)
            else:
                self._fail(_reason(error))
            if error is not None and not isinstance(error, OSError):
                raise error

        # Not run_in_executor: what it gives ends when it is cancelled, even while a worker sends.
        asyncio.wrap_future(lent, loop=self._loop).add_done_callback(done)

    def _go_on(self, *, is_full: bool) -> None:
        """A worker has sent what it could."""
        if is_full:
            self._wait_for_room()
        else:
            self._stopped = False
            self.schedule()

    def _took(self, piece: _Slice, count: int) -> bool:
        """So much of a slice has left. False if it is nothing, which is the end of the file."""
        if count == 0:
            self._fail("the file ended before the slice")
            return False
        self.unsent_bytes -= count
        self._slice_bytes += count
        self._metrics.sent_bytes += count
        piece.position += count
        piece.size -= count
        if piece.size == 0:
            piece.pinned.unpin()
            self._items.popleft()
        return True

    def _wait_for_room(self) -> None:
        """The socket is full. It stays watched until all is sent: a reader of much fills it again
        and again, and to ask anew each time costs two system calls."""
        self._stopped = True
        if not self._watched:
            self._watched = True
            self._loop.add_writer(self._socket.fileno(), self._resume)

    def _resume(self) -> None:
        """The socket takes more."""
        self._stopped = False
        self.schedule()

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self._loop.remove_writer(self._socket.fileno())

    def _fail(self, reason: str) -> None:
        """Nothing is sent any more; whoever is told closes the connection."""
        self._stopped = True
        self._unwatch()
        self._on_failed(reason)


def _nobody() -> bool:
    return False


def _reason(error: BaseException) -> str:
    """An error by its name, where the system has one for it."""
    number = error.errno if isinstance(error, OSError) else None
    return errno.errorcode.get(number or 0, str(error))


_HAS_MORE: Final = hasattr(socket, "MSG_MORE")
