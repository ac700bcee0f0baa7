"""Replicas are spread over brokers and racks, as Kafka's striped placer does."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.controller.brokers import cordon
from ottla.broker.controller.placement import place
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.controller.clusters import applied, cluster, directory


def test_leaders_take_turns() -> None:
    replicas = place(
        cluster(1, 2, 3), partition_count=9, replication_factor=2, rng=random.Random(1)
    )

    assert Counter(one[0] for one in replicas) == {1: 3, 2: 3, 3: 3}
    assert all(len(set(one)) == 2 for one in replicas)


def test_a_broker_whose_directories_are_all_cordoned_gets_nothing() -> None:
    image = cluster(1, 2, 3)
    records, _ = cordon(image, 2, [directory(2)])

    replicas = place(
        applied(records, image), partition_count=6, replication_factor=2, rng=random.Random(1)
    )

    assert {broker for one in replicas for broker in one} == {1, 3}


def test_replicas_lie_in_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    image = cluster(1, 2, 3, 4, 5, 6, racks=racks)

    replicas = place(image, partition_count=12, replication_factor=3, rng=random.Random(3))

    assert all(len({racks[broker] for broker in one}) == 3 for one in replicas)


def test_a_fenced_broker_takes_copies_but_does_not_lead() -> None:
    image = cluster(1, 2, 3, fenced=(2,))

    replicas = place(image, partition_count=6, replication_factor=3, rng=random.Random(1))

    assert all(one[0] != 2 and 2 in one for one in replicas)


@pytest.mark.parametrize(
    ("factor", "fenced", "reason"),
    [
        (4, (), "cannot be reached because only 3 broker"),
        (1, (1, 2, 3), "have all their log directories cordoned"),
        (0, (), "the replication factor must be positive."),
    ],
)
def test_what_cannot_be_placed(factor: int, fenced: tuple[int, ...], reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as refused:
        place(
            cluster(1, 2, 3, fenced=fenced),
            partition_count=1,
            replication_factor=factor,
            rng=random.Random(1),
        )

    assert refused.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_partition_has_its_replicas_and_a_leader_in_service(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    ids = tuple(range(1, count + 1))
    fenced = tuple(data.draw(st.sets(st.sampled_from(ids), max_size=count - 1)))
    racks = {broker: data.draw(st.sampled_from("abc")) for broker in ids}
    factor = data.draw(st.integers(1, count))

    replicas = place(
        cluster(*ids, fenced=fenced, racks=racks),
        partition_count=7,
        replication_factor=factor,
        rng=random.Random(data.draw(st.integers(0, 99))),
    )

    for one in replicas:
        assert len(one) == factor == len(set(one))
        assert one[0] not in fenced
