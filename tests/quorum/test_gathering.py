"""Changes made at the same time: one batch, one sync, and nothing behind a hole."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Iterable

import pytest

from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.publish import MetadataMachine
from ottla.broker.quorum.snapshot import list_snapshots
from ottla.broker.quorum.store import METADATA_DIRECTORY, QuorumSettings
from ottla.protocol.errors import KafkaError
from ottla.protocol.schema import Message
from ottla.testing.clock import SimClock
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.quorum.nodes import LOG_DIR, running, until

QUORUM_DIR = f"{LOG_DIR}/{METADATA_DIRECTORY}"
SMALL = QuorumSettings(snapshot_bytes=2_000)


@pytest.mark.parametrize("mode", list(CrashMode))
async def test_changes_at_the_same_time_survive_a_crash_at_every_call(mode: CrashMode) -> None:
    """What was not answered is one batch at the end, so that no loss of power leaves a hole."""
    disk = SimDisk()
    rng = random.Random(mode.name)
    answered: list[str] = []
    crashed: list[tuple[SimDisk, list[str]]] = []
    node = await running(disk, settings=SMALL)

    async def create(name: str) -> None:
        await node.create(name)
        answered.append(name)

    async def create_in_turn(number: int) -> None:
        for one in range(4):
            await create(f"t{number}-{one}")
            await asyncio.sleep(0)

    disk.before_call = lambda number, call, path: crashed.extend(
        (disk.crash(rng, mode), list(answered)) for _ in range(8)
    )
    await asyncio.gather(*(create_in_turn(number) for number in range(5)))
    disk.before_call = None
    await node.stop()

    assert len(answered) == 20
    assert len(crashed) > 60
    for found, names in crashed:
        again = await running(found, settings=SMALL)
        topics = again.image.topics.by_name
        assert [name for name in names if name not in topics] == []
        await again.stop()


async def test_what_gathers_beyond_a_batch_waits_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.broker.quorum.driver.BATCH_BYTES_MAX", 500)
    node = await running()
    first = node.quorum._store.log.log_end_offset

    await asyncio.gather(*(node.create(f"t{number}", partitions=2) for number in range(20)))

    batches = list(node.quorum._store._batches_from(first))
    assert len(node.image.topics.by_name) == 20
    assert 2 < len(batches) < 20
    assert all(len(view) < 700 for _, view in batches)
    await node.stop()


async def test_a_change_that_is_larger_has_a_batch_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.broker.quorum.driver.BATCH_BYTES_MAX", 10)
    node = await running()
    first = node.quorum._store.log.log_end_offset

    await asyncio.gather(*(node.create(f"t{number}") for number in range(5)))

    assert len(list(node.quorum._store._batches_from(first))) == 5
    assert node.fatal == []
    await node.stop()


async def test_a_batch_has_the_time_of_its_last_change() -> None:
    """A snapshot says it of the image, whether that was replayed or not."""
    clock = SimClock()
    node = await running(clock=clock)

    async def create_later() -> None:
        clock.advance(1_000)
        await node.create("b")

    await asyncio.gather(node.create("a"), create_later())

    *_, (last, _) = node.quorum._store._batches_from(0)
    assert (last.record_count, last.max_timestamp) == (4, node.image.timestamp)
    await node.stop()


async def test_a_change_that_cannot_be_encoded_is_none() -> None:
    class Illiterate(MetadataMachine):
        def encode(self, records: Iterable[Message], image: MetadataImage) -> list[bytes]:
            raise ValueError("too long")

    node = await running()
    machine, node.quorum._machine = node.quorum._machine, Illiterate()
    with pytest.raises(ValueError, match="too long"):
        await node.create("a")
    node.quorum._machine = machine

    await node.create("b")

    assert list(node.image.topics.by_name) == ["b"]
    await node.stop()


async def test_a_batch_that_cannot_be_made_leaves_nobody_waiting() -> None:
    class Clumsy(MetadataMachine):
        def batch(
            self, values: Iterable[bytes], *, base_offset: int, leader_epoch: int, timestamp: int
        ) -> bytearray:
            raise MemoryError

    node = await running()
    node.quorum._machine = Clumsy()

    results = await asyncio.gather(*map(node.create, "ab"), return_exceptions=True)

    assert [type(result) for result in results] == [KafkaError, KafkaError]
    assert [type(error) for error in node.fatal] == [MemoryError]
    await node.quorum.stop()


@pytest.mark.parametrize("batch_bytes_max", [10, 1_000_000])
async def test_what_the_disk_has_no_room_for_is_refused_with_all_that_saw_it(
    monkeypatch: pytest.MonkeyPatch, batch_bytes_max: int
) -> None:
    monkeypatch.setattr("ottla.broker.quorum.driver.BATCH_BYTES_MAX", batch_bytes_max)
    node = await running()
    free, node.disk.free = node.disk.free, 0

    results = await asyncio.gather(*map(node.create, "ab"), return_exceptions=True)

    first, second = results
    assert isinstance(first, KafkaError)
    assert isinstance(second, KafkaError)
    assert first is not second
    for refused in (first, second):
        assert refused.disk_error is not None
        assert refused.disk_error.errno == errno.ENOSPC
    assert node.fatal == []
    node.disk.free = free
    await node.create("b")
    assert list(node.image.topics.by_name) == ["b"]
    await node.stop()
    again = await running(node.disk)
    assert list(again.image.topics.by_name) == ["b"]
    await again.stop()


async def test_a_snapshot_ends_where_a_batch_does() -> None:
    """Kafka refuses one that ends within a batch, and a start would read that batch twice."""
    clock = SimClock()
    node = await running(clock=clock)
    clock.advance(3_600_000)
    node.quorum.subscribe(lambda delta, image: node.quorum.snapshot_if_due())

    await asyncio.gather(*(node.create(f"t{number}") for number in range(5)))
    await until(lambda: "snapshot_written" in node.events.names)

    ends = [header.last_offset + 1 for header, _ in node.quorum._store._batches_from(0)]
    *_, newest = list_snapshots(node.disk, QUORUM_DIR)
    assert newest.end_offset in ends
    await node.stop()
