"""The script of `scenario.py` for consumer groups (KIP-848).

Members make up their own ids, which are their names here. What a member is assigned is shown as
`topic:partitions`, `-` if the answer has no assignment, `nothing` if it has an empty one.
"""

from __future__ import annotations

import re
import struct
from typing import Any, Protocol

from ottla.protocol.codec import encoder
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import groups
from ottla.protocol.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.groups import ConsumerProtocolSubscription
from tests.coordinator.scenario import GROUP, Script, Target

SHORT_UUID = re.compile(r"[\w-]{22}")

Assigned = dict[str, list[int]]
Owned = ConsumerGroupHeartbeatRequest.TopicPartitions


class TopicTarget(Target, Protocol):
    """One that has topics, and settings of its group."""

    def make_topic(self, name: str, partitions: int) -> None:
        """A topic is made, or has more partitions."""

    def remove_topic(self, name: str) -> None: ...

    def topic_id(self, name: str) -> bytes: ...

    def set_group(self, key: str, value: str) -> None: ...


class ConsumerScript(Script):
    """`epoch` and `assigned` are what each member was told last."""

    def __init__(self, target: TopicTarget) -> None:
        super().__init__(target)
        self._topics = target
        self._names: dict[bytes, str] = {}
        self.epoch: dict[str, int] = {}
        self.assigned: dict[str, Assigned] = {}

    def topic(self, name: str, partitions: int) -> None:
        self._topics.make_topic(name, partitions)
        self._names[self._topics.topic_id(name)] = name
        self.lines.append(f"  topic {name} has {partitions} partitions")

    def no_topic(self, name: str) -> None:
        self._topics.remove_topic(name)
        self.lines.append(f"  topic {name} is deleted")

    def setting(self, key: str, value: str) -> None:
        self._topics.set_group(key, value)
        self.lines.append(f"  {key}={value}")

    def enter_848(self, who: str, *topics: str, **fields: Any) -> None:
        """The first heartbeat of a member."""
        wanted = None if "regex" in fields else list(topics)
        fields = {"timeout_ms": 3_000, "owned": {}, "topics": wanted, **fields}
        self.beat(who, epoch=0, **fields)

    def beat(
        self,
        who: str,
        *,
        epoch: int | None = None,
        topics: list[str] | None = None,
        regex: str | None = None,
        owned: Assigned | None = None,
        timeout_ms: int = -1,
        instance: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
        member_id: str | None = None,
        version: int = 1,
        group: str = GROUP,
    ) -> None:
        sent_id = self.member.get(who, who) if member_id is None else member_id
        sent = self.epoch.get(who, 0) if epoch is None else epoch
        request = ConsumerGroupHeartbeatRequest(
            group,
            sent_id,
            sent,
            instance,
            rack,
            timeout_ms,
            topics,
            regex,
            assignor,
            None if owned is None else [Owned(self._id_of(name), p) for name, p in owned.items()],
        )
        shown = f"ConsumerGroupHeartbeat v{version} epoch={sent}"
        if topics is not None:
            shown += f" topics=[{','.join(topics)}]"
        if regex is not None:
            shown += f" regex={regex}"
        if owned is not None:
            shown += f" has {_places(owned)}"
        if assignor is not None:
            shown += f" assignor={assignor}"
        self._send(who, request, version, f"{shown}{self._named(sent_id, instance)}")

    def has(self, who: str, **fields: Any) -> None:
        """A heartbeat that reports what the member was told last."""
        self.beat(who, owned=self.assigned.get(who, {}), **fields)

    def settle(self, *members: str) -> None:
        """Heartbeats of several until nothing changes any more."""
        for _ in range(2 * len(members)):
            for who in members:
                self.has(who)

    def describe_848(self, *, group: str = GROUP) -> None:
        request = ConsumerGroupDescribeRequest([group])
        self._send("admin", request, 1, "ConsumerGroupDescribe v1")

    def list_groups(self, *, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> None:
        request = groups.ListGroupsRequest(list(states), list(types))
        shown = "".join(f" {one}" for one in (*states, *types))
        self._send("admin", request, 5, f"ListGroups v5{shown}")

    def commit_848(
        self,
        who: str,
        topic: str,
        partition: int,
        offset: int,
        *,
        epoch: int | None = None,
        **sent: Any,
    ) -> None:
        version = sent.get("version", 9)
        member_id = sent.get("member_id", who)
        number = self.epoch.get(who, -1) if epoch is None else epoch
        part = groups.OffsetCommitRequest.OffsetCommitRequestPartition(partition, offset)
        one = groups.OffsetCommitRequest.OffsetCommitRequestTopic(topic, partitions=[part])
        request = groups.OffsetCommitRequest(GROUP, number, member_id, topics=[one])
        shown = f"OffsetCommit v{version} {topic}-{partition} epoch={number}"
        self._send(who, request, version, f"{shown}{self._named(member_id, None)}")

    def fetch_848(
        self, who: str, topic: str, *, epoch: int | None = None, member_id: str | None = ""
    ) -> None:
        number = self.epoch.get(who, -1) if epoch is None else epoch
        sent_id = who if member_id == "" else member_id
        asked = groups.OffsetFetchRequest.OffsetFetchRequestTopics(topic, partition_indexes=[0, 1])
        one = groups.OffsetFetchRequest.OffsetFetchRequestGroup(GROUP, sent_id, number, [asked])
        shown = f"OffsetFetch v9 epoch={number} as {sent_id}"
        self._send(who, groups.OffsetFetchRequest(groups=[one]), 9, shown)

    def delete_offset_of(self, topic: str) -> None:
        one = groups.OffsetDeleteRequest.OffsetDeleteRequestTopic(topic)
        one.partitions = [groups.OffsetDeleteRequest.OffsetDeleteRequestPartition(0)]
        shown = f"OffsetDelete v0 {topic}"
        self._send("admin", groups.OffsetDeleteRequest(GROUP, [one]), 0, shown)

    def classic(self, who: str, *topics: str, owned: Assigned | None = None, **fields: Any) -> None:
        """JoinGroup of a consumer of the classic protocol."""
        metadata = subscription(topics, owned or {})
        fields = {"session_ms": 10_000, "rebalance_ms": 10_000, **fields}
        self.join(who, protocols=(("range", metadata),), protocol_type="consumer", **fields)

    # inside

    def _id_of(self, name: str) -> bytes:
        known = {shown: topic_id for topic_id, shown in self._names.items()}
        return known.get(name) or bytes(15) + b"\7"

    def _id(self, text: str | None) -> str:
        if text is not None and SHORT_UUID.fullmatch(text):
            return self._ids.setdefault(text, f"id{len(self._ids) + 1}")
        return super()._id(text)

    def _shown(self, who: str, answer: Any) -> str:
        match answer:
            case ConsumerGroupHeartbeatResponse():
                return self._beaten(who, answer)
            case ConsumerGroupDescribeResponse():
                return self._described_848(answer.groups[0])
            case groups.ListGroupsResponse():
                mine = [one for one in answer.groups if one.group_id == GROUP]
                shown = [
                    f"{one.protocol_type!r} {one.group_state} {one.group_type}" for one in mine
                ]
                return f"{answer.error_code} {shown}"
            case _:
                return super()._shown(who, answer)

    def _beaten(self, who: str, answer: ConsumerGroupHeartbeatResponse) -> str:
        code = f"{answer.error_code} {ErrorCode(answer.error_code).name}"
        if answer.error_code:
            return f"{code} {answer.error_message!r}"
        if answer.member_id:
            self.member[who] = answer.member_id
        self.epoch[who] = max(answer.member_epoch, 0)
        shown = "-"
        if answer.assignment is not None:
            assigned = {
                self._names[one.topic_id]: sorted(one.partitions)
                for one in answer.assignment.topic_partitions
            }
            self.assigned[who] = assigned
            shown = _places(assigned)
        return (
            f"{code} member={self._id(answer.member_id)} epoch={answer.member_epoch}"
            f" every={answer.heartbeat_interval_ms} {shown}"
        )

    def _described_848(self, group: ConsumerGroupDescribeResponse.DescribedGroup) -> str:
        code = f"{group.error_code} {ErrorCode(group.error_code).name}"
        if group.error_code:
            return f"{code} {group.error_message!r} {group.group_state!r}"
        members = sorted(
            f"{self._id(one.member_id)}/{one.instance_id}/{one.rack_id} epoch={one.member_epoch}"
            f" {sorted(one.subscribed_topic_names)} {one.subscribed_topic_regex!r}"
            f" {_held(one.assignment)} of {_held(one.target_assignment)} type={one.member_type}"
            for one in group.members
        )
        return (
            f"{code} {group.group_state} epoch={group.group_epoch}/{group.assignment_epoch}"
            f" {group.assignor_name} [{'; '.join(members)}]"
        )


def subscription(topics: tuple[str, ...], owned: Assigned) -> bytes:
    """What a consumer puts into JoinGroup, in version 1."""
    message = ConsumerProtocolSubscription(
        list(topics),
        None,
        [ConsumerProtocolSubscription.TopicPartition(name, one) for name, one in owned.items()],
    )
    out = bytearray(struct.pack(">h", 1))
    encoder(ConsumerProtocolSubscription, 1)(message, out, [])
    return bytes(out)


def _places(assigned: Assigned) -> str:
    shown = [
        f"{name}:{','.join(map(str, parts))}" for name, parts in sorted(assigned.items()) if parts
    ]
    return " ".join(shown) or "nothing"


def _held(assignment: ConsumerGroupDescribeResponse.Assignment) -> str:
    return _places({one.topic_name: sorted(one.partitions) for one in assignment.topic_partitions})
