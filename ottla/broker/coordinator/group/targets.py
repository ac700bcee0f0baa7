"""The group epoch and the target assignment of a modern group: when they are made anew, and how.

An assignor is a pure function. It is given what each member wants and has, and returns what each is
to have; who is left out is to have nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ottla.broker.coordinator.group.modern import (
    NOTHING,
    Assignment,
    ModernGroup,
    ModernMember,
    Target,
)
from ottla.broker.coordinator.group.topics import Topics
from ottla.broker.coordinator.group.turn import Turn

M = TypeVar("M", bound=ModernMember)


class MemberSpec(NamedTuple):
    """One member as an assignor sees it. Members with the same subscription share its set."""

    topic_ids: frozenset[bytes]
    assigned: Assignment
    """What the former target gave it."""
    instance_id: str | None = None


class GroupSpec(NamedTuple):
    """The members, and the partitions that can be assigned of each topic that one of them wants."""

    members: Mapping[str, MemberSpec]
    partitions: Mapping[bytes, Sequence[int]]


Assignor = Callable[[GroupSpec], Mapping[str, Assignment]]


def bump_if_due(turn: Turn, group: ModernGroup[M], reason: str | None) -> None:
    """The next group epoch, if there is a `reason` or the topics are others than it has seen."""
    if reason is None and not group.metadata_is_stale:
        return
    metadata_hash = turn.shard.topics.group_hash(group.wanted_names)
    if reason is None and metadata_hash != group.metadata_hash:
        reason = "its topics have changed"
    if reason is not None:
        bump(turn, group, reason, metadata_hash)
    group.metadata_is_stale = False


def bump(turn: Turn, group: ModernGroup[M], reason: str, metadata_hash: int) -> None:
    """The next group epoch: the next heartbeat makes an assignment for it, if anybody is left."""
    turn.write(*group.epoch_record(group.epoch + 1, metadata_hash))
    turn.tell(
        "group_rebalances" if group.members else "group_empty",
        group.group_id,
        reason,
        epoch=group.epoch,
        members=len(group.members),
    )


def retarget_if_due(
    turn: Turn,
    group: ModernGroup[M],
    assignor: Assignor,
    *,
    interval_ms: int,
    assignable: Callable[[bytes, int], Sequence[int]] | None = None,
) -> bool:
    """A target for the group epoch, if there is none yet and the last one is old enough.

    `assignable` says which of a topic's partitions can be assigned, by its id and their number; all
    of them if it is left out.
    """
    if group.target.epoch >= group.epoch:
        return False
    made_ms, now_ms = group.target.timestamp_ms, turn.now.wall_ms
    # A wall clock that was set back is no reason to wait until it has caught up.
    if made_ms and made_ms <= now_ms < made_ms + interval_ms:
        return False
    spec = group_spec(turn.shard.topics, group, assignable)
    targets = assignor(spec)
    for member_id in spec.members:
        assignment = targets.get(member_id, NOTHING)
        if group.target_of.get(member_id) != assignment:
            turn.write(*group.target_record(member_id, assignment))
    turn.write(*group.target_epoch_record(Target(group.epoch, now_ms)))
    turn.tell(
        "group_assigned",
        group.group_id,
        "the coordinator has assigned",
        epoch=group.epoch,
        members=len(group.members),
    )
    return True


def group_spec(
    topics: Topics,
    group: ModernGroup[M],
    assignable: Callable[[bytes, int], Sequence[int]] | None = None,
) -> GroupSpec:
    """The group as an assignor sees it, by the topics as they are now."""
    partitions: dict[bytes, Sequence[int]] = {}
    ids: dict[str, bytes] = {}
    for name in group.wanted_names:
        topic = topics.named(name)
        if topic is not None:
            topic_id, count = topic.topic_id, topic.partition_count
            ids[name] = topic_id
            every = range(count)
            partitions[topic_id] = every if assignable is None else assignable(topic_id, count)
    shared: dict[frozenset[str], frozenset[bytes]] = {}
    members: dict[str, MemberSpec] = {}
    for member in group.members.values():
        names = group.names_wanted_by(member)
        wanted = shared.get(names)
        if wanted is None:
            wanted = shared[names] = frozenset(ids[name] for name in names if name in ids)
        members[member.member_id] = MemberSpec(
            wanted,
            group.target_of.get(member.member_id, NOTHING),
            member.instance_id,
        )
    return GroupSpec(members, partitions)
