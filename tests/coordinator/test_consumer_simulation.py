"""A few seeds of the simulation of consumer groups, and bugs planted to see that it finds them."""

from __future__ import annotations

import pytest

from ottla.broker.coordinator.group import commits, consumer_heartbeat, reconciling
from ottla.broker.coordinator.group.consumer import ConsumerGroup
from ottla.protocol.errors import ErrorCode
from tests.coordinator import consumer_simulation

SEEDS = 25
SEEDS_WITH_A_BUG = 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_invariant_breaks(seed: int) -> None:
    consumer_simulation.run_seed(seed)


def test_one_seed_is_one_story() -> None:
    first, second = consumer_simulation.run_seed(7), consumer_simulation.run_seed(7)

    assert first.story == second.story
    assert first.lone.records == second.lone.records


def _run_seeds() -> None:
    for seed in range(SEEDS_WITH_A_BUG):
        consumer_simulation.run_seed(seed)


def _found(match: str) -> None:
    """Some seed breaks the invariant."""
    with pytest.raises(AssertionError, match=match):
        _run_seeds()


def test_partitions_given_before_they_are_free_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerGroup, "owner_of", lambda *_: None)

    _found("G1")


def test_partitions_released_unasked_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciling, "_still_has", lambda *_: False)

    _found("G1|G5")


def test_commits_of_strangers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "_check_commit", lambda *_: ErrorCode.NONE)

    _found("G3")


def test_epochs_that_no_answer_may_miss_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member whose answer was lost asks again with the epoch that it knows."""
    monkeypatch.setattr(consumer_heartbeat, "_is_within", lambda *_: False)

    _found("G5")


def test_partitions_that_are_never_free_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerGroup, "owner_of", lambda *_: "somebody")

    _found("G4")
