"""Jobs in virtual time: when they run, what stops them, who hears of errors."""

import asyncio
import threading

import pytest

from ottla.broker.scheduler import Scheduler, in_worker
from tests.broker.virtual_loop import run


class Diary:
    """Notes (milliseconds, what) and the errors that the supervisor hears."""

    def __init__(self) -> None:
        self.notes: list[tuple[int, str]] = []
        self.errors: list[tuple[str, str]] = []
        self.scheduler = Scheduler(lambda name, error: self.errors.append((name, str(error))))

    def note(self, what: str) -> None:
        self.notes.append((round(asyncio.get_running_loop().time() * 1000), what))


def test_a_periodic_job_keeps_to_its_grid() -> None:
    async def scenario() -> None:
        diary = Diary()
        diary.scheduler.every("tick", 100, lambda: diary.note("tick"))
        diary.scheduler.every("late", 200, lambda: diary.note("late"), delay_ms=50)
        await asyncio.sleep(0.475)
        await diary.scheduler.stop()
        await asyncio.sleep(1)

        ticks = [(at, "tick") for at in (100, 200, 300, 400)]
        lates = [(at, "late") for at in (50, 250, 450)]
        assert diary.notes == sorted(ticks + lates)

    run(scenario())


def test_a_one_shot_job_runs_once_and_frees_its_name() -> None:
    async def scenario() -> None:
        diary = Diary()
        diary.scheduler.once("hello", 30, lambda: diary.note("hello"))
        assert diary.scheduler.jobs == ["hello"]
        await asyncio.sleep(0.1)
        assert diary.scheduler.jobs == []
        diary.scheduler.once("hello", 0, lambda: diary.note("again"))
        await asyncio.sleep(0.1)
        await diary.scheduler.stop()

        assert diary.notes == [(30, "hello"), (100, "again")]

    run(scenario())


async def test_a_stop_waits_for_the_worker_of_a_job() -> None:
    """What the thread has in hand, a file above all, must not be taken from under it."""
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait(5)
        ended.set()

    async def job() -> None:
        await in_worker(work)

    diary = Diary()
    diary.scheduler.once("work", 0, job)
    while not begun.is_set():
        await asyncio.sleep(0)
    stopping = asyncio.create_task(diary.scheduler.stop())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not stopping.done()
    may_end.set()
    await stopping

    assert ended.is_set()
    assert diary.errors == []


def test_a_job_still_running_skips_its_turn() -> None:
    async def scenario() -> None:
        diary = Diary()

        async def slow() -> None:
            diary.note("begin")
            await asyncio.sleep(0.25)
            diary.note("end")

        diary.scheduler.every("slow", 100, slow)
        await asyncio.sleep(0.75)
        await diary.scheduler.stop()

        assert diary.notes == [
            (100, "begin"),
            (350, "end"),
            (400, "begin"),
            (650, "end"),
            (700, "begin"),
        ]

    run(scenario())


def test_an_error_goes_to_the_supervisor_and_the_next_turn_comes() -> None:
    async def scenario() -> None:
        diary = Diary()

        def fails() -> None:
            diary.note("fails")
            raise ValueError("no luck")

        async def fails_later() -> None:
            await asyncio.sleep(0.01)
            raise OSError("worse")

        diary.scheduler.every("plain", 100, fails)
        diary.scheduler.once("coroutine", 150, fails_later)
        await asyncio.sleep(0.25)
        await diary.scheduler.stop()

        assert diary.notes == [(100, "fails"), (200, "fails")]
        assert diary.errors == [("plain", "no luck"), ("coroutine", "worse"), ("plain", "no luck")]

    run(scenario())


def test_cancel_ends_the_run_and_the_turns() -> None:
    async def scenario() -> None:
        diary = Diary()

        async def endless() -> None:
            diary.note("begin")
            await asyncio.Event().wait()

        diary.scheduler.every("endless", 100, endless)
        await asyncio.sleep(0.15)
        assert repr(diary.scheduler) == "<Scheduler jobs=['endless'] running=['endless']>"
        assert diary.scheduler.cancel("endless")
        assert not diary.scheduler.cancel("endless")
        diary.scheduler.every("endless", 100, endless)
        await asyncio.sleep(0.15)
        await diary.scheduler.stop()

        assert diary.notes == [(100, "begin"), (250, "begin")]
        assert diary.errors == []

    run(scenario())


def test_a_threaded_job_runs_off_the_loop_and_stop_waits_for_it() -> None:
    async def scenario() -> None:
        diary = Diary()
        loop_thread = threading.get_ident()
        began = threading.Event()
        may_end = threading.Event()
        threads: list[int] = []

        def blocking() -> None:
            began.set()
            may_end.wait()
            threads.append(threading.get_ident())

        diary.scheduler.once("blocking", 0, blocking, threaded=True)
        while not began.is_set():
            await asyncio.sleep(0)
        stopping = asyncio.ensure_future(diary.scheduler.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        may_end.set()
        await stopping

        assert threads
        assert threads[0] != loop_thread

    run(scenario())


def test_names_are_unique_and_nothing_is_added_after_stop() -> None:
    async def scenario() -> None:
        diary = Diary()
        diary.scheduler.once("a", 10, lambda: None)
        with pytest.raises(AssertionError, match="already"):
            diary.scheduler.every("a", 10, lambda: None)
        await diary.scheduler.stop()
        with pytest.raises(AssertionError, match="after stop"):
            diary.scheduler.once("b", 10, lambda: None)

    run(scenario())
