"""The jobs of a broker: those whose settings ask for none, and a clock that is set."""

from __future__ import annotations

import pytest

from ottla.broker.jobs import expire_producers
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from ottla.testing.embedded import Broker
from tests.handlers.rooms import House

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    "key",
    [
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "replica.high.watermark.checkpoint.interval.ms",
    ],
)
async def test_a_checkpoint_without_an_interval_is_written_once(key: str) -> None:
    async with Broker(config={key: "0"}) as broker:
        assert not broker.running.failed.done()


@pytest.mark.parametrize("days", [1.5, 400, -1.5])
async def test_a_wall_clock_that_is_set_has_no_producer_forgotten(days: float) -> None:
    """Forgotten, a retry of it would be written a second time."""
    async with House() as house:
        await house.create("t")
        partition = house.rooms.replicas.get("t", 0)
        assert partition is not None
        log, clock = partition.log, house._clock

        def write() -> bool:
            records = build_batch(
                [Record(0, clock.wall_ms(), b"k", b"v")],
                producer_id=7,
                producer_epoch=0,
                base_sequence=0,
            )
            view, now_ms = memoryview(records), clock.wall_ms()
            return log.append_as_leader(view, leader_epoch=0, now_ms=now_ms).duplicate

        assert not write()
        expire_producers(house.rooms)
        for jump_ms in (round(days * DAY_MS), -round(days * DAY_MS)):
            clock.advance(1000)
            clock.jump_wall(jump_ms)
            expire_producers(house.rooms)
            assert write()
        clock.advance(DAY_MS)
        expire_producers(house.rooms)

        assert not log.producer_state.producers
