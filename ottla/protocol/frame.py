"""Frames: an int32 length, a header, a body.

Request headers carry key, version, correlation id and client id (a string with an int16 length in
every version); version 2 adds tags. Response headers carry the correlation id; version 1 adds
tags, of which none are sent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeAlias

from ottla.protocol.api import FIRST_FLEXIBLE, Api, ApiKey, is_flexible, response_header_version
from ottla.protocol.codec import encoder
from ottla.protocol.errors import ProtocolError
from ottla.protocol.schema import VERSION_MAX, Message
from ottla.protocol.wire import REQUEST_ELEMENTS_MAX, Payload, skip_tags

LENGTH: Final = struct.Struct(">i")
LENGTH_SIZE: Final = 4

Payloads: TypeAlias = list[tuple[int, Payload]]
RequestHeader: TypeAlias = tuple[int, int, int, str | None, int]
"""API key, version, correlation id, client id, position of the body."""
ResponseEncoder: TypeAlias = Callable[[int, Message], tuple[bytearray, Payloads]]

_FIRST_TAGGED: Final = {int(key): FIRST_FLEXIBLE.get(key, VERSION_MAX) for key in ApiKey}
"""API key -> the first version whose header has tags, for every key that Kafka has."""
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_unpack_request_header: Final = struct.Struct(">hhih").unpack_from
_pack_request_header: Final = struct.Struct(">ihhih").pack
_pack_response_header_0: Final = struct.Struct(">ii").pack
_pack_response_header_1: Final = struct.Struct(">iix").pack


def parse_request_header(view: memoryview, position: int = 0) -> RequestHeader:
    """The header of a request.

    ProtocolError for a header that is cut off, or for a key that Kafka does not have. The version
    is not checked. An ApiVersions request of an unknown version has a version 2 header, so that it
    can be answered with the versions that are known.
    """
    try:
        fields: tuple[int, int, int, int] = _unpack_request_header(view, position)
        key, version, correlation_id, size = fields
        p = position + 10
        if size < 0:
            client_id = None
        else:
            end = p + size
            if end > len(view):
                raise ProtocolError(f"client id has {size} bytes with {len(view) - p} left")
            client_id = str(view[p:end], "utf-8")
            p = end
        if version >= _FIRST_TAGGED[key] or (version < 0 and key == _API_VERSIONS):
            count = view[p]
            p += 1
            if count:
                p, _ = skip_tags(count, view, p, REQUEST_ELEMENTS_MAX)
    except (struct.error, IndexError) as error:
        raise ProtocolError(
            f"the request header is cut off: the frame ends at byte {len(view)}"
        ) from error
    except KeyError as error:
        raise ProtocolError(f"unknown API key {key}") from error
    except UnicodeDecodeError as error:
        raise ProtocolError(f"client id: {error}") from error
    return key, version, correlation_id, client_id, p


def response_encoder(api: Api, version: int) -> ResponseEncoder:
    """A function (correlation id, message) -> (frame, payloads), to be kept by its caller.

    The frame's length counts the payloads, whose bytes belong at the positions named with them.
    """
    encode = encoder(api.response, version)
    flexible = response_header_version(api.key, version)
    pack_header = _pack_response_header_1 if flexible else _pack_response_header_0
    pack_length = LENGTH.pack_into

    def encode_response(correlation_id: int, message: Message) -> tuple[bytearray, Payloads]:
        out = bytearray(pack_header(0, correlation_id))
        payloads: Payloads = []
        encode(message, out, payloads)
        size = len(out) - LENGTH_SIZE
        for _, payload in payloads:
            size += payload.size
        pack_length(out, 0, size)
        return out, payloads

    return encode_response


def encode_request(
    message: Message, version: int, *, correlation_id: int, client_id: str | None
) -> tuple[bytearray, Payloads]:
    """A whole frame of a request, as `response_encoder` makes one of a response."""
    key = message.__schema__.key
    assert key is not None, "a request has an API key"
    name = b"" if client_id is None else client_id.encode()
    name_size = -1 if client_id is None else len(name)
    out = bytearray(_pack_request_header(0, key, version, correlation_id, name_size))
    out += name
    if is_flexible(key, version):
        out.append(0)
    payloads: Payloads = []
    encoder(type(message), version)(message, out, payloads)
    size = len(out) - LENGTH_SIZE
    for _, payload in payloads:
        size += payload.size
    LENGTH.pack_into(out, 0, size)
    return out, payloads
