"""Look-ups by time in steps: what they find while the log changes, and how much a step does."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.broker.log import time_search
from ottla.broker.log.log import Log
from ottla.broker.log.time_search import (
    HEADERS_PER_STEP,
    SHORT_BYTES,
    BatchSearch,
    Steps,
    TimedOffset,
)
from ottla.config.types import LogConfig
from ottla.protocol.records.batch import write_crc
from tests.log.logs import (
    NOW,
    SMALL,
    first_at_time,
    flush,
    new_disk,
    open_log,
    run_all,
    timed_batch,
)

MAX_TIMESTAMP_POSITION = 35
FAR = NOW + 1_000_000


def lying_batch(times: list[int], claimed: int = FAR) -> memoryview:
    """A compressed batch whose header claims a time that no record has: nobody looks inside."""
    batch = timed_batch(times, codec=4)
    struct.pack_into(">q", batch, MAX_TIMESTAMP_POSITION, claimed)
    write_crc(batch)
    return batch


def append(log: Log, batch: memoryview) -> None:
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW)


def counted(
    steps: Steps, between: Callable[[object], None] = lambda _: None
) -> tuple[TimedOffset | None, int, int]:
    """What is found, and how many turns and searches that took. `between` is told the search that
    others had a turn behind."""
    turns = searches = 0
    found: TimedOffset | None = None
    while True:
        try:
            search = steps.send(found)
        except StopIteration as done:
            return done.value, turns, searches
        if search is None:
            turns += 1
            between(search)
            found = None
            continue
        found = search.run_apart(lambda: None)
        searches += isinstance(search, BatchSearch)
        between(search)


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(
        st.tuples(
            st.lists(st.integers(0, 60), min_size=1, max_size=4),
            st.sampled_from(["plain", "compressed", "lying"]),
        ),
        min_size=1,
        max_size=30,
    ),
    start=st.integers(0, 12),
    probe=st.integers(-2, 62),
    per_step=st.integers(1, 4),
    changes=st.lists(st.sampled_from(["", "append", "trim", "retire", "close"]), max_size=30),
)
@example(batches=[([0], "plain")] * 15, start=5, probe=0, per_step=1, changes=["retire"])
def test_what_is_found_was_there_while_it_was_looked_for(
    batches: list[tuple[list[int], str]], start: int, probe: int, per_step: int, changes: list[str]
) -> None:
    """The first match of all records is told if nothing changes; what comes meanwhile lies behind
    it; what goes meanwhile is looked for no further than it had been there."""
    log = open_log(new_disk(), SMALL)
    records: list[tuple[int, int]] = []

    def add(times: list[int], kind: str) -> None:
        stamps = [NOW + one for one in times]
        base = log.log_end_offset
        append(
            log,
            lying_batch(stamps)
            if kind == "lying"
            else timed_batch(stamps, codec=4 if kind == "compressed" else 0),
        )
        records.extend((base + index, one) for index, one in enumerate(stamps))

    for times, kind in batches:
        add(times, kind)
    flush(log)
    log.delete_records(min(start, log.high_watermark))

    def first() -> TimedOffset | None:
        kept = [(o, t, 0) for o, t in records if o >= log.log_start_offset]
        return next((one for one in kept if one[1] >= NOW + probe), None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_search, "HEADERS_PER_STEP", per_step)
        answers = {first()}

        def change(_: object) -> None:
            match changes.pop() if changes else "":
                case "append":
                    add([50], "plain")
                    flush(log)
                case "trim":
                    log.delete_records(min(log.log_start_offset + 3, log.high_watermark))
                case "retire":
                    log.delete_records(min(log.log_start_offset + 9, log.high_watermark))
                    log.delete_old_segments(NOW)
                    answers.add(first())
                case "close":
                    for segment in log.segments:
                        segment.release()
            answers.add(first())

        while True:  # as `replication/time_steps.py` does
            begun_at = log.log_start_offset
            try:
                found, _, _ = counted(log.steps_to_timestamp(NOW + probe), change)
            except FileNotFoundError:  # its segment went meanwhile
                assert log.log_start_offset > begun_at
            else:
                break

    assert found in answers


@pytest.mark.parametrize("start", [0, 3])
def test_headers_that_lie_cost_a_search_each_and_nothing_twice(start: int) -> None:
    """Over many segments: each batch is searched once, though the look-up begins anew behind it."""
    log = open_log(new_disk(), SMALL)
    for step in range(100):
        append(log, lying_batch([NOW + step, NOW + step]))
    append(log, timed_batch([FAR]))
    flush(log)
    log.delete_records(start)

    assert len(log.segments) > 5
    found, turns, searches = counted(log.steps_to_timestamp(NOW + 500))
    assert found == (200, FAR, 0)
    assert searches == 101 - start // 2
    assert turns <= 2 * len(log.segments)
    assert first_at_time(log, NOW + 500) == (200, FAR, 0)


def test_what_comes_behind_a_segments_last_batch_is_not_passed_over() -> None:
    log = open_log(new_disk(), SMALL)
    for step in range(3):
        append(log, lying_batch([NOW + step]))
    flush(log)
    searches = itertools.count(1)

    def append_at_the_last(search: object) -> None:
        if isinstance(search, BatchSearch) and next(searches) == 3:
            while len(log.segments) < 3:
                append(log, timed_batch([FAR]))

    found, _, _ = counted(log.steps_to_timestamp(NOW + 500), append_at_the_last)
    assert found == (3, FAR, 0)


def test_what_lies_behind_a_segment_that_goes_is_not_passed_over() -> None:
    log = open_log(new_disk(), replace(SMALL, retention_ms=-1))
    lies = 0
    while len(log.segments) < 2:
        append(log, lying_batch([NOW]))
        lies += 1
    while len(log.segments) < 4:
        append(log, timed_batch([FAR]))
    flush(log)
    searches = itertools.count(1)

    def delete_at_the_last(search: object) -> None:
        if (
            isinstance(search, BatchSearch) and next(searches) == lies - 1
        ):  # the last one began a segment
            log.delete_records(log.segments[1].base_offset)
            assert len(log.delete_old_segments(NOW)) == 1

    found, _, _ = counted(log.steps_to_timestamp(NOW + 500), delete_at_the_last)
    assert found == (lies, FAR, 0)


def test_many_headers_before_the_one_are_looked_at_in_many_steps() -> None:
    """The time index has no entry for batches that are no later than what was before."""
    log = open_log(new_disk(), LogConfig())
    for _ in range(10 * HEADERS_PER_STEP):
        append(log, timed_batch([NOW]))
    append(log, timed_batch([NOW + 1]))
    flush(log)

    found, turns, searches = counted(log.steps_to_timestamp(NOW + 1))
    assert found == (10 * HEADERS_PER_STEP, NOW + 1, 0)
    assert turns >= 10
    assert searches == 1


def test_after_a_start_the_indexes_are_opened_one_in_a_step() -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    for step in range(60):
        append(log, timed_batch([NOW + step]))
    flush(log)
    log.close()
    log = open_log(disk, SMALL, recovery_point=60, high_watermark=60)

    cold = sum(not segment.is_loaded for segment in log.segments)
    assert cold > 3
    assert counted(log.steps_to_timestamp(NOW + 59)) == ((59, NOW + 59, 0), cold, 1)
    assert counted(log.steps_to_timestamp(NOW + 59)) == ((59, NOW + 59, 0), 0, 1)


def test_the_greatest_below_the_log_start_does_not_count() -> None:
    log = open_log(new_disk(), LogConfig())
    for times in ([90, 10], [20, 30, 25], [30]):
        append(log, timed_batch([NOW + one for one in times], codec=4))
    flush(log)
    log.delete_records(1)

    assert counted(log.steps_to_max_timestamp())[0] == (3, NOW + 30, 0)
    assert run_all(log.steps_to_max_timestamp()) == (3, NOW + 30, 0)


def test_only_what_is_small_and_plain_is_short() -> None:
    log = open_log(new_disk(), LogConfig())

    def search_of(batch: memoryview) -> BatchSearch:
        timestamp = NOW + log.log_end_offset
        append(log, batch)
        flush(log)
        steps = log.steps_to_timestamp(timestamp)
        while not isinstance(search := next(steps), BatchSearch):
            pass
        return search

    assert search_of(timed_batch([NOW])).is_short
    assert not search_of(timed_batch([NOW + 1], codec=4)).is_short
    assert not search_of(timed_batch([NOW + 2] * SHORT_BYTES)).is_short
