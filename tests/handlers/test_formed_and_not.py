"""Answers by forms and by messages to the same fetches, over logs of all kinds of batches."""

from __future__ import annotations

import random

import pytest

from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import build_marker
from ottla.protocol.records.record import Record
from tests.handlers.parked import Answers, listen, said
from tests.handlers.rooms import START_MS, House

TOPIC = "t"
SEEDS = 12
STEPS = 150
SEGMENT_MS = 1000
PRODUCERS = (1, 2, 3)


class Log:
    """One partition, and whoever writes to it: plainly and in transactions."""

    def __init__(self, house: House, topic_id: bytes, rng: random.Random) -> None:
        led = house.rooms.replicas.get(TOPIC, 0)
        assert led is not None
        self.led = led
        self._house = house
        self._topic_id = topic_id
        self._rng = rng
        self._now_ms = START_MS
        self._sequences = dict.fromkeys(PRODUCERS, 0)
        self._open: set[int] = set()

    def step(self) -> None:
        """Something is written; what begins a segment, now and then."""
        self._now_ms += self._rng.choice((0, 0, 0, 400, 2 * SEGMENT_MS))
        producer_id = self._rng.choice(PRODUCERS)
        kind = self._rng.randrange(4)
        if kind == 0:
            self._write(-1)
        elif kind == 1 and producer_id in self._open:
            self._mark(producer_id)
        elif kind == 2 and self.led.log.last_stable_offset > self.led.log.log_start_offset:
            self.led.log.delete_records(
                self._rng.randint(self.led.log.log_start_offset, self.led.log.last_stable_offset)
            )
        else:
            self._write(producer_id)

    def _write(self, producer_id: int) -> None:
        values = [
            bytes(self._rng.choice((1, 30, 900, 1100))) for _ in range(self._rng.randint(1, 3))
        ]
        records = [Record(at, self._now_ms, None, value) for at, value in enumerate(values)]
        if producer_id < 0:
            batch = build_batch(records)
        else:
            batch = build_batch(
                records,
                transactional=True,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=self._sequences[producer_id],
            )
            self._sequences[producer_id] += len(records)
            self._open.add(producer_id)
        self._house.rooms.replicas.append(self.led, memoryview(batch))

    def _mark(self, producer_id: int) -> None:
        marker = build_marker(
            producer_id=producer_id,
            producer_epoch=0,
            committed=self._rng.random() < 0.5,
            coordinator_epoch=0,
            timestamp=self._now_ms,
        )
        self._open.discard(producer_id)
        self._house.rooms.replicas.append_internal(self.led, memoryview(marker))

    def fetch(self, level: int, *, is_metered: bool) -> Answers:
        """Waits at the end of what a reader of that level can see."""
        log = self.led.log
        end = log.last_stable_offset if level else log.high_watermark
        part = FetchRequest.FetchPartition(0, fetch_offset=end, partition_max_bytes=1 << 20)
        topic = FetchRequest.FetchTopic(topic_id=self._topic_id, partitions=[part])
        request = FetchRequest(
            max_wait_ms=60_000, min_bytes=1, isolation_level=level, topics=[topic]
        )
        return listen(self._house, request, is_metered=is_metered)


@pytest.mark.parametrize("is_synced", [True, False])
async def test_they_say_the_same(is_synced: bool) -> None:
    formed = 0
    for seed in range(SEEDS):
        rng = random.Random(seed)
        configs = {"segment.ms": str(SEGMENT_MS)}
        if not is_synced:
            configs["flush.messages"] = str(2**63 - 1)
        async with House() as house:
            log = Log(house, await house.create(TOPIC, configs=configs), rng)
            waiting: dict[int, tuple[Answers, Answers]] = {}
            for step in range(STEPS):
                for level in (0, 1):
                    if level not in waiting:
                        waiting[level] = (
                            log.fetch(level, is_metered=False),
                            log.fetch(level, is_metered=True),
                        )
                log.step()
                if rng.random() < 0.5:  # or the next one is visible together with this
                    await house.append(TOPIC, 0, [b"v"], timestamp=START_MS)
                for level, (one, other) in list(waiting.items()):
                    assert len(one.given) == len(other.given), (seed, step, level)
                    if one.given:
                        del waiting[level]
                        formed += isinstance(one.given[0], bytearray)
                        assert said(one) == said(other), (seed, step, level)
            house.rooms.replicas.answer_fetches()
    assert formed > 50  # as a test of forms it says something
