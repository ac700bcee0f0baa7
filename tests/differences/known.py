"""The differences that are known and accepted, each with its reason.

An entry makes both answers alike where it holds, by changing the two trees; whatever else is in
them is compared as before.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ottla.broker.handlers.offsets import LATEST, MAX_TIMESTAMP
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.wire import ZERO_UUID
from tests.differences.comparing import differing
from tests.differences.requests import ProducerId, Request

Tree = Any


@dataclass(frozen=True, slots=True)
class Known:
    """`equate` changes both trees in place; it is asked only where they are not the same.

    `parts` is whether the brokers hold something else from then on, so that there is nothing more
    to compare.
    """

    reason: str
    apis: frozenset[ApiKey]
    equate: Callable[[Request, Tree, Tree], None]
    parts: bool = False


class PartedError(Exception):
    """The answers are the same but for what is known, and the brokers' ways part."""


@dataclass(slots=True)
class Accepted:
    """Compares, and counts which of the known differences were met."""

    known: tuple[Known, ...]
    met: Counter[str] = field(default_factory=Counter)

    def same(self, request: Request, kafka: Tree, ottla: Tree) -> bool:
        """Whether the answers are the same but for what is known; changes neither.

        Raises PartedError.
        """
        if kafka == ottla:
            return True
        if isinstance(kafka, str) or isinstance(ottla, str):
            return False
        kafka, ottla = copy.deepcopy(kafka), copy.deepcopy(ottla)
        for entry in self.known:
            if request.api not in entry.apis:
                continue
            before = list(differing(kafka, ottla))
            entry.equate(request, kafka, ottla)
            if len(list(differing(kafka, ottla))) < len(before):
                self.met[entry.reason] += 1
                if entry.parts:
                    raise PartedError
            if kafka == ottla:
                return True
        return False


def _each(value: Tree, field: str) -> Iterator[Tree]:
    """Every dict in a tree that has the field."""
    if isinstance(value, dict):
        if field in value:
            yield value
        for inner in value.values():
            yield from _each(inner, field)
    elif isinstance(value, list):
        for inner in value:
            yield from _each(inner, field)


def without(tree: Tree, names: tuple[str, ...]) -> None:
    """Takes the fields of these names out of it, however deep."""
    if isinstance(tree, dict):
        for name in names:
            tree.pop(name, None)
        for inner in tree.values():
            without(inner, names)
    elif isinstance(tree, list):
        for inner in tree:
            without(inner, names)


def share_parts(answer: Tree) -> list[Tree]:
    """The partitions of an answer to DescribeShareGroupOffsets."""
    topics = [topic for group in answer["groups"] for topic in group["topics"]]
    return [part for topic in topics for part in topic["partitions"]]


def _served(request: Request, kafka: Tree, ottla: Tree) -> None:
    for answer in (kafka, ottla):
        answer["api_keys"] = []
        for name in ("finalized_features_epoch", "finalized_features", "supported_features"):
            answer.pop(name, None)


def _records_to_blame(request: Request, kafka: Tree, ottla: Tree) -> None:
    for answer in (kafka, ottla):
        for part in _each(answer, "record_errors"):
            if part["error_code"] == ErrorCode.INVALID_TIMESTAMP and part["record_errors"]:
                part["record_errors"] = ["some"]


def _wrong_in_two_ways(request: Request, kafka: Tree, ottla: Tree) -> None:
    for theirs, ours in zip(kafka["responses"], ottla["responses"], strict=False):
        codes = {theirs["error_code"], ours["error_code"]}
        if codes == {ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD}:
            for part in (theirs, ours):
                part["error_code"] = "refused"
                part["record_errors"] = []


def _time_behind_deleted_records(request: Request, kafka: Tree, ottla: Tree) -> None:
    for theirs, ours in zip(kafka["topics"], ottla["topics"], strict=False):
        codes = theirs["error_code"], ours["error_code"]
        if codes == (0, 0) and theirs["offset"] == -1 < ours["offset"]:
            theirs |= ours


READ_COMMITTED = 1


def _asked_for(request: Request, timestamp: int) -> set[tuple[str, int]]:
    """The partitions of which a ListOffsets wants that offset."""
    return {
        (topic["name"], part["partition_index"])
        for topic in request.body["topics"]
        for part in topic["partitions"]
        if part["timestamp"] == timestamp
    }


def _greatest_time_that_is_deleted(request: Request, kafka: Tree, ottla: Tree) -> None:
    asked = _asked_for(request, MAX_TIMESTAMP)
    for theirs, ours in zip(kafka["topics"], ottla["topics"], strict=False):
        codes = theirs["error_code"], ours["error_code"]
        is_asked = (theirs["name"], theirs["partition_index"]) in asked
        if is_asked and codes == (0, 0) and not 0 <= ours["offset"] <= theirs["offset"]:
            theirs |= ours


def _stable_before_the_start(request: Request, kafka: Tree, ottla: Tree) -> None:
    for theirs in kafka["responses"]:
        if 0 <= theirs["last_stable_offset"] < theirs.get("log_start_offset", 0):
            theirs["last_stable_offset"] = theirs["log_start_offset"]


def _stable_end_before_the_start(request: Request, kafka: Tree, ottla: Tree) -> None:
    if request.body.get("isolation_level") != READ_COMMITTED:
        return
    # Whether it is before the start is not said here: what a Fetch says of it is compared, too.
    asked = _asked_for(request, LATEST)
    for theirs, ours in zip(kafka["topics"], ottla["topics"], strict=False):
        is_asked = (theirs["name"], theirs["partition_index"]) in asked
        if is_asked and 0 <= theirs["offset"] < ours["offset"]:
            theirs |= ours


def _another_leader(request: Request, kafka: Tree, ottla: Tree) -> None:
    is_alike = all(kafka[name] == ottla[name] for name in ("error_code", "generation_id"))
    if is_alike and kafka["leader"] and ottla["leader"]:
        for answer in (kafka, ottla):
            del answer["leader"], answer["members"]


UNKNOWN_TOPICS = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)


def _session_of_a_topic_that_is_gone(request: Request, kafka: Tree, ottla: Tree) -> None:
    if request.body.get("session_epoch", -1) == -1:
        return
    for answer in (kafka, ottla):
        for part in answer["responses"]:
            if part["error_code"] in UNKNOWN_TOPICS:
                part["error_code"] = "unknown"
        answer["responses"].sort(key=lambda part: part["error_code"] == "unknown")


def _not_compared(kafka: Tree, ottla: Tree) -> None:
    ottla.clear()
    ottla.update(kafka)


def _names_and_ids(request: Request, kafka: Tree, ottla: Tree) -> None:
    topics = request.body["topics"] or []
    ids = [topic.get("topic_id", ZERO_UUID) != ZERO_UUID for topic in topics]
    if (any(ids) and not all(ids)) or any(topic.get("name", "") is None for topic in topics):
        _not_compared(kafka, ottla)


def _nothing_named(request: Request, kafka: Tree, ottla: Tree) -> None:
    for answer in (kafka, ottla):
        answer["responses"] = [
            one
            for one in answer["responses"]
            if one["name"] is not None or one.get("topic_id") != "none"
        ]


FLUSH = "log.flush.interval.messages"
DEFAULT_SOURCE, TOPIC_SOURCE = 5, 1
OWN_START = ("node.id", "broker.id", "log.dirs", "listeners", "advertised.listeners")
BROKER, LOGGER, METRICS, GROUP = 4, 8, 16, 32


def _the_one_default(request: Request, kafka: Tree, ottla: Tree) -> None:
    for answer in (kafka, ottla):
        for config in _each(answer, "synonyms"):
            for one in config["synonyms"] or []:
                if (one["name"], one["source"]) == (FLUSH, DEFAULT_SOURCE):
                    one["value"] = "the default"


def _own_words(request: Request, kafka: Tree, ottla: Tree) -> None:
    for answer in (kafka, ottla):
        for config in _each(answer, "documentation"):
            config["documentation"] = bool(config["documentation"])


def _own_start(request: Request, kafka: Tree, ottla: Tree) -> None:
    for answer in (kafka, ottla):
        for result in answer["results"]:
            if result["resource_type"] == BROKER:
                result["configs"] = [
                    one for one in result["configs"] if one["name"] not in OWN_START
                ]


def _as_understood(request: Request, kafka: Tree, ottla: Tree) -> None:
    for answer in (kafka, ottla):
        for config in _each(answer, "config_source"):
            if config["config_source"] == TOPIC_SOURCE:
                config["value"] = "what was set"


def _refused_alike(request: Request, kafka: Tree, ottla: Tree) -> None:
    for theirs, ours in zip(kafka["responses"], ottla["responses"], strict=False):
        codes = {theirs["error_code"], ours["error_code"]}
        is_nameless = theirs["resource_type"] in (METRICS, GROUP) and not theirs["resource_name"]
        both_refuse = 0 not in codes and (
            is_nameless or codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_CONFIG}
        )
        if both_refuse or theirs["resource_type"] == LOGGER:
            theirs["error_code"] = ours["error_code"] = "refused"


def _no_name(request: Request, kafka: Tree, ottla: Tree) -> None:
    if any(topic["name"] == "" for topic in request.body["topics"]):
        _not_compared(kafka, ottla)


def _feature_by_feature(request: Request, kafka: Tree, ottla: Tree) -> None:
    for answer in (kafka, ottla):
        answer.pop("results", None)


def _start_where_refused(request: Request, kafka: Tree, ottla: Tree) -> None:
    for theirs, ours in zip(kafka["responses"], ottla["responses"], strict=False):
        if theirs["error_code"] == ours["error_code"] != 0 and theirs.get("log_start_offset") == -1:
            ours["log_start_offset"] = -1


def _behind_a_refused_batch(request: Request, kafka: Tree, ottla: Tree) -> None:
    if not request.body.get("transactional_id"):
        return
    for theirs, ours in zip(kafka["responses"], ottla["responses"], strict=False):
        if (theirs["error_code"], ours["error_code"]) == (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            0,
        ):
            theirs |= ours


def _ends_with_a_segment(request: Request, kafka: Tree, ottla: Tree) -> None:
    for theirs, ours in zip(kafka["responses"], ottla["responses"], strict=False):
        some, more = theirs.get("records"), ours.get("records")
        if some and more and len(some) < len(more) and more[: len(some)] == some:
            ours["records"] = some


def _another_s_transaction(request: Request, kafka: Tree, ottla: Tree) -> None:
    name, producer = request.body["transactional_id"], request.body.get("producer_id")
    if producer == ProducerId(name):
        return
    refusal = ErrorCode.INVALID_PRODUCER_ID_MAPPING if name else ErrorCode.INVALID_REQUEST
    for theirs, ours in zip(kafka["topics"], ottla["topics"], strict=False):
        if theirs["error_code"] != ours["error_code"] == refusal:
            theirs |= ours


def _group_of_a_refused_commit(request: Request, kafka: Tree, ottla: Tree) -> None:
    if request.body.get("generation_id", -1) < 0:
        return
    for theirs, ours in zip(kafka["topics"], ottla["topics"], strict=False):
        if (theirs["error_code"], ours["error_code"]) == (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
        ):
            theirs |= ours


def _refused_member(request: Request, kafka: Tree, ottla: Tree) -> None:
    codes = {kafka["error_code"], ottla["error_code"]}
    if len(codes) == 1 and not codes & {0, ErrorCode.MEMBER_ID_REQUIRED}:
        kafka["member_id"] = ottla["member_id"]


def _how_many_partitions(request: Request, kafka: Tree, ottla: Tree) -> None:
    for answer in (kafka, ottla):
        for assigned in _each(answer, "topic_partitions"):
            topics = assigned["topic_partitions"]
            assigned["topic_partitions"] = sum(len(topic["partitions"]) for topic in topics)


KNOWN: tuple[Known, ...] = (
    Known(
        "Ottla lists what it serves in ApiVersions, and each broker its features",
        frozenset((ApiKey.API_VERSIONS,)),
        _served,
    ),
    Known(
        "Ottla judges the times of a compressed or a large batch by its header, and names one "
        "record where Kafka unpacks it and names each",
        frozenset((ApiKey.PRODUCE,)),
        _records_to_blame,
    ),
    Known(
        "A batch that is wrong in its records and in its times is refused for one of them; Ottla "
        "looks at the header first",
        frozenset((ApiKey.PRODUCE,)),
        _wrong_in_two_ways,
    ),
    Known(
        "Kafka looks for a time in the first segment that has it, and finds nothing where the "
        "records there that have it are deleted; Ottla goes on to the next",
        frozenset((ApiKey.LIST_OFFSETS,)),
        _time_behind_deleted_records,
    ),
    Known(
        "The record with the greatest timestamp may be deleted in Kafka; Ottla names one that is "
        "there, or none",
        frozenset((ApiKey.LIST_OFFSETS,)),
        _greatest_time_that_is_deleted,
    ),
    Known(
        "A fetch session that has a topic which is deleted is told one of three errors, by what of "
        "it Kafka's session still holds; clients refresh their metadata for each",
        frozenset((ApiKey.FETCH,)),
        _session_of_a_topic_that_is_gone,
    ),
    Known(
        "The last stable offset is never before the log's start, in Kafka it is where records of "
        "an open transaction were deleted",
        frozenset((ApiKey.FETCH,)),
        _stable_before_the_start,
    ),
    Known(
        "And so it is with the end for who reads only what is committed",
        frozenset((ApiKey.LIST_OFFSETS,)),
        _stable_end_before_the_start,
    ),
    Known(
        "Kafka may begin a segment for a batch that it finds to be a duplicate and does not write, "
        "and a fetch ends with a segment",
        frozenset((ApiKey.FETCH,)),
        _ends_with_a_segment,
        parts=True,
    ),
    Known(
        "Who leads a group that its leader has left is decided by the order of a hash map in Kafka",
        frozenset((ApiKey.JOIN_GROUP,)),
        _another_leader,
        parts=True,
    ),
    Known(
        "Metadata that mixes names and ids is answered for both; Kafka answers for the ids alone",
        frozenset((ApiKey.METADATA,)),
        _names_and_ids,
    ),
    Known(
        "DeleteTopics of neither a name nor an id is told as often as it stands there",
        frozenset((ApiKey.DELETE_TOPICS,)),
        _nothing_named,
    ),
    Known(
        "The one default that differs: records are synced before they are acknowledged",
        frozenset((ApiKey.DESCRIBE_CONFIGS,)),
        _the_one_default,
    ),
    Known(
        "Each broker documents its settings in its own words",
        frozenset((ApiKey.DESCRIBE_CONFIGS,)),
        _own_words,
    ),
    Known(
        "The brokers are started otherwise: what Kafka must be told has a default here",
        frozenset((ApiKey.DESCRIBE_CONFIGS,)),
        _own_start,
    ),
    Known(
        "CreateTopics echoes settings as they are understood, Kafka as they were written",
        frozenset((ApiKey.CREATE_TOPICS,)),
        _as_understood,
    ),
    Known(
        "Settings of what is not there (a topic, a nameless group or subscription) are refused for "
        "one of two reasons; and Ottla has no loggers whose level could be set",
        frozenset((ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS)),
        _refused_alike,
    ),
    Known(
        "DescribeTopicPartitions of a topic without a name ends Kafka's answer where it stands",
        frozenset((ApiKey.DESCRIBE_TOPIC_PARTITIONS,)),
        _no_name,
    ),
    Known(
        "UpdateFeatures tells what became of each feature, or of all at once",
        frozenset((ApiKey.UPDATE_FEATURES,)),
        _feature_by_feature,
    ),
    Known(
        "What the log refuses is told with the log's start; Kafka's coordinator refuses some of "
        "a transaction before it, which the log does here",
        frozenset((ApiKey.PRODUCE,)),
        _start_where_refused,
    ),
    Known(
        "Of a batch that is refused because its partition is not in the transaction Kafka keeps "
        "the sequence, and takes none above it, though a batch without a transaction has had it",
        frozenset((ApiKey.PRODUCE,)),
        _behind_a_refused_batch,
        parts=True,
    ),
    Known(
        "Offsets in a transaction without a name, or by a name that is not the producer's, are "
        "refused; Kafka looks at their producer, and takes them where it has committed some in "
        "this transaction by its name",
        frozenset((ApiKey.TXN_OFFSET_COMMIT,)),
        _another_s_transaction,
        parts=True,
    ),
    Known(
        "A commit without a generation makes a group in Kafka even if all of its offsets are "
        "refused, so that one with a generation is told that its member is unknown there",
        frozenset((ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT)),
        _group_of_a_refused_commit,
    ),
    Known(
        "A refused JoinGroup repeats the member's id, or does not",
        frozenset((ApiKey.JOIN_GROUP,)),
        _refused_member,
    ),
    Known(
        "Which partitions a member has depends on the order of members, which in Kafka's assignors "
        "is that of a hash map; how many it has is compared",
        frozenset((ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE)),
        _how_many_partitions,
    ),
)
