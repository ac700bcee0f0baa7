"""The retention rule: each row is a log and what goes."""

from dataclasses import dataclass

import pytest

from ottla.broker.log.retention import Reason, doomed_segments
from ottla.config.types import LogConfig

NOW = 1_000_000


@dataclass(slots=True)
class Facts:
    base_offset: int
    size: int = 100
    max_timestamp: int = NOW
    last_modified: int = 0


def three(**changes: int) -> list[Facts]:
    """Offsets 0-9, 10-19 and, active, 20-29."""
    return [Facts(base, **changes) for base in (0, 10, 20)]


def reasons(
    segments: list[Facts],
    *,
    start: int = 0,
    watermark: int = 30,
    now_ms: int = NOW,
    retention_ms: int = NOW,
    retention_bytes: int = -1,
) -> list[Reason]:
    config = LogConfig(retention_ms=retention_ms, retention_bytes=retention_bytes)
    return went(segments, config, start=start, watermark=watermark, now_ms=now_ms)


def went(
    segments: list[Facts], config: LogConfig, *, start: int, watermark: int, now_ms: int = NOW
) -> list[Reason]:
    doomed = doomed_segments(
        segments,
        config=config,
        log_start_offset=start,
        high_watermark=watermark,
        log_end_offset=30,
        now_ms=now_ms,
    )
    assert [one.index for one in doomed] == list(range(len(doomed)))
    assert [one.base_offset for one in doomed] == [one.base_offset for one in segments][
        : len(doomed)
    ]
    return [one.reason for one in doomed]


def test_nothing_goes_while_all_is_young_and_small() -> None:
    assert reasons(three()) == []


@pytest.mark.parametrize(("start", "count"), [(0, 0), (9, 0), (10, 1), (15, 1), (20, 2), (30, 2)])
def test_below_the_log_start_go_whole_segments_but_never_the_last(start: int, count: int) -> None:
    assert reasons(three(), start=start) == [Reason.LOG_START] * count


@pytest.mark.parametrize(
    ("limit", "count"),
    [(-1, 0), (300, 0), (299, 0), (201, 0), (200, 1), (150, 1), (100, 2), (1, 2), (0, 3)],
)
def test_by_size_goes_what_leaves_retention_bytes(limit: int, count: int) -> None:
    assert reasons(three(), retention_bytes=limit) == [Reason.SIZE] * count


def test_by_time_the_first_young_segment_stops_the_rest() -> None:
    segments = three()
    segments[0].max_timestamp = segments[2].max_timestamp = 0

    assert reasons(segments, retention_ms=1000) == [Reason.TIME]


def test_exactly_retention_ms_old_stays() -> None:
    assert reasons(three(max_timestamp=NOW - 1000), retention_ms=1000) == []
    assert reasons(three(max_timestamp=NOW - 1001), retention_ms=1000) == [Reason.TIME] * 3


def test_the_active_segment_goes_too_when_it_is_old() -> None:
    assert reasons(three(max_timestamp=0), retention_ms=1) == [Reason.TIME] * 3


def test_an_empty_last_segment_stays() -> None:
    segments = three(max_timestamp=0)
    segments[2].size = 0

    assert reasons(segments, retention_ms=1) == [Reason.TIME] * 2


@pytest.mark.parametrize(("watermark", "count"), [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3)])
def test_nothing_above_the_high_watermark_goes(watermark: int, count: int) -> None:
    segments = three(max_timestamp=0)

    assert reasons(segments, watermark=watermark, retention_ms=1) == [Reason.TIME] * count
    assert len(reasons(three(), watermark=watermark, retention_bytes=0)) == count
    assert len(reasons(three(), watermark=watermark, start=30)) == min(count, 2)


def test_without_delete_only_the_log_start_counts() -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=1, retention_bytes=0)

    assert went(three(max_timestamp=0), config, start=10, watermark=30) == [Reason.LOG_START]


def test_compact_and_delete_obeys_both() -> None:
    policy = frozenset({"compact", "delete"})
    config = LogConfig(cleanup_policy=policy, retention_ms=1)

    assert went(three(max_timestamp=0), config, start=0, watermark=30) == [Reason.TIME] * 3


def test_unlimited_time_keeps_everything() -> None:
    assert reasons(three(max_timestamp=0), retention_ms=-1) == []


def test_a_segment_without_timestamps_is_aged_by_its_file() -> None:
    assert reasons(three(max_timestamp=-1, last_modified=NOW), retention_ms=1) == []
    assert reasons(three(max_timestamp=-1), retention_ms=1) == [Reason.TIME] * 3


def test_records_from_the_future_and_a_clock_set_back_delete_nothing() -> None:
    assert reasons(three(max_timestamp=NOW * 2), retention_ms=1) == []
    assert reasons(three(), now_ms=0, retention_ms=1) == []


def test_reasons_mix_from_the_oldest_on() -> None:
    segments = three()
    segments[1].max_timestamp = 0

    assert reasons(segments, start=10, retention_ms=1000, retention_bytes=100) == [
        Reason.LOG_START,
        Reason.SIZE,
    ]
    assert reasons(segments, start=10, retention_ms=1000) == [Reason.LOG_START, Reason.TIME]


class Asked:
    """A segment that counts who asks for its time, which a real one may have to read."""

    size = 100
    last_modified = 0

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.times_asked = 0

    @property
    def max_timestamp(self) -> int:
        self.times_asked += 1
        return 0


def test_behind_as_many_as_may_go_no_segment_is_looked_at() -> None:
    """Thousands go a few at a time: each step must not look at all of them."""
    segments = [Asked(10 * number) for number in range(100)]
    doomed = doomed_segments(
        segments,
        config=LogConfig(retention_ms=NOW // 2),
        log_start_offset=0,
        high_watermark=1000,
        log_end_offset=1000,
        now_ms=NOW,
        at_most=4,
    )
    assert [one.index for one in doomed] == [0, 1, 2, 3]
    assert sum(one.times_asked for one in segments) == 4


def test_no_segments_no_work() -> None:
    assert reasons([]) == []


def test_only_those_are_asked_for_their_time_that_may_go_by_it() -> None:
    asked: list[int] = []

    def newest(facts: Facts) -> int:
        asked.append(facts.base_offset)
        return facts.max_timestamp

    segments = three(max_timestamp=0)
    segments[1].max_timestamp = NOW
    doomed = doomed_segments(
        segments,
        config=LogConfig(retention_ms=1, retention_bytes=200),
        log_start_offset=0,
        high_watermark=30,
        log_end_offset=30,
        now_ms=NOW,
        newest=newest,
    )
    assert [one.reason for one in doomed] == [Reason.SIZE]
    assert asked == [10]
