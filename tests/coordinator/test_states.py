"""The tables are whole, and a group keeps to them."""

from __future__ import annotations

from itertools import product

import pytest

from ottla.broker.coordinator.group.classic import ClassicGroup
from ottla.broker.coordinator.group.states import (
    ON_COMMIT,
    ON_HEARTBEAT,
    ON_REJOIN,
    ON_SYNC,
    TRANSITIONS,
    State,
)

LIVE = set(State) - {State.DEAD}
ALLOWED = {
    (State.EMPTY, State.PREPARING_REBALANCE),
    (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE),
    (State.PREPARING_REBALANCE, State.EMPTY),
    (State.COMPLETING_REBALANCE, State.STABLE),
    (State.COMPLETING_REBALANCE, State.PREPARING_REBALANCE),
    (State.STABLE, State.PREPARING_REBALANCE),
} | {(state, State.DEAD) for state in LIVE}


def test_every_state_has_its_cell_in_every_table() -> None:
    assert set(TRANSITIONS) == set(State)
    for table in (ON_HEARTBEAT, ON_SYNC, ON_COMMIT, ON_REJOIN):
        assert set(table) == LIVE
    assert all(set(cell) == {True, False} for cell in ON_REJOIN.values())


@pytest.mark.parametrize(("before", "after"), list(product(State, State)))
def test_a_group_makes_no_other_step(before: State, after: State) -> None:
    group = ClassicGroup("g", 0)
    group.state = before
    if (before, after) in ALLOWED:
        group.become(after, 7)

        assert (group.state, group.state_timestamp_ms) == (after, 7)
    else:
        with pytest.raises(AssertionError):
            group.become(after, 7)
