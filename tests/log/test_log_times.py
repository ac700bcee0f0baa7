"""Look-ups by time against a walk over all records, with times that run in any direction."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from ottla.broker.log.log import Log
from ottla.config.types import LogConfig
from ottla.testing.disk import SimDisk
from tests.log.logs import (
    DIRECTORY,
    NOW,
    first_at_time,
    flush,
    new_disk,
    open_log,
    run_all,
    timed_batch,
)

CONFIG = LogConfig(segment_bytes=2000, segment_index_bytes=480, index_interval_bytes=150)

Times = list[tuple[int, int]]


def drawn_times(rng: random.Random, clock: int) -> list[int]:
    """One to four record times: ahead, behind, equal to what was before, or none at all."""
    match rng.randrange(6):
        case 0:
            start = clock + rng.randrange(1000)
        case 1:
            start = clock - rng.randrange(1000)
        case 2:
            start = NOW
        case 3:
            return [-1] * rng.randrange(1, 3)
        case _:
            start = clock
    return [start + rng.randrange(-20, 20) for _ in range(rng.randrange(1, 5))]


def write(disk: SimDisk, rng: random.Random, config: LogConfig) -> tuple[Log, Times]:
    log = open_log(disk, config)
    written: Times = []
    clock = NOW
    for _ in range(rng.randrange(20, 90)):
        times = drawn_times(rng, clock)
        records = timed_batch(times)
        base = log.append_as_leader(records, leader_epoch=0, now_ms=NOW).base_offset
        written += [(base + index, time) for index, time in enumerate(times)]
        clock += rng.randrange(100)
        if rng.randrange(8) == 0:
            flush(log)
    flush(log)
    return log, written


def check(log: Log, written: Times) -> None:
    """Every time that there is, and its neighbours: the first record at or after it."""
    kept = [one for one in written if one[0] >= log.log_start_offset]
    for wanted in sorted({time + delta for _, time in kept for delta in (-1, 0, 1)}):
        expected = next(((o, t, 0) for o, t in kept if t >= wanted), None)
        if wanted > -1:
            assert first_at_time(log, wanted) == expected, wanted
    greatest = max((time for _, time in kept), default=-1)
    expected = next(((o, t, 0) for o, t in kept if t == greatest), None)
    assert run_all(log.steps_to_max_timestamp()) == expected


@pytest.mark.parametrize("seed", range(25))
def test_times_in_any_order_are_found(seed: int) -> None:
    """While it is written, after a clean stop, a crash, a lost index, a cut, deleted records."""
    rng = random.Random(seed)
    disk = new_disk()
    config = replace(CONFIG, index_interval_bytes=rng.choice((0, 150, 1000)))
    log, written = write(disk, rng, config)
    check(log, written)

    log.close()
    log = open_log(disk, config, high_watermark=1 << 40)
    check(log, written)

    log = open_log(disk, config, clean=False, high_watermark=1 << 40)
    check(log, written)

    log.close()
    for name in disk.list(DIRECTORY):
        if name.endswith(("index",)) and rng.randrange(2):
            if rng.randrange(2):
                disk.remove(f"{DIRECTORY}/{name}")
            else:
                disk.corrupt(f"{DIRECTORY}/{name}", 0, rng.randbytes(rng.randrange(1, 30)))
    log = open_log(disk, config, high_watermark=1 << 40)
    check(log, written)

    log.delete_records(rng.randrange(log.log_end_offset // 2))
    check(log, written)

    log.truncate_to(rng.randrange(log.log_start_offset, log.log_end_offset))
    check(log, [one for one in written if one[0] < log.log_end_offset])


@pytest.mark.parametrize("call", ["pread", "open", "size", "truncate", "pwrite"])
def test_an_index_that_could_not_be_made_anew_is_made_by_the_next_look(call: str) -> None:
    """A disk that fails for a moment must not leave half an index that is believed."""
    failed = 0
    for passing in range(12):
        disk = new_disk()
        log, written = write(disk, random.Random(5), CONFIG)
        sizes = [segment.size for segment in log.segments]
        log.close()
        for segment in log.segments:
            disk.remove(f"{DIRECTORY}/{segment.base_offset:020d}.timeindex")
        log = open_log(disk, CONFIG, recovery_point=log.log_end_offset)
        disk.inject(call, errno.EIO, path=DIRECTORY, passing=passing)
        try:
            check(log, written)
        except OSError:
            failed += 1
        assert [segment.size for segment in log.segments] == sizes
        check(log, written)

    assert failed
