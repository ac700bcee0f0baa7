"""Client quotas are set, removed and shown: AlterClientQuotas and DescribeClientQuotas.

An entity is a user, a client id, both, or an address; each part has a name or is the default of
its kind (null). Pure: (image, request) -> (records, response); the checks, their order and their
sentences are those of Apache Kafka 4.3. Each entity is changed whole or not at all. One that is
named twice in a request is refused; Kafka says so too, having done what stood there first.
"""

from __future__ import annotations

import ipaddress
import math
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from ottla.broker.metadata.image import MetadataImage, QuotaEntity
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata_records import ClientQuotaRecord
from ottla.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ottla.protocol.schema import Message

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = 0, 1, 2
"""How a filter matches a part of an entity: by name, the default, or whatever it is."""

LONG_MAX = float(2**63)
INT_MAX = float(2**31 - 1)
FRACTION_MAX = 1e-6


class _Key(NamedTuple):
    """What a quota may be; `name` is its type in Kafka's words, None for a fraction."""

    name: str | None
    most: float


_WHOLE = _Key("LONG", LONG_MAX)
_FRACTION = _Key(None, math.inf)
_CLIENT_KEYS = {
    "producer_byte_rate": _WHOLE,
    "consumer_byte_rate": _WHOLE,
    "request_percentage": _FRACTION,
    "controller_mutation_rate": _FRACTION,
}
_IP_KEYS = {"connection_creation_rate": _Key("INT", INT_MAX)}

Entity = dict[str, str | None]
Entry = AlterClientQuotasRequest.EntryData
Answer = AlterClientQuotasResponse.EntryData
AnswerPart = AlterClientQuotasResponse.EntityData
Described = DescribeClientQuotasResponse.EntryData
DescribedPart = DescribeClientQuotasResponse.EntityData
DescribedValue = DescribeClientQuotasResponse.ValueData


def alter_client_quotas(
    image: MetadataImage, request: AlterClientQuotasRequest, *, hosts: Collection[str] = ()
) -> tuple[list[Message], AlterClientQuotasResponse]:
    """Sets and removes quotas. `hosts` are names of `host_names` that have an address."""
    asked = [_entity(entry) for entry in request.entries]
    counts = Counter(_key(entity) for entity in asked)
    answers: dict[QuotaEntity, Answer] = {}
    records: list[Message] = []
    for entry, entity in zip(request.entries, asked, strict=True):
        answer = Answer(
            error_message=None, entity=[AnswerPart(kind, name) for kind, name in entity.items()]
        )
        answers[_key(entity)] = answer
        try:
            if counts[_key(entity)] > 1 or len({op.key for op in entry.ops}) < len(entry.ops):
                shown = ", ".join(f"{kind}={_java(name)}" for kind, name in entity.items())
                what = f"ClientQuotaEntity(entries={{{shown}}})"
                raise _invalid(f"Ignoring duplicate entity {what}")
            records += _altered(image, entity, entry, hosts)
        except KafkaError as error:
            answer.error_code, answer.error_message = int(error.code), error.message
    response = AlterClientQuotasResponse(entries=list(answers.values()))
    return ([] if request.validate_only else records), response


def refused_quotas(
    request: AlterClientQuotasRequest, version: int, error: KafkaError
) -> AlterClientQuotasResponse:
    """The same error for every entity."""
    return AlterClientQuotasResponse(
        entries=[
            Answer(
                int(error.code),
                error.message,
                [AnswerPart(part.entity_type, part.entity_name) for part in entry.entity],
            )
            for entry in request.entries
        ]
    )


def host_names(request: AlterClientQuotasRequest) -> list[str]:
    """What stands for an address and is none: the caller finds out whether they have one."""
    names = {entity.get(IP): None for entity in map(_entity, request.entries)}
    return [name for name in names if name and not _is_address(name)]


def describe_client_quotas(
    image: MetadataImage, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """The quotas of the entities that have all parts of the filter, and with `strict` no other."""
    try:
        wanted = _filter(request)
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=int(error.code), error_message=error.message, entries=None
        )
    entries = [
        Described(
            [DescribedPart(kind, name) for kind, name in entity],
            [DescribedValue(key, value) for key, value in quotas.items()],
        )
        for entity, quotas in image.client_quotas.items()
        if _matches(dict(entity), wanted, strict=request.strict)
    ]
    return DescribeClientQuotasResponse(entries=entries)


def _entity(entry: Entry) -> Entity:
    return {part.entity_type: part.entity_name for part in entry.entity}


def _key(entity: Entity) -> QuotaEntity:
    """As the image has it."""
    return tuple(sorted(entity.items(), key=lambda part: part[0]))


def _java(name: str | None) -> str:
    return "null" if name is None else name


def _altered(
    image: MetadataImage, entity: Entity, entry: Entry, hosts: Collection[str]
) -> list[Message]:
    keys = _keys_for(entity, hosts)
    current = image.client_quotas.get(_key(entity), {})
    records: list[Message] = []
    for op in entry.ops:
        if op.remove:
            if op.key in current:
                records.append(ClientQuotaRecord(_parts(entity), op.key, remove=True))
            continue
        _check_value(keys, op.key, op.value)
        if current.get(op.key) != op.value:
            records.append(ClientQuotaRecord(_parts(entity), op.key, op.value))
    return records


def _parts(entity: Entity) -> list[ClientQuotaRecord.EntityData]:
    return [ClientQuotaRecord.EntityData(kind, name) for kind, name in entity.items()]


def _keys_for(entity: Entity, hosts: Collection[str]) -> dict[str, _Key]:
    """What may be set for such an entity; INVALID_REQUEST if there can be none such."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP not in entity:
        return _CLIENT_KEYS
    if len(entity) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or"
            " ClientId"
        )
    address = entity[IP]
    if address is not None and address not in hosts and not _is_address(address):
        raise _invalid(f"{address} is not a valid IP or resolvable host.")
    return _IP_KEYS


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(keys: dict[str, _Key], name: str, value: float) -> None:
    key = keys.get(name)
    if key is None:
        raise _invalid(f"Invalid configuration key {name}")
    if math.isnan(value):
        # Kafka takes it, and then limits nothing or everything, as comparisons with it go.
        raise _invalid(f"Quota {name} must be a number")
    if value <= 0:
        raise _invalid(f"Quota {name} must be greater than 0")
    if key.name is None:
        return
    if value > key.most:
        article = "an" if key.name == "INT" else "a"
        raise _invalid(f"Proposed value for {name} is too large for {article} {key.name}.")
    if math.fmod(value, 1.0) > FRACTION_MAX:
        raise _invalid(f"{name} cannot be a fractional value.")


class _Filter(NamedTuple):
    named: Entity
    any_of: set[str]


def _filter(request: DescribeClientQuotasRequest) -> _Filter:
    wanted = _Filter({}, set())
    for part in request.components:
        kind = part.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in wanted.named or kind in wanted.any_of:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        _check_match(part)
        if part.match_type == ANY:
            wanted.any_of.add(kind)
        else:
            wanted.named[kind] = part.match
    kinds = wanted.named.keys() | wanted.any_of
    if IP in kinds and len(kinds) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used"
            " with user or clientId filter component."
        )
    return wanted


def _check_match(part: DescribeClientQuotasRequest.ComponentData) -> None:
    said = "Request specified MATCH_TYPE"
    if part.match_type == EXACT:
        if part.match is None:
            raise _invalid(f"{said}_EXACT, but set match string to null.")
    elif part.match_type in (DEFAULT, ANY):
        if part.match is not None:
            kind = "DEFAULT" if part.match_type == DEFAULT else "SPECIFIED"
            raise _invalid(f"{said}_{kind}, but also specified a match string.")
    else:
        raise _invalid(f"Unknown match type {part.match_type}")


def _matches(entity: Entity, wanted: _Filter, *, strict: bool) -> bool:
    if strict and len(entity) != len(wanted.named) + len(wanted.any_of):
        return False
    named = all(kind in entity and entity[kind] == name for kind, name in wanted.named.items())
    return named and wanted.any_of <= entity.keys()


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)
