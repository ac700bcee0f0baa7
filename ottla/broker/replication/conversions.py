"""Appends of one partition that wait for work off the loop (recompression, a look at the keys).

While the queue is not empty, every later append of its partition joins it, so that the log sees
batches in the order in which they came. The work is a worker's, who is not for it alone: of all
partitions together AT_ONCE_MAX batches are under way, and the partitions take turns. What a batch
holds is found out when it is decompressed: a large one is given up and begun again when no other
large one is under way, and until then its partition has no other turn.
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
TURN_S = 0.001
"""One more append may begin so long after the first one of its turn."""

Converted = Callable[[bytearray | memoryview | BaseException], None]


class Work(Protocol):
    """Converts a batch. Raises LargeBatch if it has to be the only large one, and is not.
    `give_way` is to be called between records."""

    def __call__(self, *, alone: bool, give_way: GiveWay) -> bytearray | memoryview: ...


class _Waiting:
    __slots__ = ("is_large", "reached", "records", "then", "work")

    def __init__(
        self,
        then: Converted,
        *,
        work: Work | None = None,
        records: bytearray | memoryview | None = None,
    ) -> None:
        self.then = then
        self.work = work
        self.is_large = False
        # Called once when it is the first in the queue, of one that holds the others back.
        self.reached: Callable[[], None] | None = None
        self.records: bytearray | memoryview | BaseException | None = records


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
        # Whose turn it is next, of those that have something to begin; apart if that is large.
        self._ready: dict[ConversionQueue, None] = {}
        self._large: dict[ConversionQueue, None] = {}

    def __repr__(self) -> str:
        waiting = len(self._ready) + len(self._large)
        return f"<ConversionTurns running={self._running} waiting={waiting}>"

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
        if queue.unbegun and not queue.has_large:
            (self._large if queue.unbegun[0].is_large else self._ready)[queue] = None

    def _begin(self) -> None:
        while self._running < AT_ONCE_MAX:
            line = self._large if self._large and not self._has_large else self._ready
            if not line:
                return
            queue = next(iter(line))
            del line[queue]
            self._run(queue, queue.unbegun.popleft())
            self._place(queue)

    def _run(self, queue: ConversionQueue, item: _Waiting) -> None:
        assert item.work is not None
        alone = item.is_large
        self._running += 1
        if alone:
            self._has_large = queue.has_large = True

        def done(outcome: bytearray | memoryview | BaseException) -> None:
            self._running -= 1
            if alone:
                self._has_large = queue.has_large = False
            is_found_large = isinstance(outcome, LargeBatch) and not alone
            if is_found_large:
                item.is_large = True
                queue.unbegun.appendleft(item)
                self._ready.pop(queue, None)
            try:
                self.line_up(queue)
            finally:
                if not is_found_large:
                    queue.converted(item, outcome)
                self._end_closing()

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

    def convert(self, work: Work, then: Converted) -> None:
        """Runs `work` in a worker; `then` gets what it returned or raised, in the queue's order."""
        item = _Waiting(then, work=work)
        self._items.append(item)
        self.unbegun.append(item)
        self._turns.line_up(self)

    def converted(self, item: _Waiting, outcome: bytearray | memoryview | BaseException) -> None:
        item.records = outcome
        item.work = None
        self._drain()

    def refuse_unbegun(self) -> None:
        """The broker stops."""
        while self.unbegun:
            self.unbegun.popleft().records = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._drain()

    def follow(self, records: bytearray | memoryview, then: Converted) -> None:
        """Queues an append that needs no work of its own. `records` must be the caller's copy."""
        self._items.append(_Waiting(then, records=records))

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
                item.then(item.records)
                if clock() >= until_s:
                    break
        finally:
            # Whatever one of them raised, those behind it must not wait for good.
            if not items:
                self._on_empty()
            elif items[0].records is not None:
                self._is_due = True
                self._loop.call_soon(self._drain_on)
            else:
                self._tell_reached()

    def _drain_on(self) -> None:
        self._is_due = False
        self._drain()


def _outcome_of(
    finished: asyncio.Future[bytearray | memoryview],
) -> bytearray | memoryview | BaseException:
    if finished.cancelled():
        return asyncio.CancelledError()
    return finished.exception() or finished.result()
