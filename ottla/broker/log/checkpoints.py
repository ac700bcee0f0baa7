"""The small files beside the logs, byte for byte as Apache Kafka writes them.

Offset checkpoints and leader-epoch-checkpoint are text: a line `0` (the version), a line with the
count of rows, then the rows, fields parted by one space (a topic's name holds none).
    recovery-point-offset-checkpoint   topic partition offset   everything below it is synced
    log-start-offset-checkpoint        topic partition offset   only where above the first segment
    replication-offset-checkpoint      topic partition offset   high watermarks
    leader-epoch-checkpoint            epoch start-offset       one in each partition's directory
Kafka makes the first three with 0 bytes and fills them at the first write: empty means no rows.
    partition.metadata     `version: 0\\ntopic_id: <22 characters>` without a final newline
    meta.properties        Java properties: version=1, node.id, cluster.id, directory.id
    .kafka_cleanshutdown   `{"version":0,"brokerEpoch":N}` without a newline

None of them may stop a start: what cannot be read is told as an event and treated as absent, which
costs a longer recovery and nothing else. meta.properties is the exception, for it says whose
directory this is. Each is replaced as a whole by `write_atomically`; after a crash the old content
or the new one is there, never a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.broker.ports import Buffer, Disk, Events, File
from ottla.protocol.wire import parse_uuid, uuid_text

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
CLEANER_FILE = "cleaner-offset-checkpoint"
LEADER_EPOCH_FILE: Final = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
META_PROPERTIES_FILE = "meta.properties"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
TEMPORARY_SUFFIX = ".tmp"

CHECKPOINT_VERSION = 0
META_PROPERTIES_VERSION = 1
CLEAN_SHUTDOWN_VERSION = 0

# All of these are a few hundred bytes, but a checkpoint has a row for each partition: 200,000
# partitions (Kafka's own upper figure for a cluster) of 256-byte names fit.
MAX_FILE_BYTES = 64 * 1024 * 1024

TopicPartition = tuple[str, int]


class MalformedFile(ValueError):
    """The bytes are not what such a file holds; the message says what was found."""


@dataclass(slots=True, frozen=True)
class MetaProperties:
    """Whose directory this is."""

    cluster_id: str
    node_id: int
    directory_id: bytes


def write_atomically(disk: Disk, path: str, data: Buffer) -> None:
    """Replaces the file at `path`; durable when it returns, all or nothing if it does not.

    The order is the safeguard: the data is on disk before the name points to it, and the name
    before anybody relies on it.
    """
    write_anew(disk, path, data)
    disk.sync_dir(parent_of(path))


def write_anew(disk: Disk, path: str, data: Buffer) -> None:
    """The same, but for its name, which is durable when the directory is synced."""
    write_all_anew(disk, {path: data})


def write_all_anew(disk: Disk, contents: Mapping[str, Buffer]) -> None:
    """As `write_anew` of each path, for files that are of use only together.

    Each is written before the first is synced, and synced before the first is renamed: what a file
    system's journal has of them is then written together, and not for each file.
    """
    files: list[File] = []
    try:
        for path, data in contents.items():
            file = disk.open(path + TEMPORARY_SUFFIX, create=True)
            files.append(file)
            if file.size() > 0:
                file.truncate(0)  # left behind by a crash
            file.pwrite(data, 0)
        if len(files) > 1:
            for file in files:
                file.write_soon()
        for file in files:
            file.sync()
    finally:
        for file in files:
            file.close()
    for path in contents:
        disk.rename(path + TEMPORARY_SUFFIX, path)


def read_whole(disk: Disk, path: str) -> bytes | None:
    """The file's content, or None if there is no such file."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        return file.pread(min(file.size(), MAX_FILE_BYTES), 0)
    finally:
        file.close()


def parent_of(path: str) -> str:
    """The directory that holds the name."""
    head, _, _ = path.rpartition("/")
    return head or ("/" if path.startswith("/") else ".")


def format_rows(rows: Iterable[str]) -> bytes:
    """A checkpoint file's content."""
    lines = list(rows)
    return "\n".join([str(CHECKPOINT_VERSION), str(len(lines)), *lines, ""]).encode()


def parse_rows(data: bytes, *, fields: int) -> list[list[str]]:
    """The rows of a checkpoint file, each split into exactly `fields` fields.

    Raises MalformedFile for another version, a count that does not match, or a row of other width.
    """
    if not data:
        return []
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise MalformedFile("not text") from error
    if lines[-1] == "":
        lines.pop()
    if len(lines) < 2:
        raise MalformedFile(f"{len(lines)} lines where version and count belong")
    if lines[0] != str(CHECKPOINT_VERSION):
        raise MalformedFile(f"version {lines[0][:20]!r} is not {CHECKPOINT_VERSION}")
    if lines[1] != str(len(lines) - 2):
        raise MalformedFile(f"{len(lines) - 2} rows where {lines[1][:20]!r} are announced")
    rows = [line.split(" ") for line in lines[2:]]
    for row in rows:
        if len(row) != fields:
            raise MalformedFile(f"a row of {len(row)} fields, not {fields}")
    return rows


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return format_rows(
        f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()
    )


def parse_offsets(data: bytes) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for topic, partition, offset in parse_rows(data, fields=3):
        key = (topic, natural(partition))
        if key in offsets:
            raise MalformedFile(f"two rows for {topic}-{partition}")
        offsets[key] = natural(offset)
    return offsets


def read_offsets(disk: Disk, path: str, events: Events) -> dict[TopicPartition, int]:
    """An offset checkpoint; empty if it is missing, or malformed (then an event says so)."""
    data = read_whole(disk, path)
    if data is None:
        return {}
    try:
        return parse_offsets(data)
    except MalformedFile as error:
        events.warning("checkpoint_malformed", path=path, reason=str(error), treated_as="absent")
        return {}


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    write_atomically(disk, path, format_offsets(offsets))


def read_partition_metadata(disk: Disk, directory: str, events: Events) -> bytes | None:
    """The topic id of a partition's directory; None if the file is missing or malformed."""
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    data = read_whole(disk, path)
    if data is None:
        return None
    try:
        return parse_partition_metadata(data)
    except MalformedFile as error:
        events.warning("partition_metadata_malformed", path=path, reason=str(error))
        return None


def write_partition_metadata(disk: Disk, directory: str, topic_id: bytes) -> None:
    write_partitions_metadata(disk, {directory: topic_id})


def write_partitions_metadata(disk: Disk, topic_ids: Mapping[str, bytes]) -> None:
    """Says of each directory which topic it is of; durable when it returns."""
    write_all_anew(
        disk,
        {
            f"{directory}/{PARTITION_METADATA_FILE}": format_partition_metadata(topic_id)
            for directory, topic_id in topic_ids.items()
        },
    )
    for directory in topic_ids:
        disk.sync_dir(directory)


def format_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> bytes:
    # Latin-1 takes any byte, so that what is wrong shows below as a wrong line.
    lines = data.decode("latin-1").rstrip("\n").split("\n")
    if len(lines) != 2 or lines[0] != "version: 0" or not lines[1].startswith("topic_id: "):
        raise MalformedFile("not a version line and a topic_id line")
    return _uuid(lines[1].removeprefix("topic_id: "))


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """None if the directory has none yet. Raises MalformedFile: never guess whose data it is."""
    data = read_whole(disk, f"{directory}/{META_PROPERTIES_FILE}")
    return None if data is None else parse_meta_properties(data)


def write_meta_properties(disk: Disk, directory: str, meta: MetaProperties, *, now_ms: int) -> None:
    data = format_meta_properties(meta, now_ms=now_ms)
    write_atomically(disk, f"{directory}/{META_PROPERTIES_FILE}", data)


def format_meta_properties(meta: MetaProperties, *, now_ms: int) -> bytes:
    rows = [
        "#",
        f"#{_java_date(now_ms)}",
        f"node.id={meta.node_id}",
        f"directory.id={uuid_text(meta.directory_id)}",
        f"version={META_PROPERTIES_VERSION}",
        f"cluster.id={_escape(meta.cluster_id)}",
    ]
    return ("\n".join(rows) + "\n").encode()


def parse_meta_properties(data: bytes) -> MetaProperties:
    values: dict[str, str] = {}
    for line in data.decode("latin-1").splitlines():
        row = line.strip()
        if row and row[0] not in "#!":
            key, _, value = row.partition("=")
            values[key.strip()] = _unescape(value.strip())
    version = values.get("version")
    if version != str(META_PROPERTIES_VERSION):
        raise MalformedFile(f"version is {version!r}, not {META_PROPERTIES_VERSION}")
    for key in ("cluster.id", "node.id", "directory.id"):
        if not values.get(key):
            raise MalformedFile(f"{key} is missing")
    return MetaProperties(
        cluster_id=values["cluster.id"],
        node_id=natural(values["node.id"]),
        directory_id=_uuid(values["directory.id"]),
    )


def take_clean_shutdown(disk: Disk, directory: str, events: Events) -> int | None:
    """Reads and deletes the marker of a clean stop; the broker epoch in it, or None if unclean.

    The marker is gone for good when this returns: it must not vouch for what is appended later.
    """
    path = f"{directory}/{CLEAN_SHUTDOWN_FILE}"
    data = read_whole(disk, path)
    if data is None:
        return None
    disk.remove(path)
    disk.sync_dir(directory)
    try:
        return parse_clean_shutdown(data)
    except MalformedFile as error:
        events.warning("clean_shutdown_malformed", path=path, reason=str(error))
        return None


def write_clean_shutdown(disk: Disk, directory: str, *, broker_epoch: int) -> None:
    """Only after every log of the directory is closed and synced."""
    data = b'{"version":%d,"brokerEpoch":%d}' % (CLEAN_SHUTDOWN_VERSION, broker_epoch)
    write_atomically(disk, f"{directory}/{CLEAN_SHUTDOWN_FILE}", data)


def parse_clean_shutdown(data: bytes) -> int:
    import json  # one file, once a start

    try:
        marker = json.loads(data)
    except ValueError as error:
        raise MalformedFile("not JSON") from error
    if not isinstance(marker, dict) or marker.get("version") != CLEAN_SHUTDOWN_VERSION:
        raise MalformedFile("not a marker of version 0")
    broker_epoch = marker.get("brokerEpoch")
    if type(broker_epoch) is not int:
        raise MalformedFile("brokerEpoch is not a number")
    return broker_epoch


def natural(text: str) -> int:
    """The number that a field of a row is. Raises MalformedFile."""
    # int() alone would take "+1", " 1", "1_0" and other scripts' digits.
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise MalformedFile(f"{text[:30]!r} is not a number from 0 up")
    return int(text)


def _uuid(text: str) -> bytes:
    try:
        return parse_uuid(text)
    except ValueError as error:
        raise MalformedFile(f"{text[:40]!r} is not an id") from error


def _java_date(now_ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")


def _escape(value: str) -> str:
    """As java.util.Properties stores a value (ours are printable ASCII)."""
    return "".join("\\" + char if char in "\\=:#!" else char for char in value)


def _unescape(value: str) -> str:
    kept: list[str] = []
    escaped = False
    for char in value:
        if char == "\\" and not escaped:
            escaped = True
            continue
        kept.append(char)
        escaped = False
    return "".join(kept)
