"""Groups whose members change from the classic protocol to KIP-848 and back, one after the other.

As in `groups`, but each member has a protocol of its own at any time, and wants topics that there
are, so that a group which is upgraded or downgraded has something to hand on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.protocol.api import ApiKey
from tests.differences.chance import Chance
from tests.differences.groups import (
    CLASSIC,
    CONSUMER,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    TOPICS,
    UNKNOWN,
    WEIGHTS,
    Groups,
)
from tests.differences.known_upgrades import MEMBERS, ONLOOKER
from tests.differences.requests import (
    Assigned,
    Body,
    Dealt,
    HangUp,
    MemberEpoch,
    MemberId,
    Request,
    Sequence,
    Step,
    Subscription,
)

CHANGES = 0.09
"""So many steps are changes of a member's protocol."""
CLASSIC_WEIGHTS: dict[str, float] = {"join": 9, "sync": 9, "heartbeat": 5, "leave": 1, "hang_up": 1}
SHOWN_SHARE = 0.3
STRANGE = b""
"""Metadata that is no subscription."""


def sequence(seed: int) -> Sequence:
    return _Upgrades(Chance("upgrades", seed)).sequence()


class _Upgrades(Groups):
    def __init__(self, chance: Chance) -> None:
        super().__init__(chance)
        self.members = MEMBERS
        self.topics = chance.one(["~a"], ["~b"])
        self.static = {member for member in self.members if chance.happens(0.4)}
        self.protocols = {member: chance.one(CLASSIC, CLASSIC, CONSUMER) for member in self.members}
        self.as_new = set(self.members)
        """Who joins under no name that it had."""
        self.turn = self.members[0]
        self.planned: list[Step] = []
        # Whose metadata as a classic member nobody can read.
        self.strange: set[str] = set()

    def step(self) -> Step:
        chance = self.chance
        if self.planned:
            return self.planned.pop(0)
        self.turn = chance.of(self.members)
        self.kind = self.protocols[self.turn]
        if chance.happens(CHANGES) and not self.strange:
            return self._change()
        if chance.happens(SHOWN_SHARE):
            return self._shown()
        if self.kind == CLASSIC:
            return self.drawn(chance.weighed(CLASSIC_WEIGHTS))
        return self.drawn("consumer_heartbeat")

    def _shown(self) -> Step:
        step = self.drawn(self.chance.weighed(WEIGHTS))
        return step if isinstance(step, HangUp) else tuple(replace(r, who=ONLOOKER) for r in step)

    def _change(self) -> Step:
        """The member joins with the other protocol, which a dynamic one does by another name."""
        member = self.turn
        if self.kind == CONSUMER and member in self.static:
            # Of a group that becomes a classic one more can be compared if all have what they are
            # to have.
            self.planned += [*self._settling(), self._changed()]
            return self.planned.pop(0)
        return self._changed()

    def _settling(self) -> list[Step]:
        (other,) = set(self.members) - {self.turn}
        reports = [(self._report(self.turn),)] * 2
        if self.protocols[other] == CONSUMER:
            return [*reports, (self._report(other),)]
        self.turn, member = other, self.turn
        comes_back = (self._join(), self._sync())
        self.turn = member
        return [*reports, *((one,) for one in comes_back)]

    def _report(self, member: str) -> Request:
        """It has what it was told to have."""
        body = {
            "group_id": GROUP,
            "member_id": f"~{member}",
            "instance_id": self._instance(member),
            "member_epoch": MemberEpoch(member),
            "topic_partitions": Assigned(member),
        }
        return Request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, body, who=member, name=member)

    def _changed(self) -> Step:
        member = self.turn
        self.protocols[member] = self.kind = CLASSIC if self.kind == CONSUMER else CONSUMER
        self.began.discard(member)
        self.as_new.add(member)
        return self.drawn("join" if self.kind == CLASSIC else "consumer_heartbeat")

    def _member(self) -> str:
        return self.turn if self.chance.happens(0.95) else self.chance.of(self.members)

    def _member_id(self, member: str, wrong: float = 0.03) -> Any:
        return super()._member_id(member, wrong)

    def _epoch(self, member: str, wrong: float = 0.04) -> Any:
        return super()._epoch(member, wrong)

    def _group(self) -> str:
        return GROUP

    def _join(self) -> Request:
        chance = self.chance
        member = self.turn
        version = self._version(member, ApiKey.JOIN_GROUP)
        # Of two that are liked equally each broker takes the one that it finds first.
        names = chance.one(["range"], ["range"], ["range", "roundrobin"])
        if chance.happens(0.03):
            names = ["other"]
        metadata: Any = Subscription(tuple(self._subscription()), chance.one(0, 1, 1, 2, 3), member)
        self.strange.discard(member)
        if chance.happens(0.03) and CONSUMER in self.protocols.values():
            # A classic group with it cannot be upgraded, and Kafka tries: it sends waiters away.
            metadata = STRANGE
            self.strange.add(member)
        # Who was told its id comes again with it.
        is_new = member in self.as_new
        member_id: Any = MemberId(member)
        if is_new and (chance.happens(0.85) or member in self.static):
            member_id = ""
        self.as_new.discard(member)
        body = {
            "group_id": GROUP,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "member_id": member_id,
            "protocol_type": "other" if chance.happens(0.02) else "consumer",
            "protocols": [{"name": name, "metadata": metadata} for name in names],
        }
        if version >= 5:
            body["group_instance_id"] = self._instance(member)
        return Request(ApiKey.JOIN_GROUP, version, body, who=member, name=member)

    def _sync(self) -> Request:
        chance = self.chance
        member = self.turn
        version = self._version(member, ApiKey.SYNC_GROUP)
        body: Body = {
            "group_id": GROUP,
            "generation_id": self._epoch(member),
            "member_id": self._member_id(member),
            "assignments": self._dealt_out() if chance.happens(0.85) else [],
        }
        if version >= 3:
            body["group_instance_id"] = self._instance(member)
        if version >= 5 and chance.happens(0.97):
            body["protocol_type"] = "consumer" if chance.happens(0.98) else "other"
            body["protocol_name"] = chance.one("range", "range", "range", "range", "roundrobin")
        return Request(ApiKey.SYNC_GROUP, version, body, who=member, name=member)

    def _dealt_out(self) -> list[Body]:
        """Each topic's partitions, half of them to each member."""
        everything = [(topic, tuple(range(TOPICS[topic]))) for topic in self.topics]
        halves = [
            Dealt(tuple((topic, part[half::2]) for topic, part in everything)) for half in (0, 1)
        ]
        return [
            {"member_id": MemberId(member), "assignment": half}
            for member, half in zip(self.members, halves, strict=True)
        ]

    def _first_heartbeat(self, version: int) -> Body:
        # Kafka sends away who waits in a classic group also if the heartbeat is refused in the end.
        return {
            "member_epoch": 0,
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_topic_names": self._subscription(),
            "topic_partitions": [],
            "server_assignor": self.chance.one(None, None, None, "uniform"),
        }

    def _subscription(self) -> list[str]:
        return [*self.topics, UNKNOWN] if self.chance.happens(0.1) else self.topics
