"""A roll that the disk refuses, and a sync of names that fails behind it."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from ottla.broker.log.final_syncs import SyncFailed
from ottla.protocol.errors import KafkaError
from tests.handlers.rooms import House


async def test_a_sync_that_finds_no_room_is_as_final_as_any(house: House) -> None:
    """A full disk refuses a write, and the log goes on; what a sync failed at, nobody knows."""
    await house.create("t")
    log = house.rooms.replicas.get("t", 0).log  # type: ignore[union-attr]
    log.config = replace(log.config, segment_bytes=600)
    await house.append("t", 0, [b"v" * 500])
    house.disk.inject("create", errno.ENOSPC, path=".index")
    house.disk.inject("sync_dir", errno.ENOSPC, path="/t-0")
    with pytest.raises(KafkaError):
        await house.append("t", 0, [b"v" * 400])

    assert isinstance(log.failed, SyncFailed)
    assert [type(error) for error in house.take_fatal()] == [SyncFailed]
