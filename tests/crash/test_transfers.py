"""The check of transfers sees every fault that is planted in the accounts."""

from __future__ import annotations

import pytest

from tests.crash.transfers import Account, Outcome, Transfer, complaints

WRITER = "transfers-0"
TRANSFERS = [
    Transfer((0, 1), Outcome.COMMITTED),
    Transfer((1, 2), Outcome.NOT_COMMITTED),
    Transfer((2, 0), Outcome.UNKNOWN),
]


def _accounts(numbers: list[list[int]]) -> list[Account]:
    return [[(WRITER, number) for number in account] for account in numbers]


def test_another_writers_transfers_are_its_own() -> None:
    assert complaints("transfers-1", [], _accounts([[0], [0], []])) == []


@pytest.mark.parametrize("found", [[[0], [0], []], [[0, 2], [0], [2]]])
def test_accounts_that_balance_are_not_complained_about(found: list[list[int]]) -> None:
    assert complaints(WRITER, TRANSFERS, _accounts(found)) == []


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ([[], [], []], "transfers-0 0, committed"),
        ([[0], [], []], "transfers-0 0, committed"),
        ([[0, 0], [0], []], "transfers-0 0, committed"),
        ([[0], [0, 1], [1]], "transfers-0 1, not committed"),
        ([[0, 2], [0], []], "transfers-0 2, unknown"),
        ([[2, 0], [0], [2]], "out of order"),
    ],
)
def test_a_planted_fault_is_seen(found: list[list[int]], word: str) -> None:
    assert word in "\n".join(complaints(WRITER, TRANSFERS, _accounts(found)))
