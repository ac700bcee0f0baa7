"""What a log does without is kept beside it, under names that end in .cut: starts leave them alone.

    N.POSITION.cut    a copy of bytes of N.log, from that position on
    NAME.cut          the file NAME as a whole

What lies there may be the only copy of records, so no name is taken twice: the next ones are
N.POSITION.2.cut and NAME.2.cut, and so on. A copy has its name only when all of it is on disk.
Where a recovery or a repair that was cut short has made the same copy, that one is it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from ottla.broker.log.checkpoints import TEMPORARY_SUFFIX
from ottla.broker.log.final_syncs import run_sync
from ottla.broker.log.partition_dir import COPY_BYTES
from ottla.broker.ports import Disk, File

CUT_SUFFIX = ".cut"

_ADDED = re.compile(rf"(\.\d+)?{re.escape(CUT_SUFFIX)}$")


def free_name(disk: Disk, path: str) -> str:
    """The path to which a file that is set aside as a whole is to be renamed."""
    return next(name for name in _names(path) if not disk.exists(name))


def former_name(aside: str) -> str:
    """The path that a file had before it was set aside as a whole."""
    return _ADDED.sub("", aside)


def name_of_copy(disk: Disk, log: File, start: int, end: int) -> str:
    """Where a copy of the bytes from one position of a log up to another is, or is to be."""
    stem = f"{log.path.rpartition('.')[0]}.{start}"
    return next(
        name
        for name in _names(stem)
        if not disk.exists(name) or _is_copy(disk, name, log, start, end)
    )


def keep_copy(disk: Disk, log: File, start: int, end: int) -> str:
    """Copies the bytes from one position of a log up to another; the path of the copy.

    Its name is durable when the directory is synced. Raises OSError, SyncFailed among them.
    """
    path = name_of_copy(disk, log, start, end)
    if disk.exists(path):
        return path
    copy = disk.open(path + TEMPORARY_SUFFIX, create=True)
    try:
        copy.truncate(0)
        for position, chunk in _pieces(log, start, end):
            copy.pwrite(chunk, position - start)
        run_sync(copy.sync)
    finally:
        copy.close()
    disk.rename(path + TEMPORARY_SUFFIX, path)
    return path


def _names(path: str) -> Iterator[str]:
    yield path + CUT_SUFFIX
    for number in itertools.count(2):
        yield f"{path}.{number}{CUT_SUFFIX}"


def _is_copy(disk: Disk, path: str, log: File, start: int, end: int) -> bool:
    copy = disk.open(path)
    try:
        return copy.size() == end - start and all(
            copy.pread(len(chunk), position - start) == chunk
            for position, chunk in _pieces(log, start, end)
        )
    finally:
        copy.close()


def _pieces(file: File, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    for position in range(start, end, COPY_BYTES):
        yield position, file.pread(min(COPY_BYTES, end - position), position)
