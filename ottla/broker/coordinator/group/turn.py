"""One command at work on a shard: its moment, its timers, and what comes of it so far."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from ottla.broker.coordinator.group.classic import ClassicGroup, Member
from ottla.broker.coordinator.group.settings import GroupSettings
from ottla.broker.coordinator.outcome import (
    Answer,
    CoordinatorRecord,
    Counted,
    Moment,
    Outcome,
    Reply,
    Stamp,
    Told,
)
from ottla.broker.coordinator.timers import Timers
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.coordinator_records import GroupMetadataKey
from ottla.protocol.messages.groups import JoinGroupResponse, SyncGroupResponse
from ottla.protocol.schema import Message

if TYPE_CHECKING:
    from ottla.broker.coordinator.group.shard import GroupShard


class TimerKind(Enum):
    __hash__ = object.__hash__  # Enum's own is Python, and each request sets a few timers
    JOIN = auto()
    """The end of a join phase, or of a step of the initial delay."""
    SYNC = auto()
    """By then every member of the generation has sent SyncGroup."""
    SETTLE = auto()
    """No newcomer has followed the last one: who has joined is the next generation."""
    SESSION = auto()
    """A member, or one that was given an id and has not come with it, is taken for dead."""
    REVOKE = auto()
    """By then a member of a consumer group has given up what it is to give up."""
    MEMBER_JOIN = auto()
    """By then a member of the classic protocol in a consumer group has joined again."""
    MEMBER_SYNC = auto()
    """By then it has sent SyncGroup."""


_MEMBER_TIMERS = (
    TimerKind.SESSION,
    TimerKind.REVOKE,
    TimerKind.MEMBER_JOIN,
    TimerKind.MEMBER_SYNC,
)


NO_MEMBER = ""
Timer = tuple[TimerKind, str, str]
"""Its kind, its group, and its member; NO_MEMBER if it is the whole group's. No class of its own,
for each request sets and cancels a few."""


class Turn:
    """Handed to the rules of one command; `outcome` is what the shell performs."""

    __slots__ = ("_settings", "now", "outcome", "shard", "timers")

    def __init__(self, shard: GroupShard, now: Moment) -> None:
        self.shard = shard
        self.now = now
        self.outcome = Outcome(now)
        self.timers: Timers[Timer] = shard.timers
        self._settings: GroupSettings | None = None

    @property
    def settings(self) -> GroupSettings:
        """Those of the whole turn: they are asked for more than once."""
        settings = self._settings
        if settings is None:
            settings = self._settings = self.shard.settings
        return settings

    def write(self, key: Message, value: Message | None) -> None:
        """A record: it changes the state here and now, and the log with this outcome."""
        record = CoordinatorRecord(key, value)
        self.outcome.records.append(record)
        self.shard.apply(record, self.now.wall_ms)

    def write_pending(self, key: Message, value: Message, stamp: Stamp) -> None:
        """A record of a producer's transaction, which counts when that is committed."""
        record = CoordinatorRecord(key, value)
        self.outcome.stamp = stamp
        self.outcome.records.append(record)
        self.shard.apply(record, self.now.wall_ms, stamp.producer_id)

    def write_group(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        value = group.to_value(self.now.wall_ms, assignments)
        self.write(GroupMetadataKey(group.group_id), value)

    def answer(
        self, reply: Reply, response: Any, *, overtaken: Callable[[], Any] | None = None
    ) -> None:
        """Once everything that was written so far is durable."""
        self.outcome.answers.append(Answer(reply, response, overtaken))

    def answer_now(self, reply: Reply, response: Any) -> None:
        """At once: it says nothing that is ever written down."""
        self.outcome.answers_now.append(Answer(reply, response))

    def tell(self, event: str, group_id: str, reason: str, **fields: Any) -> None:
        self.outcome.told.append(Told(event, group_id, reason, fields))

    def count(self, what: Counted, times: int) -> None:
        counted = self.outcome.counted
        counted[what] = counted.get(what, 0) + times

    def start(self, timer: Timer, delay_ms: int) -> None:
        self.timers.set(timer, self.now.monotonic_ms + delay_ms)

    def cancel_member_timers(self, group_id: str, member_id: str) -> None:
        """All that a member of a modern group may have."""
        for kind in _MEMBER_TIMERS:
            self.timers.cancel((kind, group_id, member_id))

    def restart_session(
        self, group: ClassicGroup, member: Member, *, timeout_ms: int | None = None
    ) -> None:
        """The member has just been heard of."""
        self.start(
            (TimerKind.SESSION, group.group_id, member.member_id),
            member.session_timeout_ms if timeout_ms is None else timeout_ms,
        )

    def evict(self, group: ClassicGroup, member: Member, reason: str) -> None:
        """Takes a member out against its will."""
        self.tell(
            "group_member_evicted",
            group.group_id,
            reason,
            member_id=member.member_id,
            client_id=member.client_id,
            client_host=member.client_host,
            generation=group.generation,
        )
        self.forget(group, member, ErrorCode.UNKNOWN_MEMBER_ID)

    def forget(self, group: ClassicGroup, member: Member, code: ErrorCode) -> None:
        """Takes a member out; if it waits for an answer, that is `code`."""
        self.timers.cancel((TimerKind.SESSION, group.group_id, member.member_id))
        self.refuse_waiting(group, member, code, member_id="")
        group.remove(member.member_id)

    def refuse_waiting(
        self, group: ClassicGroup, member: Member, code: ErrorCode, *, member_id: str
    ) -> None:
        """Answers what the member's requests wait for by an error; `member_id` is echoed."""
        reply = group.take_join_reply(member)
        if reply is not None:
            self.answer(
                reply,
                JoinGroupResponse(error_code=int(code), protocol_name=None, member_id=member_id),
            )
        if member.sync_reply is not None:
            reply, member.sync_reply = member.sync_reply, None
            self.answer(reply, SyncGroupResponse(error_code=int(code)))
