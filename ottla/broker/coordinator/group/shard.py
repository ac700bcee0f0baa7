"""The groups and offsets of one partition of __consumer_offsets: a pure state machine.

A method is one command: it takes the request and the moment, and returns an `Outcome`. `apply` is
the only way in which a record changes anything, whether it has just been written or is replayed.
Each kind of group (classic, consumer, share) has its rules in files of its own in this folder, its
records in `apply`, its timers in `expire`.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.broker.coordinator.group import (
    commits,
    consumer_classic,
    consumer_heartbeat,
    consumer_members,
    consumer_replay,
    joining,
    membership,
    share_members,
    share_replay,
    transactional,
)
from ottla.broker.coordinator.group.classic import ClassicGroup
from ottla.broker.coordinator.group.consumer import ConsumerGroup
from ottla.broker.coordinator.group.joining import Caller
from ottla.broker.coordinator.group.kinds import Group
from ottla.broker.coordinator.group.modern import ModernGroup
from ottla.broker.coordinator.group.offsets import NO_PRODUCER_ID, Offsets
from ottla.broker.coordinator.group.settings import GroupSettings, Intervals
from ottla.broker.coordinator.group.share import ShareGroup
from ottla.broker.coordinator.group.states import State
from ottla.broker.coordinator.group.topics import Topics
from ottla.broker.coordinator.group.turn import NO_MEMBER, Timer, TimerKind, Turn
from ottla.broker.coordinator.latest import LatestRecords
from ottla.broker.coordinator.outcome import (
    Anew,
    CoordinatorRecord,
    EndMarker,
    Moment,
    Outcome,
    Reply,
)
from ottla.broker.coordinator.timers import Timers
from ottla.broker.ports import Rng
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.protocol.messages.transactions import TxnOffsetCommitRequest
from ottla.protocol.schema import Message

_APPLIERS: dict[type[Message], Callable[[GroupShard, Any, Any], None]] = {
    **consumer_replay.APPLIERS,
    **share_replay.APPLIERS,
}
"""Of the kinds of groups that have several types of records, all of one file each."""


class GroupShard:
    """One shard. `settings` is asked at each command, for they change at run time; so are
    `topics` and `group_config`, the settings of one group."""

    def __init__(
        self,
        *,
        settings: Callable[[], GroupSettings],
        topics: Topics,
        group_config: Callable[[str], Mapping[str, str]],
        rng: Rng,
    ) -> None:
        self._settings = settings
        self._rng = rng
        self.topics = topics
        self._group_config = group_config
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self._latest = LatestRecords()  # of all but the offsets
        self.timers: Timers[Timer] = Timers()
        self.new_topics_version = -1
        """Of the topics when the newest of them came, as far as this shard has seen it."""

    def __repr__(self) -> str:
        return f"<GroupShard groups={len(self.groups)} {self.offsets!r} {self.timers!r}>"

    @property
    def settings(self) -> GroupSettings:
        return self._settings()

    # commands

    def join(self, caller: Caller, request: JoinGroupRequest, reply: Reply, now: Moment) -> Outcome:
        turn = Turn(self, now)
        asked = joining.check_join(turn, caller, request, reply)
        if asked is not None:
            match self.groups.get(request.group_id):
                case ConsumerGroup(is_empty=False) as group:
                    consumer_classic.join(turn, group, asked)
                case _:
                    joining.join(turn, asked)
        return turn.outcome

    def sync(self, caller: Caller, request: SyncGroupRequest, reply: Reply, now: Moment) -> Outcome:
        turn = Turn(self, now)
        if not membership.names_its_protocol(request, caller.version):
            refused = int(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            turn.answer(reply, SyncGroupResponse(error_code=refused))
            return turn.outcome
        match self.groups.get(request.group_id):
            case ConsumerGroup() as group:
                turn.answer(reply, consumer_classic.sync(turn, group, request))
            case _:
                membership.sync(turn, request, reply)
        return turn.outcome

    def heartbeat(self, request: HeartbeatRequest, reply: Reply, now: Moment) -> Outcome:
        turn = Turn(self, now)
        match self.groups.get(request.group_id):
            case ConsumerGroup() as group:
                code = consumer_classic.heartbeat(turn, group, request)
            case _:
                code = membership.heartbeat(turn, request)
        turn.answer(reply, HeartbeatResponse(error_code=int(code)))
        return turn.outcome

    def leave(
        self, caller: Caller, request: LeaveGroupRequest, reply: Reply, now: Moment
    ) -> Outcome:
        turn = Turn(self, now)
        group = self.groups.get(request.group_id)

        def leave_all(leavers: list[membership.Leaver]) -> list[ErrorCode]:
            match group:
                case ClassicGroup():
                    return membership.leave_classic(turn, group, leavers)
                case ConsumerGroup():
                    return consumer_classic.leave(turn, group, leavers)
                case _:
                    return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leavers)

        turn.answer(reply, membership.leave(turn, caller, request, leave_all))
        return turn.outcome

    def commit_offsets(
        self, caller: Caller, request: OffsetCommitRequest, reply: Reply, now: Moment
    ) -> Outcome:
        """`request` names its topics, whatever its version."""
        turn = Turn(self, now)
        turn.answer(reply, commits.commit_offsets(turn, caller, request))
        return turn.outcome

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, reply: Reply, now: Moment
    ) -> Outcome:
        """Offsets that count when the transaction of their producer is committed."""
        turn = Turn(self, now)
        turn.answer(reply, transactional.commit_offsets(turn, request))
        return turn.outcome

    def decide_transaction(self, marker: EndMarker, reply: Reply, now: Moment) -> Outcome:
        """A producer's transaction is over: what it has committed counts, or is forgotten.
        Answered with an error code."""
        turn = Turn(self, now)
        self.end_transaction(marker.producer_id, is_commit=marker.committed)
        turn.outcome.marker = marker
        turn.answer(reply, ErrorCode.NONE)
        return turn.outcome

    def delete_offsets(self, request: OffsetDeleteRequest, reply: Reply, now: Moment) -> Outcome:
        turn = Turn(self, now)
        turn.answer(reply, commits.delete_offsets(turn, request))
        return turn.outcome

    def delete_group(self, group_id: str, reply: Reply, now: Moment) -> Outcome:
        turn = Turn(self, now)
        turn.answer(reply, commits.delete_group(turn, group_id))
        return turn.outcome

    def consumer_heartbeat(
        self, caller: Caller, request: ConsumerGroupHeartbeatRequest, reply: Reply, now: Moment
    ) -> Outcome:
        turn = Turn(self, now)
        turn.answer(reply, consumer_heartbeat.heartbeat(turn, caller, request))
        return turn.outcome

    def carry_out(self, command: Callable[[Turn], Any], reply: Reply, now: Moment) -> Outcome:
        """A command of a kind of group that is whole in a function: what it returns is answered."""
        turn = Turn(self, now)
        turn.answer(reply, command(turn))
        return turn.outcome

    def expire(self, now: Moment) -> Outcome:
        """Whatever is due now; call it when `timers.next_ms` comes."""
        turn = Turn(self, now)
        for timer in self.timers.take_due(now.monotonic_ms):
            _, group_id, _ = timer
            match self.groups.get(group_id):
                case ClassicGroup() as group:
                    membership.time_is_up(turn, group, timer)
                case ConsumerGroup() as group:
                    consumer_members.time_is_up(turn, group, timer)
                case ShareGroup() as group:
                    share_members.time_is_up(turn, group, timer)
        return turn.outcome

    def topics_changed(self, names: Iterable[str], *, any_new: bool) -> None:
        """Topics were made, deleted or changed: the next heartbeat of a group that wants one of
        them looks whether it is to be assigned anew; if one is new, also whether a regular
        expression matches it."""
        changed = frozenset(names)
        if any_new:
            self.new_topics_version = self.topics.version
        for group in self.groups.values():
            if isinstance(group, ModernGroup) and not changed.isdisjoint(group.wanted_names):
                group.metadata_is_stale = True

    def expire_offsets(self, now: Moment) -> Outcome:
        """A periodic job: forgets offsets that nobody has used for offsets.retention.minutes, and
        those of topics that are gone, in case there was no room for that."""
        turn = Turn(self, now)
        self._forget_gone(turn)
        commits.expire_offsets(turn)
        return turn.outcome

    def topics_deleted(self, names: list[str], now: Moment) -> Outcome:
        """The offsets committed for topics that are gone go, too."""
        turn = Turn(self, now)
        commits.topics_deleted(turn, names)
        for group in self.groups.values():
            if isinstance(group, ShareGroup):
                share_members.topics_deleted(turn, group)
        return turn.outcome

    def loaded(self, now: Moment) -> Outcome:
        """All records are replayed: sessions begin anew, and groups over their size rebalance."""
        turn = Turn(self, now)
        # Whatever has come since the regular expressions were matched, nobody noticed here.
        self.new_topics_version = self.topics.version
        for group in self.groups.values():
            match group:
                case ClassicGroup():
                    membership.loaded(turn, group)
                case ConsumerGroup():
                    consumer_members.loaded(turn, group)
                case ShareGroup():
                    share_members.loaded(turn, group)
        return turn.outcome

    def forget_gone(self, now: Moment) -> Outcome:
        """What was committed for topics that went meanwhile goes, too: a transaction's names no id
        to tell by later."""
        turn = Turn(self, now)
        self._forget_gone(turn)
        return turn.outcome

    def unloaded(self, now: Moment) -> Outcome:
        """This broker coordinates these groups no more: whoever waits is sent away."""
        turn = Turn(self, now)
        for group in self.groups.values():
            match group:
                case ClassicGroup():
                    membership.unloaded(turn, group)
        return turn.outcome

    # state

    def apply(
        self, record: CoordinatorRecord, now_wall_ms: int, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """What a record says; `producer_id` is that of the transaction which wrote it, if any."""
        key, value = record
        match key:
            case OffsetCommitKey() | LegacyOffsetCommitKey():
                self._apply_offset(key, value, now_wall_ms, producer_id)
            case GroupMetadataKey():
                self._latest.take(record)
                self._apply_classic(key, value, now_wall_ms)
            case _:
                self._latest.take(record)
                _APPLIERS[type(key)](self, key, value)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The marker of a producer's transaction stands in the log."""
        self.offsets.end_transaction(producer_id, is_commit=is_commit)

    @property
    def record_count(self) -> int:
        """How many records it needs."""
        return len(self._latest) + len(self.offsets)

    def written_anew(self, now: Moment, log: range) -> Anew | None:
        """Records of all that there is, or, while transactions are open, of all that was written
        before them. None if that is not worth it, or cannot be now."""
        cut = self.offsets.cut(log.stop)
        # Before all offsets are looked at: while a transaction hangs it is asked each second.
        if cut is None or cut.log_offset - log.start < max(2 * len(self._latest), 1):
            return None
        offsets = self.offsets.last_written(cut.sequence)
        if cut.log_offset - log.start < 2 * (len(self._latest) + len(offsets)):
            return None
        outcome = Outcome(now)
        outcome.records += self._latest
        for place, committed in offsets:
            record = CoordinatorRecord(OffsetCommitKey(*place), committed.to_value())
            outcome.records.append(record)
            self.offsets.rewrite(place, committed)
        return Anew(outcome, cut.log_offset)

    def next_deadline_ms(self) -> int | None:
        """When `expire` wants to be called, in monotonic time."""
        return self.timers.next_ms()

    def create(self, turn: Turn, group_id: str) -> ClassicGroup:
        """A new group, Empty and of generation 0, which its record makes."""
        turn.write_group(ClassicGroup(group_id, turn.now.wall_ms), {})
        group = self.groups[group_id]
        assert isinstance(group, ClassicGroup), group
        return group

    def intervals_of(self, group: ModernGroup[Any]) -> Intervals:
        """The times of a modern group, its own settings over those of its kind."""
        overrides = self._group_config(group.group_id)
        return self.settings.of_kind(group.kind).of_group(group.kind, overrides)

    def group_of_member(self, group_id: str) -> ClassicGroup:
        """The classic group that a member says it is in; UNKNOWN_MEMBER_ID if there is none or it
        is empty."""
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup) or group.state is State.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    def topic_id_of(self, name: str) -> bytes | None:
        topic = self.topics.named(name)
        return None if topic is None else topic.topic_id

    def new_uuid(self) -> str:
        """A random UUID as Java prints it."""
        digits = f"{self._rng.getrandbits(128):032x}"
        variant = "89ab"[int(digits[16], 16) % 4]
        return (
            f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
        )

    def new_short_uuid(self) -> str:
        """A random UUID as Kafka prints its own, which begins with no dash."""
        while True:
            text = urlsafe_b64encode(self._rng.getrandbits(128).to_bytes(16)).decode().rstrip("=")
            if not text.startswith("-"):
                return text

    def tell_fenced(
        self,
        turn: Turn,
        group: ClassicGroup | ConsumerGroup,
        member_id: str,
        instance_id: str | None,
        api: str,
    ) -> None:
        """A static member was refused because another incarnation of it has come."""
        assert instance_id is not None
        turn.tell(
            "group_member_fenced",
            group.group_id,
            f"{api} by a former incarnation",
            instance_id=instance_id,
            member_id=member_id,
            current_member_id=group.static_members[instance_id],
        )

    def _forget_gone(self, turn: Turn) -> None:
        names = sorted(name for name in self.offsets.topics() if self.topic_id_of(name) is None)
        commits.topics_deleted(turn, names)

    def _apply_offset(
        self,
        key: OffsetCommitKey | LegacyOffsetCommitKey,
        value: object,
        now_wall_ms: int,
        producer_id: int,
    ) -> None:
        place = (key.group, key.topic, key.partition)
        if value is None:
            self.offsets.remove(place)
            return
        assert isinstance(value, OffsetCommitValue), value
        if key.group not in self.groups:
            # A group that only commits has no record of its own: its offsets are what there is.
            self.groups[key.group] = ClassicGroup(key.group, now_wall_ms)
        self.offsets.commit(place, value, producer_id)

    def _apply_classic(self, key: GroupMetadataKey, value: object, now_wall_ms: int) -> None:
        group = self.groups.get(key.group)
        if value is not None:
            assert isinstance(value, GroupMetadataValue), value
            if not isinstance(group, ClassicGroup):
                group = self.groups[key.group] = ClassicGroup(key.group, now_wall_ms)
            group.take(value)
        elif isinstance(group, ClassicGroup):
            del self.groups[key.group]
            for kind in (TimerKind.JOIN, TimerKind.SYNC, TimerKind.SETTLE):
                self.timers.cancel((kind, key.group, NO_MEMBER))
            for member_id in (*group.members, *group.pending_join):
                self.timers.cancel((TimerKind.SESSION, key.group, member_id))
