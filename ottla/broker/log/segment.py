"""One segment of a log: N.log and its indexes, N being its base offset in 20 digits.

N.log is record batches, one behind the other, with nothing before, between or behind them. The
indexes are hints: each look-up checks what it was told against the batch headers, and an index
that is missing, short or wrong is rebuilt. A sealed segment opens its files on first use.

The active segment keeps the positions of its last batches in memory, so that a tailing reader
needs neither index nor disk; the newest sealed one still has its own from the time it was active.
Of the very last batch it keeps the bytes, if somebody waited for them and they are few.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from ottla.broker.faults import SHORT_OF_MEANS
from ottla.broker.log import old_messages
from ottla.broker.log.file_slice import FileSlice
from ottla.broker.log.index import IndexCorrupt
from ottla.broker.log.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from ottla.broker.log.partition_dir import PartitionDir, rename_anew, renew
from ottla.broker.log.time_index import NO_TIMESTAMP, TimeIndex
from ottla.broker.log.transaction_index import TransactionIndex
from ottla.broker.log.walk import (
    LOOKUP_READ_BYTES,
    BrokenChain,
    Read,
    UntrueEntry,
    steps_over,
    walk_to,
)
from ottla.broker.ports import File
from ottla.config.types import LogConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    read_header,
)

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"

INDEX_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, *INDEX_SUFFIXES, SNAPSHOT_SUFFIX)

BATCH_LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD

# Batches whose positions stay in memory: 16 bytes each, and a consumer that tails is a few behind.
RECENT_BATCHES: Final = 512
# Batches behind the last index entry begin within an index interval; an index that leaves out
# more is short. The allowance is for an interval that was larger when the segment was written.
UNINDEXED_BYTES_MAX: Final = 64 * 1024
# A last batch of so many bytes is kept for those who wait for it: 10 MB of ten thousand partitions.
TAIL_BYTES_MAX: Final = 1024
# What one read takes that walks over many batches.
WALK_READ_BYTES: Final = 64 * 1024

_bisect_left: Final = bisect_left


class Segment:
    """One segment. `size` bytes of its .log file are batches; what lies behind is not ours."""

    __slots__ = (
        "_directory",
        "_first_timestamp",
        "_found_offset",
        "_found_position",
        "_found_size",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_preallocated_bytes",
        "_recent_lasts",
        "_recent_positions",
        "_since_entry",
        "_tail",
        "_tail_position",
        "base_offset",
        "created_ms",
        "file",
        "full",
        "index",
        "index_interval",
        "is_loaded",
        "last_modified",
        "size",
        "time_index",
        "transactions",
    )

    def __init__(
        self,
        directory: PartitionDir,
        base_offset: int,
        *,
        config: LogConfig,
        now_ms: int,
        has_transaction_index: bool = False,
    ) -> None:
        disk = directory.disk
        self.base_offset = base_offset
        self.size = 0
        self.created_ms = now_ms
        self.last_modified = now_ms
        self.file: File | None = None
        self.index = OffsetIndex(
            disk,
            directory.file(base_offset, INDEX_SUFFIX),
            base_offset=base_offset,
            max_bytes=config.segment_index_bytes,
        )
        self.time_index = TimeIndex(
            disk,
            directory.file(base_offset, TIME_INDEX_SUFFIX),
            base_offset=base_offset,
            max_bytes=config.segment_index_bytes,
        )
        # Whether an index has no room for another entry; one that is small enough never has.
        self.full = self.index.is_full or self.time_index.is_full
        self.transactions = TransactionIndex(
            disk,
            directory.file(base_offset, TRANSACTION_INDEX_SUFFIX),
            exists=has_transaction_index,
        )
        self._directory = directory
        self.index_interval = config.index_interval_bytes
        self._preallocated_bytes = config.segment_bytes if config.preallocate else 0
        self.is_loaded = False
        self._since_entry = 0
        self._first_timestamp: int | None = None
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._recent_lasts = array("q")
        self._recent_positions = array("q")
        # What somebody looked up last, so that who reads from there does not look again.
        self._found_offset = -1
        self._found_position = 0
        self._found_size = 0
        # The bytes of the last batch, if they were kept, and where it lies.
        self._tail = b""
        self._tail_position = 0

    def __repr__(self) -> str:
        return f"<Segment {self._directory.path} {self.base_offset} size={self.size}>"

    # opening and closing

    def create(self) -> None:
        """Makes the files, empty; the caller makes their names durable."""
        self.file = self._directory.disk.open(self.log_path, create=True)
        self._directory.disk.held.hold(self)
        if self.file.size():
            self.file.truncate(0)
        if self._preallocated_bytes:
            self.file.truncate(self._preallocated_bytes)
        self.transactions.forget()
        self.index.create()
        self.time_index.create()
        self.is_loaded = True

    def open(self) -> File:
        """The .log file, opened if it is not."""
        if self.file is None:
            self.file = self._directory.disk.open(self.log_path)
            self._directory.disk.held.hold(self)
        return self.file

    def open_cached(self) -> File | None:
        """The same if nothing has to be read from the disk for it, as far as the system tells."""
        if self.file is None:
            self.file = self._directory.disk.open_cached(self.log_path)
            if self.file is not None:
                self._directory.disk.held.hold(self)
        return self.file

    def open_apart(self) -> File:
        """The .log file by a descriptor of the caller's; FileNotFoundError if it is set aside."""
        return self._directory.disk.open(self.log_path)

    @property
    def is_synced(self) -> bool:
        """Whether all of it is durable; then its file may be closed, see `descriptors`."""
        return self._directory.is_durable(self.base_offset)

    @property
    def is_pinned(self) -> bool:
        return self.file is not None and self.file.is_pinned

    def load_size(self) -> None:
        """Takes size and time of what is on disk, and leaves the file closed."""
        file = self._directory.disk.open(self.log_path)
        try:
            self.size = file.size()
            self.last_modified = file.modified_ms()
        finally:
            file.close()

    def release(self) -> None:
        """Gives back what can be had again. Readers that hold a pin finish."""
        self._tail = b""
        self.index.entries.release()
        self.time_index.entries.release()
        if self.file is not None:
            self.file.close()
            self.file = None
            self._directory.disk.held.drop(self)

    def seal(self) -> None:
        """Brings the indexes to disk, cut to size, with the closing entry; may be repeated.

        A file that was made at its full size is cut to its batches. What was kept of its last batch
        is for who waits at the end of the log, and what follows may say that it was aborted.
        """
        self._tail = b""
        if self._preallocated_bytes and self.open().size() > self.size:
            self.open().truncate(self.size)
        self.time_index.close(self._max_timestamp, self._max_timestamp_offset)
        self.full = self.index.is_full or self.time_index.is_full
        self.index.entries.seal()
        self.time_index.entries.seal()
        self.transactions.seal()

    def write_entries(self, opened: list[File]) -> list[tuple[File, int]]:
        """Writes what the indexes have in memory: each file, opened, and the bytes of entries.

        All that was opened is added to `opened`, whatever comes then.
        """
        found: list[tuple[File, int]] = []
        for entries in (self.index.entries, self.time_index.entries):
            opened.append(entries.write())
            found.append((opened[-1], entries.size_bytes))
        transactions, size = self.transactions.write()
        if transactions is not None:
            opened.append(transactions)
        # Of a file that is not there, nothing is read.
        found.append((transactions or opened[-1], size))
        return found

    def open_for_sync(self, opened: list[File]) -> None:
        """Adds its sealed indexes, opened, to the files of whoever syncs and closes them."""
        opened.append(self.index.entries.open_apart())
        opened.append(self.time_index.entries.open_apart())
        if self.transactions.has_file:
            opened.append(self.transactions.open_apart())

    def rewrite(self) -> None:
        """Makes its files anew of what the page cache holds, see `renew`; names are not synced."""
        source = self.open()
        renew(source, self.log_path, self.size, self._directory.disk)
        self.release()
        for suffix in INDEX_SUFFIXES:
            rename_anew(self._directory.file(self.base_offset, suffix), self._directory.disk)

    def forget_recent(self) -> None:
        """Gives back the memory that only a tailing reader needs."""
        self._recent_lasts = array("q")
        self._recent_positions = array("q")
        self._tail = b""

    @property
    def log_path(self) -> str:
        return self._directory.file(self.base_offset, LOG_SUFFIX)

    # facts

    @property
    def last_position(self) -> int | None:
        """Where the last batch begins, as long as that is in memory."""
        return self._recent_positions[-1] if self._recent_positions else None

    @property
    def max_timestamp(self) -> int:
        """The greatest timestamp of all batches; -1 if none has one."""
        self.load()
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the first batch that has the greatest timestamp."""
        self.load()
        return self._max_timestamp_offset

    @property
    def first_timestamp(self) -> int:
        """The max timestamp of the first batch: the age of the segment counts from it. -1 if it has
        none, or cannot be told."""
        if self._first_timestamp is None:
            if not self.size:
                return NO_TIMESTAMP
            try:
                self._first_timestamp = self.header_at(0).max_timestamp
            except (KafkaError, OSError) as error:  # damage: no reason to append nothing any more
                if isinstance(error, OSError) and error.errno in SHORT_OF_MEANS:
                    raise
                self._first_timestamp = NO_TIMESTAMP
        return self._first_timestamp

    # writing

    def append(
        self, records: memoryview, last_offset: int, max_timestamp: int, *, is_awaited: bool
    ) -> None:
        """Writes one batch behind all others. An OSError leaves the segment as it was, but for
        bytes behind `size` that the caller cuts off. Of one that is awaited a copy is kept, if it
        is small: whoever waits at the end of the log need not read what was just written."""
        position = self.size
        if self._since_entry > self.index_interval:
            # All that can fail comes before the batch is written.
            self.index.entries.make_room()
            self.time_index.entries.make_room()
        file = self.file
        if file is None:
            file = self.open()
        tail = bytes(records) if is_awaited and len(records) <= TAIL_BYTES_MAX else b""
        file.pwrite(records, position)
        self._tail, self._tail_position = tail, position
        self.note_batch(position, len(records), last_offset, max_timestamp)

    def append_all(self, records: memoryview, batches: list[tuple[int, BatchHeader]]) -> None:
        """Writes several batches at once; `batches` are their positions in `records`."""
        start = self.size
        self.index.entries.make_room()
        self.time_index.entries.make_room()
        self.open().pwrite(records, start)
        for position, header in batches:
            self.note_batch(start + position, header.size, header.last_offset, header.max_timestamp)

    def note_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Takes up a batch that lies at a position of the file; never fails."""
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        since_entry = self._since_entry
        if since_entry > self.index_interval and not self.full:
            self.index.append(last_offset, position)
            self.time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)
            self.full = self.index.is_full or self.time_index.is_full
            since_entry = 0
        self._since_entry = since_entry + size
        self.size = position + size
        lasts, positions = self._recent_lasts, self._recent_positions
        lasts.append(last_offset)
        positions.append(position)
        if len(lasts) >= 2 * RECENT_BATCHES:
            del lasts[:RECENT_BATCHES], positions[:RECENT_BATCHES]

    @property
    def notes(self) -> tuple[int, int, int]:
        """For a scan that does itself what `note_batch` does: the bytes since the last entry of
        the indexes, the greatest timestamp, and its offset. To be given back."""
        return self._since_entry, self._max_timestamp, self._max_timestamp_offset

    @notes.setter
    def notes(self, notes: tuple[int, int, int]) -> None:
        self._since_entry, self._max_timestamp, self._max_timestamp_offset = notes

    def add_entry(
        self, last_offset: int, position: int, max_timestamp: int, max_timestamp_offset: int
    ) -> None:
        """Adds an entry to both indexes, for a batch of such a scan."""
        if self.full:
            return
        self.index.entries.make_room()
        self.time_index.entries.make_room()
        self.index.append(last_offset, position)
        self.time_index.maybe_append(max_timestamp, max_timestamp_offset)
        self.full = self.index.is_full or self.time_index.is_full

    def remember(self, lasts: array[int], positions: array[int]) -> None:
        """The last offsets and positions of a run of batches that such a scan has met."""
        del lasts[: -2 * RECENT_BATCHES], positions[: -2 * RECENT_BATCHES]
        self._recent_lasts, self._recent_positions = lasts, positions

    def truncate_to(self, offset: int) -> int:
        """Cuts off the batches that end at or above an offset; the end of those that stay.

        The file is synced: what was cut must not come back behind what is written next.
        """
        position, size = self._locate_by_index(offset)
        end_offset = self._first_offset(position, size) if size else offset
        file = self.open()
        file.truncate(position)
        file.sync()
        self.size = position
        self._tail = b""
        self._found_offset = -1
        self.transactions.truncate_to(end_offset)
        keep = _bisect_left(self._recent_lasts, end_offset)
        del self._recent_lasts[keep:], self._recent_positions[keep:]
        if position == 0:
            self._first_timestamp = None
        try:
            self.index.truncate_to(end_offset)
            self.time_index.truncate_to(end_offset)
            self._since_entry = 0
            self.full = self.index.is_full or self.time_index.is_full
            self._find_max_timestamp()
        except IndexCorrupt:
            self.rebuild_indexes()
        return end_offset

    def _first_offset(self, position: int, size: int) -> int:
        """The offset of the first record of the batch at a position."""
        header = self.header_at(position)
        if header.magic == MAGIC:
            return header.base_offset
        return old_messages.first_offset(self.batch_at(position, size), header)

    # reading

    def slice(self, position: int, size: int) -> FileSlice:
        """A range of its .log file, which is opened for it."""
        is_tail = position == self._tail_position and size == len(self._tail)
        return FileSlice(self.file or self.open(), position, size, self._tail if is_tail else b"")

    @property
    def knows_last_batch(self) -> bool:
        """Whether a slice of the last batch alone has its bytes."""
        return len(self._tail) > 0

    def remembers(self, offset: int) -> bool:
        """Whether `locate` finds the first batch that ends at or above an offset in memory."""
        lasts = self._recent_lasts
        at = _bisect_left(lasts, offset)
        return at < len(lasts) and (at > 0 or not self._recent_positions[0])

    def note_found(self, offset: int, position: int, size: int) -> None:
        """Somebody has found what `locate` is about to be asked for."""
        self._found_offset = offset
        self._found_position = position
        self._found_size = size

    def locate(self, offset: int) -> tuple[int, int]:
        """Position and size of the first batch that ends at or above an offset; `size`, 0 if none.

        Raises CORRUPT_MESSAGE where the chain of headers is broken.
        """
        lasts = self._recent_lasts
        at = _bisect_left(lasts, offset)
        if at < len(lasts) and (at or not self._recent_positions[0]):
            positions = self._recent_positions
            position = positions[at]
            return position, (positions[at + 1] if at + 1 < len(lasts) else self.size) - position
        if offset == self._found_offset:
            return self._found_position, self._found_size
        return self._locate_by_index(offset)

    def headers(
        self,
        position: int = 0,
        *,
        read_bytes: int = WALK_READ_BYTES,
        end: int | None = None,
        read: Read | None = None,
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The (position, header) of each batch from a position on, where a batch begins.

        Raises CORRUPT_MESSAGE where the chain of headers is broken, and what `read` raises, by
        which its file is read if it is given.
        """
        read = read or self.open().pread
        # No CRC covers the offset of a batch, and no index has room for one farther away.
        expected, greatest = self.base_offset, self.base_offset + RELATIVE_OFFSET_MAX
        if end is None:
            end = self.size
        chunk, start = b"", position
        while position < end:
            at = position - start
            if at + HEADER_SIZE > len(chunk):
                chunk = read(min(read_bytes, end - position), position)
                start, at = position, 0
            if len(chunk) - at >= HEADER_SIZE and chunk[at + MAGIC_POSITION] == MAGIC:
                header = read_header(chunk, at)
                is_batch = header.batch_length >= BATCH_LENGTH_MIN and header.last_offset_delta >= 0
            else:
                message = old_messages.read_message(chunk, at)
                if message is None:
                    raise self._broken(position)
                header, is_batch = message, True
            last_offset = header.last_offset
            is_next = header.base_offset >= expected and last_offset <= greatest
            if not (is_batch and is_next and position + header.size <= end):
                raise self._broken(position)
            yield position, header
            position += header.size
            expected = last_offset + 1

    def header_at(self, position: int, read: Read | None = None) -> BatchHeader:
        """The header of the batch that begins at a position."""
        return next(self.headers(position, read_bytes=HEADER_SIZE, read=read))[1]

    def batch_at(self, position: int, size: int) -> memoryview:
        return memoryview(self.open().pread(size, position))

    def position_before(self, position: int) -> int:
        """Where a batch begins at or before a position."""
        self.load()
        try:
            return self.index.position_before(position)
        except IndexCorrupt:
            self.rebuild_indexes()
            return self.index.position_before(position)

    def offset_behind(self, position: int) -> int | None:
        """An offset that no batch that begins before a position reaches; None if that may be any
        behind the segment."""
        lasts, positions = self._recent_lasts, self._recent_positions
        at = _bisect_left(positions, position)
        if at:
            return lasts[at - 1] + 1
        self.load()
        try:
            return self.index.offset_behind(position)
        except IndexCorrupt:
            self.rebuild_indexes()
            return self.index.offset_behind(position)

    def position_of_time(self, known: int, offset: int, read: Read | None = None) -> int:
        """The position of the batch that an entry of the time index names. Raises IndexCorrupt
        where there is no such batch, and what `read` raises."""
        position, size = self.locate(offset)
        if not size or self.header_at(position, read).max_timestamp != known:
            raise IndexCorrupt(self.time_index.entries.path)
        return position

    def find_end(self) -> int:
        """The offset behind the last batch, from the batches behind the last index entry. Raises
        CORRUPT_MESSAGE where the file does not end with a whole batch."""
        self.load()
        self.forget_recent()
        end_offset = self.base_offset
        _, position = self.index.last()
        for at, header in self.headers(position, read_bytes=LOOKUP_READ_BYTES):
            self._recent_lasts.append(header.last_offset)
            self._recent_positions.append(at)
            end_offset = header.last_offset + 1
            if len(self._recent_lasts) >= 4 * RECENT_BATCHES:
                self.remember(self._recent_lasts, self._recent_positions)
        self._since_entry = self.size - position
        return end_offset

    # indexes

    def rebuild_indexes(self) -> None:
        """Makes offset and time index anew from the batch headers, as far as these are in order;
        after an OSError the next use of the indexes tries again."""
        size, times = self.size, self.time_index
        claimed = max(self.notes[1:], (times.last_timestamp, times.last_offset))
        try:
            self.start_rebuild()
            self._note_all(size, claimed)
            self.size = size
            self.seal()
        except OSError:
            self.size = size
            self.is_loaded = False  # else what was not read would be taken for empty
            raise
        self._directory.events.warning("index_rebuilt", path=self.log_path)

    def _note_all(self, end: int, claimed: tuple[int, int]) -> None:
        base_offset, before = self.base_offset, self.notes
        try:
            for position, header in self.headers(end=end):
                base_offset, before = header.base_offset, self.notes
                self.index.entries.make_room()
                self.time_index.entries.make_room()
                self.note_batch(position, header.size, header.last_offset, header.max_timestamp)
        except KafkaError as error:
            self._directory.events.error("segment_chain_broken", reason=error.message)
            # It may be the offset of the last one that is wrong: no entry is to name it. Nor is it
            # to be remembered as the last, or it would seem to reach to the end.
            self.index.truncate_to(base_offset)
            self.time_index.truncate_to(base_offset)
            # What lies behind is read by who asks for it, and may be newer: retention is to know.
            newest = claimed[0], max(claimed[1], self.time_index.last_offset)
            self.notes = before[0], *max(before[1:], newest)
            self.forget_recent()

    def start_rebuild(self) -> None:
        """Empties indexes and facts; batches are then taken up by `note_batch` from position 0."""
        self.index.create()
        self.time_index.create()
        self.full = self.index.is_full or self.time_index.is_full
        self._since_entry = 0
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self._first_timestamp = None
        self.forget_recent()
        self.is_loaded = True

    def resume(
        self,
        position: int,
        *,
        index: tuple[int, int],
        time_index: tuple[int, int],
        transactions: tuple[int, int],
        max_timestamp: tuple[int, int],
    ) -> None:
        """Takes the batches before a position as known; `note_batch` goes on from there.

        The bytes and CRC-32C of the entries of each index are given, and the greatest timestamp
        with its offset. Raises IndexCorrupt, and then knows nothing, if the files say other.
        """
        self.forget_recent()
        self.index.resume(*index)
        self.time_index.resume(*time_index)
        self.transactions.resume(*transactions)
        self._max_timestamp, self._max_timestamp_offset = max_timestamp
        self._first_timestamp = None
        self._since_entry = position - self.index.last()[1]
        self.full = self.index.is_full or self.time_index.is_full
        self.size = position
        self.is_loaded = True

    def load(self) -> None:
        """Opens the indexes if they are not, and makes sure that their last entries are true."""
        if self.is_loaded:
            return
        self.is_loaded = True
        was_open = self.file is not None
        try:
            if not all((self.index.load(self.size), self.time_index.load())):
                raise IndexCorrupt(self.index.entries.path)
            self.full = self.index.is_full or self.time_index.is_full
            self._check_last_entries()
            self._find_max_timestamp()
        except (IndexCorrupt, KafkaError):
            self.rebuild_indexes()
        except OSError:
            self.is_loaded = False
            raise
        if not was_open:
            self.release()

    def _check_last_entries(self) -> None:
        """Raises IndexCorrupt unless the last entries name batches that are as they say."""
        offset, position = self.index.last()
        if position:
            header = self.header_at(position)
            if header.base_offset > offset:
                raise IndexCorrupt(self.index.entries.path)
            if header.max_timestamp > self.time_index.last_timestamp:
                raise IndexCorrupt(self.time_index.entries.path)
        if self.time_index.entries.count:
            self.position_of_time(self.time_index.last_timestamp, self.time_index.last_offset)

    def _find_max_timestamp(self) -> None:
        """From the time index and the batches behind the last entry of the offset index, for an
        interval's end writes to both. Behind those of an index that is full may be any number."""
        self._max_timestamp = self.time_index.last_timestamp
        self._max_timestamp_offset = self.time_index.last_offset
        last_offset, start = self.index.last()
        end_offset = self.base_offset
        for position, header in self.headers(start, read_bytes=LOOKUP_READ_BYTES):
            if position - start > max(self.index_interval, UNINDEXED_BYTES_MAX) and not self.full:
                raise IndexCorrupt(self.index.entries.path)
            end_offset = header.last_offset + 1
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp = header.max_timestamp
                self._max_timestamp_offset = header.last_offset
        if max(last_offset, self.time_index.last_offset) >= max(end_offset, self.base_offset + 1):
            raise IndexCorrupt(self.index.entries.path)

    def _locate_by_index(self, offset: int) -> tuple[int, int]:
        self.load()
        try:
            return self._walk_to(offset)
        except IndexCorrupt:
            self.rebuild_indexes()
            return self._walk_to(offset)

    def _walk_to(self, offset: int) -> tuple[int, int]:
        entry = self.index.lookup(offset)
        read = self.open().pread
        try:
            return walk_to(read, offset, entry, base_offset=self.base_offset, end=self.size)
        except UntrueEntry:
            raise IndexCorrupt(self.index.entries.path) from None
        except BrokenChain as broken:
            before = self.index.position_before(max(entry[1] - 1, 0))
            if steps_over(self.headers(before), entry[1]):
                raise IndexCorrupt(self.index.entries.path) from None
            raise self._broken(broken.position) from None

    def _broken(self, position: int) -> KafkaError:
        return KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{self.log_path}: no batch where one begins, at {position}"
        )
