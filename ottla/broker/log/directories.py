"""The names that partitions have in a log dir, and whose dir it is.

    orders-0                                              a partition
    orders-0.<32 hex>-delete                              deleted, its files go later
    orders-0.<32 hex>-future                              a copy that moves in from another log dir
    orders-0.<32 hex>-stray                               of no topic that the cluster knows: kept
A topic's own name may hold dashes and dots. Names of deleted and stray directories are cut to the
255 bytes that file systems allow: the topic's part is cut, not the rest.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from ottla.broker.faults import NO_DESCRIPTOR_ERRORS
from ottla.broker.log import checkpoints
from ottla.broker.log.checkpoints import MalformedFile, MetaProperties
from ottla.broker.ports import Disk, Events, Rng

LOCK_FILE = ".lock"
METADATA_TOPIC = "__cluster_metadata"

# Directories in a log dir that hold no partition; every other odd name is told. The second is that
# of a file system whose root the log dir is.
_OTHER_NAMES = frozenset({"remote-log-index-cache", "lost+found"})

MAX_NAME_BYTES = 255
_ID_LENGTH = 32
_HEX = frozenset("0123456789abcdef")
_MAX_PARTITION = 2**31 - 1


class LogDirError(Exception):
    """A log dir that this broker must not use; the text is a sentence for whoever started it.

    Unless it is a BusyLogDir, another start with the same settings would say the same.
    """


class BusyLogDir(LogDirError):
    """One that another process holds, which may be about to end."""


class ForeignLogDir(LogDirError):
    """One of another broker or another cluster."""


class UnusableLogDir(LogDirError):
    """One that cannot be made, locked or read, and without which there is no broker."""


class Kind(Enum):
    PARTITION = ""
    DELETED = "-delete"
    FUTURE = "-future"
    STRAY = "-stray"


@dataclass(slots=True, frozen=True)
class PartitionName:
    topic: str
    partition: int
    kind: Kind = Kind.PARTITION


def partition_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def aside_name(topic: str, partition: int, kind: Kind, rng: Rng) -> str:
    """A new name for a partition's directory that is no longer served."""
    return identified_name(topic, partition, kind, f"{rng.getrandbits(128):032x}")


def identified_name(topic: str, partition: int, kind: Kind, identity: str) -> str:
    """The same with 32 hex digits that the caller knows nobody else has taken."""
    assert kind is not Kind.PARTITION
    suffix = f"-{partition}.{identity}{kind.value}"
    return topic[: MAX_NAME_BYTES - len(suffix)] + suffix


def parse_name(name: str) -> PartitionName | None:
    """What a directory's name says, or None if it is no partition's."""
    kind = Kind.PARTITION
    for candidate in (Kind.DELETED, Kind.FUTURE, Kind.STRAY):
        head, dot, identity = name.removesuffix(candidate.value).rpartition(".")
        is_aside = name.endswith(candidate.value) and dot
        if is_aside and len(identity) == _ID_LENGTH and _HEX.issuperset(identity):
            kind, name = candidate, head
            break
    topic, dash, partition = name.rpartition("-")
    if not topic or not dash or not (partition.isascii() and partition.isdigit()):
        return None
    number = int(partition)
    if number > _MAX_PARTITION or str(number) != partition:
        return None
    return PartitionName(topic, number, kind)


def list_partitions(disk: Disk, directory: str, events: Events) -> list[tuple[str, PartitionName]]:
    """The partition directories of a log dir, in order of their names; others are left alone.

    The metadata log is left out: it has its own keeper.
    """
    found: list[tuple[str, PartitionName]] = []
    for name in disk.list(directory):
        parsed = parse_name(name)
        if parsed is not None and holds_partition(disk, f"{directory}/{name}", parsed.kind):
            if parsed.topic != METADATA_TOPIC:
                found.append((name, parsed))
        elif name not in _OTHER_NAMES and _is_directory(disk, f"{directory}/{name}"):
            events.warning("log_dir_entry_ignored", dir=directory, name=name)
    return found


def holds_partition(disk: Disk, path: str, kind: Kind) -> bool:
    """Whether a directory with a partition's name is one: `photos-2024` may be somebody's own.

    One that a crash left behind before its first file was written is empty.
    """
    if kind is not Kind.PARTITION or disk.exists(f"{path}/{checkpoints.PARTITION_METADATA_FILE}"):
        return True
    if not _is_directory(disk, path):
        return False
    names = disk.list(path)
    return not names or any(name.endswith(".log") for name in names)


def make_log_dir(disk: Disk, directory: str) -> None:
    """Makes the dir and its parents where they are missing, durably.

    One that is there may be of a start that ended before it had synced the name: as long as nobody
    has signed it, that is done again.
    """
    parent = checkpoints.parent_of(directory)
    if disk.exists(directory):
        if not disk.exists(f"{directory}/{checkpoints.META_PROPERTIES_FILE}"):
            with suppress(PermissionError):  # whoever may not read the parent has not made it
                sync_new_name(disk, directory)
        return
    make_log_dir(disk, parent)
    disk.make_dir(directory)
    sync_new_name(disk, directory)


def sync_new_name(disk: Disk, directory: str) -> None:
    """Syncs the name of a directory that holds nothing yet.

    Where the sync fails the name is taken away, to be made anew: the next one would say yes, and
    mean nothing. A parent that could not be opened, though, was not synced.
    """
    try:
        disk.sync_dir(checkpoints.parent_of(directory))
    except PermissionError:
        raise
    except OSError as error:
        if error.errno not in NO_DESCRIPTOR_ERRORS:
            with suppress(OSError):
                names = disk.list(directory)
                if names in ([], [LOCK_FILE]):
                    for name in names:
                        disk.remove(f"{directory}/{name}")
                    disk.remove(directory)
        raise


def identify(
    disk: Disk, directory: str, *, node_id: int, cluster_id: str | None
) -> MetaProperties | None:
    """Whose directory it is; None if nobody's yet. LogDirError if it is somebody else's."""
    path = f"{directory}/{checkpoints.META_PROPERTIES_FILE}"
    try:
        meta = checkpoints.read_meta_properties(disk, directory)
    except MalformedFile as error:
        raise LogDirError(
            f"{path}, which says whose the log dir is, cannot be read: {error}."
            f" {way_to_restore_identity(node_id, cluster_id)} If the directory holds nothing else,"
            " remove the file."
        ) from error
    if meta is None:
        return None
    if meta.node_id != node_id:
        raise ForeignLogDir(
            f"{path} says node.id={meta.node_id}, but this broker is node {node_id}:"
            f" the directory is another broker's. Set node.id={meta.node_id} (KAFKA_NODE_ID),"
            " or choose another log.dirs."
        )
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise ForeignLogDir(
            f"{path} says cluster.id={meta.cluster_id}, but this broker belongs to"
            f" {cluster_id}: the directory is another cluster's. Set"
            f" CLUSTER_ID={meta.cluster_id}, or none, or choose another log.dirs."
        )
    return meta


def way_to_restore_identity(node_id: int, cluster_id: str | None = None) -> str:
    """What to do about a meta.properties that is missing or cannot be read."""
    cluster = (
        "cluster.id= as clients, other log dirs and the log of an earlier start (broker_started)"
        " know it"
        if cluster_id is None
        else f"cluster.id={cluster_id}"
    )
    return (
        "Take that file from a backup, or write it anew, a line for each:"
        f" version=1, node.id={node_id}, {cluster}, and as directory.id= that of the log_dirs of"
        " this broker's last RegisterBrokerRecord in"
        " `ottla log dump --deep .../__cluster_metadata-0` which no other log dir has."
    )


def new_directory_id(rng: Rng) -> bytes:
    """A random id (UUID version 4) for a new log dir."""
    value = rng.getrandbits(128)
    value &= ~(0xF << 76 | 0x3 << 62)
    value |= 0x4 << 76 | 0x2 << 62
    return value.to_bytes(16, "big")


def _is_directory(disk: Disk, path: str) -> bool:
    try:
        disk.list(path)
    except OSError:
        return False  # a file, or gone, or not ours to read
    return True
