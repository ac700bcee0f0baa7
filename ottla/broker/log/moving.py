"""A replica moves to another log dir of the same broker: by a copy that takes its place.

    orders-0                  the replica, served from where it is until the exchange
    orders-0.<32 hex>-future  its copy, in the other dir, filled batch by batch

The exchange is these steps in their order. A crash before the third leaves the old one, any later
crash the new one:
    1. the copy gets a generation above the log's (the file `ottla-generation`), and the checkpoints
       of its dir say of it what those of the other say of the log; all durable
    2. from here on appends wait: the copy is as long as the log, closed in good order, durable,
       and knows the log's producers
    3. it takes the name orders-0; the sync of that dir makes it so; it is served, appends go on
    4. the old one is renamed to -delete
Between 3 and 4 there are two partitions of one name. A start that finds two keeps the one of the
higher generation; where generations say nothing, somebody has put the second there by hand, and
the start is refused. When step 3 fails nobody knows whether its name is on disk, so the old one
takes a generation above both before it goes on.

    ottla-generation    0
                        1
                        <generation> <CRC-32C of its digits, 8 hex digits>
The file is absent in a directory that was never moved; Apache Kafka passes it over.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import cast

from ottla.broker.descriptors import HeldDescriptors
from ottla.broker.log import old_messages
from ottla.broker.log.checkpoints import (
    MalformedFile,
    format_rows,
    parse_rows,
    read_partition_metadata,
    read_whole,
    write_atomically,
    write_partition_metadata,
)
from ottla.broker.log.directories import (
    MAX_NAME_BYTES,
    Kind,
    PartitionName,
    partition_name,
)
from ottla.broker.log.file_slice import FileSlice
from ottla.broker.log.final_syncs import run_sync
from ottla.broker.log.loading import Survey, doubled_partitions, leave_out
from ottla.broker.log.log import UPPER_LOG_END, Log
from ottla.broker.log.producer_state import ProducerState
from ottla.broker.ports import Clock, Disk, Events, Rng
from ottla.config.types import LogConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import HEADER_SIZE, read_header
from ottla.protocol.records.crc import crc32c

GENERATION_FILE = "ottla-generation"

# What is copied at once: some milliseconds of a worker's time for batches of one record.
COPY_BYTES = 64 * 1024
# How much of a copy may be unsynced: the last sync, which appends wait for, has no more to write.
UNSYNCED_BYTES_MAX = 8 * 1024 * 1024


def is_name_too_long(topic: str, partition: int) -> bool:
    """Whether the name of a copy would not fit into a file system's names."""
    return len(f"{topic}-{partition}.{'0' * 32}{Kind.FUTURE.value}") > MAX_NAME_BYTES


def read_generation(disk: Disk, directory: str) -> int:
    """How often a partition's directory was moved; 0 where it was not, or its file is broken."""
    data = read_whole(disk, f"{directory}/{GENERATION_FILE}")
    if data is None:
        return 0
    try:
        ((generation, crc),) = parse_rows(data, fields=2)
        return int(generation) if crc == _crc_of(generation) else 0
    except (MalformedFile, ValueError):
        return 0


def write_generation(disk: Disk, directory: str, generation: int) -> None:
    """Durable when it returns."""
    row = f"{generation} {_crc_of(str(generation))}"
    write_atomically(disk, f"{directory}/{GENERATION_FILE}", format_rows([row]))


def _crc_of(text: str) -> str:
    return f"{crc32c(text.encode()):08x}"


def finish_exchanges(disk: Disk, surveys: list[Survey], *, rng: Rng, events: Events) -> None:
    """Takes the older of two partitions of a name out of the surveys, where a crash left both.

    Raises OSError.
    """
    for name in sorted(doubled_partitions(surveys), key=lambda one: (one.topic, one.partition)):
        found = [one for one in surveys if name in one.partitions]
        folder = partition_name(name.topic, name.partition)
        ids = {read_partition_metadata(disk, f"{one.log_dir}/{folder}", events) for one in found}
        by_generation = sorted(
            (read_generation(disk, f"{one.log_dir}/{folder}"), one.log_dir) for one in found
        )
        if len(ids) != 1 or by_generation[-1][0] == by_generation[-2][0]:
            continue
        kept = by_generation[-1][1]
        for survey in found:
            if survey.log_dir != kept:
                path = leave_out(disk, survey, name, Kind.DELETED, rng=rng, events=events)
                events.warning("replica_move_finished", kept=kept, removed=path)


class _OwnDescriptors:
    """A disk for a worker: the loop asks nobody to give back a descriptor that is in use there."""

    def __init__(self, disk: Disk) -> None:
        self.held = HeldDescriptors(lambda: sys.maxsize)
        self._disk = disk

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)


class FutureCopy:
    """The copy of a log. What changes it waits for the disk: for a worker, one call at a time.

    `log` is None until `open` has returned.
    """

    __slots__ = (
        "_clock",
        "_disk",
        "_events",
        "_unsynced",
        "is_there",
        "log",
        "log_dir",
        "name",
        "path",
    )

    def __init__(
        self, disk: Disk, log_dir: str, path: str, name: PartitionName, clock: Clock, events: Events
    ) -> None:
        self.log_dir = log_dir
        self.path = path
        self.name = name
        self.log: Log | None = None
        # False once it is the log.
        self.is_there = True
        self._disk = disk
        self._clock = clock
        self._events = events
        self._unsynced = 0

    def __repr__(self) -> str:
        return f"<FutureCopy {self.path} {self.log}>"

    @property
    def end_offset(self) -> int:
        """Where the copy ends; 0 as long as nothing is known of it."""
        return 0 if self.log is None else self.log.log_end_offset

    @property
    def size_bytes(self) -> int:
        return 0 if self.log is None else self.log.size_bytes

    def make(self, topic_id: bytes) -> None:
        """Makes its directory, empty and durable."""
        self._disk.make_dir(self.path)
        write_partition_metadata(self._disk, self.path, topic_id)
        run_sync(partial(self._disk.sync_dir, self.log_dir))

    def open(self, source: Log, *, clean: bool) -> None:
        """Opens what is there. `clean`: it was closed in good order, and nothing was lost since."""
        if read_partition_metadata(self._disk, self.path, self._events) != source.topic_id:
            write_partition_metadata(self._disk, self.path, source.topic_id)
            clean = False
        own = cast("Disk", _OwnDescriptors(self._disk))
        self.log = self._open_at(own, source, clean=clean)

    def start_over(self, base_offset: int, producers: bytes) -> None:
        """Empties it; its next batch begins at or above `base_offset`.

        `producers` is a snapshot of those whose batches are all below that: the copy will have
        nothing else of them, nor a recovery of it.
        """
        assert self.log is not None
        self.log.truncate_fully_and_start_at(base_offset, producers=producers)

    def append(self, data: bytes, config: LogConfig) -> int:
        """Takes up the whole batches that the data begins with; how many bytes that were.

        Raises KafkaError for batches that are damaged.
        """
        log = self.log
        assert log is not None
        if log.config != config:
            log.config = config
        size = _end_of_whole(data)
        if not size:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "no whole batch follows")
        log.append_as_follower(memoryview(bytearray(data[:size])), now_ms=self._clock.wall_ms())
        self._unsynced += size
        if self._unsynced > UNSYNCED_BYTES_MAX:
            self.sync()
        return size

    def sync(self) -> None:
        assert self.log is not None
        ticket = self.log.begin_flush()
        if ticket is not None:
            try:
                ticket.sync()
            except OSError:
                give_back = self.log.put_off_flush if ticket.is_put_off else self.log.give_up_flush
                give_back(ticket)
                raise
            self.log.finish_flush(ticket)
        self.log.set_high_watermark(self.log.visible_end)
        self._unsynced = 0

    def close(self, *, clean: bool = True) -> None:
        if self.log is not None:
            self.log.close(clean=clean)
            self.log = None

    # the exchange

    def prepare(self, source: Log) -> None:
        """Step 1, but for the checkpoints. Leaves as little unsynced as it can. Raises OSError, and
        KafkaError where the log's own cannot be read, which says nothing of the copy's disk."""
        self.sync()
        try:
            generation = read_generation(self._disk, source.directory) + 1
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        write_generation(self._disk, self.path, generation)

    def complete(self, source: Log, snapshot: bytes) -> None:
        """The end of step 2; `snapshot` is of the log's producers. Raises KafkaError where the log
        has lost its tail: there is no batch to say where the copy is to end."""
        log = self.log
        assert log is not None
        end_offset = source.log_end_offset
        if log.log_end_offset != end_offset:
            reason = (
                f"what stood from offset {log.log_end_offset} to {end_offset} was lost in"
                f" {source.directory}: it can be moved when another record has been written to it"
            )
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
        self.sync()
        log.delete_records(source.log_start_offset)
        # It may know producers whose batches are deleted.
        log.producer_state = ProducerState.from_snapshot(
            snapshot, end_offset, self._clock.wall_ms()
        )
        log.close(clean=True)

    def take_name(self, source: Log) -> Log:
        """Step 3: the copy under its name, open. Its dir's checkpoints must know of it before.

        Raises OSError, SyncFailed if a sync said no; `has_name` tells then which name it has.
        """
        self._disk.rename(self.path, self._final_path)
        self.path = self._final_path
        run_sync(partial(self._disk.sync_dir, self.log_dir))
        log = self._open_at(self._disk, source, clean=True)
        self.is_there = False
        self.log = None
        return log

    @property
    def has_name(self) -> bool:
        """Whether its directory has the name of the partition."""
        return self.path == self._final_path

    @property
    def _final_path(self) -> str:
        return f"{self.log_dir}/{partition_name(self.name.topic, self.name.partition)}"

    def _open_at(self, disk: Disk, source: Log, *, clean: bool) -> Log:
        return Log.open(
            disk,
            self.path,
            topic=source.topic,
            partition=source.partition,
            topic_id=source.topic_id,
            config=source.config,
            recovery_point=0,
            log_start_offset=source.log_start_offset if self.has_name else 0,
            high_watermark=source.high_watermark,
            clean=clean,
            now_ms=self._clock.wall_ms(),
            events=self._events,
        )


def next_slice(source: Log, copy: Log) -> FileSlice | None:
    """What the copy lacks next; None if it is as long as the log. Raises KafkaError."""
    offset = max(copy.log_end_offset, source.log_start_offset)
    return source.read(offset, max_bytes=COPY_BYTES, upper=UPPER_LOG_END, at_least_one=True)


def continues(source: Log, copy: Log) -> bool:
    """Whether a copy that was found is a beginning of the log: its last batch is the log's, too."""
    end = copy.log_end_offset
    if copy.segments.active.size == 0 or not source.log_start_offset < end <= source.log_end_offset:
        return False
    mine, theirs = (
        log.read(end - 1, max_bytes=HEADER_SIZE, upper=UPPER_LOG_END, at_least_one=True)
        for log in (copy, source)
    )
    if mine is None or theirs is None:
        return False
    return mine.head(HEADER_SIZE) == theirs.head(HEADER_SIZE)


def first_base_offset(source: Log) -> int:
    """The first offset of the batch that holds the log start; the end of an empty log."""
    start = source.log_start_offset
    found = source.read(start, max_bytes=HEADER_SIZE, upper=UPPER_LOG_END, at_least_one=True)
    if found is None:
        return source.log_end_offset
    data = found.head(HEADER_SIZE)
    message = old_messages.read_message(data, 0)
    if message is None:
        return read_header(data).base_offset
    whole = source.read(start, max_bytes=0, upper=UPPER_LOG_END, at_least_one=True)
    assert whole is not None, source
    return old_messages.first_offset(memoryview(whole.read()), message)


def _end_of_whole(data: bytes) -> int:
    """Where the last whole batch of what was read ends; 0 if there is none."""
    end = 0
    for position, header in old_messages.iterate_chain(data):
        end = position + header.size
    return end
