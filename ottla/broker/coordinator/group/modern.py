"""What groups have in common whose coordinator assigns the partitions (KIP-848, KIP-932).

    group epoch  ---assignor--->  target assignment  ---heartbeats--->  what each member has

The group epoch grows whenever the members, their subscriptions or the topics change. The target
assignment is made for one group epoch and has its number. A member is told of it by its heartbeats,
and has its number when it has what it is to have.

Each thing that is known has a record of its own, and changes when that record is written or
replayed: a kind says what its records are (`epoch_record` and its like), `targets.py` writes them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

from ottla.broker.coordinator.group.kinds import Group
from ottla.broker.coordinator.outcome import CoordinatorRecord

FIRST_EPOCH = 1
"""Of a group that nobody has joined; the first member makes it the next."""
JOIN_EPOCH = 0
LEAVE_EPOCH = -1

Assignment = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions, never empty ones; not to be changed."""
NOTHING: Assignment = {}


class MemberState(IntEnum):
    """How far a member is on its way to the target, as its record says."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has been told to give up partitions, and has not said that it has."""
    UNRELEASED_PARTITIONS = 2
    """It has given up what it had to, and waits for others to do so."""
    UNKNOWN = 127
    """Written by a later version."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(slots=True, frozen=True, kw_only=True)
class ModernMember:
    """One member; a change makes another one."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_names: frozenset[str] = frozenset()
    epoch: int = JOIN_EPOCH
    previous_epoch: int = LEAVE_EPOCH
    state: MemberState = MemberState.STABLE

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether it has what the target of this epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch


M = TypeVar("M", bound=ModernMember)


class Target(NamedTuple):
    """The target assignment's number, when it was made (wall milliseconds, 0 if never)."""

    epoch: int = FIRST_EPOCH
    timestamp_ms: int = 0


class ModernGroup(Group, Generic[M]):
    """One group. What records say changes by `put_member` and its like alone."""

    __slots__ = (
        "_wanted",
        "_wants",
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
        "metadata_is_stale",
        "target",
        "target_of",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.metadata_is_stale = True
        """Soft: the topics may have changed since the hash was made; the next heartbeat looks."""
        self.members: dict[str, M] = {}
        self.target = Target()
        self.target_of: dict[str, Assignment] = {}
        self._wants: Counter[frozenset[str]] = Counter()
        self._wanted: frozenset[str] | None = None

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.group_id} {self.state_name} epoch={self.epoch}"
            f" target={self.target.epoch} members={len(self.members)}>"
        )

    # what records say

    def put_member(self, member: M) -> None:
        """A member is new, or another than it was."""
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if old is None or old.subscribed_names != member.subscribed_names:
            self._wants[member.subscribed_names] += 1
            if old is not None:
                self._forget_wants(old)
            self._wanted = None

    def remove_member(self, member_id: str) -> M | None:
        """A member is gone; None if there was none."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._forget_wants(member)
            self._wanted = None
        return member

    # what a kind's records are

    @abstractmethod
    def epoch_record(self, epoch: int, metadata_hash: int) -> CoordinatorRecord: ...

    @abstractmethod
    def target_record(self, member_id: str, assignment: Assignment) -> CoordinatorRecord: ...

    @abstractmethod
    def target_epoch_record(self, target: Target) -> CoordinatorRecord: ...

    # questions

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def wanted_names(self) -> frozenset[str]:
        """The topics that any member wants, whether they exist or not."""
        if self._wanted is None:
            self._wanted = frozenset().union(*self._wants, self._also_wanted())
        return self._wanted

    def names_wanted_by(self, member: M) -> frozenset[str]:
        """The topics that one member wants."""
        return member.subscribed_names

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.wanted_names

    def _also_wanted(self) -> frozenset[str]:
        """What members want otherwise than by name; `_wanted` is to be None when it changes."""
        return frozenset()

    def _forget_wants(self, member: M) -> None:
        self._wants[member.subscribed_names] -= 1
        if not self._wants[member.subscribed_names]:
            del self._wants[member.subscribed_names]
