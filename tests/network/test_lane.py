"""A crowd of requests that carry no records, and somebody who produces."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.handlers.answers import CloseConnection
from ottla.broker.network.connection import DEFERRED_BYTES
from ottla.broker.network.lane import (
    LOOK_SECONDS,
    QUIET_AFTER_SECONDS,
    QUIET_TURN_SECONDS,
    TURN_SECONDS,
    Lane,
)
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.network.served import Raw, serving

CROWD = 60


class Turns:
    """A loop that does what was asked for one turn at a time."""

    def __init__(self) -> None:
        self._soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def turn(self) -> bool:
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()
        return bool(soon)


def test_each_turn_has_its_share_of_time_and_the_others_wait_in_their_order() -> None:
    turns = Turns()
    now_s = 1000.0
    went: list[int] = []

    def serve(number: int, started_s: float) -> None:
        nonlocal now_s
        assert started_s == now_s
        went.append(number)
        now_s += TURN_SECONDS / 2.5

    lane = Lane(cast(asyncio.AbstractEventLoop, turns), lambda: now_s, lambda: 0)
    for number in range(9):
        if lane.take(now_s):
            serve(number, now_s)
        else:
            lane.add(SimpleNamespace(go_on=partial(serve, number)))
    assert went == [0, 1, 2]

    turns.turn()
    assert went == [0, 1, 2, 3, 4, 5]
    assert not lane.take(now_s), "those who wait have had this turn"
    turns.turn()
    assert went == list(range(9))
    while turns.turn():
        pass
    assert lane.take(now_s)


def test_who_comes_when_nobody_has_asked_to_pass_has_a_turn_made() -> None:
    """A request that waited for the answers before it, on a connection that is quiet since."""
    turns = Turns()
    went: list[float] = []
    lane = Lane(cast(asyncio.AbstractEventLoop, turns), lambda: 7.0, lambda: 0)

    lane.add(SimpleNamespace(go_on=went.append))

    assert turns.turn()
    assert went == [7.0]


def test_a_request_that_takes_longer_than_a_turn_may_is_alone_in_it() -> None:
    turns = Turns()
    clock = iter(range(100))
    lane = Lane(cast(asyncio.AbstractEventLoop, turns), lambda: next(clock), lambda: 0)
    went: list[int] = []

    def serve(number: int, started_s: float) -> None:
        went.append(number)

    assert lane.take(next(clock))
    for number in range(3):
        assert not lane.take(next(clock))
        lane.add(SimpleNamespace(go_on=partial(serve, number)))
    for number in range(3):
        turns.turn()
        assert went == list(range(number + 1))


def test_turns_are_longer_while_no_records_move() -> None:
    turns = Turns()
    served = 0
    lane = Lane(cast(asyncio.AbstractEventLoop, turns), lambda: 0.0, lambda: served)

    def has_long_turns(now_s: float) -> bool:
        assert lane.take(now_s)
        passes = lane.take(now_s + (TURN_SECONDS + QUIET_TURN_SECONDS) / 2)
        assert not lane.take(now_s + QUIET_TURN_SECONDS)
        turns.turn()
        return passes

    assert not has_long_turns(50.0), "nobody knows yet"
    assert not has_long_turns(50.0 + QUIET_AFTER_SECONDS - 0.01)
    assert has_long_turns(50.0 + QUIET_AFTER_SECONDS + LOOK_SECONDS)
    served += 1
    assert not has_long_turns(50.0 + QUIET_AFTER_SECONDS + 3 * LOOK_SECONDS)
    assert not has_long_turns(50.0 + 2 * QUIET_AFTER_SECONDS)
    assert has_long_turns(50.0 + 3 * QUIET_AFTER_SECONDS)


async def test_a_producer_waits_for_a_few_of_a_crowd_alone() -> None:
    served_keys: list[ApiKey] = []

    def answer(session: Any, request: Any, version: int) -> ApiVersionsResponse:
        served_keys.append(ApiKey.API_VERSIONS)
        ends_s = time.perf_counter() + TURN_SECONDS / 2  # two of them fill a turn
        while time.perf_counter() < ends_s:
            pass
        return ApiVersionsResponse()

    def produce(session: Any, request: Any, version: int) -> ProduceResponse:
        served_keys.append(ApiKey.PRODUCE)
        return ProduceResponse()

    async with serving({ApiKey.API_VERSIONS: answer, ApiKey.PRODUCE: produce}) as served:
        crowd = [await served.connect() for _ in range(CROWD)]
        producer = await served.connect()
        # All of it lies in the sockets before the loop looks at any of them again.
        for raw in crowd:
            raw.send(ApiVersionsRequest(), 0, 1)
        producer.send(ProduceRequest(acks=1), 7, 2)
        assert await producer.correlation_id() == 2
        assert served_keys.index(ApiKey.PRODUCE) < CROWD // 4

        for raw in crowd:
            assert await raw.correlation_id() == 1
            raw.close()
        producer.close()
        assert served.fatal == []


async def test_answers_keep_the_order_of_requests_that_wait_and_that_do_not() -> None:
    def answer(session: Any, request: Any, version: int) -> ApiVersionsResponse:
        return ApiVersionsResponse()

    def produce(session: Any, request: ProduceRequest, version: int) -> ProduceResponse:
        assert request.transactional_id in (None, "x" * DEFERRED_BYTES)
        return ProduceResponse()

    async def ask(raw: Raw) -> None:
        for number in range(0, 40, 2):
            raw.send(ApiVersionsRequest(), 0, number)
            long_id = "x" * DEFERRED_BYTES if number % 8 == 0 else None
            raw.send(ProduceRequest(transactional_id=long_id, acks=1), 7, number + 1)
        for number in range(40):
            assert await raw.correlation_id() == number

    async with serving({ApiKey.API_VERSIONS: answer, ApiKey.PRODUCE: produce}) as served:
        clients = [await served.connect() for _ in range(12)]
        await asyncio.gather(*(ask(raw) for raw in clients))
        for raw in clients:
            raw.close()
        assert served.fatal == []


async def test_who_hangs_up_while_requests_wait_is_served_and_leaves_nothing_behind() -> None:
    """A member that says it leaves does not wait for the answer."""
    served_count = 0
    all_served = asyncio.Event()
    open_sessions: set[str] = set()

    def answer(session: Any, request: Any, version: int) -> ApiVersionsResponse:
        nonlocal served_count
        served_count += 1
        open_sessions.add(session.peer)
        session.on_closed = lambda session: open_sessions.discard(session.peer)
        if served_count == 2 * CROWD:
            all_served.set()
        return ApiVersionsResponse()

    async with serving({ApiKey.API_VERSIONS: answer}) as served:
        for raw in [await served.connect() for _ in range(CROWD)]:
            raw.send(ApiVersionsRequest(), 0, 1)
            raw.send(ApiVersionsRequest(), 0, 2)
            raw.writer.write(b"\0\0\1\0half a frame")
            raw.close()
        await asyncio.wait_for(all_served.wait(), 10)
        async with asyncio.timeout(10):
            while served.server.connections:
                await asyncio.sleep(0)

        assert not open_sessions
        assert served.server.held_bytes == 0
        assert served.fatal == []


async def test_nothing_is_served_that_waits_behind_what_is_refused() -> None:
    served_of: Counter[str] = Counter()

    def refuse(session: Any, request: Any, version: int) -> ApiVersionsResponse:
        served_of[session.peer] += 1
        raise CloseConnection("refused")

    async with serving({ApiKey.API_VERSIONS: refuse}) as served:
        crowd = [await served.connect() for _ in range(CROWD)]
        for raw in crowd:
            for number in range(3):
                raw.send(ApiVersionsRequest(), 0, number)
        for raw in crowd:
            assert await raw.closed()
            raw.close()
        await _lane_is_empty()

        assert list(served_of.values()) == [1] * CROWD


async def test_nothing_is_served_that_waits_where_the_connection_was_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the broker, which can answer nothing there any more."""
    asked: list[Any] = []

    def answer(session: Any, request: Any, version: int) -> ApiVersionsResponse:
        asked.append(request)
        return ApiVersionsResponse()

    async with serving({ApiKey.API_VERSIONS: answer}) as served:
        lane = served.server.lane
        raw = await served.connect()
        with monkeypatch.context() as busy:
            busy.setattr(lane, "_is_turning", True)
            busy.setattr(lane, "_until_s", 0.0)
            raw.send(ApiVersionsRequest(), 0, 1)
            async with asyncio.timeout(10):
                while not lane.is_waited_for:
                    await asyncio.sleep(0)
        (connection,) = served.server.connections
        connection.close("slow_frame")
        lane._turn()

        assert not lane.is_waited_for
        assert asked == []
        assert await raw.closed()
        raw.close()


async def _lane_is_empty() -> None:
    for _ in range(3 * CROWD):
        await asyncio.sleep(0)
