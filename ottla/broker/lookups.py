"""Look-ups in many logs beside everybody else's requests.

A request may ask thousands of partitions for a time, and each of them may have to decompress a
batch of a megabyte that holds sixty, or to go through batches whose headers claim times that no
record has; and a Fetch of hundreds of partitions may be the first to read from them since the
start, which opens their indexes. So such a request is steps (`log/time_search.py`, and
`handlers/fetch_reading.py`): those that are short are done on the loop, for TURN_S at a time; a
batch that is long or compressed is a worker's, one after another, and so is what has to be read
from the disk before a Fetch or a ShareFetch (`log/first_touch.py`). Of all these requests together
one has the loop in a turn, and WORKERS_MAX have a worker.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter

from ottla.broker.log.first_touch import FirstReads, FirstTouches
from ottla.broker.log.time_search import BatchSearch, Steps, TimedOffset
from ottla.broker.pauses import Pauses
from ottla.protocol.errors import KafkaError

TURN_S = 0.001
"""One more step may begin so long after the first one of its turn."""
WORKERS_MAX = 2
"""Half of the broker's: readers of cold data and the metadata log need some, and each look-up may
hold what a batch has when it is decompressed."""

InWorker = Callable[[Callable[[], TimedOffset | None]], "Future[TimedOffset | None]"]
Outcome = TimedOffset | KafkaError | OSError | None


class Lookups:
    """One for all connections of a broker; `in_worker` awaits what runs in a worker, `clock` gives
    seconds."""

    def __init__(self, in_worker: InWorker, clock: Callable[[], float] = perf_counter) -> None:
        self._in_worker = in_worker
        self._clock = clock
        self._turn = asyncio.Lock()
        self._workers = asyncio.Semaphore(WORKERS_MAX)

    def follow(self, steps: Steps | FirstReads) -> Awaitable[None] | None:
        """To be awaited, if the steps take more than this one turn."""
        lookup = _Lookup(steps, self._clock)
        lookup.advance()
        return None if lookup.is_done else self._go_on(lookup)

    def queue(self, steps: Steps) -> Awaitable[None]:
        """To be awaited; nothing is done in this turn, in which many may ask."""
        return self._go_on(_Lookup(steps, self._clock))

    async def _go_on(self, lookup: _Lookup) -> None:
        while not lookup.is_done:
            if lookup.search is not None:
                lookup.outcome = await self._run(lookup.search)
            async with self._turn:
                await asyncio.sleep(0)
                lookup.advance()

    async def _run(self, search: BatchSearch | FirstTouches) -> Outcome:
        await self._workers.acquire()
        try:
            running = self._in_worker(partial(search.run_apart, Pauses().give_way))
        except RuntimeError:  # no thread can be started, or the broker has stopped
            self._workers.release()
            if isinstance(search, FirstTouches):
                return None  # then the loop waits for the disk
            raise
        # Not before the worker is through, though nobody may wait for it any more.
        running.add_done_callback(lambda _: self._workers.release())
        try:
            return await asyncio.shield(running)
        except (KafkaError, OSError) as error:
            return error
        except asyncio.CancelledError:
            if isinstance(search, FirstTouches):
                search.stop()
            raise


class _Lookup:
    """How far a look-up is. It waits for `search`, or only for its turn."""

    __slots__ = ("_clock", "_steps", "is_done", "outcome", "search")

    def __init__(self, steps: Steps | FirstReads, clock: Callable[[], float]) -> None:
        self.is_done = False
        self.outcome: Outcome = None
        self.search: BatchSearch | FirstTouches | None = None
        self._steps = steps
        self._clock = clock

    def advance(self) -> None:
        """Goes on with the outcome, for a turn of the loop or to where a worker is needed."""
        assert not self.is_done
        until_s = self._clock() + TURN_S
        try:
            while True:
                self.search = search = self._step()
                if search is None:
                    self.outcome = None
                elif isinstance(search, BatchSearch) and search.is_short:
                    self.search = None
                    self.outcome = _outcome_of(search)
                else:
                    return
                if self._clock() >= until_s:
                    return
        except StopIteration:
            self.is_done = True

    def _step(self) -> BatchSearch | FirstTouches | None:
        if isinstance(self.outcome, KafkaError | OSError):
            return self._steps.throw(self.outcome)
        return self._steps.send(self.outcome)


def _outcome_of(search: BatchSearch) -> Outcome:
    try:
        return search.run()
    except (KafkaError, OSError) as error:
        return error
