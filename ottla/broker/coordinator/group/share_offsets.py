"""What is asked of and done to share groups from outside: ShareGroupDescribe, and the group's part
of DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets, whose rest is with
the share coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.broker.coordinator.group.assignors.simple import SIMPLE
from ottla.broker.coordinator.group.share import Partitions, ShareGroup, ShareMember
from ottla.broker.coordinator.group.share_heartbeat import not_found, registered
from ottla.broker.coordinator.group.share_members import (
    note_asked,
    note_initialized,
    note_not_initialized,
)
from ottla.broker.coordinator.group.topics import Topic
from ottla.broker.coordinator.group.turn import Turn
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.share_group import ShareGroupDescribeResponse

Described = ShareGroupDescribeResponse.DescribedGroup


@dataclass(slots=True)
class Begun:
    """The first part of a command: which partitions it concerns, which of them had a state before,
    and in which epoch of the group; or why nothing of it is done."""

    error_code: int = 0
    error_message: str | None = None
    places: Partitions = field(default_factory=dict)
    before: Partitions = field(default_factory=dict)
    state_epoch: int = 0


def describe(turn: Turn, group_id: str) -> Described:
    """One share group; GROUP_ID_NOT_FOUND for any other, so that a client asks otherwise."""
    group = turn.shard.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        code = int(ErrorCode.GROUP_ID_NOT_FOUND)
        return Described(
            group_id=group_id, error_code=code, error_message=not_found(turn, group_id)
        )
    return Described(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target.epoch,
        assignor_name=SIMPLE,
        members=[_member(turn, one) for one in group.members.values()],
    )


def initialized_places(turn: Turn, group_id: str) -> Begun:
    """All partitions that the group delivers from."""
    try:
        group = _group(turn, group_id)
    except KafkaError as error:
        return Begun(int(error.code), error.message)
    return Begun(places=group.state_of.initialized)


def begin_alter(turn: Turn, group_id: str, wanted: Mapping[bytes, frozenset[int]]) -> Begun:
    """These partitions of topics that exist are to begin somewhere else; a group that nobody has
    heard of comes to be, as in Kafka. Who joins meanwhile waits for `finish_alter`. The group's
    epoch, which is to be the states', grows: who has gone may know the states as they were, and
    what it says of their records is fenced then (KIP-932)."""
    try:
        if group_id not in turn.shard.groups:
            group = ShareGroup(group_id)
        else:
            group = _empty_group(turn, group_id)
    except KafkaError as error:
        return Begun(int(error.code), error.message)
    topics = [turn.shard.topics.of_id(topic_id) for topic_id in wanted]
    names = {topic.topic_id: topic.name for topic in topics if topic is not None}
    before = group.state_of
    state_of = before.with_initializing(wanted, names)
    if state_of != before:
        turn.write(*group.state_record(state_of))
    if wanted:
        turn.write(*group.epoch_record(group.epoch + 1, group.metadata_hash))
        group = registered(turn, group_id)
        note_asked(turn, group, wanted)
        turn.tell(
            "group_offset_reset",
            group_id,
            "AlterShareGroupOffsets was asked for",
            topics=sorted(names.values()),
        )
    had = {
        topic_id: had
        for topic_id, parts in wanted.items()
        if (had := parts & before.initialized.get(topic_id, frozenset()))
    }
    return Begun(places=wanted, before=had, state_epoch=group.epoch)


def finish_alter(turn: Turn, group_id: str, begun: Begun, done: Partitions) -> Begun:
    """These have their new start; the others have what they had, if that was anything."""
    group = turn.shard.groups.get(group_id)
    if isinstance(group, ShareGroup):
        note_initialized(turn, group, done)
        note_initialized(turn, group, begun.before)
        note_not_initialized(group, begun.places)
    return Begun(places=done)


def begin_delete_offsets(turn: Turn, group_id: str, topic_ids: frozenset[bytes]) -> Begun:
    """Those of these topics that the group has anything of are to be forgotten."""
    try:
        group = _empty_group(turn, group_id)
    except KafkaError as error:
        return Begun(int(error.code), error.message)
    places = _note_deleting(turn, group, topic_ids)
    if places:
        turn.tell(
            "group_offsets_deleted",
            group_id,
            "DeleteShareGroupOffsets was asked for",
            topics=sorted(group.state_of.names.get(one, "") for one in places),
        )
    return Begun(places=places)


def finish_delete_offsets(turn: Turn, group_id: str, topic_ids: frozenset[bytes]) -> Begun:
    group = turn.shard.groups.get(group_id)
    if isinstance(group, ShareGroup):
        state_of = group.state_of.without_topics(topic_ids & group.state_of.deleting)
        if state_of != group.state_of:
            turn.write(*group.state_record(state_of))
    return Begun()


def begin_delete_group(turn: Turn, group_id: str) -> Begun:
    """Everything that the group has is to be forgotten before the group is. It is noted first: who
    joins meanwhile, or after a crash, begins anew, and does not wait for a state that is gone."""
    try:
        group = _empty_group(turn, group_id)
    except KafkaError as error:
        return Begun(int(error.code), error.message)
    state_of = group.state_of
    topic_ids = frozenset(state_of.all_partitions) | state_of.deleting
    return Begun(places=_note_deleting(turn, group, topic_ids))


def _note_deleting(turn: Turn, group: ShareGroup, topic_ids: frozenset[bytes]) -> Partitions:
    """The partitions of these topics that the group has anything of; of a topic whose deletion was
    begun before and not finished it may be all that there are."""
    before = group.state_of
    known = before.all_partitions
    places: dict[bytes, frozenset[int]] = {}
    for topic_id in topic_ids & (known.keys() | before.deleting):
        topic = turn.shard.topics.of_id(topic_id)
        count = topic.partition_count if topic is not None and topic_id in before.deleting else 0
        parts = known.get(topic_id, frozenset()) | frozenset(range(count))
        if parts:
            places[topic_id] = parts
    gone = frozenset(places)
    left = before.without_topics(gone)
    names = {one: before.names.get(one, "") for one in gone}
    state_of = left._replace(deleting=left.deleting | gone, names={**left.names, **names})
    if state_of != before:
        turn.write(*group.state_record(state_of))
    return places


def _group(turn: Turn, group_id: str) -> ShareGroup:
    group = turn.shard.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, not_found(turn, group_id))
    return group


def _empty_group(turn: Turn, group_id: str) -> ShareGroup:
    group = _group(turn, group_id)
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    return group


def _member(turn: Turn, member: ShareMember) -> ShareGroupDescribeResponse.Member:
    topics: list[Any] = []
    for topic_id, parts in member.assigned.items():
        topic: Topic | None = turn.shard.topics.of_id(topic_id)
        if topic is not None:
            shown = ShareGroupDescribeResponse.TopicPartitions(topic_id, topic.name, sorted(parts))
            topics.append(shown)
    return ShareGroupDescribeResponse.Member(
        member.member_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        sorted(member.subscribed_names),
        ShareGroupDescribeResponse.Assignment(topics),
    )
