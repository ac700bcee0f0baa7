"""Trimmed segments and old snapshots of the metadata log that are refused, or cannot be read."""

from __future__ import annotations

import errno

import pytest

from ottla.broker.quorum.snapshot import list_snapshots
from ottla.broker.quorum.store import METADATA_DIRECTORY, QuorumSettings
from ottla.protocol.errors import KafkaError
from ottla.testing.clock import SimClock
from tests.quorum.nodes import LOG_DIR, running, until

QUORUM_DIR = f"{LOG_DIR}/{METADATA_DIRECTORY}"
DELAY_MS = 60_000


@pytest.mark.parametrize(("call", "number"), [("sync_dir", errno.EMFILE), ("remove", errno.ENOSPC)])
async def test_they_go_when_their_delay_is_over_again(call: str, number: int) -> None:
    clock = SimClock()
    settings = QuorumSettings(snapshot_bytes=2_000, segment_bytes=4_000, retention_bytes=12_000)
    node = await running(clock=clock, settings=settings)
    for count in range(120):
        await node.create(f"t{count}")
    await until(lambda: node.quorum._beside is None)
    refused = node.disk.inject(call, number, path=METADATA_DIRECTORY)
    clock.advance(DELAY_MS)
    node.quorum.snapshot_if_due()
    await until(lambda: node.quorum._removing is None)
    assert refused.times == 0
    assert "metadata_segments_not_removed" in node.events.names
    clock.advance(DELAY_MS)
    node.quorum.snapshot_if_due()
    await until(lambda: node.quorum._removing is None)

    assert not [one for one in node.disk.list(QUORUM_DIR) if one.endswith(".deleted")]
    assert node.fatal == []
    await node.stop()


async def test_a_trim_that_the_disk_fails_ends_the_node() -> None:
    settings = QuorumSettings(snapshot_bytes=2_000, segment_bytes=4_000, retention_bytes=12_000)
    node = await running(clock=SimClock(), settings=settings)
    node.disk.inject("rename", errno.EIO, path=".log")  # as one is set aside

    async def create_many() -> None:
        for count in range(120):
            await node.create(f"t{count}")

    with pytest.raises(KafkaError):
        await create_many()

    assert [error.errno for error in node.fatal if isinstance(error, OSError)] == [errno.EIO]
    assert "metadata_log_not_trimmed" not in node.events.names
    await node.quorum.stop()


@pytest.mark.parametrize(
    ("call", "number", "gone"),
    [("pread", errno.EIO, True), ("open", errno.ENOENT, True), ("open", errno.EMFILE, False)],
)
async def test_an_old_snapshot_that_cannot_be_read_is_given_up(
    call: str, number: int, gone: bool
) -> None:
    """The newest says all that it says; but for want of a descriptor it has to wait."""
    node = await running(clock=SimClock(), settings=QuorumSettings(snapshot_bytes=2_000))
    for count in range(20):
        await node.create(f"t{count}")
    await until(lambda: node.quorum._beside is None)
    oldest, *_ = list_snapshots(node.disk, QUORUM_DIR)
    fault = node.disk.inject(call, number, path=oldest.name, times=1000)
    for count in range(20):
        await node.create(f"u{count}")
    await until(lambda: node.quorum._beside is None)

    assert fault.times < 1000
    assert (oldest not in list_snapshots(node.disk, QUORUM_DIR)) == gone
    assert node.fatal == []
    await node.stop()
