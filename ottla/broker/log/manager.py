"""The logs of a broker and the directories they lie in.

`load` takes the log dirs (locked, identified, their marker of a clean stop taken away), opens every
partition in them and recovers those of a dir that was not stopped cleanly. `begin_create` and
`begin_delete` change what there is, through `perform` and `adopt`; the jobs are plain methods that
the scheduler calls; `shutdown` closes all and marks clean each dir in which all went well.

Threads. Everything belongs to the loop's thread, but three things: recovery runs in threads of its
own before anything is served, `perform` waits for the disk in a worker thread, and so may the
checkpoint jobs, for they read one integer of each log. Their errors come back by `post_error`.

Errors. A failed call in one dir never stops the others: `faults` says what it means, and its
listeners act. `create` lets OSError through as well, for its caller has somebody to answer; `load`
raises StorageLost if there is nothing left to serve.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from ottla.broker.faults import Call, DiskFaults
from ottla.broker.log import checkpoints
from ottla.broker.log.checkpoints import MetaProperties, TopicPartition
from ottla.broker.log.directories import (
    LOCK_FILE,
    Kind,
    LogDirError,
    aside_name,
    identify,
    make_log_dir,
    new_directory_id,
    partition_name,
)
from ottla.broker.log.loading import (
    CHECKPOINT_FILES,
    ConfigOf,
    FoundCopy,
    Opened,
    Rows,
    Survey,
    TopicIdOf,
    check_unique,
    doubled_partitions,
    open_logs,
    set_doubles_aside,
    survey,
)
from ottla.broker.log.log import Log
from ottla.broker.log.moving import finish_exchanges
from ottla.broker.log.quarantine import Ranges, read_ranges, write_ranges
from ottla.broker.log.rearranging import Creation, Departure, Rearrangement, Removal
from ottla.broker.log.scrub import Scrubber, restore
from ottla.broker.log.segment import Segment
from ottla.broker.ports import Clock, Disk, Events, File, Rng
from ottla.config.types import LogConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.wire import ZERO_UUID

# Segments deleted at a time, some 60 us of renames each.
SEGMENTS_AT_ONCE = 16

# Kafka's num.recovery.threads.per.data.dir.
DEFAULT_RECOVERY_THREADS = 2


@dataclass(slots=True)
class _LogDir:
    """What is known of one log dir."""

    path: str
    lock: File | None = None
    meta: MetaProperties | None = None
    clean: bool = False
    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    # Logs of other dirs whose copies are about to take a name here.
    coming: dict[TopicPartition, Log] = field(default_factory=dict)
    # Partitions that a worker is about to make.
    planned: int = 0
    # False once a log in it could not be loaded or closed: then nobody may mark it clean.
    sound: bool = True
    # The rows that each checkpoint file holds now, so that an unchanged one is not written again.
    rows: dict[str, Rows] = field(default_factory=dict)
    # Checkpoints are written by worker threads, and two writers would share one temporary file.
    writing: threading.Lock = field(default_factory=threading.Lock)


class LogManager:
    """All logs of this broker but the metadata log; see the module for threads and errors."""

    def __init__(
        self,
        disk: Disk,
        dirs: Iterable[str],
        *,
        clock: Clock,
        events: Events,
        rng: Rng,
        node_id: int,
        cluster_id: str | None,
        default_config: LogConfig,
        new_cluster_id: str | None = None,
        metadata_dir: str | None = None,
        recovery_threads: int = DEFAULT_RECOVERY_THREADS,
    ) -> None:
        """`metadata_dir` is the log dir that the process cannot live without (default: the first).

        Without a `cluster_id` the one that the dirs name is taken; if none does, all of them begin
        with `new_cluster_id`, and without that an empty dir is an error.
        """
        self.disk = disk
        self.dirs = list(dirs)
        assert self.dirs
        assert len(set(self.dirs)) == len(self.dirs), "a log dir is named twice"
        self.node_id = node_id
        self.cluster_id = cluster_id
        self._new_cluster_id = new_cluster_id
        self.previous_broker_epoch = -1
        self.faults = DiskFaults(
            self.dirs, metadata_dir=metadata_dir or self.dirs[0], events=events
        )
        self.faults.on_offline(self._take_offline)
        # Partitions that are here but cannot be served, and why: their clients get error 56.
        self.offline_partitions: dict[TopicPartition, str] = {}
        self._clock = clock
        self._events = events
        self._rng = rng
        self._default_config = default_config
        self._recovery_threads = recovery_threads
        self._log_dirs = {path: _LogDir(path) for path in self.dirs}
        self._logs: dict[TopicPartition, Log] = {}
        self._removals: list[Removal] = []
        # What `load` has found of moves between log dirs; whoever carries them on takes it.
        self.found_copies: list[FoundCopy] = []
        # How a worker thread hands an error to the loop: the shell sets call_soon_threadsafe.
        self._prepared = False
        self.post_error: Callable[[Callable[[], object]], object] = lambda tell: tell()
        self.scrubber = Scrubber(
            disk, list_logs=lambda: self.logs, find_log=self.get, events=events, rng=rng
        )
        # Log -> its durable end when it was first seen unsynced, and when that was.
        self._unsynced: dict[Log, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return (
            f"<LogManager node={self.node_id} logs={len(self._logs)} dirs={len(self.dirs)}"
            f" offline={list(self.offline_dirs)} to_remove={len(self._removals)}>"
        )

    @property
    def logs(self) -> list[Log]:
        return list(self._logs.values())

    @property
    def offline_dirs(self) -> dict[str, str]:
        """Log dir -> why it went offline."""
        return self.faults.offline

    @property
    def directory_ids(self) -> dict[str, bytes]:
        return {one.path: one.meta.directory_id for one in self._log_dirs.values() if one.meta}

    @property
    def unclean_dirs(self) -> list[str]:
        """The dirs that the last process did not stop cleanly; they were recovered."""
        return [one.path for one in self._log_dirs.values() if not one.clean]

    def get(self, topic: str, partition: int) -> Log | None:
        return self._logs.get((topic, partition))

    def dir_of(self, log: Log) -> str:
        """The log dir that holds it."""
        return checkpoints.parent_of(log.directory)

    def lock(self) -> None:
        """Makes the log dirs where they are missing and keeps every other broker out of them.

        Raises LogDirError, which names the holder, if one of them is in use, and StorageLost if
        none can be made.
        """
        for log_dir in self._online():
            if log_dir.lock is not None:
                continue
            try:
                make_log_dir(self.disk, log_dir.path)
                log_dir.lock = self.disk.lock(f"{log_dir.path}/{LOCK_FILE}")
            except BlockingIOError as error:
                self.unlock()
                raise LogDirError(
                    f"The log dir {log_dir.path} is in use by {error.strerror}: two brokers"
                    " cannot share one. Stop that one, or give this one another log.dirs."
                ) from error
            except OSError as error:
                self.faults.failed(log_dir.path, Call.WRITE, error)
        if self.faults.lost is not None:
            raise self.faults.lost

    def unlock(self) -> None:
        for log_dir in self._log_dirs.values():
            if log_dir.lock is not None:
                log_dir.lock.close()
                log_dir.lock = None

    def prepare(self) -> None:
        """Locks the dirs and learns, or writes, whose they are; `load` does it if nobody did.

        For what must stand before the logs are opened: the metadata, in one of these dirs.
        """
        if self._prepared:
            return
        self.lock()
        for write_missing in (False, True):  # a new dir joins the cluster that the others name
            for log_dir in self._online():
                try:
                    self._identify(log_dir, write_missing=write_missing)
                except OSError as error:
                    self.faults.failed(log_dir.path, Call.WRITE, error)
        self._check_directory_ids()
        if self.faults.lost is not None:
            raise self.faults.lost
        self._prepared = True

    def load(
        self, *, config_of: ConfigOf | None = None, topic_id_of: TopicIdOf | None = None
    ) -> None:
        """Opens every log. `config_of(topic)` gives the topic's configuration in force, and
        `topic_id_of(topic)` the id by which one of two partitions of a name is the right one.

        Raises LogDirError for a dir that is not ours, or a partition that lies in two dirs.
        """
        started_ms = self._clock.monotonic_ms()
        self.prepare()
        surveys: list[Survey] = []
        for log_dir in self._online():
            try:
                surveys.append(survey(self.disk, log_dir.path, self._events))
            except OSError as error:
                # Not a bad range but a dir of which nothing is known.
                self.faults.failed(log_dir.path, Call.WRITE, error)
        if topic_id_of is not None:
            self._set_doubles_aside(surveys, topic_id_of)
        try:
            finish_exchanges(self.disk, surveys, rng=self._rng, events=self._events)
        except OSError as error:
            # Which of two is the newer cannot be known: better none than the wrong one.
            raise LogDirError(f"A move between log dirs cannot be ended: {error}.") from error
        check_unique(surveys)
        opened = open_logs(
            self.disk,
            surveys,
            config_of=config_of or (lambda topic: self._default_config),
            threads=self._recovery_threads,
            clock=self._clock,
            events=self._events,
        )
        for found, logs in zip(surveys, opened, strict=True):
            self._adopt(found, logs)
        if self.unclean_dirs:
            self.checkpoint_recovery_points()  # the next recovery need not begin as early
        if self.faults.lost is not None:
            raise self.faults.lost
        took_ms = self._clock.monotonic_ms() - started_ms
        self._events.info(
            "logs_loaded", logs=len(self._logs), unclean_dirs=self.unclean_dirs, took_ms=took_ms
        )

    def create(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig | None = None
    ) -> Log:
        """Makes an empty log in the emptiest dir; its directory is durable when this returns.

        Blocks: for a start, and for tests. Raises OSError after `faults` heard of it, KafkaError
        for a partition that is here but offline.
        """
        work = Rearrangement()
        self.begin_create(work, topic, partition, topic_id, config)
        self.perform(work)
        for log in self.adopt(work):
            return log
        _, error = next(iter(work.failures.values()))
        raise error

    def delete(self, topic: str, partition: int) -> None:
        """Takes the log out of service; blocks until its directory has its new name.

        Readers that hold a slice of it finish. Its name is free at once. One that is offline is
        forgotten; if its directory shows again, its topic id is a stranger's.
        """
        work = Rearrangement()
        self.begin_delete(work, topic, partition)
        self.perform(work)
        self.adopt(work)

    def set_aside(self, topic: str, partition: int) -> None:
        """Takes a log of no topic that the cluster knows out of service, and keeps its files.

        To be called after `load` for each log whose topic id the metadata image does not have.
        """
        work = Rearrangement()
        self._begin_departure(work, self._logs[topic, partition], Kind.STRAY)
        self.perform(work)
        self.adopt(work)

    def begin_create(
        self,
        work: Rearrangement,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig | None = None,
    ) -> None:
        """Plans a partition in the emptiest dir. With several dirs the caller first sees by the
        image's directory ids that it does not lie in a dir that is offline.

        Raises KafkaError for a partition that is here but offline.
        """
        key = (topic, partition)
        assert key not in self._logs, f"{partition_name(*key)} exists"
        if key in self.offline_partitions:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline_partitions[key])
        log_dir = self._emptiest()
        log_dir.planned += 1
        creation = Creation(key, topic_id, config or self._default_config, log_dir.path)
        work.creations.append(creation)

    def begin_delete(self, work: Rearrangement, topic: str, partition: int) -> None:
        """Takes a log out of service now; its files go file.delete.delay.ms after `adopt`."""
        if self.offline_partitions.pop((topic, partition), None) is None:
            self._begin_departure(work, self._logs[topic, partition], Kind.DELETED)

    def perform(self, work: Rearrangement) -> None:
        """Does what was planned; for a worker thread, one at a time."""
        work.perform(
            self.disk, forget_rows=self._forget_rows, clock=self._clock, events=self._events
        )

    def adopt(self, work: Rearrangement) -> list[Log]:
        """Takes up what `perform` has done; returns the new logs. `faults` hears what failed."""
        for path, (call, error) in work.failures.items():
            self.faults.failed(path, call, error)
        now_ms = self._clock.monotonic_ms()
        for gone in work.departures:
            if gone.log_dir in work.failures:
                continue
            if gone.kind is Kind.DELETED:
                due_ms = now_ms + gone.log.config.file_delete_delay_ms
                self._removals.append(Removal(due_ms, gone.log_dir, gone.new_path, gone.log))
            else:
                self._events.warning("stray_partition_kept", path=gone.new_path)
                gone.log.close(clean=False)
        made: list[Log] = []
        for one in work.creations:
            log_dir = self._log_dirs[one.log_dir]
            log_dir.planned -= 1
            if one.log is None:
                continue
            if one.log_dir in self.offline_dirs:  # meanwhile, or by a failure behind this one
                self.offline_partitions[one.key] = self.offline_dirs[one.log_dir]
                one.log.close(clean=False)
                continue
            self._logs[one.key] = log_dir.logs[one.key] = one.log
            made.append(one.log)
        return made

    def assign_topic_id(self, log: Log, topic_id: bytes) -> None:
        """Gives an id to a log whose partition.metadata was lost before it held anything."""
        assert log.topic_id == ZERO_UUID, log.directory
        try:
            checkpoints.write_partition_metadata(self.disk, log.directory, topic_id)
        except OSError as error:
            self.faults.failed(self.dir_of(log), Call.WRITE, error)
            return
        log.topic_id = topic_id

    # a replica that moves to another log dir: see `moving` for the steps

    def logs_in(self, path: str) -> list[Log]:
        """The logs of a log dir, also one that is being exchanged."""
        return list(self._log_dirs[path].logs.values())

    def withdraw(self, log: Log) -> None:
        """No job is to touch a log that is being exchanged."""
        del self._logs[log.topic, log.partition]
        self._unsynced.pop(log, None)

    def reinstate(self, log: Log) -> None:
        """The exchange came to nothing."""
        key = (log.topic, log.partition)
        if self._log_dirs[self.dir_of(log)].logs.get(key) is log:
            self._logs[key] = log
        for log_dir in self._log_dirs.values():
            log_dir.coming.pop(key, None)

    def expect(self, log: Log, path: str) -> None:
        """Writes into a dir's checkpoints what holds for the copy of a log, before it has its name.

        For a worker. Raises OSError.
        """
        log_dir = self._log_dirs[path]
        log_dir.coming[log.topic, log.partition] = log
        for name in CHECKPOINT_FILES:
            self._write_rows(log_dir, name)

    def exchange(self, old: Log, new: Log) -> str:
        """Serves `new` in place of `old`; the path to which the directory of `old` is to go."""
        key = (old.topic, old.partition)
        new_dir = self._log_dirs[self.dir_of(new)]
        self._logs[key] = new_dir.logs[key] = new
        new_dir.coming.pop(key, None)
        self._log_dirs[self.dir_of(old)].logs.pop(key, None)
        self.offline_partitions.pop(key, None)  # where the old dir has failed meanwhile
        return f"{self.dir_of(old)}/{aside_name(*key, Kind.DELETED, self._rng)}"

    def remove_later(self, log_dir: str, path: str, log: Log | None) -> None:
        """The files of a directory that was set aside go when readers of its log are through."""
        delay_ms = 0 if log is None else log.config.file_delete_delay_ms
        due_ms = self._clock.monotonic_ms() + delay_ms
        self._removals.append(Removal(due_ms, log_dir, path, log))

    def due_for_flush(self) -> list[Log]:
        """The logs unsynced for flush.ms, as far as the times of these calls can tell."""
        now_ms = self._clock.monotonic_ms()
        seen = self._unsynced
        self._unsynced = {}
        due: list[Log] = []
        for log in self._logs.values():
            if log.durable_end == log.log_end_offset:
                continue
            durable_end, since_ms = seen.get(log, (-1, 0))
            if durable_end != log.durable_end:
                since_ms = now_ms  # synced since the last look: what is unsynced now is younger
            self._unsynced[log] = (log.durable_end, since_ms)
            if now_ms - since_ms >= log.config.flush_ms:
                due.append(log)
        return due

    def checkpoint_recovery_points(self) -> None:
        """Whoever truncates a log below its recovery point calls this before appending again."""
        self._checkpoint(checkpoints.RECOVERY_POINT_FILE)

    def checkpoint_log_start_offsets(self) -> None:
        self._checkpoint(checkpoints.LOG_START_FILE)

    def checkpoint_high_watermarks(self) -> None:
        self._checkpoint(checkpoints.HIGH_WATERMARK_FILE)

    def damaged_ranges(self, path: str) -> Ranges:
        """What the logs of a log dir have in quarantine."""
        logs = self._log_dirs[path].logs
        return {key: log.quarantine.ranges for key, log in logs.items() if log.quarantine}

    def keep_damaged_ranges(self, path: str, ranges: Ranges) -> None:
        """Writes them to the log dir's file; may run in a worker."""
        log_dir = self._log_dirs[path]
        try:
            with log_dir.writing:
                write_ranges(self.disk, path, ranges)
        except OSError as error:
            self.post_error(partial(self.faults.failed, path, Call.WRITE, error))

    def delete_some_segments(self, log: Log) -> bool:
        """Deletes a few segments that the rules of `retention` doom; True if there may be more.

        The recovery points are to be checkpointed before. After a crash segments may be missing in
        any order: a recovery that begins at or above all of them does not notice, one that begins
        below takes the gap for the end of the log. So only what ends below the written one goes.
        """
        log_dir = self._log_dirs[self.dir_of(log)]
        key = (log.topic, log.partition)
        if self._logs.get(key) is not log:
            return False  # it is gone, or its dir is, or it is being exchanged
        below = log_dir.rows[checkpoints.RECOVERY_POINT_FILE].get(key, 0)
        try:
            doomed = log.delete_old_segments(
                self._clock.wall_ms(), below=below, at_most=SEGMENTS_AT_ONCE
            )
        except OSError as error:
            self.faults.failed(log_dir.path, Call.WRITE, error)
            return False
        except KafkaError as error:  # of one log: those behind it have old segments, too
            self._events.error("retention_failed", partition=partition_name(*key), error=str(error))
            return False
        return len(doomed) == SEGMENTS_AT_ONCE

    def due_segments(self) -> list[tuple[Log, list[Segment]]]:
        """Deleted segments whose delay is over, by log; for `remove_segments`, once."""
        now_ms = self._clock.wall_ms()
        due = [(log, log.segments.take_deleted(now_ms)) for log in self._logs.values()]
        return [(log, segments) for log, segments in due if segments]

    def remove_segments(self, log: Log, segments: list[Segment]) -> None:
        """Removes their files. May run in a worker."""
        try:
            log.segments.remove_deleted(segments)
        except OSError as error:
            self.post_error(partial(self.faults.failed, self.dir_of(log), Call.WRITE, error))

    def due_removals(self) -> list[Removal]:
        """The deleted partitions whose delay is over, their files closed; for `remove`, once."""
        now_ms = self._clock.monotonic_ms()
        due = [one for one in self._removals if one.due_ms <= now_ms]
        self._removals = [one for one in self._removals if one.due_ms > now_ms]
        due = [one for one in due if one.log_dir not in self.offline_dirs]
        for removal in due:
            if removal.log is not None:
                removal.log.close(clean=False)
        return due

    def remove(self, removal: Removal) -> None:
        """Removes the files. May run in a worker: to unlink a large file takes long."""
        try:
            if self.disk.exists(removal.path):
                for name in self.disk.list(removal.path):
                    with suppress(FileNotFoundError):  # somebody made room by hand
                        self.disk.remove(f"{removal.path}/{name}")
                self.disk.remove(removal.path)
        except OSError as error:
            self.post_error(partial(self.faults.failed, removal.log_dir, Call.WRITE, error))
            return

    def shutdown(self, broker_epoch: int) -> None:
        """Closes and syncs every log, and marks each dir clean in which nothing went wrong."""
        self.scrubber.close()
        for removal in self._removals:
            if removal.log is not None:
                removal.log.close(clean=False)
        for log_dir in self._online():
            for log in log_dir.logs.values():
                try:
                    log.close(clean=True)
                except OSError as error:
                    log_dir.sound = False
                    self.faults.failed(log_dir.path, Call.SYNC, error)
                    break
        for name in CHECKPOINT_FILES:
            self._checkpoint(name)
        for log_dir in self._online():
            if log_dir.sound:
                try:
                    checkpoints.write_clean_shutdown(
                        self.disk, log_dir.path, broker_epoch=broker_epoch
                    )
                except OSError as error:
                    self.faults.failed(log_dir.path, Call.WRITE, error)
        self._logs.clear()
        for log_dir in self._log_dirs.values():
            log_dir.logs.clear()
        self.unlock()

    def abandon(self) -> None:
        """Gives the dirs back as a crash would: nothing is synced, nothing is marked clean."""
        self.scrubber.close()
        for log in self._logs.values():
            log.close(clean=False)
        self._logs.clear()
        self.unlock()

    def _online(self) -> list[_LogDir]:
        return [one for one in self._log_dirs.values() if one.path not in self.offline_dirs]

    def _emptiest(self) -> _LogDir:
        online = self._online()
        assert online, "the process has to end when no log dir is left"
        return min(online, key=lambda one: len(one.logs) + one.planned)

    def _identify(self, log_dir: _LogDir, *, write_missing: bool) -> None:
        meta = identify(self.disk, log_dir.path, node_id=self.node_id, cluster_id=self.cluster_id)
        if meta is None:
            if not write_missing:
                return
            cluster_id = self.cluster_id or self._new_cluster_id
            if cluster_id is None:
                raise LogDirError(f"The log dir {log_dir.path} has not been formatted.")
            meta = MetaProperties(cluster_id, self.node_id, new_directory_id(self._rng))
            now_ms = self._clock.wall_ms()
            checkpoints.write_meta_properties(self.disk, log_dir.path, meta, now_ms=now_ms)
        log_dir.meta = meta
        self.cluster_id = meta.cluster_id

    def _check_directory_ids(self) -> None:
        seen: dict[bytes, str] = {}
        for path, directory_id in self.directory_ids.items():
            other = seen.setdefault(directory_id, path)
            if other != path:
                raise LogDirError(
                    f"The log dirs {other} and {path} have the same directory.id: one is a copy"
                    " of the other. Remove the copy."
                )

    def _adopt(self, found: Survey, opened: Opened) -> None:
        log_dir = self._log_dirs[found.log_dir]
        log_dir.clean = found.clean or not (opened.logs or opened.failed)
        log_dir.rows = found.rows
        self.previous_broker_epoch = max(self.previous_broker_epoch, found.broker_epoch)
        now_ms = self._clock.monotonic_ms()
        self.found_copies += found.copies
        for path in found.deleted:
            self._removals.append(Removal(now_ms, found.log_dir, path, None))
        for log in opened.logs:
            log_dir.logs[log.topic, log.partition] = log
        self._logs.update(log_dir.logs)
        self._restore_damaged_ranges(log_dir)
        for key, error in opened.failed.items():
            log_dir.sound = False
            self.offline_partitions[key] = str(error)
            self._events.error("log_load_failed", partition=partition_name(*key), error=str(error))
            self.faults.failed(found.log_dir, Call.READ, error)

    def _restore_damaged_ranges(self, log_dir: _LogDir) -> None:
        try:
            ranges = read_ranges(self.disk, log_dir.path, self._events)
            for key, log in log_dir.logs.items():
                if key in ranges or log.recovery.damaged:
                    restore(log, ranges.get(key, []))
        except OSError as error:
            self.faults.failed(log_dir.path, Call.READ, error)

    def _take_offline(self, path: str) -> None:
        log_dir = self._log_dirs[path]
        log_dir.sound = False
        for key in log_dir.logs:
            self._logs.pop(key, None)
            self.offline_partitions[key] = self.offline_dirs[path]
        log_dir.logs.clear()

    def _set_doubles_aside(self, surveys: list[Survey], topic_id_of: TopicIdOf) -> None:
        doubled = doubled_partitions(surveys)
        for found in list(surveys) if doubled else ():
            try:
                set_doubles_aside(
                    self.disk,
                    found,
                    doubled,
                    topic_id_of=topic_id_of,
                    rng=self._rng,
                    events=self._events,
                )
            except OSError as error:
                self.faults.failed(found.log_dir, Call.SYNC, error)
                surveys.remove(found)

    def _begin_departure(self, work: Rearrangement, log: Log, kind: Kind) -> None:
        log_dir = self.dir_of(log)
        path = f"{log_dir}/{aside_name(log.topic, log.partition, kind, self._rng)}"
        work.departures.append(Departure(log, log_dir, path, kind))
        del self._logs[log.topic, log.partition]
        del self._log_dirs[log_dir].logs[log.topic, log.partition]
        self._unsynced.pop(log, None)

    def _forget_rows(self, path: str, keys: set[TopicPartition]) -> None:
        log_dir = self._log_dirs[path]
        for name in CHECKPOINT_FILES:
            self._write_rows(log_dir, name, only_without=keys)

    def _checkpoint(self, name: str) -> None:
        for log_dir in self._online():
            try:
                self._write_rows(log_dir, name)
            except OSError as error:
                self.post_error(partial(self.faults.failed, log_dir.path, Call.WRITE, error))

    def _write_rows(
        self, log_dir: _LogDir, name: str, *, only_without: set[TopicPartition] | None = None
    ) -> None:
        """Writes the file if its rows changed; or only if it has rows that must go."""
        with log_dir.writing:
            if only_without is not None and only_without.isdisjoint(log_dir.rows[name]):
                return
            rows = self._rows(log_dir, name)
            if rows != log_dir.rows[name]:
                checkpoints.write_offsets(self.disk, f"{log_dir.path}/{name}", rows)
                log_dir.rows[name] = rows

    def _rows(self, log_dir: _LogDir, name: str) -> Rows:
        # A copy, for a worker thread may ask while the loop creates a log.
        logs = [*log_dir.logs.items(), *log_dir.coming.items()]
        match name:
            case checkpoints.RECOVERY_POINT_FILE:
                return {key: log.recovery_point for key, log in logs}
            case checkpoints.HIGH_WATERMARK_FILE:
                return {key: log.high_watermark for key, log in logs}
            case _:
                assert name == checkpoints.LOG_START_FILE, name
                return {
                    key: log.log_start_offset
                    for key, log in logs
                    if log.log_start_offset > log.segments[0].base_offset
                }
