"""What a piece of work is, and when its figures reach their aims.

Aims are ratios of Ottla to Apache Kafka in the same run. An aim on a median figure is judged by
the medians of all rounds. An aim on a p99 is judged round by round, since one unlucky round says
little: it is reached when at least 4 of 5 rounds reach it. A limit is absolute, for figures that
are ratios or bounds in themselves.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.peers.servers import Server

TAIL_ROUNDS_SHARE = 0.8

Figures = dict[str, float]


@dataclass(frozen=True)
class Aim:
    """At least (`more`) or at most so many times Kafka's figure."""

    ratio: float
    more: bool
    tail: bool = False

    def __str__(self) -> str:
        return f"{'>=' if self.more else '<='} {self.ratio:g}x"

    def reached_by(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.more else ratio <= self.ratio

    def met(self, ours: Sequence[float], theirs: Sequence[float]) -> bool:
        """Judges the figures of all rounds, given in the order of the rounds."""
        if not self.tail:
            return self.reached_by(statistics.median(ours) / statistics.median(theirs))
        rounds = [self.reached_by(our / their) for our, their in zip(ours, theirs, strict=True)]
        return sum(rounds) >= TAIL_ROUNDS_SHARE * len(rounds)


def at_least(ratio: float) -> Aim:
    return Aim(ratio, more=True)


def at_most(ratio: float, *, tail: bool = False) -> Aim:
    return Aim(ratio, more=False, tail=tail)


@dataclass(frozen=True)
class Limit:
    """An absolute bound on Ottla's own median."""

    most: float

    def __str__(self) -> str:
        return f"<= {self.most:g}"

    def met(self, ours: Sequence[float], _theirs: Sequence[float]) -> bool:
        return statistics.median(ours) <= self.most


@dataclass(frozen=True)
class Work:
    """One workload. `run(server, scale)` returns a figure for each name in `figures`.

    A figure without an aim is shown for information. A round has `turns` of each server, one of
    each after the other, and means of them for figures: where the slowest hundredth of a turn is
    few requests, or the disk has slow seconds, so that both brokers have their share of those.
    """

    name: str
    title: str
    run: Callable[[Server, float], Figures]
    figures: dict[str, Aim | Limit | None]
    turns: int = 1

    def means(self, turns: Sequence[Figures]) -> Figures:
        """What a round of these turns says, of which there is at least one."""
        return {name: statistics.fmean(turn[name] for turn in turns) for name in self.figures}
