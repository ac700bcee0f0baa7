"""A topic deleted and made again under its name: nothing of the old one shows (KIP-516).

While it is deleted a fetch is parked at it, an incremental session knows it, a producer has numbers
in it and an append waits for its sync.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.offsets import ListOffsetsRequest
from ottla.testing.embedded import Broker
from tests.broker.small_client import SmallClient, client_of, values_of

UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
UNKNOWN_ID = int(ErrorCode.UNKNOWN_TOPIC_ID)
OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
BY_NAME, BY_ID = 12, 17
TOPIC = "again"


class Reader:
    """One incremental session on a connection of its own, by name or by id."""

    def __init__(self, client: SmallClient, version: int, topic_id: bytes) -> None:
        self.client = client
        self.version = version
        self.topic_id = topic_id
        self.session_id = 0
        self.epoch = 0

    async def fetch(self, *offsets: int, max_wait_ms: int = 0) -> FetchResponse:
        """The next request of the session; names the partition with an offset, or nothing."""
        partitions = [
            FetchRequest.FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
            for offset in offsets
        ]
        topics = [FetchRequest.FetchTopic(TOPIC, self.topic_id, partitions)] if partitions else []
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=topics,
        )
        answer: FetchResponse = await self.client.connection.request(request, self.version)
        assert answer.error_code == 0
        assert answer.session_id == self.session_id or not self.session_id
        self.session_id = answer.session_id
        self.epoch += 1
        return answer


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as running:
        yield running


async def _parked(broker: Broker) -> None:
    """Returns when a fetch is parked at the topic."""
    partition = broker.running.replicas.get(TOPIC, 0)
    assert partition is not None
    while not partition.fetch_waiters:
        await asyncio.sleep(0)


def _only(answer: FetchResponse) -> FetchResponse.PartitionData:
    ((part,),) = (topic.partitions for topic in answer.responses)
    return part


@pytest.mark.parametrize(("version", "gone"), [(BY_NAME, UNKNOWN), (BY_ID, UNKNOWN_ID)])
async def test_nothing_of_the_old_topic_shows(broker: Broker, version: int, gone: int) -> None:
    async with client_of(broker) as client, client_of(broker) as other:
        (old_id,) = await client.create(TOPIC)
        for number in range(3):
            await client.produce(TOPIC, b"old %d" % number, producer_id=7, sequence=number)
        reader = Reader(other, version, old_id)
        assert values_of(_only(await reader.fetch(0))) == [b"old 0", b"old 1", b"old 2"]
        waiting = asyncio.ensure_future(reader.fetch(3, max_wait_ms=2**31 - 1))
        await _parked(broker)

        await client.delete(TOPIC)
        part = _only(await asyncio.wait_for(waiting, 5))
        assert part.error_code == gone
        assert part.high_watermark == part.log_start_offset == -1
        (new_id,) = await client.create(TOPIC)
        assert new_id != old_id

        part = _only(await reader.fetch())
        assert part.error_code == (OUT_OF_RANGE if version == BY_NAME else UNKNOWN_ID)
        assert await client.values(TOPIC) == []
        # What was a duplicate of the old topic's first batch is new here.
        first = await client.produce(TOPIC, b"old 0", producer_id=7, sequence=0)
        assert (first.error_code, first.base_offset) == (0, 0)
        assert await client.values(TOPIC) == [b"old 0"]
        reader.topic_id = new_id
        if version == BY_NAME:
            assert values_of(_only(await reader.fetch(0))) == [b"old 0"]
        assert (await client.fetch(TOPIC, 3)).error_code == OUT_OF_RANGE


async def test_a_producer_goes_on_with_its_next_number(broker: Broker) -> None:
    """Kafka's rule for a producer that a partition does not know: any first number is right."""
    async with client_of(broker) as client:
        await client.create(TOPIC)
        for number in range(6):
            await client.produce(TOPIC, b"old", producer_id=7, sequence=number)
        await client.delete(TOPIC)
        await client.create(TOPIC)
        following = await client.produce(TOPIC, b"new", producer_id=7, sequence=6)

        assert (following.error_code, following.base_offset) == (0, 0)
        assert await client.values(TOPIC) == [b"new"]


async def test_an_append_that_waits_for_its_sync_is_answered(broker: Broker) -> None:
    async with client_of(broker) as client, client_of(broker) as other:
        await client.create(TOPIC)
        appends = [asyncio.ensure_future(other.produce(TOPIC, b"%d" % n)) for n in range(50)]
        await asyncio.sleep(0)
        await client.delete(TOPIC)
        answers = await asyncio.wait_for(asyncio.gather(*appends), 5)

        # Those that came first are stored, the others are told that there is no such topic.
        assert {answer.error_code for answer in answers} <= {0, UNKNOWN}
        await client.create(TOPIC)
        assert await client.values(TOPIC) == []


async def test_many_generations_leave_one_directory(broker: Broker) -> None:
    async with client_of(broker) as client:
        for number in range(10):
            await client.create(TOPIC)
            assert (await client.produce(TOPIC, b"%d" % number)).base_offset == 0
            assert await _end(client) == 1
            if number < 9:
                await client.delete(TOPIC)
        assert await client.values(TOPIC) == [b"9"]
        names = [name for name in os.listdir(broker.data_dir) if name.startswith(TOPIC)]

        assert [name for name in names if not name.endswith("-delete")] == [f"{TOPIC}-0"]


async def _end(client: SmallClient) -> int:
    asked = ListOffsetsRequest.ListOffsetsPartition(0, -1, -1)
    topic = ListOffsetsRequest.ListOffsetsTopic(TOPIC, [asked])
    answer: Any = await client.connection.request(ListOffsetsRequest(-1, 0, [topic]), 8)
    return int(answer.topics[0].partitions[0].offset)
