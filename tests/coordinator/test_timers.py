"""Deadlines by key in virtual time."""

from __future__ import annotations

import random

from ottla.broker.coordinator.timers import STALE_MAX, Timers


def test_what_is_due_comes_in_order_and_once() -> None:
    timers: Timers[str] = Timers()
    timers.set("b", 20)
    timers.set("a", 10)
    timers.set("c", 30)

    assert list(timers.take_due(9)) == []
    assert list(timers.take_due(20)) == ["a", "b"]
    assert list(timers.take_due(20)) == []
    assert timers.next_ms() == 30


def test_a_later_deadline_replaces_an_earlier_one() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.set("a", 50)

    assert list(timers.take_due(10)) == []
    assert timers.next_ms() == 50
    assert list(timers.take_due(50)) == ["a"]


def test_an_earlier_deadline_replaces_a_later_one() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 50)
    timers.set("a", 10)

    assert list(timers.take_due(10)) == ["a"]
    assert list(timers.take_due(100)) == []
    assert timers.next_ms() is None


def test_a_cancelled_one_is_never_due() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.cancel("a")
    timers.cancel("nobody")

    assert timers.deadline_ms("a") is None
    assert list(timers.take_due(100)) == []


def test_what_is_done_about_one_counts_for_those_behind_it() -> None:
    timers: Timers[str] = Timers()
    for key in ("first", "later", "cancelled", "last"):
        timers.set(key, 10)
    due = timers.take_due(10)

    assert next(due) == "first"
    timers.set("later", 11)
    timers.cancel("cancelled")
    timers.set("first", 10)
    assert list(due) == ["last"]
    assert list(timers.take_due(10)) == ["first"], "once more at the next time, or it never ends"
    assert list(timers.take_due(11)) == ["later"]


FAR_MS = 2**31 - 1
MANY = 1000


def queued(timers: Timers[int]) -> int:
    return int(repr(timers).partition("queued=")[2].split()[0])


def test_what_is_cancelled_does_not_stay_until_its_deadline() -> None:
    timers: Timers[int] = Timers()
    timers.set(-1, FAR_MS)
    for key in range(MANY):
        timers.set(key, FAR_MS + key)
        timers.cancel(key)

    assert queued(timers) <= 2 + STALE_MAX
    assert list(timers.take_due(2 * FAR_MS)) == [-1]


def test_nor_does_what_a_nearer_deadline_has_replaced() -> None:
    timers: Timers[int] = Timers()
    for now_ms in range(MANY):
        timers.set(0, FAR_MS + now_ms)
        timers.set(0, now_ms)
        assert list(timers.take_due(now_ms)) == [0]

    assert queued(timers) <= 2 + STALE_MAX
    assert list(timers.take_due(2 * FAR_MS)) == []


def test_against_a_plain_dictionary() -> None:
    """Whatever is set and cancelled in whatever order, what is due is what a dictionary says."""
    rng = random.Random(3)
    timers: Timers[int] = Timers()
    model: dict[int, int] = {}
    now_ms = 0
    for _ in range(5_000):
        key = rng.randrange(20)
        match rng.randrange(4):
            case 0 | 1:
                deadline_ms = now_ms + rng.choice((100, 10_000))
                deadline_ms -= rng.randrange(100)
                timers.set(key, deadline_ms)
                model[key] = deadline_ms
            case 2:
                timers.cancel(key)
                model.pop(key, None)
            case _:
                now_ms += rng.randrange(30)
                due = {one for one, deadline_ms in model.items() if deadline_ms <= now_ms}

                assert set(timers.take_due(now_ms)) == due
                for one in due:
                    del model[one]
        earliest = min(model.values(), default=None)
        next_ms = timers.next_ms()
        assert len(timers) == len(model)
        assert earliest is None or (next_ms is not None and next_ms <= earliest)
