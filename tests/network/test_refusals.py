"""What is told and counted of connections that a limit turns away."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn

import pytest

from ottla.broker.network import refusals
from ottla.broker.network.connection_rates import CREATION_RATE
from ottla.broker.network.limits import Limits
from ottla.broker.network.refusals import (
    ADDRESSES_MAX,
    DESCRIPTORS,
    INTERVAL_MS,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    OTHER_REASONS,
    OTHERS,
    REASONS_MAX,
    Endings,
    Refusals,
    Refused,
)
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.testing.clock import SimClock
from tests.log.events import RecordedEvents
from tests.network.served import LIMITS, Raw, Served, serving

HERE, THERE = "10.0.0.1", "10.0.0.2"
LOOPBACK = "127.0.0.1"


def test_the_first_is_told_at_once_and_a_flood_once_a_minute() -> None:
    refused = Refusals()

    told = [refused.add(MAX_CONNECTIONS, HERE, at_ms) for at_ms in range(1000)]
    assert told[0] == Refused(MAX_CONNECTIONS, HERE, 1)
    assert told[1:] == [None] * 999
    assert refused.due(INTERVAL_MS - 1) == []
    assert refused.due(INTERVAL_MS) == [Refused(MAX_CONNECTIONS, HERE, 999)]
    assert refused.counts == {MAX_CONNECTIONS: 1000}


def test_it_is_forgotten_after_a_quiet_interval_and_told_at_once_again() -> None:
    refused = Refusals()
    refused.add(MAX_CONNECTIONS, HERE, 0)
    refused.add(MAX_CONNECTIONS, HERE, 1)
    refused.due(INTERVAL_MS)
    assert refused.add(MAX_CONNECTIONS, HERE, INTERVAL_MS + 1) is None

    assert refused.due(2 * INTERVAL_MS) == [Refused(MAX_CONNECTIONS, HERE, 1)]
    assert refused.due(3 * INTERVAL_MS) == []
    assert refused.add(MAX_CONNECTIONS, HERE, 3 * INTERVAL_MS) is not None


def test_each_address_and_each_reason_is_told_by_itself() -> None:
    refused = Refusals()

    assert refused.add(MAX_CONNECTIONS, HERE, 0) is not None
    assert refused.add(MAX_CONNECTIONS, THERE, 0) is not None
    assert refused.add(MAX_CONNECTIONS_PER_IP, HERE, 0) is not None
    assert refused.add(MAX_CONNECTIONS, THERE, 0) is None


def test_a_flood_from_everywhere_is_told_together() -> None:
    refused = Refusals()
    told = [refused.add(MAX_CONNECTIONS, f"::{number:x}", 0) for number in range(5000)]

    lines = [one for one in told if one is not None]
    assert len(lines) == ADDRESSES_MAX + 1
    assert lines[-1] == Refused(MAX_CONNECTIONS, OTHERS, 1)
    rest = 5000 - ADDRESSES_MAX - 1
    assert refused.due(INTERVAL_MS) == [Refused(MAX_CONNECTIONS, OTHERS, rest)]
    assert refused.counts[MAX_CONNECTIONS] == 5000
    assert repr(refused) == "<Refusals {'max.connections': 5000} addresses=1>"


def test_reasons_without_end_are_told_together() -> None:
    endings = Endings()
    told = [endings.add(f"frame of {size} bytes", HERE, 0) for size in range(5000)]

    assert [one for one in told if one is not None][-1] == Refused(OTHER_REASONS, HERE, 1)
    assert endings.add("this is HTTP", THERE, 0) == Refused("this is HTTP", THERE, 1)
    rest = 5000 - REASONS_MAX - 1
    assert endings.due(INTERVAL_MS) == [Refused(OTHER_REASONS, HERE, rest)]
    assert repr(endings) == "<Endings addresses=1>"


def test_faults_from_everywhere_are_told_together() -> None:
    endings = Endings()
    for number in range(5000):
        endings.add(f"frame of {number} bytes", f"::{number:x}", 0)

    rest = 5000 - ADDRESSES_MAX * REASONS_MAX - 1
    assert endings.due(INTERVAL_MS) == [Refused(OTHER_REASONS, OTHERS, rest)]


@asynccontextmanager
async def _limited(limits: Limits) -> AsyncIterator[tuple[Served, RecordedEvents]]:
    async with serving({ApiKey.API_VERSIONS: lambda *_: ApiVersionsResponse()}, limits) as served:
        served.server.events = events = RecordedEvents()
        yield served, events


async def _taken_in(served: Served) -> Raw:
    raw = await served.connect()
    raw.send(ApiVersionsRequest(), 0)
    await raw.frame()
    return raw


def _counts(served: Served) -> tuple[int, dict[str, int], dict[str, int]]:
    """Taken in, turned away by limit, ended by reason."""
    server = served.server
    return server.metrics.accepted, dict(server.refusals.counts), server.metrics.closed_by_reason


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (dataclasses.replace(LIMITS, max_connections=1), MAX_CONNECTIONS),
        (dataclasses.replace(LIMITS, max_connections_per_ip=1), MAX_CONNECTIONS_PER_IP),
    ],
)
async def test_who_is_beyond_a_limit_is_counted_and_told_once(limits: Limits, reason: str) -> None:
    async with _limited(limits) as (served, events):
        raws = [await _taken_in(served)]
        for _ in range(3):
            raws.append(await served.connect())
            assert await raws[-1].closed()

        assert _counts(served) == (1, {reason: 3}, {})
        told = {"reason": reason, "address": LOOPBACK, "connections": 1, "limit": 1}
        assert events.told == [("warning", "connections_refused", told)]
        for raw in raws:
            raw.close()


async def test_where_open_files_are_the_limit_that_is_told_and_what_to_do() -> None:
    limits = dataclasses.replace(LIMITS, max_connections=1, limited_by=DESCRIPTORS)
    async with _limited(limits) as (served, events):
        raws = [await _taken_in(served), await served.connect()]
        assert await raws[-1].closed()

        ((_, _, told),) = events.told
        assert (told["reason"], told["limit"]) == ("open files", 1)
        assert "ulimit -n" in told["fix"]
        for raw in raws:
            raw.close()


async def test_a_client_that_comes_again_with_the_same_fault_is_told_once_and_counted() -> None:
    async with _limited(LIMITS) as (served, events):
        for _ in range(3):
            raw = await served.connect()
            raw.writer.write((LIMITS.max_request_size + 1).to_bytes(4, "big"))
            assert await raw.closed()
            raw.close()
    (_, first, fields), (_, last, counted) = events.told

    assert (first, last) == ("connection_closed", "connections_closed")
    assert fields["reason"].endswith("allowed by socket.request.max.bytes")
    assert counted == {"reason": fields["reason"], "address": LOOPBACK, "connections": 2}


async def test_what_was_counted_when_the_server_stops_is_told() -> None:
    async with _limited(dataclasses.replace(LIMITS, max_connections=0)) as (served, events):
        for _ in range(3):
            raw = await served.connect()
            assert await raw.closed()
            raw.close()
    assert [fields["connections"] for _, _, fields in events.told] == [1, 2]


async def test_who_connects_too_often_is_counted_and_told_once() -> None:
    async with _limited(dataclasses.replace(LIMITS, quota_window_ms=10)) as (served, events):
        served.server.rooms.clock = SimClock()
        served.server.limit({(("ip", None),): {CREATION_RATE: 10.0}})
        raws = [await _taken_in(served)]
        for _ in range(3):
            raws.append(await served.connect())
            assert await raws[-1].closed()

        assert _counts(served) == (1, {CREATION_RATE: 3}, {})
        assert [fields["connections"] for _, _, fields in events.told] == [1]
        for raw in raws:
            raw.close()


async def test_without_a_descriptor_nobody_counts_as_taken_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(descriptor: int) -> NoReturn:
        raise OSError("too many open files")

    async with _limited(LIMITS) as (served, events):
        monkeypatch.setattr(socket, "dup", refuse)
        raw = await served.connect()
        assert await raw.closed()
        raw.close()

        assert _counts(served) == (0, {DESCRIPTORS: 1}, {})
        assert events.names == ["connections_refused"]


async def test_the_sweep_tells_what_was_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "INTERVAL_MS", 0)
    async with _limited(dataclasses.replace(LIMITS, max_connections=0)) as (served, events):
        for _ in range(3):
            raw = await served.connect()
            assert await raw.closed()
            raw.close()
        served.server.sweep()

        assert [fields["connections"] for _, _, fields in events.told] == [1, 2]
