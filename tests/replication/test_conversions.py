"""Conversions wait in order; of large ones one is under way at a time, whoever's they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

import pytest

from ottla.broker.log.validation import LargeBatch
from ottla.broker.replication.conversions import ConversionQueue, LargeTurns
from ottla.protocol.records.record import GiveWay


class Workers(Executor):
    """Runs what was submitted when it is told to."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.has_stopped = False

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.has_stopped:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        self.submitted.append((future, work))
        return future

    async def run(self, index: int = 0) -> None:
        future, work = self.submitted.pop(index)
        try:
            future.set_result(work())
        except (LargeBatch, ValueError, RuntimeError) as error:
            future.set_exception(error)
        for _ in range(3):  # the loop hears of it
            await asyncio.sleep(0)


class Large:
    """A conversion that has to be alone."""

    def __init__(self, result: bytes | Exception = b"large") -> None:
        self.result = result
        self.ran_alone = False

    def __call__(self, *, alone: bool, give_way: GiveWay) -> bytearray:
        if not alone:
            raise LargeBatch
        self.ran_alone = True
        if isinstance(self.result, Exception):
            raise self.result
        return bytearray(self.result)


def small(*, alone: bool, give_way: GiveWay) -> bytearray:
    assert not alone
    return bytearray(b"small")


class Seen:
    """Queues of several partitions on the same workers, and what they gave to whom."""

    def __init__(self, partitions: int = 1) -> None:
        self.workers = Workers()
        self.turns = LargeTurns()
        self.given: list[tuple[int, object]] = []
        self.emptied: list[int] = []
        loop = asyncio.get_running_loop()
        self.queues = [
            ConversionQueue(loop, self.workers, self.turns, partial(self.emptied.append, number))
            for number in range(partitions)
        ]

    def convert(self, work: Any, partition: int = 0) -> None:
        def then(converted: object) -> None:
            shown = converted if isinstance(converted, Exception) else bytes(converted)  # type: ignore[call-overload]
            self.given.append((partition, shown))

        self.queues[partition].convert(work, then)


async def test_those_that_are_not_large_run_side_by_side_and_come_in_order() -> None:
    seen = Seen()
    seen.convert(lambda *, alone, give_way: bytearray(b"1"))
    seen.convert(lambda *, alone, give_way: bytearray(b"2"))
    assert len(seen.workers.submitted) == 2

    await seen.workers.run(1)
    assert (seen.given, seen.emptied) == ([], [])
    await seen.workers.run()
    assert (seen.given, seen.emptied) == ([(0, b"1"), (0, b"2")], [0])


async def test_one_large_one_is_under_way_at_a_time() -> None:
    seen = Seen(partitions=3)
    works = [Large(b"%d" % number) for number in range(3)]
    for partition, work in enumerate(works):
        seen.convert(work, partition)
    for _ in works:
        await seen.workers.run()  # each finds out that it is large

    for number, work in enumerate(works):
        assert len(seen.workers.submitted) == 1
        await seen.workers.run()
        assert work.ran_alone
        assert seen.given[-1] == (number, b"%d" % number)
    assert seen.workers.submitted == []

    seen.convert(last := Large())  # the turn was given back
    await seen.workers.run()
    await seen.workers.run()
    assert last.ran_alone


async def test_a_large_one_does_not_stop_others_and_keeps_its_place() -> None:
    seen = Seen(partitions=2)
    seen.convert(Large(), 0)
    seen.convert(small, 0)
    seen.convert(small, 1)
    await seen.workers.run()
    await seen.workers.run()
    await seen.workers.run()
    assert seen.given == [(1, b"small")]

    await seen.workers.run()
    assert seen.given[1:] == [(0, b"large"), (0, b"small")]


@pytest.mark.parametrize("failure", [ValueError("bad"), RuntimeError("worse")])
async def test_one_that_fails_gives_its_turn_to_the_next(failure: Exception) -> None:
    seen = Seen(partitions=2)
    seen.convert(Large(failure), 0)
    seen.convert(Large(), 1)
    for _ in range(4):
        await seen.workers.run()

    assert seen.given == [(0, failure), (1, b"large")]


async def test_who_waits_while_the_workers_are_stopped_is_told() -> None:
    count = 2_000
    seen = Seen(partitions=count)
    for partition in range(count):
        seen.convert(Large(), partition)
    for _ in range(count):
        await seen.workers.run()
    seen.workers.has_stopped = True
    await seen.workers.run()
    while len(seen.given) < count:
        await asyncio.sleep(0)

    assert seen.given[0] == (0, b"large")
    assert [index for index, _ in seen.given] == list(range(count))
    assert {type(error) for _, error in seen.given[1:]} == {RuntimeError}
