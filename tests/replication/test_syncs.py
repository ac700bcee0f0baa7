"""Where a sync is done, and that whoever waits for one hears of it."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ottla.broker import kernel_syncs
from ottla.broker.kernel_syncs import KernelSyncs
from ottla.broker.replication.syncs import Job, SyncPool

WAIT_SECONDS_MAX = 20


class Sheet:
    """A ticket of one file; `failure` is what a sync in a thread raises."""

    def __init__(self, descriptor: int | None, failure: OSError | None = None) -> None:
        self._descriptor = descriptor
        self._failure = failure
        self.synced_here = 0
        self.failed: OSError | None = None

    def sync(self) -> None:
        self.synced_here += 1
        if self._failure is not None:
            raise self._failure

    def descriptor(self) -> int | None:
        return self._descriptor

    def fail(self, error: OSError) -> None:
        self.failed = error


class FailingKernel(KernelSyncs[Job]):
    """Says of every sync that the disk could not do it."""

    def collect(self) -> list[tuple[Job, OSError | None]]:
        return [(job, OSError(errno.EIO, "lost")) for job, _ in super().collect()]

    def close(self) -> None:
        """Nobody else shall have it."""


class Waiter:
    """Gathers what became of the syncs it submitted."""

    def __init__(self, pool: SyncPool) -> None:
        self._pool = pool
        self.errors: list[BaseException | None] = []
        self._awaited = 0
        self._all_told = asyncio.Event()

    def submit(self, sheet: Sheet) -> None:
        self._awaited += 1
        self._pool.submit(sheet, self._done)

    def _done(self, error: BaseException | None) -> None:
        self.errors.append(error)
        if len(self.errors) == self._awaited:
            self._all_told.set()

    async def all_told(self) -> None:
        await asyncio.wait_for(self._all_told.wait(), WAIT_SECONDS_MAX)


async def closed(pool: SyncPool) -> None:
    with ThreadPoolExecutor(1) as workers:
        await asyncio.wait_for(pool.close(workers), WAIT_SECONDS_MAX)


def no_kernel() -> KernelSyncs[Job] | None:
    return None


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    yield opened
    os.close(opened)


def kernel() -> KernelSyncs[Job]:
    opened = KernelSyncs[Job].open()
    if opened is None:
        pytest.skip("this system has no AIO")
    return opened


async def test_a_ticket_of_one_file_is_synced_by_the_kernel(descriptor: int) -> None:
    pool = SyncPool(asyncio.get_running_loop(), "one", kernel)
    waiter = Waiter(pool)
    sheet = Sheet(descriptor)
    os.pwrite(descriptor, b"record", 0)
    waiter.submit(sheet)
    await waiter.all_told()
    assert waiter.errors == [None]
    assert sheet.synced_here == 0
    assert sheet.failed is None
    await closed(pool)


async def test_more_than_the_kernel_takes_at_once_are_all_synced(descriptor: int) -> None:
    pool = SyncPool(asyncio.get_running_loop(), "many", kernel)
    waiter = Waiter(pool)
    sheets = [Sheet(descriptor) for _ in range(kernel_syncs.REQUESTS_MAX + 10)]
    for sheet in sheets:
        waiter.submit(sheet)
    await waiter.all_told()
    assert waiter.errors == [None] * len(sheets)
    assert sum(sheet.synced_here for sheet in sheets) == 10
    await closed(pool)


async def test_a_failed_sync_of_the_kernel_is_told_to_ticket_and_waiter(descriptor: int) -> None:
    kernel().close()
    pool = SyncPool(asyncio.get_running_loop(), "failing", FailingKernel)
    waiter = Waiter(pool)
    sheets = [Sheet(descriptor), Sheet(descriptor)]
    for sheet in sheets:
        waiter.submit(sheet)
    await waiter.all_told()
    assert [error.errno for error in waiter.errors if isinstance(error, OSError)] == [errno.EIO] * 2
    assert all(sheet.failed is not None for sheet in sheets)
    await closed(pool)


async def test_what_the_kernel_does_not_take_a_thread_does() -> None:
    """A pipe cannot be synced, and the kernel says so before it begins."""
    reading, writing = os.pipe()
    pool = SyncPool(asyncio.get_running_loop(), "pipe", kernel)
    waiter = Waiter(pool)
    sheet = Sheet(writing)
    waiter.submit(sheet)
    await waiter.all_told()
    assert waiter.errors == [None]
    assert sheet.synced_here == 1
    await closed(pool)
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("has_descriptor", [True, False])
async def test_threads_sync_where_the_kernel_does_not(has_descriptor: bool) -> None:
    pool = SyncPool(asyncio.get_running_loop(), "threads", no_kernel)
    waiter = Waiter(pool)
    sheets = [Sheet(1 if has_descriptor else None) for _ in range(20)]
    broken = Sheet(None, OSError(errno.EIO, "lost"))
    for sheet in [*sheets, broken]:
        waiter.submit(sheet)
    await waiter.all_told()
    assert waiter.errors.count(None) == 20
    assert [type(error) for error in waiter.errors if error is not None] == [OSError]
    assert [sheet.synced_here for sheet in sheets] == [1] * 20
    await closed(pool)


async def test_one_that_raises_keeps_nobody_else_waiting(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    told: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: told.append(context))
    pool = SyncPool(loop, "raising", kernel)
    waiter = Waiter(pool)

    def break_off(_error: BaseException | None) -> None:
        raise AssertionError("broken")

    pool.submit(Sheet(descriptor), break_off)
    for _ in range(5):
        waiter.submit(Sheet(descriptor))
    await waiter.all_told()
    assert waiter.errors == [None] * 5
    await closed(pool)
    assert [str(context["exception"]) for context in told] == ["broken"]


async def test_close_waits_for_what_is_under_way(descriptor: int) -> None:
    pool = SyncPool(asyncio.get_running_loop(), "closing", kernel)
    waiter = Waiter(pool)
    for _ in range(10):
        waiter.submit(Sheet(descriptor))
    await closed(pool)
    assert waiter.errors == [None] * 10


async def test_a_closed_kernel_serves_the_next_pool(descriptor: int) -> None:
    seen: list[KernelSyncs[Job]] = []

    def remembered() -> KernelSyncs[Job]:
        seen.append(kernel())
        return seen[-1]

    for _ in range(2):
        pool = SyncPool(asyncio.get_running_loop(), "again", remembered)
        waiter = Waiter(pool)
        waiter.submit(Sheet(descriptor))
        await waiter.all_told()
        await closed(pool)
    assert seen[0] is seen[1]


@pytest.mark.parametrize("platform", ["darwin", "linux"])
def test_a_system_without_it_has_none(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KernelSyncs, "_spare", [])
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(kernel_syncs, "REQUESTS_MAX", 0)
    monkeypatch.setattr(kernel_syncs, "_REQUESTS", kernel_syncs._NONE)
    assert KernelSyncs[Job].open() is None
