"""A few seeds of the simulation with both protocols, and bugs planted to see that it finds them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from ottla.broker.coordinator.group import migration
from ottla.broker.coordinator.group.consumer import ConsumerGroup
from tests.coordinator import mixed_simulation

SEEDS = 25
SEEDS_WITH_A_BUG = 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_invariant_breaks(seed: int) -> None:
    mixed_simulation.run_seed(seed)


def test_groups_turn_into_each_other_and_back() -> None:
    told: Counter[str] = Counter()
    for seed in range(10):
        told.update(one.event for one in mixed_simulation.run_seed(seed).lone.told)

    assert told["group_upgraded"] > 3
    assert told["group_downgraded"] > 3
    assert told["group_generation"] > 3


def _run_seeds() -> None:
    for seed in range(SEEDS_WITH_A_BUG):
        mixed_simulation.run_seed(seed)


def test_partitions_given_before_they_are_free_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerGroup, "owner_of", lambda *_: None)

    with pytest.raises(AssertionError, match="G1"):
        _run_seeds()


def test_an_upgrade_that_forgets_who_has_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take_over = migration._take_over

    def forget(topics: object, classic: object, member: object, group: ConsumerGroup) -> None:
        take_over(topics, classic, member, group)  # type: ignore[arg-type]
        for one in list(group.members.values()):
            group.put_member(replace(one, assigned={}))

    monkeypatch.setattr(migration, "_take_over", forget)

    with pytest.raises(AssertionError, match="G1"):
        _run_seeds()
