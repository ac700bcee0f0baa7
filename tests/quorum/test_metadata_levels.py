"""A node serves at each level of metadata.version that it says it supports."""

from __future__ import annotations

import asyncio
import random

import pytest

from ottla.broker.controller.brokers import (
    Registration,
    assign_directories,
    register,
    shutdown,
    unfence,
)
from ottla.broker.controller.configs import incremental_alter_configs
from ottla.broker.controller.partitions import create_partitions
from ottla.broker.controller.reassignments import alter_partition_reassignments
from ottla.broker.log.directories import LogDirError
from ottla.broker.metadata.image import TOPIC_RESOURCE
from ottla.broker.metadata.records import LATEST_METADATA_VERSION, LOWEST_METADATA_VERSION
from ottla.broker.quorum.snapshot import list_snapshots
from ottla.protocol.messages.configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.metadata_records import FeatureLevelRecord
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
)
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.quorum.nodes import CONFIG, Node
from tests.quorum.test_driver import QUORUM_DIR

LEVELS = range(LOWEST_METADATA_VERSION, LATEST_METADATA_VERSION + 1)
DIRECTORY, OTHER_DIRECTORY = bytes([7]) * 16, bytes([8]) * 16


async def started(level: int, *more_directories: bytes) -> Node:
    node = Node(SimDisk())
    await node.start(
        bootstrap=[FeatureLevelRecord("metadata.version", level)],
        more_directories=more_directories,
    )
    return node


async def change_all(node: Node) -> None:
    """A topic with more partitions than at first, settings, a second replica, and directories."""
    quorum = node.quorum
    created = await node.create("orders")
    more = CreatePartitionsRequest(
        [CreatePartitionsRequest.CreatePartitionsTopic("orders", 3, None)]
    )
    added = await quorum.submit(lambda image: create_partitions(image, more, rng=node.rng))
    settings = IncrementalAlterConfigsRequest(
        [
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                TOPIC_RESOURCE,
                "orders",
                [IncrementalAlterConfigsRequest.AlterableConfig("retention.ms", 0, "1000")],
            )
        ]
    )
    altered = await quorum.submit(
        lambda image: incremental_alter_configs(image, settings, config=CONFIG)
    )
    second = Registration(2, bytes([2]) * 16, [], [OTHER_DIRECTORY])
    await quorum.submit(lambda image: register(image, second))
    await quorum.submit(lambda image: unfence(image, 2, cordoned=[], clean=True))
    moved = AlterPartitionReassignmentsRequest(
        topics=[
            AlterPartitionReassignmentsRequest.ReassignableTopic(
                "orders",
                [AlterPartitionReassignmentsRequest.ReassignablePartition(0, [1, 2])],
            )
        ]
    )
    reassigned = await quorum.submit(lambda image: alter_partition_reassignments(image, moved))
    topic_id = node.image.topics.by_name["orders"].topic_id
    places = {(topic_id, 1): DIRECTORY}
    await quorum.submit(lambda image: assign_directories(image, 1, places))

    assert created.topics[0].error_code == 0
    assert added.results[0].error_code == 0
    assert altered.responses[0].error_code == 0
    assert reassigned.responses[0].partitions[0].error_code == 0


@pytest.mark.parametrize("level", LEVELS)
async def test_what_is_changed_is_there_after_a_restart(level: int) -> None:
    """By the log, and by a snapshot alone."""
    node = await started(level)
    await change_all(node)
    before = node.image
    node.quorum._bytes_since_snapshot = node.quorum._settings.snapshot_bytes
    node.quorum.snapshot_if_due()
    await asyncio.sleep(0)
    newest = list_snapshots(node.disk, QUORUM_DIR)[-1]
    assert newest.end_offset == before.offset + 1
    await node.quorum.submit(lambda image: shutdown(image, 1))
    await node.stop()
    copy = node.disk.crash(random.Random(1), CrashMode.PROCESS)
    by_log, by_snapshot = Node(node.disk), Node(copy)
    for name in by_snapshot.disk.list(QUORUM_DIR):
        if name.endswith(".log"):
            by_snapshot.disk.remove(f"{QUORUM_DIR}/{name}")
    for one in (by_log, by_snapshot):
        await one.start(previous_epoch=before.cluster.brokers[1].epoch)

        assert one.image.topics == before.topics
        assert one.image.configs == before.configs
        assert one.image.metadata_version == level
        await one.stop()


@pytest.mark.parametrize(("level", "named"), [(16, False), (17, True)])
async def test_directories_are_named_where_records_can_name_them(level: int, named: bool) -> None:
    node = await started(level)
    await change_all(node)
    partition = node.image.topics.by_name["orders"].partitions[1]

    assert (node.key.directory_id in node.image.cluster.brokers[1].directories) == named
    assert (partition.directory_of(1) == DIRECTORY) == named
    await node.stop()


async def test_several_log_dirs_need_a_level_that_can_say_where_a_partition_lies() -> None:
    with pytest.raises(LogDirError, match="16 cannot say in which of the 2 log"):
        await started(16, OTHER_DIRECTORY)

    node = await started(17, OTHER_DIRECTORY)
    assert len(node.image.cluster.brokers[1].directories) == 2
    await node.stop()


@pytest.mark.parametrize(("level", "count"), [(14, 0), (15, 1)])
async def test_controllers_register_where_there_is_a_record_for_it(level: int, count: int) -> None:
    node = await started(level)

    assert len(node.image.cluster.controllers) == count
    await node.stop()
