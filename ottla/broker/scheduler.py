"""Named jobs on the event loop: some once, some again and again.

A job is a plain function or a coroutine function without arguments; `threaded` runs a plain one in
a worker thread, for jobs that wait for the disk. A job never runs twice at a time: a periodic one
that is still running when it is due again skips that turn. Turns keep to the grid of the first one,
without jitter and without catching up. An error ends that run, goes to the supervisor, and a
periodic job keeps its next turn. All timing is the loop's own, so a loop with virtual time gives
the same order each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
Job = Callable[[], Awaitable[None] | None]
Supervisor = Callable[[str, BaseException], None]


async def in_worker(work: Callable[[], T], workers: Executor | None = None) -> T:
    """Runs what blocks in a worker thread, the loop's own if none are given. A job that is
    cancelled meanwhile ends when the thread is through, so that a stop takes away nothing that is
    still in use."""
    running = asyncio.get_running_loop().run_in_executor(workers, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.gather(running, return_exceptions=True)
        raise


@dataclass(slots=True, eq=False)
class _Entry:
    name: str
    job: Job
    interval_s: float | None
    threaded: bool
    due: float
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None


class Scheduler:
    """Made on the running loop; `supervisor(name, error)` hears of each run that failed."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._loop = asyncio.get_running_loop()
        self._supervisor = supervisor
        self._entries: dict[str, _Entry] = {}
        self._stopped = False

    def __repr__(self) -> str:
        running = [entry.name for entry in self._entries.values() if entry.task is not None]
        return f"<Scheduler jobs={list(self._entries)} running={running}>"

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs that will run again or are running, in order of their start."""
        return list(self._entries)

    def every(
        self,
        name: str,
        interval_ms: int,
        job: Job,
        *,
        delay_ms: int | None = None,
        threaded: bool = False,
    ) -> None:
        """Runs the job each `interval_ms`, first after `delay_ms` (an interval if not given)."""
        assert interval_ms > 0, name
        first_ms = interval_ms if delay_ms is None else delay_ms
        self._add(name, job, first_ms, interval_s=interval_ms / 1000, threaded=threaded)

    def once(self, name: str, delay_ms: int, job: Job, *, threaded: bool = False) -> None:
        """Runs the job one time, `delay_ms` from now; its name is free again afterwards."""
        self._add(name, job, delay_ms, interval_s=None, threaded=threaded)

    def cancel(self, name: str) -> bool:
        """Forgets the job and cancels a run in progress; False if there is no such job.

        A run in a worker thread cannot be cancelled: it goes on to its end.
        """
        entry = self._entries.pop(name, None)
        if entry is None:
            return False
        if entry.timer is not None:
            entry.timer.cancel()
        if entry.task is not None and not entry.threaded:
            entry.task.cancel()
        return True

    async def stop(self) -> None:
        """Cancels everything and waits until nothing runs; no job may be added afterwards."""
        self._stopped = True
        tasks = [entry.task for entry in self._entries.values() if entry.task is not None]
        for name in list(self._entries):
            self.cancel(name)
        for task in tasks:
            await asyncio.gather(task, return_exceptions=True)

    def _add(
        self, name: str, job: Job, delay_ms: int, *, interval_s: float | None, threaded: bool
    ) -> None:
        assert not self._stopped, f"{name} is added after stop"
        assert name not in self._entries, f"there is a job {name} already"
        assert delay_ms >= 0, name
        due = self._loop.time() + delay_ms / 1000
        entry = _Entry(name, job, interval_s, threaded, due)
        self._entries[name] = entry
        entry.timer = self._loop.call_at(due, self._start, entry)

    def _start(self, entry: _Entry) -> None:
        entry.timer = None
        if entry.interval_s is not None:
            self._arm(entry, entry.interval_s)
        if entry.task is None:
            entry.task = self._loop.create_task(self._run(entry), name=entry.name)
            entry.task.add_done_callback(lambda task: self._ended(entry, task))

    def _arm(self, entry: _Entry, interval_s: float) -> None:
        now = self._loop.time()
        turns = max(1, int((now - entry.due) // interval_s) + 1)
        entry.due += turns * interval_s
        entry.timer = self._loop.call_at(entry.due, self._start, entry)

    async def _run(self, entry: _Entry) -> None:
        if entry.threaded:
            await self._loop.run_in_executor(None, entry.job)
            return
        result = entry.job()
        if result is not None:
            await result

    def _ended(self, entry: _Entry, task: asyncio.Task[None]) -> None:
        entry.task = None
        if entry.interval_s is None and self._entries.get(entry.name) is entry:
            del self._entries[entry.name]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._supervisor(entry.name, error)
