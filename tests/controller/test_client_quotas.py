"""Client quotas as they are set and shown; the answers are those of Apache Kafka 4.3.1."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ottla.broker.controller.client_quotas import (
    alter_client_quotas,
    describe_client_quotas,
    host_names,
)
from ottla.broker.metadata.contents import records_of
from ottla.broker.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.protocol.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from tests.controller.clusters import applied

Entry = AlterClientQuotasRequest.EntryData
Part = AlterClientQuotasRequest.EntityData
Op = AlterClientQuotasRequest.OpData
Component = DescribeClientQuotasRequest.ComponentData
Parts = list[tuple[str, str | None]]
EXACT, DEFAULT, ANY = 0, 1, 2
PRODUCED = "producer_byte_rate"


def _request(
    *entries: tuple[Parts, list[tuple[str, float | None]]], dry: bool = False
) -> AlterClientQuotasRequest:
    """A value of None removes."""
    return AlterClientQuotasRequest(
        [
            Entry(
                [Part(*part) for part in parts],
                [Op(key, value or 0.0, value is None) for key, value in ops],
            )
            for parts, ops in entries
        ],
        dry,
    )


def _set(
    *entries: tuple[Parts, list[tuple[str, float | None]]], base: MetadataImage = EMPTY_IMAGE
) -> MetadataImage:
    records, response = alter_client_quotas(base, _request(*entries))
    assert [one.error_code for one in response.entries] == [0] * len(entries)
    return applied(records, base) if records else base


@dataclass(frozen=True)
class Refused:
    parts: Parts
    key: str
    value: float
    says: str


REFUSED = [
    Refused([], PRODUCED, 1, "Invalid empty client quota entity"),
    Refused([("group", "g")], PRODUCED, 1, "Unhandled client quota entity type: group"),
    Refused([("user", "")], PRODUCED, 1, "Empty user not supported"),
    Refused([("ip", "")], "connection_creation_rate", 1, "Empty ip not supported"),
    Refused([("ip", "::1"), ("user", "u")], PRODUCED, 1, "Invalid quota entity combination"),
    Refused([("ip", "::1")], PRODUCED, 1, "Invalid configuration key producer_byte_rate"),
    Refused([("ip", "no ip")], "connection_creation_rate", 1, "no ip is not a valid IP or"),
    Refused([("ip", "::1")], "connection_creation_rate", 3e9, "too large for an INT."),
    Refused([("ip", "::1")], "connection_creation_rate", 1.5, "cannot be a fractional value."),
    Refused([("user", "u")], "connection_creation_rate", 1, "Invalid configuration key"),
    Refused([("user", "u")], "nope", 1, "Invalid configuration key nope"),
    Refused([("user", "u")], PRODUCED, 0, "Quota producer_byte_rate must be greater than 0"),
    Refused([("user", "u")], PRODUCED, -1, "Quota producer_byte_rate must be greater than 0"),
    Refused([("user", "u")], PRODUCED, 10.5, "producer_byte_rate cannot be a fractional value."),
    Refused([("user", "u")], PRODUCED, 2.0**64, "too large for a LONG."),
    Refused([("user", "u")], PRODUCED, float("inf"), "too large for a LONG."),
    Refused([("user", "u")], "request_percentage", float("nan"), "must be a number"),
]


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.says)
def test_what_is_refused(row: Refused) -> None:
    good: tuple[Parts, list[tuple[str, float | None]]] = ([("user", "good")], [(PRODUCED, 1.0)])

    records, response = alter_client_quotas(
        EMPTY_IMAGE, _request((row.parts, [(row.key, row.value)]), good)
    )

    refused, done = response.entries
    assert refused.error_code == 42
    assert row.says in (refused.error_message or "")
    assert (done.error_code, done.error_message, len(records)) == (0, None, 1)


def test_values_at_their_ends_are_taken() -> None:
    image = _set(
        ([("user", "u")], [(PRODUCED, 2.0**63), ("request_percentage", 0.25)]),
        ([("client-id", "c")], [(PRODUCED, 10.0000001)]),
        ([("ip", None)], [("connection_creation_rate", 2.0**31 - 1)]),
    )

    assert len(image.client_quotas) == 3


def test_names_stand_for_addresses_if_they_have_one() -> None:
    request = _request(
        ([("ip", "here")], [("connection_creation_rate", 1.0)]),
        ([("ip", "127.0.0.1")], [("connection_creation_rate", 1.0)]),
    )
    assert host_names(request) == ["here"]

    for hosts, code in ((["here"], 0), ([], 42)):
        _, response = alter_client_quotas(EMPTY_IMAGE, request, hosts=hosts)
        assert [one.error_code for one in response.entries] == [code, 0]


def test_set_changed_removed() -> None:
    entity: Parts = [("user", "u"), ("client-id", None)]
    image = _set((entity, [(PRODUCED, 5.0), ("consumer_byte_rate", 6.0)]))
    key = (("client-id", None), ("user", "u"))
    assert image.client_quotas[key] == {PRODUCED: 5.0, "consumer_byte_rate": 6.0}

    same, _ = alter_client_quotas(image, _request((entity, [(PRODUCED, 5.0)])))
    dry, _ = alter_client_quotas(image, _request((entity, [(PRODUCED, 9.0)]), dry=True))
    absent, _ = alter_client_quotas(image, _request((entity, [("nope", None)])))
    assert (same, dry, absent) == ([], [], [])

    less = _set((entity, [(PRODUCED, None)]), base=image)
    assert less.client_quotas[key] == {"consumer_byte_rate": 6.0}
    assert key not in _set((entity, [("consumer_byte_rate", None)]), base=less).client_quotas


def test_named_twice_is_refused_and_nothing_of_it_done() -> None:
    twice: Parts = [("user", "u")]
    records, response = alter_client_quotas(
        EMPTY_IMAGE,
        _request((twice, [(PRODUCED, 1.0)]), (twice, [("consumer_byte_rate", 2.0)])),
    )
    (answer,) = response.entries
    assert records == []
    assert answer.error_message == "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})"

    records, response = alter_client_quotas(
        EMPTY_IMAGE, _request((twice, [(PRODUCED, 1.0), (PRODUCED, 2.0)]))
    )
    assert (records, response.entries[0].error_code) == ([], 42)


def test_a_snapshot_keeps_them() -> None:
    image = _set(
        ([("user", "u")], [(PRODUCED, 5.0), ("consumer_byte_rate", 6.0)]),
        ([("ip", None)], [("connection_creation_rate", 7.0)]),
    )

    assert applied(list(records_of(image))).client_quotas == image.client_quotas


SOME: list[Parts] = [
    [("user", "u")],
    [("user", None)],
    [("client-id", "c")],
    [("client-id", None)],
    [("client-id", "c"), ("user", "u")],
    [("client-id", None), ("user", None)],
]
FILTERS: list[tuple[list[tuple[str, int, str | None]], bool, list[int]]] = [
    ([], False, [0, 1, 2, 3, 4, 5]),
    ([], True, []),
    ([("user", EXACT, "u")], False, [0, 4]),
    ([("user", EXACT, "u")], True, [0]),
    ([("user", DEFAULT, None)], False, [1, 5]),
    ([("user", DEFAULT, None)], True, [1]),
    ([("user", ANY, None)], False, [0, 1, 4, 5]),
    ([("user", ANY, None)], True, [0, 1]),
    ([("user", ANY, None), ("client-id", ANY, None)], True, [4, 5]),
    ([("user", EXACT, "u"), ("client-id", ANY, None)], False, [4]),
    ([("user", EXACT, "nobody")], False, []),
    ([("ip", ANY, None)], False, []),
]


@pytest.mark.parametrize(("components", "strict", "expected"), FILTERS)
def test_filters(
    components: list[tuple[str, int, str | None]], strict: bool, expected: list[int]
) -> None:
    image = EMPTY_IMAGE
    for at, parts in enumerate(SOME):
        image = _set((parts, [(PRODUCED, 1.0 + at)]), base=image)
    request = DescribeClientQuotasRequest([Component(*one) for one in components], strict)

    response = describe_client_quotas(image, request)

    assert (response.error_code, response.error_message) == (0, "")
    found = {entry.values[0].value - 1.0: entry for entry in response.entries or ()}
    assert sorted(found) == expected
    for at in expected:
        assert [(part.entity_type, part.entity_name) for part in found[at].entity] == SOME[at]


BAD_FILTERS: list[tuple[list[tuple[str, int, str | None]], int, str]] = [
    ([("", ANY, None)], 42, "Invalid empty entity type."),
    ([("user", ANY, None), ("user", EXACT, "x")], 42, "Entity type user cannot appear more than"),
    ([("group", ANY, None)], 35, "Unsupported entity type group"),
    ([("user", EXACT, None)], 42, "MATCH_TYPE_EXACT, but set match string to null."),
    ([("user", DEFAULT, "x")], 42, "MATCH_TYPE_DEFAULT, but also specified a match string."),
    ([("user", ANY, "x")], 42, "MATCH_TYPE_SPECIFIED, but also specified a match string."),
    ([("user", 3, None)], 42, "Unknown match type 3"),
    ([("ip", ANY, None), ("user", ANY, None)], 42, "Invalid entity filter component combination."),
]


@pytest.mark.parametrize(("components", "code", "says"), BAD_FILTERS)
def test_filters_that_are_refused(
    components: list[tuple[str, int, str | None]], code: int, says: str
) -> None:
    request = DescribeClientQuotasRequest([Component(*one) for one in components])

    response = describe_client_quotas(EMPTY_IMAGE, request)

    assert (response.error_code, response.entries) == (code, None)
    assert says in (response.error_message or "")
