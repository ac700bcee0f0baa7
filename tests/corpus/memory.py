"""How much this process's memory rose above where it was, at its highest: the kernel's VmHWM."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")
RESET_PEAK = "5"

MIB = 1024 * 1024


def _resident(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB$", STATUS.read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


@contextmanager
def growth_at_most(limit: int) -> Iterator[None]:
    """Fails if the block made the process larger than that, if only for a moment.

    Where there is no /proc (not Linux) nothing is measured.
    """
    if not CLEAR.exists():
        yield
        return
    CLEAR.write_text(RESET_PEAK, encoding="ascii")
    before = _resident("VmRSS")
    yield
    grown = _resident("VmHWM") - before

    assert grown <= limit, f"grew by {grown / MIB:.1f} MiB, {limit / MIB:.1f} MiB allowed"
