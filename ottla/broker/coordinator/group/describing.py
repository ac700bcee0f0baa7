"""ConsumerGroupDescribe (KIP-848): epochs, members, what they have and what they are to have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.coordinator.group.consumer import ConsumerGroup, ConsumerMember
from ottla.broker.coordinator.group.consumer_members import preferred_assignor
from ottla.broker.coordinator.group.modern import NOTHING
from ottla.broker.coordinator.group.topics import Topics
from ottla.protocol.errors import ErrorCode, cut_message
from ottla.protocol.messages.consumer_group import ConsumerGroupDescribeResponse

if TYPE_CHECKING:
    from ottla.broker.coordinator.group.shard import GroupShard

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1
DEAD = "Dead"

Described = ConsumerGroupDescribeResponse.DescribedGroup
DescribedAssignment = ConsumerGroupDescribeResponse.Assignment
DescribedMember = ConsumerGroupDescribeResponse.Member
DescribedTopic = ConsumerGroupDescribeResponse.TopicPartitions


def describe(shard: GroupShard, group_id: str) -> Described:
    """One consumer group; GROUP_ID_NOT_FOUND for any other, so that a client asks otherwise."""
    group = shard.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        what = "not found" if group is None else "is not a consumer group"
        return Described(
            group_id=group_id,
            error_code=int(ErrorCode.GROUP_ID_NOT_FOUND),
            error_message=cut_message(f"Group {group_id} {what}."),
        )
    return Described(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target.epoch,
        assignor_name=preferred_assignor(shard.settings.assignors, group),
        members=[_member(shard.topics, group, one) for one in group.members.values()],
    )


def _member(topics: Topics, group: ConsumerGroup, member: ConsumerMember) -> DescribedMember:
    held: dict[bytes, set[int]] = {}
    for owned in (member.assigned, member.revoking):
        for topic_id, epochs in owned.items():
            held.setdefault(topic_id, set()).update(epochs)
    target = group.target_of.get(member.member_id, NOTHING)
    return DescribedMember(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        sorted(member.subscribed_names),
        member.regex,
        DescribedAssignment(_named(topics, held.items())),
        DescribedAssignment(_named(topics, target.items())),
        CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _named(topics: Topics, assigned: Iterable[tuple[bytes, Iterable[int]]]) -> list[DescribedTopic]:
    """By name; what belongs to a topic that is gone is nothing any more."""
    named: list[DescribedTopic] = []
    for topic_id, partitions in assigned:
        topic = topics.of_id(topic_id)
        if topic is not None:
            named.append(DescribedTopic(topic_id, topic.name, sorted(partitions)))
    return named
