"""The retention jobs: old segments are deleted a few at a time, files are removed in a worker.

A broker may have ten thousand old segments at once, after a retention.ms was lowered. Their files
are renamed and unlinked by a worker: either may wait for a commit of the file system's journal. The
worker rests, and gives way to whoever wants its core: an unlink is some milliseconds of the
kernel's work, and thousands on end would take the disk from those who write.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from ottla.broker.handlers.context import Rooms
from ottla.broker.log.log import Log
from ottla.broker.posix import lower_thread_priority
from ottla.broker.scheduler import in_worker

T = TypeVar("T")

LOGS_AT_ONCE = 32
"""Logs looked at in one turn of the loop; a look costs some 20 us."""
REST = 8
"""The worker that has renamed or removed files rests so many times as long as that has taken: with
a thousand segments of 1 MB, p99 of a producer beside it was twice the quiet one without a rest."""
REST_SECONDS_MAX = 0.02
"""But no longer than this: on a slow disk, too, room is made for what is written."""

# One thread for all brokers of a process: they wait for the same disks.
_WORKER = ThreadPoolExecutor(
    1, thread_name_prefix="ottla-deletion", initializer=lower_thread_priority
)


async def apply_retention(rooms: Rooms) -> None:
    """Deletes what the rules doom; the files go file.delete.delay.ms later.

    Where a log loses all that it has, a new segment begins, and the last goes when it is synced.
    """
    logs = rooms.logs
    await in_worker(logs.checkpoint_recovery_points)
    for number, log in enumerate(logs.logs):
        await _delete_segments(rooms, log)
        if number % LOGS_AT_ONCE == 0:
            await asyncio.sleep(0)


async def _delete_segments(rooms: Rooms, log: Log) -> None:
    deletions = rooms.logs.deletions
    may_be_more = True
    while may_be_more and (segments := deletions.retire(log)):
        try:
            await _step(partial(deletions.set_aside, log, segments))
        finally:
            may_be_more = deletions.retired(log, segments)
    rooms.replicas.reconsider(log.topic, log.partition)


async def remove_deleted(rooms: Rooms) -> None:
    """Removes the files of deleted partitions and segments whose delay is over."""
    logs = rooms.logs
    for log in logs.deletions.take_held_back():
        await _delete_segments(rooms, log)
    directories = []
    for removal in logs.deletions.due_directories():
        await _go(logs.deletions.remove_directory(removal))
        directories.append(removal.path)
    if directories:
        rooms.events.info("directories_removed", count=len(directories), first=directories[0])
    for log, segments in logs.deletions.due_segments(logs.logs):
        await _go(logs.deletions.remove_segments(log, segments))


async def _go(steps: Iterator[None]) -> None:
    over = object()
    while await _step(partial(next, steps, over)) is not over:
        pass


async def _step(work: Callable[[], T]) -> T:
    def timed() -> tuple[T, float]:
        started_s = time.perf_counter()
        return work(), time.perf_counter() - started_s

    result, took_s = await in_worker(timed, _WORKER)
    await asyncio.sleep(min(REST * took_s, REST_SECONDS_MAX))
    return result
