"""The loop rests where it answers many connections and many tasks wait to run."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest
import uvloop

from ottla.broker import processors as machine_processors
from ottla.broker.network.moderation import (
    CLIENTS_BACK,
    CONNECTIONS_MIN,
    REST_S_MAX,
    REST_S_PER_TASK,
    RESTS_PER_PROCESSOR,
    STALE_S,
    TASKS_PER_PROCESSOR_MIN,
    WINDOWS_COUNTED,
    Moderation,
)
from ottla.broker.network.outbox import SENDFILE_MIN, Outbox, TurnEnd
from ottla.broker.processors import LinuxProcessors
from ottla.testing.embedded import Broker
from tests.replication.test_when_disks_fail import connect

MANY = [object() for _ in range(CONNECTIONS_MIN)]
CROWD = 2 * TASKS_PER_PROCESSOR_MIN + 1
REST_S = CROWD / 2 * REST_S_PER_TASK
UPTIME_MS = 1_234_567
TURNS_PER_MS = 4
WINDOW_MS = 2

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="no /proc/loadavg")


class Machine:
    """Two processors, and as many tasks as the test says."""

    count = 2

    def __init__(self, tasks: int = CROWD) -> None:
        self.tasks = tasks
        self.looks = 0
        self.did: list[object] = []
        self.enough: list[int] = []

    def runnable(self) -> int:
        self.looks += 1
        return self.tasks

    def leave(self, seconds: float, enough: int) -> None:
        self.did.append(seconds)
        self.enough.append(enough)

    def move(self) -> None:
        self.did.append("moves")


def busy(
    moderation: Moderation,
    answered: list[object] = MANY,
    *,
    ms: int = 4,
    from_ms: int = UPTIME_MS,
    held_up: Callable[[int], bool] = lambda _turn: False,
) -> int:
    """Turns for so many milliseconds, by uvloop's clock of whole ones; how many rests were due."""
    return sum(
        moderation.turn(answered, (from_ms + turn // TURNS_PER_MS) / 1000, is_held_up=held_up(turn))
        for turn in range(ms * TURNS_PER_MS)
    )


def test_many_connections_on_a_crowded_machine_are_served_together() -> None:
    machine = Machine()
    moderation = Moderation(machine)

    assert busy(moderation, ms=2) == 0, "the first window only shows what there is"
    assert busy(moderation, ms=2, from_ms=UPTIME_MS + 2) == 2 * TURNS_PER_MS
    moderation.rest()
    assert (machine.did, moderation.rests) == ([REST_S], 1)


def test_a_rest_ends_when_most_of_those_who_take_part_have_sent() -> None:
    """Also of those who are answered in another window."""
    machine = Machine()
    moderation = Moderation(machine)
    others = [object() for _ in range(CONNECTIONS_MIN + 4)]
    busy(moderation)
    busy(moderation, others, from_ms=UPTIME_MS + 4)
    moderation.rest()

    assert machine.enough == [int((len(MANY) + len(others)) * CLIENTS_BACK)]


def test_who_takes_part_is_remembered_from_one_count_to_the_next() -> None:
    """Half of them have an answer in each window, and a count begins anew behind some."""
    machine = Machine()
    moderation = Moderation(machine)
    halves = [[object() for _ in range(CONNECTIONS_MIN)] for _ in range(2)]
    for window in range(3 * WINDOWS_COUNTED):
        now_ms = UPTIME_MS + WINDOW_MS * window
        moderation.turn(halves[window % 2], now_ms / 1000, is_held_up=window % 3 == 0)
        if window > 2:
            moderation.rest()

    assert set(machine.enough) == {int(2 * CONNECTIONS_MIN * CLIENTS_BACK)}


def test_a_pause_begins_a_count_anew() -> None:
    machine = Machine()
    moderation = Moderation(machine)
    busy(moderation, [object() for _ in range(10 * CONNECTIONS_MIN)], ms=WINDOW_MS * 3)
    from_ms = int(UPTIME_MS + WINDOW_MS * 3 + 1000 * STALE_S)
    for window in range(2 * WINDOWS_COUNTED):
        moderation.turn(MANY, (from_ms + WINDOW_MS * window) / 1000, is_held_up=False)
        if window:
            moderation.rest()

    assert set(machine.enough) == {int(CONNECTIONS_MIN * CLIENTS_BACK)}


def test_who_has_gone_is_soon_not_waited_for() -> None:
    machine = Machine()
    moderation = Moderation(machine)
    busy(moderation, [object() for _ in range(10 * CONNECTIONS_MIN)])
    moderation.rest()
    busy(moderation, ms=2 * WINDOWS_COUNTED * WINDOW_MS, from_ms=UPTIME_MS + 4)
    moderation.rest()
    now_ms = UPTIME_MS + 4 + 2 * WINDOWS_COUNTED * WINDOW_MS + 1000 * STALE_S
    moderation.turn(MANY[:2], now_ms / 1000, is_held_up=False)
    moderation.rest()

    many, few = 10 * CONNECTIONS_MIN * CLIENTS_BACK, CONNECTIONS_MIN * CLIENTS_BACK

    assert machine.enough == [int(many), int(few), 0]


@pytest.mark.parametrize(("tasks", "rest_s"), [(2 * CROWD, 2 * REST_S), (10_000, REST_S_MAX)])
def test_the_more_wait_the_longer_it_is(tasks: int, rest_s: float) -> None:
    machine = Machine(tasks)
    moderation = Moderation(machine)
    busy(moderation)
    moderation.rest()

    assert machine.did == [rest_s]


def test_each_processor_has_the_loop_for_some_rests() -> None:
    """Those beside it wait longer than others."""
    machine = Machine()
    moderation = Moderation(machine)
    busy(moderation)
    for _ in range(2 * RESTS_PER_PROCESSOR):
        moderation.rest()
    rests = [REST_S] * (RESTS_PER_PROCESSOR - 1)

    assert machine.did == 2 * [*rests, "moves", REST_S]


@pytest.mark.parametrize(
    ("tasks", "answered"),
    [(CROWD - 1, MANY), (CROWD, MANY[:-1])],
    ids=["few tasks", "few connections"],
)
def test_others_are_answered_at_once(tasks: int, answered: list[object]) -> None:
    assert busy(Moderation(Machine(tasks)), answered) == 0


@pytest.mark.parametrize("every", [1, 2, TURNS_PER_MS])
def test_who_reads_much_or_waits_for_the_disk_is_not_held_up(every: int) -> None:
    """Not by a turn between two of its own, either."""
    assert busy(Moderation(Machine()), ms=20, held_up=lambda turn: turn % every == 0) == 0


def test_it_goes_on_when_they_are_through() -> None:
    moderation = Moderation(Machine())
    busy(moderation, held_up=lambda _turn: True)

    assert busy(moderation, ms=10, from_ms=UPTIME_MS + 4) > 4 * TURNS_PER_MS


def test_it_ends_with_the_crowd() -> None:
    machine = Machine()
    moderation = Moderation(machine)
    busy(moderation)
    machine.tasks = 1

    assert busy(moderation, from_ms=UPTIME_MS + 4) == 0


def test_who_comes_after_a_while_is_answered_at_once() -> None:
    """Whatever the machine was like before it."""
    moderation = Moderation(Machine())
    busy(moderation)
    now_s = (UPTIME_MS + 4) / 1000 + STALE_S

    assert not moderation.turn(MANY[:1], now_s, is_held_up=False)


def test_the_tasks_are_counted_once_a_window_and_not_for_the_few() -> None:
    many, few = Machine(), Machine()
    busy(Moderation(many), ms=20)
    busy(Moderation(few), MANY[:1], ms=20)

    assert (many.looks, few.looks) == (9, 0)


class Turns:
    """A loop that does what was asked for one turn at a time, a millisecond each."""

    def __init__(self) -> None:
        self._soon: list[Callable[[], None]] = []
        self._now_ms = UPTIME_MS

    def time(self) -> float:
        return self._now_ms / 1000

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def turn(self) -> None:
        self._now_ms += 1
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()


class Answer:
    """Stands for the outbox of a connection; notes when it sends."""

    def __init__(self, did: list[object], turn_end: TurnEnd, *, of_a_file: bool) -> None:
        self._did = did
        self._turn_end = turn_end
        self._of_a_file = of_a_file
        self.unsent_bytes = SENDFILE_MIN if of_a_file else 100

    def flush(self) -> None:
        self._did.append("answer")
        self._turn_end.has_slices = self._of_a_file


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("of_a_file", "is_syncing"), [(False, False), (True, False), (False, True)]
)
def test_the_loop_rests_behind_the_answers_of_a_turn(of_a_file: bool, is_syncing: bool) -> None:
    machine = Machine()
    turns = Turns()
    turn_end = TurnEnd(cast(asyncio.AbstractEventLoop, turns))
    turn_end.moderate(Moderation(machine), lambda: is_syncing)
    answers = [Answer(machine.did, turn_end, of_a_file=of_a_file) for _ in range(CONNECTIONS_MIN)]

    for _ in range(7):
        machine.did.clear()
        for answer in answers:
            turn_end.add(cast(Outbox, answer))
        turns.turn()
    expected: list[object] = ["answer"] * CONNECTIONS_MIN
    if not of_a_file and not is_syncing:
        expected.append(REST_S)

    assert machine.did == expected


@pytest.mark.parametrize("waits_for", [None, "disk", "cold", "lane", "conversion"])
async def test_a_broker_rests_unless_somebody_waits_for_something_else(
    waits_for: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine()
    async with Broker() as broker:
        server = broker.running.server
        assert server.moderation is None, "somebody's own loop is not to stand still"
        server.moderate(Moderation(machine))
        now_ms = [UPTIME_MS]
        turn_end = server.turn_end
        clients = [await connect(broker) for _ in range(CONNECTIONS_MIN)]
        async with asyncio.timeout(10):
            while len(server.connections) < CONNECTIONS_MIN:
                await asyncio.sleep(0)
        monkeypatch.setattr(turn_end, "_loop", _Clock(now_ms))
        if waits_for == "disk":
            monkeypatch.setattr(broker.running.replicas, "_syncing", 1)
        if waits_for == "cold":
            server.page_cache.cold_sends_under_way = 1
        if waits_for == "conversion":
            monkeypatch.setattr(broker.running.replicas.conversions, "_running", 1)
        if waits_for == "lane":
            monkeypatch.setattr(server.lane, "_waiting", deque([object()]))
        for _ in range(8):
            now_ms[0] += 1
            outboxes = [connection._outbox for connection in server.connections]
            turn_end._outboxes = cast(list[Outbox], outboxes)
            turn_end._send()
        monkeypatch.undo()
        for client in clients:
            client.close()

    assert server.moderation is not None
    assert (server.moderation.rests > 0) == (waits_for is None)


class _Clock:
    def __init__(self, now_ms: list[int]) -> None:
        self._now_ms = now_ms

    def time(self) -> float:
        return self._now_ms[0] / 1000


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with asyncio.Runner() as runner:
        yield runner.get_loop()


@needs_linux
def test_linux_tells_how_many_tasks_run(loop: asyncio.AbstractEventLoop) -> None:
    processors = LinuxProcessors.open(loop)

    assert processors is not None
    assert processors.runnable() >= 1, "we do"
    assert processors.count == os.cpu_count()


@pytest.mark.interpreted  # sets a constant, which compiled code has in itself
@pytest.mark.parametrize("text", [None, "", "0.1 0.2 0.3", "0.1 0.2 0.3 many/200 1\n"])
def test_a_system_that_does_not_tell_has_no_such_processors(
    text: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loop: asyncio.AbstractEventLoop,
) -> None:
    path = tmp_path / "loadavg"
    if text is not None:
        path.write_text(text, encoding="ascii")
    monkeypatch.setattr(machine_processors, "LOAD", str(path))

    assert LinuxProcessors.open(loop) is None


@pytest.mark.parametrize("backend", [None, staticmethod(lambda: -1)])
def test_nor_has_a_loop_that_does_not_say_where_it_waits(
    backend: Callable[[], int] | None,
) -> None:
    class Loop:
        _get_backend_id = backend

    assert LinuxProcessors.open(cast(asyncio.AbstractEventLoop, Loop())) is None


LOOPS = {"standard": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@needs_linux
@pytest.mark.parametrize("kind", LOOPS)
def test_whoever_has_sent_ends_a_rest_and_is_still_served(kind: str) -> None:
    heard: list[bytes] = []

    def hear(ours: socket.socket) -> None:
        heard.append(ours.recv(10))

    async def rest() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        processors = LinuxProcessors.open(loop)
        assert processors is not None
        with ExitStack() as stack:
            pairs = [socket.socketpair() for _ in range(3)]
            for theirs, ours in pairs:
                stack.enter_context(theirs)
                stack.enter_context(ours)
                loop.add_reader(ours, hear, ours)
            await asyncio.sleep(0)  # uvloop tells the kernel then
            for theirs, _ in pairs[:2]:
                theirs.send(b"a request")
            began_s = time.monotonic()
            processors.leave(30, 2)
            with_enough_s = time.monotonic() - began_s
            processors.leave(0.02, 3)
            in_all_s = time.monotonic() - began_s
            while len(heard) < 2:
                await asyncio.sleep(0)
            for _, ours in pairs:
                loop.remove_reader(ours)
        return with_enough_s, in_all_s - with_enough_s

    with asyncio.Runner(loop_factory=LOOPS[kind]) as runner:
        with_enough_s, with_too_few_s = runner.run(asyncio.wait_for(rest(), 60))

    assert with_enough_s < 15
    assert with_too_few_s >= 0.02
    assert heard == [b"a request"] * 2


@needs_linux
@pytest.mark.parametrize("enough", [0, 4])
def test_nobody_who_rests_needs_a_processor(loop: asyncio.AbstractEventLoop, enough: int) -> None:
    processors = LinuxProcessors.open(loop)
    assert processors is not None
    began_s, used_s = time.monotonic(), time.thread_time()
    processors.leave(0.1, enough)

    assert time.monotonic() - began_s >= 0.1
    assert time.thread_time() - used_s < 0.05


@needs_linux
@pytest.mark.parametrize("kind", LOOPS)
def test_no_loop_is_told_of_edges(kind: str) -> None:
    """Else what is looked at in a rest would not be told to the loop."""

    async def masks() -> list[int]:
        processors = LinuxProcessors.open(asyncio.get_running_loop())
        assert processors is not None
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        async with await loop.create_server(asyncio.Protocol, "127.0.0.1", 0):
            _, writer = await asyncio.open_connection(sock=ours)
            loop.add_reader(theirs, print)
            await asyncio.sleep(0)
            told = Path(f"/proc/self/fdinfo/{processors._watched.fileno()}").read_text("ascii")
            loop.remove_reader(theirs)
            theirs.close()
            writer.close()
            await writer.wait_closed()
        return [int(line.split()[3], 16) for line in told.splitlines() if line.startswith("tfd:")]

    with asyncio.Runner(loop_factory=LOOPS[kind]) as runner:
        found = runner.run(masks())

    assert len(found) >= 4, "the loop's own, the server's, and both ends of a connection"
    assert not any(mask & select.EPOLLET for mask in found)


@needs_linux
def test_a_move_leaves_us_free_and_whoever_pinned_us_has_the_last_word(
    loop: asyncio.AbstractEventLoop,
) -> None:
    processors = LinuxProcessors.open(loop)
    assert processors is not None
    all_of_them = os.sched_getaffinity(0)
    one = {max(all_of_them)}
    try:
        processors.move()
        assert os.sched_getaffinity(0) == all_of_them
        os.sched_setaffinity(0, one)
        processors.move()
        assert os.sched_getaffinity(0) == one
    finally:
        os.sched_setaffinity(0, all_of_them)


@needs_linux
def test_a_move_goes_to_each_in_turn(
    monkeypatch: pytest.MonkeyPatch, loop: asyncio.AbstractEventLoop
) -> None:
    processors = LinuxProcessors.open(loop)
    assert processors is not None
    processors.count = 3
    went: list[list[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {7, 3, 5})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, mask: went.append(sorted(mask)))
    for _ in range(3):
        processors.move()

    assert sorted(went[::2]) == [[3], [5], [7]]
    assert all({3, 5, 7} < set(mask) for mask in went[1::2])
