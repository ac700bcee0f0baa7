"""The assignors of consumer groups: every partition has one owner, shares are even, and little
moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.coordinator.group.assignors import CONSUMER_ASSIGNORS
from ottla.broker.coordinator.group.assignors.range import assign_ranges
from ottla.broker.coordinator.group.assignors.uniform import assign_uniformly
from ottla.broker.coordinator.group.modern import Assignment
from ottla.broker.coordinator.group.targets import Assignor, GroupSpec, MemberSpec
from tests.coordinator.steps import steps_of

Counts = dict[bytes, int]


def topic(number: int) -> bytes:
    return number.to_bytes(16)


def spec_of(
    counts: Counts,
    wants: Mapping[str, frozenset[bytes]],
    has: Mapping[str, Assignment] | None = None,
) -> GroupSpec:
    known = has or {}
    return GroupSpec(
        {
            name: MemberSpec(wanted & frozenset(counts), known.get(name, {}))
            for name, wanted in wants.items()
        },
        {topic_id: range(count) for topic_id, count in counts.items()},
    )


def places(assignment: Assignment) -> set[tuple[bytes, int]]:
    return {(topic_id, index) for topic_id, indexes in assignment.items() for index in indexes}


def moved(before: Mapping[str, Assignment], after: Mapping[str, Assignment]) -> int:
    """How many partitions have another owner than they had."""
    return sum(len(places(after[name]) - places(before.get(name, {}))) for name in after)


def check_owners(spec: GroupSpec, after: Mapping[str, Assignment]) -> None:
    owned = [place for one in after.values() for place in places(one)]
    assert len(owned) == len(set(owned)), "a partition has two owners"
    wanted = set().union(*(member.topic_ids for member in spec.members.values()))
    every = {(one, index) for one in wanted for index in spec.partitions[one]}
    assert set(owned) == every
    for name, assignment in after.items():
        assert assignment.keys() <= spec.members[name].topic_ids
        assert all(assignment.values()), "no empty topics"


topic_counts = st.dictionaries(
    st.integers(1, 5).map(topic), st.integers(1, 9), min_size=1, max_size=5
)
names = st.lists(st.sampled_from("ABCDEFGH"), unique=True, min_size=1)


@st.composite
def groups(draw: st.DrawFn, *, alike: bool) -> GroupSpec:
    """A group as it may stand after an earlier assignment by whatever assignor."""
    counts: Counts = draw(topic_counts)
    members = draw(names)
    some = st.frozensets(st.sampled_from(sorted(counts)))
    if alike:
        wanted = draw(some)
        wants = dict.fromkeys(members, wanted)
    else:
        wants = {name: draw(some) for name in members}
    former: dict[str, dict[bytes, set[int]]] = {}
    for topic_id, count in counts.items():
        for index in range(count + 2):
            owner = draw(st.sampled_from([*members, "gone", None]))
            if owner is not None:
                former.setdefault(owner, {}).setdefault(topic_id, set()).add(index)
    has = {
        name: {topic_id: frozenset(indexes) for topic_id, indexes in one.items()}
        for name, one in former.items()
    }
    return spec_of(counts, wants, has)


@given(groups(alike=False))
@pytest.mark.parametrize("assign", CONSUMER_ASSIGNORS.values(), ids=CONSUMER_ASSIGNORS)
def test_every_partition_has_one_owner_who_wants_it(assign: Assignor, spec: GroupSpec) -> None:
    check_owners(spec, assign(spec))


@given(groups(alike=True))
def test_uniform_shares_differ_by_one_at_most_and_as_few_partitions_move_as_can(
    spec: GroupSpec,
) -> None:
    after = assign_uniformly(spec)

    check_owners(spec, after)
    sizes = [len(places(one)) for one in after.values()]
    assert max(sizes) - min(sizes) <= 1
    kept = sorted(
        (_valid(spec, name) for name in spec.members),
        reverse=True,
    )
    low, extra = divmod(sum(sizes), len(sizes))
    most_kept = sum(min(count, low + (place < extra)) for place, count in enumerate(kept))
    before = {name: member.assigned for name, member in spec.members.items()}
    assert sum(sizes) - moved(before, after) == most_kept


def _valid(spec: GroupSpec, name: str) -> int:
    member = spec.members[name]
    return sum(
        len(indexes & frozenset(spec.partitions[topic_id]))
        for topic_id, indexes in member.assigned.items()
        if topic_id in member.topic_ids
    )


@given(groups(alike=False))
def test_no_partition_can_move_to_make_uniform_shares_more_even(spec: GroupSpec) -> None:
    after = assign_uniformly(spec)

    for giver, assignment in after.items():
        for taker, member in spec.members.items():
            if len(places(assignment)) >= len(places(after[taker])) + 2:
                assert not assignment.keys() & member.topic_ids, (giver, taker, after)


@given(groups(alike=False))
@pytest.mark.parametrize("assign", CONSUMER_ASSIGNORS.values(), ids=CONSUMER_ASSIGNORS)
def test_what_was_assigned_once_stays(assign: Assignor, spec: GroupSpec) -> None:
    once = assign(spec)
    again = spec._replace(
        members={
            name: member._replace(assigned=once[name]) for name, member in spec.members.items()
        }
    )

    assert moved(once, assign(again)) == 0


def test_uniform_goes_by_way_of_others_where_it_must() -> None:
    one, two = topic(1), topic(2)
    wants = {"A": frozenset({one}), "B": frozenset({one, two}), "C": frozenset({two})}
    has = {"A": {one: frozenset(range(4))}, "B": {two: frozenset(range(2))}}
    after = assign_uniformly(spec_of({one: 4, two: 2}, wants, has))

    assert [len(places(after[name])) for name in "ABC"] == [2, 2, 2]


def test_a_newcomer_takes_its_share_and_nothing_else_moves() -> None:
    counts = {topic(1): 900}
    wants = {f"m{number}": frozenset(counts) for number in range(9)}
    before = assign_uniformly(spec_of(counts, wants))
    wants["new"] = frozenset(counts)
    after = assign_uniformly(spec_of(counts, wants, before))

    assert len(places(after["new"])) == 90
    assert moved(before, after) == 90


def _two_of_different_topics(size: int) -> GroupSpec:
    """One has everything, and a newcomer wants one topic more."""
    one, two = topic(1), topic(2)
    wants = {"A": frozenset({one}), "B": frozenset({one, two})}
    return spec_of({one: size, two: 1}, wants, {"A": {one: frozenset(range(size))}})


def _topics_of_one_partition(size: int) -> GroupSpec:
    counts = {topic(number): 1 for number in range(size + 1)}
    shared = frozenset(topic(number) for number in range(size))
    wants = {"A": shared, "B": frozenset(counts)}
    return spec_of(counts, wants, {"A": {one: frozenset({0}) for one in shared}})


def _others_topics_ahead(size: int) -> GroupSpec:
    """What the newcomer wants comes behind as many topics that it does not want."""
    counts = {**{topic(number): 1 for number in range(size)}, topic(size): size}
    every = frozenset(counts)
    has = {"A": {one: frozenset(range(count)) for one, count in counts.items()}}
    return spec_of(counts, {"A": every, "B": every, "C": frozenset({topic(size)})}, has)


def _by_way_of_another(size: int) -> GroupSpec:
    one, two = topic(1), topic(2)
    wants = {"A": frozenset({one}), "B": frozenset({one, two}), "C": frozenset({two})}
    has = {"A": {one: frozenset(range(2 * size))}, "B": {two: frozenset(range(size))}}
    return spec_of({one: 2 * size, two: size}, wants, has)


def _own_topics(size: int) -> GroupSpec:
    """One has all that everybody wants, and each wants a topic of its own, too."""
    common = topic(0)
    own = {f"m{number:03}": topic(number) for number in range(1, size // 4)}
    wants = {name: frozenset({common, one}) for name, one in own.items()}
    counts = {common: size, **dict.fromkeys(own.values(), 1)}
    return spec_of(counts, wants, {"m001": {common: frozenset(range(size))}})


def _rolling(members: int, size: int) -> GroupSpec:
    """A deployment: there are as many again who want one topic more."""
    one, two = topic(1), topic(2)
    former = {f"a{number:03}": frozenset({one}) for number in range(members)}
    newcomers = {f"b{number:03}": frozenset({one, two}) for number in range(members)}
    has = assign_uniformly(spec_of({one: size}, former))
    return spec_of({one: size, two: 1}, {**former, **newcomers}, has)


@pytest.mark.parametrize(("members", "size"), [(2, 8), (10, 100), (50, 500), (100, 5_000)])
def test_newcomers_of_another_subscription_take_their_share_and_nothing_else_moves(
    members: int, size: int
) -> None:
    spec = _rolling(members, size)
    after = assign_uniformly(spec)
    before = {name: member.assigned for name, member in spec.members.items()}
    sizes = [len(places(one)) for one in after.values()]
    wanted = sum(len(places(one)) for name, one in after.items() if name.startswith("b"))

    assert max(sizes) - min(sizes) <= 1
    assert moved(before, after) == wanted
    assert wanted <= (size + 1) // 2 + 1


@pytest.mark.parametrize(
    "group",
    [
        _own_topics,
        _two_of_different_topics,
        _topics_of_one_partition,
        _others_topics_ahead,
        _by_way_of_another,
    ],
)
def test_uniform_looks_at_no_partition_for_each_that_moves(
    group: Callable[[int], GroupSpec],
) -> None:
    """Or a heartbeat of a group of thousands of partitions would hold everybody up for seconds."""
    few, many = (steps_of(partial(assign_uniformly, group(size))) for size in (100, 800))

    assert many < 10 * few


def test_ranges_are_cut_alike_of_topics_alike_and_static_members_come_first() -> None:
    counts = {topic(1): 3, topic(2): 3}
    wanted = frozenset(counts)
    spec = GroupSpec(
        {
            "a-dynamic": MemberSpec(wanted, {}),
            "z-static": MemberSpec(wanted, {}, "i0"),
        },
        {topic_id: range(count) for topic_id, count in counts.items()},
    )

    assert assign_ranges(spec) == {
        "z-static": {topic(1): frozenset({0, 1}), topic(2): frozenset({0, 1})},
        "a-dynamic": {topic(1): frozenset({2}), topic(2): frozenset({2})},
    }


def test_nobody_gets_nothing_of_nothing() -> None:
    assert assign_uniformly(spec_of({}, {})) == {}
    assert assign_uniformly(spec_of({}, {"A": frozenset()})) == {"A": {}}
