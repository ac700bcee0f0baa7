"""The syncs of one partition, one behind the other."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

import pytest

from ottla.broker.log.flush import FlushTicket
from ottla.broker.replication.replicas import Partition, Replicas
from ottla.broker.replication.syncs import Job
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from tests.handlers.rooms import House


class Broken:
    """Who waits for a commit, and is broken."""

    def committed(self, part: object) -> None:
        raise KeyError("a bug of a listener")

    def failed(self, part: object, code: ErrorCode) -> None:
        raise AssertionError(code)


class Waiting:
    """Who waits for a commit, and hears of it."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()

    def committed(self, part: object) -> None:
        self.heard.set()

    def failed(self, part: object, code: ErrorCode) -> None:
        raise AssertionError(code)


def append(replicas: Replicas, partition: Partition) -> None:
    replicas.append_internal(
        partition, memoryview(build_batch([Record(0, 1000, None, b"value", ())]))
    )


@asynccontextmanager
async def one_partition() -> AsyncIterator[tuple[House, Partition]]:
    async with House() as house:
        await house.create("t")
        partition = house.rooms.replicas.get("t", 0)
        assert partition is not None
        yield house, partition


async def test_a_broken_listener_costs_its_partition_no_sync() -> None:
    """What was appended while the sync ran is due for the next one."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(repr(context["exception"]))
    )
    async with one_partition() as (house, partition):
        replicas = house.rooms.replicas
        append(replicas, partition)
        replicas.await_commit(
            partition, last_offset=0, timeout_ms=60_000, listener=Broken(), part=None
        )
        partition.syncs.begin()
        append(replicas, partition)
        while partition.log.durable_end < 1:
            await asyncio.sleep(0)
        assert told == ["KeyError('a bug of a listener')"]

        waiting = Waiting()
        append(replicas, partition)
        replicas.await_commit(
            partition, last_offset=2, timeout_ms=60_000, listener=waiting, part=None
        )
        await asyncio.wait_for(waiting.heard.wait(), 20)
        assert partition.log.durable_end == 3


async def test_a_sync_is_under_way_from_its_append_until_it_is_told() -> None:
    async with one_partition() as (house, partition):
        replicas = house.rooms.replicas
        assert not replicas.is_syncing()
        for end in (1, 2):
            waiting = Waiting()
            append(replicas, partition)
            assert replicas.is_syncing()
            replicas.await_commit(
                partition, last_offset=end - 1, timeout_ms=60_000, listener=waiting, part=None
            )
            partition.syncs.begin()
            assert replicas.is_syncing()
            await asyncio.wait_for(waiting.heard.wait(), 5)
            async with asyncio.timeout(5):
                while partition.flushing:
                    await asyncio.sleep(0)
            assert not replicas.is_syncing()


async def test_what_is_appended_last_in_a_turn_begins_with_its_syncs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As coordinators do, whatever of the turn was appended before they were asked."""
    async with House() as house:
        await house.create("t", partitions=3)
        replicas = house.rooms.replicas
        first, second, third = (replicas.get("t", index) for index in range(3))
        assert first is not None
        assert second is not None
        assert third is not None
        begun: list[int] = []
        submit = first.syncs.submit

        def counted(jobs: list[Job]) -> None:
            begun.append(len(jobs))
            submit(jobs)

        monkeypatch.setattr(first.syncs, "submit", counted)
        append(replicas, first)
        replicas.append_last(partial(append, replicas, second))
        replicas.append_last(partial(append, replicas, third))
        await asyncio.sleep(0)
        assert begun[0] == 3


async def test_one_that_breaks_in_the_end_of_a_turn_keeps_nobody_from_it() -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(repr(context["exception"]))
    )

    def broken() -> None:
        raise KeyError("a bug of a coordinator")

    async with one_partition() as (house, partition):
        replicas = house.rooms.replicas
        replicas.append_last(broken)
        replicas.append_last(partial(append, replicas, partition))
        async with asyncio.timeout(5):
            while partition.log.durable_end < 1:
                await asyncio.sleep(0)
        assert told == ["KeyError('a bug of a coordinator')"]


async def test_who_leaves_while_a_sync_is_wanted_is_at_rest() -> None:
    """A round is under way, and the partition goes before the next begins."""
    async with one_partition() as (house, partition):
        replicas = house.rooms.replicas
        partition.syncs._round = 1
        append(replicas, partition)
        holding = asyncio.create_task(replicas.hold_appends(partition))
        for _ in range(3):
            await asyncio.sleep(0)
        assert partition.flushing
        replicas.drop(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition.syncs._round = 0
        partition.syncs.begin()
        release = await asyncio.wait_for(holding, 5)
        release()
        assert not partition.flushing
        assert not replicas.is_syncing()


@pytest.mark.parametrize("error", [KeyError("a bug"), AssertionError("broken")])
async def test_a_broken_sync_leaves_its_partition_at_rest(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a move that waits for it would keep the broker from its end."""
    async with one_partition() as (house, partition):
        replicas = house.rooms.replicas
        jobs: list[Job] = []
        monkeypatch.setattr(partition.syncs, "submit", jobs.extend)
        append(replicas, partition)
        partition.syncs.begin()
        ((ticket, done),) = jobs
        done(error)
        assert house._fatal == [error]
        assert not partition.flushing
        assert not replicas.is_syncing()
        assert partition.log.durable_end == 0

        house._fatal.clear()
        ticket.sync()
        partition.log.finish_flush(cast(FlushTicket, ticket))


@pytest.mark.interpreted
@pytest.mark.parametrize("error", [KeyError("a bug"), AssertionError("broken")])
async def test_a_sync_that_cannot_be_begun_leaves_its_partition_at_rest(error: Exception) -> None:
    """The disk fails, and who hears of it is broken."""
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(context["exception"])
    )

    def broken(*_: object) -> None:
        raise error

    async with one_partition() as (house, partition):
        replicas = house.rooms.replicas
        replicas._on_disk_failed = broken
        partition.log.begin_flush = unopened  # type: ignore[method-assign]
        append(replicas, partition)
        async with asyncio.timeout(5):
            while partition.flushing:
                await asyncio.sleep(0)
        assert not replicas.is_syncing()
        assert [*told, *house._fatal] == [error]
        house._fatal.clear()


def unopened() -> None:
    raise OSError(errno.EMFILE, "no descriptor is left")
