"""How many connections an address may have at once, and whom that is different for."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from ottla.broker.network.address_limits import AddressLimits
from ottla.client.connection import Connection
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.configs import IncrementalAlterConfigsRequest
from ottla.testing.embedded import Broker
from tests.network.served import LIMITS, serving

BROKER, SET = 4, 0


def test_an_exception_is_for_one_address_however_it_is_written() -> None:
    limits = AddressLimits()

    assert limits.update(2, {"10.0.0.5": 7, "0:0:0:0:0:0:0:1": 9}) == []
    assert [limits.of(peer) for peer in ("10.0.0.5", "::ffff:10.0.0.5", "::1")] == [7, 7, 9]
    assert limits.of("10.0.0.6") == 2


def test_a_host_has_its_exception_when_its_addresses_are_found() -> None:
    limits = AddressLimits()

    assert limits.update(2, {"here": 7, "10.0.0.5": 3}) == ["here"]
    assert limits.of("10.0.0.4") == 2
    limits.found("here", ["10.0.0.4", "10.0.0.5"])
    assert (limits.of("10.0.0.4"), limits.of("10.0.0.5")) == (7, 3)
    assert limits.update(1, {"10.0.0.5": 3}) == []
    limits.found("here", ["10.0.0.4"])  # too late
    assert limits.of("10.0.0.4") == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_who_has_an_exception_is_held_to_that(host: str) -> None:
    limits = dataclasses.replace(LIMITS, max_connections_per_ip=0, connections_of_host={host: 2})
    async with serving({ApiKey.API_VERSIONS: lambda *_: ApiVersionsResponse()}, limits) as served:
        while not served.server.address_limits.of("127.0.0.1"):
            await asyncio.sleep(0)
        raws = [await served.connect() for _ in range(3)]
        for raw in raws[:2]:
            raw.send(ApiVersionsRequest(), 0, 5)

        assert [await raw.correlation_id() for raw in raws[:2]] == [5, 5]
        assert await raws[2].closed()
        for raw in raws:
            raw.close()


async def test_exceptions_can_be_made_while_the_broker_runs() -> None:
    async with Broker() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        client = await Connection.open(host, int(port))
        overrides = "max.connections.per.ip.overrides"
        for name, value, code in (
            ("max.connections.per.ip", "0", 42),
            (overrides, "127.0.0.1", 42),
            (overrides, "127.0.0.1:1, 10.0.0.5:100", 0),
            ("max.connections.per.ip", "0", 0),
        ):
            change = IncrementalAlterConfigsRequest.AlterableConfig(name, SET, value)
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource(BROKER, "", [change])
            answer = await client.request(IncrementalAlterConfigsRequest([resource]), 1)
            assert answer.responses[0].error_code == code, answer.responses[0].error_message

        second = await Connection.open(host, int(port))
        with pytest.raises(ConnectionError):
            await second.request(ApiVersionsRequest("a", "1"), 3)
        assert (await client.request(ApiVersionsRequest("a", "1"), 3)).error_code == 0
        await client.close()
