"""The time of requests on a real connection: all of it is charged, however it is answered."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

import pytest

from ottla.broker.controller.quota_accounts import ANONYMOUS
from ottla.broker.handlers.answers import Pending
from ottla.broker.network.metering import HUNDREDTHS, AnswerTime, Meter
from ottla.broker.network.quotas import ClientQuotas, Resource
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.testing.clock import SimClock
from tests.network.served import Raw, Served, serving

WINDOW_MS = 1000
WORKED_S = 0.015
"""At a percent: what the first window gives, and half of one to wait for."""


def answer_at_once(session: Any, request: Any, version: int) -> ApiVersionsResponse:
    return ApiVersionsResponse()


async def _metered(served: Served, percent: float) -> tuple[Raw, ClientQuotas]:
    """A client whose requests are counted. The quotas' clock stands still."""
    raw = await served.connect()
    raw.send(ApiVersionsRequest(), 0)
    await raw.frame()
    (connection,) = served.server.connections
    quotas = ClientQuotas(WINDOW_MS)
    quotas.update({(("client-id", "raw"),): {Resource.TIME.value: percent}})
    connection.meter(Meter(quotas, SimClock(), AnswerTime()))
    return raw, quotas


def _owed_ms(quotas: ClientQuotas) -> int:
    return quotas.charge(Resource.TIME, ANONYMOUS, "raw", 0.0, 0)


def _work() -> None:
    end_s = perf_counter() + WORKED_S / 2
    while perf_counter() < end_s:
        pass


def at_once(session: Any, request: Any, version: int) -> MetadataResponse:
    _work()
    _work()
    return MetadataResponse()


async def in_steps(session: Any, request: Any, version: int) -> MetadataResponse:
    _work()
    await asyncio.sleep(0)
    _work()
    return MetadataResponse()


@pytest.mark.parametrize("handler", [at_once, in_steps])
async def test_what_a_handler_takes_of_the_loop_is_charged(handler: Any) -> None:
    handlers = {ApiKey.METADATA: handler, ApiKey.API_VERSIONS: answer_at_once}
    async with serving(handlers) as served:
        raw, quotas = await _metered(served, 1.0)
        raw.send(MetadataRequest(), 1)
        await raw.frame()
        raw.close()

    assert _owed_ms(quotas) >= (WORKED_S * HUNDREDTHS - 1.0) * 1000


async def test_a_handler_hears_of_what_it_awaits_in_vain() -> None:
    awaited: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def mapping(session: Any, request: Any, version: int) -> MetadataResponse:
        asyncio.get_running_loop().call_soon(awaited.set_exception, OSError("no such host"))
        try:
            await awaited
        except OSError as error:
            return MetadataResponse(cluster_id=str(error))
        raise AssertionError

    handlers = {ApiKey.METADATA: mapping, ApiKey.API_VERSIONS: answer_at_once}
    async with serving(handlers) as served:
        raw, _ = await _metered(served, 1.0)
        raw.send(MetadataRequest(), 2)
        assert b"no such host" in await raw.frame()
        raw.close()


async def test_a_handler_hears_that_it_is_cancelled() -> None:
    heard: list[str] = []
    begun = asyncio.Event()

    async def forever(session: Any, request: Any, version: int) -> MetadataResponse:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise
        raise AssertionError

    handlers = {ApiKey.METADATA: forever, ApiKey.API_VERSIONS: answer_at_once}
    async with serving(handlers) as served:
        raw, _ = await _metered(served, 1.0)
        raw.send(MetadataRequest(), 1)
        await asyncio.wait_for(begun.wait(), 5)
        raw.close()

    assert heard == ["cancelled"]
    assert served.fatal == []


@pytest.mark.parametrize("goes_on", [False, True])
async def test_who_hangs_up_pays_for_what_was_done_and_for_what_is_still_done(
    goes_on: bool,
) -> None:
    abandoned, parked, released = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Tracked(Pending):
        __slots__ = ()

        def on_abandoned(self) -> None:
            abandoned.set()

    def park(session: Any, request: Any, version: int) -> Pending:
        parked.set()
        return Tracked()

    async def go_on(session: Any, request: Any, version: int) -> MetadataResponse:
        parked.set()
        await released.wait()
        _work()
        abandoned.set()
        return MetadataResponse()

    handlers = {
        ApiKey.METADATA: go_on if goes_on else park,
        ApiKey.API_VERSIONS: answer_at_once,
    }
    async with serving(handlers) as served:
        raw, quotas = await _metered(served, 0.1 if goes_on else 1e-9)
        raw.send(MetadataRequest(), 1)
        await asyncio.wait_for(parked.wait(), 5)
        assert _owed_ms(quotas) == 0

        raw.reset()
        while served.server.connections:
            await asyncio.sleep(0)
        released.set()
        await asyncio.wait_for(abandoned.wait(), 5)
        await asyncio.sleep(0)

        assert _owed_ms(quotas) == WINDOW_MS
