"""What the symbols of a sequence mean on one broker, learned from its answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.wire import ZERO_UUID
from tests.differences import embedded
from tests.differences.batches import Batch, Joined, encoded, next_offset
from tests.differences.requests import (
    OWN,
    Acknowledged,
    Assigned,
    Body,
    Dealt,
    LogDir,
    MemberEpoch,
    MemberId,
    Moment,
    Offset,
    ProducerEpoch,
    ProducerId,
    Request,
    SessionEpoch,
    SessionId,
    ShareEpoch,
    Subscription,
    Symbol,
    TopicId,
)
from tests.differences.sharing import Sharing

UNKNOWN_TOPIC_ID = bytes([1]) * 16
UNKNOWN_PRODUCER_ID = 7_000_000
UNKNOWN_SESSION_ID = 987_654
CHOSEN_IDS = 1_000_000_000
"""Producer ids from here on are the sequence's own, and not a broker's."""
HOUR_MS = 3_600_000
INT16_MIN, INT16_MAX = -(2**15), 2**15 - 1
_TOPIC_ANSWERS = (ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS)

Bounds = Callable[[str, int], tuple[int, int]]
"""The start and the end of a partition's log, which the broker is asked for."""


@dataclass(slots=True)
class Meanings:
    """One broker, one replay. `began_ms` is the same for both brokers."""

    prefix: str
    began_ms: int
    log_dir: str
    bounds: Bounds
    topic_ids: dict[str, list[bytes]] = field(default_factory=dict)
    topic_names: dict[bytes, str] = field(default_factory=dict)
    producers: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    producer_names: dict[int, str] = field(default_factory=dict)
    sequences: dict[tuple[int, int, str, int], int] = field(default_factory=dict)
    sessions: dict[str, list[int]] = field(default_factory=dict)
    read: dict[tuple[str, int], int] = field(default_factory=dict)
    members: dict[str, tuple[str, int]] = field(default_factory=dict)
    assigned: dict[str, list[Body]] = field(default_factory=dict)
    dealt: dict[str, embedded.Partitions] = field(default_factory=dict)
    sharing: Sharing = field(default_factory=Sharing)

    def of(self, symbol: Symbol) -> Any:
        """The value that a symbol has here and now."""
        match symbol:
            case TopicId(name, back):
                known = self.topic_ids.get(name, [])
                return known[-1 - back] if len(known) > back else UNKNOWN_TOPIC_ID
            case ProducerId(transactional_id, more, first):
                return self._producer(transactional_id, first=first)[0] + more
            case ProducerEpoch(transactional_id, more):
                epoch = self._producer(transactional_id)[1] + more
                return max(INT16_MIN, min(INT16_MAX, epoch))
            case Offset(topic, partition, "read", more):
                return self.read.get((topic, partition), 0) + more
            case Offset(topic, partition, base, more):
                start, end = self.bounds(self._own(topic), partition)
                return (start if base == "start" else end) + more
            case Moment(after_ms):
                return self.began_ms + after_ms
            case SessionId(name):
                return self.sessions.get(name, [UNKNOWN_SESSION_ID])[0]
            case SessionEpoch(name, more):
                return self.sessions.get(name, [0, 1])[1] + more
            case MemberId(member):
                return self.members.get(member, ("", -1))[0]
            case MemberEpoch(member, more):
                return self.members.get(member, ("", -1))[1] + more
            case Assigned(member):
                return self.assigned.get(member, [])
            case ShareEpoch(member, more):
                return self.sharing.epochs.get(member, 0) + more
            case Acknowledged():
                return self.sharing.acknowledged(symbol)
            case Subscription(topics, version, member):
                owned, generation = self.dealt.get(member, ()), self.of(MemberEpoch(member))
                names = [self._own(name) for name in topics]
                return embedded.subscription(names, owned, generation, version)
            case Dealt(partitions):
                return embedded.assignment(
                    tuple((self._own(name), of_it) for name, of_it in partitions)
                )
            case LogDir(suffix):
                return self.log_dir + suffix
            case Batch():
                return memoryview(self._batch(symbol))
            case Joined(parts):
                pieces = [one if isinstance(one, bytes) else self._batch(one) for one in parts]
                return memoryview(b"".join(pieces))
        raise AssertionError(symbol)

    def _own(self, name: str) -> str:
        return name.replace(OWN, self.prefix)

    def _producer(self, transactional_id: str, *, first: bool = False) -> tuple[int, int]:
        given = self.producers.get(transactional_id, [(UNKNOWN_PRODUCER_ID, 0)])
        return given[0] if first else given[-1]

    def _batch(self, batch: Batch) -> bytes:
        timestamp = batch.timestamp
        if isinstance(timestamp, Symbol):
            timestamp = self.of(timestamp)
        producer = (batch.producer_id, batch.epoch, batch.sequence)
        if batch.transactional_id:
            producer_id, epoch = self._producer(batch.transactional_id)
            epoch = max(0, epoch + dict(batch.odd).get("later_epoch", 0))
            sequence = self.sequences.get((producer_id, epoch, *batch.to), 0)
            producer = (producer_id, epoch, sequence)
        return encoded(batch, timestamp, producer)

    def learn(self, request: Request, answer: Body) -> None:
        """Keeps what the answer to a request tells of the broker's own names."""
        match request.api:
            case ApiKey.CREATE_TOPICS if not request.body.get("validate_only"):
                for topic in answer["topics"]:
                    if topic["error_code"] in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
                        self._learn_topic(topic["name"], topic.get("topic_id", ZERO_UUID))
            case ApiKey.DELETE_TOPICS:
                # One that was made by itself a moment ago may be seen here first.
                for topic in answer["responses"]:
                    if not topic["error_code"]:
                        self._learn_topic(topic["name"], topic.get("topic_id", ZERO_UUID))
            case api if api in _TOPIC_ANSWERS:
                for topic in answer["topics"]:
                    if not topic["error_code"]:
                        self._learn_topic(topic["name"], topic.get("topic_id", ZERO_UUID))
            case ApiKey.INIT_PRODUCER_ID | ApiKey.END_TXN:
                if not answer["error_code"] and answer.get("producer_id", -1) >= 0:
                    self._learn_producer(request.body.get("transactional_id") or "", answer)
            case ApiKey.PRODUCE:
                self._learn_sequences(request, answer)
            case ApiKey.FETCH:
                self._learn_fetch(request, answer)
            case ApiKey.SHARE_FETCH | ApiKey.SHARE_ACKNOWLEDGE:
                self.sharing.learn(request, answer)
            case ApiKey.JOIN_GROUP | ApiKey.CONSUMER_GROUP_HEARTBEAT | ApiKey.SHARE_GROUP_HEARTBEAT:
                self._learn_member(request, answer)
            case ApiKey.SYNC_GROUP if request.name and not answer["error_code"]:
                self.dealt[request.name] = embedded.partitions_of(bytes(answer["assignment"]))

    def _learn_topic(self, name: str | None, topic_id: bytes) -> None:
        if name is None or topic_id == ZERO_UUID or topic_id in self.topic_names:
            return
        known = self.topic_ids.setdefault(name.replace(self.prefix, OWN), [])
        known.append(topic_id)
        self.topic_names[topic_id] = f"id {len(known)} of {name.replace(self.prefix, OWN)}"

    def _learn_producer(self, transactional_id: str, answer: Body) -> None:
        producer_id, epoch = answer["producer_id"], answer["producer_epoch"]
        self.producers.setdefault(transactional_id, []).append((producer_id, epoch))
        self.producer_names.setdefault(producer_id, f"producer {len(self.producer_names)}")

    def _learn_sequences(self, request: Request, answer: Body) -> None:
        taken = {
            part["index"]
            for topic in answer["responses"]
            for part in topic["partition_responses"]
            if not part["error_code"]
        }
        for topic in request.body["topic_data"]:
            for part in topic["partition_data"]:
                batch = part["records"]
                if not isinstance(batch, Batch) or not batch.transactional_id:
                    continue
                producer_id, epoch = self._producer(batch.transactional_id)
                if batch.odd or part["index"] not in taken:
                    continue
                key = (producer_id, epoch, *batch.to)
                self.sequences[key] = self.sequences.get(key, 0) + len(batch.records)

    def _learn_fetch(self, request: Request, answer: Body) -> None:
        for topic in answer["responses"]:
            name = topic.get("topic") or self._name_of(topic.get("topic_id", ZERO_UUID))
            for part in topic["partitions"]:
                following = next_offset(bytes(part["records"] or b""))
                if following is not None and request.who == "reader":
                    own = name.replace(self.prefix, OWN)
                    self.read[own, part["partition_index"]] = following
        if not request.name or answer["error_code"] or not answer["session_id"]:
            return
        session = self.sessions.setdefault(request.name, [0, 1])
        if session[0] == answer["session_id"]:
            session[1] += 1
        else:
            session[:] = [answer["session_id"], 1]

    def _name_of(self, topic_id: bytes) -> str:
        for name, known in self.topic_ids.items():
            if topic_id in known:
                return name
        return ""

    def _learn_member(self, request: Request, answer: Body) -> None:
        known, before = self.members.get(request.name, ("", -1))
        # A refusal says again what it was asked with, which may be the id of somebody else.
        is_given = answer["error_code"] in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
        member_id: str = (is_given and answer["member_id"]) or known
        field = "generation_id" if request.api is ApiKey.JOIN_GROUP else "member_epoch"
        epoch: int = answer[field]
        self.members[request.name] = (member_id, before if answer["error_code"] else epoch)
        if answer.get("assignment") is not None:
            self.assigned[request.name] = answer["assignment"]["topic_partitions"]

    def producer(self, producer_id: int) -> Any:
        """A producer id as both brokers can call it."""
        if producer_id < 0 or producer_id >= CHOSEN_IDS:
            return producer_id
        return self.producer_names.get(producer_id, "another producer")

    def later(self, timestamp: int) -> Any:
        """A time that a broker has given is only known to be after the beginning."""
        if self.began_ms - 1 <= timestamp < self.began_ms + HOUR_MS:
            return "later"
        return timestamp
