"""What is kept for the guest is nearly all free, and as many pages are held as keep it whole."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tests.bench import host_pages

SIZE = 64 << 20
LOOKS = 5
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")


def _held_pages() -> int:
    """Of mappings without huge pages, which are those of `kept` alone: whatever else the process
    allocates or gives back meanwhile does not count."""
    pages = resident_kib = 0
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        name, *values = line.split()
        if name == "Rss:":
            resident_kib = int(values[0])
        elif name == "VmFlags:" and "nh" in values:
            pages += resident_kib * 1024 // resource.getpagesize()
    return pages


@pytest.mark.skipif(not HUGE_PAGES.exists(), reason="knows its mappings by their advice")
def test_one_page_of_each_block_is_held() -> None:
    before = _held_pages()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    with host_pages.kept(SIZE):
        # A page that the kernel is moving to another place is not counted meanwhile.
        held = max(_held_pages() for _ in range(LOOKS)) - before
        touched = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    assert touched >= SIZE // resource.getpagesize()
    assert held == SIZE // host_pages.BLOCK
