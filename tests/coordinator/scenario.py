"""A script for groups that reads like a conversation, and leaves a trace that can be compared.

The same script talks to a shard alone, in virtual time, and to a broker over the wire (`wire.py`),
Apache Kafka included: `traces/*.txt` are what Apache Kafka answered. A line is `who request fields
-> answer`; `parked` is an answer that comes later, on a line of its own that begins with `<`.
Ids that a broker makes up are shown as `id1`, `id2`, in the order in which they are first seen.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import groups
from ottla.protocol.schema import Message

RANDOM = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
UUID = re.compile(rf"[\w.-]*{RANDOM}")
SESSION_MS = 2_000
REBALANCE_MS = 3_000
GROUP = "g"
TOPIC = "t"


class StillWaiting(Exception):
    """Somebody is to go on who has had no answer yet."""


class Target(Protocol):
    """Something that answers group requests; `who` is a connection of its own."""

    def send(self, who: str, request: Message, version: int) -> None: ...

    def answers(self) -> list[tuple[str, Any]]:
        """What has come since the last call, by connection."""

    def wait(self, ms: int) -> None: ...


class Script:
    """One conversation about one group. `member` knows each member's id and generation."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._ids: dict[str, str] = {}
        self.member: dict[str, str] = {}
        self.generation: dict[str, int] = {}
        self._protocol: dict[str, str] = {}
        self._waiting: dict[str, None] = {}
        self.lines: list[str] = []

    def title(self, text: str) -> None:
        self.lines.append(f"# {text}")

    def wait(self, ms: int) -> None:
        """Lets time pass."""
        self._target.wait(ms)
        self.lines.append(f"  {ms} ms pass")
        self._collect()

    def join(
        self,
        who: str,
        *,
        version: int = 9,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"r"),),
        protocol_type: str = "test",
        member_id: str | None = None,
        instance: str | None = None,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        group: str = GROUP,
    ) -> None:
        sent_id = self.member.get(who, "") if member_id is None else member_id
        request = groups.JoinGroupRequest(
            group,
            session_ms,
            rebalance_ms if version >= 1 else -1,
            sent_id,
            instance,
            protocol_type,
            [groups.JoinGroupRequest.JoinGroupRequestProtocol(*one) for one in protocols],
        )
        names = ",".join(name for name, _ in protocols)
        shown = f"JoinGroup v{version} [{names}]"
        self._send(who, request, version, f"{shown}{self._named(sent_id, instance)}")

    def show_id(self, who: str) -> None:
        """What a member's id is like, but for its random part."""
        self.lines.append(f"  the id of {who} is {re.sub(RANDOM, 'UUID', self.member[who])}")

    def enter(self, who: str, **fields: Any) -> None:
        """Joins in two steps, as clients do."""
        self.join(who, **fields)
        self.join(who, **fields)

    def sync(
        self,
        who: str,
        assignments: dict[str, bytes] | None = None,
        *,
        version: int = 5,
        generation: int | None = None,
        member_id: str | None = None,
        instance: str | None = None,
        protocol_name: str | None = "",
        protocol_type: str | None = "test",
    ) -> None:
        sent_id = self.member.get(who, "") if member_id is None else member_id
        request = groups.SyncGroupRequest(
            GROUP,
            self.generation.get(who, -1) if generation is None else generation,
            sent_id,
            instance,
            protocol_type,
            self._protocol.get(who, "range") if protocol_name == "" else protocol_name,
            [
                groups.SyncGroupRequest.SyncGroupRequestAssignment(self.member[name], content)
                for name, content in (assignments or {}).items()
            ],
        )
        shown = f"SyncGroup v{version} generation={request.generation_id}"
        self._send(who, request, version, f"{shown}{self._named(sent_id, instance)}")

    def heartbeat(
        self,
        who: str,
        *,
        version: int = 4,
        generation: int | None = None,
        member_id: str | None = None,
        instance: str | None = None,
        group: str = GROUP,
    ) -> None:
        sent_id = self.member.get(who, "") if member_id is None else member_id
        request = groups.HeartbeatRequest(
            group,
            self.generation.get(who, -1) if generation is None else generation,
            sent_id,
            instance,
        )
        shown = f"Heartbeat v{version} generation={request.generation_id}"
        self._send(who, request, version, f"{shown}{self._named(sent_id, instance)}")

    def leave(
        self,
        who: str,
        *,
        version: int = 5,
        member_id: str | None = None,
        instance: str | None = None,
        group: str = GROUP,
    ) -> None:
        sent_id = self.member.get(who, "") if member_id is None else member_id
        request = groups.LeaveGroupRequest(group)
        if version < 3:
            request.member_id = sent_id
        else:
            request.members = [groups.LeaveGroupRequest.MemberIdentity(sent_id, instance)]
        shown = f"LeaveGroup v{version}{self._named(sent_id, instance)}"
        self._send(who, request, version, shown)

    def commit(
        self,
        who: str,
        offset: int,
        *,
        version: int = 9,
        generation: int | None = None,
        member_id: str | None = None,
        instance: str | None = None,
        metadata: str = "",
        group: str = GROUP,
    ) -> None:
        sent_id = self.member.get(who, "") if member_id is None else member_id
        sent = self.generation.get(who, -1) if generation is None else generation
        partition = groups.OffsetCommitRequest.OffsetCommitRequestPartition(0, offset, 7, metadata)
        topic = groups.OffsetCommitRequest.OffsetCommitRequestTopic(TOPIC)
        topic.partitions = [partition]
        request = groups.OffsetCommitRequest(group, sent, sent_id, instance, topics=[topic])
        shown = f"OffsetCommit v{version} {offset} generation={sent}"
        shown += self._named(sent_id, instance)
        self._send(who, request, version, shown)

    def fetch(self, who: str, *, version: int = 9, group: str = GROUP) -> None:
        topic = groups.OffsetFetchRequest.OffsetFetchRequestTopics(TOPIC, partition_indexes=[0, 1])
        one = groups.OffsetFetchRequest.OffsetFetchRequestGroup(group, topics=[topic])
        self._send(who, groups.OffsetFetchRequest(groups=[one]), version, f"OffsetFetch v{version}")

    def describe(self, *, version: int = 6, group: str = GROUP) -> None:
        request = groups.DescribeGroupsRequest([group])
        self._send("admin", request, version, f"DescribeGroups v{version}")

    def delete_group(self, *, group: str = GROUP) -> None:
        self._send("admin", groups.DeleteGroupsRequest([group]), 2, "DeleteGroups v2")

    def delete_offset(self, *, group: str = GROUP) -> None:
        topic = groups.OffsetDeleteRequest.OffsetDeleteRequestTopic(TOPIC)
        topic.partitions = [groups.OffsetDeleteRequest.OffsetDeleteRequestPartition(0)]
        self._send("admin", groups.OffsetDeleteRequest(group, [topic]), 0, "OffsetDelete v0")

    # inside

    def _send(self, who: str, request: Message, version: int, shown: str) -> None:
        if who in self._waiting:
            raise StillWaiting(who)
        self._target.send(who, request, version)
        answers = self._target.answers()
        own = [answer for name, answer in answers if name == who]
        if own:
            self.lines.append(f"{who} {shown} -> {self._shown(who, own[0])}")
        else:
            self._waiting[who] = None
            self.lines.append(f"{who} {shown} -> parked")
        self._later([(name, answer) for name, answer in answers if name != who])

    def _collect(self) -> None:
        self._later(self._target.answers())

    def _later(self, answers: list[tuple[str, Any]]) -> None:
        for name, answer in sorted(answers, key=lambda one: one[0]):
            del self._waiting[name]
            self.lines.append(f"  < {name} {self._shown(name, answer)}")

    def _named(self, member_id: str, instance: str | None) -> str:
        shown = f" as {self._id(member_id)}" if member_id else ""
        return shown + (f" instance={instance}" if instance else "")

    def _id(self, text: str | None) -> str:
        if text is None:
            return "null"
        if UUID.fullmatch(text):
            return self._ids.setdefault(text, f"id{len(self._ids) + 1}")
        return text or "''"

    def _shown(self, who: str, answer: Any) -> str:
        match answer:
            case groups.JoinGroupResponse():
                return self._joined(who, answer)
            case groups.SyncGroupResponse():
                shown = _code(answer.error_code)
                if not answer.error_code:
                    kind = f"{answer.protocol_type}/{answer.protocol_name}"
                    shown += f" {answer.assignment!r} {kind}"
                return shown
            case groups.LeaveGroupResponse():
                parts = [
                    f"{self._id(one.member_id)}/{one.group_instance_id}: {_code(one.error_code)}"
                    for one in answer.members
                ]
                return " ".join([_code(answer.error_code), *parts])
            case groups.OffsetCommitResponse():
                return _code(answer.topics[0].partitions[0].error_code)
            case groups.OffsetFetchResponse():
                (group,) = answer.groups
                parts = [
                    f"{one.partition_index}: {one.committed_offset} epoch="
                    f"{one.committed_leader_epoch} {one.metadata!r} {_code(one.error_code)}"
                    for topic in group.topics
                    for one in topic.partitions
                ]
                return "; ".join([_code(group.error_code), *parts])
            case groups.DescribeGroupsResponse():
                return self._described(answer.groups[0])
            case groups.DeleteGroupsResponse():
                return _code(answer.results[0].error_code)
            case groups.OffsetDeleteResponse():
                codes = [_code(one.error_code) for t in answer.topics for one in t.partitions]
                return " ".join([_code(answer.error_code), *codes])
            case _:
                return _code(answer.error_code)

    def _joined(self, who: str, answer: groups.JoinGroupResponse) -> str:
        if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member[who] = answer.member_id
        if not answer.error_code:
            self.generation[who] = answer.generation_id
            self._protocol[who] = answer.protocol_name or ""
        members = ",".join(
            sorted(f"{self._id(one.member_id)}:{one.metadata!r}" for one in answer.members)
        )
        return (
            f"{_code(answer.error_code)} generation={answer.generation_id}"
            f" {answer.protocol_type}/{answer.protocol_name!r} leader={self._id(answer.leader)}"
            f" member={self._id(answer.member_id)} members=[{members}]"
            f"{' skip' if answer.skip_assignment else ''}"
        )

    def _described(self, group: groups.DescribeGroupsResponse.DescribedGroup) -> str:
        members = sorted(
            f"{self._id(one.member_id)}/{one.group_instance_id}"
            f" {one.member_metadata!r} {one.member_assignment!r}"
            for one in group.members
        )
        return (
            f"{_code(group.error_code)} {group.error_message!r} {group.group_state}"
            f" {group.protocol_type!r} {group.protocol_data!r} [{', '.join(members)}]"
        )


def _code(number: int) -> str:
    return f"{number} {ErrorCode(number).name}"
