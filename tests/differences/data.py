"""The data plane by chance: produce, fetch with sessions and parked, list and delete, epochs,
producers, markers and whole transactions, on topics of many settings.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.protocol.api import ApiKey
from ottla.protocol.wire import ZERO_UUID
from tests.differences.chance import Chance
from tests.differences.log_batches import INT64_MAX, KINDS, Batches, Kind
from tests.differences.requests import (
    PARKED_MS,
    Body,
    HangUp,
    Moment,
    Offset,
    ProducerEpoch,
    ProducerId,
    Request,
    Sequence,
    SessionEpoch,
    SessionId,
    Step,
    TopicId,
)

UNKNOWN, INTERNAL = "~nope", "__consumer_offsets"
TOPIC_RESOURCE = 2
INT32_MAX = 2**31 - 1
TOPIC_IDS_SINCE = 13
"""In Produce and in Fetch."""
FIRST_SESSIONS, FIRST_LEADERS, FIRST_RACKS = 7, 12, 11
REPLICA_STATE_SINCE = 15
ALL_BYTES = 1 << 26
SPECIAL_TIMES = (-1, -1, -2, -2, -3, -3, -3, -4, -5, -6)
ALTERED = (
    ("max.message.bytes", "120"),
    ("max.message.bytes", "1048588"),
    ("cleanup.policy", "compact,delete"),
    ("cleanup.policy", "delete"),
    ("cleanup.policy", "compact"),
    ("message.timestamp.before.max.ms", "3600000"),
    ("message.timestamp.after.max.ms", str(INT64_MAX)),
)
READINGS, READINGS_OF_TINY = 2, 12
"""A log of tiny segments is read one at a time."""
WEIGHTS = {
    "produce": 38,
    "fetch": 26,
    "list_offsets": 9,
    "delete_records": 5,
    "leader_epochs": 3,
    "producers": 5,
    "init_producer_id": 1.5,
    "transaction": 3,
    "marker": 2,
    "alter": 0.8,
    "again": 0.4,
    "more_partitions": 0.4,
    "parked": 1.5,
    "pipelined": 2,
}


def sequence(seed: int) -> Sequence:
    return _Data(Chance("data", seed)).sequence()


class _Data:
    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.batches = Batches(chance)
        self.kinds: dict[str, Kind] = {}
        self.partitions: dict[str, int] = {}
        self.sessions: list[tuple[str, int]] = []
        self.begun: set[str] = set()
        self.waits = 0
        names = list(KINDS)
        for letter in "abc"[: chance.one(1, 2, 2, 3)]:
            kind = chance.weighed({name: 6 if name == "plain" else 1 for name in names})
            self.kinds[f"~{letter}"] = KINDS[kind]
            self.partitions[f"~{letter}"] = chance.one(1, 1, 2, 3)
        self.sizes_vary = any(kind.sizes_vary for kind in self.kinds.values())

    def sequence(self) -> Sequence:
        steps: list[Step] = [(self._created(list(self.kinds)),)]
        for _ in range(self.chance.rng.randint(8, 45)):
            make: Callable[[], list[Step]] = getattr(self, f"_{self.chance.weighed(WEIGHTS)}")
            steps += make()
        return (*steps, *self._read_all())

    def _created(self, topics: list[str]) -> Request:
        made = [
            {
                "name": topic,
                "num_partitions": self.partitions[topic],
                "replication_factor": 1,
                "configs": [
                    {"name": name, "value": value}
                    for name, value in self.kinds[topic].config.items()
                ],
            }
            for topic in topics
        ]
        return Request(ApiKey.CREATE_TOPICS, 7, {"topics": made, "timeout_ms": 30_000})

    # What is asked for

    def _topic(self, wrong: float = 0.06) -> str:
        if self.chance.happens(wrong):
            return self.chance.one(UNKNOWN, UNKNOWN, "", "~bad name", INTERNAL)
        return self.chance.of(list(self.kinds))

    def _read_topic(self) -> str:
        """One that is read: what is in the coordinators' topics is each broker's own."""
        topic = self._topic()
        return UNKNOWN if topic == INTERNAL else topic

    def _partition(self, topic: str, wrong: float = 0.06) -> int:
        if self.chance.happens(wrong):
            return self.chance.one(-1, -2, 5, INT32_MAX)
        return self.chance.up_to(self.partitions.get(topic, 1))

    def _named(self, topic: str, version: int, field: str) -> Body:
        """How Produce and Fetch name a topic."""
        if version < TOPIC_IDS_SINCE:
            return {field: topic}
        return {"topic_id": TopicId(topic) if topic else ZERO_UUID}

    def _produce(self) -> list[Step]:
        version = self.chance.any_version(ApiKey.PRODUCE)
        acks = self.chance.weighed({-1: 10, 1: 5, 0: 2, 2: 0.3, -2: 0.3})
        request = self._produced(version, acks)
        if acks:
            return [(request,)]
        # What follows on the connection shows whether it was closed.
        return [(request, Request(ApiKey.API_VERSIONS, 0, {}))]

    def _produced(self, version: int, acks: int) -> Request:
        chance = self.chance
        several = chance.happens(0.35)
        body: Body = {
            "acks": acks,
            "timeout_ms": chance.one(1_000, 30_000, 0, -1, INT32_MAX),
            "topic_data": [],
        }
        for topic in dict.fromkeys(chance.some(self._topic, (1, 2, 3) if several else (1,))):
            kind = self.kinds.get(topic)
            drawn = chance.some_of(self._partition, topic, (1, 2, 3) if several else (1,))
            parts = []
            for partition in dict.fromkeys(drawn):
                known = kind is not None and 0 <= partition < self.partitions[topic]
                records = self.batches.draw(
                    topic,
                    partition,
                    kind or Kind(),
                    version,
                    odd=known and acks in (0, 1, -1),
                    alone=not several,
                )
                parts.append({"index": partition, "records": records})
            named = self._named(topic, version, "name")
            body["topic_data"].append({**named, "partition_data": parts})
        if chance.happens(0.01):
            body["topic_data"] = []
        if chance.happens(0.02):
            body["transactional_id"] = chance.one("", "~ghost")
        return Request(ApiKey.PRODUCE, version, body)

    def _fetched_partition(self, version: int, topic: str) -> Body:
        chance = self.chance
        partition = self._partition(topic)

        def at(base: str, more: int) -> Any:
            return Offset(topic, partition, base, more) if topic in self.kinds else 0

        offsets = {
            0: 4,
            chance.up_to(12): 8,
            at("end", 0): 4,
            at("end", 1): 1,
            at("end", -1): 3,
            at("start", 0): 3,
            at("start", -1): 1,
            at("start", 1): 2,
            at("end", -3): 3,
            -1: 0.4,
            -2: 0.2,
            2**62: 0.3,
        }
        sizes = (0, 1, 60, 61, 100, 200, 300, 500, 1_000, 1 << 20, 1 << 20, INT32_MAX)
        body = {
            "partition": partition,
            "fetch_offset": chance.weighed(offsets),
            "partition_max_bytes": chance.one(0, 1, 1 << 20)
            if self.sizes_vary
            else chance.of(sizes),
        }
        if chance.happens(0.15):
            body["current_leader_epoch"] = chance.one(0, 0, 1, 5, -2)
        if version >= FIRST_LEADERS and chance.happens(0.12):
            body["last_fetched_epoch"] = chance.one(0, 0, 1, 5, -2)
        if chance.happens(0.05):
            body["log_start_offset"] = chance.one(0, 5, -1)
        return body

    def _fetch_body(self, version: int, topics: list[str]) -> Body:
        chance = self.chance
        if version >= TOPIC_IDS_SINCE:
            # By the id of no topic, and twice, Kafka's sessions fail.
            topics = [topic or UNKNOWN for topic in topics]
        sizes = (0, 1, 100, 400, 1_000, 1 << 20, 1 << 25, INT32_MAX)
        body: Body = {
            "max_wait_ms": chance.one(0, 0, 0, 1, 5, -1),
            "min_bytes": chance.one(0, 1, 1, 1, 100, 10**6, -1),
            "max_bytes": chance.one(1, 1 << 20, INT32_MAX) if self.sizes_vary else chance.of(sizes),
            "isolation_level": chance.weighed({0: 5, 1: 2}),
            "topics": [
                {
                    **self._named(topic, version, "topic"),
                    "partitions": chance.some_of(
                        partial(self._fetched_partition, version), topic, (1, 1, 2, 3)
                    ),
                }
                for topic in topics
            ],
        }
        if version >= FIRST_RACKS and chance.happens(0.05):
            body["rack_id"] = "r1"
        return body

    def _fetch(self) -> list[Step]:
        chance = self.chance
        version = chance.any_version(ApiKey.FETCH)
        if self.sessions and chance.happens(0.7):
            version = chance.of(self.sessions)[1]
        topics = [self._read_topic() for _ in range(chance.one(0, 1, 1, 1, 2, 2, 3))]
        if chance.happens(0.8):
            topics = list(dict.fromkeys(topics))
        body = self._fetch_body(version, topics)
        name = ""
        drawn = chance.rng.random()
        if version >= FIRST_SESSIONS and drawn < 0.25:
            name = f"session {len(self.sessions)}"
            self.sessions.append((name, version))
            body |= {"session_id": 0, "session_epoch": 0}
        elif version >= FIRST_SESSIONS and drawn < 0.75 and self.sessions:
            name, version = chance.of(self.sessions[-2:])
            body = self._fetch_body(version, topics)
            self._go_on(body, name, version, topics)
        elif version >= FIRST_SESSIONS and drawn < 0.8:
            body["session_id"] = chance.one(0, 77, -1, INT32_MAX - 9)
            body["session_epoch"] = chance.one(0, -1, 1, 5, INT32_MAX, -2)
        elif chance.happens(0.02):
            state = {"replica_id": -2, "replica_epoch": -1}
            body |= (
                {"replica_state": state} if version >= REPLICA_STATE_SINCE else {"replica_id": -2}
            )
        return [(Request(ApiKey.FETCH, version, body, name=name),)]

    def _go_on(self, body: Body, name: str, version: int, topics: list[str]) -> None:
        """The next request of a session, or one that is not."""
        chance = self.chance
        epochs = {
            SessionEpoch(name): 20,
            SessionEpoch(name, 1): 1,
            SessionEpoch(name, -1): 1,
            -1: 1,
            0: 1,
            INT32_MAX: 0.3,
        }
        body |= {"session_id": SessionId(name), "session_epoch": chance.weighed(epochs)}
        if chance.happens(0.4):
            body["topics"] = []
        if chance.happens(0.35):
            topic = self._read_topic()
            partitions = chance.some(lambda: self._partition(topic), (1, 1, 2, 3))
            if topic in self.kinds and chance.happens(0.4):
                partitions = list(range(self.partitions[topic]))
            if topic in topics:
                body["topics"] = []
            named = self._named(topic, version, "topic")
            body["forgotten_topics_data"] = [{**named, "partitions": partitions}]

    def _list_offsets(self) -> list[Step]:
        chance = self.chance
        version = chance.any_version(ApiKey.LIST_OFFSETS)

        def moment() -> Any:
            drawn = chance.rng.random()
            if drawn < 0.55:
                return chance.of(SPECIAL_TIMES)
            if drawn < 0.6:
                return chance.one(-7, -8, -(2**63), INT64_MAX)
            if self.batches.times and drawn < 0.85:
                base, latest = chance.of(self.batches.times)
                more = chance.one(0, 0, 1, -1, latest, latest + 1, latest - 1)
                if isinstance(base, Moment):
                    return Moment(base.after_ms + more)
                return min(base + more, INT64_MAX)
            far = (Moment(-3_600_000), Moment(3_600_000), Moment(-30_000))
            return chance.one(0, 1, 1000, 1003, 2000, 1_600_000_000_000, 1_600_000_000_300, *far)

        def part(topic: str) -> Body:
            body = {"partition_index": self._partition(topic), "timestamp": moment()}
            if chance.happens(0.12):
                body["current_leader_epoch"] = chance.one(0, 0, 1, -2)
            return body

        topics = []
        for topic in chance.some(self._read_topic, (1, 1, 2)):
            parts = chance.some_of(part, topic, (1, 1, 2, 3))
            topics.append({"name": topic, "partitions": parts})
        body = {
            "replica_id": chance.weighed({-1: 12, -2: 1, -3: 0.5}),
            "topics": topics,
            "timeout_ms": chance.one(0, 1_000, -1),
            "isolation_level": chance.weighed({0: 3, 1: 1}),
        }
        return [(Request(ApiKey.LIST_OFFSETS, version, body),)]

    def _delete_records(self) -> list[Step]:
        chance = self.chance
        topics = []
        for topic in dict.fromkeys(chance.some(self._topic, (1, 1, 2))):
            parts = []
            drawn = chance.some_of(self._partition, topic, (1, 1, 2))
            for partition in dict.fromkeys(drawn):
                offsets: list[Any] = [-1, 0, 1, 2, 3, 5, 8, -2, 2**62]
                if topic in self.kinds:
                    offsets += [Offset(topic, partition, "start", more) for more in (-1, 0, 1, 2)]
                    offsets += [Offset(topic, partition, "end", more) for more in (-1, 0, 1)]
                elif topic == INTERNAL:
                    partition = 0
                parts.append({"partition_index": partition, "offset": chance.of(offsets)})
            topics.append({"name": topic, "partitions": parts})
        version = chance.any_version(ApiKey.DELETE_RECORDS)
        body = {"topics": topics, "timeout_ms": chance.one(1_000, 30_000, 0, -1)}
        return [(Request(ApiKey.DELETE_RECORDS, version, body),)]

    def _leader_epochs(self) -> list[Step]:
        chance = self.chance

        def part(topic: str) -> Body:
            return {
                "partition": self._partition(topic),
                "current_leader_epoch": chance.one(-1, -1, -1, 0, 0, 1, 5, -2),
                "leader_epoch": chance.one(0, 0, 0, -1, 1, 5, INT32_MAX),
            }

        topics = [
            {"topic": topic, "partitions": chance.some_of(part, topic, (1, 2))}
            for topic in chance.some(self._read_topic, (1, 1, 2))
        ]
        version = chance.any_version(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        body = {"replica_id": chance.one(-1, -2, -3), "topics": topics}
        return [(Request(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, body),)]

    def _producers(self) -> list[Step]:
        topics = []
        for topic in self.chance.some(self._read_topic, (1, 1, 2)):
            drawn = self.chance.some_of(self._partition, topic, (1, 2, 3))
            topics.append({"name": topic, "partition_indexes": drawn})
        return [(Request(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": topics}),)]

    def _init_producer_id(self) -> list[Step]:
        chance = self.chance
        version = chance.any_version(ApiKey.INIT_PRODUCER_ID)
        body: Body = {"transaction_timeout_ms": chance.one(60_000, 0, -1, INT32_MAX)}
        body["transactional_id"] = "" if chance.happens(0.1) else None
        if version >= 3 and chance.happens(0.3):
            body["producer_id"] = chance.one(-1, 5, -2, 5_000_000_001)
            body["producer_epoch"] = chance.one(-1, 0, 3, 32767)
        return [(Request(ApiKey.INIT_PRODUCER_ID, version, body),)]

    def _transaction(self) -> list[Step]:
        """A whole one of the newer protocol, or one that stays open."""
        chance = self.chance
        usable = [topic for topic, kind in self.kinds.items() if kind is not KINDS["no batches"]]
        if not usable:
            return []
        topic = chance.of(usable)
        partition = chance.up_to(self.partitions[topic])
        own = chance.one("~t", "~u")
        steps: list[Step] = []
        if own not in self.begun:
            self.begun.add(own)
            body = {"transactional_id": own, "transaction_timeout_ms": 60_000}
            steps.append((Request(ApiKey.INIT_PRODUCER_ID, 4, body),))
        for _ in range(chance.one(1, 2)):
            part = {
                "index": partition,
                "records": self.batches.transactional(own, topic, partition),
            }
            body = {
                "transactional_id": own,
                "acks": -1,
                "timeout_ms": 30_000,
                "topic_data": [{"name": topic, "partition_data": [part]}],
            }
            steps.append((Request(ApiKey.PRODUCE, 12, body),))
        if chance.happens(0.75):
            body = {
                "transactional_id": own,
                "producer_id": ProducerId(own),
                "producer_epoch": ProducerEpoch(own),
                "committed": chance.one(True, False, False),
            }
            steps.append((Request(ApiKey.END_TXN, 5, body),))
        return steps

    def _marker(self) -> list[Step]:
        chance = self.chance
        topic = self._topic()
        if self.kinds.get(topic) is KINDS["no batches"]:
            return []
        marker = {
            "producer_id": chance.of(self.batches.producer_ids),
            "producer_epoch": chance.one(0, 0, 0, 1, 2),
            "transaction_result": chance.one(True, False),
            "topics": [{"name": topic, "partition_indexes": [self._partition(topic)]}],
            "coordinator_epoch": chance.one(0, 0, 1),
        }
        version = chance.any_version(ApiKey.WRITE_TXN_MARKERS)
        return [(Request(ApiKey.WRITE_TXN_MARKERS, version, {"markers": [marker]}),)]

    # What changes the topics

    def _alter(self) -> list[Step]:
        plain = (KINDS["plain"], KINDS["plain too"], KINDS["small segments"])
        topic = self.chance.of(list(self.kinds))
        if self.kinds[topic] not in plain:
            return self._list_offsets()
        name, value = self.chance.of(ALTERED)
        config = {"name": name, "config_operation": 0, "value": value}
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configs": [config]}
        return [(Request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]}),)]

    def _again(self) -> list[Step]:
        topic = self.chance.of(list(self.kinds))
        body = {"topic_names": [topic], "timeout_ms": 10_000}
        return [(Request(ApiKey.DELETE_TOPICS, 4, body),), (self._created([topic]),)]

    def _more_partitions(self) -> list[Step]:
        topic = self.chance.of(list(self.kinds))
        self.partitions[topic] += 1
        more = {"name": topic, "count": self.partitions[topic], "assignments": None}
        body = {"topics": [more], "timeout_ms": 10_000}
        return [(Request(ApiKey.CREATE_PARTITIONS, 3, body),)]

    # Several at once

    def _parked(self) -> list[Step]:
        """A fetch that waits, and what may wake it."""
        chance = self.chance
        version = chance.any_version(ApiKey.FETCH)
        topic = chance.of(list(self.kinds))
        body = self._fetch_body(version, [topic])
        for part in body["topics"][0]["partitions"]:
            partition = part["partition"] = max(part["partition"], 0) % self.partitions[topic]
            part.pop("last_fetched_epoch", None)
            part["fetch_offset"] = Offset(topic, partition, "end", chance.one(0, 0, 0, 0, -1, 1))
            part["partition_max_bytes"] = max(part["partition_max_bytes"], 1)
        # Kafka answers one that waits for more when the segment is rolled, which a transaction
        # and a marker do: their times are of now, those of the batches before them of long ago.
        is_plain = not self.sizes_vary and not self.kinds[topic].rolls
        sizes = (1, 1, 1, 60, 100, 150, 200, 300, 500, 1_000) if is_plain else (1,)
        # Wait longer than everything that follows takes, even on a slow machine.
        size = chance.of(sizes)
        body |= {"max_wait_ms": 5 * PARKED_MS, "min_bytes": size, "isolation_level": 0}
        self.waits += 1
        who = f"waiting {self.waits}"
        steps: list[Step] = [(Request(ApiKey.FETCH, version, body, who=who),)]
        waking = {"produce": 65, "delete_records": 10}
        if size == 1:
            waking |= {"transaction": 15, "marker": 10}
        for _ in range(chance.one(1, 1, 2, 3)):
            steps += getattr(self, f"_{chance.weighed(waking)}")()
        return [*steps, HangUp(who)]

    def _pipelined(self) -> list[Step]:
        """Requests written at once."""
        chance = self.chance
        asked: list[Request] = []
        for _ in range(chance.one(2, 3, 5, 8)):
            kinds = {"produce": 60, "list_offsets": 6, "producers": 4, "delete_records": 4}
            what = chance.weighed(kinds | {"fetch": 8, "marker": 3})
            if what == "produce":
                version = chance.any_version(ApiKey.PRODUCE)
                asked.append(self._produced(version, chance.one(-1, 1)))
            elif what == "fetch":
                version = chance.any_version(ApiKey.FETCH)
                body = self._fetch_body(version, [self._read_topic()]) | {"max_wait_ms": 0}
                asked.append(Request(ApiKey.FETCH, version, body))
            else:
                for step in getattr(self, f"_{what}")():
                    asked += step
        return [tuple(asked)]

    def _read_all(self) -> list[Step]:
        """Everything that is in the logs at last."""
        tiny = any(kind.tiny for kind in self.kinds.values())
        steps: list[Step] = []
        for turn in range(READINGS_OF_TINY if tiny else READINGS):
            topics = [
                {
                    "topic": topic,
                    "partitions": [
                        {
                            "partition": partition,
                            "fetch_offset": Offset(topic, partition, "read" if turn else "start"),
                            "partition_max_bytes": ALL_BYTES,
                        }
                        for partition in range(self.partitions[topic])
                    ],
                }
                for topic in self.kinds
            ]
            body = {"max_wait_ms": 0, "max_bytes": ALL_BYTES, "topics": topics}
            steps.append((Request(ApiKey.FETCH, 11, body, who="reader"),))
        return steps
