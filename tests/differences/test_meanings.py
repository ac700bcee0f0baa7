"""Symbols mean what a broker has answered."""

from __future__ import annotations

from typing import Any

from ottla.protocol.api import ApiKey
from ottla.protocol.records.batch import read_header
from tests.differences.batches import Batch, Joined, Record
from tests.differences.meanings import UNKNOWN_SESSION_ID, UNKNOWN_TOPIC_ID, Meanings
from tests.differences.requests import (
    Assigned,
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
    TopicId,
    resolved,
)

FIRST, SECOND = bytes([1]) * 15 + b"a", bytes([2]) * 16


def _meanings() -> Meanings:
    return Meanings("d000001x", 1_000, "/data", lambda topic, partition: (2, len(topic)))


def _made(meanings: Meanings, topic_id: bytes) -> None:
    topic = {"name": "d000001xa", "error_code": 0, "topic_id": topic_id}
    meanings.learn(Request(ApiKey.CREATE_TOPICS, 7, {}), {"topics": [topic]})


def test_topics_have_ids_by_their_age() -> None:
    meanings = _meanings()

    assert meanings.of(TopicId("~a")) == UNKNOWN_TOPIC_ID
    _made(meanings, FIRST)
    _made(meanings, SECOND)
    assert (meanings.of(TopicId("~a")), meanings.of(TopicId("~a", 1))) == (SECOND, FIRST)


def test_a_topic_that_was_only_validated_has_none() -> None:
    meanings = _meanings()
    topic = {"name": "d000001xa", "error_code": 0, "topic_id": FIRST}
    request = Request(ApiKey.CREATE_TOPICS, 7, {"validate_only": True})
    meanings.learn(request, {"topics": [topic]})

    assert meanings.of(TopicId("~a")) == UNKNOWN_TOPIC_ID


def test_producers_have_their_last_epoch_and_the_next_sequence() -> None:
    meanings = _meanings()
    batch = Batch((Record(None, "v"),) * 3, 5, transactional_id="~t", to=("~a", 0))
    for producer_id, epoch in ((7, 0), (8, 4)):
        given = {"error_code": 0, "producer_id": producer_id, "producer_epoch": epoch}
        meanings.learn(Request(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": "~t"}), given)

    assert meanings.of(ProducerId("~t")) == 8
    assert meanings.of(ProducerId("~t", first=True)) == 7
    assert meanings.of(ProducerEpoch("~t", 1)) == 5
    for sequence in (0, 3):
        header = read_header(meanings.of(batch))
        assert (header.producer_id, header.producer_epoch) == (8, 4)
        assert header.base_sequence == sequence
        part = {"index": 0, "records": batch}
        body = {"topic_data": [{"name": "~a", "partition_data": [part]}]}
        taken = {"partition_responses": [{"index": 0, "error_code": 0}]}
        meanings.learn(Request(ApiKey.PRODUCE, 9, body), {"responses": [taken]})


def test_sessions_go_on_from_what_was_answered() -> None:
    meanings = _meanings()
    request = Request(ApiKey.FETCH, 11, {}, name="s")
    answer: dict[str, Any] = {"error_code": 0, "session_id": 55, "responses": []}

    assert meanings.of(SessionId("s")) == UNKNOWN_SESSION_ID
    for epoch in (1, 2):
        meanings.learn(request, answer)
        assert (meanings.of(SessionId("s")), meanings.of(SessionEpoch("s"))) == (55, epoch)
    meanings.learn(request, answer | {"error_code": 71})
    assert meanings.of(SessionEpoch("s")) == 2


def test_members_keep_their_epoch_when_they_are_refused() -> None:
    meanings = _meanings()
    request = Request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {}, name="m")
    owned = [{"topic_id": FIRST, "partitions": [1]}]
    taken = {"error_code": 0, "member_id": "id", "member_epoch": 3}
    meanings.learn(request, taken | {"assignment": {"topic_partitions": owned}})
    refused = {"error_code": 110, "member_id": None, "member_epoch": 0, "assignment": None}
    meanings.learn(request, refused)

    assert (meanings.of(MemberId("m")), meanings.of(MemberEpoch("m", -1))) == ("id", 2)
    assert meanings.of(Assigned("m")) == owned


def test_offsets_moments_and_paths_are_looked_up() -> None:
    meanings = _meanings()

    assert meanings.of(Offset("~a", 0, "start", -1)) == 1
    assert meanings.of(Offset("~a", 0, "end")) == len("d000001xa")
    assert (meanings.of(Moment(-1)), meanings.of(LogDir("/x"))) == (999, "/data/x")
    assert bytes(meanings.of(Joined((b"ab", b"c")))) == b"abc"


def test_bodies_are_resolved_wherever_symbols_stand_in_them() -> None:
    body = {"a": ["~b", {"c": Moment(1)}], "d": None, "e": 4}

    assert resolved(body, _meanings().of, "own-") == {
        "a": ["own-b", {"c": 1_001}],
        "d": None,
        "e": 4,
    }
