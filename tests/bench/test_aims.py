"""Aims on medians look at all rounds at once, aims on p99 at each."""

from __future__ import annotations

from tests.bench.workload import Limit, Work, at_least, at_most


def test_a_median_forgives_one_bad_round() -> None:
    assert at_least(2).met([20.0, 21.0, 1.0], [10.0, 10.0, 10.0])
    assert not at_least(2).met([19.0, 19.0, 100.0], [10.0, 10.0, 10.0])
    assert at_most(0.5).met([5.0], [10.0])


def test_a_tail_must_be_better_in_four_of_five_rounds() -> None:
    theirs = [10.0] * 5

    assert at_most(0.5, tail=True).met([5.0, 5.0, 5.0, 5.0, 50.0], theirs)
    assert not at_most(0.5, tail=True).met([1.0, 1.0, 1.0, 6.0, 6.0], theirs)


def test_a_limit_needs_no_peer() -> None:
    assert Limit(64).met([63.0], [])
    assert not Limit(64).met([65.0], [])


def test_a_round_of_several_turns_is_their_mean() -> None:
    work = Work("waiting", "", lambda _server, _scale: {}, {"p99 ms": None}, turns=2)

    assert work.means([{"p99 ms": 3.0, "not shown": 1.0}, {"p99 ms": 5.0}]) == {"p99 ms": 4.0}
