"""The retention jobs: old segments are deleted a few at a time, files are removed in a worker.

A broker may have ten thousand old segments at once, after a retention.ms was lowered. To rename
their files costs the loop little by little, to unlink them costs it nothing.
"""

from __future__ import annotations

import asyncio

from ottla.broker.handlers.context import Rooms

LOGS_AT_ONCE = 32
"""Logs looked at in one turn of the loop; a look costs some 20 us."""


async def apply_retention(rooms: Rooms) -> None:
    """Deletes what the rules doom; the files go file.delete.delay.ms later."""
    logs = rooms.logs
    await asyncio.get_running_loop().run_in_executor(None, logs.checkpoint_recovery_points)
    for number, log in enumerate(logs.logs):
        while logs.delete_some_segments(log):
            await asyncio.sleep(0)
        if number % LOGS_AT_ONCE == 0:
            await asyncio.sleep(0)


async def remove_deleted(rooms: Rooms) -> None:
    """Removes the files of deleted partitions and segments whose delay is over."""
    logs = rooms.logs
    loop = asyncio.get_running_loop()
    partitions = 0
    for removal in logs.due_removals():
        await loop.run_in_executor(None, logs.remove, removal)
        partitions += 1
    if partitions:
        rooms.events.info("partitions_removed", count=partitions)
    for log, segments in logs.due_segments():
        await loop.run_in_executor(None, logs.remove_segments, log, segments)
