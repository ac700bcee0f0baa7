"""What is read by a worker before the loop reads: after it the loop waits for no disk."""

from __future__ import annotations

import errno
import threading
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.log.first_touch import TOUCHES_AT_ONCE, FirstTouches, Openings
from ottla.broker.log.index import WARM_BYTES
from ottla.broker.log.log import UPPER_HIGH_WATERMARK, UPPER_LAST_STABLE, Log
from ottla.broker.log.offset_index import ENTRY
from ottla.broker.log.segment import Segment
from ottla.broker.log.segments import OPEN_SEALED_MAX
from ottla.broker.log.time_search import TimedOffset
from ottla.config.types import LogConfig
from tests.log.logs import DIRECTORY, NOW, SMALL, append, flush, open_log
from tests.log.paged_disk import PagedDisk
from tests.log.test_log_transactions import end, write

HERE = threading.get_ident()
# A look-up walks over some batches between two entries of the index, with a read for each.
SPARSE = LogConfig(segment_bytes=60_000, segment_index_bytes=240, index_interval_bytes=15_000)


def paged_disk() -> PagedDisk:
    disk = PagedDisk()
    for path in ("/data", DIRECTORY):
        disk.make_dir(path)
    disk.sync_dir("/data")
    return disk


def filled(disk: PagedDisk, config: LogConfig, sizes: list[int]) -> Log:
    log = open_log(disk, config)
    for size in sizes:
        append(log, size=size)
    flush(log)
    return log


def reopened(disk: PagedDisk, config: LogConfig, log: Log) -> Log:
    end = log.log_end_offset
    log.close()
    return open_log(disk, config, recovery_point=end, high_watermark=end)


def touch(
    log: Log, offset: int, *, upper: int = UPPER_HIGH_WATERMARK, may_open: bool = True
) -> bool:
    """Whether a worker was needed."""
    openings = Openings(5 if may_open else 0)
    places = log.places_to_touch(offset, upper=upper, openings=openings)
    if upper == UPPER_LAST_STABLE:
        places += log.transactions_to_touch(offset)
    if not places:
        return False
    worker = threading.Thread(target=FirstTouches(places).run_apart, args=[_no_pause])
    worker.start()
    worker.join()
    return True


def read(log: Log, offset: int) -> int | None:
    found = log.read(offset, max_bytes=1, upper=UPPER_HIGH_WATERMARK, at_least_one=True)
    return None if found is None else found.size


def _no_pause() -> None:
    pass


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=60),
    is_sparse=st.booleans(),
    reopen=st.booleans(),
    may_open=st.booleans(),
    evictions=st.lists(st.booleans(), min_size=8, max_size=8),
    offsets=st.lists(st.integers(0, 59), min_size=8, max_size=8),
)
def test_the_loop_waits_for_no_disk_behind_a_touch(
    sizes: list[int],
    is_sparse: bool,
    reopen: bool,
    may_open: bool,
    evictions: list[bool],
    offsets: list[int],
) -> None:
    disk = paged_disk()
    config = SPARSE if is_sparse else SMALL
    log = filled(disk, config, [size * 20 for size in sizes] if is_sparse else sizes)
    plain = [read(log, offset) for offset in range(len(sizes))]
    if reopen:
        log = reopened(disk, config, log)

    for offset, evict in zip(offsets, evictions, strict=True):
        at = offset % len(sizes)
        if evict:
            disk.evict()
        disk.waited.clear()
        touch(log, at, may_open=may_open)
        assert read(log, at) == plain[at]
        assert disk.waits_of(HERE) == []
        assert not touch(log, at, may_open=False)


def test_what_was_just_written_is_not_touched() -> None:
    disk = paged_disk()
    log = filled(disk, SMALL, [20] * 30)
    disk.evict()

    assert not touch(log, 29)
    assert read(log, 29) is not None
    assert disk.waited == []


def test_what_is_read_for_the_first_time_or_was_evicted_is_touched_and_else_not() -> None:
    disk = paged_disk()
    log = reopened(disk, SMALL, filled(disk, SMALL, [20] * 30))
    disk.evict()

    assert touch(log, 3)
    read(log, 3)
    assert not touch(log, 3)
    disk.evict()
    assert touch(log, 3)


def test_who_reads_behind_a_look_does_not_look_again() -> None:
    disk = paged_disk()
    log = filled(disk, SMALL, [20] * 30)
    assert not touch(log, 3)
    disk.evict()

    assert read(log, 3) is not None
    assert disk.waited == []


def test_a_batch_that_was_found_is_forgotten_when_it_is_cut_off() -> None:
    disk = paged_disk()
    log = filled(disk, SMALL, [20] * 30)
    assert not touch(log, 2)
    before = read(log, 2)
    log.truncate_to(2)
    append(log, size=50)
    append(log, size=50)
    flush(log)
    log.set_high_watermark(log.log_end_offset)

    assert before is not None
    assert read(log, 2) == before + 30


def test_what_is_in_memory_is_opened_only_if_it_may_be() -> None:
    disk = paged_disk()
    log = filled(disk, SMALL, [20] * 30)
    log.segments[0].release()

    assert touch(log, 3, may_open=False)
    assert not touch(log, 3)
    assert not touch(log, 3, may_open=False)
    assert disk.waited == []


def test_a_large_index_that_is_in_memory_needs_no_worker() -> None:
    disk = paged_disk()
    config = LogConfig(index_interval_bytes=0)
    log = filled(disk, config, [1] * (WARM_BYTES // ENTRY.size + 1000))
    assert len(log.segments) == 1
    log.segments.active.release()

    assert not touch(log, 3)
    disk.evict_file(log.segments.active.index.entries.path)
    log.segments.active.release()
    assert touch(log, 3)
    assert not touch(log, 3)


@pytest.mark.parametrize("offset", [-1, 30, 31])
def test_where_nothing_is_to_be_read_nothing_is_touched(offset: int) -> None:
    disk = paged_disk()
    log = reopened(disk, SMALL, filled(disk, SMALL, [20] * 30))

    assert not touch(log, offset)


def sealed(disk: PagedDisk) -> tuple[Log, Segment]:
    log = reopened(disk, SMALL, filled(disk, SMALL, [20] * 30))
    disk.evict()
    segment = log.segments[log.segments.floor_index(3)]
    assert segment is not log.segments.active
    return log, segment


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".log"])
def test_what_cannot_be_read_is_the_readers_to_tell(suffix: str) -> None:
    disk = paged_disk()
    log, segment = sealed(disk)
    path = segment.log_path.replace(".log", suffix)
    disk.inject("open", errno.EIO, path=path, times=2)

    assert touch(log, 3)
    with pytest.raises(OSError, match="error") as raised:
        read(log, 3)
    assert raised.value.errno == errno.EIO


@pytest.mark.parametrize("size", [0, 3, 11])
def test_an_index_that_was_cut_is_touched_and_made_anew(size: int) -> None:
    disk = paged_disk()
    log, segment = sealed(disk)
    before = read(open_log(disk, SMALL, high_watermark=30), 3)
    file = disk.open(segment.index.entries.path)
    file.truncate(size)
    file.close()

    assert touch(log, 3)
    assert read(log, 3) == before


def test_an_index_that_lies_leads_nowhere_and_harms_nothing() -> None:
    disk = paged_disk()
    log, segment = sealed(disk)
    before = read(open_log(disk, SMALL, high_watermark=30), 3)
    disk.corrupt(segment.index.entries.path, 0, b"\xff" * 8)

    assert touch(log, 3)
    assert read(log, 3) == before


def test_the_same_files_are_not_opened_for_good() -> None:
    disk = paged_disk()
    log = filled(disk, SMALL, [20] * 200)
    for segment in log.segments[:-1]:
        segment.release()
    assert len(log.segments) > OPEN_SEALED_MAX + 2

    for offset in range(200):
        touch(log, offset)
    opened = [segment for segment in log.segments[:-1] if segment.file is not None]
    assert len(opened) == OPEN_SEALED_MAX


def test_no_more_files_are_opened_than_may_be() -> None:
    disk = paged_disk()
    log = filled(disk, SMALL, [20] * 90)
    openings = Openings(2)
    found: list[bool] = []
    for segment in log.segments[:4]:
        segment.release()
    for segment in log.segments[:4]:
        offset = segment.base_offset
        places = log.places_to_touch(offset, upper=UPPER_HIGH_WATERMARK, openings=openings)
        found.append(bool(places))

    assert found == [False, False, True, True]


def test_of_entries_that_are_not_in_the_file_the_worker_is_told() -> None:
    """The file is as large as it may become, and behind what is written it is zeros."""
    disk = paged_disk()
    config = LogConfig(index_interval_bytes=100, segment_index_bytes=8000)
    log = filled(disk, config, [1] * 3000)
    segment = log.segments.active
    pending = segment.index.entries.count - segment.index.entries.written_bytes // ENTRY.size
    assert pending > 10

    for offset in range(0, 3000, 7):
        disk.evict()
        touch(log, offset)
        waited = [path for path in disk.waits_of_others(HERE) if path == segment.log_path]
        assert len(waited) <= 2, "it goes through the segment"
        assert read(log, offset) is not None
        assert disk.waits_of(HERE) == []


def test_a_map_that_was_idle_is_looked_at_again() -> None:
    disk = paged_disk()
    log = filled(disk, SMALL, [20] * 30)
    segment = log.segments[0]
    assert not touch(log, 3)
    assert read(log, 3) is not None
    path = segment.index.entries.path
    disk.held.release_surplus()
    assert not touch(log, 3), "it is in use"
    disk.evict_file(path)
    assert not touch(log, 3), "it is in use, and nobody can tell"

    for _ in range(2):
        disk.held.release_surplus()
    assert touch(log, 3)
    assert read(log, 3) is not None
    assert disk.waits_of(HERE) == []


def with_transactions(disk: PagedDisk, before: int = 8) -> Log:
    """Two aborted transactions in sealed segments, one that is open, and records all around."""
    log = open_log(disk, SMALL)
    for producer, is_over in ((1, True), (2, True), (3, False)):
        for _ in range(before):
            append(log, size=60)
        write(log, producer, 0)
        for _ in range(8):
            append(log, size=60)
        if is_over:
            end(log, producer, committed=False)
    for _ in range(20):
        append(log, size=60)
    flush(log)
    return reopened(disk, SMALL, log)


@pytest.mark.parametrize("before", [7, 8, 9, 10])
@pytest.mark.parametrize("offset", range(0, 27, 3))
def test_who_reads_committed_waits_for_no_disk_either(offset: int, before: int) -> None:
    disk = paged_disk()
    log = with_transactions(disk, before)
    assert log.last_stable_offset < log.high_watermark
    disk.evict()

    assert touch(log, offset, upper=UPPER_LAST_STABLE)
    found = log.read(offset, max_bytes=1, upper=UPPER_LAST_STABLE, at_least_one=True)
    assert found is not None
    assert disk.waits_of(HERE) == []
    assert log.places_to_touch(offset, upper=UPPER_LAST_STABLE, openings=Openings(0)) == []
    assert not log.knows_aborted_in(offset, found)
    aborted = log.aborted_in(offset, found)
    assert disk.waits_of(HERE) == []
    assert log.knows_aborted_in(offset, found)
    assert log.aborted_in(offset, found) == aborted


def test_the_end_of_what_is_stable_is_looked_for_by_the_worker() -> None:
    disk = paged_disk()
    log = with_transactions(disk, 9)
    stable = log.last_stable_offset
    segment = log.segments[log.segments.floor_index(stable)]
    assert segment.base_offset not in (0, stable)
    disk.evict()

    assert touch(log, 0, upper=UPPER_LAST_STABLE)
    assert segment.log_path in disk.waits_of_others(HERE)


def test_of_the_segments_behind_only_what_was_aborted_is_read() -> None:
    disk = paged_disk()
    log = with_transactions(disk)
    disk.evict()
    touch(log, 0, upper=UPPER_LAST_STABLE)

    assert {path for path, _ in disk.waited if path.endswith(".log")} == {log.segments[0].log_path}
    assert len({path for path, _ in disk.waited if path.endswith(".txnindex")}) == 2


def test_who_reads_uncommitted_does_not_read_what_was_aborted() -> None:
    disk = paged_disk()
    log = with_transactions(disk)
    disk.evict()
    touch(log, 3)

    assert not [path for path, _ in disk.waited if path.endswith(".txnindex")]


def test_what_nobody_waits_for_any_more_is_not_read() -> None:
    disk = paged_disk()
    log = reopened(disk, SMALL, filled(disk, SMALL, [20] * 30))
    disk.evict()
    places = [
        place
        for offset in (0, 12)
        for place in log.places_to_touch(offset, upper=UPPER_HIGH_WATERMARK, openings=Openings(0))
    ]
    touches = FirstTouches(places)
    touches.run_apart(touches.stop)

    assert {path[: -len(".log")] for path, _ in disk.waited if path.endswith(".log")} == {
        places[0].segment.log_path[: -len(".log")]
    }


def test_a_look_up_by_time_opens_what_a_worker_has_read() -> None:
    disk = paged_disk()
    log = filled(disk, SMALL, [20] * 200)
    log = reopened(disk, SMALL, log)
    assert len(log.segments) > TOUCHES_AT_ONCE + 2
    disk.evict()
    steps = log.steps_to_timestamp(NOW + 10**6)
    seen: list[object] = []
    found: TimedOffset | None = None
    with suppress(StopIteration):
        while True:
            seen.append(search := steps.send(found))
            if isinstance(search, FirstTouches):
                worker = threading.Thread(target=search.run_apart, args=[_no_pause])
                worker.start()
                worker.join()

    assert [type(one) for one in seen[:2]] == [FirstTouches, type(None)]
    assert sum(isinstance(one, FirstTouches) for one in seen) == 2
    assert all(segment.is_loaded for segment in log.segments)
    assert disk.waits_of(HERE) == []
