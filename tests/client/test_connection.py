"""The bundled client's connection, against a broker in this process."""

from __future__ import annotations

import asyncio

import pytest

from ottla.client.connection import Connection
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.produce import ProduceRequest
from ottla.testing import Broker


async def connect(broker: Broker) -> Connection:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return await Connection.open(host, int(port))


async def test_requests_pipeline_and_each_gets_its_answer() -> None:
    async with Broker() as broker:
        connection = await connect(broker)
        answers = await asyncio.gather(
            connection.request(ApiVersionsRequest(), 4),
            connection.request(MetadataRequest(), 12),
            connection.request(ApiVersionsRequest(), 0),
        )

        assert [type(answer) for answer in answers] == [
            ApiVersionsResponse,
            MetadataResponse,
            ApiVersionsResponse,
        ]
        await connection.close()


async def test_a_version_that_the_broker_lacks_is_answered_with_those_it_has() -> None:
    async with Broker() as broker:
        connection = await connect(broker)

        answer = await connection.request(ApiVersionsRequest("ottla", "1"), 4)

        assert answer.error_code == 0
        assert {api.api_key for api in answer.api_keys} >= {0, 1, 3, 18}
        await connection.close()


async def test_a_request_that_cannot_be_written_takes_no_others_answer() -> None:
    async with Broker() as broker:
        connection = await connect(broker)
        with pytest.raises(ValueError, match="no version 99"):
            await connection.request(MetadataRequest(), 99)

        async with asyncio.timeout(20):
            answer = await connection.request(MetadataRequest(), 12)
        assert type(answer) is MetadataResponse
        await connection.close()


async def test_who_gives_up_a_close_leaves_it_to_others() -> None:
    async with Broker() as broker:
        connection = await connect(broker)
        given_up = asyncio.create_task(connection.close())
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up

        await connection.close()


async def test_open_requests_fail_when_the_connection_ends() -> None:
    async with Broker() as broker:
        connection = await connect(broker)
        topic = ProduceRequest.TopicProduceData(
            "unknown", partition_data=[ProduceRequest.PartitionProduceData(0, memoryview(b"?"))]
        )
        connection.send_without_answer(ProduceRequest(acks=0, topic_data=[topic]), 9)

        with pytest.raises(ConnectionError):
            await connection.request(MetadataRequest(), 12)
        with pytest.raises(ConnectionError):
            await connection.request(MetadataRequest(), 12)
        await connection.close()
