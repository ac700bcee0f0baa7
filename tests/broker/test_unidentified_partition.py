"""A partition whose partition.metadata says nothing any more: what was acknowledged stays."""

from __future__ import annotations

import pytest

from ottla.broker.log.checkpoints import PARTITION_METADATA_FILE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offsets import ListOffsetsRequest
from ottla.protocol.messages.topics import DeleteTopicsRequest
from tests.handlers.rooms import DATA_DIR, House

DIRECTORY = f"{DATA_DIR}/orders-0"
PATH = f"{DIRECTORY}/{PARTITION_METADATA_FILE}"
Topic = ListOffsetsRequest.ListOffsetsTopic
Partition = ListOffsetsRequest.ListOffsetsPartition


async def end_of(house: House, partition: int = 0) -> tuple[int, int]:
    """The answer to a client that asks where the partition ends."""
    topics = [Topic("orders", [Partition(partition, timestamp=-1)])]
    answer = await house.ask(ListOffsetsRequest(topics=topics), 7)
    ((part,),) = (topic.partitions for topic in answer.topics)
    return part.error_code, part.offset


def replace(house: House, data: bytes | None) -> None:
    house.disk.remove(PATH)
    if data is not None:
        house.disk.open(PATH, create=True).pwrite(data, 0)


@pytest.mark.parametrize("data", [None, b"", b"version: 0\ntopic_id: nonsense"])
async def test_its_records_are_neither_served_nor_moved_aside(data: bytes | None) -> None:
    async with House() as house:
        await house.create("orders", partitions=2)
        await house.append("orders", 0, [b"a", b"b"])
    replace(house, data)
    before = house.disk.list(DIRECTORY)
    async with house.restarted() as again:
        assert (await end_of(again))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert await end_of(again, 1) == (0, 0)

        (told,) = again.events.named("partition_not_identified")
        assert (told["path"], told["end_offset"]) == (PATH, 2)
        assert set(before) <= {*again.disk.list(DIRECTORY), PARTITION_METADATA_FILE}
        assert [name for name in again.disk.list(DATA_DIR) if name.endswith("-stray")] == []


async def test_what_its_event_says_brings_it_back() -> None:
    async with House() as house:
        await house.create("orders")
        await house.append("orders", 0, [b"a", b"b"])
    replace(house, b"")
    async with house.restarted() as again:
        (told,) = again.events.named("partition_not_identified")
    _, first, _, second, _ = told["remedy"].split("`")
    replace(house, f"{first}\n{second}".encode())

    async with again.restarted() as healed:
        assert await end_of(healed) == (0, 2)


async def test_an_empty_one_is_the_topics() -> None:
    async with House() as house:
        await house.create("orders")
    replace(house, b"")
    async with house.restarted() as again:
        assert await end_of(again) == (0, 0)


async def test_its_topic_can_be_deleted_and_made_again() -> None:
    async with House() as house:
        await house.create("orders")
        await house.append("orders", 0, [b"a", b"b"])
    replace(house, b"")
    async with house.restarted() as again:
        gone = DeleteTopicsRequest.DeleteTopicState("orders")
        await again.ask(DeleteTopicsRequest([gone], timeout_ms=5000), 6)
        await again.create("orders")
        await again.append("orders", 0, [b"c"])

        assert await end_of(again) == (0, 1)
        (stray,) = [name for name in again.disk.list(DATA_DIR) if name.endswith("-stray")]
        assert f"{0:020d}.log" in again.disk.list(f"{DATA_DIR}/{stray}")
