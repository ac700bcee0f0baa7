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

from collections.abc import Callable, Iterable
from functools import partial

from ottla.broker.faults import Call, DiskFaults, Reaction
from ottla.broker.log import checkpoints
from ottla.broker.log.checkpoints import TopicPartition
from ottla.broker.log.deletions import Deletions
from ottla.broker.log.directories import (
    Kind,
    LogDirError,
    aside_name,
    partition_name,
)
from ottla.broker.log.flush import UnsyncedTimes
from ottla.broker.log.loading import (
    CHECKPOINT_FILES,
    ConfigOf,
    FoundCopy,
    Opened,
    Survey,
    TopicIdOf,
    check_unique,
    open_logs,
    survey_all,
)
from ottla.broker.log.log import Log
from ottla.broker.log.log_dir import LogDir, take_all
from ottla.broker.log.moving import finish_exchanges
from ottla.broker.log.quarantine import Ranges
from ottla.broker.log.rearranging import Creation, Departure, Rearrangement
from ottla.broker.log.scrub import Scrubber
from ottla.broker.ports import Clock, Disk, Events, Rng
from ottla.config.types import LogConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.wire import ZERO_UUID

# Enough to know them by; how many there are is told, too.
NAMES_TOLD_MAX = 10
# Kafka's num.recovery.threads.per.data.dir.
DEFAULT_RECOVERY_THREADS = 2


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
        `recovery_threads` of each dir load its logs, and may be set until they are loaded.

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
        self._metadata_dir = metadata_dir or self.dirs[0]
        self.faults = DiskFaults(
            self.dirs, metadata_dir=self._metadata_dir, clock=clock, events=events
        )
        self.faults.on_offline(self._take_offline)
        # Partitions that are here but cannot be served, and why: their clients get error 56.
        self.offline_partitions: dict[TopicPartition, str] = {}
        self._clock = clock
        self._events = events
        self._rng = rng
        self._default_config = default_config
        self.recovery_threads = recovery_threads
        # The dirs that get no new partition while there are others.
        self.cordoned_dirs: frozenset[str] = frozenset()
        # Those where clients' records are refused, for want of room.
        self.full_dirs: frozenset[str] = frozenset()
        self._log_dirs = {path: LogDir(disk, path) for path in self.dirs}
        self._logs: dict[TopicPartition, Log] = {}
        # Out of service, and where they were: workers may be at them, so the end closes them.
        self._left: list[Log] = []
        # Those that a full disk would give no other name yet.
        self._refused: list[Departure] = []
        self.deletions = Deletions(
            disk,
            clock=clock,
            events=events,
            faults=self.faults,
            post_error=lambda tell: self.post_error(tell),
            written_point=self._written_point,
        )
        # What `load` has found of moves between log dirs; whoever carries them on takes it.
        self.found_copies: list[FoundCopy] = []
        # How a worker thread hands an error to the loop: the shell sets call_soon_threadsafe.
        self._prepared = False
        self.post_error: Callable[[Callable[[], object]], object] = lambda tell: tell()
        self.scrubber = Scrubber(
            list_logs=lambda: self.logs, find_log=self.get, events=events, rng=rng
        )
        self._unsynced: UnsyncedTimes[Log] = UnsyncedTimes()
        # What the recovery points name and `load` has not found, and up to where it was durable.
        self.vanished: dict[TopicPartition, int] = {}

    def __repr__(self) -> str:
        return (
            f"<LogManager node={self.node_id} logs={len(self._logs)} dirs={len(self.dirs)}"
            f" offline={list(self.offline_dirs)} to_remove={len(self.deletions)}>"
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

    def unlock(self) -> None:
        for log_dir in self._log_dirs.values():
            log_dir.give_back()

    def prepare(self) -> None:
        """Locks the dirs and learns, or writes, whose they are; `load` does it if nobody did.

        For what must stand before the logs are opened: the metadata, in one of these dirs. Raises
        LogDirError, or UnusableLogDir where the broker cannot do without a dir.
        """
        if self._prepared:
            return
        self.cluster_id = take_all(
            list(self._log_dirs.values()),
            metadata_dir=self._metadata_dir,
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            new_cluster_id=self._new_cluster_id,
            rng=self._rng,
            now_ms=self._clock.wall_ms(),
            faults=self.faults,
        )
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
        surveys = survey_all(
            self.disk,
            [one.path for one in self._online()],
            topic_id_of=topic_id_of,
            rng=self._rng,
            events=self._events,
            faults=self.faults,
        )
        try:
            finish_exchanges(self.disk, surveys, rng=self._rng, events=self._events)
        except OSError as error:
            # Which of two is the newer cannot be known: better none than the wrong one.
            raise LogDirError(f"A move between log dirs cannot be ended: {error}.") from error
        check_unique(surveys)
        work = Rearrangement()
        work.departures += (gone for found in surveys for gone in found.departures)
        self._perform_all(work)
        surveys = [found for found in surveys if found.log_dir not in self.offline_dirs]
        opened = open_logs(
            self.disk,
            surveys,
            config_of=config_of or (lambda topic: self._default_config),
            threads=self.recovery_threads,
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
        for log in self._perform_all(work):
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
        self._perform_all(work)

    def set_aside(self, topic: str, partition: int) -> None:
        """Takes a log of no topic that the cluster knows out of service, and keeps its files.

        To be called after `load` for each log whose topic id the metadata image does not have.
        """
        work = Rearrangement()
        self._begin_departure(work, self._logs[topic, partition], Kind.STRAY)
        self._perform_all(work)

    def leave_out(self, log: Log, reason: str) -> None:
        """Leaves a log offline, as one that could not be opened; its files stay where they are."""
        key = (log.topic, log.partition)
        del self._logs[key]
        self._log_dirs[self.dir_of(log)].leave_out(log)
        self._unsynced.forget(log)
        self.offline_partitions[key] = reason
        log.close(clean=False)

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
        self.begin_again(work, key)
        log_dir = self._emptiest()
        log_dir.planned += 1
        creation = Creation(key, topic_id, config or self._default_config, log_dir.path)
        work.creations.append(creation)

    def begin_delete(self, work: Rearrangement, topic: str, partition: int) -> None:
        """Takes a log out of service now; its files go file.delete.delay.ms after `adopt`."""
        key = (topic, partition)
        if self.offline_partitions.pop(key, None) is None:
            self._begin_departure(work, self._logs[key], Kind.DELETED)
        for log_dir in self._log_dirs.values():
            log_dir.unopened.discard(key)

    def has_refused(self, log_dir: str | None = None, name: TopicPartition | None = None) -> bool:
        """Whether what is out of service waits for another name: what has a partition's name in a
        log dir, or any."""
        if log_dir is None:
            return bool(self._refused)
        found = (one for one in self._refused if one.holds_name)
        return any((one.log_dir, one.key) == (log_dir, name) for one in found)

    def begin_again(self, work: Rearrangement, name: TopicPartition | None = None) -> None:
        """Plans once more what a full disk refused: all of it, or what has a name that is to be
        used again."""
        refused, self._refused = self._refused, []
        for one in refused:
            is_asked = name is None or (one.key == name and one.holds_name)
            (work.departures if is_asked else self._refused).append(one)

    def perform(self, work: Rearrangement) -> None:
        """Does what was planned; for a worker thread, one at a time."""
        work.perform(
            self.disk, forget_rows=self._forget_rows, clock=self._clock, events=self._events
        )

    def adopt(self, work: Rearrangement) -> list[Log]:
        """Takes up what `perform` has done; returns the new logs. `faults` hears what failed."""
        for path, (call, error) in work.failures.items():
            self.faults.failed(path, call, error)
        for gone in work.departures:
            if gone.log_dir in self.offline_dirs:
                if gone.log is not None:
                    self.leave(gone.log)
            elif not gone.home.moved:
                self._refused.append(gone)
            elif gone.kind is Kind.DELETED:
                self.deletions.add(gone.log_dir, gone.new_path, gone.log)
            else:
                self._events.warning("stray_partition_kept", path=gone.new_path)
                if gone.log is not None:
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

    def doubt(self, path: str) -> None:
        """A start is to recover what lies in a log dir: not all of it was closed in good order."""
        self._log_dirs[path].sound = False

    def leave(self, log: Log) -> None:
        """One that is out of service, and stays where the next start finds it."""
        self._left.append(log)

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
        self._unsynced.forget(log)

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
        self._log_dirs[path].expect(log)

    def exchange(self, old: Log, new: Log) -> str:
        """Serves `new` in place of `old`; the path to which the directory of `old` is to go."""
        key = (old.topic, old.partition)
        new_dir = self._log_dirs[self.dir_of(new)]
        self._logs[key] = new_dir.logs[key] = new
        new_dir.coming.pop(key, None)
        self._log_dirs[self.dir_of(old)].logs.pop(key, None)
        self.offline_partitions.pop(key, None)  # where the old dir has failed meanwhile
        return f"{self.dir_of(old)}/{aside_name(*key, Kind.DELETED, self._rng)}"

    def due_for_flush(self) -> list[Log]:
        """The logs unsynced for flush.ms, as far as the times of these calls can tell."""
        return self._unsynced.due(self._logs.values(), self._clock.monotonic_ms())

    def longest_unsynced(self, count: int) -> list[Log]:
        """So many logs that are unsynced, those first that were written to the longest ago."""
        if not count:
            return []
        unsynced = [one for one in self.logs if one.durable_end < one.log_end_offset]
        return sorted(unsynced, key=lambda one: one.segments.active.last_modified)[:count]

    def checkpoint_recovery_points(self) -> None:
        """Whoever truncates a log below its recovery point calls this before appending again."""
        self._checkpoint(checkpoints.RECOVERY_POINT_FILE)

    def checkpoint_log_start_offsets(self) -> None:
        self._checkpoint(checkpoints.LOG_START_FILE)

    def checkpoint_high_watermarks(self) -> None:
        self._checkpoint(checkpoints.HIGH_WATERMARK_FILE)

    def damaged_ranges(self, path: str) -> Ranges:
        """What is known to be damaged in a log dir."""
        return self._log_dirs[path].damaged_ranges()

    def keep_damaged_ranges(self, path: str, ranges: Ranges) -> None:
        """Writes them to the log dir's file; may run in a worker."""
        try:
            self._log_dirs[path].write_damaged_ranges(ranges)
        except OSError as error:
            self.post_error(partial(self.faults.failed, path, Call.WRITE, error))

    def shutdown(self, broker_epoch: int) -> None:
        """Closes and syncs every log, and marks each dir clean in which nothing went wrong.

        What waits for another name is tried once more: the next start keeps it as a stray.
        """
        self.scrubber.close()
        work = Rearrangement()
        self.begin_again(work)
        self._perform_all(work)
        for gone in self._refused:
            self.doubt(gone.log_dir)
        self.deletions.close()
        for log_dir in self._online():
            for log in list(log_dir.logs.values()):
                try:
                    log.close(clean=True)
                except OSError as error:
                    log_dir.sound = False
                    # Unless it failed, all is on disk but what a start makes anew.
                    call = Call.WRITE if log.failed is None else Call.SYNC
                    if self.faults.failed(log_dir.path, call, error) is not Reaction.REFUSED:
                        break
                    log.close(clean=False)
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
        self.deletions.close()
        refused = [one.log for one in self._refused if one.log is not None]
        for log in (*self._logs.values(), *self._left, *refused):
            log.close(clean=False)
        self._logs.clear()
        self._left.clear()
        self._refused.clear()
        self.unlock()

    def _perform_all(self, work: Rearrangement) -> list[Log]:
        self.perform(work)
        return self.adopt(work)

    def _online(self) -> list[LogDir]:
        return [one for one in self._log_dirs.values() if one.path not in self.offline_dirs]

    def _emptiest(self) -> LogDir:
        online = self._online()
        assert online, "the process has to end when no log dir is left"
        open_ones = [one for one in online if one.path not in self.cordoned_dirs]
        return min(
            open_ones or online,
            key=lambda one: (one.path in self.full_dirs, len(one.logs) + one.planned),
        )

    def _adopt(self, found: Survey, opened: Opened) -> None:
        log_dir = self._log_dirs[found.log_dir]
        log_dir.clean = found.clean or not (opened.logs or opened.failed)
        log_dir.rows = found.rows
        log_dir.unopened = set(opened.failed)
        self.previous_broker_epoch = max(self.previous_broker_epoch, found.broker_epoch)
        self.found_copies += found.copies
        for path in found.deleted:
            self.deletions.add(found.log_dir, path, None)
        for log in opened.logs:
            log_dir.logs[log.topic, log.partition] = log
        self._logs.update(log_dir.logs)
        known = log_dir.logs.keys() | log_dir.unopened
        for key, end in found.rows[checkpoints.RECOVERY_POINT_FILE].items():
            if end > 0 and key not in known:
                self.vanished[key] = end
        try:
            if log_dir.restore_damaged_ranges(self._events):
                # A recovery tells of its findings once, and the next start may be clean.
                self.keep_damaged_ranges(log_dir.path, log_dir.damaged_ranges())
        except OSError as error:
            self.faults.failed(log_dir.path, Call.READ, error)
        if opened.failed:
            log_dir.sound = False
            self.offline_partitions.update((key, str(one)) for key, one in opened.failed.items())
            self._events.error(
                "logs_not_loaded",
                dir=log_dir.path,
                logs=len(opened.failed),
                partitions=[partition_name(*key) for key in opened.failed][:NAMES_TOLD_MAX],
                error=str(next(iter(opened.failed.values()))),
            )

    def _take_offline(self, path: str) -> None:
        log_dir = self._log_dirs[path]
        log_dir.sound = False
        self._left += log_dir.logs.values()
        self._left += (one.log for one in self._refused if one.log_dir == path and one.log)
        self._refused = [one for one in self._refused if one.log_dir != path]
        for key in log_dir.logs:
            self._logs.pop(key, None)
            self.offline_partitions[key] = self.offline_dirs[path]
        log_dir.logs.clear()

    def _begin_departure(self, work: Rearrangement, log: Log, kind: Kind) -> None:
        log_dir = self.dir_of(log)
        path = f"{log_dir}/{aside_name(log.topic, log.partition, kind, self._rng)}"
        work.departures.append(Departure.of(log, path, kind))
        del self._logs[log.topic, log.partition]
        del self._log_dirs[log_dir].logs[log.topic, log.partition]
        self._unsynced.forget(log)

    def _written_point(self, log: Log) -> int | None:
        """The recovery point on disk of a log that is served; None of any other."""
        key = (log.topic, log.partition)
        if self._logs.get(key) is not log:
            return None  # it is gone, or its dir is, or it is being exchanged
        rows = self._log_dirs[self.dir_of(log)].rows
        return rows[checkpoints.RECOVERY_POINT_FILE].get(key, 0)

    def _forget_rows(self, path: str, keys: set[TopicPartition]) -> None:
        for name in CHECKPOINT_FILES:
            self._log_dirs[path].write_checkpoint(name, only_without=keys)

    def _checkpoint(self, name: str) -> None:
        for log_dir in self._online():
            try:
                log_dir.write_checkpoint(name)
            except OSError as error:
                self.post_error(partial(self.faults.failed, log_dir.path, Call.WRITE, error))
