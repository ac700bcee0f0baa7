"""Appends of one partition that wait for work off the loop (recompression, a look at the keys).

While the queue is not empty, every later append of its partition joins it, so that the log sees
batches in the order in which they came. The work is a worker's, who is not for it alone: of all
partitions together AT_ONCE_MAX batches are under way, and the partitions take turns. What a batch
holds is found out when it is decompressed: a large one is given up and begun again when no other
large one is under way, and until then its partition has no other turn.

What all of it keeps in memory is counted. Above a bound whoever asks for more is not read from; and
where many results wait behind others, of each partition only the first begins, which is appended at
once. An append that nobody waits for any more is dropped, however far it is: it was never answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from time import perf_counter
from typing import Protocol

from ottla.broker.log.validation import LargeBatch
from ottla.broker.pauses import Pauses
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.record import GiveWay

AT_ONCE_MAX = 2
"""Of the broker's workers: what each is busy with may take seconds, and readers of cold data, the
metadata log and look-ups need some."""
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Of a broker: some seconds of work. Each connection adds the request that it sends meanwhile."""
RESULT_BYTES_MAX = 16 * 1024 * 1024
"""Of those, what is converted and waits for others. It may be a thousand times what came."""
TURN_S = 0.001
"""One more append may begin so long after the first one of its turn."""

Outcome = bytearray | memoryview | BaseException
Converted = Callable[[Outcome], None]
Drop = Callable[[], None]


class Work(Protocol):
    """Converts a batch. Raises LargeBatch if it has to be the only large one, and is not.
    `give_way` is to be called between records."""

    def __call__(self, *, alone: bool, give_way: GiveWay) -> bytearray | memoryview: ...


class _Waiting:
    __slots__ = ("is_large", "is_result", "reached", "records", "size_bytes", "then", "work")

    def __init__(
        self,
        then: Converted,
        *,
        work: Work | None = None,
        records: bytearray | memoryview | None = None,
    ) -> None:
        self.then = then
        self.work = work
        self.size_bytes = 0
        self.is_large = False
        self.is_result = False
        # Called once when it is the first in the queue, of one that holds the others back.
        self.reached: Callable[[], None] | None = None
        self.records: Outcome | None = records


class ConversionTurns:
    """Which conversions of a broker are under way; one for all its partitions. `clock` gives
    seconds."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        workers: Executor,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.workers = workers
        self.clock = clock
        self._loop = loop
        self._running = 0
        self._closing: asyncio.Future[None] | None = None
        self._has_large = False
        self._waiting_bytes = 0
        self._result_bytes = 0
        # Whose turn it is next, of those that have something to begin; apart if that is large.
        self._ready: dict[ConversionQueue, None] = {}
        self._large: dict[ConversionQueue, None] = {}

    def __repr__(self) -> str:
        waiting = len(self._ready) + len(self._large)
        return (
            f"<ConversionTurns running={self._running} waiting={waiting}"
            f" bytes={self._waiting_bytes}>"
        )

    @property
    def are_under_way(self) -> bool:
        """Whether a worker is busy with one, or its result waits for the loop."""
        return self._running > 0

    @property
    def is_full(self) -> bool:
        """Whether so much waits that nobody should add to it."""
        return self._waiting_bytes >= WAITING_BYTES_MAX

    def count(self, item: _Waiting, size_bytes: int, *, is_result: bool = False) -> None:
        """What an item keeps in memory from now on."""
        self._waiting_bytes += size_bytes - item.size_bytes
        self._result_bytes += size_bytes * is_result - item.size_bytes * item.is_result
        assert self._waiting_bytes >= self._result_bytes >= 0, self
        item.size_bytes, item.is_result = size_bytes, is_result

    def line_up(self, queue: ConversionQueue) -> None:
        """Gives a queue its turn, if it has something to begin."""
        if self._closing is not None:
            queue.refuse_unbegun()
            return
        self._place(queue)
        self._begin()

    async def close(self) -> None:
        """Returns when no worker is busy with a conversion, and begins none any more: it ends with
        NOT_LEADER_OR_FOLLOWER."""
        if self._closing is None:
            self._closing = self._loop.create_future()
            for queue in (*self._ready, *self._large):
                queue.refuse_unbegun()
            self._ready.clear()
            self._large.clear()
            self._end_closing()
        await self._closing

    def _end_closing(self) -> None:
        if self._closing is not None and not self._running and not self._closing.done():
            self._closing.set_result(None)

    def _place(self, queue: ConversionQueue) -> None:
        item = queue.next_unbegun()
        if item is not None and not queue.has_large:
            (self._large if item.is_large else self._ready)[queue] = None

    def _begin(self) -> None:
        while self._running < AT_ONCE_MAX:
            line = self._large if self._large and not self._has_large else self._ready
            if not line:
                return
            queue = next(iter(line))
            del line[queue]
            item = queue.next_unbegun()
            has_many = self._result_bytes >= RESULT_BYTES_MAX
            if item is None or (has_many and not queue.is_first(item)):
                continue  # it is lined up again when its first is through
            queue.unbegun.popleft()
            self._run(queue, item)
            self._place(queue)

    def _run(self, queue: ConversionQueue, item: _Waiting) -> None:
        assert item.work is not None
        alone = item.is_large
        assert not (alone and self._has_large), self
        self._running += 1
        if alone:
            self._has_large = queue.has_large = True

        def done(outcome: Outcome) -> None:
            self._running -= 1
            self._end_closing()  # whoever waits for it goes on behind what follows
            if alone:
                self._has_large = queue.has_large = False
            is_found_large = isinstance(outcome, LargeBatch) and not alone
            if is_found_large:
                item.is_large = True
                queue.unbegun.appendleft(item)
                self._ready.pop(queue, None)
            self.line_up(queue)
            if not is_found_large:
                queue.converted(item, outcome)

        work = partial(item.work, alone=alone, give_way=Pauses().give_way)
        try:
            future = self._loop.run_in_executor(self.workers, work)
        except RuntimeError as error:  # the broker has stopped
            self._loop.call_soon(done, error)
        else:
            future.add_done_callback(lambda finished: done(_outcome_of(finished)))


class ConversionQueue:
    """`on_empty` runs when nothing waits any more; appends may go straight to the log again."""

    __slots__ = ("_is_due", "_items", "_loop", "_on_empty", "_turns", "has_large", "unbegun")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        turns: ConversionTurns,
        on_empty: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._turns = turns
        self._on_empty = on_empty
        self._is_due = False
        self._items: deque[_Waiting] = deque()
        self.unbegun: deque[_Waiting] = deque()
        self.has_large = False
        """Whether one of them is under way alone."""

    def convert(self, work: Work, size_bytes: int, then: Converted) -> Drop:
        """Runs `work` in a worker; `then` gets what it returned or raised, in the queue's order.

        It keeps `size_bytes` until then. What this returns drops it: `then` is not called any
        more, and nobody else's in the same turn.
        """
        item = _Waiting(then, work=work)
        self._add(item, size_bytes)
        self.unbegun.append(item)
        self._turns.line_up(self)
        return partial(self._drop, item)

    def follow(self, records: bytearray | memoryview, then: Converted) -> Drop:
        """The same for an append that needs no work of its own. `records` must be the caller's
        copy."""
        item = _Waiting(then, records=records)
        self._add(item, len(records))
        return partial(self._drop, item)

    def _add(self, item: _Waiting, size_bytes: int) -> None:
        self._turns.count(item, size_bytes)
        self._items.append(item)

    def _drop(self, item: _Waiting) -> None:
        if item.then is _is_through:
            return
        item.then = _is_through
        item.work = None
        item.records = bytearray()
        self._turns.count(item, 0)
        # Not now: those behind it may be the next to be dropped.
        self._drain_soon()

    def next_unbegun(self) -> _Waiting | None:
        while self.unbegun and self.unbegun[0].work is None:  # dropped
            self.unbegun.popleft()
        return self.unbegun[0] if self.unbegun else None

    def is_first(self, item: _Waiting) -> bool:
        return self._items[0] is item

    def converted(self, item: _Waiting, outcome: Outcome) -> None:
        if item.then is _is_through:
            return
        item.records = outcome
        item.work = None
        size_bytes = 0 if isinstance(outcome, BaseException) else len(outcome)
        self._turns.count(item, size_bytes, is_result=True)
        self._drain()

    def refuse_unbegun(self) -> None:
        """The broker stops."""
        if self.next_unbegun() is None:
            return
        while (item := self.next_unbegun()) is not None:
            self.unbegun.popleft()
            item.records = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._turns.count(item, 0)
        self._drain_soon()  # whatever one of them raises, the stop goes on

    def hold(self, reached: Callable[[], None]) -> Callable[[], None]:
        """Keeps what comes later waiting until what this returns is called.

        `reached` hears, perhaps before this returns, that all before it are through.
        """
        item = _Waiting(lambda records: None)
        item.reached = reached
        self._items.append(item)

        def release() -> None:
            item.records = bytearray()
            self._drain()

        self._tell_reached()
        return release

    def _tell_reached(self) -> None:
        first = self._items[0] if self._items else None
        if first is not None and first.reached is not None:
            reached, first.reached = first.reached, None
            reached()

    def _drain(self) -> None:
        """Appends what is through; in turns of the loop, if it is much."""
        if self._is_due:
            return
        items, clock = self._items, self._turns.clock
        until_s = clock() + TURN_S
        try:
            while items and items[0].records is not None:
                item = items.popleft()
                assert item.records is not None
                self._turns.count(item, 0)
                then, item.then = item.then, _is_through
                then(item.records)
                if clock() >= until_s:
                    break
        finally:
            # Whatever one of them raised, those behind it must not wait for good.
            if not items:
                self._on_empty()
            elif items[0].records is not None:
                self._drain_soon()
            else:
                self._tell_reached()
                self._turns.line_up(self)

    def _drain_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._drain_on)

    def _drain_on(self) -> None:
        self._is_due = False
        if self._items:  # else it was told already that it is empty
            self._drain()


def _is_through(records: Outcome) -> None:
    """Instead of the `then` of who was called, or dropped."""


def _outcome_of(
    finished: asyncio.Future[bytearray | memoryview],
) -> bytearray | memoryview | BaseException:
    if finished.cancelled():
        return asyncio.CancelledError()
    return finished.exception() or finished.result()
