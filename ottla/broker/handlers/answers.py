"""The answers of one connection, in the order of its requests (P1 of the reliability page).

Some requests wait: for a sync, for data, for the quorum. Each takes its place in the line when it
is taken up; an answer leaves when all before it have left. A request that is answered at once with
nobody before it never enters the line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from ottla.broker.native import mypyc_attr


class NoAnswer:
    """What a handler returns when the protocol forbids an answer (Produce with acks=0)."""

    __slots__ = ()


class CloseConnection(Exception):
    """A request whose only answer is the end of the connection, as Kafka does."""


NO_ANSWER: Final = NoAnswer()

WHOLE_LINE_BYTES: Final = 1 << 40
"""To be added to the `held_bytes` of an answer whose connection is not to be read from meanwhile:
more than it may have waiting."""


class Line(Protocol):
    def answered(self, answer: Pending) -> None: ...

    def failed(self, answer: Pending, error: Exception) -> None: ...

    def refused(self, answer: Pending, closing: CloseConnection) -> None: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Pending:
    """An answer that comes later. A handler returns it, and calls `complete` exactly once.

    `complete` may come before the handler has returned. `on_abandoned` runs if the connection
    ends first, so that a parked request leaves no trace in the waiters. `held_bytes` is the memory
    that it keeps while it waits, if that is worth counting; set before it is returned. One that
    `is_metered` may have to tell of a wait, and so is answered by a message, not by a frame.
    """

    entry: Any
    version: int
    correlation_id: int
    started_s: float
    counted_bytes: int
    """The connection sets these five when it puts the answer in its line."""

    __slots__ = (
        "abandoned",
        "correlation_id",
        "counted_bytes",
        "entry",
        "held_bytes",
        "is_metered",
        "line",
        "response",
        "started_s",
        "version",
    )

    def __init__(self) -> None:
        self.line: Line | None = None
        self.response: Any = None
        self.abandoned = False
        self.held_bytes = 0
        self.is_metered = False

    def complete(self, response: Any) -> None:
        assert self.response is None, "answered twice"
        assert response is not None
        self.response = response
        line = self.line
        if line is not None:
            line.answered(self)

    def woken(self, act: Callable[[], None]) -> None:
        """Does what a request that waits does when it is woken. What goes wrong there is its own
        answer: whoever woke it, by an append perhaps, is not to blame."""
        try:
            act()
        except AssertionError:
            raise
        except Exception as error:
            if self.response is not None or self.line is None:
                raise
            self.on_abandoned()
            self.line.failed(self, error)

    def hurry(self) -> None:
        """The client sends no more and is most likely gone. What waits for more records to come is
        answered with those that are there; all else ends by itself."""

    def on_abandoned(self) -> None:
        """The connection is gone, or the answer failed; never called after `complete`."""


class Awaited:
    """An answer that a handler awaits itself."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def complete(self, response: Any) -> None:
        if not self.future.done():
            self.future.set_result(response)
