"""Partitions that come and go: the part of it that waits for the disk.

A change of the metadata may make or delete thousands of partitions, and each costs several system
calls and a sync. `LogManager` decides on the loop what is to be done (`begin_create`,
`begin_delete`), `Rearrangement.perform` does it, in a worker thread, and `LogManager.adopt` takes
up the result, again on the loop. Deletions go first: a partition may be made anew under its name.

A directory is durable when `perform` returns: one sync of the log dir covers all that it got. An
error ends what is to be done in that log dir, not in the others; and directories that may not be
durable are removed again, for whoever syncs the log dir behind a sync that failed is told that they
are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ottla.broker.faults import Call
from ottla.broker.log import checkpoints
from ottla.broker.log.checkpoints import TopicPartition
from ottla.broker.log.directories import Kind, identified_name, partition_name
from ottla.broker.log.final_syncs import call_of, run_sync
from ottla.broker.log.log import Log
from ottla.broker.log.partition_dir import PartitionDir
from ottla.broker.log.segment import LOG_SUFFIX
from ottla.broker.ports import Clock, Disk, Events
from ottla.config.types import LogConfig

# Each of these has a descriptor until all are synced.
TOGETHER_MAX = 16


@dataclass(slots=True, frozen=True)
class Removal:
    """A directory of a deleted partition, due at a monotonic time."""

    due_ms: int
    log_dir: str
    path: str
    log: Log | None

    def is_due(self, now_ms: int) -> bool:
        """Whether it may go. A sync under way, which of many segments may take longer than any
        delay, is waited for."""
        return self.due_ms <= now_ms and (self.log is None or not self.log.is_flushing)

    def close(self) -> None:
        """Closes the files of its log; who still sends from one has pinned it."""
        if self.log is not None:
            self.log.close(clean=False)


class Departure:
    """A partition's directory that is no longer served and gets a name that says so, and its log,
    where it is open."""

    __slots__ = ("home", "key", "kind", "log", "log_dir", "new_path")

    def __init__(
        self,
        key: TopicPartition,
        home: PartitionDir,
        new_path: str,
        kind: Kind,
        log: Log | None = None,
    ) -> None:
        self.key = key
        self.home = home
        self.log_dir = checkpoints.parent_of(home.path)
        self.new_path = new_path
        self.kind = kind
        self.log = log

    @property
    def holds_name(self) -> bool:
        """Whether its directory still has the name of the partition: no copy's is in the way."""
        return self.home.path == f"{self.log_dir}/{partition_name(*self.key)}"

    @classmethod
    def of(cls, log: Log, new_path: str, kind: Kind) -> Departure:
        return cls((log.topic, log.partition), log.home, new_path, kind, log)

    def __repr__(self) -> str:
        return f"<Departure {self.home.path} to {self.new_path}>"


class Creation:
    """A partition to be made; afterwards its `log`, or None where the disk failed."""

    __slots__ = ("config", "key", "log", "log_dir", "topic_id")

    def __init__(
        self, key: TopicPartition, topic_id: bytes, config: LogConfig, log_dir: str
    ) -> None:
        self.key = key
        self.topic_id = topic_id
        self.config = config
        self.log_dir = log_dir
        self.log: Log | None = None


class Rearrangement:
    """What one change of the metadata asks of the log dirs. Used once."""

    __slots__ = ("creations", "departures", "failures")

    def __init__(self) -> None:
        self.departures: list[Departure] = []
        self.creations: list[Creation] = []
        # Log dir -> the call that failed there and how.
        self.failures: dict[str, tuple[Call, OSError]] = {}

    def __repr__(self) -> str:
        return f"<Rearrangement -{len(self.departures)} +{len(self.creations)} {self.failures}>"

    def __bool__(self) -> bool:
        return bool(self.departures or self.creations)

    def perform(
        self,
        disk: Disk,
        *,
        forget_rows: Callable[[str, set[TopicPartition]], None],
        clock: Clock,
        events: Events,
    ) -> None:
        """Blocks. `forget_rows(log dir, partitions)` takes them out of the checkpoint files."""
        for log_dir in {one.log_dir: None for one in self.departures}:
            self._depart(disk, log_dir)
        for log_dir in {one.log_dir: None for one in self.creations}:
            if log_dir in self.failures:
                continue
            mine = [one for one in self.creations if one.log_dir == log_dir]
            try:
                # What the files say of an earlier partition of a name must not be taken for ours.
                forget_rows(log_dir, {one.key for one in mine})
                _make(disk, log_dir, mine, clock, events)
            except OSError as error:
                self.failures[log_dir] = (call_of(error), error)

    def _depart(self, disk: Disk, log_dir: str) -> None:
        mine = [one for one in self.departures if one.log_dir == log_dir]
        try:
            for one in mine:
                one.home.move_to(one.new_path)
        except OSError as error:
            self.failures[log_dir] = (Call.WRITE, error)
        if not any(one.home.moved for one in mine):
            return
        try:
            run_sync(partial(disk.sync_dir, log_dir))
        except OSError as error:
            self.failures[log_dir] = (call_of(error), error)


def _make(
    disk: Disk, log_dir: str, creations: list[Creation], clock: Clock, events: Events
) -> None:
    paths = [f"{log_dir}/{partition_name(*one.key)}" for one in creations]
    try:
        for one, path in zip(creations, paths, strict=True):
            _make_way(disk, one, path, events)
            disk.make_dir(path)
        for start in range(0, len(paths), TOGETHER_MAX):
            some = slice(start, start + TOGETHER_MAX)
            ids = [one.topic_id for one in creations[some]]
            checkpoints.write_partitions_metadata(disk, dict(zip(paths[some], ids, strict=True)))
        run_sync(partial(disk.sync_dir, log_dir))
    except OSError:
        for path in paths:
            with suppress(OSError):
                _unmake(disk, path)
        raise
    for one, path in zip(creations, paths, strict=True):
        topic, partition = one.key
        one.log = Log.open(
            disk,
            path,
            topic=topic,
            partition=partition,
            topic_id=one.topic_id,
            config=one.config,
            recovery_point=0,
            log_start_offset=0,
            high_watermark=0,
            clean=True,
            now_ms=clock.wall_ms(),
            events=events,
        )


def _unmake(disk: Disk, path: str) -> None:
    """Removes a directory in which nothing is but what `_make` has written before its sync."""
    names = disk.list(path)
    if all(name.startswith(checkpoints.PARTITION_METADATA_FILE) for name in names):
        for name in names:
            disk.remove(f"{path}/{name}")
        disk.remove(path)


def _make_way(disk: Disk, one: Creation, path: str, events: Events) -> None:
    """Sets aside what an earlier topic of the name has left: a log that could not be opened, and so
    was not there to be renamed when its topic was deleted."""
    if not disk.exists(path) or not any(name.endswith(LOG_SUFFIX) for name in disk.list(path)):
        return
    if checkpoints.read_partition_metadata(disk, path, events) == one.topic_id:
        return
    aside = f"{one.log_dir}/{identified_name(*one.key, Kind.STRAY, one.topic_id.hex())}"
    disk.rename(path, aside)
    events.warning("stray_partition_kept", path=aside)
