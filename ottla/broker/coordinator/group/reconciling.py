"""One step of a member of a consumer group towards the target assignment (KIP-848).

    Stable --the target has another epoch--> UnrevokedPartitions   it has to give something up
      ^                                            | it reports that it has
      |                                            v
      +--all it is to have is free-- UnreleasedPartitions          others have to give something up

A member keeps its epoch until it has given up what the target takes from it, so that nobody else is
given a partition while it may still read it. What is free is given at once, with the new epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from ottla.broker.coordinator.group.consumer import NOTHING_OWNED, ConsumerMember, Owned
from ottla.broker.coordinator.group.modern import Assignment, MemberState
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group import ConsumerGroupHeartbeatRequest

Reported = Sequence[ConsumerGroupHeartbeatRequest.TopicPartitions]
"""What a member says that it has."""


@dataclass(slots=True, frozen=True)
class Aim:
    """Where a member is to get: the target's epoch and what it has for the member, the topics that
    the member is subscribed to, and who has a partition now."""

    epoch: int
    assignment: Assignment
    topic_ids: Collection[bytes]
    owner_of: Callable[[bytes, int], str | None]


def reconcile(
    member: ConsumerMember, aim: Aim, reported: Reported | None, *, has_changed: bool
) -> ConsumerMember:
    """The member after one step, or the same if there is none to take.

    `reported` is None if the member does not say; `has_changed` is whether it has just subscribed
    to something else. Raises FENCED_MEMBER_EPOCH if nobody knows what state it is in.
    """
    match member.state:
        case MemberState.STABLE if member.epoch != aim.epoch:
            return _next(member, aim, reported, member.epoch)
        case MemberState.STABLE:
            return _narrowed(member, aim, reported) if has_changed else member
        case MemberState.UNREVOKED_PARTITIONS if _still_has(reported, member.revoking):
            return _narrowed(member, aim, reported) if has_changed else member
        case MemberState.UNREVOKED_PARTITIONS | MemberState.UNRELEASED_PARTITIONS:
            return _next(member, aim, reported, member.epoch)
        case _:
            if reported is None or reported:
                said = (
                    "The consumer group member is in a unknown state. The member must abandon all"
                    " its partitions and rejoin."
                )
                raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, said)
            return _next(member, aim, reported, aim.epoch)


def _next(
    member: ConsumerMember, aim: Aim, reported: Reported | None, epoch: int
) -> ConsumerMember:
    """Compares what the member has with the target, whole."""
    kept: dict[bytes, dict[int, int]] = {}
    revoking: dict[bytes, dict[int, int]] = {}
    given: dict[bytes, list[int]] = {}
    is_waiting = False
    for topic_id in dict.fromkeys((*aim.assignment, *member.assigned)):
        target: frozenset[int] = frozenset()
        if topic_id in aim.topic_ids:
            target = aim.assignment.get(topic_id, target)
        epochs = member.assigned.get(topic_id, {})
        for partition, since in epochs.items():
            side = kept if partition in target else revoking
            side.setdefault(topic_id, {})[partition] = since
        for partition in target:
            if partition in epochs:
                continue
            if aim.owner_of(topic_id, partition) in (None, member.member_id):
                given.setdefault(topic_id, []).append(partition)
            else:
                is_waiting = True
    if revoking and _still_has(reported, revoking):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=kept,
            revoking=revoking,
        )
    for topic_id, partitions in given.items():
        kept.setdefault(topic_id, {}).update(dict.fromkeys(partitions, aim.epoch))
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
        epoch=aim.epoch,
        previous_epoch=member.epoch,
        assigned=kept,
        revoking=NOTHING_OWNED,
    )


def _narrowed(member: ConsumerMember, aim: Aim, reported: Reported | None) -> ConsumerMember:
    """Takes from the member at once what it is not subscribed to any more."""
    unwanted = [topic_id for topic_id in member.assigned if topic_id not in aim.topic_ids]
    if not unwanted:
        return member
    kept = {one: epochs for one, epochs in member.assigned.items() if one in aim.topic_ids}
    revoking = {one: dict(epochs) for one, epochs in member.revoking.items()}
    for topic_id in unwanted:
        revoking.setdefault(topic_id, {}).update(member.assigned[topic_id])
    moved = replace(member, previous_epoch=member.epoch, assigned=kept)
    if not _still_has(reported, revoking):
        return moved
    return replace(moved, state=MemberState.UNREVOKED_PARTITIONS, revoking=revoking)


def _still_has(reported: Reported | None, revoking: Owned) -> bool:
    """Whether the member may have any of what it is to give up; it has if it does not say."""
    if reported is None:
        return True
    return any(
        partition in revoking.get(one.topic_id, ())
        for one in reported
        for partition in one.partitions
    )
