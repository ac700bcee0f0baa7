"""Which files there are, told by their names: the table from which `ottla log` works.

    <20 digits>.log .index .timeindex .txnindex .snapshot     in a partition's directory
    leader-epoch-checkpoint partition.metadata ottla-generation recovery-waypoint
                                                              in a partition's directory
    quorum-state <offset>-<epoch>.checkpoint                  in the metadata log's directory
    *-offset-checkpoint meta.properties .kafka_cleanshutdown  in a log dir
    ottla-damaged-ranges bootstrap.checkpoint                 in a log dir
A file that waits to be removed or swapped in (.deleted, .swap, .cleaned) is read as what it was.

What a directory is, its files tell: a copy of a partition's directory may have any name, and a log
dir one that looks like a partition's (kafka-1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from ottla.broker.log import checkpoints
from ottla.broker.log.directories import Kind, parse_name
from ottla.broker.log.leftovers import CLEANED_SUFFIX, SWAP_SUFFIX
from ottla.broker.log.moving import GENERATION_FILE
from ottla.broker.log.quarantine import DAMAGED_RANGES_FILE
from ottla.broker.log.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from ottla.broker.log.waypoints import WAYPOINT_FILE
from ottla.broker.ports import Disk

QUORUM_STATE_FILE = "quorum-state"
METADATA_SNAPSHOT_SUFFIX = ".checkpoint"

_DIGITS = 20
_PASSING_SUFFIXES = (DELETED_SUFFIX, SWAP_SUFFIX, CLEANED_SUFFIX)


class FileKind(Enum):
    """What a file holds; the text is what people read."""

    LOG = "log"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    TRANSACTION_INDEX = "transaction index"
    PRODUCER_SNAPSHOT = "producer snapshot"
    LEADER_EPOCHS = "leader epochs"
    OFFSETS = "offset checkpoint"
    DAMAGED_RANGES = "damaged ranges"
    PARTITION_METADATA = "partition metadata"
    META_PROPERTIES = "meta properties"
    CLEAN_SHUTDOWN = "clean shutdown"
    GENERATION = "generation"
    WAYPOINT = "recovery waypoint"
    QUORUM_STATE = "quorum state"
    METADATA_SNAPSHOT = "metadata snapshot"


PARTITION_KINDS = frozenset(
    {
        FileKind.LOG,
        FileKind.OFFSET_INDEX,
        FileKind.TIME_INDEX,
        FileKind.TRANSACTION_INDEX,
        FileKind.PRODUCER_SNAPSHOT,
        FileKind.LEADER_EPOCHS,
        FileKind.PARTITION_METADATA,
        FileKind.GENERATION,
        FileKind.WAYPOINT,
    }
)
"""Those that lie in every partition's directory, and are verified with it."""
LOG_DIR_KINDS = frozenset(
    {FileKind.OFFSETS, FileKind.DAMAGED_RANGES, FileKind.META_PROPERTIES, FileKind.CLEAN_SHUTDOWN}
)

_BY_SUFFIX = {
    LOG_SUFFIX: FileKind.LOG,
    INDEX_SUFFIX: FileKind.OFFSET_INDEX,
    TIME_INDEX_SUFFIX: FileKind.TIME_INDEX,
    TRANSACTION_INDEX_SUFFIX: FileKind.TRANSACTION_INDEX,
    SNAPSHOT_SUFFIX: FileKind.PRODUCER_SNAPSHOT,
}
SEGMENT_KINDS = frozenset(_BY_SUFFIX.values())
"""Those that have an offset in their name."""
_BY_NAME = {
    checkpoints.LEADER_EPOCH_FILE: FileKind.LEADER_EPOCHS,
    checkpoints.RECOVERY_POINT_FILE: FileKind.OFFSETS,
    checkpoints.LOG_START_FILE: FileKind.OFFSETS,
    checkpoints.HIGH_WATERMARK_FILE: FileKind.OFFSETS,
    checkpoints.CLEANER_FILE: FileKind.OFFSETS,
    DAMAGED_RANGES_FILE: FileKind.DAMAGED_RANGES,
    checkpoints.PARTITION_METADATA_FILE: FileKind.PARTITION_METADATA,
    checkpoints.META_PROPERTIES_FILE: FileKind.META_PROPERTIES,
    checkpoints.CLEAN_SHUTDOWN_FILE: FileKind.CLEAN_SHUTDOWN,
    QUORUM_STATE_FILE: FileKind.QUORUM_STATE,
    GENERATION_FILE: FileKind.GENERATION,
    WAYPOINT_FILE: FileKind.WAYPOINT,
}


_PIECE_BYTES = 240 * 1024  # of whole entries of either index
_ZEROS = bytes(_PIECE_BYTES)


@dataclass(slots=True, frozen=True)
class LogFile:
    """A file of the format. `base_offset` is the number in a segment file's name, else 0."""

    path: str
    kind: FileKind
    base_offset: int = 0

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def directory(self) -> str:
        return checkpoints.parent_of(self.path)

    @property
    def topic(self) -> str:
        """The topic whose partition's directory it lies in, or the empty name."""
        found = parse_name(self.directory.rpartition("/")[2])
        return "" if found is None else found.topic


def classify(path: str) -> LogFile | None:
    """What a file is by its name; None if it is none of the format."""
    name = path.rpartition("/")[2]
    for suffix in _PASSING_SUFFIXES:
        name = name.removesuffix(suffix)
    if name in _BY_NAME:
        return LogFile(path, _BY_NAME[name])
    digits, suffix = name[:_DIGITS], name[_DIGITS:]
    has_offset = len(digits) == _DIGITS and digits.isascii() and digits.isdigit()
    if has_offset and suffix in _BY_SUFFIX:
        return LogFile(path, _BY_SUFFIX[suffix], int(digits))
    if name.endswith(METADATA_SNAPSHOT_SUFFIX):
        return LogFile(path, FileKind.METADATA_SNAPSHOT)
    return None


def list_names(disk: Disk, path: str) -> list[str] | None:
    """The names in a directory, or None if it is none. Raises OSError for what is not there."""
    try:
        return disk.list(path)
    except NotADirectoryError:
        return None


def read_index(disk: Disk, path: str) -> tuple[bytes, int] | None:
    """What stands in an index before the zeros at its end, or a little more, and the file's size;
    None if there is no such file. A running broker's index is 10 MB of zeros, most often, and there
    are two for each partition: what the file system knows to be holes is not read."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        size = file.size()
        data = bytearray()
        written = file.written_end()
        for position in range(0, written, _PIECE_BYTES):
            piece = file.pread(min(_PIECE_BYTES, written - position), position)
            if piece != _ZEROS[: len(piece)]:
                data += bytes(position - len(data))
                data += piece
        return bytes(data), size
    finally:
        file.close()


def holds(disk: Disk, directory: str, kinds: frozenset[FileKind]) -> bool:
    """Whether a directory has a file of one of the kinds. Raises OSError."""
    found = map(classify, list_names(disk, directory) or [])
    return any(file is not None and file.kind in kinds for file in found)


def find_files(disk: Disk, path: str) -> Iterator[LogFile]:
    """The files of the format at a path: itself, or all in a partition's or a log dir's folders."""
    names = list_names(disk, path)
    if names is None:
        found = classify(path)
        if found is not None:
            yield found
        return
    for name in names:
        inner = f"{path.rstrip('/')}/{name}"
        found = classify(inner)
        if found is not None:
            yield found
        elif parse_name(name) is not None and _is_directory(disk, inner):
            yield from find_files(disk, inner)


def partition_directories(disk: Disk, path: str) -> list[str]:
    """The partitions' directories at a path: itself, that of a file, or those of a log dir, save
    for what is deleted and waits to be removed."""
    names = list_names(disk, path)
    if names is None:
        return [checkpoints.parent_of(path)]
    path = path.rstrip("/")
    own = [path] if holds(disk, path, PARTITION_KINDS) else []
    parsed = [(f"{path}/{name}", parse_name(name)) for name in names]
    inner = [one for one, found in parsed if found is not None and found.kind is not Kind.DELETED]
    return own + [one for one in inner if _is_directory(disk, one)]


def _is_directory(disk: Disk, path: str) -> bool:
    """Whether there is one still: a running broker removes those of deleted partitions."""
    try:
        return list_names(disk, path) is not None
    except FileNotFoundError:
        return False
