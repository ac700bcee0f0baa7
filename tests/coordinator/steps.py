"""What something costs, by counting and not by the clock: a test says the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps_of(what: Callable[[], object]) -> int:
    """How many lines of Python it runs, a loop's once for each time round."""
    count = 0

    def step(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return step

    former = sys.gettrace()
    sys.settrace(step)
    try:
        what()
    finally:
        sys.settrace(former)
    return count
