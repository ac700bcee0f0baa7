"""The states of a node in the quorum, and which may follow which (KIP-595, 853, 996).

    Unattached   knows an epoch, maybe its leader; may have voted in it
    Prospective  asks whether it would be elected, without a new epoch
    Candidate    a new epoch, its own vote stored
    Leader       elected in its epoch; `start_offset` is where the epoch begins in the log
    Follower     knows the leader and fetches from it
    Resigned     was leader in this epoch and is so no more, as after a restart

A sole voter needs nobody's answer: it goes Resigned or Unattached, Prospective, Candidate, Leader
in one step.
"""

from __future__ import annotations

from typing import NamedTuple


class Unattached(NamedTuple):
    epoch: int
    leader_id: int | None = None


class Prospective(NamedTuple):
    epoch: int
    leader_id: int | None = None


class Candidate(NamedTuple):
    epoch: int


class Leader(NamedTuple):
    epoch: int
    start_offset: int


class Follower(NamedTuple):
    epoch: int
    leader_id: int


class Resigned(NamedTuple):
    epoch: int


Role = Unattached | Prospective | Candidate | Leader | Follower | Resigned

TRANSITIONS: dict[type[Role], frozenset[type[Role]]] = {
    Unattached: frozenset({Unattached, Prospective, Follower}),
    Prospective: frozenset({Candidate, Unattached, Follower}),
    Candidate: frozenset({Leader, Prospective, Unattached, Follower}),
    Leader: frozenset({Resigned, Unattached, Follower}),
    Follower: frozenset({Prospective, Unattached, Follower}),
    Resigned: frozenset({Prospective, Unattached, Follower}),
}


def become(old: Role, new: Role) -> Role:
    """The new role, once it is sure that it may follow the old one."""
    assert type(new) in TRANSITIONS[type(old)], f"{old} cannot become {new}"
    assert new.epoch >= old.epoch, f"the epoch goes back from {old} to {new}"
    return new
