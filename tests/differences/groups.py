"""Groups by chance: members of the classic protocol and of KIP-848 that join, wait for one another,
commit, leave and hang up; offsets of share groups; and all that describes them.

A group keeps to one protocol; `upgrades` has those that change it. Share groups have no members
here: what they are assigned waits for a write to their state, which is done at once or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.protocol.api import SERVED, ApiKey
from tests.differences.chance import Chance
from tests.differences.requests import (
    Assigned,
    Body,
    HangUp,
    MemberEpoch,
    MemberId,
    Request,
    Sequence,
    Step,
    TopicId,
)

TOPICS = {"~a": 6, "~b": 6}
"""So many that any number of members have the same number of each."""
UNKNOWN = "~zz"
GROUP, OTHER_GROUP, SHARE_GROUP = "~g", "~h", "~s"
CLASSIC, CONSUMER = "classic", "consumer"
MEMBERS = ("m", "n", "o")
SUBSCRIPTIONS = (
    bytes.fromhex("0000 00000000 ffffffff"),
    bytes.fromhex("0000 00000001 0003 7e7a7a ffffffff"),
)
"""What members of the classic protocol want: nothing, and a topic that is not there."""
ASSIGNMENT = bytes.fromhex("0000 00000000 ffffffff")
SESSION_MS, REBALANCE_MS = 30_000, 60_000
"""Longer than a sequence takes: what ends by itself is another test's."""
STATIC_LEAVE, LEAVE = -2, -1
CLASSIC_WEIGHTS: dict[str, float] = {
    "join": 24,
    "sync": 16,
    "heartbeat": 8,
    "leave": 4,
    "hang_up": 2,
}
WEIGHTS: dict[str, float] = {
    "offset_commit": 8,
    "offset_fetch": 6,
    "offset_delete": 2,
    "describe_groups": 6,
    "consumer_describe": 4,
    "share_describe": 2,
    "list_groups": 3,
    "delete_groups": 1,
    "share_offsets": 1,
    "find_coordinator": 1,
}
SHARE_OFFSETS = (
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
)


def sequence(seed: int) -> Sequence:
    return Groups(Chance("groups", seed)).sequence()


class Groups:
    """Draws the sequences of groups of one kind."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.kind = chance.weighed({CLASSIC: 5, CONSUMER: 4})
        # One for all: how many partitions each of several has is then beyond doubt.
        self.topics = chance.one(["~a"], ["~b"], ["~a", "~b"])
        # Of three it depends on the assignor's order what each has while partitions are revoked.
        self.members = MEMBERS if self.kind == CLASSIC else MEMBERS[:2]
        # A member that has an instance id keeps it.
        self.static = {member for member in self.members if chance.happens(0.2)}
        self.versions: dict[tuple[str, ApiKey], int] = {}
        self.began: set[str] = set()

    def sequence(self) -> Sequence:
        made = [
            {"name": name, "num_partitions": count, "replication_factor": 1}
            for name, count in TOPICS.items()
        ]
        body = {"topics": made, "timeout_ms": 30_000}
        steps: list[Step] = [(Request(ApiKey.CREATE_TOPICS, 7, body),)]
        for _ in range(self.chance.rng.randint(12, 40)):
            steps.append(self.step())
        return tuple(steps)

    def step(self) -> Step:
        if self.chance.happens(0.4):
            name = self.chance.weighed(WEIGHTS)
        elif self.kind == CLASSIC:
            name = self.chance.weighed(CLASSIC_WEIGHTS)
        else:
            name = "consumer_heartbeat"
        return self.drawn(name)

    def drawn(self, name: str) -> Step:
        """One of the steps that are drawn by their name."""
        make: Callable[[], Request | HangUp] = getattr(self, f"_{name}")
        made = make()
        return made if isinstance(made, HangUp) else (made,)

    def _version(self, member: str, api: ApiKey) -> int:
        """A client keeps to its version."""
        return self.versions.setdefault((member, api), self.chance.version(api))

    def _member(self) -> str:
        return self.chance.of(self.members)

    def _group(self) -> str:
        return self.chance.one(*[GROUP] * 12, OTHER_GROUP)

    def _instance(self, member: str) -> str | None:
        return f"~instance {member}" if member in self.static else None

    def _member_id(self, member: str, wrong: float = 0.06) -> Any:
        if self.chance.happens(wrong):
            return self.chance.one("", "nobody", MemberId(self._member()))
        return MemberId(member)

    def _epoch(self, member: str, wrong: float = 0.08) -> Any:
        if self.chance.happens(wrong):
            return self.chance.one(MemberEpoch(member, 1), MemberEpoch(member, -1), -1, 0, 99)
        return MemberEpoch(member)

    # The classic protocol

    def _join(self) -> Request:
        chance = self.chance
        member = self._member()
        version = self._version(member, ApiKey.JOIN_GROUP)
        names = chance.one(["range"], ["range"], ["range", "roundrobin"], ["roundrobin"])
        if chance.happens(0.04):
            names = chance.one([], ["other"])
        body = {
            "group_id": self._group() if chance.happens(0.98) else "",
            "session_timeout_ms": SESSION_MS if chance.happens(0.97) else chance.one(1, 1_900_000),
            "rebalance_timeout_ms": REBALANCE_MS,
            "member_id": self._member_id(member),
            "protocol_type": chance.one("", "other") if chance.happens(0.04) else "consumer",
            "protocols": [{"name": name, "metadata": chance.of(SUBSCRIPTIONS)} for name in names],
        }
        if version >= 5:
            body["group_instance_id"] = self._instance(member)
        return Request(ApiKey.JOIN_GROUP, version, body, who=member, name=member)

    def _sync(self) -> Request:
        chance = self.chance
        member = self._member()
        version = self._version(member, ApiKey.SYNC_GROUP)
        assignments = [
            {"member_id": MemberId(other), "assignment": ASSIGNMENT + other.encode()}
            for other in MEMBERS
        ]
        body: Body = {
            "group_id": self._group(),
            "generation_id": self._epoch(member),
            "member_id": self._member_id(member),
            "assignments": assignments if chance.happens(0.7) else [],
        }
        if version >= 3:
            body["group_instance_id"] = self._instance(member)
        if version >= 5 and chance.happens(0.9):
            body["protocol_type"] = "consumer" if chance.happens(0.97) else "other"
            body["protocol_name"] = chance.one("range", "range", "range", "roundrobin")
        return Request(ApiKey.SYNC_GROUP, version, body, who=member)

    def _heartbeat(self) -> Request:
        member = self._member()
        version = self._version(member, ApiKey.HEARTBEAT)
        body: Body = {
            "group_id": self._group(),
            "generation_id": self._epoch(member),
            "member_id": self._member_id(member),
        }
        if version >= 3:
            body["group_instance_id"] = self._instance(member)
        return Request(ApiKey.HEARTBEAT, version, body, who=member)

    def _leave(self) -> Request:
        chance = self.chance
        member = self._member()
        version = self._version(member, ApiKey.LEAVE_GROUP)
        body: Body = {"group_id": self._group()}

        def leaving() -> Body:
            other = chance.one(member, member, self._member())
            return {
                "member_id": self._member_id(other, 0.15),
                "group_instance_id": self._instance(other),
            }

        if version < 3:
            body["member_id"] = self._member_id(member)
        else:
            body["members"] = chance.some(leaving, (1, 1, 1, 2, 0))
        return Request(ApiKey.LEAVE_GROUP, version, body, who=member)

    def _hang_up(self) -> HangUp:
        return HangUp(self._member())

    # KIP-848

    def _consumer_heartbeat(self) -> Request:
        chance = self.chance
        member = self._member()
        version = self._version(member, ApiKey.CONSUMER_GROUP_HEARTBEAT)
        body: Body = {
            "group_id": self._group(),
            "member_id": f"~{member}",
            "instance_id": self._instance(member),
        }
        drawn = chance.rng.random()
        if member not in self.began or drawn < 0.15:
            self.began.add(member)
            body |= self._first_heartbeat(version)
        elif drawn < 0.27:
            body["member_epoch"] = STATIC_LEAVE if chance.happens(0.3) else LEAVE
        else:
            body["member_epoch"] = self._epoch(member)
            if chance.happens(0.6):
                body["topic_partitions"] = Assigned(member)
            if chance.happens(0.2):
                body["subscribed_topic_names"] = self._subscription()
        if chance.happens(0.03):
            body["member_id"] = chance.one("", "nobody")
        return Request(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, body, who=member, name=member)

    def _first_heartbeat(self, version: int) -> Body:
        chance = self.chance
        body: Body = {
            "member_epoch": 0,
            "rebalance_timeout_ms": REBALANCE_MS if chance.happens(0.97) else -1,
            # Who comes for nothing, when another has just left, has something in Kafka.
            "subscribed_topic_names": self._subscription() or self.topics,
            "topic_partitions": [] if chance.happens(0.97) else None,
            # What a member keeps of a range depends on where in the order a new one stands.
            "server_assignor": chance.one(None, None, None, "uniform", "uniform", "other"),
        }
        if version >= 1 and chance.happens(0.1):
            body["subscribed_topic_names"] = None
            # What one that can be read matches is known some time later.
            body["subscribed_topic_regex"] = chance.one("", "[")
        return body

    def _subscription(self) -> list[str]:
        wanted = [self.topics, self.topics, [*self.topics, UNKNOWN]]
        if len(self.topics) == 1:
            # Which of two a member that comes back is given depends on the assignor's order.
            wanted.append([])
        return self.chance.of(wanted)

    # Offsets

    def _named(self, version: int, topic: str) -> Body:
        ids_since = 10
        return {"topic_id": TopicId(topic)} if version >= ids_since else {"name": topic}

    def _topic(self) -> str:
        return self.chance.one("~a", "~a", "~b") if self.chance.happens(0.93) else UNKNOWN

    def _partitions(self) -> list[int]:
        drawn = self.chance.some(lambda: self.chance.one(0, 0, 1, 1, 2, 7), (1, 1, 2))
        return list(dict.fromkeys(drawn))

    def _offset_commit(self) -> Request:
        chance = self.chance
        member = self._member()
        version = chance.version(ApiKey.OFFSET_COMMIT)

        def part(partition: int) -> Body:
            return {
                "partition_index": partition,
                "committed_offset": chance.one(0, 1, 5, 5, -1),
                "committed_leader_epoch": chance.one(-1, 0, 3),
                # A commit of which all is too long makes a group that Kafka shows later on.
                "committed_metadata": chance.one("", None, "m"),
            }

        topics = [
            self._named(version, topic) | {"partitions": [part(one) for one in self._partitions()]}
            for topic in dict.fromkeys(chance.some(self._topic, (1, 1, 2)))
        ]
        body: Body = {"group_id": self._group(), "topics": topics}
        if chance.happens(0.7):
            known = self.kind == CONSUMER
            member_id = f"~{member}" if known else self._member_id(member)
            body |= {"member_id": member_id, "generation_id_or_member_epoch": self._epoch(member)}
            if version >= 7:
                body["group_instance_id"] = self._instance(member)
        return Request(ApiKey.OFFSET_COMMIT, version, body)

    def _offset_fetch(self) -> Request:
        chance = self.chance
        version = chance.version(ApiKey.OFFSET_FETCH)
        topics: list[Body] | None = [
            self._named(version, topic) | {"partition_indexes": self._partitions()}
            for topic in dict.fromkeys(chance.some(self._topic, (0, 1, 1, 2)))
        ]
        if version >= 2 and chance.happens(0.4):
            topics = None
        body: Body = {"group_id": self._group(), "topics": topics}
        if version >= 8:
            body = {"groups": [body]}
        if version >= 9 and chance.happens(0.5):
            member = self._member()
            member_id = f"~{member}" if self.kind == CONSUMER else MemberId(member)
            body["groups"][0] |= {"member_id": member_id, "member_epoch": self._epoch(member)}
        if version >= 7:
            body["require_stable"] = chance.happens(0.5)
        return Request(ApiKey.OFFSET_FETCH, version, body)

    def _offset_delete(self) -> Request:
        topics = [
            {"name": topic, "partitions": [{"partition_index": one} for one in self._partitions()]}
            for topic in dict.fromkeys(self.chance.some(self._topic, (1, 1, 2)))
        ]
        return Request(ApiKey.OFFSET_DELETE, 0, {"group_id": self._group(), "topics": topics})

    # What shows them

    def _groups_asked(self) -> list[str]:
        return self.chance.some(
            lambda: self.chance.one(GROUP, GROUP, OTHER_GROUP, SHARE_GROUP, "~no", "")
        )

    def _describe_groups(self) -> Request:
        version = self.chance.version(ApiKey.DESCRIBE_GROUPS)
        body: Body = {"groups": self._groups_asked()}
        if version >= 3:
            body["include_authorized_operations"] = self.chance.happens(0.5)
        return Request(ApiKey.DESCRIBE_GROUPS, version, body)

    def _described(self, api: ApiKey) -> Request:
        body = {
            "group_ids": self._groups_asked(),
            "include_authorized_operations": self.chance.happens(0.5),
        }
        return Request(api, self.chance.version(api), body)

    def _consumer_describe(self) -> Request:
        return self._described(ApiKey.CONSUMER_GROUP_DESCRIBE)

    def _share_describe(self) -> Request:
        return self._described(ApiKey.SHARE_GROUP_DESCRIBE)

    def _list_groups(self) -> Request:
        chance = self.chance
        version = chance.version(ApiKey.LIST_GROUPS)
        states: tuple[list[str], ...] = (
            [],
            [],
            ["Stable"],
            ["stable", "Empty"],
            ["bogus"],
            ["Dead"],
        )
        kinds: tuple[list[str], ...] = ([], [], ["consumer"], ["Classic"], ["bogus"], ["share"])
        body: Body = {}
        if version >= 4:
            body["states_filter"] = chance.of(states)
        if version >= 5:
            body["types_filter"] = chance.of(kinds)
        return Request(ApiKey.LIST_GROUPS, version, body)

    def _delete_groups(self) -> Request:
        version = self.chance.version(ApiKey.DELETE_GROUPS)
        return Request(ApiKey.DELETE_GROUPS, version, {"groups_names": self._groups_asked()})

    def _find_coordinator(self) -> Request:
        version = self.chance.version(ApiKey.FIND_COORDINATOR)
        names = self._groups_asked()
        kinds = self.chance.one(0, 0, 1, 3)
        body: Body = {"key_type": kinds} if version >= 1 else {}
        body |= {"coordinator_keys": names} if version >= 4 else {"key": names[0]}
        return Request(ApiKey.FIND_COORDINATOR, version, body)

    def _share_offsets(self) -> Request:
        chance = self.chance
        api = chance.of(SHARE_OFFSETS)
        version = SERVED[api].max_version
        topics: list[Body] = [{"topic_name": self._topic()}]
        if api is ApiKey.DELETE_SHARE_GROUP_OFFSETS:
            return Request(api, version, {"group_id": SHARE_GROUP, "topics": topics})
        if api is ApiKey.ALTER_SHARE_GROUP_OFFSETS:
            # Of a partition that there is: Kafka makes the group in any case.
            part = {"partition_index": chance.one(0, 1), "start_offset": chance.one(0, 1, 5)}
            topics = [{"topic_name": chance.one("~a", "~b"), "partitions": [part]}]
            return Request(api, version, {"group_id": SHARE_GROUP, "topics": topics})
        for topic in topics:
            topic["partitions"] = self._partitions()
        group = {"group_id": SHARE_GROUP, "topics": chance.one(None, topics)}
        return Request(api, version, {"groups": [group]})
