"""Conversions wait in order; of large ones one is under way at a time, whoever's they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, cast

import pytest

from ottla.broker.log.validation import LargeBatch
from ottla.broker.replication import conversions
from ottla.broker.replication.conversions import (
    AT_ONCE_MAX,
    TURN_S,
    ConversionQueue,
    ConversionTurns,
    Drop,
)
from ottla.protocol.errors import ErrorCode, KafkaError
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

    def count_alone(self) -> int:
        return sum(cast("partial[Any]", work).keywords["alone"] for _, work in self.submitted)

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
        loop = asyncio.get_running_loop()
        self.workers = Workers()
        self.now_s = 0.0
        self.turns = ConversionTurns(loop, self.workers, lambda: self.now_s)
        self.given: list[tuple[int, object]] = []
        self.emptied: list[int] = []
        self.queues = [
            ConversionQueue(loop, self.turns, partial(self.emptied.append, number))
            for number in range(partitions)
        ]

    def convert(self, work: Any, partition: int = 0, size_bytes: int = 100) -> Drop:
        def then(converted: object) -> None:
            shown = converted if isinstance(converted, Exception) else bytes(converted)  # type: ignore[call-overload]
            self.given.append((partition, shown))

        return self.queues[partition].convert(work, size_bytes, then)


async def test_those_that_are_not_large_run_side_by_side_and_come_in_order() -> None:
    seen = Seen()
    seen.convert(lambda *, alone, give_way: bytearray(b"1"))
    seen.convert(lambda *, alone, give_way: bytearray(b"2"))
    assert len(seen.workers.submitted) == 2

    await seen.workers.run(1)
    assert (seen.given, seen.emptied) == ([], [])
    await seen.workers.run()
    assert (seen.given, seen.emptied) == ([(0, b"1"), (0, b"2")], [0])


async def test_a_few_are_under_way_at_a_time_whoever_has_more_to_do() -> None:
    """Others need the workers, too, and would stand behind all that one producer has sent."""
    seen = Seen(partitions=3)
    for number in range(10):
        seen.convert(small, 0)
        if number == 5:
            seen.convert(small, 1)
            seen.convert(small, 2)
    while seen.workers.submitted:
        assert len(seen.workers.submitted) <= AT_ONCE_MAX
        await seen.workers.run()

    partitions = [partition for partition, _ in seen.given]
    assert len(partitions) == 12
    assert set(partitions[AT_ONCE_MAX : AT_ONCE_MAX + 3]) == {0, 1, 2}


async def test_one_large_one_is_under_way_at_a_time() -> None:
    seen = Seen(partitions=3)
    works = [Large(b"%d" % number) for number in range(3)]
    for partition, work in enumerate(works):
        seen.convert(work, partition)
    while seen.workers.submitted:
        assert seen.workers.count_alone() <= 1
        await seen.workers.run(-1)  # first of all those that find out that they are large

    assert sorted(seen.given) == [(0, b"0"), (1, b"1"), (2, b"2")]
    seen.convert(last := Large())  # the turn was given back
    await seen.workers.run()
    await seen.workers.run()
    assert last.ran_alone


async def test_a_large_one_does_not_stop_others_and_keeps_its_place() -> None:
    """Of its own partition none begins: what is converted would have to be kept until then."""
    seen = Seen(partitions=2)
    seen.convert(Large(), 0)
    await seen.workers.run()
    assert seen.workers.count_alone() == 1
    for _ in range(3):
        seen.convert(small, 0)
        seen.convert(small, 1)
    for _ in range(3):
        await seen.workers.run(1)
    assert seen.given == [(1, b"small")] * 3
    assert len(seen.workers.submitted) == 1

    while seen.workers.submitted:
        await seen.workers.run()
    assert seen.given[3:] == [(0, b"large"), *[(0, b"small")] * 3]


@pytest.mark.parametrize("failure", [ValueError("bad"), RuntimeError("worse")])
async def test_one_that_fails_gives_its_turn_to_the_next(failure: Exception) -> None:
    seen = Seen(partitions=2)
    seen.convert(Large(failure), 0)
    seen.convert(Large(), 1)
    while seen.workers.submitted:
        await seen.workers.run()

    assert seen.given == [(0, failure), (1, b"large")]


async def test_who_waits_while_the_workers_are_stopped_is_told() -> None:
    count = 2_000
    seen = Seen(partitions=count)
    for partition in range(count):
        seen.convert(Large(), partition)
    seen.workers.has_stopped = True
    while seen.workers.submitted:
        await seen.workers.run()
    while len(seen.given) < count:
        await asyncio.sleep(0)

    assert sorted(index for index, _ in seen.given) == list(range(count))
    assert {type(error) for _, error in seen.given} == {RuntimeError}


async def test_what_waited_behind_a_slow_one_is_appended_by_turns_of_the_loop() -> None:
    """Each append writes to the log: 240 of a megabyte held everybody up for 95 ms."""
    seen = Seen()

    def append(records: object) -> None:
        seen.given.append((0, records))
        seen.now_s += TURN_S * 0.3

    release = seen.queues[0].hold(lambda: None)
    for number in range(10):
        seen.queues[0].follow(bytearray(b"%d" % number), append)
    release()
    counts = []
    while not seen.emptied:
        counts.append(len(seen.given))
        await asyncio.sleep(0)

    assert counts == [4, 8]
    assert seen.given == [(0, b"%d" % number) for number in range(10)]


async def test_a_queue_that_goes_on_behind_a_broken_append_is_emptied_once() -> None:
    """Its partition may have a new one by then, which is not to be taken away."""
    seen = Seen()
    queue = seen.queues[0]
    release = queue.hold(lambda: None)
    queue.follow(bytearray(), _break)
    queue.follow(bytearray(b"behind"), lambda records: seen.given.append((0, records)))
    release_second = queue.hold(lambda: None)
    with pytest.raises(ValueError, match="broken"):
        release()
    release_second()
    for _ in range(3):
        await asyncio.sleep(0)

    assert seen.given == [(0, b"behind")]
    assert seen.emptied == [0]


def _break(records: object) -> None:
    raise ValueError("broken")


async def test_a_close_waits_for_those_under_way_and_ends_all_others() -> None:
    seen = Seen(partitions=2)
    seen.convert(Large(), 1)
    await seen.workers.run()
    for _ in range(3):
        seen.convert(small, 0)
        seen.convert(small, 1)
    closing = asyncio.ensure_future(seen.turns.close())
    await asyncio.sleep(0)
    assert len(seen.workers.submitted) == 2
    assert not closing.done()
    while seen.workers.submitted:
        assert not closing.done()
        await seen.workers.run()
    await closing
    seen.convert(small, 0)
    await asyncio.sleep(0)

    ends = {one: [given for at, given in seen.given if at == one] for one in (0, 1)}
    assert (ends[0][0], ends[1][0]) == (b"small", b"large")
    refused = [error for one in (0, 1) for error in ends[one][1:]]
    assert {cast(KafkaError, error).code for error in refused} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert len(refused) == 6
    assert set(seen.emptied) == {0, 1}


async def test_what_nobody_waits_for_is_dropped_wherever_it_is() -> None:
    """Under way, converted, not begun, or only behind others: none of it is appended."""
    seen = Seen()
    release = seen.queues[0].hold(lambda: None)
    drops = [seen.convert(small) for _ in range(4)]
    await seen.workers.run()
    drops.append(seen.queues[0].follow(bytearray(50), _break))
    kept = seen.convert(lambda *, alone, give_way: bytearray(b"kept"))
    for drop in drops:
        drop()
        drop()
    await asyncio.sleep(0)
    assert seen.given == []
    while seen.workers.submitted:
        await seen.workers.run()
    release()
    for _ in range(3):
        await asyncio.sleep(0)
    kept()

    assert seen.given == [(0, b"kept")]
    assert seen.emptied == [0]
    assert not seen.turns._waiting_bytes


async def test_a_drop_lets_nobody_pass_in_the_same_turn() -> None:
    """What came behind it by the same connection is dropped next, and must not be in a log without
    what came before it."""
    seen = Seen()
    first = seen.convert(small)
    second = seen.convert(small)
    await seen.workers.run(1)
    first()
    second()
    while seen.workers.submitted:
        await seen.workers.run()

    assert seen.given == []
    assert seen.emptied == [0]


async def test_an_append_that_drops_what_is_behind_it_empties_the_queue_once() -> None:
    """As one that is refused where nobody asked for an answer: its connection ends."""
    seen = Seen()
    release = seen.queues[0].hold(lambda: None)
    seen.queues[0].follow(bytearray(), lambda records: drop())
    drop = seen.queues[0].follow(bytearray(), _break)
    release()
    await asyncio.sleep(0)

    assert seen.emptied == [0]


async def test_a_large_one_that_is_dropped_gives_its_turn_away() -> None:
    seen = Seen(partitions=3)
    drops = [seen.convert(Large(b"%d" % partition), partition) for partition in range(3)]
    await seen.workers.run()
    await seen.workers.run(0)
    for _ in range(2):
        drops[1]()
        drops[2]()
        await seen.workers.run()
    while seen.workers.submitted:
        await seen.workers.run()
    seen.convert(Large(b"behind"), 1)
    while seen.workers.submitted:
        await seen.workers.run()

    assert seen.given == [(0, b"0"), (1, b"behind")]


async def test_where_many_results_wait_only_the_first_of_a_partition_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own is appended at once, but that of another may wait for long, and be larger."""
    monkeypatch.setattr(conversions, "RESULT_BYTES_MAX", 1000)
    seen = Seen(partitions=2)
    for _ in range(6):
        seen.convert(lambda *, alone, give_way: bytearray(900))
    for _ in range(3):
        await seen.workers.run(1)
    assert len(seen.workers.submitted) == 1
    seen.convert(small, 1)
    seen.convert(small, 1)
    await seen.workers.run(1)
    await seen.workers.run(1)
    assert seen.given == [(1, b"small")] * 2
    assert len(seen.workers.submitted) == 1

    while seen.workers.submitted:
        await seen.workers.run()
    assert [partition for partition, _ in seen.given] == [1] * 2 + [0] * 6
    assert (seen.turns._waiting_bytes, seen.turns._result_bytes) == (0, 0)


async def test_an_append_that_breaks_at_a_stop_does_not_end_the_wait_for_the_workers() -> None:
    seen = Seen()
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    seen.convert(small)
    seen.convert(small)
    seen.queues[0].convert(small, 100, _break)
    closing = asyncio.ensure_future(seen.turns.close())
    await seen.workers.run()
    await seen.workers.run()
    await closing
    await asyncio.sleep(0)

    assert seen.given == [(0, b"small")] * 2
    assert len(told) == 1
    assert seen.emptied == [0]
