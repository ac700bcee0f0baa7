"""The job that gives descriptors back: what is unsynced is synced first, and closed then."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Producer

from ottla.broker import jobs
from ottla.testing import Broker

PARTITIONS = 4


async def test_unsynced_logs_are_synced_and_then_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "RELEASE_INTERVAL_MS", 20)
    config = {"log.flush.interval.messages": 1000, "num.partitions": PARTITIONS}
    async with Broker(config=config) as broker:
        running = broker.running
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})

        def send() -> int:
            for partition in range(PARTITIONS):
                producer.produce("t", b"x", partition=partition)
            return producer.flush(10)

        assert await asyncio.get_running_loop().run_in_executor(None, send) == 0
        logs = [one.log for one in running.replicas]
        assert [log.durable_end for log in logs] == [0] * PARTITIONS
        assert all(log.segments.active.file is not None for log in logs)
        monkeypatch.setattr(running.logs.disk.held, "_limit", lambda: 1)
        async with asyncio.timeout(10):
            while sum(log.segments.active.file is not None for log in logs) > 1:
                await asyncio.sleep(0)

        assert sum(log.durable_end for log in logs) >= PARTITIONS - 1
