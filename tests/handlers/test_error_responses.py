"""No request that fails is without an answer, in every version that is served.

An answer says an error by itself, at its top, or names it for each thing that was asked. Here every
request is made of its declaration, with two elements in each list, and its handler fails.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from inspect import isawaitable
from itertools import count
from typing import Any

import pytest

from ottla.broker.handlers.refusing import REFUSALS, refusing
from ottla.broker.handlers.served import HANDLERS
from ottla.broker.handlers.table import Entry, Handler
from ottla.protocol.api import SERVED, Api, ApiKey
from ottla.protocol.error_codes import error_counter
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.offsets import DeleteRecordsRequest
from ottla.protocol.messages.quotas import AlterClientQuotasRequest
from ottla.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from ottla.protocol.messages.transactions import WriteTxnMarkersRequest
from ottla.protocol.schema import Message, Struct, fields_of
from tests.coordinator.asking import through_wire
from tests.handlers.rooms import House

ERROR = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log failed.")
FULL = (int(ErrorCode.KAFKA_STORAGE_ERROR), None)
"""What is said of anything while the metadata log has no room."""
REFUSES_ITSELF = {
    # Its handler answers each partition, on the hot path, and closes where acks is 0, as Kafka.
    ApiKey.PRODUCE
}


def made(cls: type[Struct], numbers: Iterator[int], version: int) -> Any:
    """A struct with two elements in each of its lists, no two numbers or names alike."""
    struct = cls()
    for one in fields_of(cls):
        if version not in one.versions:
            continue
        if one.is_array:
            setattr(struct, one.name, [_value(one, numbers, version) for _ in range(2)])
        elif one.struct is not None or one.type_name in ("str", "uuid"):
            setattr(struct, one.name, _value(one, numbers, version))
    return struct


def _value(field: Any, numbers: Iterator[int], version: int) -> Any:
    if field.struct is not None:
        return made(field.struct, numbers, version)
    number = next(numbers)
    return {"str": f"name-{number}", "uuid": number.to_bytes(16, "big")}.get(
        field.type_name, number
    )


def failing(error: KafkaError) -> Handler:
    def fails(session: Any, request: Any, version: int) -> Any:
        raise error

    return fails


async def fails_later(session: Any, request: Any, version: int) -> Any:
    raise ERROR


fails_at_once = failing(ERROR)


def refused(api: Api, request: Message, version: int, fails: Handler = fails_at_once) -> Any:
    """The answer of a handler that fails, as a client decodes it."""

    async def answer() -> Any:
        response = refusing(api, fails)(None, through_wire(request, version), version)
        return await response if isawaitable(response) else response

    return through_wire(asyncio.run(answer()), version)


@pytest.mark.parametrize("key", HANDLERS, ids=lambda key: key.name)
def test_every_error_is_answered(key: ApiKey) -> None:
    api = SERVED[key]
    entry = Entry(api, HANDLERS[key])
    for version in range(api.min_version, api.max_version + 1):
        response = entry.error_response(ERROR.code, version)
        if response is not None:
            data, slices = entry.encoders[version](7, response)
            assert data
            assert slices == []
        elif key not in REFUSES_ITSELF:
            request = made(api.request, count(1), version)
            for error in (ERROR, KafkaError(ERROR.code)):
                told: defaultdict[int, int] = defaultdict(int)
                count_errors = error_counter(api.response)
                count_errors(refused(api, request, version, failing(error)), told)
                assert told.keys() == {ERROR.code}
                assert told[ERROR.code] in (2, 4, 8)  # two in each list


def test_those_that_say_it_at_their_top_are_not_named() -> None:
    """One rule for each: the table has what needs it, and no more."""
    needed = {
        key
        for key, handle in HANDLERS.items()
        for version in range(SERVED[key].min_version, SERVED[key].max_version + 1)
        if Entry(SERVED[key], handle).error_response(ERROR.code, version) is None
    }

    assert needed - REFUSES_ITSELF == REFUSALS.keys()


@pytest.mark.parametrize(
    ("key", "without", "having"),
    [(ApiKey.ELECT_LEADERS, 0, 1), (ApiKey.FIND_COORDINATOR, 4, 3)],
    ids=["from version 1 on", "up to version 3"],
)
def test_a_version_without_a_place_for_it_has_none(key: ApiKey, without: int, having: int) -> None:
    entry = Entry(SERVED[key], HANDLERS[key])

    assert entry.error_response(ERROR.code, without) is None
    response = entry.error_response(ERROR.code, having)
    assert response is not None
    assert response.error_code == ERROR.code


def test_a_version_that_says_it_at_its_top_raises_it_as_before() -> None:
    with pytest.raises(KafkaError):
        refused(SERVED[ApiKey.FIND_COORDINATOR], FindCoordinatorRequest(key="g"), 3)


@pytest.mark.parametrize("fails", [fails_at_once, fails_later])
def test_what_is_asked_is_named_to_the_last_list(fails: Handler) -> None:
    markers = WriteTxnMarkersRequest
    topics = [
        markers.WritableTxnMarkerTopic("a", [0, 7]),
        markers.WritableTxnMarkerTopic("b", [1]),
    ]
    request = markers([markers.WritableTxnMarker(9, 2, True, topics)])
    answer = refused(SERVED[ApiKey.WRITE_TXN_MARKERS], request, 1, fails)

    assert [
        (marker.producer_id, topic.name, part.partition_index, part.error_code)
        for marker in answer.markers
        for topic in marker.topics
        for part in topic.partitions
    ] == [(9, "a", 0, 56), (9, "a", 7, 56), (9, "b", 1, 56)]


def test_what_is_not_known_is_what_kafka_says_it_is() -> None:
    records = DeleteRecordsRequest
    asked = [records.DeleteRecordsTopic("t", [records.DeleteRecordsPartition(3, 5)])]
    answer = refused(SERVED[ApiKey.DELETE_RECORDS], records(asked), 2)
    (part,) = answer.topics[0].partitions
    assert (part.partition_index, part.low_watermark, part.error_code) == (3, -1, 56)

    request = FindCoordinatorRequest(coordinator_keys=["g"])
    (found,) = refused(SERVED[ApiKey.FIND_COORDINATOR], request, 6).coordinators
    assert (found.key, found.node_id, found.host, found.port) == ("g", -1, "", -1)
    assert (found.error_code, found.error_message) == (56, ERROR.message)


# What a disk without room for the metadata log does to those that administer.


@pytest.fixture
async def full(house: House) -> House:
    await house.create("t")
    house.disk.free = 0
    return house


@pytest.mark.parametrize("version", range(2, 8))
async def test_full_no_topic_is_created(full: House, version: int) -> None:
    wanted = [CreateTopicsRequest.CreatableTopic(name, 1, 1) for name in "no"]
    answer = await full.ask(CreateTopicsRequest(wanted), version)

    assert [(one.name, one.error_code, one.error_message) for one in answer.topics] == [
        ("n", *FULL),
        ("o", *FULL),
    ]
    assert list(full.rooms.image.topics.by_name) == ["t"]


async def test_full_no_topic_is_deleted(full: House) -> None:
    doomed = DeleteTopicsRequest.DeleteTopicState("t")
    by_state = await full.ask(DeleteTopicsRequest([doomed]), 6)
    by_name = await full.ask(DeleteTopicsRequest(topic_names=["t"]), 5)

    for answer in (by_state, by_name):
        (one,) = answer.responses
        assert (one.name, one.error_code, one.error_message) == ("t", *FULL)


async def test_full_no_topic_grows(full: House) -> None:
    grown = CreatePartitionsRequest.CreatePartitionsTopic("t", 5, None)
    answer = await full.ask(CreatePartitionsRequest([grown], 5000, False), 3)

    (one,) = answer.results
    assert (one.name, one.error_code, one.error_message) == ("t", *FULL)


@pytest.mark.parametrize("kind", [AlterConfigsRequest, IncrementalAlterConfigsRequest])
async def test_full_no_setting_changes(full: House, kind: Any) -> None:
    setting = kind.AlterableConfig(name="retention.ms", value="5")
    answer = await full.ask(kind([kind.AlterConfigsResource(2, "t", [setting])]), 1)

    (one,) = answer.responses
    assert (one.resource_type, one.resource_name) == (2, "t")
    assert (one.error_code, one.error_message) == FULL


async def test_full_no_quota_changes(full: House) -> None:
    quotas = AlterClientQuotasRequest
    entity = [quotas.EntityData("client-id", "c"), quotas.EntityData("user", None)]
    ops = [quotas.OpData("producer_byte_rate", 1.0, False)]
    answer = await full.ask(quotas([quotas.EntryData(entity, ops)]), 1)

    (one,) = answer.entries
    assert [(part.entity_type, part.entity_name) for part in one.entity] == [
        ("client-id", "c"),
        ("user", None),
    ]
    assert (one.error_code, one.error_message) == FULL
