"""Who holds descriptors that it could open again: the bound over all logs of the process.

Ten thousand partitions that were each written to once would hold ten thousand descriptors for
good, and connections need some, too. So who opens a file to keep it says so, and once a second the
loop asks those who opened theirs the longest ago to give them back. Opening again costs some
microseconds; between two such turns the bound may be passed.

A file with pages that are not synced stays open: once it is closed the kernel may forget that it
could not write them, and a sync after that would say yes. Its holder is told to be synced instead.

So does one that is pinned by an answer that its client does not read: to close it gives nothing
back, and who wants it next would open it once more. Where as many are pinned as may be held, an
answer has records of one partition more, and not of all that it was asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

RELEASE_INTERVAL_MS = 1000


class Holder(Protocol):
    @property
    def is_synced(self) -> bool:
        """Whether nothing is lost that only this descriptor could tell of."""

    @property
    def is_pinned(self) -> bool:
        """Whether somebody still sends from it, so that to release it closes nothing."""

    def release(self) -> None:
        """Closes what can be opened again; whoever still sends from it has pinned it."""


class Mapped(Protocol):
    def release_idle(self) -> bool:
        """Gives its map back, if nobody has used that since this was last asked; whether it has
        none."""


class HeldDescriptors:
    """The holders, oldest first, and how many files are `pinned`, held or not. `limit` is asked at
    each turn; workers may only call `hold` and `hold_map`.

    Maps of files are held until they have been idle for a turn. Nobody can tell whether a page of
    one is in memory; what is mapped anew is looked at before.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self.pinned = 0
        self._holders: dict[Holder, None] = {}
        self._mapped: dict[Mapped, None] = {}

    def __repr__(self) -> str:
        return f"<HeldDescriptors {len(self._holders)} of {self._limit()}, {self.pinned} pinned>"

    def __len__(self) -> int:
        return len(self._holders)

    def pins_left(self) -> int:
        """Files that may be pinned besides those that are."""
        return max(self._limit() - self.pinned, 0)

    def hold(self, holder: Holder) -> None:
        """It has opened a file, and keeps it."""
        self._holders[holder] = None

    def drop(self, holder: Holder) -> None:
        """It has given it back; one that holds nothing may say so, too."""
        self._holders.pop(holder, None)

    def hold_map(self, mapped: Mapped) -> None:
        """It has mapped a file, and uses that."""
        self._mapped[mapped] = None

    def release_surplus(self) -> int:
        """Lets the oldest give back what is above the limit; how many of them may not before they
        are synced. On the loop."""
        for mapped in list(self._mapped):
            if mapped.release_idle():
                self._mapped.pop(mapped, None)
        surplus = len(self._holders) - self._limit()
        unsynced = 0
        for holder in list(self._holders) if surplus > 0 else ():
            if not holder.is_synced:
                unsynced += 1
            elif holder.is_pinned:
                continue
            else:
                self.drop(holder)
                holder.release()
            surplus -= 1
            if not surplus:
                break
        return unsynced
