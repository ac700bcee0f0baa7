"""The aborted transactions that end in one segment: N.txnindex.

    bytes   field
    0-1     int16 version (0)
    2-9     int64 producer id
    10-17   int64 first offset of the transaction in this partition
    18-25   int64 last offset: that of its abort marker
    26-33   int64 last stable offset when the marker was written: the first offset of the
            oldest transaction then open, or the one behind the marker

Committed transactions have no entry, and a segment without aborted ones has no file. A reader of
[from, upper) needs each entry that ends at or above `from` and begins below `upper`; once an entry
has a last stable offset of `upper` or more, no later one matters. Aborts are rare: the entries of
a segment are read as a whole. In a topic that is kept for ever they are many in the end: those of
the sealed segments that nobody reads stay in their files alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from ottla.broker.log.checkpoints import parent_of, write_atomically
from ottla.broker.log.index import IndexCorrupt
from ottla.broker.ports import Disk, File
from ottla.protocol.records.crc import crc32c

ENTRY = Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def pack(entries: Iterable[AbortedTransaction]) -> bytes:
    """The entries as they lie in the file."""
    return b"".join(ENTRY.pack(VERSION, *one) for one in entries)


def completed(
    by_batches: Iterable[AbortedTransaction],
    stored: Iterable[AbortedTransaction],
    *,
    unseen: int,
    below: int,
) -> list[AbortedTransaction]:
    """What the batches of a segment say, where not all of them can be read: from the offset
    `unseen` on, and below another, what its index had is believed, too."""
    by_end = {one.last_offset: one for one in by_batches}
    by_end |= {
        one.last_offset: one
        for one in stored
        if unseen <= one.last_offset < below and one.first_offset <= one.last_offset
    }
    return [by_end[offset] for offset in sorted(by_end)]


class TransactionIndex:
    """The transaction index of one segment."""

    __slots__ = ("_disk", "_entries", "_left", "_written", "has_file", "path")

    def __init__(self, disk: Disk, path: str, *, exists: bool) -> None:
        self.path = path
        self.has_file = exists
        self._disk = disk
        self._entries: list[AbortedTransaction] | None = None if exists else []
        # What else the file holds, while the batches are read again; see `settle`.
        self._left: list[AbortedTransaction] | None = None
        self._written = 0

    def __repr__(self) -> str:
        known = "in its file" if self._entries is None else f"known={len(self._entries)}"
        return f"<TransactionIndex {self.path} {known}>"

    def entries(self) -> list[AbortedTransaction]:
        """All entries, in order of their markers. Bytes that are no entry of ours end them."""
        if self._entries is None:
            self._entries = self._read()
            self._written = len(self._entries)
        return self._entries

    @property
    def is_known(self) -> bool:
        """Whether `entries` reads no file."""
        return self._entries is not None

    def check(self, base_offset: int, end_offset: int) -> None:
        """Raises IndexCorrupt unless the file holds nothing but entries of such a segment."""
        if self._entries is None:
            file = self._disk.open(self.path)
            try:
                size = file.size()
            finally:
                file.close()
            before = base_offset - 1
            entries = self.entries()
            for one in entries:
                if not before < one.last_offset < end_offset or one.first_offset > one.last_offset:
                    raise IndexCorrupt(self.path)
                before = one.last_offset
            if size != len(entries) * ENTRY.size:
                raise IndexCorrupt(self.path)

    def replace(self, entries: list[AbortedTransaction]) -> None:
        """Has these entries instead of what the file holds; after a crash one or the other.

        Durable when it returns: of a file that is gone nothing says later that it is missing.
        """
        if entries:
            write_atomically(self._disk, self.path, pack(entries))
        elif self.has_file:
            self._disk.remove(self.path)
            self._disk.sync_dir(parent_of(self.path))
        self.take(entries)

    def take(self, entries: list[AbortedTransaction]) -> None:
        """Somebody has written these entries to the file."""
        self.has_file = bool(entries)
        self._entries = entries
        self._written = len(entries)

    def append(self, aborted: AbortedTransaction) -> None:
        """Adds an entry in memory; never fails."""
        entries = self.entries()
        assert not entries or entries[-1].last_offset < aborted.last_offset, self.path
        entries.append(aborted)

    def seal(self) -> None:
        """Writes the entries that are not on disk; may be repeated."""
        entries = self._entries
        if entries is None or self._written == len(entries):
            return
        new = pack(entries[self._written :])
        file = self._disk.open(self.path, create=True)
        self.has_file = True
        try:
            file.pwrite(new, self._written * ENTRY.size)
            file.truncate(len(entries) * ENTRY.size)
        finally:
            file.close()
        self._written = len(entries)

    def write(self) -> tuple[File | None, int]:
        """Writes the entries in memory; the file, opened to be read, and the bytes of entries."""
        self.seal()
        size = len(self.entries()) * ENTRY.size
        return (self._disk.open(self.path) if size else None), size

    def start_anew(self) -> None:
        """No entries; the file stays until `settle`. Raises OSError."""
        self._keep(0)

    def resume(self, size: int, crc: int) -> None:
        """Takes the entries in the first `size` bytes; the file stays until `settle`.

        Raises IndexCorrupt if they are others, OSError.
        """
        count = size // ENTRY.size
        packed = pack(self.entries()[:count])
        if len(packed) != size or (size and crc32c(packed) != crc):
            raise IndexCorrupt(self.path)
        self._keep(count)

    def left_in(self, start: int, end: int) -> list[AbortedTransaction]:
        """Until `settle`: what the file says of markers from one offset up to another."""
        return [one for one in self._left or () if start <= one.last_offset < end]

    def settle(self, *, unseen: int | None, below: int) -> None:
        """The batches have been read again, all of them or, with `unseen`, not all from that offset
        on. What the file holds besides goes, but for what they cannot say; see `completed`.

        What stays of it is durable when it returns, what goes is gone with a sync of the directory.
        """
        left, self._left = self._left, None
        if left is None:
            return  # there is no file
        entries = self.entries()
        if unseen is not None:
            entries = completed(entries, left, unseen=unseen, below=below)
            if entries:
                self.replace(entries)
                return
        if not self._written:
            self._disk.remove(self.path)
            self.has_file = False
            return
        file = self._disk.open(self.path)
        try:
            if file.size() > self._written * ENTRY.size:
                file.truncate(self._written * ENTRY.size)
                file.sync()
        finally:
            file.close()

    def truncate_to(self, offset: int) -> None:
        """Keeps the transactions whose marker is below an offset.

        Durable when it returns: an entry that came back would hide what is written next.
        """
        kept = [one for one in self.entries() if one.last_offset < offset]
        if len(kept) < self._written:
            file = self._disk.open(self.path)
            try:
                file.truncate(len(kept) * ENTRY.size)
                file.sync()
            finally:
                file.close()
            self._written = len(kept)
        self._entries = kept

    def forget(self) -> None:
        """No entries, whatever the file holds."""
        if self.has_file:
            self._disk.remove(self.path)
            self.has_file = False
        self._entries = []
        self._written = 0

    def release(self) -> None:
        """Gives back entries that are in the file, until somebody asks for them.

        Not of the active segment: an append reads nothing, for it never fails.
        """
        entries = self._entries
        if entries and self._left is None and self._written == len(entries):
            self._entries = None

    def open_apart(self) -> File:
        assert self.has_file, self.path
        return self._disk.open(self.path)

    def _keep(self, count: int) -> None:
        entries = self.entries()
        self._left = entries[count:] if self.has_file else None
        self._entries = entries[:count]
        self._written = count

    def _read(self) -> list[AbortedTransaction]:
        file = self._disk.open(self.path)
        try:
            data = file.pread(file.size(), 0)
        finally:
            file.close()
        found: list[AbortedTransaction] = []
        for position in range(0, len(data) - ENTRY.size + 1, ENTRY.size):
            version, *fields = ENTRY.unpack_from(data, position)
            if version != VERSION:
                break
            found.append(AbortedTransaction(*fields))
        return found
