"""The retention jobs: old segments are deleted a few at a time, files are removed in a worker.

A broker may have ten thousand old segments at once, after a retention.ms was lowered. Their files
are renamed and unlinked by a worker: either may wait for a commit of the file system's journal. The
worker rests, and gives way to whoever wants its core: an unlink is some milliseconds of the
kernel's work, and thousands on end would take the disk from those who write.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from ottla.broker.handlers.context import Rooms
from ottla.broker.log.first_touch import FirstTouches, Place
from ottla.broker.log.log import Log
from ottla.broker.log.segment import Segment
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

# One thread for all brokers of a process: they wait for the same disks. A forked child has none of
# its parent's threads, and makes its own.
_workers: list[ThreadPoolExecutor] = []
if sys.platform != "win32":
    os.register_at_fork(after_in_child=_workers.clear)


def _worker() -> ThreadPoolExecutor:
    if not _workers:
        name = "ottla-deletion"
        _workers.append(ThreadPoolExecutor(1, name, initializer=lower_thread_priority))
    return _workers[0]


async def apply_retention(rooms: Rooms) -> None:
    """Deletes what the rules doom; the files go file.delete.delay.ms later.

    Where a log loses all that it has, a new segment begins, and the last goes when it is synced.
    What is not synced itself is synced now, and goes with the next run.
    """
    logs = rooms.logs
    await in_worker(logs.checkpoint_recovery_points)
    await _delete_segments(rooms, logs.logs)
    for log in logs.deletions.take_unsynced():
        partition = rooms.replicas.get(log.topic, log.partition)
        if partition is not None:
            rooms.replicas.flush(partition)


async def _delete_segments(rooms: Rooms, logs: list[Log]) -> None:
    for start in range(0, len(logs), LOGS_AT_ONCE):
        await _delete_segments_of_some(rooms, logs[start : start + LOGS_AT_ONCE])
        await asyncio.sleep(0)


async def _delete_segments_of_some(rooms: Rooms, some: list[Log]) -> None:
    """A few segments of each log, until none of them has more.

    Where the logs begin is on disk before a segment loses its name: a crash may bring back any of
    those that went, and the next start is to know that they are none of the log's any more.
    """
    deletions = rooms.logs.deletions
    left = some
    while left:
        retired: dict[Log, list[Segment]] = {}
        try:
            for log in left:
                if segments := await _retire(rooms, log):
                    retired[log] = segments
            if retired:
                await _step(rooms.logs.checkpoint_log_start_offsets)
            for log, segments in retired.items():
                await _step(partial(deletions.set_aside, log, segments))
        finally:
            left = [log for log, segments in retired.items() if deletions.retired(log, segments)]
    for log in some:
        rooms.replicas.reconsider(log.topic, log.partition)


class _Unopened(Exception):
    """The time of a segment is in files that nobody has opened since the start."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment)
        self.segment = segment


async def _retire(rooms: Rooms, log: Log) -> list[Segment]:
    """What is doomed. The files that tell how old a segment is are read by the worker first, for on
    a slow disk the loop would wait for them with everybody's requests."""
    touched: set[Segment] = set()

    def newest(segment: Segment) -> int:
        if not segment.is_loaded and segment not in touched:
            raise _Unopened(segment)
        return segment.max_timestamp

    while True:
        try:
            return rooms.logs.deletions.retire(log, newest)
        except _Unopened as unopened:
            touched.add(unopened.segment)
            place = Place(unopened.segment, None, None, has_transactions=False)
            await _step(partial(FirstTouches([place]).run_apart, _no_pause))


def _no_pause() -> None:
    """The worker gives way by its priority."""


async def remove_deleted(rooms: Rooms) -> None:
    """Removes the files of deleted partitions and segments whose delay is over."""
    logs = rooms.logs
    await _delete_segments(rooms, logs.deletions.take_held_back())
    directories = []
    for removal in logs.deletions.due_directories():
        await _go(logs.deletions.remove_directory(removal))
        if not logs.deletions.awaits(removal):
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

    result, took_s = await in_worker(timed, _worker())
    await asyncio.sleep(min(REST * took_s, REST_SECONDS_MAX))
    return result
