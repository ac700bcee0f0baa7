"""What becomes of waiting answers, of a stop and of a start when a disk fails, is slow or away."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker as RunningBroker
from ottla.broker.log.checkpoints import CLEAN_SHUTDOWN_FILE
from ottla.broker.log.flush import FlushTicket
from ottla.broker.log.log import Log
from ottla.broker.posix import PosixDisk, PosixFile
from ottla.config.load import load
from ottla.protocol.codec import decoder
from ottla.protocol.messages.configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.messages.topics import CreateTopicsRequest
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from ottla.testing import Broker
from tests.log.events import RecordedEvents
from tests.network.served import Raw

Data = ProduceRequest.PartitionProduceData
STORAGE_ERROR, NOT_LEADER = 56, 6


def two_dirs(home: Path) -> dict[str, str]:
    return {"log.dirs": f"{home}/one,{home}/two"}


def produce(topic: str, *partitions: int, acks: int = -1, timeout_ms: int = 5000) -> ProduceRequest:
    now_ms = time.time_ns() // 1_000_000
    batch = memoryview(build_batch([Record(0, now_ms, b"k", b"v", ())]))
    parts = [Data(index, batch) for index in partitions]
    return ProduceRequest(
        None, acks, timeout_ms, [ProduceRequest.TopicProduceData(topic, partition_data=parts)]
    )


async def connect(broker: Broker) -> Raw:
    host, port = broker.bootstrap_servers.split(":")
    return Raw(*await asyncio.open_connection(host, int(port)))


async def create(raw: Raw, topic: str, partitions: int) -> None:
    raw.send(
        CreateTopicsRequest([CreateTopicsRequest.CreatableTopic(topic, partitions, 1)]),
        5,
    )
    await raw.frame()


async def until(holds: Callable[[int], bool], value: int) -> None:
    async with asyncio.timeout(5):
        while not holds(value):
            await asyncio.sleep(0)


async def codes(raw: Raw) -> list[int]:
    """The error codes of the next answer, a Produce of version 9."""
    response, _ = decoder(ProduceResponse, 9)(memoryview(await raw.frame()), 5)
    return [part.error_code for part in response.responses[0].partition_responses]


async def test_a_failed_append_does_not_hide_the_answer_of_those_that_wait_beside_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write = PosixFile.pwrite

    def failing(self: PosixFile, data: Any, position: int) -> None:
        if "/t-3/" in self.path:
            raise OSError(errno.EIO, "the disk is broken")
        write(self, data, position)

    async with Broker(tmp_path / "one", config=two_dirs(tmp_path)) as broker:
        raw = await connect(broker)
        await create(raw, "t", 4)
        monkeypatch.setattr(PosixFile, "pwrite", failing)
        raw.send(produce("t", 1, 3), 9)  # both lie in the second dir
        assert await codes(raw) == [STORAGE_ERROR, STORAGE_ERROR]
        raw.send(produce("t", 0), 9)
        assert await codes(raw) == [0]
        raw.close()


async def test_a_partition_for_which_there_was_no_room_is_made_when_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write = PosixFile.pwrite

    def full(self: PosixFile, data: Any, position: int) -> None:
        if "/t-" in self.path:
            raise OSError(errno.ENOSPC, "no space is left")
        write(self, data, position)

    async with Broker(tmp_path) as broker:
        raw = await connect(broker)
        with monkeypatch.context() as patch:
            patch.setattr(PosixFile, "pwrite", full)
            await create(raw, "t", 2)
            raw.send(produce("t", 0, 1), 9)
            assert await codes(raw) == [STORAGE_ERROR, STORAGE_ERROR]
            await broker.running.lead_unmade()
            raw.send(produce("t", 0, 1), 9)
            assert await codes(raw) == [STORAGE_ERROR, STORAGE_ERROR]
        await broker.running.lead_unmade()
        raw.send(produce("t", 0, 1), 9)
        assert await codes(raw) == [0, 0]
        raw.close()
    async with Broker(tmp_path) as again:
        assert [one.log.log_end_offset for one in again.running.replicas] == [1, 1]


NO_DESCRIPTOR = OSError(errno.EMFILE, "no descriptor is left")


@pytest.mark.interpreted
async def test_a_sync_that_cannot_begin_is_begun_later(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, failures = Log.begin_flush, iter([NO_DESCRIPTOR])

    def failing(self: Log) -> FlushTicket | None:
        if self.topic == "t" and (error := next(failures, None)) is not None:
            raise error
        return begin(self)

    await _synced_later(monkeypatch, Log, "begin_flush", failing)
    assert next(failures, None) is None


async def test_a_sync_that_is_put_off_is_done_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a directory that cannot be opened: for the leader epochs, and for all names."""
    sync_dir, failures = PosixDisk.sync_dir, iter([NO_DESCRIPTOR] * 2)

    def failing(self: PosixDisk, path: str) -> None:
        if path.endswith("/t-0") and (error := next(failures, None)) is not None:
            raise error
        sync_dir(self, path)

    await _synced_later(monkeypatch, PosixDisk, "sync_dir", failing)
    assert next(failures, None) is None


async def _synced_later(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, failing: Callable[..., Any]
) -> None:
    """What is produced while a call fails is answered when it fails no more."""
    async with Broker() as broker:
        raw = await connect(broker)
        await create(raw, "t", 3)
        monkeypatch.setattr(owner, name, failing)
        raw.send(produce("t", 0, 1, 2), 9)
        assert await codes(raw) == [0, 0, 0]
        assert not broker.running.replicas.is_syncing()
        raw.close()


async def test_a_sync_that_breaks_an_invariant_ends_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(self: FlushTicket) -> None:
        raise AssertionError("this cannot be")

    broker = Broker()
    await broker.start()
    raw = await connect(broker)
    await create(raw, "t", 1)
    monkeypatch.setattr(FlushTicket, "sync", broken)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    raw.send(produce("t", 0), 9)
    await asyncio.wait_for(asyncio.shield(broker.running.failed), 5)
    raw.close()
    with pytest.raises(AssertionError, match="this cannot be"):
        await broker.stop()


async def test_a_stop_waits_for_syncs_under_way_and_is_clean(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sync = PosixFile.sync

    def slow(self: PosixFile) -> None:
        if threading.current_thread().name.startswith("sync-"):
            threading.Event().wait(0.2)
        sync(self)

    broker = Broker(tmp_path)
    await broker.start()
    raw = await connect(broker)
    await create(raw, "t", 1)
    monkeypatch.setattr(PosixFile, "sync", slow)
    partition = broker.running.replicas.get("t", 0)
    assert partition is not None
    for number in range(1, 3):  # the second one gathers while the first is synced
        raw.send(produce("t", 0, acks=0), 9)
        await until(lambda end: partition.log.log_end_offset == end, number)
    await broker.stop()
    raw.close()

    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()


async def test_a_stop_on_a_full_disk_gives_the_directory_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(self: PosixFile, data: Any, position: int) -> None:
        raise OSError(errno.ENOSPC, "no space is left")

    broker = Broker(tmp_path)
    await broker.start()
    raw = await connect(broker)
    await create(raw, "t", 1)
    raw.send(produce("t", 0), 9)
    assert await codes(raw) == [0]
    with monkeypatch.context() as patch:
        patch.setattr(PosixFile, "pwrite", full)
        await broker.stop()  # what it has no room for a start makes anew
    raw.close()

    async with Broker(tmp_path) as again:
        partition = again.running.replicas.get("t", 0)
        assert partition is not None
        assert partition.log.log_end_offset == 1


async def test_parked_fetches_do_not_hold_up_a_stop() -> None:
    broker = Broker()
    await broker.start()
    raw = await connect(broker)
    await create(raw, "t", 1)
    wanted = FetchRequest.FetchPartition(0, partition_max_bytes=1000)
    raw.send(
        FetchRequest(
            max_wait_ms=60_000,
            min_bytes=1,
            topics=[FetchRequest.FetchTopic("t", partitions=[wanted])],
        ),
        11,
        correlation_id=7,
    )
    partition = broker.running.replicas.get("t", 0)
    assert partition is not None
    await until(lambda count: len(partition.fetch_waiters) == count, 1)
    stopping = asyncio.create_task(broker.running.server.stop(grace_s=60))
    broker.running.replicas.answer_fetches()
    assert await raw.correlation_id() == 7
    await asyncio.wait_for(stopping, 5)
    await broker.stop()
    raw.close()


@pytest.mark.parametrize("is_replaced", [False, True], ids=["broken", "an empty one in its place"])
async def test_what_lies_on_a_disk_that_is_away_is_not_begun_anew(
    tmp_path: Path, is_replaced: bool
) -> None:
    first, second, away = tmp_path / "one", tmp_path / "two", tmp_path / "away"
    async with Broker(first, config=two_dirs(tmp_path)) as broker:
        raw = await connect(broker)
        await create(raw, "t", 4)
        raw.send(produce("t", 0, 1, 2, 3), 9)
        assert await codes(raw) == [0, 0, 0, 0]
        raw.close()
    second.rename(away)
    if not is_replaced:
        second.touch()  # a file: nothing can be made in it
    for _ in range(2):  # what the first of these starts registers must not mislead the second
        async with Broker(first, config=two_dirs(tmp_path)) as broker:
            raw = await connect(broker)
            raw.send(produce("t", 0, 1, 2, 3), 9)
            ours, lost, *others = await codes(raw)
            assert ours == 0
            assert lost in (STORAGE_ERROR, NOT_LEADER)
            assert others == [ours, lost]
            raw.close()
    if is_replaced:
        shutil.rmtree(second)
    else:
        second.unlink()
    away.rename(second)

    async with Broker(first, config=two_dirs(tmp_path)) as broker:
        ends = [partition.log.log_end_offset for partition in broker.running.replicas]
        assert sorted(ends) == [1, 1, 3, 3]


async def test_a_smaller_flush_messages_holds_for_what_is_there() -> None:
    async with Broker(config={"log.flush.interval.messages": 1000}) as broker:
        raw = await connect(broker)
        await create(raw, "t", 1)
        raw.send(produce("t", 0), 9)
        assert await codes(raw) == [0]
        partition = broker.running.replicas.get("t", 0)
        assert partition is not None
        assert partition.log.durable_end == 0
        change = IncrementalAlterConfigsRequest.AlterableConfig("flush.messages", 0, "1")
        raw.send(
            IncrementalAlterConfigsRequest(
                [IncrementalAlterConfigsRequest.AlterConfigsResource(2, "t", [change])]
            ),
            1,
        )
        await raw.frame()
        await until(lambda end: partition.log.durable_end == end, 1)
        raw.close()


async def test_a_disk_whose_logs_cannot_be_opened_is_told_of_once(tmp_path: Path) -> None:
    async with Broker(tmp_path / "one", config=two_dirs(tmp_path)) as broker:
        raw = await connect(broker)
        await create(raw, "t", 6)
        raw.close()
    lost = sorted(path.name for path in (tmp_path / "two").glob("t-*"))
    assert len(lost) == 3
    for name in lost:
        log = tmp_path / "two" / name / "00000000000000000000.log"
        log.unlink()
        log.mkdir()
    settings = {
        **two_dirs(tmp_path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "ottla.telemetry.port": -1,
    }
    events = RecordedEvents()
    again = RunningBroker(load(overrides=settings, environ={}).config, events=events)
    await again.start()
    served = [one.topic for one in again.replicas]
    await again.stop()

    assert len(served) == 3
    complaints = [event for level, event, _ in events.told if level in ("warning", "error")]
    assert complaints == ["logs_not_loaded", "partitions_not_opened"]
    not_loaded, not_opened = map(events.fields, complaints)
    assert not_loaded["dir"] == f"{tmp_path}/two"
    assert (not_loaded["logs"], not_loaded["partitions"]) == (3, lost)
    assert (not_opened["count"], not_opened["partitions"]) == (3, lost)
    assert "Is a directory" in not_loaded["error"]
    assert not_opened["error"].endswith(not_loaded["error"])
