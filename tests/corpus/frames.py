"""Rows 1 to 15: frames, headers and bodies that are none, as data: the bytes and what follows.

Bytes are written by hand here, for an encoder of ours could not write most of them. `Closed` rows
end the connection without a byte of an answer; `Answered` rows are answered, with exactly these
bytes where `content` is given, and the connection goes on; `Waits` rows are accepted as the
beginning of something.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ottla.protocol.api import SERVED, ApiKey, is_flexible
from ottla.protocol.frame import encode_request

INT32_MAX = 2**31 - 1
REQUEST_SIZE_MAX = 100 * 1024 * 1024
"""Kafka's default of socket.request.max.bytes."""
CORRELATION_ID = 77
UNSUPPORTED_VERSION = bytes.fromhex("0000004d 0023 00000001 0012 0000 0004")
"""An answer in version 0 that lists ApiVersions 0-4 alone (KIP-511)."""


@dataclass(slots=True, frozen=True)
class Closed:
    """The connection ends without an answer."""


@dataclass(slots=True, frozen=True)
class Answered:
    """One answer comes. `begins` is how its frame must begin, without the length."""

    begins: bytes = struct.pack(">i", CORRELATION_ID)


@dataclass(slots=True, frozen=True)
class Waits:
    """Nothing comes, and the connection stays."""


Outcome = Closed | Answered | Waits


@dataclass(slots=True, frozen=True)
class Row:
    number: int
    name: str
    sent: bytes
    expected: Outcome


def _length(size: int, rest: bytes = b"") -> bytes:
    return struct.pack(">i", size) + rest


def _text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _request(
    key: int,
    version: int,
    body: bytes = b"",
    *,
    client_id: bytes = _text(b"c"),
    tags: bytes = b"\0",
) -> bytes:
    """A frame; `tags` stand in headers that have some."""
    header = struct.pack(">hhi", key, version, CORRELATION_ID) + client_id
    unknown_api_versions = key == ApiKey.API_VERSIONS and not 0 <= version <= 4
    if is_flexible(key, version) or unknown_api_versions:
        header += tags
    return _length(len(header) + len(body), header + body)


CLOSED = Closed()
ANSWERED = Answered()
METADATA, PRODUCE, FETCH, LIST_OFFSETS = (
    ApiKey.METADATA,
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
)
CREATE_TOPICS, API_VERSIONS = ApiKey.CREATE_TOPICS, ApiKey.API_VERSIONS
NO_TOPICS = struct.pack(">i", 0)
# Of Metadata 12: no topics, no auto-creation, no operations, no tags.
NO_TOPICS_12 = b"\1\0\0\0"
CLIENT_3 = b"\7corpus\0021\0"

LENGTHS = [
    *(
        Row(1, f"length {size}", _length(size, b"\0\3\0\1"), CLOSED)
        for size in (-1, -2, -REQUEST_SIZE_MAX, -(2**31))
    ),
    *(
        Row(2, f"length {size}", _length(size, b"\0\3\0\1"), CLOSED)
        for size in (REQUEST_SIZE_MAX + 1, 2 * REQUEST_SIZE_MAX, INT32_MAX)
    ),
    Row(2, "the largest length", _length(REQUEST_SIZE_MAX, b"\0\3\0\1"), Waits()),
    Row(3, "99 MiB, then nothing", _length(99 << 20), Waits()),
    Row(3, "half a length", b"\0\0", Waits()),
    *(Row(4, f"length {size}", _length(size, bytes(size)), CLOSED) for size in (0, 1, 3, 4, 7)),
    Row(4, "a header without a client id", _length(8, struct.pack(">hhi", 3, 1, 1)), CLOSED),
    Row(4, "ApiVersions 5 without tags", _length(10, struct.pack(">hhih", 18, 5, 1, -1)), CLOSED),
]

STRANGERS = [
    *(
        Row(6, f"HTTP {verb.decode()}", verb + b" / HTTP/1.1\r\nHost: broker\r\n\r\n", CLOSED)
        for verb in (b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"CONNECT")
    ),
    Row(6, "HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", CLOSED),
    *(
        Row(6, f"TLS hello {version}", b"\x16\x03" + bytes((minor,)) + b"\x02\x00\x01\x00", CLOSED)
        for minor, version in ((1, "1.0"), (3, "1.2"))
    ),
    Row(6, "SSH", b"SSH-2.0-OpenSSH_9.2\r\n", CLOSED),
    Row(6, "a line of text", b"hello, is anybody there?\r\n", CLOSED),
]

UNSERVED = [key for key in ApiKey if key not in SERVED]
KEYS = [
    *(Row(8, f"key {key}", _request(key, 0), CLOSED) for key in (-1, 93, 999, 2**15 - 1, -(2**15))),
    *(Row(8, f"{key.name}, not served", _request(key, 0), CLOSED) for key in UNSERVED),
]

VERSIONS = [
    *(
        Row(9, f"{api.key.name} {version}", _request(api.key, version, bytes(64)), CLOSED)
        for api in SERVED.values()
        for version in {-1, -(2**15), api.min_version - 1, api.max_version + 1, 2**15 - 1}
        if api.key != API_VERSIONS
    ),
    *(
        Row(
            9,
            f"API_VERSIONS {version}",
            _request(API_VERSIONS, version, CLIENT_3),
            Answered(UNSUPPORTED_VERSION),
        )
        for version in (-(2**15), -1, 5, 99, 2**15 - 1)
    ),
    Row(9, "Produce 0, advertised", _request(PRODUCE, 0, bytes(64)), CLOSED),
]


def _tags(*tags: tuple[int, bytes]) -> bytes:
    return _varint(len(tags)) + b"".join(
        _varint(tag) + _varint(len(value)) + value for tag, value in tags
    )


MANY_TAGS = _tags(*((tag, b"x" * 10) for tag in range(50_000)))


def _tag_rows(name: str, tags: bytes, expected: Outcome) -> list[Row]:
    """Once in a header, once in a body."""
    return [
        Row(10, f"{name} in a header", _request(METADATA, 12, NO_TOPICS_12, tags=tags), expected),
        Row(10, f"{name} in a body", _request(METADATA, 12, NO_TOPICS_12[:-1] + tags), expected),
    ]


TAGS = [
    *_tag_rows("an unknown tag", _tags((99, b"junk")), ANSWERED),
    *_tag_rows("a tag twice", _tags((5, b"a"), (5, b"b")), ANSWERED),
    *_tag_rows("tags unsorted", _tags((9, b"a"), (3, b""), (7, b"c")), ANSWERED),
    *_tag_rows("tag number 2^31 - 1", _tags((INT32_MAX, b"a")), ANSWERED),
    *_tag_rows("tag number 2^31", _tags((INT32_MAX + 1, b"a")), CLOSED),
    *_tag_rows("50,000 tags", MANY_TAGS, ANSWERED),
    *_tag_rows("2^31 - 1 tags declared", _varint(INT32_MAX) + b"\1\0", CLOSED),
    *_tag_rows("2^31 tags declared", _varint(2**31) + b"\1\0", CLOSED),
    *_tag_rows("a tag more than there is", b"\2\1\0", CLOSED),
    *_tag_rows("a tag longer than the rest", b"\1\1\x7f", CLOSED),
    *_tag_rows("a tag of 2^31 - 1 bytes", b"\1\1" + _varint(INT32_MAX) + b"x", CLOSED),
    Row(10, "a known tag cut short", _request(FETCH, 17, b"\1\1\2\0\0"), CLOSED),
    Row(10, "a known tag too long", _request(FETCH, 17, b"\1\1\x20" + bytes(32)), CLOSED),
]

PRODUCE_8 = struct.pack(">hhi", -1, -1, 1000)
FETCH_11 = struct.pack(">iiiibii", -1, 0, 0, 1000, 0, 0, -1)


def _count_rows(
    name: str, key: ApiKey, version: int, before: bytes, *, nullable: bool = False
) -> list[Row]:
    """An array of int32 length after `before`, longer than the rest could hold, or negative.

    Of an array that may be null every negative length says that it is, as in Kafka's own reader.
    """
    return [
        Row(
            11,
            f"{name}, {count}",
            _request(key, version, before + struct.pack(">i", count)),
            ANSWERED if nullable and count < 0 else CLOSED,
        )
        for count in (INT32_MAX, INT32_MAX // 16, 1_000_000, 1, -2, -(2**31))
    ]


def _compact_rows(name: str, key: ApiKey, version: int, before: bytes) -> list[Row]:
    """The same for arrays whose length is a varint, one more than the count."""
    counts = (INT32_MAX, 1_000_000, 2)
    return [
        Row(11, f"{name}, {count - 1}", _request(key, version, before + _varint(count)), CLOSED)
        for count in counts
    ]


COUNTS = [
    *_count_rows("topics of Metadata 1", METADATA, 1, b"", nullable=True),
    *_count_rows("topics of Produce 8", PRODUCE, 8, PRODUCE_8),
    *_count_rows(
        "partitions of Produce 8", PRODUCE, 8, PRODUCE_8 + struct.pack(">i", 1) + _text(b"t")
    ),
    *_count_rows("topics of Fetch 11", FETCH, 11, FETCH_11),
    *_count_rows(
        "partitions of Fetch 11", FETCH, 11, FETCH_11 + struct.pack(">i", 1) + _text(b"t")
    ),
    *_count_rows("forgotten topics of Fetch 11", FETCH, 11, FETCH_11 + NO_TOPICS),
    *_count_rows("topics of ListOffsets 1", LIST_OFFSETS, 1, struct.pack(">i", -1)),
    *_count_rows("topics of CreateTopics 4", CREATE_TOPICS, 4, b""),
    *_count_rows(
        "assignments of CreateTopics 4",
        CREATE_TOPICS,
        4,
        struct.pack(">i", 1) + _text(b"t") + struct.pack(">ih", 1, 1),
    ),
    *_count_rows(
        "brokers of an assignment of CreateTopics 4",
        CREATE_TOPICS,
        4,
        struct.pack(">i", 1) + _text(b"t") + struct.pack(">ihii", -1, -1, 1, 0),
    ),
    *_count_rows("topics of DeleteTopics 3", ApiKey.DELETE_TOPICS, 3, b""),
    *_count_rows("resources of DescribeConfigs 3", ApiKey.DESCRIBE_CONFIGS, 3, b""),
    *_count_rows("topics of DescribeLogDirs 1", ApiKey.DESCRIBE_LOG_DIRS, 1, b"", nullable=True),
    *_compact_rows("topics of Metadata 12", METADATA, 12, b""),
    *_compact_rows("topics of Produce 12", PRODUCE, 12, b"\0" + struct.pack(">hi", -1, 1000)),
    *_compact_rows("topics of CreateTopics 7", CREATE_TOPICS, 7, b""),
    Row(11, "null topics of Metadata 0", _request(METADATA, 0, struct.pack(">i", -1)), CLOSED),
    Row(11, "null topics of CreateTopics 4", _request(CREATE_TOPICS, 4, b"\xff" * 4), CLOSED),
    Row(11, "null topics of CreateTopics 7", _request(CREATE_TOPICS, 7, b"\0"), CLOSED),
    Row(11, "null topics of Metadata 1", _request(METADATA, 1, b"\xff" * 4), ANSWERED),
]

VARINTS = [
    Row(12, "length of ten bytes", _request(METADATA, 12, b"\xff" * 9 + b"\1"), CLOSED),
    Row(12, "length of six bytes", _request(METADATA, 12, b"\x80" * 5 + b"\0"), CLOSED),
    Row(
        12, "length of five bytes, 2^35 - 1", _request(METADATA, 12, b"\xff" * 4 + b"\x7f"), CLOSED
    ),
    Row(12, "length of five bytes, -1", _request(METADATA, 12, b"\xff" * 4 + b"\x0f"), CLOSED),
    Row(12, "length that does not end", _request(METADATA, 12, b"\x80\x80"), CLOSED),
    # Kafka's reader does not mind more bytes than are needed either.
    Row(12, "overlong length", _request(METADATA, 12, b"\x81\0" + NO_TOPICS_12[1:]), ANSWERED),
    Row(12, "null for a string", _request(API_VERSIONS, 3, b"\0\0021\0"), CLOSED),
]


def _named(name: bytes, size: int | None = None) -> bytes:
    """Metadata 1 of one topic; `size` is what its name declares."""
    declared = len(name) if size is None else size
    return _request(METADATA, 1, struct.pack(">ih", 1, declared) + name)


def _client(client_id: bytes, size: int | None = None) -> bytes:
    declared = len(client_id) if size is None else size
    return _request(METADATA, 1, NO_TOPICS, client_id=struct.pack(">h", declared) + client_id)


STRINGS = [
    Row(13, "topic name longer than the rest", _named(b"topic", 6), CLOSED),
    Row(13, "topic name of 32767 bytes declared", _named(b"topic", 32767), CLOSED),
    Row(13, "null topic name", _named(b"", -1), CLOSED),
    Row(13, "topic name of length -2", _named(b"topic", -2), CLOSED),
    Row(13, "invalid UTF-8", _named(b"\xff\xfe"), CLOSED),
    Row(13, "UTF-8 cut off", _named(b"caf\xc3"), CLOSED),
    Row(13, "overlong UTF-8", _named(b"\xc0\xaf"), CLOSED),
    Row(13, "lone surrogate", _named(b"\xed\xa0\x80"), CLOSED),
    Row(13, "NUL in a topic name", _named(b"a\0b"), ANSWERED),
    Row(13, "topic name of 32767 bytes", _named(b"n" * 32767), ANSWERED),
    Row(13, "client id longer than the rest", _client(b"c", 32000), CLOSED),
    Row(13, "client id of length -2", _client(b"", -2), ANSWERED),
    Row(13, "null client id", _client(b"", -1), ANSWERED),
    Row(13, "empty client id", _client(b""), ANSWERED),
    Row(13, "client id that is no UTF-8", _client(b"\xc3\x28"), CLOSED),
    Row(13, "client id with a lone surrogate", _client(b"\xed\xb0\x80"), CLOSED),
    Row(13, "client id of 32 KiB of escapes", _client(b"\x1b[2J\x1b]0;t\7" * 2978), ANSWERED),
    Row(13, "NUL and line ends in a client id", _client(b"a\0b\r\nc"), ANSWERED),
]

TRAILING = [
    Row(14, "bytes behind ApiVersions 0", _request(API_VERSIONS, 0, b"more"), ANSWERED),
    Row(14, "bytes behind Metadata 1", _request(METADATA, 1, NO_TOPICS + b"more"), ANSWERED),
    Row(14, "bytes behind Metadata 12", _request(METADATA, 12, NO_TOPICS_12 + b"more"), ANSWERED),
]


def _software(name: bytes, version: bytes) -> bytes:
    body = _varint(len(name) + 1) + name + _varint(len(version) + 1) + version + b"\0"
    return _request(API_VERSIONS, 3, body)


# The correlation id, INVALID_REQUEST, no APIs, throttle 0, no tags.
REFUSED_SOFTWARE = Answered(bytes.fromhex("0000004d 002a 01 00000000 00"))
SOFTWARE = [
    Row(15, f"software {name!r} {version!r}", _software(name, version), REFUSED_SOFTWARE)
    for name, version in (
        (b"bad name!", b"1"),
        (b"", b"1"),
        (b"name", b""),
        (b"-name", b"1"),
        (b"name-", b"1"),
        (b"name", b"1 0"),
        (b"na\nme", b"1"),
        (b"name\n", b"1"),
    )
]
GOOD_SOFTWARE = [
    Row(15, "software a-b.c 1.2-3", _software(b"a-b.c", b"1.2-3"), ANSWERED),
    Row(15, "software name of 16 KiB", _software(b"n" * 16384, b"1"), ANSWERED),
]


def _cut_short() -> list[Row]:
    """Every served API's newest version: the default request without its last byte."""
    rows = []
    for api in SERVED.values():
        frame, _ = encode_request(
            api.request(), api.max_version, correlation_id=CORRELATION_ID, client_id="c"
        )
        if len(frame) > len(_request(api.key, api.max_version)):
            cut = _length(len(frame) - 5, bytes(frame[4:-1]))
            rows.append(Row(11, f"{api.key.name} cut short", cut, CLOSED))
    return rows


ROWS: tuple[Row, ...] = (
    *LENGTHS,
    *STRANGERS,
    *KEYS,
    *VERSIONS,
    *TAGS,
    *COUNTS,
    *VARINTS,
    *STRINGS,
    *TRAILING,
    *SOFTWARE,
    *GOOD_SOFTWARE,
    *_cut_short(),
)
