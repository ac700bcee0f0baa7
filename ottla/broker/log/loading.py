"""From a log dir to its open logs.

`survey` reads what the last process left beside the logs, and takes its marker of a clean stop
away; `open_logs` opens the partitions. Those of a clean dir are opened one after the other, for
that is quick; those of an unclean one are recovered by several threads for each dir, all dirs at
once. With one thread for each dir everything runs on the caller's, always in the same order.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ottla.broker.faults import Call, DiskFaults
from ottla.broker.log import checkpoints
from ottla.broker.log.checkpoints import TopicPartition
from ottla.broker.log.directories import (
    Kind,
    LogDirError,
    PartitionName,
    aside_name,
    list_partitions,
    partition_name,
)
from ottla.broker.log.log import Log
from ottla.broker.log.partition_dir import PartitionDir
from ottla.broker.log.rearranging import Departure
from ottla.broker.ports import Clock, Disk, Events, Rng
from ottla.config.types import LogConfig
from ottla.protocol.wire import ZERO_UUID

# Often enough for somebody who watches a long recovery, rare enough for a log file.
PROGRESS_INTERVAL_MS = 5_000

CHECKPOINT_FILES = (
    checkpoints.RECOVERY_POINT_FILE,
    checkpoints.LOG_START_FILE,
    checkpoints.HIGH_WATERMARK_FILE,
)

Rows = dict[TopicPartition, int]
ConfigOf = Callable[[str], LogConfig]
TopicIdOf = Callable[[str], bytes | None]


@dataclass(slots=True, frozen=True)
class FoundCopy:
    """The copy of a move that was not ended. `clean`: it was closed in good order. The topic may be
    another by now; None if the copy does not say of which it is."""

    log_dir: str
    path: str
    name: PartitionName
    topic_id: bytes | None
    clean: bool


@dataclass(slots=True)
class Survey:
    """What lies in a log dir; `rows` is what each checkpoint file says."""

    log_dir: str
    clean: bool
    broker_epoch: int
    rows: dict[str, Rows]
    partitions: list[PartitionName] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    copies: list[FoundCopy] = field(default_factory=list)
    # What is in another dir as well, and not served here: yet to be renamed.
    departures: list[Departure] = field(default_factory=list)


@dataclass(slots=True)
class Opened:
    """The logs of one log dir, and the partitions of it that could not be opened."""

    logs: list[Log] = field(default_factory=list)
    failed: dict[TopicPartition, OSError] = field(default_factory=dict)


def survey(disk: Disk, log_dir: str, events: Events) -> Survey:
    """Reads the dir's marker, checkpoints and names. The marker is gone when this returns."""
    epoch = checkpoints.take_clean_shutdown(disk, log_dir, events)
    found = Survey(
        log_dir=log_dir,
        clean=epoch is not None,
        broker_epoch=-1 if epoch is None else epoch,
        rows={
            name: checkpoints.read_offsets(disk, f"{log_dir}/{name}", events)
            for name in CHECKPOINT_FILES
        },
    )
    for name, parsed in list_partitions(disk, log_dir, events):
        match parsed.kind:
            case Kind.PARTITION:
                found.partitions.append(parsed)
            case Kind.DELETED:
                found.deleted.append(f"{log_dir}/{name}")
            case Kind.FUTURE:
                path = f"{log_dir}/{name}"
                topic_id = checkpoints.read_partition_metadata(disk, path, events)
                found.copies.append(FoundCopy(log_dir, path, parsed, topic_id, found.clean))
            case Kind.STRAY:
                events.warning("partition_left_aside", dir=log_dir, name=name)
    return found


def survey_all(
    disk: Disk,
    log_dirs: Sequence[str],
    *,
    topic_id_of: TopicIdOf | None,
    rng: Rng,
    events: Events,
    faults: DiskFaults,
) -> list[Survey]:
    """What lies in each log dir that can be read, without what `topic_id_of` shows to be old.

    `faults` hears of the dirs that cannot.
    """
    surveys: list[Survey] = []
    for log_dir in log_dirs:
        try:
            surveys.append(survey(disk, log_dir, events))
        except OSError as error:
            faults.failed(log_dir, Call.LOAD, error)
    doubled = doubled_partitions(surveys)
    if topic_id_of is None or not doubled:
        return surveys
    for found in list(surveys):
        try:
            _leave_out_strays(disk, found, doubled, topic_id_of=topic_id_of, rng=rng, events=events)
        except OSError as error:
            faults.failed(found.log_dir, Call.LOAD, error)
            surveys.remove(found)
    return surveys


def _leave_out_strays(
    disk: Disk,
    found: Survey,
    doubled: set[PartitionName],
    *,
    topic_id_of: TopicIdOf,
    rng: Rng,
    events: Events,
) -> None:
    """Takes out of a survey what lies in another dir as well and is of a topic deleted since.

    Such a partition is left in a dir that was offline while its topic was deleted, or that had no
    room for another name. Its files are kept. Raises OSError.
    """
    for name in [one for one in found.partitions if one in doubled]:
        directory = f"{found.log_dir}/{partition_name(name.topic, name.partition)}"
        topic_id = checkpoints.read_partition_metadata(disk, directory, events)
        right_id = topic_id_of(name.topic)
        if right_id is None or topic_id not in (None, right_id):
            leave_out(disk, found, name, Kind.STRAY, rng=rng, events=events)


def leave_out(
    disk: Disk, found: Survey, name: PartitionName, kind: Kind, *, rng: Rng, events: Events
) -> str:
    """Takes a partition out of a survey; the path to which its directory is to go."""
    key = (name.topic, name.partition)
    path = f"{found.log_dir}/{aside_name(*key, kind, rng)}"
    home = PartitionDir(disk, f"{found.log_dir}/{partition_name(*key)}", events)
    found.partitions.remove(name)
    found.departures.append(Departure(key, home, path, kind))
    return path


def doubled_partitions(surveys: list[Survey]) -> set[PartitionName]:
    """What lies in more than one log dir."""
    counts = Counter(name for found in surveys for name in found.partitions)
    return {name for name, count in counts.items() if count > 1}


def check_unique(surveys: list[Survey]) -> None:
    """LogDirError if a partition lies in two log dirs: nobody can tell which one is right."""
    owners: dict[PartitionName, str] = {}
    for found in surveys:
        for name in found.partitions:
            other = owners.setdefault(name, found.log_dir)
            if other != found.log_dir:
                raise LogDirError(
                    f"{name.topic}-{name.partition} is in two log dirs, {other} and"
                    f" {found.log_dir}: keep the right one and move the other away."
                )


def open_logs(
    disk: Disk,
    surveys: list[Survey],
    *,
    config_of: ConfigOf,
    threads: int,
    clock: Clock,
    events: Events,
) -> list[Opened]:
    """Opens, and recovers where it must, every partition; one answer for each survey."""
    assert threads > 0
    opening = [_Opening(disk, found, config_of, clock, events) for found in surveys]
    unclean = [] if threads == 1 else [one for one in opening if not one.found.clean]
    with ThreadPoolExecutor(max(1, threads * len(unclean)), "recovery") as workers:
        running = [workers.submit(one.run) for one in unclean for _ in range(threads)]
        for one in opening:
            if one not in unclean:
                one.run()
        for future in running:
            future.result()
    return [one.result() for one in opening]


class _Opening:
    """The work on one log dir; `run` may be called by several threads at once."""

    def __init__(
        self, disk: Disk, found: Survey, config_of: ConfigOf, clock: Clock, events: Events
    ) -> None:
        self.found = found
        self._disk = disk
        self._config_of = config_of
        self._clock = clock
        self._events = events
        self._todo = list(reversed(found.partitions))
        self._opened = Opened()
        self._lock = threading.Lock()
        self._told_ms = clock.monotonic_ms()

    def run(self) -> None:
        while True:
            try:
                name = self._todo.pop()
            except IndexError:
                return  # the others have taken the rest
            try:
                self._opened.logs.append(self._open(name))
            except OSError as error:
                self._opened.failed[name.topic, name.partition] = error
            self._tell_progress()

    def result(self) -> Opened:
        self._opened.logs.sort(key=lambda log: (log.topic, log.partition))
        return self._opened

    def _open(self, name: PartitionName) -> Log:
        found = self.found
        key = (name.topic, name.partition)
        directory = f"{found.log_dir}/{name.topic}-{name.partition}"
        topic_id = checkpoints.read_partition_metadata(self._disk, directory, self._events)
        return Log.open(
            self._disk,
            directory,
            topic=name.topic,
            partition=name.partition,
            topic_id=topic_id or ZERO_UUID,
            config=self._config_of(name.topic),
            recovery_point=found.rows[checkpoints.RECOVERY_POINT_FILE].get(key, 0),
            log_start_offset=found.rows[checkpoints.LOG_START_FILE].get(key, 0),
            high_watermark=found.rows[checkpoints.HIGH_WATERMARK_FILE].get(key, 0),
            clean=found.clean,
            now_ms=self._clock.wall_ms(),
            events=self._events,
        )

    def _tell_progress(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._told_ms < PROGRESS_INTERVAL_MS:
            return
        with self._lock:
            if now_ms - self._told_ms < PROGRESS_INTERVAL_MS:
                return
            self._told_ms = now_ms
        self._events.info(
            "logs_loading",
            dir=self.found.log_dir,
            done=len(self._opened.logs),
            of=len(self.found.partitions),
            clean=self.found.clean,
        )
