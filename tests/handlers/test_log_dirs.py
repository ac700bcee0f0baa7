"""DescribeLogDirs tells what is on the disk."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.handlers.rooms import DATA_DIR, House

Wanted = DescribeLogDirsRequest.DescribableLogDirTopic


def sizes(result: DescribeLogDirsResponse.DescribeLogDirsResult) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 6))
async def test_every_partition_with_its_size(house: House, version: int) -> None:
    await house.create("a", partitions=2)
    await house.append("a", 1, [b"value"])

    (result,) = (await house.ask(DescribeLogDirsRequest(None), version)).results

    partition = house.rooms.replicas.get("a", 1)
    assert partition is not None
    assert (result.error_code, result.log_dir) == (0, DATA_DIR)
    assert sizes(result) == {("a", 0): 0, ("a", 1): partition.log.size_bytes}
    assert partition.log.size_bytes > 0
    total, free = house.disk.space(DATA_DIR)
    expected = (total, free) if version >= 4 else (-1, -1)
    assert (result.total_bytes, result.usable_bytes) == expected
    assert not result.is_cordoned
    shown = result.topics[0].partitions[0]
    assert (shown.offset_lag, shown.is_future_key) == (0, False)


async def test_only_the_asked_partitions_that_are_there(house: House) -> None:
    await house.create("a", partitions=3)
    wanted = [Wanted("a", [0, 2, 9]), Wanted("nope", [0])]

    (some,) = (await house.ask(DescribeLogDirsRequest(wanted), 4)).results
    (none,) = (await house.ask(DescribeLogDirsRequest([]), 4)).results

    assert list(sizes(some)) == [("a", 0), ("a", 2)]
    assert none.topics == []


async def test_all_partitions_of_a_topic_that_is_named_twice(house: House) -> None:
    await house.create("a", partitions=3)
    wanted = [Wanted("a", [0]), Wanted("a", [2]), Wanted("a", [])]

    (result,) = (await house.ask(DescribeLogDirsRequest(wanted), 4)).results

    assert list(sizes(result)) == [("a", 0), ("a", 2)]


async def test_an_offline_directory_says_so(house: House) -> None:
    await house.create("a")
    house.fail_disk()

    (result,) = (await house.ask(DescribeLogDirsRequest(None), 4)).results

    assert (result.error_code, result.log_dir) == (ErrorCode.KAFKA_STORAGE_ERROR, DATA_DIR)
    assert result.topics == []
    assert (result.total_bytes, result.usable_bytes) == (-1, -1)
