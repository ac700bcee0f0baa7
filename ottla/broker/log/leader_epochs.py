"""Which leader epoch wrote from which offset: leader-epoch-checkpoint.

The file is text: `0`, the count, then `epoch start-offset` a line, both ascending. A follower and
a consumer ask by it where their log leaves the leader's (KIP-101, KIP-320).

The file is a convenience: each batch names its epoch in its header. A new epoch is written with
the next flush, before the durable end moves over its first batch, so that what recovery does not
read again is in the file.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from ottla.broker.log.checkpoints import MalformedFile, format_rows, natural, parse_rows
from ottla.config.types import LONG_MAX

NO_EPOCH = -1
NO_OFFSET = -1


class LeaderEpochs:
    """The epochs of one log, oldest first. `dirty` while the file is behind."""

    __slots__ = ("_epochs", "_on_disk", "_starts", "_written", "dirty")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._on_disk = b""
        self._written: frozenset[int] = frozenset()
        self.dirty = False

    def __repr__(self) -> str:
        return f"<LeaderEpochs {dict(self.entries)}>"

    @classmethod
    def parse(cls, data: bytes) -> LeaderEpochs:
        """The content of a checkpoint file. Raises MalformedFile."""
        found = cls()
        for epoch, start in parse_rows(data, fields=2):
            found._epochs.append(natural(epoch))
            found._starts.append(natural(start))
        if not _ascends(found._epochs) or not _ascends(found._starts):
            raise MalformedFile("epochs and offsets do not ascend")
        found._holds(data)
        return found

    def unwritten(self, end_offset: int) -> bytes | None:
        """The file's new content, or None if it has it. An epoch without a record can wait."""
        rows = [f"{epoch} {start}" for epoch, start in self.entries if start < end_offset]
        data = format_rows(rows)
        return None if data == self._on_disk or not (rows or self._on_disk) else data

    def wrote(self, data: bytes) -> None:
        """The file holds `data` now."""
        self._holds(data)
        self.dirty = self.unwritten(LONG_MAX) is not None

    def _holds(self, data: bytes) -> None:
        self._on_disk = data
        self._written = frozenset(natural(epoch) for epoch, _ in parse_rows(data, fields=2))

    @property
    def first_unwritten(self) -> int:
        """Where the first epoch begins that the file does not name; LONG_MAX if it names all."""
        if not self.dirty:
            return LONG_MAX
        starts = [start for epoch, start in self.entries if epoch not in self._written]
        return min(starts, default=LONG_MAX)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        """The newest epoch, or -1."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """`epoch` writes from `start_offset` on. Entries that it contradicts go."""
        assert epoch >= 0
        assert start_offset >= 0
        if epoch <= self.latest and (not self._starts or start_offset >= self._starts[-1]):
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.dirty = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The newest epoch that is not above `epoch`, and where it ends; (-1, -1) if unknown.

        For an epoch below all that are known: that epoch, and the start of the first known one. Of
        the negative ones -1 alone is none, as in Kafka.
        """
        if epoch == NO_EPOCH or not self._epochs or epoch > self.latest:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        if above == 0:
            return epoch, self._starts[0]
        return self._epochs[above - 1], self._starts[above]

    def epoch_of(self, offset: int) -> int:
        """The epoch that wrote an offset, or -1."""
        above = bisect_right(self._starts, offset)
        return self._epochs[above - 1] if above else NO_EPOCH

    def truncate_to(self, end_offset: int) -> None:
        """Forgets the epochs that begin at or above an offset."""
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
            self.dirty = True

    def start_at(self, start_offset: int) -> None:
        """Forgets what lies below an offset; the epoch that wrote there begins there now."""
        below = bisect_right(self._starts, start_offset)
        if below and self._starts[0] < start_offset:
            del self._epochs[: below - 1], self._starts[: below - 1]
            self._starts[0] = start_offset
            self.dirty = True

    def clear(self) -> None:
        self.dirty = self.dirty or bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()


def _ascends(numbers: list[int]) -> bool:
    return all(low < high for low, high in pairwise(numbers))
