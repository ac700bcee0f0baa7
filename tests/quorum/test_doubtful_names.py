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
from tests.quorum.nodes import LOG_DIR, Node, running
from tests.quorum.test_driver import HeldSyncs, rolled


async def _answers_for_good(disk: SimDisk, settings: QuorumSettings | None = None) -> None:
    """What the next process answers outlives a loss of power."""
    settings = settings or QuorumSettings()
    node = await running(disk, settings=settings)
    await node.create("answered")
    disk = node.disk.crash(random.Random(1), CrashMode.SUBSET)

    assert "answered" in (await running(disk, settings=settings)).image.topics.by_name


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

    await _answers_for_good(node.disk.crash(random.Random(1), CrashMode.PROCESS), settings)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
async def test_behind_a_vote_that_could_not_be_synced_the_next_process_loses_nothing(
    number: int,
) -> None:
    """The first segment's name, in the same directory, was not on disk yet; whatever a sync fails
    with, it has marked it clean."""
    disk = SimDisk()
    node = Node(disk)
    node.format()
    disk.inject("sync_dir", number, path=METADATA_DIRECTORY)
    with pytest.raises(OSError, match=METADATA_DIRECTORY):
        await node.start()

    await _answers_for_good(disk.crash(random.Random(1), CrashMode.PROCESS))


@pytest.mark.parametrize("seed", range(5))
def test_the_directory_of_a_metadata_log_that_could_not_be_synced_is_made_anew(seed: int) -> None:
    node = Node(SimDisk())
    node.disk.inject("sync_dir", errno.EIO, path=LOG_DIR)
    with pytest.raises(OSError, match="Input/output"):
        node.format()
    next_one = Node(node.disk.crash(random.Random(seed), CrashMode.PROCESS))
    next_one.format()

    disk = next_one.disk.crash(random.Random(seed), CrashMode.SUBSET)
    assert disk.exists(f"{LOG_DIR}/{METADATA_DIRECTORY}")
