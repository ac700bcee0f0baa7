"""Transactions by chance: both protocols and what lies between them, with epochs and ids that are
another's, markers that nobody asked for, and all that shows how things stand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.protocol.api import ApiKey
from tests.differences.batches import Batch, Record
from tests.differences.chance import Chance
from tests.differences.requests import (
    Body,
    ProducerEpoch,
    ProducerId,
    Request,
    Sequence,
    Step,
    TopicId,
)

TOPICS = {"~a": 2, "~b": 1}
UNKNOWN = "~zz"
TIMEOUT_MS = 60_000
STEPS = 25
LAST_OF_ONE = 3
"""The last version of AddPartitionsToTxn that is of one transaction."""
AT, LATER = 1_700_000_000_000, 1_700_000_000_001
TRANSACTIONAL, CONTROL = 0x10, 0x20
NEWER_PRODUCE, NEWER_END, NEWER_COMMIT = (12, 12, 13), 5, 5
WEIGHTS: dict[ApiKey, float] = {
    ApiKey.INIT_PRODUCER_ID: 8,
    ApiKey.ADD_PARTITIONS_TO_TXN: 14,
    ApiKey.ADD_OFFSETS_TO_TXN: 6,
    ApiKey.TXN_OFFSET_COMMIT: 6,
    ApiKey.END_TXN: 16,
    ApiKey.PRODUCE: 22,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.DESCRIBE_TRANSACTIONS: 5,
    ApiKey.LIST_TRANSACTIONS: 4,
    ApiKey.DESCRIBE_PRODUCERS: 6,
    ApiKey.LIST_OFFSETS: 5,
    ApiKey.FETCH: 9,
    ApiKey.DELETE_RECORDS: 1,
    ApiKey.OFFSET_FETCH: 3,
    ApiKey.DELETE_TOPICS: 0.4,
}


def sequence(seed: int) -> Sequence:
    return _Transactions(Chance("transactions", seed)).sequence()


class _Transactions:
    """One method an API, of its name in lower case; each returns a request."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.newer = chance.happens(0.5)
        self.mixed = chance.happens(0.3)

    def sequence(self) -> Sequence:
        made = [
            {"name": name, "num_partitions": count, "replication_factor": 1}
            for name, count in TOPICS.items()
        ]
        body = {"topics": made, "timeout_ms": TIMEOUT_MS}
        begin = {"transactional_id": "~t", "transaction_timeout_ms": TIMEOUT_MS}
        steps: list[Step] = [
            (Request(ApiKey.CREATE_TOPICS, 7, body),),
            (Request(ApiKey.INIT_PRODUCER_ID, 4, begin),),
        ]
        while len(steps) < STEPS:
            make: Callable[[], Request] = getattr(self, self.chance.weighed(WEIGHTS).name.lower())
            steps.append((make(),))
        return tuple(steps)

    # Who and where

    def is_newer(self) -> bool:
        return self.chance.happens(0.5) if self.mixed else self.newer

    def transactional_id(self) -> str:
        return self.chance.one("~t", "~t", "~t", "~t", "~u")

    def producer(self, own: str, wrong: float = 0.1, wrong_epoch: float = 0.1) -> Body:
        """Id and epoch of a producer as its coordinator gave them, mostly."""
        chance = self.chance
        producer_id: Any = ProducerId(own)
        epoch: Any = ProducerEpoch(own)
        if chance.happens(wrong):
            first = ProducerId(own, first=True)
            producer_id = chance.one(ProducerId(own, 1), -1, ProducerId("~u"), first, 0)
        elif chance.happens(wrong_epoch):
            near = (ProducerEpoch(own, 1), ProducerEpoch(own, -1), ProducerEpoch(own, -2))
            epoch = chance.one(*near, -1, 32767, 0)
        return {"producer_id": producer_id, "producer_epoch": epoch}

    def topic(self) -> str:
        if self.chance.happens(0.3):
            return self.chance.one("~a", "~a", "~a", "~b", "~b", UNKNOWN)
        return self.chance.one("~a", "~b")

    def partitions(self) -> list[int]:
        def partition() -> int:
            return (
                self.chance.one(0, 0, 0, 1) if self.chance.happens(0.93) else self.chance.one(5, -1)
            )

        return self.chance.some(partition, (1, 1, 1, 2))

    def group(self) -> str:
        return self.chance.one("~g", "~g", "~g", "~h")

    # Requests

    def init_producer_id(self) -> Request:
        chance = self.chance
        own = self.transactional_id() if chance.happens(0.9) else chance.one(None, "")
        version = chance.version(ApiKey.INIT_PRODUCER_ID)
        timeout = chance.one(TIMEOUT_MS, TIMEOUT_MS, TIMEOUT_MS, 900_000, 0, -1, 900_001, 1_000)
        body: Body = {"transactional_id": own, "transaction_timeout_ms": timeout}
        if version >= 3 and chance.happens(0.5):
            # Of a wrong epoch Kafka aborts the transaction that goes on before it refuses it.
            body |= self.producer(own or "~t", 0.2, 0)
        elif version >= 3 and chance.happens(0.05):
            epochs = chance.one(-1, 5, -2, 0)
            body |= {"producer_id": chance.one(-1, 5, -2), "producer_epoch": epochs}
        return Request(ApiKey.INIT_PRODUCER_ID, version, body)

    def add_partitions_to_txn(self) -> Request:
        chance = self.chance
        version = chance.rng.randint(0, 5) if chance.happens(0.25) else chance.one(0, 3)

        def topic() -> Body:
            odd = chance.one("", "__consumer_offsets", "~ bad")
            name = self.topic() if chance.happens(0.97) else odd
            return {"name": name, "partitions": self.partitions()}

        def one() -> Body:
            own = self.transactional_id()
            topics = chance.some(topic, (1, 1, 2))
            return {"transactional_id": own, **self.producer(own), "topics": topics}

        if version <= LAST_OF_ONE:
            body = {f"v3_and_below_{name}": value for name, value in one().items()}
            return Request(ApiKey.ADD_PARTITIONS_TO_TXN, version, body)
        # Kafka does not answer for several of which one is twice there, or has no partitions.
        several = {
            entry["transactional_id"]: entry | {"verify_only": chance.happens(0.5)}
            for entry in chance.some(one, (1, 1, 1, 1, 2))
        }
        return Request(
            ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": list(several.values())}
        )

    def add_offsets_to_txn(self) -> Request:
        own = self.transactional_id()
        version = self.chance.one(3, 4) if self.is_newer() else self.chance.one(0, 2, 3)
        named = own if self.chance.happens(0.97) else ""
        body = {"transactional_id": named, **self.producer(own), "group_id": self.group()}
        return Request(ApiKey.ADD_OFFSETS_TO_TXN, version, body)

    def txn_offset_commit(self) -> Request:
        chance = self.chance
        own = self.transactional_id()
        version = NEWER_COMMIT if self.is_newer() else chance.one(0, 1, 2, 3, 4)

        def part(partition: int) -> Body:
            return {
                "partition_index": partition,
                "committed_offset": chance.one(5, 0, -1, 7),
                "committed_leader_epoch": chance.one(-1, 0, 3),
                "committed_metadata": chance.one("", None, "m", "m" * 5_000),
            }

        def topic() -> Body:
            return {"name": self.topic(), "partitions": [part(one) for one in self.partitions()]}

        body = {
            "transactional_id": own if chance.happens(0.97) else "",
            "group_id": self.group(),
            **self.producer(own),
            "topics": chance.some(topic),
        }
        if version >= 3:
            body["generation_id"] = chance.one(-1, -1, -1, -1, 3)
            body["member_id"] = chance.one("", "", "", "x")
            body["group_instance_id"] = chance.one(None, None, None, None, "i")
        return Request(ApiKey.TXN_OFFSET_COMMIT, version, body)

    def end_txn(self) -> Request:
        own = self.transactional_id()
        version = NEWER_END if self.is_newer() else self.chance.one(0, 1, 2, 3, 4)
        body = {
            "transactional_id": own if self.chance.happens(0.98) else "",
            **self.producer(own),
            "committed": self.chance.happens(0.5),
        }
        return Request(ApiKey.END_TXN, version, body)

    def produce(self) -> Request:
        chance = self.chance
        own = self.transactional_id()
        version = chance.of(NEWER_PRODUCE) if self.is_newer() else chance.one(3, 7, 9, 10, 11)
        name = chance.one("~a", "~a", "~b")
        partition = chance.up_to(TOPICS[name])
        batch = Batch(
            tuple(Record(None, "v" * 10) for _ in range(chance.one(1, 1, 2, 3))),
            AT,
            attributes=TRANSACTIONAL if chance.happens(0.97) else 0,
            transactional_id=own,
            to=(name, partition),
            # After one of a later epoch, which is refused, Kafka refuses the right one, too.
            odd=(("later_epoch", -1),) if chance.happens(0.06) else (),
        )
        part = {"index": partition, "records": batch}
        topic = {"name": name, "topic_id": TopicId(name), "partition_data": [part]}
        named: str | None = own
        if chance.happens(0.03):
            named = "~none"
        return Request(
            ApiKey.PRODUCE,
            version,
            {
                "transactional_id": named,
                "acks": -1 if chance.happens(0.95) else 1,
                "timeout_ms": 5_000,
                "topic_data": [topic],
            },
        )

    def write_txn_markers(self) -> Request:
        """Of the transaction's own producer only: Kafka's coordinator would be told nothing."""
        chance = self.chance
        own = self.transactional_id()
        version = chance.one(1, 2)
        marker = {
            "producer_id": chance.one(ProducerId(own), 123_456_789),
            "producer_epoch": ProducerEpoch(own),
            "transaction_result": chance.happens(0.5),
            "topics": [{"name": self.topic(), "partition_indexes": [self.partitions()[0]]}],
            "coordinator_epoch": 0,
            "transaction_version": chance.one(0, 1, 2) if version == 2 else 0,
        }
        return Request(ApiKey.WRITE_TXN_MARKERS, version, {"markers": [marker]})

    # What shows it

    def describe_transactions(self) -> Request:
        names = self.chance.some(
            lambda: self.chance.one("~t", "~t", "~u", "~none", ""), (0, 1, 1, 2)
        )
        return Request(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": names})

    def list_transactions(self) -> Request:
        states: tuple[list[str], ...] = (
            [],
            [],
            ["Ongoing"],
            ["CompleteCommit", "CompleteAbort"],
            ["Empty"],
            ["bogus"],
            ["ongoing"],
            ["Ongoing", "bogus", ""],
            ["Dead"],
            ["PrepareEpochFence"],
        )
        ids: tuple[list[Any], ...] = ([], [], [], [ProducerId("~t")], [-1], [0])
        patterns = (None, None, "", ".*", "~.*", "~t", "[", "t", ".*t$")
        durations = (-1, -1, -1, 0, 100_000, -2, -(2**63))
        version = self.chance.one(0, 1, 2, 2)
        body: Body = {
            "state_filters": self.chance.of(states),
            "producer_id_filters": self.chance.of(ids),
        }
        if version >= 1:
            body["duration_filter"] = self.chance.of(durations)
        if version >= 2:
            body["transactional_id_pattern"] = self.chance.of(patterns)
        return Request(ApiKey.LIST_TRANSACTIONS, version, body)

    def describe_producers(self) -> Request:
        def topic() -> Body:
            return {"name": self.topic(), "partition_indexes": self.partitions()}

        body = {"topics": self.chance.some(topic, (1, 1, 2))}
        return Request(ApiKey.DESCRIBE_PRODUCERS, 0, body)

    def list_offsets(self) -> Request:
        chance = self.chance
        moments = (-1, -1, -1, -2, -3, AT, 0, LATER)
        parts = [
            {"partition_index": partition, "timestamp": chance.of(moments)}
            for partition in dict.fromkeys(self.partitions())
        ]
        body = {
            "replica_id": -1,
            "isolation_level": chance.one(0, 1, 1),
            "topics": [{"name": self.topic(), "partitions": parts}],
        }
        return Request(ApiKey.LIST_OFFSETS, chance.version(ApiKey.LIST_OFFSETS), body)

    def fetch(self) -> Request:
        chance = self.chance
        name = chance.one("~a", "~b")
        partitions = range(TOPICS[name]) if chance.happens(0.5) else range(1)
        parts = [
            {
                "partition": partition,
                "fetch_offset": chance.one(0, 0, 0, 1, 2, 3, 5, 8, 100),
                "partition_max_bytes": 10_000_000,
            }
            for partition in partitions
        ]
        body = {
            "max_wait_ms": 0,
            "max_bytes": 10_000_000,
            "isolation_level": chance.one(1, 1, 1, 0),
            "topics": [{"topic": name, "topic_id": TopicId(name), "partitions": parts}],
        }
        return Request(ApiKey.FETCH, chance.version(ApiKey.FETCH), body)

    def delete_records(self) -> Request:
        part = {"partition_index": 0, "offset": self.chance.one(-1, 1, 2, 3)}
        body = {"topics": [{"name": "~a", "partitions": [part]}], "timeout_ms": 5_000}
        return Request(ApiKey.DELETE_RECORDS, self.chance.version(ApiKey.DELETE_RECORDS), body)

    def offset_fetch(self) -> Request:
        topics = self.chance.one(None, [{"name": "~a", "partition_indexes": [0, 1]}])
        group = {"group_id": self.chance.one("~g", "~h"), "topics": topics}
        body = {"groups": [group], "require_stable": self.chance.happens(0.5)}
        return Request(ApiKey.OFFSET_FETCH, 9, body)

    def delete_topics(self) -> Request:
        body = {"topic_names": ["~b"], "timeout_ms": 5_000}
        return Request(ApiKey.DELETE_TOPICS, 5, body)
