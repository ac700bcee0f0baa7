"""What brokers have of their own makes no difference; what clients rely on does."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.handlers.offsets import EARLIEST, LATEST
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from tests.differences.batches import Batch, Record, encoded
from tests.differences.comparing import Difference, Tree, differing, normal
from tests.differences.known import KNOWN, Accepted, PartedError
from tests.differences.known_carried import come_back
from tests.differences.known_shares import SHARES
from tests.differences.known_upgrades import MEMBERS, UPGRADES
from tests.differences.meanings import Meanings
from tests.differences.requests import Acknowledged, ProducerId, Request

PREFIX, BEGAN_MS, PORT = "d000001x", 1_700_000_000_000, 9_092


def _meanings(topic_id: int, producer_id: int) -> Meanings:
    meanings = Meanings(PREFIX, BEGAN_MS, f"/data{topic_id}", lambda topic, partition: (0, 0))
    named = {"name": f"{PREFIX}a", "error_code": 0, "topic_id": bytes([topic_id]) * 16}
    meanings.learn(Request(ApiKey.CREATE_TOPICS, 7, {}), {"topics": [named]})
    given = {"error_code": 0, "producer_id": producer_id, "producer_epoch": 0}
    meanings.learn(Request(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": "~t"}), given)
    return meanings


def _normal(api: ApiKey, answer: dict[str, Any], topic_id: int = 1, producer_id: int = 1) -> Any:
    request = Request(api, 0, {})
    return normal(request, answer, _meanings(topic_id, producer_id), PORT + topic_id)


def _metadata(topic_id: int, *, error: int = 0, reverse: bool = False) -> dict[str, Any]:
    topics = [
        {
            "name": f"{PREFIX}a",
            "error_code": error,
            "topic_id": bytes([topic_id]) * 16,
            "partitions": [{"partition_index": index} for index in (0, 1)],
        },
        {"name": "another", "error_code": 0, "topic_id": bytes([9 * topic_id]) * 16},
    ]
    for topic in topics:
        if reverse and isinstance(topic.get("partitions"), list):
            topic["partitions"] = [{"partition_index": index} for index in (1, 0)]
    return {
        "throttle_time_ms": topic_id,
        "brokers": [{"port": PORT + topic_id}],
        "topics": topics[:: -1 if reverse else 1],
    }


def test_ids_ports_order_and_what_others_left_make_no_difference() -> None:
    kafka = _normal(ApiKey.METADATA, _metadata(1), 1)
    ottla = _normal(ApiKey.METADATA, _metadata(2, reverse=True), 2)

    assert kafka == ottla
    assert [topic["name"] for topic in kafka["topics"]] == ["~a"]


def test_an_error_an_id_that_is_not_known_and_a_missing_entry_do() -> None:
    right = _normal(ApiKey.METADATA, _metadata(1), 1)
    missing = _metadata(1)
    missing["topics"][0]["partitions"].pop()

    assert _normal(ApiKey.METADATA, _metadata(1, error=3), 1) != right
    assert _normal(ApiKey.METADATA, _metadata(1), 2) != right
    assert _normal(ApiKey.METADATA, missing, 1) != right


def test_producers_are_called_by_the_order_in_which_they_came() -> None:
    def answer(producer_id: int) -> dict[str, Any]:
        state = {"transactional_id": f"{PREFIX}t", "producer_id": producer_id, "error_code": 0}
        return {"transaction_states": [state]}

    api = ApiKey.DESCRIBE_TRANSACTIONS

    assert _normal(api, answer(4), producer_id=4) == _normal(api, answer(7), producer_id=7)
    assert _normal(api, answer(4), producer_id=4) != _normal(api, answer(4), producer_id=7)


def test_a_time_of_the_broker_is_later_and_one_of_a_client_is_itself() -> None:
    def offsets(timestamp: int) -> dict[str, Any]:
        part = {"partition_index": 0, "error_code": 0, "timestamp": timestamp, "offset": 1}
        return {"topics": [{"name": f"{PREFIX}a", "partitions": [part]}]}

    api = ApiKey.LIST_OFFSETS
    first = _normal(api, offsets(BEGAN_MS + 5))

    assert first == _normal(api, offsets(BEGAN_MS + 900))
    assert first != _normal(api, offsets(BEGAN_MS - 900))
    assert _normal(api, offsets(1_000)) != _normal(api, offsets(1_001))


def test_how_partitions_are_grouped_makes_no_difference() -> None:
    def part(index: int) -> dict[str, Any]:
        return {"partition_index": index, "error_code": 0, "offset": 4}

    together = {"topics": [{"name": "~a", "partitions": [part(0), part(1)]}]}
    apart = {"topics": [{"name": "~a", "partitions": [part(index)]} for index in (1, 0, 1)]}
    fewer = {"topics": [{"name": "~a", "partitions": [part(0)]}]}
    api = ApiKey.LIST_OFFSETS

    assert _normal(api, together) == _normal(api, apart)
    assert _normal(api, together) != _normal(api, fewer)


def _fetched(*parts: tuple[int, int], aborted: int | None = None) -> dict[str, Any]:
    records = encoded(Batch((Record("k", "v"),)), 1_000, (-1, -1, -1))
    told = [] if aborted is None else [{"producer_id": 1, "first_offset": aborted}]
    return {
        "error_code": 0,
        "session_id": 0,
        "responses": [
            {
                "topic": "~a",
                "partitions": [
                    {
                        "partition_index": index,
                        "error_code": error,
                        "aborted_transactions": told or None,
                        "records": None if error else records,
                    }
                    for index, error in parts
                ],
            }
        ],
    }


def test_fetched_partitions_have_their_order_but_those_that_are_unknown() -> None:
    api = ApiKey.FETCH
    right = _normal(api, _fetched((0, 0), (1, 0), (9, 3)))

    assert right == _normal(api, _fetched((9, 3), (0, 0), (1, 0)))
    assert right != _normal(api, _fetched((1, 0), (0, 0), (9, 3)))


def test_only_transactions_that_were_aborted_in_what_is_read_count() -> None:
    api = ApiKey.FETCH

    assert _normal(api, _fetched((0, 0), aborted=5)) == _normal(api, _fetched((0, 0)))
    assert _normal(api, _fetched((0, 0), aborted=0)) != _normal(api, _fetched((0, 0)))


def test_places_that_differ_are_named_without_positions() -> None:
    kafka = {"a": [{"b": 1, "c": 2}, {"b": 3}], "d": True}
    ottla = {"a": [{"b": 1, "c": 4}, {"b": 3}], "d": 1}

    assert list(differing(kafka, ottla)) == [("a[].c", 2, 4), ("d", True, 1)]
    assert list(differing([1], [])) == [("[]", [1], [])]
    assert list(differing(kafka, kafka)) == []


def test_a_difference_has_one_shape_whatever_topic_and_offset_it_is_of() -> None:
    def shape(kafka: Any, ottla: Any) -> str:
        return Difference(0, Request(ApiKey.FETCH, 4, {}), kafka, ottla).shape

    assert shape({"name": "~a", "offset": 501}, {"name": "~b", "offset": 502}) == shape(
        {"name": "~c", "offset": 777}, {"name": "~d", "offset": 9_000}
    )
    assert shape({"error_code": 3}, {"error_code": 0}) != shape(
        {"error_code": 6}, {"error_code": 0}
    )
    assert shape("it waits", {}) == "FETCH: it waits / an answer"


def test_what_is_known_hides_nothing_beside_it() -> None:
    accepted = Accepted(KNOWN)
    request = Request(ApiKey.PRODUCE, 9, {})

    def answer(*, named: int, offset: int) -> dict[str, Any]:
        blamed = [{"batch_index": index} for index in range(named)]
        part = {"error_code": 32, "record_errors": blamed, "base_offset": offset}
        return {"responses": [part]}

    kafka = answer(named=3, offset=-1)

    assert accepted.same(request, kafka, answer(named=1, offset=-1))
    assert not accepted.same(request, kafka, answer(named=1, offset=0))
    assert not accepted.same(request, kafka, answer(named=0, offset=-1))
    assert kafka == answer(named=3, offset=-1)
    assert accepted.met.total() == 2


def test_an_end_that_is_before_the_start_is_known_of_who_reads_what_is_committed() -> None:
    accepted = Accepted(KNOWN)
    seven, eight = (
        {"topics": [{"name": "~a", "partition_index": 0, "error_code": 0, "offset": one}]}
        for one in (7, 8)
    )

    def asked(isolation_level: int, timestamp: int) -> Request:
        part = {"partition_index": 0, "timestamp": timestamp}
        body = {
            "isolation_level": isolation_level,
            "topics": [{"name": "~a", "partitions": [part]}],
        }
        return Request(ApiKey.LIST_OFFSETS, 7, body)

    assert accepted.same(asked(1, LATEST), seven, eight)
    assert not accepted.same(asked(1, LATEST), eight, seven)
    assert not accepted.same(asked(0, LATEST), seven, eight)
    assert not accepted.same(asked(1, EARLIEST), seven, eight)


def test_the_group_of_a_refused_commit_is_known_of_who_names_a_generation() -> None:
    accepted = Accepted(KNOWN)
    unknown, illegal = (
        {"topics": [{"name": "~a", "partition_index": 0, "error_code": int(one)}]}
        for one in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
    )

    def commit(generation_id: int) -> Request:
        body = {"transactional_id": "~t", "generation_id": generation_id}
        return Request(ApiKey.TXN_OFFSET_COMMIT, 5, body)

    assert accepted.same(commit(3), unknown, illegal)
    assert not accepted.same(commit(3), illegal, unknown)
    assert not accepted.same(commit(-1), unknown, illegal)


def test_the_refusal_of_an_acknowledgement_is_known_behind_what_was_given() -> None:
    accepted = Accepted(SHARES)
    state, invalid = (
        {"responses": [{"partition_index": 0, "error_code": int(one)}]}
        for one in (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)
    )

    def acknowledge(odd: str, partition: int = 0) -> Request:
        given = Acknowledged("m", partition, (1,), True, odd)
        part = {"partition_index": partition, "acknowledgement_batches": given}
        body = {"topics": [{"topic_id": "a", "partitions": [part]}]}
        return Request(ApiKey.SHARE_ACKNOWLEDGE, 2, body)

    assert accepted.same(acknowledge("behind"), state, invalid)
    assert not accepted.same(acknowledge("behind"), invalid, state)
    assert not accepted.same(acknowledge("behind", 1), state, invalid)
    assert not accepted.same(acknowledge("below"), state, invalid)


def test_a_fetch_that_ends_earlier_is_known_of_kafka_where_it_begins_alike() -> None:
    def fetched(*records: int) -> dict[str, Any]:
        part = {"error_code": 0, "last_stable_offset": 3, "log_start_offset": 0}
        return {"responses": [part | {"records": [*records]}]}

    accepted, fetch = Accepted(KNOWN), Request(ApiKey.FETCH, 11, {})

    with pytest.raises(PartedError):
        accepted.same(fetch, fetched(1), fetched(1, 2))
    for kafka, ottla in ((fetched(1, 2), fetched(1)), (fetched(), fetched(1))):
        assert not accepted.same(fetch, kafka, ottla)
    assert not accepted.same(fetch, fetched(1), fetched(2, 1))


def test_every_known_difference_says_why_and_of_which_api() -> None:
    known = KNOWN + UPGRADES + SHARES
    reasons = [entry.reason for entry in known]

    assert len(set(reasons)) == len(reasons)
    assert all(entry.apis and len(entry.reason.split()) > 5 for entry in known)


def test_of_groups_that_change_their_protocol_alone_some_things_are_not_compared() -> None:
    accepted = Accepted(KNOWN + UPGRADES)
    same: Tree = {"error_code": 0, "groups": []}
    kafka, ottla = (same | {"assignment": one} for one in ("", "00"))
    api = ApiKey.DESCRIBE_GROUPS

    assert accepted.same(Request(api, 5, {}, who=MEMBERS[0]), kafka, ottla)
    assert not accepted.same(Request(api, 5, {}), kafka, ottla)
    assert not accepted.same(Request(api, 5, {}, who=MEMBERS[0]), kafka | {"error_code": 3}, ottla)


def test_nothing_is_compared_where_the_brokers_ways_have_parted() -> None:
    accepted = Accepted(UPGRADES)
    heartbeat = Request(ApiKey.HEARTBEAT, 4, {}, who=MEMBERS[0])

    with pytest.raises(PartedError):
        accepted.same(heartbeat, {"error_code": 22}, {"error_code": 27})
    assert not accepted.same(heartbeat, {"error_code": 27}, {"error_code": 22})
    assert not accepted.same(heartbeat, {"error_code": 25}, {"error_code": 27})

    stable: Tree = {"groups": [{"group_id": "~g", "group_state": "Stable"}]}
    none: Tree = {"groups": []}
    some = Request(ApiKey.LIST_GROUPS, 4, {"states_filter": ["Stable"]}, who=MEMBERS[0])
    with pytest.raises(PartedError):
        accepted.same(some, stable, none)
    assert not accepted.same(some, none, stable)
    assert not accepted.same(Request(ApiKey.LIST_GROUPS, 4, {}, who=MEMBERS[0]), stable, none)

    described = Request(ApiKey.DESCRIBE_GROUPS, 5, {}, who=MEMBERS[0])
    states = "Stable", "PreparingRebalance"
    settled, about_to = ({"groups": [{"group_state": one, "members": []}]} for one in states)
    with pytest.raises(PartedError):
        accepted.same(described, settled, about_to)
    assert not accepted.same(described, about_to, settled)


def test_a_transactional_id_that_is_not_the_producers_is_known() -> None:
    accepted = Accepted(KNOWN)
    taken, refused = (
        {"topics": [{"name": "~a", "partition_index": 0, "error_code": code}]}
        for code in (0, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    )

    def commit(producer: ProducerId) -> Request:
        body = {"transactional_id": "~t", "producer_id": producer}
        return Request(ApiKey.TXN_OFFSET_COMMIT, 5, body)

    with pytest.raises(PartedError):
        accepted.same(commit(ProducerId("~t", 1)), taken, refused)
    assert not accepted.same(commit(ProducerId("~t", 1)), refused, taken)
    assert not accepted.same(commit(ProducerId("~t")), taken, refused)


def test_what_was_set_for_a_deleted_topic_may_be_set_again_in_kafka_alone() -> None:
    def described(source: int, value: str) -> Tree:
        config = {"name": "retention.ms", "config_source": source, "value": value}
        return {"results": [{"resource_type": 2, "resource_name": "~a", "configs": [config]}]}

    request = Request(ApiKey.DESCRIBE_CONFIGS, 4, {})
    deleted, other = (Accepted((come_back({name: {"retention.ms"}}),)) for name in ("~a", "~b"))
    was_set, default = described(1, "5"), described(5, "604800000")

    assert deleted.same(request, was_set, default)
    assert not deleted.same(request, default, was_set)
    assert not deleted.same(request, was_set, described(1, "6"))
    assert not other.same(request, was_set, default)


def test_an_answer_and_none_are_never_the_same() -> None:
    request = Request(ApiKey.API_VERSIONS, 0, {})

    assert not Accepted(KNOWN).same(request, "the connection is closed", {"api_keys": []})


def test_the_digits_of_a_port_are_no_port_within_a_number() -> None:
    text = f"922{PORT + 1}7 or 127.0.0.1:{PORT + 1}"
    found = _normal(ApiKey.API_VERSIONS, {"value": text})
    assert found == {"value": f"922{PORT + 1}7 or 127.0.0.1:<port>"}
