"""When two answers are the same: normalisation, and where two trees differ.

Brokers give ids of their own, tell the time, list in an order of their own and know of what other
sequences have left behind; all that is made alike here. What remains is what a client relies on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ottla.protocol.api import ApiKey
from ottla.protocol.wire import ZERO_UUID
from tests.differences import batches
from tests.differences.meanings import Meanings
from tests.differences.peer import Answer
from tests.differences.requests import OWN, Body, Request

NOT_COMPARED = frozenset(("throttle_time_ms", "total_bytes", "usable_bytes"))
NOT_COMPARED_OF: dict[ApiKey, frozenset[str]] = {
    # What has come to pass on a broker, and where its controller listens.
    ApiKey.DESCRIBE_QUORUM: frozenset(
        ("high_watermark", "log_end_offset", "leader_epoch", "nodes", "observers")
    ),
}
ONCE = {
    ApiKey.DESCRIBE_CONFIGS: "results",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "responses",
    ApiKey.ALTER_CONFIGS: "responses",
    ApiKey.DESCRIBE_GROUPS: "groups",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "groups",
    ApiKey.SHARE_GROUP_DESCRIBE: "groups",
}
"""What is asked for twice may be answered once."""
PRODUCERS = frozenset(("producer_id", "ongoing_txn_producer_id"))
TIMES = frozenset(
    (
        "transaction_start_time_ms",
        "last_timestamp",
        "last_fetch_timestamp",
        "last_caught_up_timestamp",
        "log_append_time_ms",
        "timestamp",
    )
)
MESSAGES = frozenset(("error_message", "batch_index_error_message", "acknowledge_error_message"))
"""Sentences are for people, and are ours."""
IDENTITY = (
    "resource_type",
    "resource_name",
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "transactional_id",
    "group_id",
    "member_id",
    "client_id",
    "partition_index",
    "partition",
    "index",
    "producer_id",
    "feature",
    "entity_type",
    "entity_name",
    "log_dir",
)
IN_ORDER = frozenset((ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.FETCH))
"""APIs whose answers have an order that means something."""
ORDERED_FIELDS = frozenset(("replica_nodes", "isr_nodes", "replicas", "records"))
SHARING = frozenset((ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE))
UNKNOWN_IN_FETCH = frozenset((3, 100, 103))
"""UNKNOWN_TOPIC_OR_PARTITION, ..._TOPIC_ID, INCONSISTENT_TOPIC_ID: Kafka tells them last."""

PARTITIONS: dict[ApiKey, tuple[str, ...]] = {
    ApiKey.PRODUCE: ("responses", "partition_responses"),
    ApiKey.FETCH: ("responses", "partitions"),
    ApiKey.SHARE_FETCH: ("responses", "partitions"),
    ApiKey.SHARE_ACKNOWLEDGE: ("responses", "partitions"),
    ApiKey.LIST_OFFSETS: ("topics", "partitions"),
    ApiKey.DELETE_RECORDS: ("topics", "partitions"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("topics", "partitions"),
    ApiKey.DESCRIBE_PRODUCERS: ("topics", "partitions"),
    ApiKey.OFFSET_COMMIT: ("topics", "partitions"),
    ApiKey.TXN_OFFSET_COMMIT: ("topics", "partitions"),
    ApiKey.WRITE_TXN_MARKERS: ("markers", "topics", "partitions"),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        "results_by_transaction",
        "topic_results",
        "results_by_partition",
    ),
}
OLDER_ADD_PARTITIONS = ("results_by_topic_v3_and_below", "results_by_partition")
"""Where partitions stand in an answer. Under how many entries of the same topic they are told, and
whether one that was asked for twice is told twice, is nothing that a client looks at."""

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""In the ids of members, behind the name of their client or instance."""

SHORT_UUID = re.compile(r"[\w-]{22}")
"""An id that a member of a consumer group is given."""

Tree = Any


@dataclass(frozen=True, slots=True)
class Difference:
    """Two answers that are not the same, of the step of this index."""

    step: int
    request: Request
    kafka: Tree
    ottla: Tree

    @property
    def shape(self) -> str:
        """What it is about: the same for another topic, another offset, another number of them."""
        if isinstance(self.kafka, str) or isinstance(self.ottla, str):
            kinds = [
                one if isinstance(one, str) else "an answer" for one in (self.kafka, self.ottla)
            ]
            return f"{self.request.api.name}: {kinds[0]} / {kinds[1]}"
        found = (
            f"{path}: {_brief(kafka)} / {_brief(ottla)}"
            for path, kafka, ottla in differing(self.kafka, self.ottla)
        )
        return f"{self.request.api.name}: " + "; ".join(dict.fromkeys(found))


def _brief(value: Tree) -> str:
    text = json.dumps(value, default=str)
    if isinstance(value, int) and -10 < value < 150:
        return text
    return re.sub(r"\d+", "N", re.sub(r'"[^"]*"', "S", text))[:60]


def differing(kafka: Tree, ottla: Tree, path: str = "") -> Iterator[tuple[str, Tree, Tree]]:
    """Where two trees differ; positions in lists are left out of the path."""
    if isinstance(kafka, dict) and isinstance(ottla, dict):
        for name in dict.fromkeys([*kafka, *ottla]):
            below = f"{path}.{name}" if path else name
            yield from differing(kafka.get(name), ottla.get(name), below)
    elif isinstance(kafka, list) and isinstance(ottla, list):
        if len(kafka) != len(ottla):
            yield f"{path}[]", kafka, ottla
            return
        for left, right in zip(kafka, ottla, strict=True):
            yield from differing(left, right, f"{path}[]")
    elif type(kafka) is not type(ottla) or kafka != ottla:
        yield path, kafka, ottla


def normal(request: Request, answer: Answer, meanings: Meanings, port: int) -> Tree:
    """The answer as it should be on every broker."""
    if isinstance(answer, str):
        return answer
    out = _Normal(request.api, meanings, port).of(answer, "")
    _only_own(request.api, out)
    if request.api in ONCE:
        out[ONCE[request.api]] = _apiece(out[ONCE[request.api]], [])
    if request.api in PARTITIONS:
        older = OLDER_ADD_PARTITIONS[0] in out
        top, *below = OLDER_ADD_PARTITIONS if older else PARTITIONS[request.api]
        out[top] = _apiece(out[top], below)
    if request.api is ApiKey.FETCH:
        _in_fetch(out)
    elif request.api in PARTITIONS:
        if request.api in SHARING:
            _only_shared(out)
        out[top] = sorted(out[top], key=_identity)
    return out


def _apiece(entries: list[Tree], below: list[str]) -> list[Tree]:
    """One entry for each partition, with the names that it stood under."""
    out: list[Tree] = []
    for entry in entries:
        if not below:
            if entry not in out:
                out.append(entry)
            continue
        above = {name: value for name, value in entry.items() if name != below[0]}
        for inner in _apiece(entry[below[0]], below[1:]):
            one = {**above, **inner}
            if one not in out:
                out.append(one)
    return out


@dataclass(slots=True)
class _Normal:
    api: ApiKey
    meanings: Meanings
    port: int

    @property
    def _left_out(self) -> frozenset[str]:
        return NOT_COMPARED | MESSAGES | NOT_COMPARED_OF.get(self.api, frozenset())

    def of(self, value: Tree, field: str) -> Tree:
        if isinstance(value, dict):
            return {
                name: self._field(name, one)
                for name, one in value.items()
                if name not in self._left_out
            }
        if isinstance(value, list):
            return self._ordered([self.of(one, field) for one in value], field)
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, (bytes, memoryview)):
            return self._bytes(bytes(value))
        if isinstance(value, float) and value != value:
            return "NaN"
        return value

    def _field(self, name: str, value: Tree) -> Tree:
        if name in TIMES and isinstance(value, int):
            return self.meanings.later(value)
        if name in PRODUCERS:
            return self.meanings.producer(value)
        if name == "topic_id":
            return "none" if value == ZERO_UUID else self._topic(value)
        if name == "cluster_id":
            return value and "the cluster"
        if name == "port":
            return "the port" if value > 0 else value
        if name == "session_id":
            return value and "a session"
        if name == "replica_directory_id":
            return "none" if value == ZERO_UUID else "a log dir"
        if name == "records" and value is not None:
            return batches.compared(bytes(value), self.meanings.later, self.meanings.producer)
        return self.of(value, name)

    def _topic(self, topic_id: bytes) -> str:
        # One that was only thought of is another each time.
        unknown = "an id" if self.api is ApiKey.CREATE_TOPICS else f"id {topic_id.hex()[:4]}"
        return self.meanings.topic_names.get(topic_id, unknown)

    def _text(self, text: str) -> str:
        if SHORT_UUID.fullmatch(text):
            return "<id>"
        if self.meanings.prefix:
            text = text.replace(self.meanings.prefix, OWN)
        text = UUID.sub("<id>", text.replace(self.meanings.log_dir, "<log dir>"))
        return re.sub(rf"(?<!\d){self.port}(?!\d)", "<port>", text)

    def _bytes(self, value: bytes) -> str:
        if value in self.meanings.topic_names:
            return self.meanings.topic_names[value]
        return value.hex()

    def _ordered(self, values: list[Tree], field: str) -> list[Tree]:
        if self.api in IN_ORDER or field in ORDERED_FIELDS:
            return values
        return sorted(values, key=_identity)


def _identity(value: Tree) -> tuple[str, str]:
    whole = json.dumps(value, sort_keys=True, default=str)
    if not isinstance(value, dict):
        return "", whole
    named = [value[name] for name in IDENTITY if name in value]
    return json.dumps(named, default=str), whole


def _is_own(*fields: str) -> Callable[[Body], bool]:
    return lambda entry: any(OWN in (entry.get(field) or "") for field in fields)


def _only_own(api: ApiKey, out: Body) -> None:
    """Answers about all that there is: what is not this sequence's is left out."""

    def keep(field: str, kept: Callable[[Body], bool]) -> None:
        if out[field] is not None:
            out[field] = [entry for entry in out[field] if kept(entry)]

    own_name = _is_own("name")
    match api:
        case ApiKey.METADATA | ApiKey.DESCRIBE_TOPIC_PARTITIONS:
            keep("topics", lambda one: one["name"] is None or one["error_code"] or own_name(one))
        case ApiKey.DESCRIBE_LOG_DIRS:
            for one in out["results"]:
                one["topics"] = [topic for topic in one["topics"] if own_name(topic)]
        case ApiKey.LIST_TRANSACTIONS:
            keep("transaction_states", _is_own("transactional_id"))
        case ApiKey.LIST_PARTITION_REASSIGNMENTS:
            keep("topics", own_name)
        case ApiKey.LIST_GROUPS:
            keep("groups", _is_own("group_id"))
        case ApiKey.LIST_CONFIG_RESOURCES:
            brokers = (4, 8)
            keep(
                "config_resources",
                lambda one: OWN in one["resource_name"] or one.get("resource_type", 16) in brokers,
            )
        case ApiKey.DESCRIBE_CLIENT_QUOTAS:
            keep("entries", lambda entry: any(_own_entity(one) for one in entry["entity"]))
        case ApiKey.ELECT_LEADERS:
            own_topic = _is_own("topic")
            keep(
                "replica_election_results",
                lambda one: (
                    own_topic(one) or any(part["error_code"] for part in one["partition_result"])
                ),
            )


OWN_ADDRESSES = "10.9."
"""Quotas of addresses that begin so are a sequence's."""


def _own_entity(entity: Body) -> bool:
    name = entity["entity_name"] or ""
    return OWN in name or name.startswith(OWN_ADDRESSES)


def _in_fetch(out: Body) -> None:
    """Those that are not known stand behind all others; and of the aborted transactions, of which
    a broker may tell more, count those that concern what was read."""
    for part in out["responses"]:
        read = [batch for batch in part["records"] or [] if isinstance(batch, dict)]
        last = read[-1]["base_offset"] if read else -1
        part["aborted_transactions"] = sorted(
            (str(one["producer_id"]), one["first_offset"])
            for one in part["aborted_transactions"] or []
            if one["first_offset"] <= last
        )
    parts = out["responses"]
    unknown = [part for part in parts if part["error_code"] in UNKNOWN_IN_FETCH]
    known = [part for part in parts if part["error_code"] not in UNKNOWN_IN_FETCH]
    out["responses"] = known + sorted(unknown, key=_identity)


def _only_shared(out: Body) -> None:
    """What is acquired, by as few ranges as there can be, and of the batches those that have some
    of it, for a broker may send others around them; and no partition of which nothing is said."""
    for part in out["responses"]:
        ranges: list[list[int]] = []
        for one in sorted(part.get("acquired_records", []), key=lambda each: each["first_offset"]):
            first, last, count = one["first_offset"], one["last_offset"], one["delivery_count"]
            if ranges and ranges[-1][1] + 1 == first and ranges[-1][2] == count:
                ranges[-1][1] = last
            else:
                ranges.append([first, last, count])
        part["acquired_records"] = ranges
        part["records"] = [
            batch
            for batch in part.get("records") or []
            if not isinstance(batch, dict) or _meets(batch, ranges)
        ]
    said = ("error_code", "acknowledge_error_code", "acquired_records", "records")
    out["responses"] = [part for part in out["responses"] if any(part.get(field) for field in said)]


def _meets(batch: Body, ranges: list[list[int]]) -> bool:
    base = batch["base_offset"]
    last = base + batch["last_offset_delta"]
    return any(first <= last and base <= until for first, until, _ in ranges)
