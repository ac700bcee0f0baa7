"""What the disk does to everybody is told apart from what a client does to its neighbour."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import disk_stalls
from tests.bench.disk_stalls import outside, watched


def test_what_a_stall_touches_is_left_out() -> None:
    before, into, within, out_of, around, after = (
        (0.0, 0.9),
        (0.9, 1.1),
        (1.2, 1.3),
        (1.9, 2.5),
        (0.5, 9.0),
        (2.0, 2.25),
    )

    left = outside([before, into, within, out_of, around, after], [(1.0, 2.0)])

    assert left == [0.9, 0.25]


def test_without_a_stall_all_are_kept() -> None:
    assert outside([(1.0, 1.5), (2.0, 4.0)], []) == [0.5, 2.0]


def test_a_sync_that_takes_long_is_a_stall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_stalls, "STALL_S", 0.0)
    monkeypatch.setattr(disk_stalls, "INTERVAL_S", 0.0)
    with watched(tmp_path) as stalls:
        while not stalls:
            pass

    assert all(end > begin for begin, end in stalls)
