"""What is kept for the guest is nearly all free, and as many pages are held as keep it whole."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest

from tests.bench import host_pages

SIZE = 64 << 20


def _resident_pages() -> int:
    """Exact, where `statm` is as of each processor's last look."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    kib = next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))
    return kib * 1024 // resource.getpagesize()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_one_page_of_each_block_is_held() -> None:
    before = _resident_pages()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    with host_pages.kept(SIZE):
        held = _resident_pages() - before
        touched = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    assert touched >= SIZE // resource.getpagesize()
    blocks = SIZE // host_pages.BLOCK
    assert blocks - 2 <= held < 20 * blocks
