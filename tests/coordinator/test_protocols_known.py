"""Which protocols the classic members of a consumer group have in common."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NoReturn

import pytest

from ottla.broker.coordinator.group.consumer import (
    ClassicProtocols,
    ConsumerGroup,
    ConsumerMember,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import groups
from tests.coordinator.shards import Lone

NAMES = ("range", "roundrobin", "sticky")


class _OneByOne(dict[str, ConsumerMember]):
    """Members that are found by their ids, and never gone through."""

    def __iter__(self) -> Iterator[str]:
        self._refuse()

    def values(self) -> NoReturn:
        self._refuse()

    def items(self) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise AssertionError("all members were looked at")


def _classic(rng: random.Random) -> ClassicProtocols | None:
    """The protocols of a member, one of them perhaps twice; None if it has changed over."""
    if rng.random() < 0.3:
        return None
    names = rng.choices(NAMES, k=rng.randrange(1, 4))
    return ClassicProtocols(10_000, tuple((name, b"") for name in names))


@pytest.mark.parametrize("seed", range(20))
def test_as_if_all_members_were_asked(seed: int) -> None:
    rng = random.Random(seed)
    group = ConsumerGroup("g")
    for _ in range(60):
        member_id = f"m{rng.randrange(4)}"
        if rng.random() < 0.3:
            group.remove_member(member_id)
        else:
            group.put_member(ConsumerMember(member_id=member_id, classic=_classic(rng)))
        classic = [one.classic for one in group.members.values() if one.classic is not None]

        assert group.is_all_classic == (len(classic) == len(group.members))
        for name in NAMES:
            known = all(name in dict(one.protocols) for one in classic)
            assert group.supports_any([name]) == known
        assert group.supports_any(NAMES) == any(group.supports_any([name]) for name in NAMES)
        assert not group.supports_any([])


def test_a_join_that_is_refused_does_not_go_through_all_members() -> None:
    lone = Lone()
    group = lone.shard.groups["g"] = ConsumerGroup("g")
    for index in range(3):
        classic = ClassicProtocols(10_000, (("range", b""),))
        group.put_member(ConsumerMember(member_id=f"m{index}", classic=classic))
    group.members = _OneByOne(group.members)
    request = groups.JoinGroupRequest("g", 10_000, 60_000, "", None, "consumer")
    request.protocols = [groups.JoinGroupRequest.JoinGroupRequestProtocol("sticky", b"")]

    lone.send("new", request, 9)

    ((_, answer),) = lone.answers()
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
