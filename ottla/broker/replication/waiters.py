"""The purgatory: requests that wait for a partition to move.

Produce waits until its last offset is committed (visible, promise 2 of ARCHITECTURE.md); Fetch
waits until there is enough to read. Both are woken by the partition they wait for, and both have
a deadline that a sweep enforces for Produce and one timer for all of Fetch.
"""

from __future__ import annotations

from typing import Any, Protocol

from ottla.protocol.errors import ErrorCode


class CommitListener(Protocol):
    """A Produce answer in the making; `part` is its place in that answer."""

    def committed(self, part: Any) -> None: ...

    def failed(self, part: Any, code: ErrorCode) -> None: ...


class FetchWaiter(Protocol):
    """A parked Fetch. `advanced`: the partition has a new high watermark or last stable offset.
    `interrupted`: it was deleted, failed or changed its epoch, so the answer must be made now.
    `of_several`: it waits for more than one partition, and is told at the end of a turn of the loop
    that some of them have advanced."""

    @property
    def of_several(self) -> bool: ...

    def advanced(self) -> None: ...

    def interrupted(self) -> None: ...


class CommitWaiter:
    """One produced batch that waits until `last_offset` is visible."""

    __slots__ = ("deadline_ms", "last_offset", "listener", "part")

    def __init__(
        self, last_offset: int, listener: CommitListener, part: Any, deadline_ms: int
    ) -> None:
        self.last_offset = last_offset
        self.deadline_ms = deadline_ms
        self.listener = listener
        self.part = part
