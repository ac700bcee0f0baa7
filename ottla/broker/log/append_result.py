"""What an append answers."""

from __future__ import annotations


class AppendResult:
    """Where a batch stands in the log; of a duplicate, where the first one stands."""

    __slots__ = (
        "base_offset",
        "duplicate",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
    )

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        duplicate: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.duplicate = duplicate

    def __repr__(self) -> str:
        return f"<AppendResult {self.base_offset}-{self.last_offset} duplicate={self.duplicate}>"
