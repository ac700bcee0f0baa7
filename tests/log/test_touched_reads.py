"""Look-ups by time where nothing of the log is in memory: the loop waits for no disk."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from ottla.broker.log.first_touch import FirstTouches
from ottla.broker.log.time_search import BatchSearch, Steps, TimedOffset
from ottla.config.types import LogConfig
from tests.log.logs import NOW, SMALL, first_at_time, flush, open_log, run_all, timed_batch
from tests.log.test_first_touch import HERE, paged_disk, reopened
from tests.log.test_log_times import CONFIG, write
from tests.log.test_time_search import lying_batch


def followed(
    steps: Steps, between: Callable[[], None] = lambda: None
) -> tuple[TimedOffset | None, int]:
    """What is found as by a broker, and how often a worker reads before. `between` is called where
    others have a turn."""
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


def test_a_walk_over_many_headers_is_touched_piece_by_piece() -> None:
    """Headers that lead on: 64 KiB of them at a time."""
    disk = paged_disk()
    log = open_log(disk, LogConfig())
    for _ in range(1200):
        log.append_as_leader(timed_batch([NOW] * 10), leader_epoch=0, now_ms=NOW)
    log.append_as_leader(timed_batch([NOW + 1]), leader_epoch=0, now_ms=NOW)
    flush(log)
    assert 128 * 1024 < log.size_bytes < 192 * 1024
    disk.evict()

    found, touched = followed(log.steps_to_timestamp(NOW + 1))
    assert found == (12_000, NOW + 1, 0)
    assert touched == 4  # the way there, and the three pieces
    assert disk.waits_of(HERE) == []


def test_a_batch_that_is_searched_at_once_is_in_memory() -> None:
    """The headers are; records behind them, up to what is short, may not be."""
    disk = paged_disk()
    log = open_log(disk, LogConfig())
    for step in range(3):
        log.append_as_leader(timed_batch([NOW + step] * 200), leader_epoch=0, now_ms=NOW)
    flush(log)
    segment = log.segments[0]
    second = segment.locate(200)[0]
    disk.evict()
    for position, _ in segment.headers(read_bytes=61):
        assert position in range(2 * second + 1)
    disk.waited.clear()

    assert followed(log.steps_to_timestamp(NOW + 1))[0] == (200, NOW + 1, 0)
    assert disk.waits_of(HERE) == []


def test_a_search_of_what_was_just_written_needs_no_worker() -> None:
    disk = paged_disk()
    log, written = write(disk, random.Random(1), SMALL)
    for _, time in written:
        assert followed(log.steps_to_timestamp(time))[1] == 0


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
