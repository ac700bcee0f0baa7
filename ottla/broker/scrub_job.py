"""The scrub job: a little of an old segment in each turn, in a worker, and what it finds told."""

from __future__ import annotations

import asyncio
from functools import partial

from ottla.broker.handlers.context import Rooms
from ottla.broker.log.scrub import BATCH_COST_BYTES
from ottla.broker.scheduler import in_worker

TURN_MS = 50
"""Short turns: at the default rate one is 512 KiB or 128 batches, about a millisecond of Python."""


async def scrub_a_while(rooms: Rooms, run_ms: int) -> None:
    """One run of the job, of turns for `run_ms`; ends at once where nothing is due."""
    loop = asyncio.get_running_loop()
    scrubber, logs = rooms.logs.scrubber, rooms.logs
    for _ in range(run_ms // TURN_MS - 1):
        config = rooms.config
        if config.ottla_scrub_interval_ms < 0:
            return
        started_s = loop.time()
        work = scrubber.begin(
            now_ms=rooms.clock.monotonic_ms(), interval_ms=config.ottla_scrub_interval_ms
        )
        if work is None:
            return
        budget = max(config.ottla_scrub_bytes_per_second * TURN_MS // 1000, BATCH_COST_BYTES)
        read = await in_worker(partial(work.read, budget))
        if scrubber.finish(work, read):
            path = logs.dir_of(work.log)
            keep = partial(logs.keep_damaged_ranges, path, logs.damaged_ranges(path))
            await in_worker(keep)
        if work.to_mend:
            await in_worker(work.mend)
            scrubber.mended(work)
        # The pace, not a wait for anybody.
        await asyncio.sleep(max(0.0, TURN_MS / 1000 - (loop.time() - started_s)))
