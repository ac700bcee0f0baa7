"""Which logs get a waypoint, and when: what bounds the scan after a crash.

A turn (every WAYPOINT_INTERVAL_MS) writes waypoints for the logs that have much behind their last
one, in a worker; then it checkpoints the recovery points, and then it names the waypoints whose
offsets are synced by now. One that is not yet waits for the next turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from ottla.broker.log.flush import REFUSALS
from ottla.broker.log.log import Log
from ottla.broker.log.waypoints import WaypointTicket

# A second of writing is what a crash leaves to be scanned, with what is too little to be marked.
WAYPOINT_INTERVAL_MS = 1000

# So much behind its last waypoint gets a log a new one. The scan reads 30 MB/s at worst, with
# batches of one small record.
UNMARKED_BYTES_MAX = 1024 * 1024
# With so much behind the waypoints of all logs together, those with less get one as well, down to
# the lower bound, which many small logs stay below.
UNMARKED_BYTES_MAX_IN_ALL = 8 * 1024 * 1024
UNMARKED_BYTES_MIN = 64 * 1024
# Each costs the loop some 100 us, and a microsecond for each producer that its log knows. A log
# that knows more of them than a turn may pack gets no more: after a crash more of it is scanned.
WAYPOINTS_IN_A_TURN_MAX = 16
PRODUCERS_IN_A_TURN_MAX = 4000


def due_logs(logs: Iterable[Log]) -> list[Log]:
    """The logs to be marked in this turn, the longest unmarked tail first."""
    tails = [
        (tail, log)
        for log in logs
        if (tail := log.unmarked_bytes) >= UNMARKED_BYTES_MIN
        and len(log.producer_state.producers) <= PRODUCERS_IN_A_TURN_MAX
    ]
    least = UNMARKED_BYTES_MAX
    if sum(tail for tail, _ in tails) >= UNMARKED_BYTES_MAX_IN_ALL:
        least = UNMARKED_BYTES_MIN
    tails = [one for one in tails if one[0] >= least]
    tails.sort(key=lambda one: one[0], reverse=True)
    producers = accumulate(len(log.producer_state.producers) for _, log in tails)
    count = sum(one <= PRODUCERS_IN_A_TURN_MAX for one in producers)
    return [log for _, log in tails[: min(count, WAYPOINTS_IN_A_TURN_MAX)]]


def begin(log: Log) -> WaypointTicket | None:
    """A ticket for the log's end; None if there is none, or no room for one. Raises OSError."""
    try:
        return log.begin_waypoint()
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        return None


def write_all(tickets: Iterable[tuple[Log, WaypointTicket]]) -> list[tuple[Log, OSError]]:
    """Writes the tickets, in a worker; what failed, and not for want of room."""
    failed: list[tuple[Log, OSError]] = []
    for log, ticket in tickets:
        try:
            ticket.write()
        except OSError as error:
            if error.errno not in REFUSALS:
                failed.append((log, error))
    return failed
