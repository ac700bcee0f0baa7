"""A setting made at run time that contradicts what a later start says stops no start."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client.connection import Connection
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.configs import IncrementalAlterConfigsRequest
from ottla.testing.embedded import Broker

BROKER, SET = 4, 0
INTERVAL = "group.share.assignment.interval.ms"


async def set_interval(broker: Broker, resource: str, value: int) -> int:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    client = await Connection.open(host, int(port))
    change = IncrementalAlterConfigsRequest.AlterableConfig(INTERVAL, SET, str(value))
    wanted = IncrementalAlterConfigsRequest.AlterConfigsResource(BROKER, resource, [change])
    answer = await client.request(IncrementalAlterConfigsRequest([wanted]), 1)
    await client.close()
    code: int = answer.responses[0].error_code
    return code


async def test_what_is_set_for_all_brokers_holds_where_that_of_one_is_passed_over(
    tmp_path: Path,
) -> None:
    async with Broker(tmp_path) as broker:
        assert await set_interval(broker, "", 2_000) == ErrorCode.NONE
        assert await set_interval(broker, "1", 12_000) == ErrorCode.NONE

    lower = {"group.share.max.assignment.interval.ms": 10_000}
    async with Broker(tmp_path, config=lower) as broker:
        assert broker.running.rooms.config.group_share_assignment_interval_ms == 2_000


@pytest.mark.parametrize("resource", ["", "1"])
async def test_it_is_passed_over_until_it_is_mended(tmp_path: Path, resource: str) -> None:
    async with Broker(tmp_path) as broker:
        assert await set_interval(broker, resource, 12_000) == ErrorCode.NONE
        assert broker.running.rooms.config.group_share_assignment_interval_ms == 12_000

    lower = {"group.share.max.assignment.interval.ms": 10_000}
    async with Broker(tmp_path, config=lower) as broker:
        assert broker.running.rooms.config.group_share_assignment_interval_ms == 1_000
        assert await set_interval(broker, resource, 11_000) == ErrorCode.INVALID_REQUEST
        assert await set_interval(broker, resource, 5_000) == ErrorCode.NONE
        assert broker.running.rooms.config.group_share_assignment_interval_ms == 5_000

    async with Broker(tmp_path) as broker:
        assert broker.running.rooms.config.group_share_assignment_interval_ms == 5_000
