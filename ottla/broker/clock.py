"""The real clock."""

from __future__ import annotations

import time
from typing import Final

_NS_PER_MS: Final = 1_000_000
_monotonic_ns: Final = time.monotonic_ns
_time_ns: Final = time.time_ns


class SystemClock:
    """The machine's time, in whole milliseconds."""

    def monotonic_ms(self) -> int:
        return _monotonic_ns() // _NS_PER_MS

    def wall_ms(self) -> int:
        return _time_ns() // _NS_PER_MS
