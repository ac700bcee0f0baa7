"""An event loop whose time is virtual: it jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]]
        if timeout is None:
            # No timer at all: only a worker thread can wake the loop.
            ready = super().select(None)
            return ready
        ready = super().select(0)
        if not ready:
            self.now_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Runs the scenario to its end on a loop of its own."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(scenario)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
