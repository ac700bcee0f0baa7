"""Everything at a path, verified: partitions as a whole, the small files each by itself.

A file in a partition's directory is verified with its partition, and only what concerns it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.broker.log import checkpoints
from ottla.broker.log.asides import free_name
from ottla.broker.log.checkpoints import MalformedFile, TopicPartition, parent_of
from ottla.broker.log.directories import METADATA_TOPIC, Kind, parse_name, partition_name
from ottla.broker.log.examine.dump import dump_file
from ottla.broker.log.examine.files import (
    PARTITION_KINDS,
    FileKind,
    LogFile,
    classify,
    find_files,
    list_names,
    partition_directories,
)
from ottla.broker.log.examine.findings import Finding, Fix
from ottla.broker.log.examine.partition import PartitionFacts, verify_partition
from ottla.broker.log.examine.records import describe_records
from ottla.broker.log.examine.scan import Damage, LogScan
from ottla.broker.ports import Disk
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.control import ControlType, read_control_batch

Progress = Callable[[int], None]

READ_AGAIN_MAX = 3
"""A partition that loses a file while it is read; once behind its broker's retention is enough."""

_RESTORE = "Take it from a backup: nothing else says what stood there."
_REMEDIES = {
    FileKind.OFFSETS: ("`ottla log repair` sets it aside; without it the start reads more.", True),
    FileKind.DAMAGED_RANGES: ("`ottla log repair` sets it aside; scrubbing finds all again.", True),
    FileKind.CLEAN_SHUTDOWN: ("`ottla log repair` sets it aside; the start recovers then.", True),
    FileKind.META_PROPERTIES: (_RESTORE, False),
    FileKind.QUORUM_STATE: (_RESTORE, False),
}


def verify_path(
    disk: Disk, path: str, *, deep: bool, progress: Progress
) -> Iterator[PartitionFacts | Finding]:
    """Facts of each partition at a path, and findings of the files beside them. Raises OSError."""
    # Before the logs are read: those of a running broker grow, and its checkpoints follow.
    offsets = {
        file.path: _offsets(disk, file)
        for file in _small_files(disk, path)
        if file.kind is FileKind.OFFSETS
    }
    ends: dict[TopicPartition, int] = {}
    done = 0
    for directory in _partitions(disk, path):

        def advance(read: int, before: int = done) -> None:
            progress(before + read)

        facts = _verify_partition(disk, directory, deep, advance)
        if facts is None:
            continue
        done += sum(one.size for one in facts.segments)
        name = parse_name(directory.rpartition("/")[2])
        if name is not None and name.kind is Kind.PARTITION:
            ends[name.topic, name.partition] = facts.end_offset
        yield facts
    for file in _small_files(disk, path):
        yield from _verify_file(disk, file)
        yield from _verify_offsets(file, offsets.get(file.path, {}), ends)
        yield from _find_vanished(disk, file, offsets.get(file.path, {}))


def _verify_partition(
    disk: Disk, directory: str, deep: bool, progress: Progress
) -> PartitionFacts | None:
    """None if it is gone. A running broker may rename its directory or remove its oldest segment
    while it is read: then it is read again."""
    tries = READ_AGAIN_MAX
    while True:
        try:
            return verify_partition(disk, directory, deep=deep, progress=progress)
        except FileNotFoundError:
            if not disk.exists(directory):
                return None
            if tries == 0:
                raise
            tries -= 1


def _partitions(disk: Disk, path: str) -> list[str]:
    found = classify(path)
    if list_names(disk, path) is None and (found is None or found.kind not in PARTITION_KINDS):
        return []
    return partition_directories(disk, path)


def _small_files(disk: Disk, path: str) -> Iterator[LogFile]:
    for file in find_files(disk, path):
        if file.kind not in PARTITION_KINDS:
            yield file


def _verify_file(disk: Disk, file: LogFile) -> Iterator[Finding]:
    if file.kind is FileKind.METADATA_SNAPSHOT:
        yield from _verify_metadata_snapshot(disk, file)
        return
    remedy, removable = _REMEDIES[file.kind]
    for row in dump_file(disk, file, deep=False, progress=lambda read: None):
        if "malformed" in row:
            fix = Fix.SET_ASIDE if removable else Fix.NOTHING
            keeps = free_name(disk, file.path) if removable else ""
            yield Finding(file.path, row["malformed"], remedy, fix=fix, keeps=keeps)


def _offsets(disk: Disk, file: LogFile) -> dict[TopicPartition, int]:
    try:
        return checkpoints.parse_offsets(checkpoints.read_whole(disk, file.path) or b"")
    except (MalformedFile, OSError):
        return {}  # told when the file's turn comes


def _verify_offsets(
    file: LogFile, offsets: dict[TopicPartition, int], ends: dict[TopicPartition, int]
) -> Iterator[Finding]:
    for key, offset in offsets.items():
        if key in ends and offset > ends[key]:
            yield Finding(
                file.path,
                f"it says offset {offset} of {partition_name(*key)}, whose log ends at {ends[key]}",
                "Records that were acknowledged are missing from the log: look for them on"
                " another replica or in a backup before the broker starts.",
            )


def _find_vanished(
    disk: Disk, file: LogFile, offsets: dict[TopicPartition, int]
) -> Iterator[Finding]:
    """What a clean stop has left there and is not there any more. Only of a clean stop the rows
    and the directories are of one moment."""
    log_dir, name = parent_of(file.path), file.path.rpartition("/")[2]
    is_of_clean_stop = disk.exists(f"{log_dir}/{checkpoints.CLEAN_SHUTDOWN_FILE}")
    if name != checkpoints.RECOVERY_POINT_FILE or not is_of_clean_stop:
        return
    for key, offset in offsets.items():
        directory = f"{log_dir}/{partition_name(*key)}"
        if offset > 0 and not disk.exists(directory):
            yield Finding(
                directory,
                f"it is missing, and was durable up to offset {offset} when the broker was stopped",
                "Put it back from a copy before the broker starts, which would begin it anew at"
                " offset 0.",
            )


def _verify_metadata_snapshot(disk: Disk, file: LogFile) -> Iterator[Finding]:
    """It begins with its header, ends with its footer, and all between can be read."""
    remedy = "A start takes an older one with more of the log; or fetch it from another controller."
    kinds: list[int] = []
    try:
        opened = disk.open(file.path)
    except FileNotFoundError:
        return  # a running broker has a newer one
    try:
        for found in LogScan(opened, opened.size()):
            if isinstance(found, Damage):
                yield Finding(file.path, found.reason, remedy, found.position, found.size)
                return
            try:
                if found.header is not None and found.header.is_control:
                    kinds += [one.type_id for one in read_control_batch(found.data)]
                    continue
                for record in describe_records(found, METADATA_TOPIC):
                    if "not_decoded" in record:
                        yield Finding(file.path, record["not_decoded"], remedy, found.position)
            except KafkaError as error:
                yield Finding(file.path, str(error.message), remedy, found.position)
    finally:
        opened.close()
    if not kinds or kinds[0] != ControlType.SNAPSHOT_HEADER:
        yield Finding(file.path, "it does not begin with its header", remedy)
    elif kinds[-1] != ControlType.SNAPSHOT_FOOTER:
        yield Finding(file.path, "it ends before its footer", remedy)
