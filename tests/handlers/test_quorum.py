"""DescribeQuorum shows the metadata partition, and no other."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.quorum import DescribeQuorumRequest
from tests.handlers.rooms import NODE_ID, House

Topic = DescribeQuorumRequest.TopicData
Partition = DescribeQuorumRequest.PartitionData


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_metadata_partition(house: House, version: int) -> None:
    request = DescribeQuorumRequest([Topic("__cluster_metadata", [Partition(0)])])

    answer = await house.ask(request, version)

    assert answer.error_code == 0
    ((partition,),) = ([*topic.partitions] for topic in answer.topics)
    assert (partition.error_code, partition.leader_id) == (0, NODE_ID)
    assert partition.leader_epoch >= 1
    assert partition.high_watermark == house.rooms.image.offset + 1
    (voter,) = partition.current_voters
    assert voter.replica_id == NODE_ID
    assert voter.log_end_offset >= partition.high_watermark
    if version >= 2:
        assert voter.replica_directory_id in house.rooms.logs.directory_ids.values()
        # No port is open for controllers, so none is named.
        assert [(node.node_id, node.listeners) for node in answer.nodes] == [(NODE_ID, [])]
    assert partition.observers == []


@pytest.mark.parametrize(("topic", "partition"), [("nope", 0), ("__cluster_metadata", 1)])
async def test_no_other_partition_has_a_quorum(house: House, topic: str, partition: int) -> None:
    answer = await house.ask(DescribeQuorumRequest([Topic(topic, [Partition(partition)])]), 2)

    assert answer.error_code == 0
    (shown,) = answer.topics[0].partitions
    assert (shown.partition_index, shown.error_code) == (
        partition,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    assert shown.error_message == "This server does not host this topic-partition."
    assert answer.nodes == []


async def test_nothing_asked_is_nothing_told(house: House) -> None:
    answer = await house.ask(DescribeQuorumRequest([]), 2)

    assert (answer.error_code, answer.topics) == (0, [])
