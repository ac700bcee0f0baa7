"""What was acknowledged is never cut off the metadata log: a start that would do it is refused.

Each test damages the log of a node that has stopped or crashed, and starts the next one on it.
"""

from __future__ import annotations

import random

import pytest

from ottla.broker.log.checkpoints import CLEAN_SHUTDOWN_FILE
from ottla.broker.log.examine.partition import PartitionFacts
from ottla.broker.log.examine.repair import Repair
from ottla.broker.log.examine.verify import verify_path
from ottla.broker.quorum.raft import QuorumError
from ottla.broker.quorum.store import METADATA_DIRECTORY, QuorumSettings
from ottla.config.types import LogConfig
from ottla.protocol.records.batch import iterate_headers
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.quorum.nodes import LOG_DIR, Node, Recorder

QUORUM_DIR = f"{LOG_DIR}/{METADATA_DIRECTORY}"
FIRST = f"{QUORUM_DIR}/{0:020d}.log"
NAMES = ["a", "b", "c", "d"]


async def used(*, settings: QuorumSettings | None = None, names: list[str] | None = None) -> Node:
    node = Node(SimDisk(), settings=settings)
    await node.start()
    for name in names or NAMES:
        await node.create(name)
    return node


def crashed(node: Node) -> SimDisk:
    """Everything was synced, so it does not matter how."""
    return node.disk.crash(random.Random(1), CrashMode.SIZES)


async def stopped(node: Node) -> SimDisk:
    """With the mark that a broker leaves behind a clean stop."""
    await node.stop()
    node.disk.open(f"{LOG_DIR}/{CLEAN_SHUTDOWN_FILE}", create=True).close()
    return node.disk


async def topics_after(disk: SimDisk, *, settings: QuorumSettings | None = None) -> list[str]:
    node = Node(disk, settings=settings)
    await node.start()
    names = list(node.image.topics.by_name)
    await node.stop()
    return names


def data_of(disk: SimDisk, path: str = FIRST) -> bytes:
    file = disk.open(path)
    return file.pread(file.size(), 0)


def damage(disk: SimDisk, number: int, path: str = FIRST) -> tuple[int, int]:
    """Flips a bit of a batch; where it begins, and its first offset. Negative ones count from the
    end."""
    data = data_of(disk, path)
    position, header = list(iterate_headers(memoryview(data)))[number]
    last = position + header.size - 1
    disk.corrupt(path, last, bytes([data[last] ^ 1]))
    return position, header.base_offset


async def test_a_flipped_bit_with_sound_batches_behind_stops_the_start() -> None:
    disk = crashed(await used())
    position, offset = damage(disk, -3)
    before = disk.tree()

    with pytest.raises(QuorumError) as caught:
        await topics_after(disk)

    said = str(caught.value)
    assert said.startswith(f"{FIRST}, byte {position}: there is no valid batch")
    assert f"from offset {offset} on" in said
    assert f"`ottla log repair {QUORUM_DIR}`" in said
    assert disk.tree() == before


async def test_a_damaged_length_hides_nothing_that_lies_behind_it() -> None:
    disk = crashed(await used())
    data = data_of(disk)
    position, _ = list(iterate_headers(memoryview(data)))[-3]
    disk.corrupt(FIRST, position + 8, b"\x7f")

    with pytest.raises(QuorumError, match=f"byte {position}"):
        await topics_after(disk)


async def test_a_torn_tail_is_cut() -> None:
    """Nothing is behind it, and without a clean stop nobody knows that it was ever on disk."""
    node = await used()
    disk = crashed(node)
    damage(disk, -1)

    assert await topics_after(disk) == NAMES[:-1]


async def test_nothing_of_what_was_stopped_cleanly_is_cut() -> None:
    disk = await stopped(await used())
    position, _ = damage(disk, -1)

    with pytest.raises(QuorumError, match=f"byte {position}.*where the broker was stopped cleanly"):
        await topics_after(disk)


async def test_a_log_that_has_become_shorter_than_at_its_clean_stop_stops_the_start() -> None:
    disk = await stopped(await used())
    position, header = list(iterate_headers(memoryview(data_of(disk))))[-1]
    disk.open(FIRST).truncate(position)

    with pytest.raises(QuorumError, match=f"ends at offset {header.base_offset}.*is lost"):
        await topics_after(disk)


async def test_what_a_start_appends_may_tear_while_the_mark_of_the_stop_stays() -> None:
    disk = await stopped(await used())
    node = Node(disk)
    await node.quorum.start()  # the mark goes when the logs are loaded, which is later
    disk = node.disk.crash(random.Random(1), CrashMode.SIZES)
    damage(disk, -1)

    assert await topics_after(disk) == NAMES


async def test_what_a_snapshot_has_may_be_damaged_in_the_log() -> None:
    settings = QuorumSettings(snapshot_bytes=2_000)
    names = [f"t{number}" for number in range(30)]
    disk = crashed(await used(settings=settings, names=names))
    damage(disk, 2)

    assert await topics_after(disk, settings=settings) == names


async def test_a_segment_that_is_sound_is_not_given_up_for_the_one_before() -> None:
    """Nothing sound follows in the same file."""
    settings = QuorumSettings(segment_bytes=1_500)
    disk = crashed(await used(settings=settings, names=[f"t{number}" for number in range(12)]))
    damage(disk, -1)

    with pytest.raises(QuorumError, match=r"up to \d+, where .*\.log follows"):
        await topics_after(disk, settings=settings)


async def test_a_missing_segment_stops_the_start() -> None:
    settings = QuorumSettings(segment_bytes=1_500)
    disk = crashed(await used(settings=settings, names=[f"t{number}" for number in range(30)]))
    _, second, third, *_ = [name for name in disk.list(QUORUM_DIR) if name.endswith(".log")]
    disk.remove(f"{QUORUM_DIR}/{second}")

    with pytest.raises(QuorumError, match=f"{third}: the metadata log ends at offset"):
        await topics_after(disk, settings=settings)


async def test_a_wrong_offset_is_no_torn_tail() -> None:
    """No CRC covers it, and the batch is whole."""
    disk = crashed(await used())
    position, _ = list(iterate_headers(memoryview(data_of(disk))))[-1]
    disk.corrupt(FIRST, position, b"\x40")

    with pytest.raises(QuorumError, match="that has a wrong offset and is sound otherwise"):
        await topics_after(disk)


@pytest.mark.parametrize("clean", [False, True])
async def test_a_repair_lets_it_start_without_what_is_lost(clean: bool) -> None:
    node = await used()
    disk = await stopped(node) if clean else crashed(node)
    damage(disk, -3 if clean else -2)  # that of "c"; a stop adds a batch
    with pytest.raises(QuorumError):
        await topics_after(disk)

    mender = Repair(disk, LogConfig(), Recorder(), now_ms=1)
    for facts in verify_path(disk, QUORUM_DIR, deep=False, progress=lambda read: None):
        assert isinstance(facts, PartitionFacts)
        mender.partition(facts)

    assert await topics_after(disk) == ["a", "b", "d"]
