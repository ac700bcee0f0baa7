"""Syncs beside those of a log's own flushes: what they failed at is known from what was refused.

A module of its own, for mypyc does not compile what inherits from OSError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ottla.broker.faults import NO_DESCRIPTOR_ERRORS, Call
from ottla.broker.log.partition_dir import PartitionDir


class SyncFailed(OSError):
    """A sync failed, of a file or of the names beside it. It is final, also for others: the kernel
    has marked clean what it was to bring to disk, the name of a new segment, say, and whoever syncs
    the same directory next is told that all is well."""


def run_sync(sync: Callable[[], None]) -> None:
    """Runs a sync of a directory, or of a file. SyncFailed if it failed, and any other OSError if
    the directory could not be opened, so that nothing was marked clean."""
    try:
        sync()
    except OSError as error:
        if error.errno in NO_DESCRIPTOR_ERRORS:
            raise
        raise SyncFailed(error.errno, error.strerror, error.filename) from error


@contextmanager
def doubting(home: PartitionDir) -> Iterator[None]:
    """Leaves a mark in a log's directory where a `run_sync` fails: whoever opens it next must not
    believe the cache."""
    try:
        yield
    except SyncFailed:
        home.doubt_tail()
        raise


def call_of(error: OSError) -> Call:
    """Which call it was of work that writes, and syncs by `run_sync`."""
    return Call.SYNC if isinstance(error, SyncFailed) else Call.WRITE
