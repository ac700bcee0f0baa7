"""/metrics, /livez, /readyz and /events: just enough HTTP/1.1 for scrapers, probes and people.

/events tells what the coordinators did to their groups and why, and who changed which setting, one
JSON object a line, the oldest first; /events?group=NAME tells what concerns that group.

One request a connection, GET and HEAD only. What a peer may cost is bounded: the size of its
request, the time it takes to send it and to read the answer, and the number of connections.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from ottla.broker.servers import close_server
from ottla.broker.telemetry.metrics import PAUSE

REQUEST_BYTES_MAX = 8192
"""As nginx and Apache have it for a request's head."""
REQUEST_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 10.0
"""Prometheus gives up after 10 s by default."""
READY_SECONDS_MAX = 3.0
CONNECTIONS_MAX = 32
"""A few scrapers and probes; more are dropped unread."""
BACKLOG = 100
"""As asyncio has it."""
LINGER_BYTES_MAX = 65536
LINGER_SECONDS_MAX = 1.0
LINES_PER_TURN = 500
"""Lines made before others get the loop: well under a millisecond. Where a line takes long itself,
there are pauses before it."""
EVENTS_PER_TURN = 100
"""The same for events, which take 5 us each."""

INDEX = b"""/metrics  for Prometheus
/events   what happened to groups, and who changed which setting; /events?group=NAME of one group
/livez    200 if the process lives
/readyz   200 if the broker can serve, else 503 and why it cannot
"""
GROUP_PARAMETER = "group"
"""The only one of /events. The other pages have none, and take no notice of any: probes and
scrapers put things there that are meant for others."""
EVENTS_TYPE = "application/x-ndjson; charset=utf-8"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TEXT_TYPE = "text/plain; charset=utf-8"


@dataclass(slots=True, frozen=True)
class Answer:
    status: HTTPStatus
    body: bytes
    content_type: str = TEXT_TYPE


class Pages(NamedTuple):
    """What is shown: `lines` gives the metrics page, `happened` the events of a group, or all.
    `unready` says why the broker cannot serve now, None if it can."""

    lines: Callable[[], Iterator[str]]
    unready: Callable[[], Awaitable[str | None]]
    happened: Callable[[str | None], Iterable[Mapping[str, Any]]]


def not_served(where: str, error: OSError) -> OSError:
    """The same error, with the address and what to do in its sentence."""
    # From Python 3.13 on asyncio passes over an address that is not of this machine, and has no
    # number for it when none is left.
    number = error.errno or errno.EADDRNOTAVAIL
    is_unknown = isinstance(error, socket.gaierror)
    # A loop's own sentence has the address once more; a resolver's numbers are its own.
    reason = error.strerror if is_unknown else os.strerror(number)
    if number == errno.EADDRINUSE:
        reason = "the port is in use"
    way_out = "Choose another ottla.telemetry.port, or -1 for none."
    if is_unknown or number == errno.EADDRNOTAVAIL:
        way_out = (
            "Name a host of this machine by ottla.telemetry.host,"
            " or choose ottla.telemetry.port=-1 for none."
        )
    return OSError(number, f"cannot serve /metrics on {where}: {reason}. {way_out}")


class TelemetryServer:
    """Serves one broker's pages, from `serve` until `stop`; `unready` may take `ready_seconds`."""

    def __init__(
        self,
        *,
        request_seconds: float = REQUEST_SECONDS_MAX,
        ready_seconds: float = READY_SECONDS_MAX,
    ) -> None:
        self._pages: Pages | None = None
        self._request_seconds = request_seconds
        self._ready_seconds = ready_seconds
        self._server: asyncio.Server | None = None
        self._stopping = False
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def bind(self, host: str, port: int) -> int:
        """Takes the port, and returns the real one; OSError when the address cannot be had."""
        self._server = await asyncio.start_server(
            self._serve,
            host,
            port,
            limit=REQUEST_BYTES_MAX,
            backlog=BACKLOG,
            start_serving=False,
        )
        return self.address[1]

    @property
    def address(self) -> tuple[str, int]:
        """Address and port, the first of several."""
        assert self._server is not None, "no port is bound"
        host, port, *_ = self._server.sockets[0].getsockname()
        return host, port

    @property
    def is_exposed(self) -> bool:
        """Whether other machines may reach it."""
        sockets = self._server.sockets if self._server is not None else ()
        return any(not ip_address(one.getsockname()[0]).is_loopback for one in sockets)

    async def serve(self, pages: Pages) -> None:
        """Begins to accept; OSError when somebody else has begun to listen there meanwhile."""
        assert self._server is not None, "no port is bound"
        self._pages = pages
        for bound in self._server.sockets:
            # uvloop drops a socket that cannot listen, and raises nothing.
            with socket.fromfd(bound.fileno(), bound.family, bound.type) as same:
                same.listen(BACKLOG)
        await self._server.start_serving()

    async def stop(self) -> None:
        """Closes the socket and every connection."""
        if self._server is not None:
            close_server(self._server)
            self._stopping = True
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)  # the close takes a turn
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._stopping or len(self._tasks) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._tasks[task] = None
        try:
            answer, head_only = await self._answer(reader)
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                writer.write(_encode(answer, head_only=head_only))
                await writer.drain()
            writer.write_eof()
            await _linger(reader)
        except (TimeoutError, ConnectionError):
            # The peer is slow or gone; there is nobody to answer.
            writer.transport.abort()
        except asyncio.CancelledError:
            # `stop` ends us; Python 3.11 reports a cancelled connection as an error of its own.
            writer.transport.abort()
        finally:
            writer.close()
            del self._tasks[task]

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[Answer, bool]:
        """The answer, and whether only its head is wanted."""
        try:
            async with asyncio.timeout(self._request_seconds):
                begin = await reader.readexactly(1)
                if not begin.isalpha():  # a Kafka client, which would wait for an answer
                    return _text(HTTPStatus.BAD_REQUEST), False
                head = begin + await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _text(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), False
        except asyncio.IncompleteReadError:
            return _text(HTTPStatus.BAD_REQUEST), False
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _text(HTTPStatus.BAD_REQUEST), False
        method, target, _ = words
        if method not in (b"GET", b"HEAD"):
            return _text(HTTPStatus.METHOD_NOT_ALLOWED), False
        path, _, query = target.partition(b"?")
        assert self._pages is not None, "a socket accepts that is not served"
        return await self._page(self._pages, path, query), method == b"HEAD"

    async def _page(self, pages: Pages, path: bytes, query: bytes) -> Answer:
        if path == b"/metrics":
            return Answer(HTTPStatus.OK, await _page_of(pages.lines()), METRICS_TYPE)
        if path == b"/":
            return Answer(HTTPStatus.OK, INDEX)
        if path == b"/livez":
            return _text(HTTPStatus.OK)
        if path == b"/readyz":
            return await self._readiness(pages)
        if path == b"/events":
            return await self._events(pages, query)
        return _text(HTTPStatus.NOT_FOUND)

    async def _events(self, pages: Pages, query: bytes) -> Answer:
        asked = parse_qs(query.decode(errors="replace"), keep_blank_values=True)
        unknown = [name for name in asked if name != GROUP_PARAMETER]
        if unknown:
            # The events of all groups would pass for those of the one that was meant.
            said = f"/events has no parameter {unknown[0]!r}. It has one: {GROUP_PARAMETER}=NAME.\n"
            return Answer(HTTPStatus.BAD_REQUEST, said.encode())
        groups = asked.get(GROUP_PARAMETER, [])
        if len(groups) > 1:
            said = f"/events takes one {GROUP_PARAMETER}=NAME, not {len(groups)}.\n"
            return Answer(HTTPStatus.BAD_REQUEST, said.encode())
        lines = map(_json_line, pages.happened(groups[0] if groups else None))
        return Answer(HTTPStatus.OK, await _page_of(lines, EVENTS_PER_TURN), EVENTS_TYPE)

    async def _readiness(self, pages: Pages) -> Answer:
        try:
            async with asyncio.timeout(self._ready_seconds):
                reason = await pages.unready()
        except TimeoutError:
            reason = f"no answer within {self._ready_seconds:g} s"
        if reason is None:
            return _text(HTTPStatus.OK)
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{reason}\n".encode())


async def _page_of(lines: Iterable[str], per_turn: int = LINES_PER_TURN) -> bytes:
    page = bytearray()
    left = per_turn
    for line in lines:
        if line != PAUSE:
            page += line.encode()
            page += b"\n"
            left -= 1
        if line == PAUSE or left == 0:
            left = per_turn
            await asyncio.sleep(0)
    return bytes(page)


def _json_line(event: Mapping[str, Any]) -> str:
    return json.dumps(event, ensure_ascii=False)


async def _linger(reader: asyncio.StreamReader) -> None:
    """Takes what the peer still sends: closing on unread bytes would take back the answer."""
    left = LINGER_BYTES_MAX
    async with asyncio.timeout(LINGER_SECONDS_MAX):
        while left > 0:
            data = await reader.read(left)
            if not data:
                return
            left -= len(data)


def _text(status: HTTPStatus) -> Answer:
    return Answer(status, f"{status.phrase}\n".encode())


def _encode(answer: Answer, *, head_only: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    head = "\r\n".join([*lines, "", ""]).encode()
    return head if head_only else head + answer.body
