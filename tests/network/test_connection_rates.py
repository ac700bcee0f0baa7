"""How often an address may connect, in virtual time; and what becomes of who comes too often."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

import pytest

from ottla.broker.metadata.image import QuotaEntity
from ottla.broker.network.connection_rates import CREATION_RATE, ConnectionRates
from ottla.broker.network.waiting_room import WaitingRoom

WINDOW_MS = 1000
HERE, THERE = "10.0.0.1", "10.0.0.2"


def _rates(limits: Mapping[str | None, float]) -> ConnectionRates:
    rates = ConnectionRates(window_ms=WINDOW_MS, window_count=11)
    assert rates.update(_quotas(limits)) == []
    return rates


def _quotas(limits: Mapping[str | None, float]) -> dict[QuotaEntity, dict[str, float]]:
    return {(("ip", name),): {CREATION_RATE: limit} for name, limit in limits.items()}


def _let_in(rates: ConnectionRates, address: str, now_ms: int, tries: int = 100) -> int:
    return sum(rates.take(address, now_ms) == 0 for _ in range(tries))


def test_a_quiet_address_has_ten_windows_worth_and_then_its_rate() -> None:
    rates = _rates({HERE: 2.0})

    assert _let_in(rates, HERE, 0) == 20
    assert _let_in(rates, THERE, 0) == 100
    assert [_let_in(rates, HERE, at_ms) for at_ms in (499, 500, 1_000, 3_000)] == [0, 1, 1, 4]
    assert _let_in(rates, HERE, 60_000) == 20


def test_who_is_turned_away_pays_nothing_and_waits_for_a_window_at_most() -> None:
    rates = _rates({HERE: 4.0, THERE: 1.0})
    _let_in(rates, HERE, 0)
    _let_in(rates, THERE, 0)

    assert [rates.take(HERE, at_ms) for at_ms in (0, 125, 250)] == [250, 125, 0]
    assert rates.take(THERE, 0) == WINDOW_MS


def test_a_quota_of_next_to_nothing_lets_wait_for_a_window() -> None:
    assert _rates({HERE: 5e-324}).take(HERE, 0) == WINDOW_MS


def test_each_address_has_an_account_of_the_default_and_its_own_goes_first() -> None:
    rates = _rates({None: 1.0, HERE: 3.0})

    assert _let_in(rates, HERE, 0) == 30
    assert _let_in(rates, THERE, 0) == 10
    assert _let_in(rates, "::1", 0) == 10


@pytest.mark.parametrize(
    ("quota", "peer"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("fe80::1", "fe80::1%eth0"),
    ],
)
def test_an_address_is_the_same_however_it_is_written(quota: str, peer: str) -> None:
    assert _let_in(_rates({quota: 1.0}), peer, 0) == 10


def test_a_host_has_the_quota_of_its_name_once_its_addresses_are_found() -> None:
    rates = ConnectionRates(window_ms=WINDOW_MS, window_count=11)
    quotas = _quotas({"here.example": 1.0, THERE: 2.0})
    assert rates.update(quotas) == ["here.example"]
    assert _let_in(rates, HERE, 0) == 100

    rates.found("here.example", [HERE, THERE, "no address"])
    assert (_let_in(rates, HERE, 0), _let_in(rates, THERE, 0)) == (10, 20)

    rates.update(quotas)
    assert _let_in(rates, HERE, 0) == 0, "it is looked up again, and limited meanwhile"
    rates.update(_quotas({THERE: 2.0}))
    rates.found("here.example", [HERE])
    assert _let_in(rates, HERE, 0) == 100


def test_accounts_that_are_full_again_are_dropped() -> None:
    rates = _rates({None: 1.0})
    rates.take(HERE, 0)
    rates.take(THERE, 5_000)
    rates.forget_full(10_000)
    assert repr(rates) == "<ConnectionRates 1 accounts=1>"

    rates.update({})

    assert repr(rates) == "<ConnectionRates 0 accounts=0>"
    assert not rates.enabled


class _Door(asyncio.Protocol):
    """Holds every connection from its first moment on."""

    def __init__(self, room: WaitingRoom, wait_ms: int) -> None:
        self._room = room
        self._wait_ms = wait_ms

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._room.hold(cast(asyncio.Transport, transport), self._wait_ms)

    def data_received(self, data: bytes) -> None:
        raise AssertionError("it is not served")


async def test_who_is_held_is_closed_after_its_time_and_heard_of_no_more() -> None:
    loop = asyncio.get_running_loop()
    room = WaitingRoom(loop, most=10)
    server = await loop.create_server(lambda: _Door(room, 200), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    started_s = loop.time()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(bytes(100_000))
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)

    assert loop.time() - started_s >= 0.19
    writer.close()
    await _until_empty(room)
    server.close()


async def test_the_room_has_an_end_and_all_leave_it_together() -> None:
    loop = asyncio.get_running_loop()
    room = WaitingRoom(loop, most=1)
    server = await loop.create_server(lambda: _Door(room, 60_000), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _, first = await asyncio.open_connection("127.0.0.1", port)
    reader, second = await asyncio.open_connection("127.0.0.1", port)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    assert len(room) == 1

    room.close()

    await _until_empty(room)
    first.close()
    second.close()
    server.close()


async def _until_empty(room: WaitingRoom) -> None:
    async with asyncio.timeout(5):
        while len(room):
            await asyncio.sleep(0)
