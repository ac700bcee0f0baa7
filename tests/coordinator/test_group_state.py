"""The state of a consumer group: what its members say together, without asking each."""

from __future__ import annotations

import random
from typing import NoReturn

import pytest

from ottla.broker.coordinator.group.consumer import ConsumerGroup, ConsumerMember, ConsumerState
from ottla.broker.coordinator.group.modern import MemberState, Target

EPOCHS = range(1, 4)


class _OneByOne(dict[str, ConsumerMember]):
    """Members that may be asked for by name, and not all of them."""

    def values(self) -> NoReturn:
        raise AssertionError("all members were gone through")


@pytest.mark.parametrize("seed", range(20))
def test_as_if_all_members_were_asked(seed: int) -> None:
    rng = random.Random(seed)
    group = ConsumerGroup("g")
    group.epoch = EPOCHS[0]
    for _ in range(100):
        member_id = f"m{rng.randrange(3)}"
        if rng.random() < 0.2:
            group.remove_member(member_id)
        else:
            state = rng.choice((MemberState.STABLE, MemberState.STABLE, *MemberState))
            group.put_member(
                ConsumerMember(member_id=member_id, epoch=rng.choice(EPOCHS), state=state)
            )
        group.target = Target(rng.choice(EPOCHS))
        members = group.members.values()
        are_all = all(one.is_reconciled_to(group.target.epoch) for one in members)

        assert (group.state is ConsumerState.EMPTY) == (not members)
        assert (group.state is ConsumerState.STABLE) == (are_all and bool(members))


def test_a_state_does_not_go_through_all_members() -> None:
    group = ConsumerGroup("g")
    group.target = Target(group.epoch)
    for index in range(3):
        group.put_member(ConsumerMember(member_id=f"m{index}", epoch=group.epoch))
    group.members = _OneByOne(group.members)

    assert group.state_name == "Stable"
