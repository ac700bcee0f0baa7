"""The retention job: what it does on the loop, and what it leaves to its worker."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from ottla.broker import retention_job
from ottla.broker.handlers.context import Rooms
from ottla.broker.log.checkpoints import LOG_START_FILE, read_offsets
from ottla.broker.log.log import Log
from ottla.broker.log.segment import Segment
from ottla.broker.retention_job import apply_retention, remove_deleted
from ottla.testing.platter import CrashMode
from tests.handlers.rooms import DATA_DIR, START_MS, House
from tests.log.paged_disk import PagedDisk

DAY_MS = 86_400_000
SEGMENT_BYTES = 1 << 20


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


async def test_what_nobody_else_would_sync_is_synced_and_goes() -> None:
    """An idle topic with Kafka's own flush.messages: its active segment, too."""
    async with House() as house:
        configs = {"retention.ms": "1000", "flush.messages": str(2**63 - 1)}
        await house.create("t", configs=configs)
        for _ in range(3):
            await house.append("t", 0, [b"value"])
        partition = house.rooms.replicas.get("t", 0)
        assert partition is not None
        log = partition.log
        await apply_retention(house.rooms)
        assert not partition.flushing, "nothing is old, so nothing is synced"
        house._clock.advance(DAY_MS)
        await apply_retention(house.rooms)
        assert (log.log_start_offset, log.durable_end) == (0, 0)
        async with asyncio.timeout(5):
            while partition.flushing:
                await asyncio.sleep(0)
            await apply_retention(house.rooms)
            while log.segments.awaits_sync:
                await asyncio.sleep(0)
        await remove_deleted(house.rooms)

        assert [one.base_offset for one in log.segments] == [3]
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)


async def test_where_a_log_begins_is_on_disk_before_a_segment_loses_its_name() -> None:
    """Else a crash could bring back some of those that went, and not those behind them."""
    async with House() as house:
        await house.create("t", configs={"segment.bytes": str(SEGMENT_BYTES)})
        for _ in range(12):
            await house.append("t", 0, [bytes(SEGMENT_BYTES - 200)])
        partition = house.rooms.replicas.get("t", 0)
        assert partition is not None
        log = partition.log
        log.delete_records(10)
        told: list[int] = []

        def before_call(count: int, call: str, path: str) -> None:
            if call == "rename" and "/t-0/" in path:
                left = house.disk.crash(random.Random(count), CrashMode.SUBSET)
                rows = read_offsets(left, f"{DATA_DIR}/{LOG_START_FILE}", house.events)
                told.append(rows.get(("t", 0), 0))

        house.disk.before_call = before_call
        await apply_retention(house.rooms)
        house.disk.before_call = None

        assert [one.base_offset for one in log.segments] == [10, 11]
        assert told
        assert set(told) == {10}


@pytest.mark.parametrize(("days", "left"), [(0, 6), (4, 4), (6, 2)])
async def test_the_age_of_segments_is_read_by_the_worker(days: int, left: int) -> None:
    """After a start nobody has opened them."""
    disk = PagedDisk()
    async with House(disk=disk) as house:
        await house.create("t", configs={"segment.bytes": str(SEGMENT_BYTES)})
        for age in reversed(range(6)):
            value = bytes(SEGMENT_BYTES - 200)
            await house.append("t", 0, [value], timestamp=START_MS - age * DAY_MS)
        async with house.restarted() as again:
            partition = again.rooms.replicas.get("t", 0)
            assert partition is not None
            log = partition.log
            assert [one.is_loaded for one in log.segments] == [False] * 5 + [True]
            again._clock.advance(days * DAY_MS)
            disk.evict()
            await apply_retention(again.rooms)

            assert len(log.segments) == left
            assert disk.waits_of(threading.get_ident()) == []
            assert log.segments[0].is_loaded


@pytest.mark.parametrize("job", [apply_retention, remove_deleted])
async def test_of_many_logs_a_turn_looks_at_some(
    job: Callable[[Rooms], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of those that have waited for a flush, as all of a broker's may at once."""
    monkeypatch.setattr(retention_job, "LOGS_AT_ONCE", 2)
    async with House() as house:
        await house.create("t", partitions=5)
        deletions, turns = house.rooms.logs.deletions, [0]
        looked: Counter[int] = Counter()

        def retire(log: Log, newest: object) -> list[Segment]:
            looked[turns[0]] += 1
            return []

        async def count() -> None:
            while True:
                turns[0] += 1
                await asyncio.sleep(0)

        monkeypatch.setattr(deletions, "retire", retire)
        monkeypatch.setattr(deletions, "take_held_back", lambda: house.rooms.logs.logs)
        counting = asyncio.create_task(count())
        await job(house.rooms)
        counting.cancel()

        assert sorted(looked.values()) == [1, 2, 2]
