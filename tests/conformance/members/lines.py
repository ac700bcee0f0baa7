"""What a member is told and what it tells.

    MEMBER BOOTSTRAP TOPIC GROUP INSTANCE PROTOCOL

It subscribes, as the static member INSTANCE unless that is "-", from the earliest record on, and
commits what it has read before it says so. By the PROTOCOL "classic" its session is six seconds
(Java's 20); by "consumer" (KIP-848), which not every client has, that is the broker's business. On
SIGTERM it closes its consumer, which leaves the group. Each line is JSON, with the time in
milliseconds:

    {"t": 1, "event": "assigned", "partitions": [0, 1]}    these came to be its own
    {"t": 2, "event": "revoked", "partitions": [1]}        these are not its own any more
    {"t": 3, "event": "read", "at": [[0, 17], [0, 18]]}    partition and offset, committed
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

SESSION_MS = 6_000
HEARTBEAT_MS = 500
POLL_S = 0.2


class Arguments(NamedTuple):
    bootstrap: str
    topic: str
    group: str
    instance: str | None
    is_classic: bool


class Stopped(Exception):
    """SIGTERM: leave."""


def arguments() -> Arguments:
    """Reads the command line, and turns SIGTERM into `Stopped`."""

    def stop(_number: int, _frame: object) -> None:
        raise Stopped

    signal.signal(signal.SIGTERM, stop)
    bootstrap, topic, group, instance, protocol = sys.argv[1:]
    static = None if instance == "-" else instance
    return Arguments(bootstrap, topic, group, static, protocol == "classic")


def assigned(partitions: Iterable[int]) -> None:
    _tell({"event": "assigned", "partitions": sorted(partitions)})


def revoked(partitions: Iterable[int]) -> None:
    _tell({"event": "revoked", "partitions": sorted(partitions)})


def read(at: list[tuple[int, int]]) -> None:
    _tell({"event": "read", "at": at})


def _tell(line: dict[str, object]) -> None:
    print(json.dumps({"t": round(time.time() * 1000), **line}), flush=True)
