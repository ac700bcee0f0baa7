"""The assignor of share groups: even, complete, and as it was where that is even."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.coordinator.group.assignors.simple import assign_simply
from ottla.broker.coordinator.group.modern import Assignment
from ottla.broker.coordinator.group.targets import GroupSpec, MemberSpec

A, B = b"a" * 16, b"b" * 16
COUNTS = st.fixed_dictionaries({A: st.integers(0, 8), B: st.integers(0, 3)})
SUBSCRIPTIONS = st.lists(st.sampled_from(((A,), (B,), (A, B))), min_size=1, max_size=9)
Subscriptions = list[tuple[bytes, ...]]


def _spec(
    counts: Mapping[bytes, int],
    subscriptions: Subscriptions,
    had: Mapping[str, Assignment] | None = None,
) -> GroupSpec:
    members = {
        f"m{index}": MemberSpec(frozenset(topics), (had or {}).get(f"m{index}", {}))
        for index, topics in enumerate(subscriptions)
    }
    return GroupSpec(members, {topic_id: range(count) for topic_id, count in counts.items()})


@given(counts=COUNTS, subscriptions=SUBSCRIPTIONS)
def test_every_partition_has_somebody_who_wants_it(
    counts: dict[bytes, int], subscriptions: Subscriptions
) -> None:
    spec = _spec(counts, subscriptions)
    assigned = assign_simply(spec)

    for member_id, topics in assigned.items():
        assert topics.keys() <= spec.members[member_id].topic_ids
    for topic_id, partitions in spec.partitions.items():
        is_wanted = any(topic_id in one.topic_ids for one in spec.members.values())
        held = {index for topics in assigned.values() for index in topics.get(topic_id, ())}
        assert held == (set(partitions) if is_wanted else set())


@given(count=st.integers(1, 12), members=st.integers(1, 12))
def test_members_and_partitions_are_even(count: int, members: int) -> None:
    assigned = assign_simply(_spec({A: count, B: 0}, [(A,)] * members))
    sizes = [len(assigned.get(f"m{index}", {}).get(A, ())) for index in range(members)]
    sharing = Counter(index for topics in assigned.values() for index in topics[A])

    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
    assert set(sharing.values()) == {-(-members // count)}


@given(count=st.integers(1, 12), members=st.integers(1, 12))
def test_nothing_moves_without_need(count: int, members: int) -> None:
    first = assign_simply(_spec({A: count, B: 0}, [(A,)] * members))

    assert assign_simply(_spec({A: count, B: 0}, [(A,)] * members, first)) == first


@given(count=st.integers(1, 12), members=st.integers(1, 12), start=st.integers(1, 12))
def test_it_is_even_whatever_was_before(count: int, members: int, start: int) -> None:
    first = assign_simply(_spec({A: count, B: 0}, [(A,)] * start))
    after = assign_simply(_spec({A: count, B: 0}, [(A,)] * members, first))
    sizes = [len(after.get(f"m{index}", {}).get(A, ())) for index in range(members)]

    assert max(sizes) - min(sizes) <= 1
    if members <= count and start <= count:
        kept = sum(
            len(parts[A] & after.get(one, {}).get(A, frozenset())) for one, parts in first.items()
        )
        most = -(-count // max(members, start))
        assert kept >= min(members, start) * (most - 1)
