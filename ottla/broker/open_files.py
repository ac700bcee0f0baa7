"""How the files that the process may have open are shared among those who open them.

| part | for |
|---|---|
| a quarter | segments that logs keep open (`descriptors.py`); more are opened for a moment |
| a sixteenth | connections that wait to be closed (`network/waiting_room.py`) |
| RESERVED | the metadata log, indexes, checkpoints, work under way, what libraries open |
| the rest | connections, each of which has two |

So who connects can leave no log without a descriptor, nor the other way round (row 39 of the
bad-input table).
"""

from __future__ import annotations

HELD_SHARE = 4
WAITING_SHARE = 16
WAITING_MAX = 1000
"""Each waits for a window of the quota, which is a second. An address that opens more than that is
no client, and is not slowed down by waiting."""
RESERVED = 64
FEW_CONNECTIONS = 100
"""With fewer than these whoever starts the broker is told at the start."""
WHAT_TO_DO = "raise the limit on open files: ulimit -n, or LimitNOFILE= of a systemd unit"


def held_max(open_max: int) -> int:
    """Files that logs may keep open, of so many that the process may open."""
    return open_max // HELD_SHARE


def waiting_max(open_max: int) -> int:
    """Connections that may wait to be closed."""
    return min(WAITING_MAX, open_max // WAITING_SHARE)


def connections_max(open_max: int) -> int:
    """Connections that may be served; one at least, whatever is left."""
    left = open_max - held_max(open_max) - waiting_max(open_max) - RESERVED
    return max(1, left // 2)
