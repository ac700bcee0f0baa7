"""Questions about groups: OffsetFetch, DescribeGroups, ListGroups. Nothing changes here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.coordinator.group.classic import ClassicGroup
from ottla.broker.coordinator.group.consumer import ConsumerGroup
from ottla.broker.coordinator.group.kinds import Group
from ottla.broker.coordinator.group.states import State
from ottla.protocol.errors import ErrorCode, cut_message
from ottla.protocol.messages.groups import (
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from ottla.broker.coordinator.group.shard import GroupShard

NO_OFFSET = -1
UNKNOWN_GROUP_SINCE_VERSION = 6
UNSTABLE = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)

Described = DescribeGroupsResponse.DescribedGroup
FetchedGroup = OffsetFetchResponse.OffsetFetchResponseGroup
FetchedTopic = OffsetFetchResponse.OffsetFetchResponseTopics
FetchedPartition = OffsetFetchResponse.OffsetFetchResponsePartitions
OnlyTopic = OffsetFetchResponse.OffsetFetchResponseTopic
OnlyPartition = OffsetFetchResponse.OffsetFetchResponsePartition


def fetch_offsets(
    shard: GroupShard,
    request: OffsetFetchRequest.OffsetFetchRequestGroup,
    *,
    require_stable: bool,
) -> FetchedGroup:
    """The offsets of one group: of the asked topics, or of all that it has; `request` names them,
    whatever its version. A member of a consumer group that says who it is must be in its newest
    epoch."""
    group_id = request.group_id
    refusal = _check_fetch(shard, request)
    if refusal:
        return FetchedGroup(group_id, error_code=int(refusal))
    if request.topics is None:
        asked = [(name, b"", indexes) for name, indexes in _all_of(shard, group_id)]
    else:
        asked = [(one.name, one.topic_id, one.partition_indexes) for one in request.topics]
    topics = []
    for name, topic_id, indexes in asked:
        parts = [
            FetchedPartition(*one)
            for one in _offsets(shard, group_id, name, indexes, require_stable=require_stable)
        ]
        known_id = topic_id or shard.topic_id_of(name) or bytes(16)
        topics.append(FetchedTopic(name, known_id, parts))
    return FetchedGroup(group_id, topics)


def fetch_offsets_of_one(shard: GroupShard, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """The same in versions 1 to 7, which ask for one group, by names, and know no members."""
    group_id, require_stable = request.group_id, request.require_stable
    if request.topics is None:
        asked = _all_of(shard, group_id)
    else:
        asked = [(one.name, one.partition_indexes) for one in request.topics]
    topics = []
    for name, indexes in asked:
        parts = [
            OnlyPartition(*one)
            for one in _offsets(shard, group_id, name, indexes, require_stable=require_stable)
        ]
        topics.append(OnlyTopic(name, parts))
    return OffsetFetchResponse(topics=topics)


def _all_of(shard: GroupShard, group_id: str) -> list[tuple[str, list[int]]]:
    """The topics that the group has committed for, and their partitions."""
    known = shard.offsets.of_group(group_id)
    return [(name, list(partitions)) for name, partitions in known.items()]


def _offsets(
    shard: GroupShard, group_id: str, topic: str, indexes: list[int], *, require_stable: bool
) -> list[tuple[int, int, int, str, int]]:
    """Partition, offset, leader epoch, metadata and error code of each."""
    current_id = shard.topic_id_of(topic)
    partitions = shard.offsets.of_group(group_id).get(topic, {})
    found = []
    for index in indexes:
        committed = partitions.get(index)
        if require_stable and shard.offsets.is_pending((group_id, topic, index)):
            found.append((index, NO_OFFSET, -1, "", UNSTABLE))
        elif committed is None or committed.is_of_former_topic(current_id):
            found.append((index, NO_OFFSET, -1, "", 0))
        else:
            found.append((index, committed.offset, committed.leader_epoch, committed.metadata, 0))
    return found


def _check_fetch(
    shard: GroupShard, request: OffsetFetchRequest.OffsetFetchRequestGroup
) -> ErrorCode:
    group = shard.groups.get(request.group_id)
    member_id, epoch = request.member_id, request.member_epoch
    if not isinstance(group, ConsumerGroup) or (member_id is None and epoch < 0):
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch == member.epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def describe(shard: GroupShard, group_id: str, version: int) -> Described:
    """State and members of one classic group; protocol and subscriptions only while they are in
    force."""
    group = shard.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        described = Described(group_id=group_id, group_state=State.DEAD.value)
        if version >= UNKNOWN_GROUP_SINCE_VERSION:
            what = "not found" if group is None else "is not a classic group"
            described.error_code = int(ErrorCode.GROUP_ID_NOT_FOUND)
            described.error_message = cut_message(f"Group {group_id} {what}.")
        return described
    is_stable = group.state is State.STABLE
    protocol = group.protocol or ""
    return Described(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol if is_stable else "",
        members=[
            DescribeGroupsResponse.DescribedGroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.protocols.get(protocol, b"") if is_stable else b"",
                member.assignment,
            )
            for member in group.members.values()
        ],
    )


def list_groups(
    groups: Iterable[Group], request: ListGroupsRequest
) -> list[ListGroupsResponse.ListedGroup]:
    """Those of these groups that the filters let through; they name states or types, in any case of
    letters, and an empty one lets all through."""
    states = {state.strip().lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return [
        one
        for one in map(_listed, groups)
        if (not states or one.group_state.lower() in states)
        and (not types or one.group_type.lower() in types)
    ]


def _listed(group: Group) -> ListGroupsResponse.ListedGroup:
    return ListGroupsResponse.ListedGroup(
        group.group_id, group.protocol_type_shown, group.state_name, group.kind.value
    )
