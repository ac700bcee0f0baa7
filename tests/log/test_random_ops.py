"""The random operations in their short form, and a proof that they see what goes wrong.

`make model` is the long form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.log import recovery
from ottla.broker.log.flush import FlushTicket
from ottla.broker.log.log import Log
from ottla.broker.log.offset_index import OffsetIndex
from ottla.broker.log.producer_state import ProducerState
from ottla.broker.log.segment import Segment
from ottla.broker.log.segments import Segments
from ottla.broker.log.time_index import TimeIndex
from tests.log.random_ops import live, main, shrink

LIVES = 40
STEPS = 400


def test_a_short_run_finds_no_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "7", "--operations", "1500"]) == 0

    assert "seed 7: 1500 operations in " in capsys.readouterr().out


class _AnyCrc(int):
    """Equal to every other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def _believe_every_crc(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "crc32c", lambda data: _AnyCrc())


def _count_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Segments, "count_synced", lambda self, count: count)


def _idle(*wheres: tuple[type, str]) -> Callable[[pytest.MonkeyPatch], None]:
    """Methods that do nothing."""

    def nothing(*_arguments: Any, **_named: Any) -> None: ...

    def plant(patch: pytest.MonkeyPatch) -> None:
        for where, name in wheres:
            patch.setattr(where, name, nothing)

    return plant


PLANTED: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "recovery keeps a torn batch": _believe_every_crc,
    "truncation forgets the indexes": _idle(
        (OffsetIndex, "truncate_to"), (TimeIndex, "truncate_to")
    ),
    "a flush syncs nothing": _idle((FlushTicket, "sync")),
    "recovered tails are not synced": _idle((Segment, "rewrite")),
    "retention forgets the log start": _idle((Log, "_start_at")),
    "the last stable offset stays where it is": _idle((Log, "_find_stable")),
    "a clean stop syncs nothing": _idle((Log, "_sync_files")),
    "aborted transactions are not known to a start": _idle((ProducerState, "add_header")),
    "retention waits for no sync": _count_all,
}


@pytest.mark.interpreted
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[bug](monkeypatch)

    assert any(live(3, life, range(STEPS))[1] is not None for life in range(LIVES))


def test_a_failure_is_shrunk_and_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    PLANTED["a flush syncs nothing"](monkeypatch)
    assert main(["--seed", "3", "--operations", "10000"]) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("reproduce: python -m tests.log.random_ops --seed 3 --life ")
    words = told.removeprefix("reproduce: python -m tests.log.random_ops ").split()

    assert main(words) == 1
    life, steps = int(words[3]), [int(one) for one in words[5].split(",")]
    assert len(steps) < 30
    assert shrink(3, life, steps, 1.0) == steps
