"""Look-ups by time where nothing of the log is in memory: the loop waits for no disk."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from ottla.broker.log.first_touch import FirstTouches
from ottla.broker.log.log import Log
from ottla.broker.log.segment import Segment
from ottla.broker.log.segments import OPEN_SEALED_MAX
from ottla.broker.log.time_search import (
    HEADERS_PER_STEP,
    SHORT_BYTES,
    BatchSearch,
    Steps,
    TimedOffset,
)
from ottla.broker.log.touched_reads import TOUCHED_MAX, Cold, Piece, TouchedReads
from ottla.broker.log.walk import LOOKUP_READ_BYTES
from ottla.config.types import LogConfig
from tests.log.logs import NOW, SMALL, append, first_at_time, flush, open_log, run_all, timed_batch
from tests.log.paged_disk import PAGE_BYTES, PagedDisk
from tests.log.test_first_touch import HERE, paged_disk, reopened
from tests.log.test_log_times import CONFIG, write
from tests.log.test_time_search import lying_batch


def followed(
    steps: Steps, between: Callable[[], None] = lambda: None
) -> tuple[TimedOffset | None, int]:
    """What is found as by a broker, and how often a worker reads before. `between` is called behind
    each step."""
    touched = 0
    found: TimedOffset | None = None
    while True:
        try:
            search = steps.send(found)
        except StopIteration as done:
            return done.value, touched
        found = None
        if isinstance(search, BatchSearch) and search.is_short:
            found = search.run()
        elif search is not None:
            touched += isinstance(search, FirstTouches)
            found = _in_worker(search)
        between()


def _in_worker(search: BatchSearch | FirstTouches) -> TimedOffset | None:
    found: list[TimedOffset | None] = []
    worker = threading.Thread(target=lambda: found.append(search.run_apart(lambda: None)))
    worker.start()
    worker.join()
    return found[0]


def wanted_times(written: list[tuple[int, int]]) -> list[int]:
    return sorted({time + delta for _, time in written for delta in (-1, 0, 1) if time > -1})


@pytest.mark.parametrize("seed", range(40))
def test_the_loop_waits_for_no_disk_wherever_a_look_up_leads(seed: int) -> None:
    rng = random.Random(seed)
    disk = paged_disk()
    config = replace(CONFIG, index_interval_bytes=rng.choice((0, 150, 1000)))
    log, written = write(disk, rng, config)
    if rng.randrange(2):
        log = reopened(disk, config, log)
    if rng.randrange(2):
        log.delete_records(rng.randrange(log.log_end_offset // 2))
    wanted = rng.sample(wanted_times(written), 12)
    plain = [first_at_time(log, one) for one in wanted]
    greatest = run_all(log.steps_to_max_timestamp())

    for one, found in zip(wanted, plain, strict=True):
        if rng.randrange(2):
            for segment in log.segments:
                segment.release()
        disk.evict()
        assert followed(log.steps_to_timestamp(one))[0] == found
        assert disk.waits_of(HERE) == []
        assert followed(log.steps_to_timestamp(one)) == (found, 0)
    disk.evict()
    assert followed(log.steps_to_max_timestamp())[0] == greatest
    assert disk.waits_of(HERE) == []


@pytest.mark.parametrize("seed", range(10))
def test_what_is_evicted_again_is_waited_for(seed: int) -> None:
    """A look-up ends, though nothing stays in memory from one turn to the next."""
    rng = random.Random(seed)
    disk = paged_disk()
    log, written = write(disk, rng, CONFIG)
    log = reopened(disk, CONFIG, log)

    def evict() -> None:
        disk.evict()
        if rng.randrange(2):
            for segment in log.segments:
                segment.release()

    for one in rng.sample(wanted_times(written), 12):
        found = first_at_time(log, one)
        evict()
        assert followed(log.steps_to_timestamp(one), evict)[0] == found


def with_one_later(disk: PagedDisk, times: list[int], *, count: int) -> Log:
    """So many batches with these times, and one that has NOW + 1."""
    log = open_log(disk, LogConfig())
    for _ in range(count):
        log.append_as_leader(timed_batch(times), leader_epoch=0, now_ms=NOW)
    log.append_as_leader(timed_batch([NOW + 1]), leader_epoch=0, now_ms=NOW)
    flush(log)
    return log


def test_a_walk_over_many_headers_is_touched_piece_by_piece() -> None:
    """Headers that lead on: 64 KiB of them at a time."""
    disk = paged_disk()
    log = with_one_later(disk, [NOW] * 10, count=1200)
    assert 128 * 1024 < log.size_bytes < 192 * 1024
    disk.evict()

    found, touched = followed(log.steps_to_timestamp(NOW + 1))
    assert found == (12_000, NOW + 1, 0)
    assert touched == 4  # the way there, and the three pieces
    assert disk.waits_of(HERE) == []


def cut_short(disk: PagedDisk, *, sizes: list[int]) -> Log:
    """A log of plain batches of which the headers are in memory, and not all records."""
    log = open_log(disk, LogConfig())
    positions = []
    for step, size in enumerate(sizes):
        positions.append(log.size_bytes)
        append(log, size=size, timestamp=NOW + step)
    flush(log)
    disk.evict()
    path = log.segments.active.log_path
    for position in positions:
        disk.keep(path, range(position, position + LOOKUP_READ_BYTES + PAGE_BYTES))
    return log


def test_a_short_batch_that_is_not_in_memory_is_a_workers_first() -> None:
    disk = paged_disk()
    log = cut_short(disk, sizes=[20_000] * 3)

    assert followed(log.steps_to_timestamp(NOW + 1)) == ((1, NOW + 1, 0), 1)
    assert disk.waits_of(HERE) == []


def test_so_is_one_that_the_log_start_lies_in() -> None:
    disk = paged_disk()
    log = open_log(disk, LogConfig())
    times = [NOW + 90, *[NOW + 10] * 800]
    log.append_as_leader(timed_batch(times), leader_epoch=0, now_ms=NOW)
    flush(log)
    log.delete_records(1)

    def evict() -> None:
        disk.evict()
        disk.keep(log.segments.active.log_path, range(LOOKUP_READ_BYTES + PAGE_BYTES))

    evict()
    # Of it three things are asked: its time, what is left of it, and the time of that.
    assert followed(log.steps_to_max_timestamp(), evict) == ((1, NOW + 10, 0), 3)


def test_a_long_batch_is_touched_by_nobody_before_it_is_searched() -> None:
    disk = paged_disk()
    log = cut_short(disk, sizes=[2 * SHORT_BYTES] * 3)

    assert followed(log.steps_to_timestamp(NOW + 1)) == ((1, NOW + 1, 0), 0)


@pytest.mark.parametrize("evicted", [False, True])
def test_a_look_up_ends_beside_who_appends(evicted: bool) -> None:
    """The time index grows by a block with each turn, and is in memory in part or not at all."""
    disk = paged_disk()
    log = open_log(disk, LogConfig(index_interval_bytes=0))
    written = 0

    def write(count: int) -> None:
        nonlocal written
        for _ in range(count):
            written += 1
            batch = timed_batch([NOW + written])
            log.append_as_leader(batch, leader_epoch=0, now_ms=NOW)

    write(6000)
    flush(log)
    segment = log.segments.active
    assert segment.time_index.entries.written_bytes > 64 * 1024
    turns = itertools.count()

    def between() -> None:
        write(45)
        segment.time_index.entries.release()
        if evicted:
            disk.evict()
        assert next(turns) < 10

    disk.evict()
    assert followed(log.steps_to_timestamp(NOW + 1000), between)[0] == (999, NOW + 1000, 0)


def test_all_of_a_large_time_index_is_touched() -> None:
    disk = paged_disk()
    log = open_log(disk, LogConfig(index_interval_bytes=0))
    for step in range(6000):
        log.append_as_leader(timed_batch([NOW + step]), leader_epoch=0, now_ms=NOW)
    flush(log)
    for wanted in (1, 2900, 5000, 5700):
        log.segments.active.release()
        disk.evict()
        found, touched = followed(log.steps_to_timestamp(NOW + wanted))
        assert found == (wanted, NOW + wanted, 0)
        assert touched <= 4
        assert disk.waits_of(HERE) == []


def test_a_walk_that_is_interrupted_goes_on_where_it_was() -> None:
    """A segment that is closed meanwhile is found again behind the last header, by an index that
    nobody has needed before: where no record has a time, the time index leads nowhere."""
    disk = paged_disk()
    log = with_one_later(disk, [-1] * 10, count=1200)
    log = reopened(disk, LogConfig(), log)
    log.segments.active.forget_recent()
    disk.evict()

    found, touched = followed(log.steps_to_timestamp(NOW + 1), log.segments.active.release)
    assert found == (12_000, NOW + 1, 0)
    assert touched < 10
    assert disk.waits_of(HERE) == []


def test_a_segment_that_is_closed_meanwhile_is_opened_without_a_worker() -> None:
    disk = paged_disk()
    log = with_one_later(disk, [NOW], count=4 * HEADERS_PER_STEP)

    found = followed(log.steps_to_timestamp(NOW + 1), log.segments.active.release)
    assert found == ((4 * HEADERS_PER_STEP, NOW + 1, 0), 0)


def large_segments(disk: PagedDisk) -> Log:
    """A batch of 20 KB in each."""
    log = open_log(disk, LogConfig(segment_bytes=30_000, retention_ms=-1))
    for step in range(40):
        append(log, size=20_000, timestamp=NOW + step)
    flush(log)
    return log


def evict_records(disk: PagedDisk, segment: Segment) -> None:
    disk.evict_file(segment.log_path)
    disk.keep(segment.log_path, range(LOOKUP_READ_BYTES + PAGE_BYTES))


@pytest.mark.parametrize("evicted", [False, True])
def test_a_segment_that_others_have_closed_meanwhile_is_counted_as_open(evicted: bool) -> None:
    disk = paged_disk()
    log = large_segments(disk)
    segments = log.segments

    def read_others() -> None:
        for other in segments[25:34]:
            segments.read_from(other)
            other.open()

    for step in range(20):
        if evicted:
            evict_records(disk, segments[step])
        found = followed(log.steps_to_timestamp(NOW + step), read_others)
        assert found == ((step, NOW + step, 0), int(evicted))

    assert sum(one.file is not None for one in segments[:-1]) <= OPEN_SEALED_MAX
    assert len(disk.open_files) <= OPEN_SEALED_MAX + 1


def test_a_segment_that_is_deleted_meanwhile_is_not_counted_as_open() -> None:
    disk = paged_disk()
    log = large_segments(disk)
    segments = log.segments
    evict_records(disk, segments[1])

    def delete() -> None:
        log.delete_records(segments[2].base_offset)
        log.delete_old_segments(NOW)

    followed(log.steps_to_timestamp(NOW + 1), delete)
    assert log.log_start_offset > 1
    assert segments._opened.keys() <= set(segments)


def test_what_was_touched_is_forgotten_behind_many_others() -> None:
    """A look-up may go through any log."""
    disk = paged_disk()
    log = cut_short(disk, sizes=[100] * 10)
    segment = log.segments.active
    disk.evict()
    reads = TouchedReads()
    reads.as_work(Piece(segment, 0))
    for position in range(1, TOUCHED_MAX):
        reads.as_work(Piece(segment, position))
    assert next(reads.headers(segment, 0))[1].base_offset == 0
    disk.evict()
    reads.as_work(Piece(segment, TOUCHED_MAX))
    with pytest.raises(Cold):
        next(reads.headers(segment, 0))


def test_a_search_of_what_was_just_written_needs_no_worker() -> None:
    disk = paged_disk()
    log, written = write(disk, random.Random(1), SMALL)
    for _, time in written:
        assert followed(log.steps_to_timestamp(time))[1] == 0


def test_entries_that_are_not_in_the_file_yet_are_not_looked_for_there() -> None:
    disk = paged_disk()
    log = open_log(disk, LogConfig(index_interval_bytes=0))
    for step in range(100):
        log.append_as_leader(timed_batch([NOW + step]), leader_epoch=0, now_ms=NOW)
    flush(log)
    entries = log.segments.active.time_index.entries
    assert 0 < entries.written_bytes < entries.size_bytes - 60
    entries.release()
    disk.evict_file(entries.path)

    assert followed(log.steps_to_timestamp(NOW + 98)) == ((98, NOW + 98, 0), 0)


def test_a_header_that_lies_is_passed_without_waiting() -> None:
    disk = paged_disk()
    log = open_log(disk, SMALL)
    for step in range(40):
        batch = lying_batch([NOW + step]) if step % 3 else timed_batch([NOW + step])
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW)
    log.append_as_leader(timed_batch([NOW + 500]), leader_epoch=0, now_ms=NOW)
    flush(log)
    log.delete_records(2)
    disk.evict()

    assert followed(log.steps_to_timestamp(NOW + 400))[0] == (40, NOW + 500, 0)
    assert disk.waits_of(HERE) == []


def test_a_segment_that_goes_while_a_worker_reads_is_looked_behind() -> None:
    disk = paged_disk()
    log = open_log(disk, replace(SMALL, retention_ms=-1))
    for step in range(60):
        log.append_as_leader(timed_batch([NOW + step]), leader_epoch=0, now_ms=NOW)
    flush(log)
    gone = log.segments[2].base_offset
    disk.evict()

    def delete() -> None:
        log.delete_records(gone)
        log.delete_old_segments(NOW)

    assert followed(log.steps_to_timestamp(NOW + 1), delete)[0] == (gone, NOW + gone, 0)
