"""A few seeds of the simulation, and bugs planted to see that it finds them."""

from __future__ import annotations

import pytest

from ottla.broker.coordinator.group import commits
from ottla.broker.coordinator.group.classic import ClassicGroup
from ottla.broker.coordinator.outcome import Outcome
from ottla.protocol.errors import ErrorCode
from tests.coordinator import simulation

SEEDS = 40
SEEDS_WITH_A_BUG = 100


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_invariant_breaks(seed: int) -> None:
    simulation.run_seed(seed)


def test_one_seed_is_one_story() -> None:
    first, second = simulation.run_seed(7), simulation.run_seed(7)

    assert first.story == second.story
    assert first.lone.records == second.lone.records


def _run_seeds() -> None:
    for seed in range(SEEDS_WITH_A_BUG):
        simulation.run_seed(seed)


def _found(match: str) -> None:
    """Some seed breaks the invariant."""
    with pytest.raises(AssertionError, match=match):
        _run_seeds()


def test_answers_before_the_sync_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def perform(self: simulation.SyncedLate, outcome: Outcome) -> None:
        self.told += outcome.told
        self._waiting.append((outcome.records, []))
        for answer in (*outcome.answers, *outcome.answers_now):
            answer.leave()

    often = simulation.Faults(
        pause=60, crash=60, leave=60, lost_answer=0, broker_crash=200, sync_ms=500
    )
    monkeypatch.setattr(simulation.Faults, "drawn", lambda rng: often)
    monkeypatch.setattr(simulation.SyncedLate, "_perform", perform)

    _found("G2|G1")


def test_commits_of_strangers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "_check_commit", lambda *_: ErrorCode.NONE)

    _found("G3")


def test_a_group_that_never_completes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassicGroup, "all_joined", False)

    _found("G4")
