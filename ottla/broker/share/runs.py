"""Records one behind the other that are in the same state, and the line of them that is a window.

A run is split when something happens to a part of it, and joined to its neighbour when nothing
tells them apart any more; so what is delivered and acknowledged by the batch costs by the batch,
and what is acknowledged one by one costs by the record only while it has to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING

from ottla.broker.coordinator.share.batches import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
)

if TYPE_CHECKING:
    from ottla.broker.share.window import Transition

NOBODY = ""


class RecordState(IntEnum):
    """Of a record in the window; the numbers are those that are written down."""

    AVAILABLE = AVAILABLE
    ACQUIRED = ACQUIRED
    ACKNOWLEDGED = ACKNOWLEDGED
    ARCHIVED = ARCHIVED

    @property
    def is_final(self) -> bool:
        return self is RecordState.ACKNOWLEDGED or self is RecordState.ARCHIVED


# What may become of a record. A transition to where it is, or out of a final state, is none.
TRANSITIONS: dict[RecordState, frozenset[RecordState]] = {
    RecordState.AVAILABLE: frozenset({RecordState.ACQUIRED, RecordState.ARCHIVED}),
    RecordState.ACQUIRED: frozenset(
        {RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED}
    ),
    RecordState.ACKNOWLEDGED: frozenset(),
    RecordState.ARCHIVED: frozenset(),
}


class Run:
    """Records `first` to `last`, both included. While a `transition` of it is being written, the
    run is on its way to `target`, and nothing else may happen to it."""

    __slots__ = (
        "delivery_count",
        "first",
        "last",
        "lock_until_ms",
        "member_id",
        "state",
        "target",
        "together_max",
        "transition",
    )

    def __init__(
        self,
        first: int,
        last: int,
        state: RecordState = RecordState.AVAILABLE,
        delivery_count: int = 0,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = NOBODY
        self.lock_until_ms = 0
        self.transition: Transition | None = None
        self.target = state
        self.together_max = 0
        """How many of its records may be delivered together, 0 for any number."""

    def __repr__(self) -> str:
        to = f">{self.target.name}" if self.transition is not None else ""
        return f"<{self.first}-{self.last} {self.state.name}{to} x{self.delivery_count}>"

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def can_be_acquired(self) -> bool:
        return self.state is RecordState.AVAILABLE and self.transition is None

    def become(self, state: RecordState) -> None:
        assert state in TRANSITIONS[self.state], f"{self!r} cannot become {state.name}"
        self.state = self.target = state
        if state is not RecordState.ACQUIRED:
            self.member_id = NOBODY
            self.lock_until_ms = 0

    def is_like(self, other: Run) -> bool:
        """Whether nothing but their offsets tells them apart."""
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.lock_until_ms == other.lock_until_ms
            and self.together_max == other.together_max
            and self.transition is None
            and other.transition is None
        )


class Line:
    """Runs without a gap between them, in the order of their offsets."""

    __slots__ = ("_join_at", "_runs")

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._join_at = JOIN_MIN

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __bool__(self) -> bool:
        return bool(self._runs)

    def append(self, run: Run) -> None:
        assert not self._runs or self._runs[-1].last + 1 == run.first
        self._runs.append(run)

    def holding(self, offset: int) -> Run:
        """The run that the offset, which must lie in the line, belongs to."""
        run = self._runs[self._index(offset)]
        assert run.first <= offset <= run.last
        return run

    def over(self, first: int, last: int) -> list[Run]:
        """The runs that have an offset in common with that range."""
        runs = self._runs
        if not runs or last < runs[0].first or first > runs[-1].last:
            return []
        begin = max(self._index(max(first, runs[0].first)), 0)
        end = self._index(min(last, runs[-1].last))
        return runs[begin : end + 1]

    def cut(self, first: int, last: int) -> list[Run]:
        """The runs of exactly that range, which must lie in the line; those at its ends are split
        if need be."""
        self._split(first)
        self._split(last + 1)
        return self.over(first, last)

    def drop_below(self, offset: int) -> list[Run]:
        """Forgets what lies before an offset, and returns it."""
        runs = self._runs
        if runs and runs[-1].last >= offset:
            self._split(offset)
        count = next((n for n, run in enumerate(runs) if run.first >= offset), len(runs))
        dropped = runs[:count]
        del runs[:count]
        return dropped

    def join(self) -> None:
        """Joins neighbours that are alike; done whenever the line has doubled."""
        if len(self._runs) < self._join_at:
            return
        joined: list[Run] = []
        for run in self._runs:
            if joined and joined[-1].is_like(run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self._runs = joined
        self._join_at = max(JOIN_MIN, 2 * len(joined))

    def _index(self, offset: int) -> int:
        return bisect_right(self._runs, offset, key=_first_of) - 1

    def _split(self, offset: int) -> None:
        """Makes a run begin at an offset, if the line goes on there."""
        runs = self._runs
        if not runs or offset <= runs[0].first or offset > runs[-1].last:
            return
        index = self._index(offset)
        run = runs[index]
        if run.first == offset:
            return
        rest = Run(offset, run.last, run.state, run.delivery_count)
        rest.member_id = run.member_id
        rest.lock_until_ms = run.lock_until_ms
        rest.target = run.target
        rest.together_max = run.together_max
        rest.transition = run.transition
        if rest.transition is not None:
            rest.transition.runs.append(rest)
        run.last = offset - 1
        runs.insert(index + 1, rest)


JOIN_MIN = 32
"""Runs of a line that are not worth joining."""


def _first_of(run: Run) -> int:
    return run.first
