"""The oracle of the crash test sees every fault that is planted in a log."""

from __future__ import annotations

import pytest

from tests.crash.oracle import Partition, complaints, doubled
from tests.crash.writers import Acknowledged, Journal

WRITER = "raw-0"


def _log(*counters: int) -> list[Partition]:
    return [{offset: (WRITER, counter) for offset, counter in enumerate(counters)}]


def _journal(count: int, *, exactly_once: bool = True) -> Journal:
    told = [Acknowledged(0, counter, counter) for counter in range(count)]
    return Journal(WRITER, "raw", exactly_once, sent=count, acknowledged=told)


def test_a_log_that_kept_its_word_is_not_complained_about() -> None:
    assert complaints([_journal(3)], "raw", _log(0, 1, 2)) == []


@pytest.mark.parametrize(
    ("log", "word"),
    [
        (_log(0, 1), "is missing"),
        (_log(0, 2, 1), "where ('raw-0', 1) is"),
        (_log(0, 1, 2, 2), "more than once"),
        (_log(0, 2, 1), "out of order"),
        ([{0: (WRITER, 0), 1: (WRITER, 1), 3: (WRITER, 2)}], "not dense"),
    ],
)
def test_a_planted_fault_is_seen(log: list[Partition], word: str) -> None:
    assert word in "\n".join(complaints([_journal(3)], "raw", log))


def test_a_record_that_was_never_answered_is_seen() -> None:
    journal = _journal(2)
    journal.sent = 3

    assert complaints([journal], "raw", _log(0, 1, 2)) == ["raw-0: 3 sent, 2 acknowledged"]


def test_a_plain_producer_may_double_and_is_counted() -> None:
    journal, log = _journal(2, exactly_once=False), _log(0, 1, 1)

    assert complaints([journal], "raw", log) == []
    assert doubled(journal, log) == 1
