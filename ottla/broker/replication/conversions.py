"""Appends of one partition that wait for work off the loop (recompression, a look at the keys).

While the queue is not empty, every later append of its partition joins it, so that the log sees
batches in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor

Converted = Callable[[bytearray | memoryview | BaseException], None]


class _Waiting:
    __slots__ = ("reached", "records", "then")

    def __init__(self, then: Converted, records: bytearray | memoryview | None) -> None:
        self.then = then
        # Called once when it is the first in the queue, of one that holds the others back.
        self.reached: Callable[[], None] | None = None
        self.records: bytearray | memoryview | BaseException | None = records


class ConversionQueue:
    """`on_empty` runs when nothing waits any more; appends may go straight to the log again."""

    __slots__ = ("_items", "_loop", "_on_empty", "_workers")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        workers: Executor,
        on_empty: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._workers = workers
        self._on_empty = on_empty
        self._items: deque[_Waiting] = deque()

    def convert(self, work: Callable[[], bytearray | memoryview], then: Converted) -> None:
        """Runs `work` in a worker; `then` gets what it returned or raised, in the queue's order."""
        item = _Waiting(then, None)
        self._items.append(item)
        future = self._loop.run_in_executor(self._workers, work)

        def done(finished: asyncio.Future[bytearray | memoryview]) -> None:
            item.records = finished.exception() or finished.result()
            self._drain()

        future.add_done_callback(done)

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
