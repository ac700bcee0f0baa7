"""A clock that stands still until it is told to move."""

from __future__ import annotations

# 2024-01-01T00:00:00Z: any round moment will do, but the same one in every run.
START_WALL_MS = 1_704_067_200_000


class SimClock:
    """Both times move together by `advance`; only wall time can jump, forwards or back."""

    __slots__ = ("_monotonic_ms", "_wall_ms")

    def __init__(self, *, wall_ms: int = START_WALL_MS, monotonic_ms: int = 0) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms

    def __repr__(self) -> str:
        return f"<SimClock monotonic={self._monotonic_ms}ms wall={self._wall_ms}ms>"

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def advance(self, ms: int) -> None:
        assert ms >= 0, "monotonic time does not go back"
        self._monotonic_ms += ms
        self._wall_ms += ms

    def jump_wall(self, ms: int) -> None:
        """Somebody set the machine's clock: wall time moves, monotonic time does not."""
        self._wall_ms += ms
