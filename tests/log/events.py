"""Events kept in a list, for tests that assert what was told."""

from __future__ import annotations

from typing import Any


class RecordedEvents:
    """An ottla.broker.ports.Events that remembers."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, dict[str, Any]]] = []

    @property
    def names(self) -> list[str]:
        return [event for _, event, _ in self.told]

    def fields(self, event: str) -> dict[str, Any]:
        """Of the last event of that name."""
        return next(fields for _, name, fields in reversed(self.told) if name == event)

    def is_enabled_for(self, level: int) -> bool:
        return True

    def debug(self, event: str, **fields: Any) -> None:
        self.told.append(("debug", event, fields))

    def info(self, event: str, **fields: Any) -> None:
        self.told.append(("info", event, fields))

    def warning(self, event: str, **fields: Any) -> None:
        self.told.append(("warning", event, fields))

    def error(self, event: str, **fields: Any) -> None:
        self.told.append(("error", event, fields))
