"""Deadlines: each is told once, in time, and one timer of the loop does for all."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ottla.broker.replication.deadlines import STALE_MAX, Deadline, Deadlines

STEP_S = 0.001


class Timer:
    def __init__(self, due_s: float, callback: Callable[[], object]) -> None:
        self.due_s = due_s
        self.callback = callback
        self.is_set = True

    def cancel(self) -> None:
        self.is_set = False


class Loop:
    """Tells the time in whole milliseconds, as uvloop does, and rounds what is due to them."""

    def __init__(self) -> None:
        self.steps = 0
        self.timers: list[Timer] = []
        self.made = 0

    def time(self) -> float:
        return self.steps * STEP_S

    def call_at(self, when: float, callback: Callable[[], object], /) -> Timer:
        self.made += 1
        timer = Timer(round(when / STEP_S) * STEP_S, callback)
        self.timers.append(timer)
        return timer

    @property
    def set_timers(self) -> list[Timer]:
        return [one for one in self.timers if one.is_set]

    def go_to(self, steps: int) -> None:
        while self.steps < steps:
            self.steps += 1
            self.run_due()

    def run_due(self) -> None:
        while due := [one for one in self.set_timers if one.due_s <= self.time() + STEP_S / 10]:
            self.timers = [one for one in self.set_timers if one is not due[0]]
            due[0].callback()


class Waiter:
    def __init__(self, loop: Loop, then: Callable[[], object] = lambda: None) -> None:
        self.told: list[int] = []
        self._loop = loop
        self._then = then

    def expired(self) -> None:
        self.told.append(self._loop.steps)
        self._then()


def test_each_is_told_when_its_time_is_over() -> None:
    loop = Loop()
    deadlines = Deadlines(loop)
    waiters = [Waiter(loop) for _ in range(4)]
    for waiter, wait_s in zip(waiters, (0.5, 0.1, 0.1, 2.0), strict=True):
        deadlines.add(waiter, wait_s)
    loop.go_to(1000)

    assert [one.told for one in waiters] == [[500], [100], [100], []]
    assert len(deadlines) == 1
    assert len(loop.set_timers) == 1


def test_who_is_answered_before_costs_no_timer() -> None:
    loop = Loop()
    deadlines = Deadlines(loop)
    waiter = Waiter(loop)
    for steps in range(1, 3001):
        deadlines.cancel(deadlines.add(waiter, 0.5))
        loop.go_to(steps)

    assert waiter.told == []
    assert loop.made < 10
    assert len(deadlines._heap) <= STALE_MAX + 1


def test_a_sooner_deadline_is_not_late() -> None:
    loop = Loop()
    deadlines = Deadlines(loop)
    late, soon = Waiter(loop), Waiter(loop)
    deadlines.add(late, 86_400.0)
    deadlines.add(soon, 0.01)
    loop.go_to(11)

    assert (late.told, soon.told) == ([], [10])
    assert len(loop.set_timers) == 1


def test_one_that_breaks_takes_no_other_with_it() -> None:
    loop = Loop()
    deadlines = Deadlines(loop)

    def fail() -> None:
        raise AssertionError("broken")

    broken, behind = Waiter(loop, fail), Waiter(loop)
    deadlines.add(broken, 0.01)
    deadlines.add(behind, 0.01)
    with pytest.raises(AssertionError):
        loop.go_to(10)
    loop.run_due()

    assert (broken.told, behind.told) == ([10], [10])


def test_nothing_is_told_behind_the_end() -> None:
    loop = Loop()
    deadlines = Deadlines(loop)
    waiter = Waiter(loop)
    deadline = deadlines.add(waiter, 0.01)
    deadlines.close()
    deadlines.cancel(deadline)
    loop.go_to(100)

    assert waiter.told == []
    assert len(deadlines) == 0
    assert loop.set_timers == []


@pytest.mark.parametrize("seed", range(20))
def test_whoever_comes_and_goes(seed: int) -> None:
    """Those told are those that were not cancelled, at their times."""
    rng = random.Random(seed)
    loop = Loop()
    deadlines = Deadlines(loop)
    waiting: dict[Waiter, tuple[Deadline, int]] = {}
    expected: dict[Waiter, int] = {}

    def add() -> None:
        waiter = Waiter(loop, then=lambda: _leave(waiter))
        wait = rng.choice((0, 1, 5, 100, 500, 500, 500, 3000))
        waiting[waiter] = deadlines.add(waiter, wait * STEP_S), loop.steps + wait
        expected[waiter] = loop.steps + wait

    def _leave(waiter: Waiter) -> None:
        del waiting[waiter]
        if rng.random() < 0.3:  # who is told asks again
            add()

    cancelled: list[Waiter] = []
    for steps in range(1, 2000):
        for _ in range(rng.choice((0, 0, 1, 5))):
            add()
        if waiting and rng.random() < 0.6:
            waiter = rng.choice(list(waiting))
            deadline, _ = waiting.pop(waiter)
            deadlines.cancel(deadline)
            deadlines.cancel(deadline)
            del expected[waiter]
            cancelled.append(waiter)
        loop.run_due()
        loop.go_to(steps)
        assert len(deadlines) == len(waiting)
    while waiting:
        loop.go_to(loop.steps + 1000)

    assert all(one.told == [] for one in cancelled)
    assert len(expected) > 1000
    assert all(one.told == [when] for one, when in expected.items())
