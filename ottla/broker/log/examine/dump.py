"""What a file holds, as rows: a dictionary of plain values for each batch, record, entry or line.

Numbers are as they stand in the file, offsets of indexes made whole. Damage is a row, too: a dump
goes on behind it. The rows of a log without `deep` are those of Kafka's DumpLogSegments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct

from ottla.broker.log import checkpoints, offset_index, time_index, transaction_index
from ottla.broker.log.checkpoints import MalformedFile, natural, parse_rows
from ottla.broker.log.directories import METADATA_TOPIC
from ottla.broker.log.examine.files import FileKind, LogFile, read_index
from ottla.broker.log.examine.records import Plain, describe_records
from ottla.broker.log.examine.scan import Damage, Entry, LogScan
from ottla.broker.log.producer_state import (
    ProducerState,
    SnapshotCorrupt,
)
from ottla.broker.log.quarantine import parse_ranges
from ottla.broker.log.waypoints import parse_waypoint
from ottla.broker.ports import Disk
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import read_header
from ottla.protocol.records.codecs import Codec
from ottla.protocol.wire import uuid_text

Progress = Callable[[int], None]
"""Hears how many bytes of the file in hand have been read."""


def dump_file(disk: Disk, file: LogFile, *, deep: bool, progress: Progress) -> Iterator[Plain]:
    """The rows of a file. `deep` adds a row for each record. Raises OSError."""
    if file.kind in (FileKind.LOG, FileKind.METADATA_SNAPSHOT):
        yield from _log_rows(disk, file, deep, progress)
        return
    if file.kind in _ENTRIES:
        found = read_index(disk, file.path)
        if found is not None:
            progress(found[1])
            yield from _ENTRIES[file.kind](*found, file)
        return
    data = checkpoints.read_whole(disk, file.path)
    if data is None:
        return  # removed since it was listed
    progress(len(data))
    try:
        yield from _ROWS[file.kind](data, file)
    except (MalformedFile, SnapshotCorrupt, UnicodeDecodeError) as error:
        yield {"malformed": str(error), "size": len(data)}


def batch_row(entry: Entry) -> Plain:
    """A batch as DumpLogSegments describes it; a message of magic 0 or 1 has fewer facts."""
    row: Plain = {
        "base_offset": entry.base_offset,
        "last_offset": entry.last_offset,
        "position": entry.position,
        "size": entry.size,
        "magic": entry.magic,
    }
    header = entry.header
    if header is None:
        codec = entry.data[17] & 7
        crc = int.from_bytes(entry.data[12:16], "big")
        return row | {
            "timestamp": entry.max_timestamp,
            "codec": _codec(codec),
            "crc": crc,
            "valid": True,
        }
    row |= {
        "count": header.record_count,
        "leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "base_timestamp": header.base_timestamp,
        "timestamp": header.max_timestamp,
        "codec": _codec(header.codec),
        "crc": header.crc,
        "valid": True,
    }
    if header.delete_horizon is not None:
        row["delete_horizon_ms"] = header.delete_horizon
    return row


def damage_row(damage: Damage) -> Plain:
    return {
        "position": damage.position,
        "size": damage.size,
        "valid": False,
        "damage": "zeros" if damage.zeros else damage.reason,
    }


def _codec(codec: int) -> str:
    return Codec(codec).name.lower() if codec in list(Codec) else f"unknown ({codec})"


def _log_rows(disk: Disk, file: LogFile, deep: bool, progress: Progress) -> Iterator[Plain]:
    try:
        opened = disk.open(file.path)
    except FileNotFoundError:
        return  # removed since it was listed
    topic = METADATA_TOPIC if file.kind is FileKind.METADATA_SNAPSHOT else file.topic
    try:
        scan = LogScan(opened, opened.size(), file.base_offset)
        for found in scan:
            progress(scan.position + found.size)
            if isinstance(found, Damage):
                yield damage_row(found)
                continue
            yield batch_row(found)
            if deep:
                try:
                    yield from describe_records(found, topic)
                except KafkaError as error:
                    yield {"offset": found.base_offset, "damage": error.message}
    finally:
        opened.close()


def _offset_entries(data: bytes, size: int, file: LogFile) -> Iterator[Plain]:
    for at, relative, position in _index_entries(data, offset_index.ENTRY):
        if not (relative or position):
            yield from _unused(data, size, at)
            return
        yield {"offset": file.base_offset + relative, "position": position}
    yield from _unused(data, size, len(data))


def _time_entries(data: bytes, size: int, file: LogFile) -> Iterator[Plain]:
    for at, timestamp, relative in _index_entries(data, time_index.ENTRY):
        if not (timestamp or relative):
            yield from _unused(data, size, at)
            return
        yield {"timestamp": timestamp, "offset": file.base_offset + relative}
    yield from _unused(data, size, len(data))


def _index_entries(data: bytes, entry: Struct) -> Iterator[tuple[int, int, int]]:
    for at in range(0, len(data) - entry.size + 1, entry.size):
        yield at, *entry.unpack_from(data, at)


def _unused(data: bytes, size: int, at: int) -> Iterator[Plain]:
    """The row of what stands behind the entries of an index of `size` bytes, if anything does."""
    if at < size:
        yield {"unused_bytes": size - at, "zeros": not data[at:].strip(b"\0")}


def _transactions(data: bytes, file: LogFile) -> Iterator[Plain]:
    size = transaction_index.ENTRY.size
    for at in range(0, len(data) - size + 1, size):
        version, producer_id, first, last, stable = transaction_index.ENTRY.unpack_from(data, at)
        yield {
            "version": version,
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": stable,
        }


def _producers(data: bytes, file: LogFile) -> Iterator[Plain]:
    yield from _producer_rows(ProducerState.from_snapshot(data, file.base_offset, 0))


def _producer_rows(state: ProducerState) -> Iterator[Plain]:
    for producer_id, one in state.producers.items():
        last = one.batches[-1] if one.batches else None
        yield {
            "producer_id": producer_id,
            "producer_epoch": one.epoch,
            "coordinator_epoch": one.coordinator_epoch,
            "current_transaction_first_offset": one.transaction_start,
            "last_timestamp": one.last_timestamp,
            "last_sequence": last.last_sequence if last else -1,
            "first_offset": last.base_offset if last else -1,
            "last_offset": last.last_offset if last else -1,
        }


def _epochs(data: bytes, file: LogFile) -> Iterator[Plain]:
    for epoch, start in parse_rows(data, fields=2):
        yield {"epoch": natural(epoch), "start_offset": natural(start)}


def _offsets(data: bytes, file: LogFile) -> Iterator[Plain]:
    for (topic, partition), offset in checkpoints.parse_offsets(data).items():
        yield {"topic": topic, "partition": partition, "offset": offset}


def _ranges(data: bytes, file: LogFile) -> Iterator[Plain]:
    for (topic, partition), ranges in parse_ranges(data).items():
        for one in ranges:
            yield {
                "topic": topic,
                "partition": partition,
                "segment": one.base_offset,
                "position": one.position,
                "size": one.size,
            }


def _topic_id(data: bytes, file: LogFile) -> Iterator[Plain]:
    yield {"topic_id": uuid_text(checkpoints.parse_partition_metadata(data))}


def _meta(data: bytes, file: LogFile) -> Iterator[Plain]:
    meta = checkpoints.parse_meta_properties(data)
    yield {
        "node_id": meta.node_id,
        "cluster_id": meta.cluster_id,
        "directory_id": uuid_text(meta.directory_id),
    }


def _clean(data: bytes, file: LogFile) -> Iterator[Plain]:
    yield {"broker_epoch": checkpoints.parse_clean_shutdown(data)}


def _generation(data: bytes, file: LogFile) -> Iterator[Plain]:
    for generation, crc in parse_rows(data, fields=2):
        yield {"generation": natural(generation), "crc": crc}


def _waypoint(data: bytes, file: LogFile) -> Iterator[Plain]:
    waypoint, producers = parse_waypoint(data)
    row = waypoint._asdict()
    last = read_header(row.pop("last_header"))
    yield row | {"last_batch_base_offset": last.base_offset, "last_batch_size": last.size}
    yield from _producer_rows(ProducerState.from_snapshot(producers, waypoint.offset, 0))


def _quorum(data: bytes, file: LogFile) -> Iterator[Plain]:
    import json  # one file

    try:
        state = json.loads(data)
    except ValueError as error:
        raise MalformedFile("not JSON") from error
    if not isinstance(state, dict):
        raise MalformedFile("not a JSON object")
    yield state


_ENTRIES: dict[FileKind, Callable[[bytes, int, LogFile], Iterator[Plain]]] = {
    FileKind.OFFSET_INDEX: _offset_entries,
    FileKind.TIME_INDEX: _time_entries,
}
_ROWS: dict[FileKind, Callable[[bytes, LogFile], Iterator[Plain]]] = {
    FileKind.TRANSACTION_INDEX: _transactions,
    FileKind.PRODUCER_SNAPSHOT: _producers,
    FileKind.LEADER_EPOCHS: _epochs,
    FileKind.OFFSETS: _offsets,
    FileKind.DAMAGED_RANGES: _ranges,
    FileKind.PARTITION_METADATA: _topic_id,
    FileKind.META_PROPERTIES: _meta,
    FileKind.CLEAN_SHUTDOWN: _clean,
    FileKind.QUORUM_STATE: _quorum,
    FileKind.GENERATION: _generation,
    FileKind.WAYPOINT: _waypoint,
}
