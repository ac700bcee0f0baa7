"""Where a sync is done, and that whoever waits for one hears of it."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from ottla.broker import kernel_syncs
from ottla.broker.kernel_syncs import KernelSyncs
from ottla.broker.replication.syncs import Done, Ended, Job, SyncPool
from ottla.testing import Broker
from tests.replication.test_when_disks_fail import (
    STORAGE_ERROR,
    codes,
    connect,
    create,
    produce,
    two_dirs,
)

WAIT_SECONDS_MAX = 20


class Sheet:
    """A ticket of one file; `failure` is what a sync in a thread raises."""

    def __init__(
        self,
        descriptor: int | None,
        failure: OSError | None = None,
        *,
        is_large: bool = False,
    ) -> None:
        self.is_large = is_large
        self._descriptor = descriptor
        self._failure = failure
        self.synced_here = 0
        self.failed: OSError | None = None
        self.told_in: int | None = None

    def sync(self) -> None:
        self.synced_here += 1
        if self._failure is not None:
            raise self._failure

    def descriptor(self) -> int | None:
        return self._descriptor

    def fail(self, error: OSError) -> None:
        self.failed = error
        self.told_in = threading.get_ident()


class FailingKernel(KernelSyncs[Job]):
    """Says of every sync that the disk could not do it."""

    def collect(self) -> list[tuple[Job, OSError | None]]:
        return [(job, OSError(errno.EIO, "lost")) for job, _ in super().collect()]

    def close(self) -> None:
        """Nobody else shall have it."""


class HeldKernel(KernelSyncs[Job]):
    """Tells of no sync whose sheet it is to hold, until that is released."""

    def __init__(self, *held: Sheet) -> None:
        self._held = set(held)
        self._kept: list[tuple[Job, OSError | None]] = []
        self.begun: list[int] = []
        """How many syncs began with each call."""
        kernel().close()
        super().__init__()

    def __len__(self) -> int:
        return super().__len__() + len(self._kept)

    def begin(self, wanted: Sequence[tuple[int, Job]]) -> list[Job]:
        self.begun.append(len(wanted))
        return super().begin(wanted)

    def collect(self) -> list[tuple[Job, OSError | None]]:
        ended = self._kept + super().collect()
        self._kept = [one for one in ended if one[0][0] in self._held]
        return [one for one in ended if one[0][0] not in self._held]

    async def has_ended(self, count: int) -> None:
        """Waits until it holds so many."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while len(self._kept) < count:
                await asyncio.sleep(0)

    def release(self, *sheets: Sheet) -> None:
        self._held.difference_update(sheets)
        os.eventfd_write(self.fileno(), 1)

    def close(self) -> None:
        """Nobody else shall have it."""


class OvertakenList(list[Ended]):
    """With the first that is appended, another thread reports, too, and is through before."""

    def __init__(self, other: Callable[[], None]) -> None:
        self._others = [other]

    def append(self, one: Ended) -> None:
        super().append(one)
        if self._others:
            thread = threading.Thread(target=self._others.pop())
            thread.start()
            thread.join()


class Waiter:
    """Gathers what became of the syncs it submitted."""

    def __init__(self, pool: SyncPool[Job]) -> None:
        self._pool = pool
        self.errors: list[BaseException | None] = []
        self._awaited = 0
        self._all_told = asyncio.Event()

    def submit(self, *sheets: Sheet) -> None:
        """All of them together."""
        self._pool.submit([(sheet, self.expected()) for sheet in sheets])

    def want(self, *sheets: Sheet) -> None:
        """In their turn."""
        for sheet in sheets:
            self._pool.want((sheet, self.expected()))

    def expected(self) -> Done:
        """What is called when one more has ended."""
        self._awaited += 1
        return self._done

    def _done(self, error: BaseException | None) -> None:
        self.errors.append(error)
        if len(self.errors) == self._awaited:
            self._all_told.set()

    async def all_told(self) -> None:
        await asyncio.wait_for(self._all_told.wait(), WAIT_SECONDS_MAX)


def nobody() -> None:
    """Wants a sync at the end of a turn."""


def pool_of(name: str, open_kernel: Callable[[], KernelSyncs[Job] | None]) -> SyncPool[Job]:
    """One for which what wants a sync is what is to be synced."""
    return SyncPool(asyncio.get_running_loop(), name, lambda job: job, open_kernel, nobody)


async def closed(pool: SyncPool[Job]) -> None:
    with ThreadPoolExecutor(1) as workers:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await pool.close(workers)


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
    pool = pool_of("one", kernel)
    waiter = Waiter(pool)
    sheet = Sheet(descriptor)
    os.pwrite(descriptor, b"record", 0)
    waiter.submit(sheet)
    await waiter.all_told()
    assert waiter.errors == [None]
    assert sheet.synced_here == 0
    assert sheet.failed is None
    await closed(pool)


@pytest.mark.parametrize("together", [True, False])
async def test_more_than_the_kernel_takes_at_once_are_all_synced(
    descriptor: int, together: bool
) -> None:
    pool = pool_of("many", kernel)
    waiter = Waiter(pool)
    sheets = [Sheet(descriptor) for _ in range(kernel_syncs.REQUESTS_MAX + 10)]
    if together:
        waiter.submit(*sheets)
    else:
        for sheet in sheets:
            waiter.submit(sheet)
    await waiter.all_told()
    assert waiter.errors == [None] * len(sheets)
    assert sum(sheet.synced_here for sheet in sheets) == 10
    await closed(pool)


async def test_a_failed_sync_of_the_kernel_is_told_to_ticket_and_waiter(descriptor: int) -> None:
    kernel().close()
    pool = pool_of("failing", FailingKernel)
    waiter = Waiter(pool)
    sheets = [Sheet(descriptor), Sheet(descriptor)]
    for sheet in sheets:
        waiter.submit(sheet)
    await waiter.all_told()
    assert [error.errno for error in waiter.errors if isinstance(error, OSError)] == [errno.EIO] * 2
    assert all(sheet.failed is not None for sheet in sheets)
    assert threading.get_ident() not in {sheet.told_in for sheet in sheets}  # the log writes a file
    await closed(pool)


async def test_a_failed_sync_of_the_kernel_ends_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel().close()
    collect = KernelSyncs[Job].collect
    failed_jobs: list[Job] = []

    def failing(self: KernelSyncs[Job]) -> list[tuple[Job, OSError | None]]:
        ended = [job for job, _ in collect(self)]
        failed_jobs.extend(ended)
        return [(job, OSError(errno.EIO, "lost")) for job in ended]

    async with Broker(tmp_path / "one", config=two_dirs(tmp_path)) as broker:
        raw = await connect(broker)
        await create(raw, "t", 2)
        raw.send(produce("t", 1), 9)  # it lies in the second dir; a thread syncs its name, too
        assert await codes(raw) == [0]
        partition = broker.running.replicas.get("t", 1)
        assert partition is not None
        log = partition.log
        with monkeypatch.context() as patch:
            patch.setattr(KernelSyncs, "collect", failing)
            raw.send(produce("t", 1), 9)
            assert await codes(raw) == [STORAGE_ERROR]
        assert len(failed_jobs) == 1
        assert log.failed is not None
        assert log.durable_end == 1
        assert not broker.running.replicas.is_syncing()
        raw.send(produce("t", 1), 9)  # the disk would work again; it is not asked
        assert await codes(raw) == [STORAGE_ERROR]
        raw.close()


async def test_close_waits_until_a_failed_sync_is_told(descriptor: int) -> None:
    kernel().close()
    pool = pool_of("failing", FailingKernel)
    waiter = Waiter(pool)
    sheet = Sheet(descriptor)
    waiter.submit(sheet)
    await closed(pool)
    assert sheet.failed is not None
    assert [type(error) for error in waiter.errors] == [OSError]


class HeldSheet(Sheet):
    """Is not synced until it is released."""

    def __init__(self) -> None:
        super().__init__(None)
        self.released = threading.Event()

    def sync(self) -> None:
        self.released.wait(WAIT_SECONDS_MAX)
        super().sync()


class JoiningAtOnce:
    """The running loop, as of Python 3.14: what a worker has done already takes no turn."""

    def __init__(self, sheet: HeldSheet) -> None:
        self._loop = asyncio.get_running_loop()
        self._sheet = sheet

    def run_in_executor(
        self, _workers: Executor, work: Callable[[], object]
    ) -> asyncio.Future[object]:
        self._sheet.released.set()
        joined = self._loop.create_future()
        joined.set_result(work())
        return joined

    def __getattr__(self, name: str) -> object:
        return getattr(self._loop, name)


async def test_close_waits_until_all_are_told_and_not_only_synced() -> None:
    sheet = HeldSheet()
    loop = cast("asyncio.AbstractEventLoop", JoiningAtOnce(sheet))
    pool: SyncPool[Job] = SyncPool(loop, "quick", lambda job: job, no_kernel, nobody)
    waiter = Waiter(pool)
    waiter.submit(sheet)
    await closed(pool)
    assert waiter.errors == [None]


async def test_what_the_kernel_does_not_take_a_thread_does() -> None:
    """A pipe cannot be synced, and the kernel says so before it begins."""
    reading, writing = os.pipe()
    pool = pool_of("pipe", kernel)
    waiter = Waiter(pool)
    sheet = Sheet(writing)
    waiter.submit(sheet)
    await waiter.all_told()
    assert waiter.errors == [None]
    assert sheet.synced_here == 1
    await closed(pool)
    os.close(reading)
    os.close(writing)


async def test_what_the_kernel_does_not_take_stops_nothing_beside_it(descriptor: int) -> None:
    """It stops at the pipe; those behind that are as good as those before."""
    reading, writing = os.pipe()
    pool = pool_of("amid", kernel)
    waiter = Waiter(pool)
    files = [Sheet(descriptor) for _ in range(4)]
    pipe = Sheet(writing)
    waiter.submit(files[0], files[1], pipe, files[2], files[3])
    await waiter.all_told()
    assert waiter.errors == [None] * 5
    assert [file.synced_here for file in files] == [0, 0, 1, 1]
    assert pipe.synced_here == 1
    many = [Sheet(descriptor) for _ in range(kernel_syncs.REQUESTS_MAX)]
    waiter.submit(*many)
    await waiter.all_told()
    assert sum(file.synced_here for file in many) == 0, "a place in the kernel was lost"
    await closed(pool)
    os.close(reading)
    os.close(writing)


async def test_what_is_wanted_in_one_turn_begins_together(descriptor: int) -> None:
    held = HeldKernel()
    pool = pool_of("together", lambda: held)
    waiter = Waiter(pool)
    waiter.want(*[Sheet(descriptor) for _ in range(3)])
    assert held.begun == []
    await waiter.all_told()
    assert held.begun == [3]
    await closed(pool)


async def test_what_is_wanted_while_a_round_runs_begins_with_the_next(descriptor: int) -> None:
    first, last = Sheet(descriptor), Sheet(descriptor)
    held = HeldKernel(last)
    pool = pool_of("rounds", lambda: held)
    waiter = Waiter(pool)
    waiter.want(first, last)
    await held.has_ended(1)
    for _ in range(3):
        waiter.want(Sheet(descriptor))
        pool.begin()  # the end of a turn is not that of a round
        await asyncio.sleep(0)
    assert held.begun == [2]
    held.release(last)
    await waiter.all_told()
    assert waiter.errors == [None] * 5
    assert held.begun == [2, 3]
    await closed(pool)


async def test_nobody_waits_for_a_large_sync(descriptor: int) -> None:
    large = Sheet(descriptor, is_large=True)
    held = HeldKernel(large)
    pool = pool_of("large", lambda: held)
    waiter = Waiter(pool)
    waiter.want(large, Sheet(descriptor))
    await held.has_ended(1)
    later = Waiter(pool)
    later.want(Sheet(descriptor))
    await later.all_told()
    assert waiter.errors == [None]
    held.release(large)
    await waiter.all_told()
    assert held.begun == [2, 1]
    await closed(pool)


async def test_a_sync_that_fails_ends_its_round(descriptor: int) -> None:
    kernel().close()
    pool = pool_of("failing", FailingKernel)
    for _ in range(3):
        waiter = Waiter(pool)
        waiter.want(Sheet(descriptor), Sheet(descriptor))
        await waiter.all_told()
        assert [type(error) for error in waiter.errors] == [OSError, OSError]
    await closed(pool)


async def test_what_a_thread_syncs_is_in_no_round(descriptor: int) -> None:
    """Neither what is more than one file nor what the kernel does not take."""
    reading, writing = os.pipe()
    held = HeldKernel()
    pool = pool_of("threads-beside", lambda: held)
    for _ in range(3):
        waiter = Waiter(pool)
        waiter.want(Sheet(None), Sheet(writing), Sheet(descriptor))
        await waiter.all_told()
        assert waiter.errors == [None] * 3
    assert held.begun == [2] * 3
    await closed(pool)
    os.close(reading)
    os.close(writing)


async def test_what_cannot_be_begun_stops_nobody_behind_it(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    told: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: told.append(context))

    broken = Sheet(descriptor)

    def make_job(job: Job) -> Job:
        if job[0] is broken:
            raise KeyError("broken")
        return job

    pool = SyncPool(loop, "broken", make_job, kernel, nobody)
    waiter = Waiter(pool)
    waiter.want(Sheet(descriptor))
    pool.want((broken, lambda _: None))
    waiter.want(Sheet(descriptor))
    await waiter.all_told()
    assert waiter.errors == [None, None]
    await closed(pool)
    assert [str(context["exception"]) for context in told] == ["'broken'"]


async def test_close_hears_of_what_has_not_begun_yet(descriptor: int) -> None:
    first = Sheet(descriptor)
    held = HeldKernel(first)
    pool = pool_of("closing-between", lambda: held)
    waiter = Waiter(pool)
    waiter.want(first)
    await held.has_ended(1)
    waiter.want(Sheet(descriptor), Sheet(descriptor))
    closing = asyncio.create_task(closed(pool))
    await asyncio.sleep(0)
    held.release(first)
    await closing
    assert waiter.errors == [None] * 3


@pytest.mark.parametrize("has_descriptor", [True, False])
async def test_threads_sync_where_the_kernel_does_not(has_descriptor: bool) -> None:
    pool = pool_of("threads", no_kernel)
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


@pytest.mark.parametrize("started", [0, 1])
async def test_where_no_more_threads_can_be_started_all_is_synced(
    started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the one that there is, or by the loop."""
    start, left = threading.Thread.start, [None] * started

    def start_few(thread: threading.Thread) -> None:
        if thread.name.startswith("sync-few"):
            if not left:
                raise RuntimeError("can't start new thread")
            left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_few)
    pool = pool_of("few", no_kernel)
    waiter = Waiter(pool)
    sheets = [Sheet(None) for _ in range(5)]
    for sheet in sheets:
        waiter.submit(sheet)
    await waiter.all_told()
    waiter.submit(*sheets[:2])
    await closed(pool)
    assert waiter.errors == [None] * 7
    assert [sheet.synced_here for sheet in sheets] == [2, 2, 1, 1, 1]


async def test_one_that_raises_keeps_nobody_else_waiting(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    told: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: told.append(context))
    pool = pool_of("raising", kernel)
    waiter = Waiter(pool)

    def break_off(_error: BaseException | None) -> None:
        raise AssertionError("broken")

    pool.submit([(Sheet(descriptor), break_off)])
    for _ in range(5):
        waiter.submit(Sheet(descriptor))
    await waiter.all_told()
    assert waiter.errors == [None] * 5
    await closed(pool)
    assert [str(context["exception"]) for context in told] == ["broken"]


async def test_close_waits_for_what_is_under_way(descriptor: int) -> None:
    pool = pool_of("closing", kernel)
    waiter = Waiter(pool)
    for _ in range(10):
        waiter.submit(Sheet(descriptor))
    await closed(pool)
    assert waiter.errors == [None] * 10


async def test_a_close_that_is_given_up_leaves_the_syncs_as_they_are(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    told: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: told.append(context))
    sheet = Sheet(descriptor)
    held = HeldKernel(sheet)
    pool = pool_of("given-up", lambda: held)
    waiter = Waiter(pool)
    waiter.submit(sheet)
    closing = asyncio.create_task(closed(pool))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    held.release(sheet)
    await waiter.all_told()
    assert waiter.errors == [None]
    await closed(pool)
    assert told == []


async def test_two_threads_that_report_at_once_are_both_heard() -> None:
    pool = pool_of("at-once", no_kernel)
    waiter = Waiter(pool)
    overtaking = Sheet(None)
    done = waiter.expected()
    pool._running += 1
    pool._ended = OvertakenList(lambda: pool._report(done, None))
    waiter.submit(overtaking)
    await waiter.all_told()
    assert waiter.errors == [None, None]
    await closed(pool)


async def test_a_closed_kernel_serves_the_next_pool(descriptor: int) -> None:
    seen: list[KernelSyncs[Job]] = []

    def remembered() -> KernelSyncs[Job]:
        seen.append(kernel())
        return seen[-1]

    for _ in range(2):
        pool = pool_of("again", remembered)
        waiter = Waiter(pool)
        waiter.submit(Sheet(descriptor))
        await waiter.all_told()
        await closed(pool)
    assert seen[0] is seen[1]


@pytest.mark.parametrize("platform", ["darwin", "linux"])
def test_a_system_without_it_has_none(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KernelSyncs, "_spare", [])
    monkeypatch.setattr(sys, "platform", platform)
    if platform == "linux":
        monkeypatch.setattr(kernel_syncs, "REQUESTS_MAX", 0)
    assert KernelSyncs[Job].open() is None


def test_a_signal_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says EINTR if a signal came and nothing had ended."""
    opened = kernel()

    def interrupted(*_arguments: object) -> int:
        ctypes.set_errno(errno.EINTR)
        return -1

    with monkeypatch.context() as patch:
        patch.setattr(opened._context, "_call", interrupted)
        assert opened.collect() == []
    opened.close()


def test_where_nobody_could_hear_of_the_end_nothing_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sandbox that forbids io_getevents only."""

    def refused(_self: KernelSyncs[Job]) -> list[tuple[Job, OSError | None]]:
        raise PermissionError

    monkeypatch.setattr(KernelSyncs, "_spare", [])
    monkeypatch.setattr(KernelSyncs, "collect", refused)
    assert KernelSyncs[Job].open() is None


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_does_not_get_its_parent_s() -> None:
    kernel().close()
    child = os.fork()
    if not child:
        os._exit(len(KernelSyncs._spare))
    _, status = os.waitpid(child, 0)
    assert KernelSyncs._spare
    assert os.waitstatus_to_exitcode(status) == 0
