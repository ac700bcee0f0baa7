"""Disks that fail under a running broker: what clients are told, who goes on, what is kept."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from ottla.broker.faults import StorageLost
from ottla.broker.jobs import look_for_room
from ottla.broker.log.reserves import LOOKS_EACH, OWN_BYTES, RESERVE_BYTES, RESERVE_FILE
from ottla.broker.posix import PosixDisk
from ottla.broker.readiness import Readiness
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.testing.embedded import Broker
from tests.broker.faulty_file import FaultyFile
from tests.broker.small_client import SmallClient, client_of

STORAGE = int(ErrorCode.KAFKA_STORAGE_ERROR)
FULL = OSError(errno.ENOSPC, "No space left on device")
BROKEN = OSError(errno.EIO, "Input/output error")


DESCRIPTORS = Path("/proc/self/fd")


def _open_below(root: Path) -> list[str]:
    """Which files there this process has open; none where the system does not tell."""
    if not DESCRIPTORS.exists():
        return []
    names = []
    for one in DESCRIPTORS.iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            names.append(os.readlink(one))
    return [name for name in names if name.startswith(f"{root}/")]


class Disks:
    """A broker of two log dirs, the first with the metadata, and a topic in each."""

    def __init__(self, broker: Broker, client: SmallClient, dirs: list[str]) -> None:
        self.broker = broker
        self.client = client
        self.dirs = dirs
        self.on_first = ""
        self.on_second = ""

    async def fill(self) -> None:
        await self.client.create("a", "b", "c", "d")
        for partition in self.broker.running.replicas:
            if self.broker.running.logs.dir_of(partition.log) == self.dirs[0]:
                self.on_first = partition.topic
            else:
                self.on_second = partition.topic
        for topic in (self.on_first, self.on_second):
            assert (await self.client.produce(topic, b"before")).error_code == 0

    def file_of(self, topic: str) -> FaultyFile:
        partition = self.broker.running.replicas.get(topic, 0)
        assert partition is not None
        return FaultyFile.under(partition.log)


@asynccontextmanager
async def _two_disks(root: Path) -> AsyncIterator[Disks]:
    dirs = [str(root / "first"), str(root / "second")]
    async with (
        Broker(root, config={"log.dirs": ",".join(dirs)}) as broker,
        client_of(broker) as client,
    ):
        disks = Disks(broker, client, dirs)
        if not broker.running.rooms.image.topics.by_name:
            await disks.fill()
        yield disks
    assert _open_below(root) == []


async def test_a_full_disk_refuses_writes_until_there_is_space(tmp_path: Path) -> None:
    async with _two_disks(tmp_path) as disks:
        client, topic = disks.client, disks.on_second
        file = disks.file_of(topic)
        file.write_error = FULL
        for _ in range(3):
            assert (await client.produce(topic, b"no room")).error_code == STORAGE
        assert await client.values(topic) == [b"before"]
        assert (await client.produce(disks.on_first, b"elsewhere")).error_code == 0
        running = disks.broker.running
        refused = f'ottla_refused_disk_calls_total{{dir="{disks.dirs[1]}",errno="ENOSPC"}} 3'
        assert refused in list(running.measures.registry.lines())
        readiness = Readiness(running.rooms, running.logs.disk, running._workers)
        assert f"{disks.dirs[1]} refused a write" in str(await readiness.unready())
        file.write_error = None

        after = await client.produce(topic, b"after")
        assert (after.error_code, after.base_offset) == (0, 1)
        assert await client.values(topic) == [b"before", b"after"]
        assert not disks.broker.running.failed.done()


async def test_a_full_disk_keeps_room_for_who_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free_bytes: dict[str, int] = {}

    def space(disk: PosixDisk, path: str) -> tuple[int, int]:
        return 1 << 40, free_bytes.get(path, 1 << 40)

    monkeypatch.setattr(PosixDisk, "space", space)
    async with _two_disks(tmp_path) as disks:
        client, topic, full = disks.client, disks.on_second, disks.dirs[1]
        running = disks.broker.running
        (other,) = {
            one.topic
            for one in running.replicas
            if one.topic != topic and running.logs.dir_of(one.log) == full
        }
        reserve = Path(full, RESERVE_FILE)
        assert reserve.stat().st_blocks * 512 >= RESERVE_BYTES
        free_bytes[full] = 0
        file = disks.file_of(topic)
        file.write_error = FULL
        assert (await client.produce(topic, b"no room")).error_code == STORAGE
        file.write_error = None

        assert (await client.produce(topic, b"ours")).error_code == STORAGE, "that room is kept"
        assert (await client.produce(disks.on_first, b"elsewhere")).error_code == 0
        assert reserve.stat().st_size == 0
        assert "ottla_full_log_dirs 1" in list(running.measures.registry.lines())
        readiness = Readiness(running.rooms, running.logs.disk, running._workers)
        assert f"{full} is full" in str(await readiness.unready())
        await client.delete(topic)
        await client.create(topic)
        assert (await client.produce(topic, b"ours")).error_code == 0, "it was made elsewhere"
        await look_for_room(running.rooms)
        assert (await client.produce(other, b"ours")).error_code == STORAGE, "there is none yet"
        own_room = running.rooms.reserves.short[full]
        own_room.left_bytes = 0
        for _ in range(LOOKS_EACH):
            await look_for_room(running.rooms)
        assert own_room.left_bytes == OWN_BYTES
        led = running.replicas.get(other, 0)
        assert led is not None
        assert not running.replicas.is_spent(led)

        free_bytes[full] = 2 * RESERVE_BYTES
        await look_for_room(running.rooms)
        for name in (other, disks.on_first):
            assert (await client.produce(name, b"after")).error_code == 0
        assert reserve.stat().st_size == RESERVE_BYTES
        assert "ottla_full_log_dirs 0" in list(running.measures.registry.lines())


class _FullQuorum:
    async def submit(self, command: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)


async def test_the_place_of_a_replica_is_told_when_there_is_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _two_disks(tmp_path) as disks:
        running, topic = disks.broker.running, disks.on_second
        ids, node_id = running.logs.directory_ids, running.logs.node_id
        partition = running.replicas.get(topic, 0)
        assert partition is not None
        with monkeypatch.context() as patch:
            patch.setattr(running._reports, "_quorum", _FullQuorum())
            await running.moves.begin(partition, disks.dirs[0])
            async with asyncio.timeout(20):
                while not running._reports.is_behind:
                    await asyncio.sleep(0)
        for place in (disks.dirs[1], disks.dirs[0]):
            told = running.quorum.image.topics.by_name[topic].partitions[0]
            assert told.directory_of(node_id) == ids[place]
            await running.lead_unmade()


async def test_a_stop_loses_nothing_that_is_to_be_deleted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = PosixDisk.rename
    begun, may_end = threading.Event(), threading.Event()

    def full(disk: PosixDisk, old: str, new: str) -> None:
        if old.endswith("/t-0"):
            raise FULL
        rename(disk, old, new)

    def slow(disk: PosixDisk, old: str, new: str) -> None:
        begun.set()
        assert may_end.wait(20)
        rename(disk, old, new)

    async with Broker(tmp_path) as broker, client_of(broker) as client:
        await client.create("t")
        with monkeypatch.context() as patch:
            patch.setattr(PosixDisk, "rename", full)
            await client.delete("t")
        logs = broker.running.logs
        assert logs.has_refused()
        with monkeypatch.context() as patch:
            patch.setattr(PosixDisk, "rename", slow)
            job = asyncio.create_task(broker.running.lead_unmade())
            assert await asyncio.to_thread(begun.wait, 20)
            job.cancel()
            may_end.set()
            await asyncio.gather(job, return_exceptions=True)
        assert job.cancelled()
        assert (logs.has_refused(), len(logs.deletions)) == (False, 1)


@pytest.mark.parametrize("call", ["write", "sync"])
async def test_a_broken_disk_takes_its_directory_offline(tmp_path: Path, call: str) -> None:
    async with _two_disks(tmp_path) as disks:
        client, topic, healthy = disks.client, disks.on_second, disks.on_first
        file = disks.file_of(topic)
        if call == "write":
            file.write_error = BROKEN
        else:
            file.sync_error = BROKEN
        assert (await client.produce(topic, b"lost")).error_code == STORAGE
        file.write_error = file.sync_error = None

        # The disk would work again; it is not asked, for its page cache cannot be believed.
        assert (await client.produce(topic, b"lost, too")).error_code == STORAGE
        no_acks = await client.produce(topic, b"lost, too", acks=2)
        assert no_acks.error_code == ErrorCode.INVALID_REQUIRED_ACKS  # judged before the disk
        assert (await client.fetch(topic)).error_code == STORAGE
        assert (await client.produce(healthy, b"after")).error_code == 0
        await client.create("e")
        assert (await client.produce("e", b"new")).error_code == 0
        described: DescribeLogDirsResponse = await client.connection.request(
            DescribeLogDirsRequest(None), 4
        )
        by_dir = {one.log_dir: one.error_code for one in described.results}
        assert by_dir == {disks.dirs[0]: 0, disks.dirs[1]: STORAGE}
        assert not disks.broker.running.failed.done()

    async with _two_disks(tmp_path) as disks:
        values = await disks.client.values(topic)
        assert values[0] == b"before"
        assert (await disks.client.produce(topic, b"again")).base_offset == len(values)
        assert await disks.client.values(healthy) == [b"before", b"after"]


async def test_a_parked_fetch_learns_that_its_disk_is_gone(tmp_path: Path) -> None:
    async with _two_disks(tmp_path) as disks, client_of(disks.broker) as reader:
        topic = disks.on_second
        parked = asyncio.ensure_future(reader.wait(topic, 1))
        partition = disks.broker.running.replicas.get(topic, 0)
        assert partition is not None
        while not partition.fetch_waiters:
            await asyncio.sleep(0)
        disks.file_of(topic).write_error = BROKEN
        await disks.client.produce(topic, b"lost")

        assert (await asyncio.wait_for(parked, 5)).error_code == STORAGE


async def test_deleting_a_topic_on_a_lost_disk_frees_its_name(tmp_path: Path) -> None:
    async with _two_disks(tmp_path) as disks:
        client, topic = disks.client, disks.on_second
        disks.file_of(topic).write_error = BROKEN
        assert (await client.produce(topic, b"lost")).error_code == STORAGE
        await client.delete(topic)
        await client.create(topic)

        assert (await client.produce(topic, b"anew")).base_offset == 0
        assert await client.values(topic) == [b"anew"]
    # The disk is back, and has the old topic on it still.
    async with _two_disks(tmp_path) as disks:
        assert await disks.client.values(topic) == [b"anew"]
        aside = [name for name in os.listdir(disks.dirs[1]) if name.endswith("-stray")]
        assert [name.partition("-")[0] for name in aside] == [topic]


async def _break_the_first(disks: Disks) -> None:
    """The next sync on the disk of the metadata fails; returns when the broker has ended."""
    file = disks.file_of(disks.on_first)
    file.sync_error = BROKEN
    try:
        answer = await disks.client.produce(disks.on_first, b"lost")
        assert answer.error_code == STORAGE
    except ConnectionError:
        pass  # the end may come before the answer
    file.sync_error = None
    await asyncio.wait_for(asyncio.shield(disks.broker.running.failed), 5)


async def test_losing_the_disk_of_the_metadata_ends_the_broker_and_loses_nothing(
    tmp_path: Path,
) -> None:
    topic = ""

    async def scenario() -> None:
        nonlocal topic
        async with _two_disks(tmp_path) as disks:
            topic = disks.on_first
            for number in range(20):
                assert (await disks.client.produce(topic, b"%d" % number)).error_code == 0
            await _break_the_first(disks)

    with pytest.raises(StorageLost, match="holds the metadata log"):
        await scenario()
    async with _two_disks(tmp_path) as disks:
        values = await disks.client.values(topic)

        assert values[:21] == [b"before", *(b"%d" % number for number in range(20))]
