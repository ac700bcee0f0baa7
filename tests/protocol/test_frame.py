"""Headers and lengths of frames."""

from __future__ import annotations

import struct

import pytest

from ottla.protocol.api import (
    FIRST_FLEXIBLE,
    SERVED,
    ApiKey,
    request_header_version,
    response_header_version,
)
from ottla.protocol.codec import decoder, message_classes
from ottla.protocol.errors import ProtocolError
from ottla.protocol.frame import encode_request, parse_request_header, response_encoder
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.schema import VERSION_MAX, response_type
from tests.protocol.filling import GOLDEN

API_VERSIONS = SERVED[ApiKey.API_VERSIONS]
REQUESTS = [cls for cls in message_classes() if cls.__name__.endswith("Request")]


def header(key: int, version: int, rest: bytes) -> memoryview:
    return memoryview(struct.pack(">hhi", key, version, 77) + rest)


class FileRange:
    size = 1000


def test_a_version_1_header() -> None:
    view = header(ApiKey.METADATA, 1, b"\x00\x03abc" + b"body")

    assert parse_request_header(view) == (3, 1, 77, "abc", 13)


def test_a_version_2_header_has_tags_that_are_skipped() -> None:
    for tags in (b"\x00", b"\x01\x05\x02hi", b"\x02\x05\x00\x05\x00"):
        view = header(ApiKey.METADATA, 9, b"\x00\x03abc" + tags)
        assert parse_request_header(view) == (3, 9, 77, "abc", 13 + len(tags))


def test_the_header_is_found_at_a_position_and_may_lack_a_client_id() -> None:
    view = memoryview(b"\x00" * 4 + bytes(header(ApiKey.METADATA, 1, b"\xff\xff")))

    assert parse_request_header(view, 4) == (3, 1, 77, None, 14)


@pytest.mark.parametrize("version", [5, 99, -1])
def test_an_unknown_api_versions_version_has_a_version_2_header(version: int) -> None:
    view = header(ApiKey.API_VERSIONS, version, b"\x00\x01c\x00")
    assert parse_request_header(view) == (18, version, 77, "c", 12)

    with pytest.raises(ProtocolError):
        parse_request_header(view[:-1])


@pytest.mark.parametrize("key", [-1, 93, 999])
def test_an_unknown_key_is_refused(key: int) -> None:
    with pytest.raises(ProtocolError, match=f"unknown API key {key}"):
        parse_request_header(header(key, 0, b"\x00\x00"))


@pytest.mark.parametrize(
    ("version", "rest"), [(1, b"\x00\x03abc"), (9, b"\x00\x03abc\x01\x05\x02hi")]
)
def test_every_prefix_of_a_header_is_refused(version: int, rest: bytes) -> None:
    whole = header(ApiKey.METADATA, version, rest)
    for size in range(len(whole)):
        with pytest.raises(ProtocolError, match=r"cut off|with \d (bytes )?left"):
            parse_request_header(whole[:size])


def test_a_client_id_is_strict_utf_8() -> None:
    with pytest.raises(ProtocolError, match="utf-8"):
        parse_request_header(header(ApiKey.METADATA, 1, b"\x00\x01\xff"))


def test_header_versions_are_kafkas() -> None:
    for cls in REQUESTS:
        key, flexible = cls.__schema__.key, cls.__schema__.flexible
        assert key is not None
        assert response_type(cls).__schema__.key == key
        assert (key in FIRST_FLEXIBLE) == (flexible.last == VERSION_MAX)
        for version in cls.__schema__.versions:
            is_flexible = version in flexible
            assert request_header_version(key, version) == 1 + is_flexible
            assert response_header_version(key, version) == (is_flexible and key != 18)


def test_headers_equal_kafkas() -> None:
    """Kafka's own header classes, with the key and version that the rule of filling gives."""
    lines = dict(
        line.rsplit(" ", 1) for line in (GOLDEN / "headers.txt").read_text("ascii").splitlines()
    )
    for version, body_version in ((1, 1), (2, 9)):
        golden = bytes.fromhex(lines[f"RequestHeader {version}"])
        frame, _ = encode_request(
            MetadataRequest(), body_version, correlation_id=100_003, client_id="s4\u00e9"
        )
        assert bytes(frame[8:]).startswith(golden[4:])
        assert parse_request_header(memoryview(frame), 4)[2:] == (
            100_003,
            "s4\u00e9",
            4 + len(golden),
        )
    for version, api_version in ((0, 2), (1, 9)):
        golden = bytes.fromhex(lines[f"ResponseHeader {version}"])
        api = SERVED[ApiKey.METADATA]
        response, _ = response_encoder(api, api_version)(100_001, api.response())
        assert bytes(response[4:]).startswith(golden)


def test_the_api_versions_response_has_a_version_0_header() -> None:
    frame, payloads = response_encoder(API_VERSIONS, 3)(5, ApiVersionsResponse(error_code=35))

    assert bytes(frame) == b"\x00\x00\x00\x0c" + b"\x00\x00\x00\x05" + b"\x00\x23\x01" + bytes(5)
    assert payloads == []


def test_the_length_counts_payloads() -> None:
    partition = FetchResponse.PartitionData(records=FileRange())
    message = FetchResponse(
        responses=[FetchResponse.FetchableTopicResponse("t", partitions=[partition])]
    )
    frame, payloads = response_encoder(SERVED[ApiKey.FETCH], 12)(1, message)

    assert len(payloads) == 1
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4 + 1000


def test_a_request_is_read_as_it_was_written() -> None:
    request = ApiVersionsRequest("ottla", "0.1")
    frame, _ = encode_request(request, 3, correlation_id=-7, client_id=None)
    view = memoryview(frame)[4:]
    key, version, correlation_id, client_id, position = parse_request_header(view)

    assert (key, version, correlation_id, client_id) == (18, 3, -7, None)
    assert decoder(ApiVersionsRequest, 3)(view, position) == (request, len(view))
