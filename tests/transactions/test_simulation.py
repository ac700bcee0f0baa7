"""A few seeds of the simulation, and bugs planted to see that it finds them."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.coordinator.group.offsets import Offsets
from ottla.broker.coordinator.outcome import Outcome
from ottla.broker.coordinator.transaction import shard
from ottla.broker.coordinator.transaction.markers import Markers
from ottla.broker.coordinator.transaction.shard import TransactionShard
from ottla.broker.coordinator.transaction.states import ENDING
from ottla.broker.handlers.enlisting import Enlisting
from ottla.broker.log.log import Log
from ottla.broker.log.producer_state import ProducerState
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.transactions import simulation

SEEDS = 30
SEEDS_WITH_A_BUG = 40


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_invariant_breaks(seed: int) -> None:
    simulation.run_seed(seed, rounds=1)


def test_one_seed_is_one_story() -> None:
    first, second = simulation.run_seed(7, rounds=1), simulation.run_seed(7, rounds=1)

    assert first.story == second.story


def _run_seeds() -> None:
    for seed in range(SEEDS_WITH_A_BUG):
        simulation.run_seed(seed, rounds=1)


def _found(match: str) -> None:
    """Some seed breaks the invariant."""
    with pytest.raises(AssertionError, match=match):
        _run_seeds()


def test_a_zombie_that_is_heard_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(self: TransactionShard, asker: shard.Asker, outcome: Outcome) -> Any:
        transaction = self._known(asker.transactional_id)
        if transaction.state in ENDING:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return transaction

    monkeypatch.setattr(TransactionShard, "_own", own)

    _found("T4")


def test_a_marker_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    send = Markers.send

    def only_first(self: Markers, due: shard.MarkersDue, *rest: Any, **named: Any) -> None:
        send(self, due._replace(places=due.places[:1]), *rest, **named)

    monkeypatch.setattr(Markers, "send", only_first)

    _found("T3")


def test_what_is_written_without_a_question_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def admit(self: Enlisting, asker: Any, wanted: list[Any], *, adds: bool) -> None:
        for _, then in wanted:
            then(ErrorCode.NONE)

    monkeypatch.setattr(Enlisting, "admit", admit)

    _found("T3|T4")


@pytest.mark.interpreted
def test_aborted_records_that_are_not_named_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "aborted_in", lambda self, offset, found: [])

    _found("T2")


def test_aborted_offsets_that_count_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    end = Offsets.end_transaction

    def commit(self: Offsets, producer_id: int, *, is_commit: bool) -> None:
        end(self, producer_id, is_commit=True)

    monkeypatch.setattr(Offsets, "end_transaction", commit)

    _found("T8")


def test_an_epoch_that_is_not_raised_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newer protocol without what it is about: delayed requests meet the next transaction."""
    decide = TransactionShard._decide

    def keep(self: TransactionShard, *rest: Any, **named: Any) -> Any:
        return decide(self, *rest, **{**named, "is_newer": False, "fences": False})

    monkeypatch.setattr(TransactionShard, "_decide", keep)

    _found("T1|T2|T3|T4|I1")


@pytest.mark.interpreted
def test_batches_that_are_written_twice_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerState, "_find_repeated", lambda *_: None)

    _found("I1")
