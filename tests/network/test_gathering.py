"""Requests are gathered where many connections are answered and many tasks wait to run."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import cast

import pytest

from ottla.broker.network.gathering import (
    CONNECTIONS_MIN,
    GATHER_S_MAX,
    GATHER_S_PER_TASK,
    STALE_S,
    TASKS_PER_PROCESSOR,
    TURNS_PER_PROCESSOR,
    WINDOW_S,
    Gathering,
)
from ottla.broker.network.outbox import TURN_BYTES, Outbox, TurnEnd
from ottla.broker.processors import LinuxProcessors
from ottla.broker.serve import _share_processors
from ottla.testing.embedded import Broker

MANY = [object() for _ in range(CONNECTIONS_MIN)]
CROWD = 2 * TASKS_PER_PROCESSOR + 1
MOMENT_S = CROWD / 2 * GATHER_S_PER_TASK

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="no /proc/loadavg")


class Machine:
    """Two processors, and as many tasks as the test says."""

    count = 2

    def __init__(self, tasks: int = CROWD) -> None:
        self.tasks = tasks
        self.looks = 0
        self.did: list[object] = []

    def runnable(self) -> int:
        self.looks += 1
        return self.tasks

    def leave(self, seconds: float) -> None:
        self.did.append(seconds)

    def move(self) -> None:
        self.did.append("moves")


def busy(gathering: Gathering, answered: list[object], *, turns: int = 9, at_s: float = 1.0) -> int:
    """Turns at a fifth of a window each; how many of them were followed by gathering."""
    return sum(gathering.turn(answered, at_s + turn * WINDOW_S / 5) for turn in range(turns))


def test_many_connections_on_a_crowded_machine_are_served_together() -> None:
    machine = Machine()
    gathering = Gathering(machine)

    assert busy(gathering, MANY, turns=6) == 1, "the first window only shows what there is"
    gathering.gather()
    assert (machine.did, gathering.turns) == ([MOMENT_S], 1)


@pytest.mark.parametrize(("tasks", "gather_s"), [(2 * CROWD, 2 * MOMENT_S), (10_000, GATHER_S_MAX)])
def test_the_more_wait_the_longer_it_is(tasks: int, gather_s: float) -> None:
    machine = Machine(tasks)
    gathering = Gathering(machine)
    busy(gathering, MANY)
    gathering.gather()

    assert machine.did == [gather_s]


def test_each_processor_has_the_loop_for_some_turns() -> None:
    """Those beside it wait longer than others."""
    machine = Machine()
    gathering = Gathering(machine)
    busy(gathering, MANY)
    for _ in range(2 * TURNS_PER_PROCESSOR):
        gathering.gather()
    turns = [MOMENT_S] * (TURNS_PER_PROCESSOR - 1)

    assert machine.did == 2 * [*turns, "moves", MOMENT_S]


@pytest.mark.parametrize(
    ("tasks", "answered"),
    [(CROWD - 1, MANY), (CROWD, MANY[:-1])],
    ids=["few tasks", "few connections"],
)
def test_others_are_answered_at_once(tasks: int, answered: list[object]) -> None:
    assert busy(Gathering(Machine(tasks)), answered) == 0


def test_it_ends_with_the_crowd() -> None:
    machine = Machine()
    gathering = Gathering(machine)
    busy(gathering, MANY)
    machine.tasks = 1

    assert busy(gathering, MANY, at_s=1 + 2 * WINDOW_S) == 0


def test_who_comes_after_a_rest_is_answered_at_once() -> None:
    """Whatever the machine was like before it."""
    gathering = Gathering(Machine())
    busy(gathering, MANY)

    assert not gathering.turn(MANY[:1], 1 + 2 * WINDOW_S + STALE_S)


def test_the_tasks_are_counted_once_a_window_and_not_for_the_few() -> None:
    many, few = Machine(), Machine()
    busy(Gathering(many), MANY, turns=21)
    busy(Gathering(few), MANY[:1], turns=21)

    assert (many.looks, few.looks) == (4, 0)


class Turns:
    """A loop that does what was asked for one turn at a time; a turn takes a fifth of a window."""

    def __init__(self) -> None:
        self._soon: list[Callable[[], None]] = []
        self._now_s = 1.0

    def time(self) -> float:
        return self._now_s

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def turn(self) -> None:
        self._now_s += WINDOW_S / 5
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()


class Answer:
    """Stands for the outbox of a connection; notes when it sends."""

    def __init__(self, did: list[object], turn_end: TurnEnd, slice_bytes: int = 0) -> None:
        self._did = did
        self._turn_end = turn_end
        self._slice_bytes = slice_bytes

    def flush(self) -> None:
        self._did.append("answer")
        self._turn_end.slice_budget -= self._slice_bytes


@pytest.mark.parametrize(
    ("slice_bytes", "is_syncing"), [(0, False), (TURN_BYTES // CONNECTIONS_MIN, False), (0, True)]
)
def test_the_loop_gathers_behind_the_answers_of_a_turn(slice_bytes: int, is_syncing: bool) -> None:
    """Unless slices were sent, or a log is being synced: the next turn follows at once."""
    machine = Machine()
    turns = Turns()
    turn_end = TurnEnd(cast(asyncio.AbstractEventLoop, turns))
    turn_end.gather(Gathering(machine), lambda: is_syncing)
    answers = [Answer(machine.did, turn_end, slice_bytes) for _ in range(CONNECTIONS_MIN)]

    for _ in range(7):
        machine.did.clear()
        for answer in answers:
            turn_end.add(cast(Outbox, answer))
        turns.turn()
    expected: list[object] = ["answer"] * CONNECTIONS_MIN
    if not slice_bytes and not is_syncing:
        expected.append(MOMENT_S)

    assert machine.did == expected


@needs_linux
def test_linux_tells_how_many_tasks_run() -> None:
    processors = LinuxProcessors.open()

    assert processors is not None
    assert processors.runnable() >= 1, "we do"
    assert processors.count == len(os.sched_getaffinity(0))
    processors.close()


@needs_linux
def test_a_move_leaves_us_as_free_as_we_were() -> None:
    processors = LinuxProcessors.open()
    assert processors is not None
    all_of_them = os.sched_getaffinity(0)
    one = {max(all_of_them)}
    try:
        processors.move()
        assert os.sched_getaffinity(0) == all_of_them
        os.sched_setaffinity(0, one)
        processors.move()
        assert os.sched_getaffinity(0) == one, "whoever pins us has the last word"
    finally:
        os.sched_setaffinity(0, all_of_them)
        processors.close()


@needs_linux
def test_a_move_goes_to_each_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    processors = LinuxProcessors.open()
    assert processors is not None
    went: list[list[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {7, 3, 5})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, mask: went.append(sorted(mask)))
    for _ in range(3):
        processors.move()
    processors.close()

    assert sorted(went[::2]) == [[3], [5], [7]]
    assert went[1::2] == 3 * [[3, 5, 7]]


@needs_linux
async def test_a_broker_of_its_own_process_gathers_and_an_embedded_one_does_not() -> None:
    async with Broker() as broker:
        server = broker.running.server
        assert server.gathering is None
        assert server.gathered_turns == 0
        _share_processors(broker.running)
        assert server.gathering is not None
        server.gathering.gather()
        assert server.gathered_turns == 1
