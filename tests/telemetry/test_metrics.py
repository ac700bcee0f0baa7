"""The metrics page, read as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.broker.telemetry.lag import INTERVAL_SECONDS, LoopLag
from ottla.broker.telemetry.metrics import Histogram, Registry


def page(registry: Registry) -> list[str]:
    return list(registry.lines())


def test_counters_and_gauges_by_labels() -> None:
    registry = Registry()
    produce = registry.counter("requests_total", "Requests answered.", api="Produce")
    registry.counter("requests_total", "Requests answered.", api="Fetch").value += 2
    registry.gauge("waiters", "Parked fetches.").value = 1.5
    produce.value += 1

    assert produce is registry.counter("requests_total", "", api="Produce")
    assert page(registry) == [
        "# HELP requests_total Requests answered.",
        "# TYPE requests_total counter",
        'requests_total{api="Produce"} 1',
        'requests_total{api="Fetch"} 2',
        "# HELP waiters Parked fetches.",
        "# TYPE waiters gauge",
        "waiters 1.5",
    ]


def test_a_histogram_counts_up_and_takes_its_bounds_in() -> None:
    registry = Registry()
    sync = registry.histogram("sync_seconds", "Syncs.", (0.001, 1.0), dir="/d")
    for seconds in (0.0005, 0.001, 0.5, 7.0):
        sync.observe(seconds)

    assert sync.count == 4
    assert page(registry)[2:] == [
        'sync_seconds_bucket{dir="/d",le="0.001"} 2',
        'sync_seconds_bucket{dir="/d",le="1"} 3',
        'sync_seconds_bucket{dir="/d",le="+Inf"} 4',
        'sync_seconds_sum{dir="/d"} 7.5015',
        'sync_seconds_count{dir="/d"} 4',
    ]


def test_watched_values_are_read_when_the_page_is() -> None:
    registry = Registry()
    ends = {"a": 1}
    registry.watch("log_end", "Ends.", lambda: (({"topic": t}, e) for t, e in ends.items()))
    registry.watch("lost_total", "Lost.", lambda: len(ends), kind="counter")
    registry.watch_histograms(
        "request_seconds", "Times.", (1.0,), lambda: [({"api": "Fetch"}, [1, 2], 3.25)]
    )
    ends["b"] = 2

    assert [line for line in page(registry) if not line.startswith("#")] == [
        'log_end{topic="a"} 1',
        'log_end{topic="b"} 2',
        "lost_total 2",
        'request_seconds_bucket{api="Fetch",le="1"} 1',
        'request_seconds_bucket{api="Fetch",le="+Inf"} 3',
        'request_seconds_sum{api="Fetch"} 3.25',
        'request_seconds_count{api="Fetch"} 3',
    ]


def test_odd_texts_and_numbers_are_escaped() -> None:
    registry = Registry()
    registry.gauge("g", "back\\slash\nline", name='a"b\\c\nd').value = float("inf")
    registry.gauge("h", "").value = float("nan")

    assert page(registry) == [
        r"# HELP g back\\slash\nline",
        "# TYPE g gauge",
        r'g{name="a\"b\\c\nd"} +Inf',
        "# HELP h ",
        "# TYPE h gauge",
        "h NaN",
    ]


def test_one_name_has_one_kind() -> None:
    registry = Registry()
    registry.gauge("a", "")

    with pytest.raises(AssertionError):
        registry.histogram("a", "")
    with pytest.raises(AssertionError):
        registry.counter("not_a_counter_name", "")
    with pytest.raises(AssertionError):
        Histogram((2.0, 1.0))


class Timers:
    """A loop that is late by what the test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], object], /) -> Timers:
        self.due.append((when, callback))
        return self

    def cancel(self) -> None:
        self.due.clear()

    def run_late_by(self, seconds: float) -> None:
        when, callback = self.due.pop()
        self.now = when + seconds
        callback()


def test_the_lag_of_a_loop_is_how_late_its_timers_run() -> None:
    timers = Timers()
    lag = LoopLag(timers)
    lag.start()

    for seconds in (0.0, 0.3, 0.02):
        timers.run_late_by(seconds)

    assert lag.histogram.count == 3
    assert lag.histogram.sum == pytest.approx(0.32)
    assert lag.take_worst() == pytest.approx(0.3)
    assert lag.take_worst() == 0.0
    assert timers.due[0][0] == pytest.approx(timers.now + INTERVAL_SECONDS)
    lag.stop()
    assert timers.due == []
