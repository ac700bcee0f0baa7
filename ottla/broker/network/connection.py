"""One client connection: frames in, requests to handlers, answers out in order.

The rules of a connection: requests are taken up in order, each when those before it are answered,
as Kafka does; only Produce requests overlap, so that one sync serves many. Answers keep that order
(`answers.py`). A frame that cannot be read ends the connection, and so does the peer's end of it,
both behind the answers to what came before. A client that does not read its answers, or that has
too many unanswered requests, is not read from until it catches up. What the bytes mean stands in
`ottla.protocol`; what is done about a request stands in the handlers.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import socket
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.broker.handlers.answers import NO_ANSWER, CloseConnection, Pending
from ottla.broker.handlers.context import Session
from ottla.broker.handlers.fetch_repeats import RepeatedFetch, remember
from ottla.broker.handlers.table import Entry
from ottla.broker.network.outbox import End, Outbox
from ottla.broker.network.refusals import DESCRIPTORS
from ottla.broker.network.send_buffer import SendBuffer
from ottla.broker.network.socket_options import tune
from ottla.protocol.api import ApiKey
from ottla.protocol.connection import ServerConnection
from ottla.protocol.errors import ProtocolError, ResponseTooLarge
from ottla.protocol.frame import RequestHeader, parse_request_header

if TYPE_CHECKING:
    from ottla.broker.log.file_slice import FileSlice
    from ottla.broker.network.metering import Meter
    from ottla.broker.network.server import Endpoint
    from ottla.protocol.codec import Decoder
    from ottla.protocol.messages.fetch import FetchRequest

UNSENT_BYTES_MAX: Final = 1024 * 1024
"""Reading stops above this much unsent memory (row 40 of the bad-input table)."""
UNANSWERED_MAX: Final = 512
"""Produce requests of one connection in the line; librdkafka pipelines without limit."""
HELD_BYTES_MAX: Final = 8 * 1024 * 1024
"""Records of one connection that wait for a worker (a few batches keep the workers busy), and
answers that wait for those before them."""
TURN_SECONDS: Final = 0.001
"""A request of one connection that begins so long after its first is the last in a turn of the
loop: what asks for no answers comes by the thousand at once, and everybody else waits for it."""
PARTITION_ANSWER_BYTES: Final = 400
"""What one partition of a Produce answer takes that waits, as measured with unknown ones."""
FRAME_SECONDS: Final = 30.0
"""A frame that has begun must come within this time plus its bytes at FRAME_BYTES_PER_S."""
FRAME_BYTES_PER_S: Final = 65536
DATA_APIS: Final = frozenset(
    map(int, (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE))
)
"""What carries records waits for nothing; all else takes turns (`lane.py`)."""
DEFERRED_MAX: Final = 4
DEFERRED_BYTES: Final = 16 * 1024
"""Frames of one connection that wait in the lane; one that is larger than this is the last."""
SHRINK_AFTER_S: Final = 10.0
"""A receive buffer is given back when nothing came for so long."""

ENDING_ERRORS: Final = (ProtocolError, CloseConnection, AssertionError)
"""What a request may raise that has no answer: the connection ends."""

_PRODUCE: Final = int(ApiKey.PRODUCE)
_FETCH: Final = int(ApiKey.FETCH)
_NO_SLICES: Final[list[tuple[int, FileSlice]]] = []
_clock_s: Final = time.perf_counter
_unpack_header: Final = struct.Struct(">hhi").unpack_from

Deferred = tuple[memoryview, RequestHeader]
"""A copy of a frame that waits in the lane."""


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one socket. Everything here runs on the loop."""

    __slots__ = (
        "_beginnings",
        "_busy_s",
        "_closes_as",
        "_deferred",
        "_endpoint",
        "_forms",
        "_frame_started_s",
        "_frames",
        "_held_bytes",
        "_is_at_end",
        "_is_barred",
        "_is_in_lane",
        "_is_lost",
        "_lane",
        "_line",
        "_line_bytes",
        "_loop",
        "_meter",
        "_metrics",
        "_muted",
        "_outbox",
        "_paused",
        "_peer_is_done",
        "_repeated_fetch",
        "_session",
        "_table",
        "_transport",
        "_unsent_at_sweep",
        "last_active_s",
    )

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._loop = endpoint.loop
        self._metrics = endpoint.metrics
        self._table = endpoint.table
        self._forms = endpoint.forms
        self._beginnings: tuple[int, ...] = ()  # lengths of them, for the forms
        self._repeated_fetch: RepeatedFetch | None = None
        self._lane = endpoint.lane
        self._frames = ServerConnection(endpoint.max_request_size)
        self._line: deque[Pending] = deque()
        self._outbox: Outbox | None = None
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None
        self._paused = False
        self._is_lost = False
        self._deferred: deque[Deferred] = deque()
        self._is_in_lane = False
        self._is_barred = False  # the next frame waits until the line is empty
        self._peer_is_done = False  # it sends no more
        self._is_at_end = False  # of what it has sent
        self._closes_as = ""  # we serve no more, and close when everything is answered
        self._meter: Meter | None = None
        self._muted: asyncio.TimerHandle | None = None
        self._frame_started_s = 0.0
        self._held_bytes = 0
        self._line_bytes = 0
        self._unsent_at_sweep = 0
        self._busy_s = 0.0
        self.last_active_s = endpoint.loop.time()

    def __repr__(self) -> str:
        unsent = self._outbox.unsent_bytes if self._outbox else 0
        state = " paused" if self._paused else ""
        return f"<Connection {self.peer} unanswered={len(self._line)} unsent={unsent}{state}>"

    # what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        if not self._endpoint.admit(self, self._transport):
            return
        sock = transport.get_extra_info("socket")
        peer = transport.get_extra_info("peername") or ("?", 0)
        try:
            descriptor = socket.dup(sock.fileno())
        except OSError:  # no descriptor is left
            self._endpoint.turned_away(DESCRIPTORS, str(peer[0]))
            self._transport.abort()
            return
        self._metrics.accepted += 1
        own = socket.socket(sock.family, sock.type, sock.proto, fileno=descriptor)
        own.setblocking(False)
        try:
            tune(own, self._endpoint.receive_buffer_bytes)
            buffer = SendBuffer(own, self._endpoint.send_buffer_bytes)
            local = own.getsockname()
        except OSError:  # the peer has gone already, where the system tells of that so early
            own.close()
            self._transport.abort()
            return
        self._meter = self._endpoint.new_meter()
        self._session = Session(
            rooms=self._endpoint.rooms,
            listener_name=self._endpoint.listener_name,
            local_host=local[0],
            local_port=local[1],
            peer=f"{peer[0]}:{peer[1]}",
        )
        self._outbox = Outbox(
            self._loop,
            own,
            buffer,
            self._endpoint.page_cache,
            self._metrics,
            self._endpoint.turn_end,
            self._drained,
            self._sending_failed,
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self._endpoint.forget(self, self._held_bytes)
        self._held_bytes = 0
        self._is_lost = True
        if self._outbox is not None:
            self._outbox.close()
        self._abandon()
        if self._deferred:
            self._line_up()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active_s = self._loop.time()
        self._metrics.received_bytes += nbytes
        self._frames.received(nbytes)
        self._serve()

    def eof_received(self) -> bool:
        """The peer sends no more. It may still read, so what came whole is answered first."""
        if self._outbox is None or (self.idle and not self._unsent and not self._paused):
            return False
        self._is_at_end = True
        self._last_has_come()
        self._outbox.schedule()
        return True

    # what the rooms call

    def answered(self, answer: Pending) -> None:
        """An answer of the line is there: send it, and what waited behind it, if it is its turn."""
        if self._line[0] is answer:
            self._send_ready()

    def failed(self, answer: Pending, error: Exception) -> None:
        """An answer of the line cannot be made: the handler boundary of what is answered later."""
        try:
            response = self._endpoint.handler_failed(answer.entry, answer.version, error)
        except CloseConnection as closing:
            self.refused(answer, closing)
        else:
            answer.complete(response)

    def refused(self, answer: Pending, closing: CloseConnection) -> None:
        """An answer of the line is the end of the connection: those before it are still sent."""
        self._drop_line(answer)
        self._deferred.clear()
        self._end(closing)

    def meter(self, meter: Meter | None) -> None:
        """Counts what requests cost from now on, or no more."""
        self._meter = meter

    def mute(self, wait_ms: int) -> None:
        """Reads no more for a while: the client has used more than its quota."""
        if wait_ms <= 0:
            return
        self._metrics.throttles += 1
        self._metrics.throttled_ms += wait_ms
        self.pause()
        until_s = self._loop.time() + wait_ms / 1000
        if self._muted is not None:
            if self._muted.when() >= until_s:
                return
            self._muted.cancel()
        self._muted = self._loop.call_at(until_s, self._unmute)

    def hold_back(self, wait_ms: int) -> None:
        """Serves nothing yet, for more connect than may. It has just been made."""
        self._paused = True
        # uvloop begins to read when connection_made has returned.
        self._loop.call_soon(self._stop_reading)
        self._muted = self._loop.call_later(wait_ms / 1000, self._unmute)

    def go_on(self, now_s: float) -> None:
        """It is our turn in the lane. Who has sent a request and hung up wants it done, as one that
        leaves its group."""
        self._is_in_lane = False
        if not self._deferred or self._must_wait(self._deferred[0][1][0]):
            return  # the latter is told when the line is empty
        assert self._outbox is not None
        frame, header = self._deferred.popleft()
        try:
            self._request(frame, header, now_s)
        except ENDING_ERRORS as error:
            self._deferred.clear()
            self._end(error)
        else:
            # No whole frame is left behind it: they were all deferred, or we do not read.
            if self._is_lost:
                self._abandon()
            if self._deferred:
                self._line_up()
            if self._outbox.unsent_bytes or self._paused or self._is_at_end:
                self._outbox.schedule()

    @property
    def peer(self) -> str:
        """`address:port` of who is connected, `?` before that is known."""
        return self._session.peer if self._session is not None else "?"

    @property
    def idle(self) -> bool:
        return not self._line and not self._deferred

    def idle_s(self, now_s: float) -> float:
        """How long nothing came, nothing left and nothing was being served. Each sweep asks, and
        finds what left since the last one, so that sending needs no clock."""
        unsent = self._unsent
        if unsent != self._unsent_at_sweep or not self.idle:
            self._busy_s = now_s
        self._unsent_at_sweep = unsent
        return now_s - max(self.last_active_s, self._busy_s)

    def overdue(self, now_s: float) -> bool:
        """Has a frame begun that is too slow (row 3 of the bad-input table)?"""
        if not self._frame_started_s or self._paused or self._is_at_end:
            return False
        allowed = FRAME_SECONDS + self._frames.buffered / FRAME_BYTES_PER_S
        return now_s - self._frame_started_s > allowed

    def hung_up(self) -> bool:
        """Has the peer gone while we do not read, and so do not see it? One that sends no more may
        wait for its answers, and gets them soon."""
        if self._outbox is None or not (self._paused or self._is_at_end):
            return False
        end = self._outbox.end_of_peer()
        if end is End.SENDING and not self._peer_is_done:
            self._last_has_come()
        return end is End.GONE

    def rest(self, now_s: float) -> None:
        """Gives the receive buffer back if nothing came for a while."""
        if now_s - self.last_active_s > SHRINK_AFTER_S:
            self._frames.shrink()

    def close(self, reason: str) -> None:
        """Ends the connection; what is unsent is dropped, and nothing more is served or sent: an
        answer that could not be sent must not be followed by the next one."""
        if self._transport is not None and not self._transport.is_closing():
            self._metrics.closed(reason)
            self._transport.abort()
            self._deferred.clear()
            self._paused = True
            if self._outbox is not None:
                self._outbox.close()

    async def finish(self, deadline_s: float) -> None:
        """Reads no more, waits until everything is answered and sent, then closes."""
        assert self._transport is not None
        self.pause()
        while (not self.idle or self._unsent) and self._loop.time() < deadline_s:
            if self._transport.is_closing():
                return
            await asyncio.sleep(0.005)
        self.close("shutdown")

    # inside

    def _abandon(self) -> None:
        """Nobody waits here any more: ends what lives as long as the connection."""
        if self._session is not None and self._session.on_closed is not None:
            self._session.on_closed(self._session)
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        if self._meter is not None:
            self._meter.lost()
        self._drop_line()

    def _drop_line(self, failed: Pending | None = None) -> None:
        """Nothing of the line is answered, or nothing from one on that has failed by itself."""
        line = self._line
        kept = 0 if failed is None else line.index(failed)
        dropped: list[Pending] = []
        while len(line) > kept:  # all of them first: one that is abandoned may complete others
            pending = line.pop()
            self._line_bytes -= pending.counted_bytes
            pending.line = None
            dropped.append(pending)
        for pending in reversed(dropped):
            if pending is not failed and pending.response is None:
                pending.abandoned = True
                pending.on_abandoned()

    @property
    def _unsent(self) -> int:
        return self._outbox.unsent_bytes if self._outbox is not None else 0

    def _serve(self) -> None:
        """Serves the whole frames that are there, for a while, then sends what is ready."""
        frames, outbox = self._frames, self._outbox
        assert outbox is not None
        first_s = 0.0
        try:
            while frames.buffered and not self._paused:
                frame = frames.next_frame()
                if frame is None:
                    break
                self._frame_started_s = 0.0  # what is left in the buffer is another one
                now_s = _clock_s()
                first_s = first_s or now_s
                if not (self._beginnings and self._serve_by_form(frame, now_s)):
                    header = parse_request_header(frame)
                    if self._line and self._must_wait(header[0]):
                        frames.put_back(frame)
                        self._is_barred = True
                        self.pause()
                        break
                    is_data = header[0] in DATA_APIS
                    if self._deferred or (not is_data and not self._lane.take(now_s)):
                        self._defer(frame, header)
                    else:
                        self._request(frame, header, now_s)
                if (
                    now_s - first_s > TURN_SECONDS
                    or len(self._line) >= UNANSWERED_MAX
                    or outbox.unsent_bytes > UNSENT_BYTES_MAX
                    or self._line_bytes > HELD_BYTES_MAX
                ):
                    self.pause()
        except ENDING_ERRORS as error:
            self._end(error)
            return
        if (frames.buffered or self._held_bytes) and not self._is_lost:
            self._account()
        if outbox.unsent_bytes or self._paused or self._is_at_end:
            outbox.schedule()

    def _must_wait(self, api_key: int) -> bool:
        """Whether a request is taken up only when the line is empty. All in the line are Produce
        requests, or it is one of another kind."""
        line = self._line
        return bool(line) and (api_key != _PRODUCE or line[0].entry is not self._table[_PRODUCE])

    def _last_has_come(self) -> None:
        """Nothing comes any more: who waits for more records is answered now, for most often
        nobody is there any more."""
        self._peer_is_done = True
        for pending in list(self._line):
            pending.hurry()

    def _end(self, error: Exception) -> None:
        """What cannot be served ends the connection, behind the answers to what came before it.
        What came behind it is not served."""
        if isinstance(error, AssertionError):
            self.close("broken_invariant")
            self._endpoint.fatal(error)
            return
        self._endpoint.refused(self, str(error))
        is_refusal = isinstance(error, CloseConnection)
        self._close_when_answered("refused" if is_refusal else "protocol_error")

    def _close_when_answered(self, closes_as: str) -> None:
        """Reads no more, and closes when everything is answered and sent (`_drained`)."""
        assert self._outbox is not None
        self._closes_as = closes_as
        self.pause()
        self._outbox.schedule()

    def _account(self) -> None:
        """Tells the endpoint what the receive buffer holds, and since when a frame is open."""
        held = self._frames.buffered
        if held:
            if not self._frame_started_s:
                self._frame_started_s = self.last_active_s
        else:
            self._frame_started_s = 0.0
        if held != self._held_bytes:
            self._endpoint.hold(held - self._held_bytes)
            self._held_bytes = held

    def _request(self, frame: memoryview, header: RequestHeader, started_s: float) -> None:
        api_key, version, correlation_id, client_id, position = header
        entry = self._table.get(api_key)
        if entry is None:
            raise CloseConnection(f"API key {api_key} is not served")
        decode = entry.decoders[version]
        if decode is None:
            self._unserved_version(entry, version, correlation_id)
            return
        session = self._session
        assert session is not None
        session.client_id = client_id
        meter = self._meter
        if api_key == _FETCH and meter is None:  # which may change the request
            request = self._fetch_request(frame, position, version, decode)
        else:
            request, _ = decode(frame, position)
        if meter is None:
            if api_key == _PRODUCE:
                self._beginnings = self._forms.learn(frame, request, version, self._beginnings)
        else:
            self.mute(meter.arrived(api_key, request, client_id, len(frame)))
        try:
            response = entry.handle(session, request, version)
        except ENDING_ERRORS:
            raise
        except Exception as error:  # the handler boundary
            response = self._endpoint.handler_failed(entry, version, error)
        pending: Pending | None = None
        if isinstance(response, Pending):
            pending = response
            response = pending.response  # it may have come before the handler returned
        if type(response) is entry.response and not self._line and meter is None:
            self._send(entry, version, correlation_id, response)
            entry.observe(_clock_s() - started_s)
            return
        if pending is None:
            if response is NO_ANSWER:
                entry.observe(_clock_s() - started_s)
                return
            pending = Pending()
            if type(response) is entry.response:
                pending.response = response
            else:
                assert inspect.isawaitable(response), f"{entry.api.key.name} returned {response!r}"
                if meter is not None:
                    response = meter.timed(response)
                self._endpoint.run(entry, version, response, pending)
        if api_key == _PRODUCE:
            partitions = sum(len(topic.partition_data) for topic in request.topic_data)
            pending.held_bytes += PARTITION_ANSWER_BYTES * partitions
        if meter is not None:
            meter.waits(pending, _clock_s() - started_s)
        self._enqueue(pending, entry, version, correlation_id, started_s)

    def _fetch_request(
        self, frame: memoryview, position: int, version: int, decode: Decoder[FetchRequest]
    ) -> Any:
        """Such requests are taken up one after another: nobody works on the last any more."""
        assert not self._line
        last = self._repeated_fetch
        request = None if last is None else last.again(frame, position=position, version=version)
        if request is None:
            request, _ = decode(frame, position)
            self._repeated_fetch = remember(frame, request, position=position, version=version)
        return request

    def _serve_by_form(self, frame: memoryview, started_s: float) -> bool:
        """Whether the request is a Produce like one before, and is served."""
        api_key, version, correlation_id = cast("tuple[int, int, int]", _unpack_header(frame))
        if api_key != _PRODUCE or self._deferred or self._meter is not None:
            return False
        assert self._outbox is not None
        entry = self._table[_PRODUCE]
        if self._line and self._line[0].entry is not entry:
            return False
        try:
            answer = self._forms.serve(frame, version, correlation_id, self._beginnings)
        except ENDING_ERRORS:
            raise
        except Exception as error:  # the handler boundary, as in `_request`
            self._endpoint.handler_failed(entry, version, error)
            raise
        if answer is None:
            return False
        if type(answer) is bytearray and not self._line:
            self._outbox.put(answer, _NO_SLICES)
            entry.observe(_clock_s() - started_s)
            return True
        pending = answer if isinstance(answer, Pending) else Pending()
        if pending is not answer:
            pending.response = answer
        self._enqueue(pending, entry, version, correlation_id, started_s)
        return True

    def _defer(self, frame: memoryview, header: RequestHeader) -> None:
        """The request waits, and all behind it, for answers keep the order of requests."""
        self._deferred.append((memoryview(bytearray(frame)), header))
        self._line_up()
        if len(frame) > DEFERRED_BYTES or len(self._deferred) >= DEFERRED_MAX:
            self.pause()

    def _line_up(self) -> None:
        """Has the next deferred request wait for its turn, unless it waits for the line."""
        if not self._is_in_lane and not self._must_wait(self._deferred[0][1][0]):
            self._is_in_lane = True
            self._lane.add(self)

    def _enqueue(
        self, pending: Pending, entry: Entry, version: int, correlation_id: int, started_s: float
    ) -> None:
        pending.entry = entry
        pending.version = version
        pending.correlation_id = correlation_id
        pending.started_s = started_s
        pending.line = self
        self._line.append(pending)
        # What it comes to hold later, behind its coordinator's answer, is not counted.
        pending.counted_bytes = pending.held_bytes
        self._line_bytes += pending.counted_bytes
        if pending.response is not None:
            self.answered(pending)
        elif self._peer_is_done or self._endpoint.stopping:
            pending.hurry()

    def _unserved_version(self, entry: Entry, version: int, correlation_id: int) -> None:
        """Only ApiVersions is answered in a version that we do not serve; all else is the end."""
        response = self._endpoint.unserved_version(entry, version)
        pending = Pending()
        pending.response = response
        self._enqueue(pending, entry, 0, correlation_id, _clock_s())

    def _send_ready(self) -> None:
        line = self._line
        while line and (response := line[0].response) is not None:
            pending = line.popleft()
            pending.line = None
            self._line_bytes -= pending.counted_bytes
            entry = pending.entry
            meter = self._meter
            leaves_s = 0.0
            if meter is not None:
                leaves_s = _clock_s()
                self.mute(meter.leaves(pending))
            if type(response) is bytearray:  # by a form, and no error
                assert self._outbox is not None
                self._outbox.put(response, _NO_SLICES)
            elif response is not NO_ANSWER:
                self._send(entry, pending.version, pending.correlation_id, response)
            left_s = _clock_s()
            entry.observe(left_s - pending.started_s)
            if meter is not None:
                meter.left(left_s - leaves_s)
        if self._deferred:
            self._line_up()
        if self._outbox is not None:
            self._outbox.schedule()

    def _send(self, entry: Entry, version: int, correlation_id: int, response: Any) -> None:
        assert self._outbox is not None
        try:
            data, slices = entry.encoders[version](correlation_id, response)
            self._outbox.put(data, cast("list[tuple[int, FileSlice]]", slices))
            entry.count_errors(response, entry.errors)
        except ResponseTooLarge as error:
            self._endpoint.refused(self, str(error))
            self._end_behind_answers("response_too_large")
        except (ValueError, struct.error) as error:
            self._endpoint.unwritable(entry, version, error)
            self._end_behind_answers("unwritable_answer")
        except OSError as error:
            # A file cannot be read. Whoever completed the answer is not to blame.
            self._sending_failed(errno.errorcode.get(error.errno or 0, str(error)))

    def _end_behind_answers(self, closes_as: str) -> None:
        """An answer cannot be sent: those before it still are, and none behind it."""
        self._drop_line()
        self._deferred.clear()
        self._close_when_answered(closes_as)

    def pause(self) -> None:
        """Reads no more, until everything is sent."""
        if not self._paused:
            self._paused = True
            self._stop_reading()

    def _stop_reading(self) -> None:
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _unmute(self) -> None:
        self._muted = None
        if self._outbox is not None:
            self._outbox.schedule()

    def _drained(self) -> None:
        """Everything is sent: go on reading if that was what held us, or close if we are to."""
        if self._closes_as:
            if self.idle:
                self.close(self._closes_as)
        elif (
            self._paused
            and self._muted is None
            and not self._deferred
            and not (self._is_barred and self._line)
            and len(self._line) <= UNANSWERED_MAX // 2
            and self._line_bytes <= HELD_BYTES_MAX // 2
        ):
            assert self._transport is not None
            if self._endpoint.stopping or self._transport.is_closing():
                return
            self._paused = self._is_barred = False
            # The peer could send nothing meanwhile: neither idle nor slow.
            self._frame_started_s = 0.0
            self.last_active_s = self._loop.time()
            self._loop.call_soon(self._serve_rest)
        elif self._is_at_end and not self._paused and self.idle:
            assert self._transport is not None
            self._transport.close()

    def _serve_rest(self) -> None:
        """Serves the frames that arrived whole while reading was paused, and reads on behind them:
        a loop that reads first would have the buffer grow with each answer."""
        transport = self._transport
        if self._paused or transport is None or transport.is_closing():
            return
        self._serve()
        if not (self._paused or self._is_at_end or transport.is_closing()):
            transport.resume_reading()

    def _sending_failed(self, reason: str) -> None:
        self._endpoint.sending_failed(self, reason)
