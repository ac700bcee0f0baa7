"""An empty directory made into a new cluster's, as `kafka-storage format --standalone` does.

    bootstrap.checkpoint                       in every log dir: the first records of the metadata
    __cluster_metadata-0/0...0-0...0.checkpoint   the one voter, no data
    __cluster_metadata-0/partition.metadata    its topic id
    __cluster_metadata-0/quorum-state          comes with the first election

meta.properties is the log manager's. Each file is made only where it is missing and nothing follows
it yet, so formatting may be repeated after a crash in the middle of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.controller.features import bootstrap_records
from ottla.broker.log.checkpoints import (
    PARTITION_METADATA_FILE,
    TEMPORARY_SUFFIX,
    write_partition_metadata,
)
from ottla.broker.log.directories import Kind, LogDirError, parse_name, sync_new_name
from ottla.broker.metadata.records import (
    LATEST_METADATA_VERSION,
    MetadataError,
    decode_batch,
    encode_batch,
    encode_record,
)
from ottla.broker.ports import Disk
from ottla.broker.quorum.snapshot import (
    BOOTSTRAP_FILE,
    BOOTSTRAP_ID,
    SnapshotError,
    list_snapshots,
    read_snapshot,
    snapshot_batches,
    write_batches,
    write_snapshot,
)
from ottla.broker.quorum.store import METADATA_DIRECTORY, METADATA_TOPIC_ID
from ottla.broker.quorum.voters import KRAFT_VERSIONS, Voter, VoterSet
from ottla.protocol.schema import Message


def format_directories(
    disk: Disk, log_dirs: Iterable[str], *, metadata_dir: str, voter: Voter, now_ms: int
) -> bool:
    """Formats what is not formatted; whether this began a new cluster.

    The log dirs exist and have their meta.properties; `metadata_dir` is the one (it need not be
    among them) that gets the metadata log, whose directory's id is the voter's. Raises LogDirError
    if another log dir has a metadata log, or if there are partitions, but no metadata that knows
    them; then nothing was changed.
    """
    log_dirs = list(log_dirs)
    _refuse_second(disk, log_dirs, metadata_dir)
    directory = f"{metadata_dir}/{METADATA_DIRECTORY}"
    if _has_metadata(disk, directory):
        return False
    _refuse_orphans(disk, log_dirs, directory)
    if not disk.exists(directory):
        disk.make_dir(directory)
    sync_new_name(disk, directory)  # also that of a start that ended before it had
    for log_dir in log_dirs:
        path = f"{log_dir}/{BOOTSTRAP_FILE}"
        if not disk.exists(path):
            write_batches(disk, path, _bootstrap_batches(now_ms), part=path + TEMPORARY_SUFFIX)
    batches = snapshot_batches(
        (),
        _encode,
        epoch=BOOTSTRAP_ID.epoch,
        now_ms=now_ms,
        last_contained_timestamp=now_ms,
        kraft_version=KRAFT_VERSIONS[1],
        voters=VoterSet.of([voter]),
    )
    write_partition_metadata(disk, directory, METADATA_TOPIC_ID)
    write_snapshot(disk, directory, BOOTSTRAP_ID, batches)
    return True


def _refuse_second(disk: Disk, log_dirs: Iterable[str], metadata_dir: str) -> None:
    """Where log.dirs has another order, or metadata.log.dir another value, than at the last start,
    the metadata of this node would be passed over."""
    for log_dir in log_dirs:
        path = f"{log_dir}/{METADATA_DIRECTORY}"
        if log_dir != metadata_dir and _has_metadata(disk, path):
            raise LogDirError(
                f"{path} holds a metadata log, but this start takes {metadata_dir} for the log dir"
                " of the metadata: the first of log.dirs, or metadata.log.dir. Set"
                f" metadata.log.dir={log_dir}; or, if that metadata log is not this broker's any"
                " more, move it away."
            )


def _refuse_orphans(disk: Disk, log_dirs: Iterable[str], directory: str) -> None:
    """A new cluster knows none of the topics of an old one, and would set its logs aside."""
    for log_dir in log_dirs:
        for name in disk.list(log_dir):
            parsed = parse_name(name)
            if parsed is None or parsed.kind is not Kind.PARTITION or name == METADATA_DIRECTORY:
                continue
            path = f"{log_dir}/{name}"
            if disk.exists(f"{path}/{PARTITION_METADATA_FILE}"):
                raise LogDirError(
                    f"{directory} holds no metadata, but {path} is a partition: the metadata log"
                    " was lost. Put it back from a copy, or move the partitions away to begin a"
                    " new cluster."
                )


def read_bootstrap(disk: Disk, log_dir: str) -> list[Message]:
    """The first records of this cluster's metadata: what the directory was formatted with."""
    path = f"{log_dir}/{BOOTSTRAP_FILE}"
    if not disk.exists(path):
        return bootstrap_records()
    try:
        snapshot = read_snapshot(disk, path)
    except SnapshotError as error:
        raise MetadataError(f"{path} cannot be read: {error}") from error
    return [record for _, view in snapshot.batches for record in decode_batch(view)]


def _has_metadata(disk: Disk, directory: str) -> bool:
    """Whether a snapshot or a log is there; then nothing may be formatted."""
    if not disk.exists(directory):
        return False
    if list_snapshots(disk, directory):
        return True
    return any(name.endswith(".log") for name in disk.list(directory))


def _bootstrap_batches(now_ms: int) -> Iterable[bytearray]:
    def encode(records: list[Message], base_offset: int) -> bytearray:
        return encode_batch(
            (encode_record(record, LATEST_METADATA_VERSION) for record in records),
            base_offset=base_offset,
            leader_epoch=BOOTSTRAP_ID.epoch,
            timestamp=now_ms,
        )

    return snapshot_batches(
        bootstrap_records(),
        encode,
        epoch=BOOTSTRAP_ID.epoch,
        now_ms=now_ms,
        last_contained_timestamp=0,
    )


def _encode(records: list[Message], base_offset: int) -> bytearray:
    raise AssertionError("the first snapshot holds no data")
