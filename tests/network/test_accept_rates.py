"""How many connections a broker and its listeners take in, in virtual time."""

from __future__ import annotations

import random

import pytest

from ottla.broker.network.accept_rates import UNLIMITED, AcceptRates

WINDOW_MS = 1000
BACKLOG = 50
INSIDE, OUTSIDE, OTHER = "INSIDE", "OUTSIDE", "OTHER"


def _rates(
    broker: int = UNLIMITED, *, windows: int = 11, apart: str | None = None, **listeners: int
) -> AcceptRates:
    rates = AcceptRates(window_ms=WINDOW_MS, window_count=windows, waiting_max=BACKLOG)
    rates.update(broker, {INSIDE: UNLIMITED, OUTSIDE: UNLIMITED, **listeners}, apart=apart)
    return rates


def _at_once(rates: AcceptRates, listener: str, now_ms: int = 0) -> int:
    """How many of a hundred do not wait."""
    return sum(rates.take(listener, now_ms) == 0 for _ in range(100))


def test_kafkas_defaults_limit_nothing() -> None:
    rates = _rates()

    assert not rates.enabled
    assert _at_once(rates, OUTSIDE) == 100


def test_a_quiet_listener_takes_ten_windows_worth_and_then_each_in_its_turn() -> None:
    rates = _rates(OUTSIDE=4)
    assert [rates.take(OUTSIDE, 0) for _ in range(43)] == [0] * 40 + [250, 500, 750]

    assert rates.take(OUTSIDE, 600) == 400
    assert rates.take(OUTSIDE, 2_000) == 0
    assert _at_once(rates, INSIDE) == 100


def test_as_many_wait_as_the_backlog_holds_and_who_is_refused_pays_nothing() -> None:
    rates = _rates(windows=2, OUTSIDE=10)
    waits = [rates.take(OUTSIDE, 0) for _ in range(10 + BACKLOG)]
    assert waits[-1] == BACKLOG * 100
    assert [rates.take(OUTSIDE, at_ms) for at_ms in (0, 50, 101, 101)] == [None, None, 4_999, None]


def test_the_rate_of_the_broker_is_for_all_listeners_but_the_brokers_own() -> None:
    shared = _rates(10, windows=2)
    assert _at_once(shared, INSIDE) == 10
    assert _at_once(shared, OUTSIDE) == 0

    rates = _rates(10, windows=2, apart=INSIDE, OUTSIDE=4)
    assert _at_once(rates, INSIDE) == 100
    assert _at_once(rates, OUTSIDE) == 4
    assert _at_once(rates, OTHER) == 0, "who waits at one listener counts for the broker, too"


def test_the_longer_wait_counts() -> None:
    rates = _rates(10, windows=2, OUTSIDE=5)
    waits = [rates.take(OUTSIDE, 0) for _ in range(12)]

    assert waits == [0] * 5 + [200, 400, 600, 800, 1_000, 1_200, 1_400]
    assert rates.take(INSIDE, 0) == 300


def test_a_rate_of_0_lets_one_in_for_each_window() -> None:
    rates = _rates(OUTSIDE=0)

    assert [rates.take(OUTSIDE, at_ms) for at_ms in (0,) * 12] == [0] * 10 + [1_000, 2_000]


def test_what_accounts_owe_stays_when_a_rate_changes_and_goes_with_it() -> None:
    rates = _rates(windows=2, OUTSIDE=10)
    waits = [rates.take(OUTSIDE, 0) for _ in range(30)]
    assert waits[-1] == 2_000
    rates.update(UNLIMITED, {OUTSIDE: 100}, apart=None)
    assert rates.take(OUTSIDE, 0) == 210

    rates.update(UNLIMITED, {OUTSIDE: UNLIMITED}, apart=None)
    rates.update(UNLIMITED, {OUTSIDE: 100}, apart=None)
    assert rates.take(OUTSIDE, 0) == 0


@pytest.mark.parametrize("seed", range(5))
def test_in_any_thirty_seconds_the_rate_is_kept_but_for_what_was_saved(seed: int) -> None:
    rng = random.Random(seed)
    rates = _rates(windows=3, OUTSIDE=7)
    now_ms = 0
    served: list[int] = []
    while now_ms < 120_000:
        now_ms += rng.randrange(200)
        wait_ms = rates.take(OUTSIDE, now_ms)
        if wait_ms is not None:
            served.append(now_ms + wait_ms)

    assert served == sorted(served), "first come, first served"
    for begin_ms in range(0, 90_000, 1_000):
        count = sum(begin_ms <= at_ms < begin_ms + 30_000 for at_ms in served)
        assert 7 * 30 - 1 <= count <= 7 * 30 + 15
