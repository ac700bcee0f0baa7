"""Retention that takes all of a log: its last segment goes when the new one is synced."""

from __future__ import annotations

import asyncio
import threading

from ottla.broker.retention_job import apply_retention, remove_deleted
from tests.handlers.rooms import House

DAY_MS = 86_400_000


async def test_nothing_is_synced_on_the_loop_and_everything_goes() -> None:
    async with House() as house:
        await house.create("t", configs={"retention.ms": "1000", "file.delete.delay.ms": "0"})
        for _ in range(3):
            await house.append("t", 0, [b"value"])
        partition = house.rooms.replicas.get("t", 0)
        assert partition is not None
        log = partition.log
        house._clock.advance(DAY_MS)
        synced_by: list[threading.Thread] = []

        def before_call(count: int, call: str, path: str) -> None:
            if call in ("sync", "sync_dir"):
                synced_by.append(threading.current_thread())

        house.disk.before_call = before_call
        await apply_retention(house.rooms)
        assert [one.base_offset for one in log.segments] == [0, 3]
        async with asyncio.timeout(5):
            while log.segments.awaits_sync:
                await asyncio.sleep(0)
        await remove_deleted(house.rooms)
        house.disk.before_call = None

        assert [one.base_offset for one in log.segments] == [3]
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)
        assert synced_by
        assert threading.main_thread() not in synced_by
        assert f"{0:020d}.log.deleted" not in house.disk.list(log.directory)
