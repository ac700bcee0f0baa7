"""What lies in a partition's directory at a start, and what becomes of it.

| name | fate |
|---|---|
| N.log | a segment |
| N.index, N.timeindex, N.txnindex with N.log | its indexes; without: removed |
| N.snapshot | producers at an offset |
| any.cleaned, any.tmp | removed: work that was not finished |
| any.deleted | removed after recovery, to which N.log.deleted explains missing offsets; a sync |
| | of the directory comes between, so that no old name can come back without it |
| any.removed | behind a sync that failed: removed when `any` is gone for good |
| N.log.swap and its indexes, where some .cleaned begins at or below N | removed: a split that was |
| | not finished; the segments it was to replace are all there |
| other N.log.swap and its indexes | takes its name, after the segments in its range are removed |
| N.index.swap and the like without N.log.swap | takes its name: its log did before the crash |
| anything else | left alone |
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.broker.log.asides import CUT_SUFFIX, former_name
from ottla.broker.log.final_syncs import run_sync
from ottla.broker.log.partition_dir import DOUBTFUL_TAIL_FILE, REMOVED_SUFFIX, PartitionDir
from ottla.broker.log.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
)
from ottla.config.types import LogConfig
from ottla.protocol.errors import KafkaError

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIX = ".tmp"

_OFFSET_DIGITS = 20
_UNFINISHED_SUFFIXES = (CLEANED_SUFFIX, TEMPORARY_SUFFIX)
_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


@dataclass(slots=True)
class Contents:
    """A directory whose leftovers are dealt with."""

    segments: list[int] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    transaction_indexes: set[int] = field(default_factory=set)
    # Names of files that wait to be removed, and the offsets of the segments among them.
    deleted_names: list[str] = field(default_factory=list)
    deleted_segments: list[int] = field(default_factory=list)
    changed: bool = False
    # Whether a sync has failed since the last start that came to its end.
    doubtful: bool = False


def tidy(directory: PartitionDir, config: LogConfig, now_ms: int) -> Contents:
    """Deals with what a crash left behind; names are durable only after a sync of the directory.

    Raises OSError, SyncFailed among them.
    """
    disk, path = directory.disk, directory.path
    names = disk.list(path)
    changed = doubtful = DOUBTFUL_TAIL_FILE in names
    if doubtful:
        _remove_once_more(directory, names)
        names = disk.list(path)
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    if swaps:
        cleaned = [
            offset
            for name in names
            if name.endswith(CLEANED_SUFFIX)
            and (offset := _offset_of(name.removesuffix(CLEANED_SUFFIX))) is not None
        ]
        _finish_swaps(directory, swaps, names, cleaned, config, now_ms)
        if cleaned:
            # Without the .cleaned a .swap that came back with another crash would be taken.
            run_sync(directory.sync)
        names = disk.list(path)
        changed = True
    for name in names:
        if name.endswith(_UNFINISHED_SUFFIXES):
            disk.remove(f"{path}/{name}")
            changed = True
    found = Contents()
    logs = {name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX)}
    for name in names:
        if name.endswith(DELETED_SUFFIX):
            found.deleted_names.append(name)
            name = name.removesuffix(DELETED_SUFFIX)
            offset = _offset_of(name)
            if offset is not None and name.endswith(LOG_SUFFIX):
                found.deleted_segments.append(offset)
            continue
        offset = _offset_of(name)
        if offset is None:
            continue
        if name.endswith(LOG_SUFFIX):
            found.segments.append(offset)
        elif name.endswith(SNAPSHOT_SUFFIX):
            found.snapshots.append(offset)
        elif name[:_OFFSET_DIGITS] not in logs:
            disk.remove(f"{path}/{name}")
            changed = True
        elif name.endswith(TRANSACTION_INDEX_SUFFIX):
            found.transaction_indexes.add(offset)
    found.changed, found.doubtful = changed, doubtful
    return found


def _remove_once_more(directory: PartitionDir, names: list[str]) -> None:
    """The disk may have the names that were given up before a sync failed, and the next one brings
    there only what changes from here on. So they are made anew, empty, and removed; what a killed
    start has left of that is empty, too. What was kept aside gets its name once more."""
    disk = directory.disk
    for name in names:
        if not name[:_OFFSET_DIGITS].isdigit():
            continue  # no file of a segment
        path = f"{directory.path}/{name}"
        if name.endswith((DELETED_SUFFIX, REMOVED_SUFFIX, CUT_SUFFIX)):
            is_aside = name.endswith(CUT_SUFFIX)
            former = former_name(path) if is_aside else path.rpartition(".")[0]
            file = disk.open(former, create=True)
            is_empty = file.size() == 0
            file.close()
            if is_empty:
                directory.remove(file.path)
        if name.endswith(CUT_SUFFIX):
            disk.rename(path, path + CUT_SUFFIX)
            disk.rename(path + CUT_SUFFIX, path)


def _offset_of(name: str) -> int | None:
    """The offset in a name of 20 digits and a suffix of a log's files, or None."""
    digits, suffix = name[:_OFFSET_DIGITS], name[_OFFSET_DIGITS:]
    if len(digits) == _OFFSET_DIGITS and digits.isascii() and digits.isdigit():
        return int(digits) if suffix in SEGMENT_SUFFIXES else None
    return None


def _finish_swaps(
    directory: PartitionDir,
    swaps: list[str],
    names: list[str],
    cleaned: list[int],
    config: LogConfig,
    now_ms: int,
) -> None:
    path = directory.path
    kept: list[str] = []
    for name in swaps:
        offset = _offset_of(name.removesuffix(SWAP_SUFFIX))
        if offset is None or (cleaned and offset >= min(cleaned)):
            directory.remove(f"{path}/{name}")
        else:
            kept.append(name)
    ends = [
        (offset, _end_of_swap(directory, offset, config, now_ms))
        for name in kept
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)
        and (offset := _offset_of(name.removesuffix(SWAP_SUFFIX))) is not None
    ]
    for name in names:
        offset = _offset_of(name)
        is_replaced = offset is not None and any(start <= offset < end for start, end in ends)
        if is_replaced and name.endswith((LOG_SUFFIX, *_INDEX_SUFFIXES)):
            directory.remove(f"{path}/{name}")
    logs = [name for name in kept if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    others = [name for name in kept if name not in logs]
    for name in logs:
        _take_name(directory, name)
    if logs and others:
        # After another crash an index beside its N.log.swap would pass for that of the old log.
        run_sync(directory.sync)
    for name in others:
        _take_name(directory, name)
    directory.events.info("segment_swap_finished", path=path, segments=[start for start, _ in ends])


def _take_name(directory: PartitionDir, name: str) -> None:
    path = f"{directory.path}/{name}"
    directory.disk.rename(path, path.removesuffix(SWAP_SUFFIX))
    directory.note_removed(path)


def _end_of_swap(directory: PartitionDir, offset: int, config: LogConfig, now_ms: int) -> int:
    """Where the range of a .log.swap ends, by its headers."""
    segment = Segment(directory, offset, config=config, now_ms=now_ms)
    file = directory.disk.open(segment.log_path + SWAP_SUFFIX)
    segment.file, segment.size = file, file.size()
    end = offset + 1
    try:
        for _, header in segment.headers():
            end = header.last_offset + 1
    except KafkaError:
        directory.events.warning("segment_swap_broken", path=file.path)
    finally:
        file.close()
    return end
