"""Declarations: construction, defaults, and agreement with Kafka's schemas where they are."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.codec import message_classes
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.metadata_records import NoOpRecord
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.schema import (
    Message,
    Versions,
    fields_of,
    parse_versions,
    response_type,
)

SCHEMAS = Path(__file__).parents[3] / "shared" / "kafka-messages"


def test_construction_by_position_and_by_name() -> None:
    topic = ProduceRequest.TopicProduceData("t", partition_data=[])
    request = ProduceRequest(None, -1, topic_data=[topic])

    assert (request.acks, request.timeout_ms) == (-1, 0)
    assert repr(request).startswith("ProduceRequest(transactional_id=None, acks=-1, timeout_ms=0")
    assert request == copy.copy(request)
    assert request != ProduceRequest()
    assert NoOpRecord() == NoOpRecord()


def test_instances_have_slots_and_no_shared_lists() -> None:
    one, two = ProduceRequest(), ProduceRequest()
    one.topic_data.append(ProduceRequest.TopicProduceData())

    assert two.topic_data == []
    with pytest.raises(AttributeError):
        one.unknown = 1  # type: ignore[attr-defined]


def test_an_unknown_argument_is_an_error() -> None:
    with pytest.raises(TypeError):
        ProduceRequest(nothing=1)  # type: ignore[call-arg]


def test_a_default_struct_is_shared_and_refuses_to_be_changed() -> None:
    partition = FetchResponse.PartitionData()
    assert partition.current_leader is FetchResponse.PartitionData().current_leader
    assert partition.current_leader == FetchResponse.LeaderIdAndEpoch(-1, -1)
    assert FetchResponse.LeaderIdAndEpoch(-1, -1) == partition.current_leader
    with pytest.raises(AttributeError, match="shared default"):
        partition.current_leader.leader_id = 3


def test_versions() -> None:
    assert parse_versions("3-13") == Versions(3, 13)
    assert 13 in parse_versions("9+")
    assert list(parse_versions("4")) == [4]
    assert list(parse_versions("none")) == []


def test_a_response_stands_beside_its_request() -> None:
    assert response_type(ProduceRequest).__name__ == "ProduceResponse"


def kafka_schemas() -> dict[str, dict[str, Any]]:
    schemas = {}
    for path in sorted(SCHEMAS.glob("*/*.json")):
        lines = [
            line for line in path.read_text().splitlines() if not line.strip().startswith("//")
        ]
        schema = json.loads(re.sub(r'(?m)\s//[^"]*$', "", "\n".join(lines)))
        if schema.get("validVersions", "none") != "none" and schema["type"] != "header":
            schemas[schema["name"]] = schema
    return schemas


@pytest.mark.skipif(
    not SCHEMAS.is_dir(), reason="needs Kafka's schemas in ../shared/kafka-messages"
)
def test_declarations_are_kafkas() -> None:
    """Names, versions, flexibility, tags and the order of fields."""
    classes = {cls.__name__: cls for cls in message_classes()}
    schemas = kafka_schemas()
    schemas.pop("QuorumStateData", None)

    assert set(classes) == set(schemas)
    for name, schema in schemas.items():
        _compare(classes[name], schema)


def _compare(cls: type[Message], schema: dict[str, Any]) -> None:
    versions = parse_versions(schema["validVersions"])
    flexible = parse_versions(schema["flexibleVersions"])
    assert cls.__schema__.versions == versions, cls
    assert cls.__schema__.key == schema.get("apiKey"), cls
    common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}
    for version in versions:
        assert (version in cls.__schema__.flexible) == (version in flexible), (cls, version)
        _compare_fields(cls, schema["fields"], common, version)


def _compare_fields(cls: Any, declared: list[Any], common: dict[str, Any], version: int) -> None:
    theirs = [f for f in declared if version in parse_versions(_versions(f))]
    ours = [f for f in fields_of(cls) if version in f.versions]
    assert [f.name.replace("_", "") for f in ours] == [f["name"].lower() for f in theirs], cls
    for our, their in zip(ours, theirs, strict=True):
        kind = their["type"].removeprefix("[]")
        nullable = version in parse_versions(their.get("nullableVersions", "none"))
        assert (our.tag, version in our.nullable) == (their.get("tag"), nullable), (cls, our.name)
        assert our.is_array == their["type"].startswith("[]")
        if our.struct is not None:
            assert our.type_name == kind
            _compare_fields(our.struct, their.get("fields") or common[kind], common, version)


def _versions(field: dict[str, Any]) -> str:
    return str(field.get("versions") or field["taggedVersions"])
