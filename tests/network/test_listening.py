"""Ports are taken before anybody is served, and named when they cannot be had."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import pytest
import uvloop

from ottla.broker.network import listening as listening_module
from ottla.broker.network.listening import Listening
from ottla.config.types import Listener

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "standard": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
ANY_PORT = Listener("PLAINTEXT", "127.0.0.1", 0)
BACKLOG = 5
CROWD = 120


def run(loop: str, scenario: Callable[[], Awaitable[None]]) -> None:
    async def awaited() -> None:
        await scenario()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(awaited())


def protocol(name: str) -> asyncio.BaseProtocol:
    return asyncio.Protocol()


async def serve_one(
    listening: Listening,
    port: int,
    made: Callable[[], asyncio.Protocol] = asyncio.Protocol,
) -> None:
    """Serves until one client is connected, and ends."""
    connected = asyncio.Event()

    def new_connection(_name: str) -> asyncio.BaseProtocol:
        asyncio.get_running_loop().call_soon(connected.set)
        return made()

    await listening.serve(new_connection, backlog=BACKLOG)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    await connected.wait()
    writer.close()
    await writer.wait_closed()
    listening.close()
    await listening.wait_closed()


@pytest.mark.parametrize("loop", LOOPS)
def test_nobody_can_connect_before_the_listeners_are_served(loop: str) -> None:
    async def scenario() -> None:
        listening = Listening()
        (bound,) = await listening.bind([ANY_PORT])
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(bound.host, bound.port)
        await serve_one(listening, bound.port)

    run(loop, scenario)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_port_on_which_somebody_listens_is_named(loop: str) -> None:
    async def scenario() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            listening = Listening()
            wanted = [ANY_PORT, Listener("OTHER", "127.0.0.1", port)]
            with pytest.raises(OSError, match="in use") as refused:
                await listening.bind(wanted)
            listening.close()
            await listening.wait_closed()

        assert refused.value.errno == errno.EADDRINUSE
        said = f"cannot listen on 127.0.0.1:{port}: Address already in use"
        assert refused.value.strerror == said

    run(loop, scenario)


@pytest.mark.parametrize(
    ("host", "is_exposed"),
    [
        ("", True),
        ("0.0.0.0", True),
        ("localhost", False),
        ("127.0.0.1", False),
        ("127.8.8.8", False),
    ],
)
async def test_what_is_not_loopback_is_exposed(host: str, is_exposed: bool) -> None:
    listening = Listening()
    bound = await listening.bind([Listener("PLAINTEXT", host, 0)])
    listening.close()

    assert listening.exposed == (bound if is_exposed else [])


@pytest.mark.parametrize("loop", LOOPS)
def test_of_two_that_bind_at_once_who_listens_first_has_the_port(loop: str) -> None:
    async def scenario() -> None:
        first, second = Listening(), Listening()
        bound = await first.bind([ANY_PORT])
        await second.bind(bound)
        await second.serve(protocol, backlog=BACKLOG)
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{bound[0].port}: Address"):
            await first.serve(protocol, backlog=BACKLOG)
        for one in (first, second):
            one.close()
            await one.wait_closed()

    run(loop, scenario)


def congestion_of(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="the system tells nothing of it")
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("loop", LOOPS)
def test_who_connects_by_loopback_alone_is_sent_what_there_is_room_for(
    loop: str, host: str
) -> None:
    """Others keep what the system's owner chose for their lines."""
    accepted: list[bytes] = []

    class Noting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            sock = transport.get_extra_info("socket")
            with socket.socket(fileno=socket.dup(sock.fileno())) as own:
                accepted.append(congestion_of(own))

    async def scenario() -> None:
        listening = Listening()
        (bound,) = await listening.bind([Listener("PLAINTEXT", host, 0)])
        await serve_one(listening, bound.port, Noting)

    run(loop, scenario)
    with socket.socket() as untouched:
        expected = b"reno" if host == "127.0.0.1" else congestion_of(untouched)
    assert accepted == [expected]


def test_a_system_that_refuses_the_choice_is_served_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening_module, "LOOPBACK_CONGESTION", b"no-such-thing")

    async def scenario() -> None:
        listening = Listening()
        (bound,) = await listening.bind([ANY_PORT])
        await serve_one(listening, bound.port)

    run("uvloop", scenario)


@pytest.mark.parametrize("loop", LOOPS)
def test_who_comes_in_a_crowd_waits_until_the_loop_has_time(loop: str) -> None:
    async def scenario() -> None:
        listening = Listening()
        (bound,) = await listening.bind([ANY_PORT])
        await listening.serve(protocol, backlog=BACKLOG)
        try:
            with ExitStack() as stack:
                for _ in range(CROWD):  # the loop has no turn meanwhile
                    client = socket.create_connection((bound.host, bound.port), timeout=0.5)
                    stack.callback(client.close)
        finally:
            listening.close()
            await listening.wait_closed()

    run(loop, scenario)
