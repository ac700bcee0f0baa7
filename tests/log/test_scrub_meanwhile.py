"""What becomes of a transaction index that the scrub mends while its segment goes, or its log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ottla.broker.log.scrub import SegmentScrub
from ottla.broker.log.segment import LOG_SUFFIX, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX
from ottla.broker.log.transaction_index import ENTRY, pack
from ottla.testing.disk import SimDisk, SimFile
from tests.log.logs import DIRECTORY, NOW, SMALL, append, flush, new_disk, open_log
from tests.log.test_scrub import ALL, Bench, cut_file, sealed_index, transactional_log

ASIDE = "/data/orders-0.0123-delete"
DELETING = replace(SMALL, retention_bytes=0, file_delete_delay_ms=0)
STAGES = ["", "sync", "sync_dir"]
"""Before which call of the worker something happens; "": before its first look at the directory.
Its other calls exclude a rename of the directory, or of files in it."""


class Mending(Bench):
    """A log whose first segments lack their transaction indexes, or the last entry of one of them,
    and a scrub that found one."""

    def __init__(self, *, lacks_file: bool = True) -> None:
        super().__init__()
        self.disk = new_disk()
        self.log = transactional_log(self.disk)
        end = self.log.log_end_offset
        self.log.close()
        if lacks_file:
            for name in self.indexes()[:-1]:
                self.disk.remove(f"{DIRECTORY}/{name}")
        else:
            cut_file(self.disk, sealed_index(self.disk, 2), ENTRY.size)
        self.log = open_log(self.disk, DELETING, recovery_point=end, high_watermark=end)
        self.scrubber = self.new_scrubber()
        self.work = self._find()
        base_offset = self.work.segment.base_offset
        self.name = f"{base_offset:020d}{TRANSACTION_INDEX_SUFFIX}"
        self.path = f"{DIRECTORY}/{self.name}"

    def _find(self) -> SegmentScrub:
        while (work := self.begin()) is not None:
            self.scrubber.finish(work, work.read(ALL))
            if work.to_mend:
                return work
        raise AssertionError("nothing is to be mended")

    def indexes(self, directory: str = DIRECTORY) -> list[str]:
        return sorted(one for one in self.disk.list(directory) if TRANSACTION_INDEX_SUFFIX in one)

    def mend(self, stage: str, meanwhile: Callable[[], None]) -> None:
        """Mends, and something happens before a call of the worker that does it."""
        happened: list[str] = []

        def before(count: int, call: str, path: str) -> None:
            if not happened and call == stage:
                happened.append(call)
                self.disk.before_call = None
                meanwhile()

        if stage:
            self.disk.before_call = before
        else:
            meanwhile()
        self.work.mend()
        self.disk.before_call = None
        assert happened or not stage
        self.scrubber.mended(self.work)


@pytest.mark.parametrize("stage", STAGES)
def test_an_index_of_a_segment_that_is_deleted_meanwhile_does_not_stay(stage: str) -> None:
    mending = Mending()

    def delete() -> None:
        mending.log.delete_old_segments(NOW)

    mending.mend(stage, delete)
    assert mending.work.segment not in list(mending.log.segments)
    assert mending.name not in mending.indexes()
    assert mending.events.names == []
    list(mending.log.segments.remove_deleted(mending.log.segments.take_deleted(NOW)))

    assert [one for one in mending.indexes() if mending.name in one] == []


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("made_again", [False, True])
def test_a_deleted_topic_is_no_fault_and_its_successor_is_left_alone(
    stage: str, made_again: bool
) -> None:
    mending = Mending()

    def delete() -> None:
        mending.log.home.move_to(ASIDE)
        if made_again:
            mending.disk.make_dir(DIRECTORY)
            second = open_log(mending.disk)
            append(second)
            flush(second)

    mending.mend(stage, delete)

    assert "transaction_index_not_mended" not in mending.events.names
    assert mending.disk.exists(DIRECTORY) == made_again
    assert not made_again or mending.indexes() == []


@pytest.mark.parametrize("stage", ["create", "rename", *STAGES])
@pytest.mark.parametrize("lacks_file", [True, False])
@pytest.mark.parametrize("whole", [False, True])
def test_an_index_of_a_segment_that_is_cut_meanwhile_keeps_no_entry_behind_the_cut(
    stage: str, lacks_file: bool, whole: bool
) -> None:
    mending = Mending(lacks_file=lacks_file)
    log, base_offset = mending.log, mending.work.segment.base_offset
    first, last = mending.work.aborted[0], mending.work.aborted[-1]
    kept = [] if lacks_file or whole else [first]

    def cut() -> None:
        if whole:
            log.truncate_fully_and_start_at(base_offset)
        else:
            log.truncate_to(first.last_offset if lacks_file else last.last_offset)

    mending.mend(stage, cut)
    active = log.segments.active
    assert active.base_offset == base_offset
    assert active.transactions.entries() == kept
    assert (mending.name in mending.indexes()) == bool(kept)
    assert not kept or mending.disk.open(mending.path).pread(1 << 10, 0) == pack(kept)
    assert mending.events.names == []


def test_the_index_of_a_log_that_was_set_aside_is_no_fault() -> None:
    """A move to another directory, say, that ended while the segment was read."""
    mending = Mending(lacks_file=False)
    work = mending.work
    work.to_mend = []
    work.segment.transactions.release()
    mending.log.home.move_to(ASIDE)
    mending.scrubber.finish(work, 0)

    assert work.to_mend == []
    assert mending.events.names == []


class MeanwhileDisk(SimDisk):
    """A disk on which something happens just before a file is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = ""
        self.meanwhile: Callable[[], None] | None = None

    def open(self, path: str, *, create: bool = False) -> SimFile:
        meanwhile = self.meanwhile
        if meanwhile is not None and path == self.opened:
            self.meanwhile = None
            meanwhile()
        return super().open(path, create=create)


@pytest.mark.parametrize("suffix", [LOG_SUFFIX, SNAPSHOT_SUFFIX])
@pytest.mark.parametrize("made_again", [False, True])
def test_nothing_is_read_of_a_topic_that_was_made_anew_under_the_name(
    made_again: bool, suffix: str
) -> None:
    bench = Bench()
    disk = MeanwhileDisk()
    for path in ("/data", DIRECTORY):
        disk.make_dir(path)
    bench.disk, bench.log = disk, transactional_log(disk)
    work = bench.begin()
    assert work is not None
    base_offset, size = work.segment.base_offset, work.segment.size

    def delete() -> None:
        bench.log.home.move_to(ASIDE)
        if made_again:
            disk.make_dir(DIRECTORY)
            transactional_log(disk)
            path = f"{DIRECTORY}/{base_offset:020d}{LOG_SUFFIX}"
            disk.corrupt(path, 70, bytes(size - 70))

    disk.opened, disk.meanwhile = f"{DIRECTORY}/{base_offset:020d}{suffix}", delete
    read = work.read(ALL)
    assert disk.meanwhile is None

    assert (read, work.damages, work.done) == (0, [], True)
    assert not bench.scrubber.finish(work, read)
    assert bench.events.names == []
    assert not bench.log.quarantine
