"""Syncs off the loop, and one callback on the loop for each.

The kernel does those that are one fdatasync, which nearly all are (`kernel_syncs.py`). For the
rest, and where the kernel does none, there are a few threads for each log dir. An executor's future
costs more than the sync of a fast disk, so this is the least that works: a queue in, a list back,
and one wake-up of the loop for all syncs that ended together. Which file is synced when stands in
`replicas.py`; what a sync means stands in `broker.log.flush`.

Small syncs go in rounds: those of a log dir begin together, and the next ones when all of these
have ended. What comes meanwhile gathers, so that each sync covers more, and fewer of them compete
for the disk and the processors. No one waits for a large one.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Generic, Protocol, TypeVar

from ottla.broker.kernel_syncs import KernelSyncs

SYNC_THREADS = 4
"""Per log dir. Measured: 5-6 thousand syncs a second with one thread, 10-11 with four files."""


class Ticket(Protocol):
    @property
    def is_large(self) -> bool:
        """Whether so much has been written that its sync may take far longer than others."""

    def sync(self) -> None:
        """Blocks until all of it is on disk; an OSError is final, and told to the log."""

    def descriptor(self) -> int | None:
        """The descriptor whose fdatasync is all that `sync` would do, if that is so."""

    def fail(self, error: OSError) -> None:
        """Tells the log that the sync of the descriptor failed. Blocks: it writes to the disk."""


Done = Callable[[BaseException | None], None]
"""Hears of the end of a sync."""
Job = tuple[Ticket, Done]
Work = Callable[[], None]
Ended = tuple[Done, BaseException | None]


T = TypeVar("T")


class SyncPool(Generic[T]):
    """The syncs of one log dir. All methods and `done` run on the loop.

    `make_job` says what to sync of something that wants a sync, when that begins; None if nothing.
    `open_kernel` is asked with the first sync; threads start when they are needed. Whoever wants a
    sync at the end of a turn, as `want_last` may, is begun with those of that turn.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        make_job: Callable[[T], Job | None],
        open_kernel: Callable[[], KernelSyncs[Job] | None],
        want_last: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._name = name
        self._make_job = make_job
        self._open_kernel = open_kernel
        self._want_last = want_last
        self._wanted: list[T] = []
        self._is_due = False
        self._round = 0
        """Small syncs that the kernel has under way."""
        self._kernel: KernelSyncs[Job] | None = None
        self._kernel_is_asked = False
        self._kernel_is_idle: asyncio.Future[None] | None = None
        self._work: queue.SimpleQueue[tuple[Work, Done] | None] = queue.SimpleQueue()
        self._ended: list[Ended] = []
        self._is_woken = False
        self._threads: list[threading.Thread] = []
        self._running = 0

    def want(self, whose: T) -> None:
        """Has a sync begin: at the end of this turn, with what else is wanted until then, or when
        the round is over that is under way."""
        self._wanted.append(whose)
        self._begin_soon()

    def begin(self) -> None:
        """Begins what is wanted, unless a round is under way; for who knows that this turn is
        over."""
        if not self._round:
            self._begin_wanted()

    def submit(self, jobs: Iterable[Job]) -> None:
        """Begins these at once."""
        for_kernel: list[tuple[int, Job]] = []
        for_threads: list[Job] = []
        for job in jobs:
            descriptor = job[0].descriptor()
            if descriptor is None:
                for_threads.append(job)
            else:
                for_kernel.append((descriptor, job))
        if for_kernel:
            for_threads += self._begin_in_kernel(for_kernel)
        for ticket, done in for_threads:
            self._hand_over(ticket.sync, done)

    async def close(self, workers: Executor) -> None:
        """Waits for the syncs under way; nothing is wanted or submitted any more."""
        self._begin_wanted()
        if self._kernel is not None:
            # Before the threads: they tell the logs what the kernel could not sync.
            if len(self._kernel):
                self._kernel_is_idle = self._loop.create_future()
                await self._kernel_is_idle
            self._loop.remove_reader(self._kernel.fileno())
            self._kernel.close()
            self._kernel = None
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            await self._loop.run_in_executor(workers, thread.join)
        self._threads.clear()
        while self._running:
            await asyncio.sleep(0)  # what the loop does itself, and what the threads have reported

    # in rounds

    def _begin_soon(self) -> None:
        if self._wanted and not self._round and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._turn_is_over)

    def _turn_is_over(self) -> None:
        try:
            self._want_last()
        finally:
            self._is_due = False
            self.begin()

    def _begin_wanted(self) -> None:
        wanted, self._wanted = self._wanted, []
        left = iter(wanted)
        jobs: list[Job] = []
        try:
            for whose in left:
                job = self._make_job(whose)
                if job is not None:
                    jobs.append(job)
        finally:
            # Whatever one of them raised: a job that was made must begin, and the others wait.
            self._wanted.extend(left)
            self.submit(jobs)
            self._begin_soon()

    # in the kernel

    def _begin_in_kernel(self, wanted: list[tuple[int, Job]]) -> list[Job]:
        """Returns those that are left to threads."""
        if not self._kernel_is_asked:
            self._kernel_is_asked = True
            self._kernel = self._open_kernel()
            if self._kernel is not None:
                self._loop.add_reader(self._kernel.fileno(), self._collect)
        if self._kernel is None:
            return [job for _, job in wanted]
        refused = self._kernel.begin(wanted)
        self._round += _count_small(job for _, job in wanted) - _count_small(refused)
        return refused

    def _collect(self) -> None:
        assert self._kernel is not None
        ended: list[Ended] = []
        for (ticket, done), error in self._kernel.collect():
            if not ticket.is_large:
                self._round -= 1
            if error is None:
                ended.append((done, None))
            else:
                self._hand_over(partial(_fail, ticket, error), done)
        try:
            self._tell(ended)
        finally:
            self._begin_soon()
            idle = self._kernel_is_idle
            if idle is not None and not idle.done() and not len(self._kernel):
                idle.set_result(None)

    # in threads

    def _hand_over(self, work: Work, done: Done) -> None:
        self._running += 1
        if len(self._threads) < min(self._running, SYNC_THREADS):
            thread = threading.Thread(
                target=self._run, name=f"sync-{self._name}-{len(self._threads)}", daemon=True
            )
            try:
                thread.start()
            except (RuntimeError, MemoryError):  # there are no more: those that there are do it
                if not self._threads:
                    self._loop.call_soon(self._do_next)
            else:
                self._threads.append(thread)
        self._work.put((work, done))

    def _run(self) -> None:
        while (job := self._work.get()) is not None:
            self._do(*job)

    def _do_next(self) -> None:
        """What no thread has taken meanwhile. The loop waits for the disk, which loses nothing."""
        with suppress(queue.Empty):
            job = self._work.get_nowait()
            if job is None:
                self._work.put(None)  # a thread is to end by it
            else:
                self._do(*job)

    def _do(self, work: Work, done: Done) -> None:
        error: OSError | None = None
        try:
            work()
        except OSError as failed:
            error = failed
        except BaseException as broken:
            self._report(done, broken)  # or who waits for this sync would wait for good
            raise
        self._report(done, error)

    def _report(self, done: Done, error: BaseException | None) -> None:
        self._ended.append((done, error))
        if not self._is_woken:  # two threads may both see that; the second finds nothing to tell
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._tell_reported)

    def _tell_reported(self) -> None:
        # In this order: a thread that appends after the second line wakes us again.
        self._is_woken = False
        ended, self._ended = self._ended, []
        self._running -= len(ended)
        self._tell(ended)

    # on the loop

    def _tell(self, ended: Iterable[Ended]) -> None:
        left = iter(ended)
        try:
            for done, error in left:
                done(error)
        finally:
            # Whatever one of them raised, the others have been waiting for their syncs, too.
            for one in left:
                self._loop.call_soon(self._tell, [one])


def _count_small(jobs: Iterable[Job]) -> int:
    return sum(not ticket.is_large for ticket, _ in jobs)


def _fail(ticket: Ticket, error: OSError) -> None:
    ticket.fail(error)
    raise error
