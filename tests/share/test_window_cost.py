"""What is acknowledged record by record does not cost by all the records in hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.share.runs import Line, Run
from ottla.broker.share.window import (
    ACCEPT,
    RELEASE,
    Acknowledgement,
    Found,
    Limits,
    Window,
    Wish,
)

LIMITS = Limits()
COUNT = 2000
PER_RECORD_MAX = 4


class _Looks:
    """How many runs of lines were looked at one by one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        plain = Line.__iter__

        def counted(line: Line) -> Iterator[Run]:
            for run in plain(line):
                self.count += 1
                yield run

        monkeypatch.setattr(Line, "__iter__", counted)


def _acquired(found: list[Found]) -> Window:
    window = Window(0)
    window.acquire("a", found, Wish(COUNT), LIMITS, read_from=0, now_ms=0)
    return window


@pytest.mark.parametrize("kind", [ACCEPT, RELEASE])
def test_a_batch_acknowledged_in_any_order_is_not_walked_through_each_time(
    monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    window = _acquired([Found(0, COUNT - 1)])
    looks = _Looks(monkeypatch)
    for offset in (*range(1, COUNT, 2), *range(0, COUNT, 2)):
        said = [Acknowledgement(offset, offset, [kind])]
        transition = window.acknowledge("a", said, LIMITS, now_ms=0)
        assert window.settled_count >= 0
        window.complete(transition, LIMITS, is_written=True, now_ms=0)
        assert window.has_room(LIMITS) == (kind == RELEASE or window.start > 0)

    assert window.start == (COUNT if kind == ACCEPT else 0)
    assert looks.count <= PER_RECORD_MAX * COUNT


def test_single_records_are_acquired_again_without_a_look_at_all_batches_for_each() -> None:
    """Every batch that is compared is counted; there are as many as records."""
    compared = 0

    class Counted(list[Found]):
        def __iter__(self) -> Iterator[Found]:
            nonlocal compared
            for one in list.__iter__(self):
                compared += 1
                yield one

        def __getitem__(self, index: Any) -> Any:
            nonlocal compared
            compared += 1
            return list.__getitem__(self, index)

    found = Counted(Found(offset, offset) for offset in range(COUNT))
    window = _acquired(found)
    said = [Acknowledgement(offset, offset, [RELEASE]) for offset in range(0, COUNT, 2)]
    transition = window.acknowledge("a", said, LIMITS, now_ms=0)
    window.complete(transition, LIMITS, is_written=True, now_ms=0)
    compared = 0

    acquired = window.acquire("b", found, Wish(COUNT), LIMITS, read_from=0, now_ms=0)

    assert len(acquired) == COUNT // 2
    assert compared <= 20 * COUNT
