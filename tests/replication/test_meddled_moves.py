"""A replica moves while somebody deletes its records, or calls it back."""

from __future__ import annotations

import asyncio

from tests.handlers.rooms import House
from tests.replication.test_moves import TWO_DIRS, check, movers


async def test_a_copy_with_batches_that_wait_for_a_sync_is_started_over() -> None:
    async with House(TWO_DIRS) as house:
        mover = await movers(house, batches=0, flush_messages="4")
        for _ in range(30):
            await mover.send(size=3000)  # more than is copied at once
        target, log = mover.other_dir, mover.partition.log

        def delete_all() -> None:
            """What the copy has is not its log's any more, and more comes."""
            log.delete_records(log.high_watermark)
            asyncio.get_running_loop().create_task(mover.send())

        await mover.alter(target)
        mover.behind = ("append", delete_all)
        await mover.moves.run()
        await mover.send()

        assert mover.log_dir == target
        assert not house.events.named("replica_move_failed")
        check(mover.partition.log, mover.acknowledged[-2:])
