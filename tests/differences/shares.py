"""Share groups by chance: members that fetch, acknowledge, release and reject, and begin anew;
records that are deleted under them; and where their groups begin.

Which member is assigned what, and in which epoch, is known (`known_shares`): Kafka assigns with a
later heartbeat. What a fetch acquires does not hang on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.share.sessions import LAST_EPOCH
from ottla.broker.share.window import ACCEPT, GAP, REJECT, RELEASE, RENEW
from ottla.protocol.api import SERVED, ApiKey
from tests.differences.batches import Batch, Record
from tests.differences.chance import Chance
from tests.differences.requests import (
    PARKED_MS,
    Acknowledged,
    Body,
    HangUp,
    MemberEpoch,
    Moment,
    Offset,
    ProducerEpoch,
    ProducerId,
    Request,
    Sequence,
    ShareEpoch,
    Step,
    TopicId,
)

TOPIC, UNKNOWN = "~a", "~zz"
PARTITIONS = 2
GROUP = "~s"
MEMBERS = ("m", "n")
SHARE_VERSION = 1
GROUP_CONFIG, SET = 32, 0
LEAVE = -1
RENEWING_SINCE = 2
BY_BATCHES, EXACTLY = 0, 1
"""How many more than `max_records` are acquired by batches depends on how they were before."""
KINDS = (GAP, ACCEPT, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT)
KINDS_OF_RENEWALS = (RENEW, ACCEPT, RELEASE)
BYTES_MAX = 1_000_000
FIRST_LOOK_MS = 200
LONG_MS = 5 * PARKED_MS
"""Longer than everything that follows takes, even on a slow machine."""
PRODUCER, TRANSACTIONAL = "~t", 16
COMMITTED = "read_committed"
WEIGHTS: dict[str, float] = {
    "produce": 12,
    "fetch": 22,
    "acknowledge": 16,
    "begin_anew": 3,
    "hang_up": 1,
    "transaction": 4,
    "heartbeat": 4,
    "delete_records": 2,
    "describe": 3,
    "describe_offsets": 4,
    "alter_offsets": 0.5,
    "delete_offsets": 0.25,
    "delete_groups": 0.3,
    "list_groups": 1,
}
ENDING = (
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_GROUPS,
)
Drawn = Request | HangUp | list[Request]


def sequence(seed: int) -> Sequence:
    return _Shares(Chance("shares", seed)).sequence()


class _Shares:
    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.versions = {member: chance.version(ApiKey.SHARE_FETCH) for member in MEMBERS}
        self.begun: set[str] = set()
        self.is_committed = chance.happens(0.5)
        self.is_single = chance.happens(0.5)
        self.has_producer = self.has_deleted = self.has_waited = self.has_forgotten = False

    def sequence(self) -> Sequence:
        made = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}
        steps: list[Step] = [
            (Request(ApiKey.CREATE_TOPICS, 7, {"topics": [made], "timeout_ms": 30_000}),),
            (self._settings(),),
        ]
        steps += [(self._joined(member),) for member in MEMBERS]
        steps.append((self._first_look(),))
        for _ in range(self.chance.rng.randint(15, 50)):
            drawn: Callable[[], Drawn] = getattr(self, f"_{self.chance.weighed(WEIGHTS)}")
            asked = drawn()
            if isinstance(asked, HangUp):
                steps.append(asked)
                continue
            steps += [(one,) for one in (asked if isinstance(asked, list) else [asked])]
            if isinstance(asked, Request) and asked.api in ENDING:
                # Kafka reads anew where it is to begin, with the first fetch behind that; and of
                # a group that is gone a fetch has nothing there, and an error here.
                return (*steps, (self._describe_offsets(),))
        return tuple(steps)

    def _first_look(self) -> Request:
        """By somebody else, for Kafka reads the state of a partition behind its first fetch; and
        whose session stays, for with the last one of a group its state would be read anew."""
        parts = [{"partition_index": partition} for partition in range(PARTITIONS)]
        body: Body = {
            "group_id": GROUP,
            "member_id": "~onlooker",
            "share_session_epoch": 0,
            "max_wait_ms": FIRST_LOOK_MS,
            "min_bytes": 1,
            "max_bytes": BYTES_MAX,
            "max_records": 1,
            "topics": [{"topic_id": TopicId(TOPIC), "partitions": parts}],
        }
        return Request(ApiKey.SHARE_FETCH, RENEWING_SINCE, body, who="onlooker")

    def _settings(self) -> Request:
        chance = self.chance
        settings = {
            "share.auto.offset.reset": chance.one("earliest", "earliest", "latest"),
            "share.delivery.count.limit": chance.one("2", "3", "5"),
            "share.isolation.level": COMMITTED if self.is_committed else "read_uncommitted",
        }
        configs = [
            {"name": name, "config_operation": SET, "value": value}
            for name, value in settings.items()
        ]
        resource = {"resource_type": GROUP_CONFIG, "resource_name": GROUP, "configs": configs}
        return Request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})

    def _member(self) -> str:
        return self.chance.of(MEMBERS)

    def _partition(self) -> int:
        return 0 if self.is_single else self.chance.one(0, 0, 0, 1)

    # Records

    def _produce(self) -> Request:
        chance = self.chance

        def batch() -> Batch:
            records = tuple(Record(None, f"v{n}") for n in range(chance.one(1, 1, 2, 3, 5)))
            return Batch(records, Moment(0), codec=chance.one(0, 0, 1))

        part = {"index": self._partition(), "records": batch()}
        data = [{"name": TOPIC, "partition_data": [part]}]
        return Request(ApiKey.PRODUCE, 9, {"acks": -1, "timeout_ms": 30_000, "topic_data": data})

    def _transaction(self) -> list[Request]:
        """A whole one, or one that stays open."""
        chance = self.chance
        asked: list[Request] = []
        if not self.has_producer:
            self.has_producer = True
            body: Body = {"transactional_id": PRODUCER, "transaction_timeout_ms": 60_000}
            asked.append(Request(ApiKey.INIT_PRODUCER_ID, 4, body))
        partition = self._partition()
        records = tuple(Record(None, f"t{n}") for n in range(chance.one(1, 2, 3)))
        batch = Batch(
            records,
            Moment(0),
            attributes=TRANSACTIONAL,
            transactional_id=PRODUCER,
            to=(TOPIC, partition),
        )
        part = {"index": partition, "records": batch}
        data = [{"name": TOPIC, "partition_data": [part]}]
        body = {"transactional_id": PRODUCER, "acks": -1, "timeout_ms": 30_000, "topic_data": data}
        asked.append(Request(ApiKey.PRODUCE, 12, body))
        if chance.happens(0.7):
            body = {
                "transactional_id": PRODUCER,
                "producer_id": ProducerId(PRODUCER),
                "producer_epoch": ProducerEpoch(PRODUCER),
                # Kafka acquires what was aborted, and gives it up some time later.
                "committed": self.is_committed or chance.happens(0.6),
            }
            asked.append(Request(ApiKey.END_TXN, 5, body))
        return asked

    def _delete_records(self) -> Request:
        self.has_deleted = True
        partition = self._partition()
        offset = Offset(TOPIC, partition, self.chance.one("start", "start", "end"), 0)
        if self.chance.happens(0.7):
            offset = Offset(TOPIC, partition, "start", self.chance.one(1, 2, 3))
        part = {"partition_index": partition, "offset": offset}
        body = {"topics": [{"name": TOPIC, "partitions": [part]}], "timeout_ms": 30_000}
        return Request(ApiKey.DELETE_RECORDS, 2, body)

    # Members

    def _joined(self, member: str) -> Request:
        self.begun.add(member)
        return self._heartbeat_of(member, 0, [TOPIC])

    def _heartbeat(self) -> Request:
        chance = self.chance
        member = self._member()
        if member not in self.begun or chance.happens(0.1):
            return self._joined(member)
        if chance.happens(0.15):
            self.begun.discard(member)
            return self._heartbeat_of(member, LEAVE, None)
        epoch = MemberEpoch(member)
        topics = chance.one(None, None, [TOPIC], [TOPIC, UNKNOWN], [])
        return self._heartbeat_of(member, epoch, topics)

    def _heartbeat_of(self, member: str, epoch: Any, topics: list[str] | None) -> Request:
        body = {
            "group_id": GROUP,
            "member_id": f"~{member}",
            "member_epoch": epoch,
            "subscribed_topic_names": topics,
        }
        api = ApiKey.SHARE_GROUP_HEARTBEAT
        return Request(api, SHARE_VERSION, body, who=member, name=member)

    # Records that are shared

    def _epoch(self, member: str) -> Any:
        if self.chance.happens(0.04):
            last = 77 if self.has_forgotten else LAST_EPOCH
            return self.chance.one(ShareEpoch(member, 1), ShareEpoch(member, -1), 0, last, 77)
        return ShareEpoch(member)

    def _acknowledged(self, member: str, partition: int, types: tuple[int, ...]) -> Acknowledged:
        chance = self.chance
        return Acknowledged(
            member,
            partition,
            kinds=tuple(chance.some(lambda: chance.of(types), (1, 1, 1, 2, 3))),
            whole=chance.happens(0.6),
            odd=chance.one("behind", "below", "again", "kind") if chance.happens(0.06) else "",
        )

    def _fetch(self) -> Request:
        member = self._member()
        made = self._fetch_of(member, self._epoch(member))
        if member == MEMBERS[0] and not self.has_deleted and self.chance.happens(0.15):
            # Of two that wait it would be the moment's who is first; and behind a log start that
            # has moved nobody waits in Kafka.
            made.body.update(max_wait_ms=LONG_MS, min_bytes=1)
            self.has_waited = True
        return made

    def _hang_up(self) -> Drawn:
        if self.has_waited or self.has_forgotten:
            # What it gives up wakes who waits, in Kafka not before something else happens; and
            # what it holds of a partition that it has forgotten is free, in Kafka with its lock.
            return self._heartbeat()
        # A fetch that waits acquires in Kafka for whoever has hung up.
        return HangUp(MEMBERS[1])

    def _begin_anew(self) -> Request:
        """The session ends, and what its member has not acknowledged is free."""
        member = self._member()
        if self.has_forgotten:  # as when it hangs up
            return self._fetch_of(member, ShareEpoch(member))
        if self.chance.happens(0.5):
            return self._fetch_of(member, LAST_EPOCH)
        return self._acknowledge_of(member, LAST_EPOCH)

    def _fetch_of(self, member: str, epoch: Any) -> Request:
        chance = self.chance
        version = self.versions[member]
        # What is released here is free behind the fetch, or for it: that is the moment's.
        parts = []
        for partition in dict.fromkeys(chance.some(self._partition, (0, 1, 1, 2))):
            part: Body = {"partition_index": partition}
            if chance.happens(0.2):
                part["acknowledgement_batches"] = self._acknowledged(
                    member, partition, (ACCEPT, REJECT)
                )
            parts.append(part)
        body: Body = {
            "group_id": GROUP,
            "member_id": f"~{member}",
            "share_session_epoch": epoch,
            # At once Kafka may find a partition taken by what it does behind an answer.
            "max_wait_ms": chance.one(20, 40),
            "min_bytes": chance.one(0, 1, 1, 1_000_000),
            "max_bytes": BYTES_MAX,
            "max_records": 500,
            "batch_size": chance.one(1, 500, 500),
            "topics": [{"topic_id": TopicId(TOPIC), "partitions": parts}] if parts else [],
        }
        if version >= RENEWING_SINCE:
            body["share_acquire_mode"] = mode = chance.one(BY_BATCHES, EXACTLY)
            if mode == EXACTLY and self.is_single:
                # Of several partitions Kafka reads those first that it has not looked at yet.
                body["max_records"] = chance.one(1, 2, 3, 500)
        if chance.happens(0.05):
            forgotten = {"topic_id": TopicId(TOPIC), "partitions": [self._partition()]}
            body["forgotten_topics_data"] = [forgotten]
            self.has_forgotten = True
        return Request(ApiKey.SHARE_FETCH, version, body, who=member, name=member)

    def _acknowledge(self) -> Request:
        member = self._member()
        return self._acknowledge_of(member, self._epoch(member))

    def _acknowledge_of(self, member: str, epoch: Any) -> Request:
        chance = self.chance
        version = self.versions[member]
        renews = version >= RENEWING_SINCE and chance.happens(0.15)
        types: tuple[int, ...] = KINDS_OF_RENEWALS if renews else KINDS
        if self.has_waited:
            # Kafka looks for who waits before what is released is free, and then no more.
            types = tuple(kind for kind in types if kind != RELEASE)
        parts = [
            {
                "partition_index": partition,
                "acknowledgement_batches": self._acknowledged(member, partition, types),
            }
            for partition in dict.fromkeys(chance.some(self._partition, (1, 1, 2)))
        ]
        body: Body = {
            "group_id": GROUP,
            "member_id": f"~{member}",
            "share_session_epoch": epoch,
            "topics": [{"topic_id": TopicId(TOPIC), "partitions": parts}],
        }
        if version >= RENEWING_SINCE:
            body["is_renew_ack"] = renews
        return Request(ApiKey.SHARE_ACKNOWLEDGE, version, body, who=member, name=member)

    # Groups

    def _describe(self) -> Request:
        body = {"group_ids": [GROUP], "include_authorized_operations": False}
        return Request(ApiKey.SHARE_GROUP_DESCRIBE, SHARE_VERSION, body)

    def _list_groups(self) -> Request:
        return Request(ApiKey.LIST_GROUPS, 5, {"types_filter": ["share"]})

    def _delete_groups(self) -> Request:
        return Request(ApiKey.DELETE_GROUPS, 2, {"groups_names": [GROUP]})

    def _describe_offsets(self) -> Request:
        api = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
        topics: list[Body] = [{"topic_name": TOPIC, "partitions": list(range(PARTITIONS))}]
        group = {"group_id": GROUP, "topics": self.chance.one(None, topics)}
        return Request(api, SERVED[api].max_version, {"groups": [group]})

    def _alter_offsets(self) -> Request:
        api = ApiKey.ALTER_SHARE_GROUP_OFFSETS
        part = {
            "partition_index": self._partition(),
            "start_offset": self.chance.one(0, 1, 3, Offset(TOPIC, 0, "end", 0)),
        }
        topics = [{"topic_name": TOPIC, "partitions": [part]}]
        return Request(api, SERVED[api].max_version, {"group_id": GROUP, "topics": topics})

    def _delete_offsets(self) -> Request:
        api = ApiKey.DELETE_SHARE_GROUP_OFFSETS
        body = {"group_id": GROUP, "topics": [{"topic_name": TOPIC}]}
        return Request(api, SERVED[api].max_version, body)
