"""A snapshot of the metadata that the disk has no room for."""

from __future__ import annotations

import errno

from ottla.broker.quorum.snapshot import list_snapshots
from ottla.broker.quorum.store import METADATA_DIRECTORY
from ottla.testing.clock import SimClock
from tests.quorum.nodes import LOG_DIR, Node, running, until

QUORUM_DIR = f"{LOG_DIR}/{METADATA_DIRECTORY}"


async def _refused(clock: SimClock) -> Node:
    """A node whose snapshot is due, and has just been refused."""
    node = await running(clock=clock)
    await node.create("orders")
    clock.advance(3_600_000)
    node.disk.inject("pwrite", errno.ENOSPC, path=".checkpoint")
    node.quorum.snapshot_if_due()
    await until(lambda: "snapshot_failed" in node.events.names)
    return node


async def test_a_snapshot_for_which_there_is_no_room_is_passed_over() -> None:
    node = await _refused(SimClock())
    await node.create("bills")

    assert node.fatal == []
    await node.stop()


async def test_a_snapshot_that_was_refused_is_tried_again_without_a_change() -> None:
    clock = SimClock()
    node = await _refused(clock)
    known = list_snapshots(node.disk, QUORUM_DIR)
    clock.advance(59_999)
    node.quorum.snapshot_if_due()
    assert node.quorum._snapshotting is None
    clock.advance(1)
    node.quorum.snapshot_if_due()
    await until(lambda: node.quorum._beside is None)

    assert len(list_snapshots(node.disk, QUORUM_DIR)) == len(known) + 1
    await node.stop()
