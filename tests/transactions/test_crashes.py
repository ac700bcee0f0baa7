"""The crash sweep, one crash at each call of the disk; and two bugs planted that it must find."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.broker.coordinator.outcome import Outcome
from ottla.broker.coordinator.runtime import Runner
from ottla.broker.coordinator.transaction.shard import TransactionShard
from ottla.broker.replication.replicas import Replicas
from ottla.broker.replication.waiters import CommitListener
from ottla.testing.platter import CrashMode
from tests.transactions.crashes import Sweep
from tests.transactions.steady import run


def _one_way(at: int) -> list[tuple[CrashMode, int]]:
    """By chance, but the same at each run: all modes have their turn."""
    return [(random.Random(at).choice(list(CrashMode)), at)]


def test_a_crash_before_any_call_tears_nothing() -> None:
    sweep = Sweep(_one_way)
    run(sweep.run())

    assert sweep.crashes == sweep.calls + 1 > 200
    assert sweep.completions > 20


def _found(match: str) -> None:
    """Some crash breaks the invariant."""
    sweep = Sweep(lambda at: [(CrashMode.SIZES, 0), (CrashMode.PREFIX, at)])
    with pytest.raises(AssertionError, match=match):
        run(sweep.run())


def test_markers_that_are_not_awaited_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(self: Replicas, of: object, *, listener: CommitListener, **named: Any) -> None:
        listener.committed(None)

    monkeypatch.setattr(Replicas, "await_durable", at_once)

    _found("T3|T1")


def test_a_decision_that_is_forgotten_at_a_start_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionShard, "loaded", lambda self, now: Outcome(now))

    _found("T3")


def test_answers_before_the_sync_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    perform = Runner.perform

    def hasty(self: Runner[Any], outcome: Outcome) -> None:
        outcome.answers_now += outcome.answers
        outcome.answers = []
        perform(self, outcome)

    monkeypatch.setattr(Runner, "perform", hasty)

    _found("T1|T8|T3")
