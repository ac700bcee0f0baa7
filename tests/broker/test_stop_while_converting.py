"""A broker is stopped while batches are being converted: its logs are left as they are marked."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ottla.broker import broker as composition
from ottla.broker.log.checkpoints import CLEAN_SHUTDOWN_FILE
from ottla.broker.log.manager import LogManager
from ottla.broker.replication.conversions import AT_ONCE_MAX
from ottla.protocol.records import recompress as recompression
from ottla.testing.embedded import Broker
from tests.broker.small_client import client_of

HELD_SECONDS_MAX = 20
TURNS = 500


async def test_nothing_is_appended_behind_the_mark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The workers are held until the logs are being closed, or would have been long since."""
    go_on, begun = threading.Event(), threading.Semaphore(0)
    recompress, shutdown = recompression.recompress, LogManager.shutdown
    at_end: list[str] = []

    def held(*args: object, **kwargs: object) -> bytearray:
        begun.release()
        assert go_on.wait(HELD_SECONDS_MAX)
        at_end.append("converted")
        return recompress(*args, **kwargs)  # type: ignore[arg-type]

    def marking(self: LogManager, broker_epoch: int) -> None:
        at_end.append("closes")
        shutdown(self, broker_epoch)
        at_end.append("marked")
        go_on.set()

    monkeypatch.setattr(recompression, "recompress", held)
    monkeypatch.setattr(LogManager, "shutdown", marking)
    monkeypatch.setattr(composition, "STOP_GRACE_S", 0.0)
    broker = Broker(tmp_path, config={"compression.type": "gzip"})
    await broker.start()
    async with AsyncExitStack() as clients:
        admin = await clients.enter_async_context(client_of(broker))
        await admin.create("t")
        for _ in range(AT_ONCE_MAX + 2):
            client = await clients.enter_async_context(client_of(broker))
            asyncio.ensure_future(client.produce("t", b"value")).add_done_callback(
                lambda ended: ended.exception()
            )
        for _ in range(AT_ONCE_MAX):
            await asyncio.to_thread(begun.acquire, timeout=HELD_SECONDS_MAX)
        replicas = broker.running.replicas
        stopping = asyncio.ensure_future(broker.stop())
        while not replicas._closed:
            await asyncio.sleep(0)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        go_on.set()
        await stopping

    assert at_end == ["converted"] * AT_ONCE_MAX + ["closes", "marked"]
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()
    assert [one.stat().st_size for one in tmp_path.glob("t-0/*.log")] == [0]
