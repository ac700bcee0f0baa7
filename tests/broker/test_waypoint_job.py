"""The job that bounds the scan after a crash."""

from __future__ import annotations

import errno

import pytest

from ottla.broker.log import waypoint_keeper
from ottla.broker.log.waypoints import WAYPOINT_FILE
from ottla.broker.waypoint_job import keep_waypoints
from ottla.protocol.wire import parse_uuid
from ottla.testing.disk import SimDisk
from tests.log.crash_world import LOG_DIR, World

KEY = ("orders", 0)
WAYPOINT = f"{LOG_DIR}/orders-0/{WAYPOINT_FILE}"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """One log of six batches, all synced; a batch behind the last waypoint asks for another."""
    monkeypatch.setattr(waypoint_keeper, "UNMARKED_BYTES_MIN", 50)
    monkeypatch.setattr(waypoint_keeper, "UNMARKED_BYTES_MAX", 50)
    disk = SimDisk()
    disk.make_dir(LOG_DIR)
    disk.sync_dir("/")
    world = World(disk)
    world.start()
    world.create(KEY, parse_uuid("HkCIt-qdTvufbCVwHt-fjQ"))
    for _ in range(6):
        world.send(KEY)
    return world


async def test_a_turn_marks_and_the_next_start_scans_from_there(world: World) -> None:
    await keep_waypoints(world.manager)
    marked_at = world.log(KEY).size_bytes
    world.send(KEY)
    size = world.log(KEY).size_bytes
    world.die()
    world.start()

    assert world.log(KEY).recovery.bytes_scanned == size - marked_at


async def test_what_is_not_synced_waits_for_the_next_turn(world: World) -> None:
    await keep_waypoints(world.manager)
    first = world.disk.open(WAYPOINT).pread(1000, 0)
    world.append(KEY)
    await keep_waypoints(world.manager)
    assert world.disk.open(WAYPOINT).pread(1000, 0) == first
    world.flush(KEY)
    await keep_waypoints(world.manager)

    assert world.disk.open(WAYPOINT).pread(1000, 0) != first


@pytest.mark.parametrize("call", ["pwrite", "rename"])
async def test_a_bad_disk_is_told(world: World, call: str) -> None:
    world.disk.inject(call, errno.EIO, path=WAYPOINT_FILE)
    await keep_waypoints(world.manager)

    assert list(world.manager.offline_dirs) == [LOG_DIR]
