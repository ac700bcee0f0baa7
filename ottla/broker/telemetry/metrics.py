"""Counters, gauges and histograms, written out in Prometheus' text format (version 0.0.4).

Everything runs on one event loop, so nothing here locks: counting is adding to an attribute
(`counter.value += n`). Values that somebody keeps anyway are not counted twice but read when the
page is asked for (`watch`, `watch_histograms`). Label texts are made once, at registration.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

Labels = Mapping[str, str]
Sample = tuple[Labels, float]
HistogramSample = tuple[Labels, list[int], float]
"""Labels, the count of each bucket (one more than the bounds), and the sum of what was observed."""

PAUSE = ""
"""In place of a line: what comes next takes long, and whoever makes the page should give way."""

SECONDS: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    1.0,
    5.0,
)
"""Bounds for times: a loopback request takes 0.1 ms, a sync on a bad disk seconds."""

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)


class Counter:
    """Only grows: `counter.value += 1`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def render(self, name: str, labels: str) -> Iterator[str]:
        yield f"{name}{_braced(labels)} {_number(self.value)}"


class Gauge(Counter):
    """Goes up and down: `gauge.value = 3`."""

    __slots__ = ()


class Histogram:
    """Counts observations by size; a value equal to a bound belongs below it."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        assert list(bounds) == sorted(set(bounds)), "bounds must ascend"
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def render(self, name: str, labels: str) -> Iterator[str]:
        return _render_buckets(name, labels, self.bounds, self.counts, self.sum)


@dataclass(slots=True)
class _Family:
    """All samples of one name: those counted here by label text, those read from elsewhere."""

    kind: str
    help: str
    metrics: dict[str, Counter | Histogram] = field(default_factory=dict)
    readers: list[Callable[[str], Iterator[str]]] = field(default_factory=list)


class Registry:
    """The metrics of one broker. Names carry their unit; counters end in _total."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def counter(self, name: str, help: str, /, **labels: str) -> Counter:
        """The counter of these labels; asking again gives the same one."""
        assert name.endswith("_total"), name
        metric = self._metric("counter", name, help, labels, Counter)
        assert isinstance(metric, Counter)
        return metric

    def gauge(self, name: str, help: str, /, **labels: str) -> Gauge:
        metric = self._metric("gauge", name, help, labels, Gauge)
        assert isinstance(metric, Gauge)
        return metric

    def histogram(
        self, name: str, help: str, bounds: tuple[float, ...] = SECONDS, /, **labels: str
    ) -> Histogram:
        metric = self._metric("histogram", name, help, labels, lambda: Histogram(bounds))
        assert isinstance(metric, Histogram)
        return metric

    def watch(
        self,
        name: str,
        help: str,
        read: Callable[[], float | Iterable[Sample | None]],
        *,
        kind: str = "gauge",
    ) -> None:
        """Shows what `read` returns when the page is asked for: one value, or values by labels. One
        that has much to go through gives None from time to time, and may be gone on with later."""
        assert kind in ("gauge", "counter"), kind

        def render(name: str) -> Iterator[str]:
            value = read()
            if isinstance(value, int | float):
                yield f"{name} {_number(value)}"
                return
            for sample in value:
                if sample is None:
                    yield PAUSE
                    continue
                labels, one = sample
                yield f"{name}{_braced(_label_text(labels))} {_number(one)}"

        self._family(kind, name, help).readers.append(render)

    def watch_histograms(
        self,
        name: str,
        help: str,
        bounds: tuple[float, ...],
        read: Callable[[], Iterable[HistogramSample]],
    ) -> None:
        """Shows histograms that somebody else fills."""

        def render(name: str) -> Iterator[str]:
            for labels, counts, total in read():
                yield from _render_buckets(name, _label_text(labels), bounds, counts, total)

        self._family("histogram", name, help).readers.append(render)

    def lines(self) -> Iterator[str]:
        """The page, line by line and without line ends; lazily, for it can be long. `PAUSE` stands
        between lines and is none."""
        for name, family in self._families.items():
            yield f"# HELP {name} {_escaped_help(family.help)}"
            yield f"# TYPE {name} {family.kind}"
            for labels, metric in family.metrics.items():
                yield from metric.render(name, labels)
            for reader in family.readers:
                yield from reader(name)

    def _metric(
        self,
        kind: str,
        name: str,
        help: str,
        labels: Labels,
        make: Callable[[], Counter | Histogram],
    ) -> Counter | Histogram:
        metrics = self._family(kind, name, help).metrics
        text = _label_text(labels)
        if text not in metrics:
            metrics[text] = make()
        return metrics[text]

    def _family(self, kind: str, name: str, help: str) -> _Family:
        assert _NAME.fullmatch(name), name
        family = self._families.setdefault(name, _Family(kind, help))
        assert family.kind == kind, f"{name} is a {family.kind}"
        return family


def _render_buckets(
    name: str, labels: str, bounds: tuple[float, ...], counts: list[int], total: float
) -> Iterator[str]:
    assert len(counts) == len(bounds) + 1
    seen = 0
    comma = "," if labels else ""
    for bound, count in zip(bounds, counts, strict=False):
        seen += count
        yield f'{name}_bucket{{{labels}{comma}le="{_number(bound)}"}} {seen}'
    seen += counts[-1]
    yield f'{name}_bucket{{{labels}{comma}le="+Inf"}} {seen}'
    yield f"{name}_sum{_braced(labels)} {_number(total)}"
    yield f"{name}_count{_braced(labels)} {seen}"


def _label_text(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped_label(value)}"' for name, value in labels.items())


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _escaped_label(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _escaped_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
