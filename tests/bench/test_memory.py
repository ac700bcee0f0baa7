"""Memory is judged after the load that its aim is meant for, and after nothing less."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.bench.memory import AIM, FIGURE, NAME, STANDARD, memory_work
from tests.bench.report import Results, table
from tests.bench.workload import Work
from tests.peers.servers import ApacheKafka, Ottla

SERVERS = (ApacheKafka.name, Ottla.name)


def _after(works: Sequence[Work], servers: Sequence[str] = SERVERS) -> Results:
    """A run whose memory misses the aim."""
    results = Results()
    for server in servers:
        for work in works:
            for figure in work.figures:
                results.add(work.name, figure, server, 1.0)
        results.add(NAME, FIGURE, server, 100.0)
    return results


def test_the_whole_load_is_judged() -> None:
    results = _after(STANDARD)
    work = memory_work(results, 1.0)
    table(work, results)

    assert work.figures == {FIGURE: AIM}
    assert results.missed == [f"{NAME}: {FIGURE}"]


@pytest.mark.parametrize("left_out", STANDARD, ids=lambda work: work.name)
def test_less_of_it_is_shown_without_an_aim(left_out: Work) -> None:
    results = _after([work for work in STANDARD if work is not left_out])
    work = memory_work(results, 1.0)
    table(work, results)

    assert work.figures == {FIGURE: None}
    assert results.missed == []


def test_a_small_load_and_one_that_failed_are_less() -> None:
    failed = _after(STANDARD)
    failed.figures.pop((STANDARD[0].name, next(iter(STANDARD[0].figures)), Ottla.name))

    assert memory_work(_after(STANDARD), 0.5).figures == {FIGURE: None}
    assert memory_work(failed, 1.0).figures == {FIGURE: None}
