"""A topic is deleted while one of its syncs takes longer than its files have to stay."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from ottla.broker.kernel_syncs import KernelSyncs
from ottla.broker.log.rearranging import Removal
from ottla.broker.posix import PosixFile
from ottla.protocol.errors import ErrorCode
from ottla.testing.embedded import Broker
from tests.broker.small_client import client_of

HELD_SECONDS_MAX = 20


async def test_its_files_stay_open_until_the_sync_is_through(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    sync = PosixFile.sync

    def held(self: PosixFile) -> None:
        if "/t-0/" in self.path and self.path.endswith(".log"):
            begun.set()
            assert go_on.wait(HELD_SECONDS_MAX)
        sync(self)

    monkeypatch.setattr(PosixFile, "sync", held)
    monkeypatch.setattr(KernelSyncs, "open", lambda: None)
    async with (
        Broker(tmp_path, config={"log.segment.delete.delay.ms": 0}) as broker,
        client_of(broker) as producer,
        client_of(broker) as admin,
    ):
        deletions = broker.running.logs.deletions

        async def until_due() -> list[Removal]:
            async with asyncio.timeout(HELD_SECONDS_MAX):
                while not (due := deletions.due_directories()):
                    await asyncio.sleep(0)
            return due

        await admin.create("t")
        producing = asyncio.create_task(producer.produce("t", b"value"))
        await asyncio.to_thread(begun.wait, HELD_SECONDS_MAX)
        await admin.delete("t")
        assert (await producing).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert deletions.due_directories() == []
        go_on.set()

        assert [removal.log_dir for removal in await until_due()] == [str(tmp_path)]
        await admin.create("t")
        assert (await producer.produce("t", b"value")).error_code == 0
