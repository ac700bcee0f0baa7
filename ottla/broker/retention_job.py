"""The retention jobs: old segments are deleted a few at a time, files are removed in a worker.

A broker may have ten thousand old segments at once, after a retention.ms was lowered. Their files
are renamed and unlinked by workers: either may wait for a commit of the file system's journal. And
the workers rest: thousands of unlinks on end take the disk, and a core, from those who write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ottla.broker.handlers.context import Rooms
from ottla.broker.log.log import Log
from ottla.broker.scheduler import in_worker

LOGS_AT_ONCE = 32
"""Logs looked at in one turn of the loop; a look costs some 20 us."""


REST = 4
"""A worker that has renamed or removed files rests so many times as long as that has taken: with a
thousand segments of 1 MB, p99 of a producer beside it was twice the quiet one without a rest."""
SEGMENTS_AT_ONCE = 4
"""Segments whose files are removed in one step, a millisecond or two."""


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
        await _step(partial(logs.deletions.remove_directory, removal))
        directories.append(removal.path)
    if directories:
        rooms.events.info("directories_removed", count=len(directories), first=directories[0])
    for log, segments in logs.deletions.due_segments(logs.logs):
        for start in range(0, len(segments), SEGMENTS_AT_ONCE):
            some = segments[start : start + SEGMENTS_AT_ONCE]
            await _step(partial(logs.deletions.remove_segments, log, some))


async def _step(work: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    await in_worker(work)
    await asyncio.sleep(REST * (loop.time() - started_s))
