"""ApiVersions: the list, the answer to an unknown version, software names, and features."""

from __future__ import annotations

import pytest

from ottla.broker.handlers.api_versions import unsupported_version_response
from ottla.protocol.api import SERVED
from ottla.protocol.codec import encoder
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.handlers.rooms import House

KAFKAS = """
    0:0-13 1:4-18 2:1-11 3:0-13 8:2-10 9:1-10 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5
    17:0-1 18:0-4 19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-2 28:0-5 29:1-3
    30:1-3 31:1-3 32:1-4 33:0-2 34:1-2 35:1-5 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-2
    43:0-2 44:0-1 45:0-1 46:0-0 47:0-0 48:0-1 49:0-1 50:0-0 51:0-0 55:0-2 57:0-2 60:0-2 61:0-0
    64:0-0 65:0-0 66:0-2 68:0-1 69:0-1 74:0-1 75:0-0 76:1-1 77:1-1 78:1-2 79:1-2 80:0-1 81:0-0
    83:0-0 84:0-0 85:0-1 86:0-0 87:0-1 88:0-0 89:0-0 90:0-1 91:0-0 92:0-0
"""
"""What Apache Kafka 4.3.1 lists on a broker's listener: key:least version-newest."""
NOT_SERVED = {17, 29, 30, 31, 36, 38, 39, 40, 41, 51, 80, 81, 88, 89}
"""SASL, ACLs, delegation tokens, new SCRAM credentials, other voters, Kafka Streams' own groups."""


@pytest.mark.parametrize("version", range(5))
async def test_every_served_api_is_listed_by_key(house: House, version: int) -> None:
    answer = await house.ask(ApiVersionsRequest("client", "1.0"), version)

    listed = [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys]
    served = [
        (key, api.advertised_min_version, api.max_version) for key, api in sorted(SERVED.items())
    ]
    assert listed == served


def test_what_is_served_is_served_in_the_versions_of_kafka() -> None:
    kafkas = {int(key): span for key, span in (one.split(":") for one in KAFKAS.split())}
    ours = {
        int(key): f"{api.advertised_min_version}-{api.max_version}" for key, api in SERVED.items()
    }

    assert ours.items() <= kafkas.items()
    assert kafkas.keys() - ours.keys() == NOT_SERVED


def test_an_unknown_version_learns_ours_in_version_zero() -> None:
    out = bytearray()
    encoder(ApiVersionsResponse, 0)(unsupported_version_response(), out, [])

    assert out.hex(" ") == "00 23 00 00 00 01 00 12 00 00 00 04"


@pytest.mark.parametrize(
    ("name", "version"), [("bad name!", "1.0"), ("", "1.0"), ("-x", "1"), ("x", "1.0-"), ("x", "")]
)
async def test_an_impossible_software_name_is_refused(
    house: House, name: str, version: str
) -> None:
    answer = await house.ask(ApiVersionsRequest(name, version), 3)

    assert answer == ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)


async def test_features_that_may_be_zero_are_hidden_before_version_4(house: House) -> None:
    """A Java client up to 3.8 throws on a minimum of 0 (KAFKA-17011)."""
    old = await house.ask(ApiVersionsRequest("client", "1.0"), 3)
    new = await house.ask(ApiVersionsRequest("client", "1.0"), 4)

    assert [(one.name, one.min_version, one.max_version) for one in old.supported_features] == [
        ("metadata.version", 7, 30)
    ]
    assert {one.name for one in new.supported_features} > {"metadata.version"}
    for answer in (old, new):
        levels = {one.name: one.max_version_level for one in answer.finalized_features}
        assert levels["metadata.version"] == 30
        assert levels["kraft.version"] == 1
        assert answer.finalized_features_epoch == house.rooms.image.offset


async def test_version_0_has_no_features(house: House) -> None:
    answer = await house.ask(ApiVersionsRequest(), 0)

    assert answer.supported_features == []
    assert answer.finalized_features_epoch == -1
