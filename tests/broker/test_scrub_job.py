"""The scrub job on a broker's rooms: found, kept over a restart, answered to who asks for it."""

from __future__ import annotations

import random

from ottla.broker.jobs import SCRUB_RUN_MS
from ottla.broker.log.log import Log
from ottla.broker.log.manager import LogManager
from ottla.broker.log.quarantine import DAMAGED_RANGES_FILE
from ottla.broker.scrub_job import TURN_MS, scrub_a_while
from ottla.config.types import LogConfig
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest
from ottla.testing.platter import CrashMode
from tests.handlers.rooms import DATA_DIR, NODE_ID, House

FAST = {"ottla.scrub.bytes.per.second": str(1 << 30)}
VALUE = b"x" * 300_000


async def filled(house: House) -> Log:
    """A log with several sealed segments, of batches that hold one large record each."""
    await house.create("t", configs={"segment.bytes": "1048576"})
    for _ in range(8):
        await house.append("t", 0, [VALUE])
    log = house.rooms.logs.get("t", 0)
    assert log is not None
    assert len(log.segments) == 3
    return log


def flip(house: House, log: Log, offset: int) -> None:
    position, _ = log.segments[0].locate(offset)
    house.disk.corrupt(log.segments[0].log_path, position + 1000, b"y")


async def scrubbed(house: House) -> None:
    """Runs the job until its round is over."""
    while house.rooms.logs.scrubber.begin(now_ms=0, interval_ms=1 << 40) is not None:
        await scrub_a_while(house.rooms, 2 * TURN_MS)


async def refusal(house: House, offset: int) -> int:
    """The error code that a fetch of an offset is answered."""
    topic = house.rooms.image.topics.by_name["t"]
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    request = FetchRequest(
        max_wait_ms=0,
        topics=[FetchRequest.FetchTopic(topic_id=topic.topic_id, partitions=[part])],
    )
    answer = await house.ask(request, 16)
    code: int = answer.responses[0].partitions[0].error_code
    return code


async def test_a_flipped_bit_is_found_and_answered_to_who_asks_for_it() -> None:
    async with House(FAST) as house:
        log = await filled(house)
        flip(house, log, 1)
        await scrubbed(house)

        assert [one.base_offset for one in log.quarantine.ranges] == [0]
        assert house.events.named("segment_damaged")
        assert await refusal(house, 1) == ErrorCode.CORRUPT_MESSAGE
        assert log.read(2, max_bytes=1, upper=1, at_least_one=True) is not None


async def test_what_was_found_is_known_after_a_power_loss() -> None:
    async with House(FAST) as house:
        log = await filled(house)
        flip(house, log, 1)
        await scrubbed(house)
        house.rooms.logs.checkpoint_recovery_points()
        left = house.disk.crash(random.Random(1), CrashMode.PREFIX)
        assert left.exists(f"{DATA_DIR}/{DAMAGED_RANGES_FILE}")
        logs = LogManager(
            left,
            [DATA_DIR],
            clock=house.rooms.clock,
            events=house.rooms.events,
            rng=random.Random(2),
            node_id=NODE_ID,
            cluster_id=None,
            default_config=LogConfig(segment_bytes=1 << 20),
            recovery_threads=1,
        )
        logs.load()
        after = logs.get("t", 0)
        assert after is not None

        assert after.quarantine.ranges == log.quarantine.ranges


async def test_nothing_is_written_where_nothing_is_found() -> None:
    async with House(FAST) as house:
        log = await filled(house)
        await scrubbed(house)

        assert house.rooms.logs.scrubber.scrubbed_bytes == log.segments.sealed_bytes
        assert not house.disk.exists(f"{DATA_DIR}/{DAMAGED_RANGES_FILE}")


async def test_it_can_be_switched_off() -> None:
    async with House({"ottla.scrub.interval.ms": "-1"}) as house:
        flip(house, await filled(house), 0)
        await scrub_a_while(house.rooms, SCRUB_RUN_MS)

        assert house.rooms.logs.scrubber.scrubbed_bytes == 0
