"""What the connections of a broker count together; read by telemetry.

A module of its own because it is compiled: two of these move with every request.
"""

from __future__ import annotations


class NetworkCounters:
    """Counters of all connections; they only ever grow."""

    __slots__ = (
        "accepted",
        "closed_by_reason",
        "handler_errors",
        "received_bytes",
        "sent_bytes",
        "throttled_ms",
        "throttles",
    )

    def __init__(self) -> None:
        self.accepted = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.handler_errors = 0
        self.throttles = 0
        self.throttled_ms = 0
        self.closed_by_reason: dict[str, int] = {}

    def closed(self, reason: str) -> None:
        """Counts a closed connection; what stands behind a colon is not told apart."""
        reason = reason.partition(":")[0]
        self.closed_by_reason[reason] = self.closed_by_reason.get(reason, 0) + 1
