"""Ranges of records merged, against a table of the records."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.coordinator.share.batches import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    FEW,
    NO_OFFSET,
    StateBatch,
    merged,
    merged_into,
)

STATES = (AVAILABLE, ACKNOWLEDGED, ARCHIVED)
BATCHES = st.lists(
    st.builds(
        lambda first, length, state, count: StateBatch(first, first + length, state, count),
        st.integers(0, 20),
        st.integers(0, 8),
        st.sampled_from(STATES),
        st.integers(0, 3),
    ),
    max_size=7,
)


@given(batches=BATCHES, start=st.sampled_from((NO_OFFSET, 0, 5, 9, 40)))
def test_the_greater_count_and_the_later_state_count(batches: list[StateBatch], start: int) -> None:
    told = [
        (offset, batch.delivery_count, batch.state)
        for batch in batches
        for offset in range(max(batch.first, start), batch.last + 1)
    ]
    expected = {
        offset: max((count, state) for one, count, state in told if one == offset)
        for offset in {offset for offset, _, _ in told}
    }
    result = merged(batches, start)

    found = {
        offset: (batch.delivery_count, batch.state)
        for batch in result
        for offset in range(batch.first, batch.last + 1)
    }
    assert found == expected
    assert sum(batch.last - batch.first + 1 for batch in result) == len(found)
    for before, after in pairwise(result):
        assert before.last < after.first
        assert before[2:] != after[2:] or before.last + 1 < after.first


@given(batches=BATCHES, cut=st.integers(0, 7), start=st.sampled_from((NO_OFFSET, 5)))
def test_the_order_of_writes_does_not_matter(
    batches: list[StateBatch], cut: int, start: int
) -> None:
    early = merged(batches[:cut], start)

    assert merged([*early, *batches[cut:]], start) == merged(batches, start)
    assert merged([*reversed(batches)], start) == merged(batches, start)


@given(
    known=BATCHES,
    new=BATCHES,
    start=st.sampled_from((NO_OFFSET, 0, 5, 9, 30)),
    before=st.sampled_from((NO_OFFSET, 0, 5)),
    settled=st.integers(0, 70),
)
def test_few_are_merged_into_many_as_all_are(
    known: list[StateBatch], new: list[StateBatch], start: int, before: int, settled: int
) -> None:
    """Some every other record behind them, so that there are many."""
    odd = [StateBatch(2 * n, 2 * n, ACKNOWLEDGED, 1) for n in range(5, 5 + settled)]
    early = merged([*known, *odd], min(before, start))

    assert merged_into(early, new, start) == merged([*early, *new], start)


def test_records_are_acknowledged_one_by_one_without_looking_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = 0

    def counted(some: list[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
        nonlocal looked_at
        looked_at += len(some)
        return merged(some, start_offset)

    monkeypatch.setattr("ottla.broker.coordinator.share.batches.merged", counted)
    batches: tuple[StateBatch, ...] = ()
    count = 2000
    for offset in (*range(0, count, 2), *range(1, count, 2)):
        batches = merged_into(batches, [StateBatch(offset, offset, ACKNOWLEDGED, 1)], 0)

    assert batches == (StateBatch(0, count - 1, ACKNOWLEDGED, 1),)
    assert looked_at <= 3 * count + FEW**2
