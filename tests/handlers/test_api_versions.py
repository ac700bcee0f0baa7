"""ApiVersions: the list, the answer to an unknown version, software names, and features."""

from __future__ import annotations

import pytest

from ottla.broker.handlers.api_versions import unsupported_version_response
from ottla.protocol.api import SERVED, ApiKey
from ottla.protocol.codec import encoder
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.handlers.rooms import House


@pytest.mark.parametrize("version", range(5))
async def test_every_served_api_is_listed_by_key(house: House, version: int) -> None:
    answer = await house.ask(ApiVersionsRequest("client", "1.0"), version)

    listed = [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys]
    served = [
        (key, api.advertised_min_version, api.max_version) for key, api in sorted(SERVED.items())
    ]
    assert listed == served
    assert (ApiKey.PRODUCE, 0, 13) in listed


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
