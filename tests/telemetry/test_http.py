"""The pages of the telemetry server over a real socket: answers, and what a peer may cost."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from ottla.broker.telemetry.http import (
    CONNECTIONS_MAX,
    EVENTS_PER_TURN,
    REQUEST_BYTES_MAX,
    Pages,
    TelemetryServer,
)
from ottla.broker.telemetry.metrics import Registry, Sample

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "standard": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
HOST = "127.0.0.1"
HAPPENED: list[dict[str, Any]] = [
    {"event": "group_empty", "group": "a b", "n": 1},
    {"event": "x", "group": "c"},
]


async def ready() -> str | None:
    return None


@asynccontextmanager
async def serving(
    unready: Callable[[], Awaitable[str | None]] = ready,
    samples: int = 1,
    request_seconds: float = 0.05,
    read: Callable[[], Iterator[Sample | None]] | None = None,
    happened: Callable[[str | None], Iterable[Mapping[str, Any]]] = lambda group: [
        one for one in HAPPENED if group in (None, one["group"])
    ],
) -> AsyncIterator[int]:
    registry = Registry()
    numbers = read or (lambda: (({"i": str(i)}, i) for i in range(samples)))
    registry.watch("n", "Numbers.", numbers)
    server = TelemetryServer(request_seconds=request_seconds, ready_seconds=0.05)
    port = await server.bind(HOST, 0)
    pages = Pages(lines=registry.lines, unready=unready, happened=happened)
    await server.serve(pages)
    try:
        yield port
    finally:
        await server.stop()


@pytest.mark.parametrize("loop", LOOPS)
def test_who_has_bound_a_port_and_is_late_to_listen_is_told(loop: str) -> None:
    """SO_REUSEADDR lets two bind it; uvloop passes over the one that then cannot listen."""

    async def scenario() -> None:
        late = TelemetryServer()
        port = await late.bind(HOST, 0)
        with socket.socket() as quick:
            quick.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            quick.bind((HOST, port))
            quick.listen()
            pages = Pages(lines=lambda: iter(()), unready=ready, happened=lambda _: ())
            with pytest.raises(OSError, match="in use") as refused:
                await late.serve(pages)
            await late.stop()

        assert refused.value.errno == errno.EADDRINUSE

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(scenario())


async def send(port: int, request: bytes) -> bytes:
    """What comes back until the server closes."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def get(port: int, target: str, method: str = "GET") -> tuple[int, str, str]:
    """(status, head, body)"""
    answer = await send(port, f"{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = answer.decode().partition("\r\n\r\n")
    return int(head.split(" ")[1]), head, body


async def test_the_metrics_page_comes_whole() -> None:
    async with serving(samples=3000) as port:
        status, head, body = await get(port, "/metrics?x=1")

    assert status == 200
    assert "Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
    assert f"Content-Length: {len(body)}" in head
    assert len(body.splitlines()) == 3002
    assert body.endswith('n{i="2999"} 2999\n')


async def test_others_get_the_loop_where_what_is_shown_takes_long() -> None:
    others: list[int] = []

    def slow() -> Iterator[Sample | None]:
        for _ in range(3):
            asyncio.get_running_loop().call_soon(others.append, 1)
            yield None
        yield {"i": "turns"}, len(others)

    async with serving(read=slow) as port:
        _, _, body = await get(port, "/metrics")

    assert body.splitlines()[2:] == ['n{i="turns"} 3']


async def test_others_get_the_loop_while_many_events_are_shown() -> None:
    others: list[int] = []

    def many(group: str | None) -> Iterator[Mapping[str, Any]]:
        for number in range(2 * EVENTS_PER_TURN + 1):
            if number % EVENTS_PER_TURN == 0:
                asyncio.get_running_loop().call_soon(others.append, 1)
            yield {"turns": len(others)}

    async with serving(happened=many) as port:
        _, _, body = await get(port, "/events")

    assert json.loads(body.splitlines()[-1]) == {"turns": 2}


async def test_probes() -> None:
    async def broken() -> str | None:
        return "the log dir /d is offline"

    async with serving() as port:
        assert (await get(port, "/livez"))[0] == 200
        assert (await get(port, "/readyz"))[::2] == (200, "OK\n")
    async with serving(broken) as port:
        assert (await get(port, "/livez"))[0] == 200
        assert (await get(port, "/readyz"))[::2] == (503, "the log dir /d is offline\n")


async def test_a_readiness_check_that_hangs_is_an_answer() -> None:
    async def hangs() -> str | None:
        forever: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await forever

    async with serving(hangs) as port:
        assert (await get(port, "/readyz"))[::2] == (503, "no answer within 0.05 s\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nope HTTP/1.1\r\n\r\n", 404),
        (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /livez HTTP/2\r\n\r\n", 400),
        (b"GET /livez\r\n\r\n", 400),
        (b"\x16\x03\x01\r\n\r\n", 400),
        (b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff", 400),  # Kafka's ApiVersions, whole
        (b"GET /" + b"x" * 2 * REQUEST_BYTES_MAX, 431),
    ],
)
async def test_other_requests(request_bytes: bytes, status: int) -> None:
    async with serving() as port:
        answer = await send(port, request_bytes)

    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert (b"Allow: GET, HEAD" in answer) == (status == 405)


async def test_head_answers_without_a_body() -> None:
    async with serving() as port:
        status, head, body = await get(port, "/metrics", method="HEAD")

    assert (status, body) == (200, "")
    assert "Content-Length: 0" not in head


async def test_a_peer_that_says_nothing_is_dropped() -> None:
    async with serving() as port:
        assert await send(port, b"GET /metr") == b""


async def test_too_many_peers_are_dropped() -> None:
    async with serving(request_seconds=60) as port:
        held = [await asyncio.open_connection(HOST, port) for _ in range(CONNECTIONS_MAX)]
        try:
            assert await send(port, b"") == b""
        finally:
            for _, writer in held:
                writer.transport.abort()


async def test_stopping_closes_what_is_open() -> None:
    async with serving(request_seconds=60) as port:
        reader, writer = await asyncio.open_connection(HOST, port)
        assert (await get(port, "/livez"))[0] == 200

    assert await reader.read() == b""
    writer.close()


async def test_events_come_a_line_each_of_all_groups_or_of_one() -> None:
    async with serving() as port:
        _, head, everything = await get(port, "/events")
        _, _, one = await get(port, "/events?group=a%20b")
        _, _, none = await get(port, "/events?group=")

    assert "application/x-ndjson" in head
    assert [json.loads(line) for line in everything.splitlines()] == HAPPENED
    assert [json.loads(line) for line in one.splitlines()] == HAPPENED[:1]
    assert none == ""


@pytest.mark.parametrize(
    ("query", "named"),
    [("grp=x", "'grp'"), ("group=c&limit=5", "'limit'"), ("%0a=x", r"'\n'"), ("=", "''")],
)
async def test_a_parameter_that_events_has_not_is_told(query: str, named: str) -> None:
    async with serving() as port:
        status, head, body = await get(port, f"/events?{query}")

    assert status == 400
    assert "Content-Type: text/plain" in head
    assert body == f"/events has no parameter {named}. It has one: group=NAME.\n"


async def test_the_events_of_two_groups_are_not_those_of_the_first() -> None:
    async with serving() as port:
        status, _, body = await get(port, "/events?group=c&group=d")

    assert status == 400
    assert body == "/events takes one group=NAME, not 2.\n"


async def test_the_root_tells_which_pages_there_are() -> None:
    async with serving() as port:
        _, _, index = await get(port, "/")
        pages = [line.split()[0] for line in index.splitlines()]
        found = [(await get(port, page))[0] for page in pages]

    assert pages == ["/metrics", "/events", "/livez", "/readyz"]
    assert found == [200] * 4
