"""A client of few words for tests of a whole broker, on the broker's own loop."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from ottla.broker.broker import Broker as RunningBroker
from ottla.client.connection import Connection
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ottla.protocol.records.batch import iterate_headers
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record, iterate_records
from ottla.testing.embedded import Broker

Produced = ProduceResponse.PartitionProduceResponse
Fetched = FetchResponse.PartitionData


class SmallClient:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def create(self, *names: str) -> list[bytes]:
        """The ids of the new topics, of one partition each."""
        topics = [CreateTopicsRequest.CreatableTopic(name, 1, 1) for name in names]
        answer: CreateTopicsResponse = await self.connection.request(CreateTopicsRequest(topics), 7)
        assert [topic.error_code for topic in answer.topics] == [0] * len(names)
        return [topic.topic_id for topic in answer.topics]

    async def delete(self, name: str) -> None:
        state = DeleteTopicsRequest.DeleteTopicState(name)
        answer: DeleteTopicsResponse = await self.connection.request(
            DeleteTopicsRequest([state], timeout_ms=5000), 6
        )
        assert answer.responses[0].error_code == 0

    async def produce(
        self,
        topic: str,
        *values: bytes,
        producer_id: int = -1,
        sequence: int = -1,
        timeout_ms: int = 30_000,
        acks: int = -1,
    ) -> Produced:
        now_ms = time.time_ns() // 1_000_000
        records = build_batch(
            [Record(0, now_ms, b"k", value) for value in values],
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=sequence,
        )
        data = ProduceRequest.PartitionProduceData(0, memoryview(records))
        request = ProduceRequest.TopicProduceData(topic, partition_data=[data])
        answer: ProduceResponse = await self.connection.request(
            ProduceRequest(None, acks, timeout_ms, [request]), 12
        )
        return answer.responses[0].partition_responses[0]

    async def fetch(self, topic: str, offset: int = 0) -> Fetched:
        return await self._fetch(topic, offset, 0)

    async def wait(self, topic: str, offset: int) -> Fetched:
        """Fetches with all the time that there is to wait for a byte."""
        return await self._fetch(topic, offset, 2**31 - 1)

    async def _fetch(self, topic: str, offset: int, max_wait_ms: int) -> Fetched:
        asked = FetchRequest.FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            topics=[FetchRequest.FetchTopic(topic, partitions=[asked])],
        )
        answer: FetchResponse = await self.connection.request(request, 12)
        return answer.responses[0].partitions[0]

    async def values(self, topic: str) -> list[bytes | None]:
        """The values of all records."""
        return values_of(await self.fetch(topic))


def values_of(part: Fetched) -> list[bytes | None]:
    assert part.error_code == 0
    records = cast(memoryview, part.records)
    return [
        record.value
        for position, header in iterate_headers(records)
        for record in iterate_records(records[position : position + header.size])
    ]


@asynccontextmanager
async def client_of(broker: Broker | RunningBroker) -> AsyncIterator[SmallClient]:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    connection = await Connection.open(host, int(port))
    try:
        yield SmallClient(connection)
    finally:
        await connection.close()
