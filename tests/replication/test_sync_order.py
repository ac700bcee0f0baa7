"""The syncs of one partition, one behind the other."""

from __future__ import annotations

import asyncio

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


def one_record() -> memoryview:
    return memoryview(build_batch([Record(0, 1000, None, b"value", ())]))


async def test_a_broken_listener_costs_its_partition_no_sync() -> None:
    """What was appended while the sync ran is due for the next one."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(repr(context["exception"]))
    )
    async with House() as house:
        await house.create("t")
        replicas = house.rooms.replicas
        partition = replicas.get("t", 0)
        assert partition is not None
        replicas.append_internal(partition, one_record())
        replicas.await_commit(
            partition, last_offset=0, timeout_ms=60_000, listener=Broken(), part=None
        )
        replicas.begin_syncs()
        replicas.append_internal(partition, one_record())
        while partition.log.durable_end < 1:
            await asyncio.sleep(0)
        assert told == ["KeyError('a bug of a listener')"]

        waiting = Waiting()
        replicas.append_internal(partition, one_record())
        replicas.await_commit(
            partition, last_offset=2, timeout_ms=60_000, listener=waiting, part=None
        )
        await asyncio.wait_for(waiting.heard.wait(), 20)
        assert partition.log.durable_end == 3


async def test_a_sync_is_under_way_from_its_append_until_it_is_told() -> None:
    async with House() as house:
        await house.create("t")
        replicas = house.rooms.replicas
        partition = replicas.get("t", 0)
        assert partition is not None
        assert not replicas.is_syncing()
        for end in (1, 2):
            waiting = Waiting()
            replicas.append_internal(partition, one_record())
            assert replicas.is_syncing()
            replicas.await_commit(
                partition, last_offset=end - 1, timeout_ms=60_000, listener=waiting, part=None
            )
            replicas.begin_syncs()
            assert replicas.is_syncing()
            await asyncio.wait_for(waiting.heard.wait(), 5)
            async with asyncio.timeout(5):
                while partition.flushing:
                    await asyncio.sleep(0)
            assert not replicas.is_syncing()
