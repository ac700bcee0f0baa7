"""Nobody computes for a turn that is over while the next one is measured.

A JVM goes on compiling behind its turn: Kafka took 0.9 of a processor, of two, while Ottla's first
turn of 64 connections ran, 0.4 in the second and 0.25 in the third. Idle it takes 0.03 to 0.07.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol

QUIET_SHARE = 0.1
"""Of a processor, of all brokers together."""
LOOK_SECONDS = 0.25
QUIET_SECONDS_MAX = 20.0


class Computing(Protocol):
    def cpu_seconds(self) -> float: ...


def await_quiet(
    servers: Sequence[Computing],
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Returns when the brokers are idle, and says so if they are not in time."""
    started = then = now()
    spent = sum(server.cpu_seconds() for server in servers)
    while then - started < QUIET_SECONDS_MAX:
        sleep(LOOK_SECONDS)
        before, then = then, now()
        spent_before, spent = spent, sum(server.cpu_seconds() for server in servers)
        share = (spent - spent_before) / (then - before)
        if share <= QUIET_SHARE:
            return
    print(f"the brokers still take {share:.2f} of a processor, idle", file=sys.stderr)
