"""The script of `scenario.py` with the offsets of groups."""

from __future__ import annotations

from typing import Unpack

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import groups, transactions
from ottla.protocol.messages.consumer_group import ConsumerGroupHeartbeatRequest
from tests.transactions.names import OFFSETS
from tests.transactions.partition_scenario import PartitionScript
from tests.transactions.scenario import GROUP, Claims, Places, places_shown

Commit = transactions.TxnOffsetCommitRequest


class OffsetScript(PartitionScript):
    """A script that also commits offsets, and asks for them.

    `epoch` is what a member of a consumer group was told.
    """

    epoch = 0

    def commit_offsets(
        self,
        who: str,
        offset: int = 5,
        *,
        version: int = 5,
        group: str = GROUP,
        member: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str = "",
        places: Places | None = None,
        once: bool = False,
        **claims: Unpack[Claims],
    ) -> None:
        """TxnOffsetCommit."""
        claim = self._claim(who, claims)
        asked = {"t": [0]} if places is None else places
        partition = Commit.TxnOffsetCommitRequestPartition
        topics = [
            Commit.TxnOffsetCommitRequestTopic(
                self._names.on_wire(name), [partition(one, offset, 7, metadata) for one in chosen]
            )
            for name, chosen in asked.items()
        ]
        own = self._names.on_wire(claim.txn), self._names.on_wire(group)
        request = Commit(own[0], own[1], claim.pid, claim.epoch, topics=topics)
        where = places_shown(self._names, asked)
        shown = f"{self._shown(claim)} {group or repr('')} {where} at {offset}"
        if version >= 3:
            request.member_id, request.generation_id = member, generation
            request.group_instance_id = instance
            if member or generation != -1 or instance:
                named = self._names.shown(member) or repr("")
                shown += f" as {named} generation={generation} instance={instance}"
        self._tell(who, request, version, shown, once=once)

    def committed(
        self, *, stable: bool = False, group: str = GROUP, everything: bool = False
    ) -> None:
        """OffsetFetch."""
        asked = groups.OffsetFetchRequest.OffsetFetchRequestTopics(
            self._names.on_wire("t"), partition_indexes=[0, 1]
        )
        one = groups.OffsetFetchRequest.OffsetFetchRequestGroup(self._names.on_wire(group))
        one.topics = None if everything else [asked]
        request = groups.OffsetFetchRequest(groups=[one], require_stable=stable)
        kind = f"{' everything' if everything else ''}{' stable' if stable else ''}"
        self._tell("reader", request, 9, f"{group}{kind}")

    def mark_offsets(self, pid: int, epoch: int, *, commit: bool = True) -> None:
        """WriteTxnMarkers to where the group's offsets are."""
        self.mark(pid, epoch, commit=commit, places={OFFSETS: [self._names.home(GROUP)]})

    def join(self, *, instance: str | None = None, sync: bool = True) -> str:
        """A member of the group comes in; generation 1 is its own. Returns its id."""
        name = "test"
        request = groups.JoinGroupRequest(self._names.on_wire(GROUP), 60_000, 60_000)
        request.group_instance_id = instance
        request.protocol_type = name
        request.protocols = [groups.JoinGroupRequest.JoinGroupRequestProtocol(name)]
        answer = self._line.ask("member", request, 5)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = answer.member_id
            answer = self._line.ask("member", request, 5)
        member: str = answer.member_id
        self._names.call(member, "member")
        self.lines.append(f"  a member is in {GROUP}, its generation is {answer.generation_id}")
        if sync:
            self.sync(member, answer.generation_id)
        return member

    def sync(self, member: str, generation: int) -> None:
        """The member, who is alone, has its assignment."""
        request = groups.SyncGroupRequest(self._names.on_wire(GROUP), generation, member)
        self._line.ask("member", request, 2)

    def join_848(self) -> str:
        """A member of the consumer group comes in. Returns its id."""
        member = "M"
        beat = ConsumerGroupHeartbeatRequest(self._names.on_wire(GROUP), member)
        beat.rebalance_timeout_ms = 60_000
        beat.subscribed_topic_names = [self._names.on_wire("t")]
        beat.topic_partitions = []
        answer = self._line.ask("member", beat, 1)
        self.epoch = answer.member_epoch
        self.lines.append(f"  {member} is in {GROUP}, its epoch is {answer.member_epoch}")
        return member

    def commit_plainly(self, offset: int) -> None:
        """OffsetCommit, outside of any transaction."""
        part = groups.OffsetCommitRequest.OffsetCommitRequestPartition(0, offset, 7, "")
        topic = groups.OffsetCommitRequest.OffsetCommitRequestTopic(self._names.on_wire("t"))
        topic.partitions = [part]
        request = groups.OffsetCommitRequest(self._names.on_wire(GROUP), topics=[topic])
        self._tell("reader", request, 9, f"{GROUP} t-0 at {offset}")

    def delete_offset(self) -> None:
        topic = groups.OffsetDeleteRequest.OffsetDeleteRequestTopic(self._names.on_wire("t"))
        topic.partitions = [groups.OffsetDeleteRequest.OffsetDeleteRequestPartition(0)]
        request = groups.OffsetDeleteRequest(self._names.on_wire(GROUP), [topic])
        self._tell("admin", request, 0, f"{GROUP} t-0")

    def delete_group(self) -> None:
        request = groups.DeleteGroupsRequest([self._names.on_wire(GROUP)])
        self._tell("admin", request, 2, GROUP)
