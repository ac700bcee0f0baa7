"""Memory of a virtual machine that its host takes back.

A page that is touched for the first time, or again after the host took it back, is the host's to
give, and the microseconds that it takes to are billed to whoever touches it: the same broker wrote
1 MB batches for 0.75 s of CPU per GB, or for 3.0, by what the file's pages were before. Blocks of
2 MiB are what a guest offers its host as soon as they are free (Linux's free page reporting). So
before the works memory is touched, and freed but for one page of each such block, which makes the
rest too small to be offered; the page cache takes the small pieces first.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

KEPT_BYTES_MAX = 4 << 30
"""More than any work that is judged by its CPU writes and reads ahead, twice."""
KEPT_SHARE = 0.5
"""At most, of what is available."""
CONTROL_GROUP = Path("/sys/fs/cgroup")
CONTROL_GROUP_FILES = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
BLOCK = 2 << 20
STEP = bytes(BLOCK)


@contextmanager
def kept(size: int | None = None) -> Iterator[None]:
    """Has so many bytes of free memory stay the guest's for the length of the block; without a
    number, what the works need. It holds a 512th of them itself."""
    size = _affordable() if size is None else size
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError):  # more than a limit of the process allows, or nothing at all
        yield
        return
    with memory:
        with suppress(OSError):  # a kernel without huge pages knows no such advice
            memory.madvise(mmap.MADV_NOHUGEPAGE)  # a part of a huge page is not freed
        for _ in range(size // BLOCK):
            memory.write(STEP)
        for start in range(0, size, BLOCK):
            memory.madvise(mmap.MADV_DONTNEED, start + mmap.PAGESIZE, BLOCK - mmap.PAGESIZE)
        yield


def _affordable() -> int:
    """Whole blocks; none where the system does not say what is available. All of it is touched
    before any of it is freed: what is freed early would only be touched again."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            kib = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return 0
    size = min(KEPT_BYTES_MAX, int(min(kib * 1024, _left_in_container()) * KEPT_SHARE))
    return size // BLOCK * BLOCK


def _left_in_container() -> float:
    """Bytes below the limit of the control group, of version 2 or 1."""
    for limit, usage in CONTROL_GROUP_FILES:
        with suppress(OSError, ValueError):  # there is none, or it is "max"
            most = int((CONTROL_GROUP / limit).read_text(encoding="ascii"))
            return most - int((CONTROL_GROUP / usage).read_text(encoding="ascii"))
    return float("inf")
