"""What a failed sync of something else has done to the names of the metadata log.

The kernel takes the whole directory for synced then, whatever the disk has of it.
"""

from __future__ import annotations

import errno
import random

import pytest

from ottla.broker.quorum.store import METADATA_DIRECTORY, QuorumSettings
from ottla.protocol.errors import KafkaError
from ottla.testing.clock import SimClock
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.quorum.nodes import Node, running
from tests.quorum.test_driver import HeldSyncs, rolled


async def test_behind_a_failed_sync_of_a_snapshot_the_next_process_loses_nothing_either() -> None:
    """It finds the name of the new segment in memory, where the sync has marked it clean."""
    executor, clock = HeldSyncs(), SimClock()
    settings = QuorumSettings(segment_bytes=3_000)
    node = await running(clock=clock, settings=settings, executor=executor)
    _, creating = await rolled(node, executor)
    clock.advance(3_600_000)
    node.disk.inject("sync_dir", errno.EIO, path=METADATA_DIRECTORY)
    node.quorum.snapshot_if_due()
    executor.release()
    with pytest.raises(KafkaError):
        await creating
    await node.quorum.stop()
    next_one = await running(
        node.disk.crash(random.Random(1), CrashMode.PROCESS), settings=settings
    )
    await next_one.create("answered")
    disk = next_one.disk.crash(random.Random(1), CrashMode.SUBSET)

    assert "answered" in (await running(disk, settings=settings)).image.topics.by_name


async def test_behind_a_vote_that_could_not_be_synced_the_next_process_loses_nothing() -> None:
    """The first segment's name, in the same directory, was not on disk yet."""
    disk = SimDisk()
    node = Node(disk)
    node.format()
    disk.inject("sync_dir", errno.EIO, path=METADATA_DIRECTORY)
    with pytest.raises(OSError, match="Input/output"):
        await node.start()
    next_one = await running(disk.crash(random.Random(1), CrashMode.PROCESS))
    await next_one.create("answered")
    disk = next_one.disk.crash(random.Random(1), CrashMode.SUBSET)

    assert "answered" in (await running(disk)).image.topics.by_name
