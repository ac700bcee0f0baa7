"""What must not be cut off the metadata log: looked for before a start recovers it.

A recovery cuts a log at the first bad batch above its recovery point, which is that of the newest
snapshot here, an hour of changes ago. But each of those changes was on disk before it was answered.
So a bad batch is a torn tail, which may go, only where nothing sound lies behind it. Where
something does, or where the broker was stopped cleanly behind it, the disk has lost what it had
promised; and to cut there would take away topics, and give producer ids a second time. That is for
a person to decide: the start is refused, and nothing is changed.

A loss of power leaves no such thing: what is not on disk yet is one batch at most (the quorum's
`driver.py`). It stands here and not there because `ottla log` has to know of it, too.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from ottla.broker.log.batch_reader import BatchReader
from ottla.broker.log.checkpoints import CLEAN_SHUTDOWN_FILE, parent_of
from ottla.broker.log.offset_index import RELATIVE_OFFSET_MAX
from ottla.broker.log.segment import LOG_SUFFIX, SNAPSHOT_SUFFIX
from ottla.broker.ports import Disk

_WAY_OUT = (
    "Put the file back from a copy; or give up what cannot be read, and keep its bytes in a side"
    " file, by `ottla log repair {directory}`."
)
_WAY_OUT_OF_LOSS = (
    "Put it back from a copy; or give it up by `ottla log repair {directory}`, and go on without"
    " it."
)
_WAY_OUT_OF_GAP = "Put what is missing back from a copy, or move the files behind it away."

_METADATA_SNAPSHOT: Final = re.compile(r"(\d{20})-\d{10}\.checkpoint")


class MetadataLost(Exception):
    """A start would give up what was acknowledged; the text is a sentence for whoever starts it.

    `by_repair`: a repair of the directory gives it up, so that a start goes on.
    """

    def __init__(self, sentence: str, *, by_repair: bool) -> None:
        super().__init__(sentence)
        self.by_repair = by_repair


def check_whole(disk: Disk, directory: str) -> None:
    """Raises MetadataLost where a start would give up what was acknowledged, and OSError.

    What lies below the end of the newest metadata snapshot that has. To be called before the log
    is opened.
    """
    known = max(map(int, _METADATA_SNAPSHOT.findall("\n".join(disk.list(directory)))), default=0)
    bases = _offsets(disk, directory, LOG_SUFFIX)
    first = max((index for index, base in enumerate(bases) if base <= known), default=0)
    check = _Check(disk, directory, known)
    for index in range(first, len(bases)):
        check.take_segment(bases[index], bases[index + 1] if index + 1 < len(bases) else None)
    check.end(_clean_end(disk, directory))


def _clean_end(disk: Disk, directory: str) -> int:
    """Up to where the log is known to be durable, because the last stop was clean; 0 if it was not.

    Such a stop leaves a producer snapshot at the end of the log. The mark of the stop stays while
    a start is under way, which may append behind it: then that snapshot is still the last one.
    """
    if not disk.exists(f"{parent_of(directory)}/{CLEAN_SHUTDOWN_FILE}"):
        return 0
    return max(_offsets(disk, directory, SNAPSHOT_SUFFIX), default=0)


def _offsets(disk: Disk, directory: str, suffix: str) -> list[int]:
    names = [name.removesuffix(suffix) for name in disk.list(directory) if name.endswith(suffix)]
    return sorted(int(name) for name in names if len(name) == 20 and name.isdecimal())


class _Check:
    """A walk over the batches, as the recovery will do it."""

    def __init__(self, disk: Disk, directory: str, known: int) -> None:
        self._disk = disk
        self._directory = directory
        self._known = known
        self._expected: int | None = None
        # The first bad place behind which nothing sound was found yet.
        self._bad: tuple[str, int] | None = None

    def take_segment(self, base_offset: int, following: int | None) -> None:
        path = f"{self._directory}/{base_offset:020d}{LOG_SUFFIX}"
        limit = base_offset + RELATIVE_OFFSET_MAX + 1
        limit = limit if following is None else min(limit, following)
        file = self._disk.open(path)
        try:
            reader = BatchReader(file, file.size(), self._known)
            if self._is_lost_before(base_offset):
                if reader.find(0, base_offset, limit) is None:
                    return  # begun, and nothing in it came to disk
                self._refuse_gap(path, base_offset)
            self._expected = base_offset
            self._walk(path, reader, limit)
        finally:
            file.close()

    def end(self, clean_end: int) -> None:
        end = max(self._expected or 0, self._known)
        if end >= clean_end:
            return
        if self._bad is None:
            raise MetadataLost(
                f"{self._directory}: the metadata log ends at offset {end}, and the broker was"
                f" stopped cleanly when it ended at {clean_end}: what lay between is lost."
                f" {_WAY_OUT_OF_LOSS.format(directory=self._directory)}",
                by_repair=True,
            )
        self._refuse(*self._bad, f"up to {clean_end}, where the broker was stopped cleanly")

    def _walk(self, path: str, reader: BatchReader, limit: int) -> None:
        assert self._expected is not None
        position = 0
        while position < reader.size:
            found = reader.read(position, self._expected, limit)
            if found is not None:
                header, _ = found
                position += header.size
                self._expected = header.last_offset + 1
                continue
            behind = reader.find_behind(position, self._expected, limit)
            if behind is None:
                if self._bad is None:
                    self._bad = path, position
                if reader.is_whole(position) and self._expected >= self._known:
                    self._refuse(path, position, "that has a wrong offset and is sound otherwise")
                return
            offset = reader.first_offset_at(behind)
            assert offset is not None, (path, behind)
            if offset > self._known:
                self._bad = self._bad or (path, position)
                self._refuse(path, position, f"up to {offset}, where a sound one follows")
            position, self._expected = behind, offset

    def _is_lost_before(self, base_offset: int) -> bool:
        if self._expected is None or base_offset <= self._known:
            return False
        return self._bad is not None or base_offset > max(self._expected, self._known)

    def _refuse_gap(self, path: str, base_offset: int) -> NoReturn:
        if self._bad is not None:
            self._refuse(*self._bad, f"up to {base_offset}, where {path} follows")
        raise MetadataLost(
            f"{path}: the metadata log ends at offset {self._expected} before this file begins at"
            f" {base_offset}: what lies between is lost, and a start would do without this file,"
            f" too. {_WAY_OUT_OF_GAP}",
            by_repair=False,
        )

    def _refuse(self, path: str, position: int, extent: str) -> NoReturn:
        first = max(self._expected or 0, self._known)
        raise MetadataLost(
            f"{path}, byte {position}: there is no valid batch of the metadata from offset {first}"
            f" on, {extent}. What stood there was acknowledged, and a start would cut it off, with"
            " all that follows: topics, settings, producer ids."
            f" {_WAY_OUT.format(directory=self._directory)}",
            by_repair=True,
        )
