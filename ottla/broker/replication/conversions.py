"""Appends of one partition that wait for work off the loop (recompression, a look at the keys).

While the queue is not empty, every later append of its partition joins it, so that the log sees
batches in the order in which they came. What a batch holds is found out when it is decompressed: a
large one is given up and begun again when no other large one is under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Protocol

from ottla.broker.log.validation import LargeBatch
from ottla.broker.pauses import Pauses
from ottla.protocol.records.record import GiveWay

Converted = Callable[[bytearray | memoryview | BaseException], None]


class Work(Protocol):
    """Converts a batch. Raises LargeBatch if it has to be the only large one, and is not.
    `give_way` is to be called between records."""

    def __call__(self, *, alone: bool, give_way: GiveWay) -> bytearray | memoryview: ...


class _Waiting:
    __slots__ = ("reached", "records", "then")

    def __init__(self, then: Converted, records: bytearray | memoryview | None) -> None:
        self.then = then
        # Called once when it is the first in the queue, of one that holds the others back.
        self.reached: Callable[[], None] | None = None
        self.records: bytearray | memoryview | BaseException | None = records


class LargeTurns:
    """Lets one large conversion of a broker begin when the one before has ended."""

    __slots__ = ("_is_taken", "_waiting")

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: deque[Callable[[], None]] = deque()

    def __repr__(self) -> str:
        return f"<LargeTurns waiting={len(self._waiting)}>"

    def take(self, begin: Callable[[], None]) -> None:
        """Calls `begin`, now or later; it is followed by `leave`."""
        if self._is_taken:
            self._waiting.append(begin)
        else:
            self._is_taken = True
            begin()

    def leave(self) -> None:
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._is_taken = False


class ConversionQueue:
    """`on_empty` runs when nothing waits any more; appends may go straight to the log again."""

    __slots__ = ("_items", "_large", "_loop", "_on_empty", "_workers")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        workers: Executor,
        large: LargeTurns,
        on_empty: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._large = large
        self._workers = workers
        self._on_empty = on_empty
        self._items: deque[_Waiting] = deque()

    def convert(self, work: Work, then: Converted) -> None:
        """Runs `work` in a worker; `then` gets what it returned or raised, in the queue's order."""
        item = _Waiting(then, None)
        self._items.append(item)

        def tried(outcome: bytearray | memoryview | BaseException) -> None:
            if isinstance(outcome, LargeBatch):
                self._large.take(lambda: self._run(work, done_alone, alone=True))
            else:
                done(outcome)

        def done_alone(outcome: bytearray | memoryview | BaseException) -> None:
            self._large.leave()
            done(outcome)

        def done(outcome: bytearray | memoryview | BaseException) -> None:
            item.records = outcome
            self._drain()

        self._run(work, tried, alone=False)

    def _run(self, work: Work, done: Converted, *, alone: bool) -> None:
        give_way = Pauses().give_way
        try:
            future = self._loop.run_in_executor(
                self._workers, partial(work, alone=alone, give_way=give_way)
            )
        except RuntimeError as error:  # the broker has stopped
            self._loop.call_soon(done, error)
            return
        future.add_done_callback(lambda finished: done(_outcome_of(finished)))

    def follow(self, records: bytearray | memoryview, then: Converted) -> None:
        """Queues an append that needs no work of its own. `records` must be the caller's copy."""
        self._items.append(_Waiting(then, records))

    def hold(self, reached: Callable[[], None]) -> Callable[[], None]:
        """Keeps what comes later waiting until what this returns is called.

        `reached` hears, perhaps before this returns, that all before it are through.
        """
        item = _Waiting(lambda records: None, None)
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
        items = self._items
        try:
            while items and items[0].records is not None:
                item = items.popleft()
                assert item.records is not None
                item.then(item.records)
        finally:
            # Whatever one of them raised, those behind it must not wait for good.
            if not items:
                self._on_empty()
            elif items[0].records is not None:
                self._loop.call_soon(self._drain)
            else:
                self._tell_reached()


def _outcome_of(
    finished: asyncio.Future[bytearray | memoryview],
) -> bytearray | memoryview | BaseException:
    if finished.cancelled():
        return asyncio.CancelledError()
    return finished.exception() or finished.result()
