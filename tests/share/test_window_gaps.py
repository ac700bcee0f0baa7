"""What compaction took out of the log beside what members still have in hand."""

from __future__ import annotations

import pytest

from ottla.broker.coordinator.share.batches import StateBatch
from ottla.broker.share.runs import RecordState
from ottla.broker.share.window import (
    DELIVERY_COUNT_MAX,
    Acquired,
    Found,
    Limits,
    Window,
    Wish,
)

AVAILABLE, ACKNOWLEDGED = int(RecordState.AVAILABLE), int(RecordState.ACKNOWLEDGED)
STATE = [
    (0, 4, AVAILABLE),
    (5, 9, ACKNOWLEDGED),
    (10, 14, AVAILABLE),
    (15, 20, ACKNOWLEDGED),
]


def _acquired(
    found: list[Found], state: list[tuple[int, int, int]]
) -> tuple[Window, list[Acquired]]:
    window = Window(0, [StateBatch(*one, 1) for one in state])
    taken = window.acquire("m", found, Wish(100), Limits(), read_from=0, now_ms=0)
    return window, taken


def test_batches_that_were_released_and_compacted_are_passed_over() -> None:
    found = [Found(5, 9), Found(15, 20), Found(21, 25)]

    window, taken = _acquired(found, STATE)

    assert taken == [Acquired(21, 25, 1)]
    assert window.start == 21


def test_nothing_may_be_left_behind_them() -> None:
    window, taken = _acquired([Found(5, 9), Found(15, 20)], STATE)

    assert taken == []
    assert (window.start, window.end) == (21, 21)


def test_a_gap_behind_an_aborted_batch_may_end_in_what_is_settled() -> None:
    found = [Found(0, 9, aborted=True), Found(15, 20), Found(21, 25)]
    state = [(0, 9, AVAILABLE), (10, 20, ACKNOWLEDGED)]

    window, taken = _acquired(found, state)

    assert taken == [Acquired(21, 25, 1)]
    assert window.start == 21


def test_a_delivery_count_goes_no_higher_than_an_answer_holds() -> None:
    window = Window(0, [StateBatch(0, 2, AVAILABLE, DELIVERY_COUNT_MAX)])

    taken = window.acquire("m", [Found(0, 2)], Wish(100), Limits(), read_from=0, now_ms=0)

    assert taken == [Acquired(0, 0, DELIVERY_COUNT_MAX)]


@pytest.mark.parametrize("records", [1, 100])
def test_what_another_member_holds_behind_a_gap_stays_its_own(records: int) -> None:
    found = [Found(5, 9), Found(15, 20), Found(21, 25)]
    window = Window(0, [StateBatch(*one, 1) for one in STATE])
    held = window.acquire("other", [Found(21, 25)], Wish(100), Limits(), read_from=21, now_ms=0)
    assert held == [Acquired(21, 25, 1)]

    taken = window.acquire("m", found, Wish(records), Limits(), read_from=0, now_ms=0)

    assert taken == []
    assert window.start == 21
