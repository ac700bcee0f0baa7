"""The newest record of each key, which is all that a topic needs to hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.broker.coordinator.outcome import CoordinatorRecord


class LatestRecords:
    """Those of one shard, in the order in which they were written. A tombstone ends its key."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[tuple[Any, ...], CoordinatorRecord] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[CoordinatorRecord]:
        return iter(self._by_key.values())

    def __repr__(self) -> str:
        return f"<LatestRecords {len(self)}>"

    def take(self, record: CoordinatorRecord) -> None:
        """A record was written, or is replayed."""
        key = record.key
        identity = (type(key), *(getattr(key, name) for name in key.__schema__.declared))
        self._by_key.pop(identity, None)
        if record.value is not None:
            self._by_key[identity] = record
