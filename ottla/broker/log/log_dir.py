"""One log dir of a broker: its lock, whose it is, its logs, and its checkpoint files.

The checkpoints are rows of one number for each log, in files that are replaced as a whole, and only
when a row has changed. They are written by worker threads as well as by the loop's, so each dir has
a lock of its own: two writers would share one temporary file.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ottla.broker.faults import Call, DiskFaults
from ottla.broker.log import checkpoints
from ottla.broker.log.checkpoints import MetaProperties, TopicPartition
from ottla.broker.log.directories import (
    LOCK_FILE,
    BusyLogDir,
    ForeignLogDir,
    Kind,
    LogDirError,
    UnusableLogDir,
    holds_partition,
    identify,
    make_log_dir,
    new_directory_id,
    parse_name,
    way_to_restore_identity,
)
from ottla.broker.log.loading import CHECKPOINT_FILES, Rows
from ottla.broker.log.log import Log
from ottla.broker.log.quarantine import Ranges, read_ranges, write_ranges
from ottla.broker.log.scrub import restore
from ottla.broker.ports import THIS_PROCESS, Disk, Events, File, Rng


class LogDir:
    """What is known of one log dir. What touches the disk raises OSError."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.meta: MetaProperties | None = None
        # Whether the last process stopped it cleanly, or it has nothing to recover.
        self.clean = False
        self.logs: dict[TopicPartition, Log] = {}
        # Logs of other dirs whose copies are about to take a name here.
        self.coming: dict[TopicPartition, Log] = {}
        # Partitions in it that could not be opened. What was known of them waits for the next
        # start, which would else take all that they hold for unsynced.
        self.unopened: set[TopicPartition] = set()
        self._unopened_ranges: Ranges = {}
        # Partitions that a worker is about to make.
        self.planned = 0
        # False once a log in it could not be loaded or closed: then nobody may mark it clean.
        self.sound = True
        # The rows that each checkpoint file holds now, so that an unchanged one is not written.
        self.rows: dict[str, Rows] = {}
        self._disk = disk
        self._lock: File | None = None
        self._writing = threading.Lock()

    def __repr__(self) -> str:
        return f"<LogDir {self.path} logs={len(self.logs)} sound={self.sound}>"

    # whose it is

    def take(self) -> None:
        """Makes the directory where it is missing, and keeps every other broker out of it.

        BusyLogDir, which names the holder, if it is in use.
        """
        if self._lock is not None:
            return
        make_log_dir(self._disk, self.path)
        try:
            self._lock = self._disk.lock(f"{self.path}/{LOCK_FILE}")
        except BlockingIOError as error:
            here = error.strerror == THIS_PROCESS
            holder = f"another broker of {THIS_PROCESS}" if here else error.strerror
            raise BusyLogDir(
                f"The log dir {self.path} is in use by {holder}: two brokers"
                " cannot share one. Stop that one, or give this one another log.dirs."
            ) from error

    def give_back(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def identify(self, *, node_id: int, cluster_id: str | None) -> None:
        """Learns whose it is; `meta` is None where it does not say. LogDirError if another's."""
        self.meta = identify(self._disk, self.path, node_id=node_id, cluster_id=cluster_id)

    def refuse_if_used(self, node_id: int) -> None:
        """It has no meta.properties: ForeignLogDir if it has partitions, for then it had one, and
        a new one would make it a directory that nobody knows."""
        for name in self._disk.list(self.path):
            known = parse_name(name)
            if known is None or known.kind is not Kind.PARTITION:
                continue
            path = f"{self.path}/{name}"
            if holds_partition(self._disk, path, known.kind) and self._disk.list(path):
                raise ForeignLogDir(
                    f"The log dir {self.path} holds {name}, and its meta.properties, which says"
                    f" whose it is, is missing. {way_to_restore_identity(node_id)}"
                )

    def join(self, meta: MetaProperties, *, now_ms: int) -> None:
        """Makes it one of a cluster."""
        checkpoints.write_meta_properties(self._disk, self.path, meta, now_ms=now_ms)
        self.meta = meta

    # its files

    def leave_out(self, log: Log) -> None:
        """Takes a log as one that could not be opened: what is known of it is kept."""
        key = (log.topic, log.partition)
        del self.logs[key]
        self.unopened.add(key)
        self.sound = False
        if log.quarantine:
            self._unopened_ranges[key] = log.quarantine.ranges

    def write_checkpoint(
        self, name: str, *, only_without: set[TopicPartition] | None = None
    ) -> None:
        """Writes a checkpoint file if its rows changed; or only if it has rows that must go."""
        with self._writing:
            if only_without is not None and only_without.isdisjoint(self.rows[name]):
                return
            rows = self._rows(name)
            if rows != self.rows[name]:
                checkpoints.write_offsets(self._disk, f"{self.path}/{name}", rows)
                self.rows[name] = rows

    def expect(self, log: Log) -> None:
        """Writes into the checkpoints what holds for the copy of a log that is to come here."""
        self.coming[log.topic, log.partition] = log
        for name in CHECKPOINT_FILES:
            self.write_checkpoint(name)

    def write_damaged_ranges(self, ranges: Ranges) -> None:
        with self._writing:
            write_ranges(self._disk, self.path, ranges)

    def damaged_ranges(self) -> Ranges:
        """What its logs have in quarantine, and what is known of those that could not be opened."""
        kept = {key: one for key, one in self._unopened_ranges.items() if key in self.unopened}
        return kept | {
            key: log.quarantine.ranges for key, log in self.logs.items() if log.quarantine
        }

    def restore_damaged_ranges(self, events: Events) -> bool:
        """Takes up what scrubbing had found before, as far as the logs still say so, and what their
        recovery has found; whether the file is to say something else now.

        Raises OSError, when it has taken up those of the logs that could be read.
        """
        ranges = read_ranges(self._disk, self.path, events)
        self._unopened_ranges = {
            key: found for key, found in ranges.items() if key in self.unopened
        }
        unread: OSError | None = None
        for key, log in self.logs.items():
            if key in ranges or log.recovery.damaged:
                try:
                    restore(log, ranges.get(key, []))
                except OSError as error:
                    unread = unread or error
        if unread is not None:
            raise unread
        return self.damaged_ranges() != ranges

    def _rows(self, name: str) -> Rows:
        kept = {key: row for key, row in self.rows[name].items() if key in self.unopened}
        return kept | self._rows_of_logs(name)

    def _rows_of_logs(self, name: str) -> Rows:
        # Copies, for a worker thread may ask while the loop creates a log.
        mine, coming = list(self.logs.items()), list(self.coming.items())
        logs = mine + coming
        match name:
            case checkpoints.RECOVERY_POINT_FILE:
                return {key: log.recovery_point for key, log in logs}
            case checkpoints.HIGH_WATERMARK_FILE:
                return {key: log.high_watermark for key, log in logs}
            case _:
                assert name == checkpoints.LOG_START_FILE, name
                # The first segment of a copy may begin lower than that of its log does by now.
                starts = {key: log.log_start_offset for key, log in coming}
                return starts | {
                    key: log.log_start_offset
                    for key, log in mine
                    if log.log_start_offset > log.segments[0].base_offset
                    or log.segments.may_come_back
                }


def take_all(
    log_dirs: Sequence[LogDir],
    *,
    metadata_dir: str,
    node_id: int,
    cluster_id: str | None,
    new_cluster_id: str | None,
    rng: Rng,
    now_ms: int,
    faults: DiskFaults,
) -> str | None:
    """Makes and locks the dirs, and learns, or writes, whose they are; the id of their cluster.

    That is `cluster_id`, or the one that the dirs name, or else `new_cluster_id`. `faults` hears
    of the dirs that cannot be used. Raises BusyLogDir, all locks given back, if one is in use,
    and UnusableLogDir if the broker cannot do without one.
    """
    failures: dict[str, OSError] = {}
    for log_dir in log_dirs:
        try:
            log_dir.take()
        except BusyLogDir:
            for one in log_dirs:
                one.give_back()
            raise
        except OSError as error:
            failures[log_dir.path] = error
    cluster_id = _identify_all(
        log_dirs,
        node_id=node_id,
        cluster_id=cluster_id,
        new_cluster_id=new_cluster_id,
        rng=rng,
        now_ms=now_ms,
        failures=failures,
    )
    for path, failure in failures.items():
        if path == metadata_dir or len(failures) == len(log_dirs):
            raise UnusableLogDir(f"The log dir {path} cannot be used: {failure.strerror}.")
    for path, failure in failures.items():
        # Whatever it was: nobody has locked the dir, or knows whose it is.
        faults.failed(path, Call.SYNC, failure)
    return cluster_id


def _identify_all(
    log_dirs: Sequence[LogDir],
    *,
    node_id: int,
    cluster_id: str | None,
    new_cluster_id: str | None,
    rng: Rng,
    now_ms: int,
    failures: dict[str, OSError],
) -> str | None:
    """What the disk says no to joins the `failures`; a dir that is there is left alone."""
    for write_missing in (False, True):  # a new dir joins the cluster that the others name
        for log_dir in log_dirs:
            if write_missing and log_dir.meta is None and log_dir.path not in failures:
                try:
                    log_dir.refuse_if_used(node_id)  # before any of them joins
                except OSError as error:
                    failures[log_dir.path] = error
        for log_dir in log_dirs:
            if log_dir.path in failures:
                continue
            try:
                log_dir.identify(node_id=node_id, cluster_id=cluster_id)
                if log_dir.meta is None and write_missing:
                    new_id = cluster_id or new_cluster_id
                    if new_id is None:
                        raise LogDirError(f"The log dir {log_dir.path} has not been formatted.")
                    meta = MetaProperties(new_id, node_id, new_directory_id(rng))
                    log_dir.join(meta, now_ms=now_ms)
            except OSError as error:
                failures[log_dir.path] = error
            if log_dir.meta is not None:
                cluster_id = log_dir.meta.cluster_id
    _check_directory_ids(log_dirs)
    return cluster_id


def _check_directory_ids(log_dirs: Sequence[LogDir]) -> None:
    seen: dict[bytes, str] = {}
    for log_dir in log_dirs:
        if log_dir.meta is None:
            continue
        other = seen.setdefault(log_dir.meta.directory_id, log_dir.path)
        if other != log_dir.path:
            raise LogDirError(
                f"The log dirs {other} and {log_dir.path} have the same directory.id: one is a"
                " copy of the other. Remove the copy."
            )
