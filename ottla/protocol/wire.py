"""Wire types: how one value stands in a Kafka message, each written down once.

A type is either *fixed* (a letter of the struct module; neighbours share one pack or unpack) or
*prefixed* (a length or a count, then content). A prefix has two forms: an int16 or int32 that is
-1 for null, or, in flexible versions, an unsigned varint of length + 1 that is 0 for null.

The templates are the source text that `codec` puts together. This module alone compares a length
or a count with the bytes left, so that what a peer declares neither allocates nor reads past the
end. In generated source `buf` is the frame or a copy of it, `p` the position in it, `end` its
length, `left` how many elements and tags may still come, `n` the prefix just read, `q` the end of
the content, `out` the bytes written.
"""

from __future__ import annotations

import base64
import struct
from typing import Annotated, Final, Protocol, TypeAlias

from ottla.protocol.errors import ProtocolError


class Payload(Protocol):
    """Bytes that are sent from where they lie, for example a slice of a file."""

    @property
    def size(self) -> int: ...


int8: TypeAlias = Annotated[int, "b"]
int16: TypeAlias = Annotated[int, "h"]
int32: TypeAlias = Annotated[int, "i"]
int64: TypeAlias = Annotated[int, "q"]
uint16: TypeAlias = Annotated[int, "H"]
uint32: TypeAlias = Annotated[int, "I"]
float64: TypeAlias = Annotated[float, "d"]
uuid: TypeAlias = Annotated[bytes, "16s"]
Records: TypeAlias = bytes | bytearray | memoryview | Payload

ZERO_UUID = bytes(16)

FIXED: dict[str, str] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "uuid": "16s",
}

KEPT_ELEMENTS_MAX = 64


class Layouts(dict[int, struct.Struct]):
    """Number of elements of one fixed type -> their layout, kept for short arrays: the struct
    module would read a format anew each time, which takes longer than what it is read for."""

    __slots__ = ("_letter",)

    def __init__(self, letter: str) -> None:
        super().__init__()
        self._letter = letter

    def __missing__(self, count: int) -> struct.Struct:
        letter = self._letter
        # A format with a count takes no memory for each element.
        layout = struct.Struct(f">{count}{letter}" if len(letter) == 1 else ">" + letter * count)
        if count <= KEPT_ELEMENTS_MAX:
            self[count] = layout
        return layout


LAYOUTS = {letter: Layouts(letter) for letter in FIXED.values()}

# Strings are at most 32767 bytes in Kafka's own reader and writer, in flexible versions too.
STRING_SIZE_MAX = 0x7FFF
INT32_MAX = 0x7FFFFFFF

# Types whose values are parts of the frame itself.
VIEWS = ("memoryview", "Records")

COPIED_BYTES_MAX = 16 * 1024
"""Of a frame that is copied before it is decoded; a copy of 100 MB would stop the loop."""

REQUEST_ELEMENTS_MAX: Final = 131_072
"""Elements of all arrays of a request, however nested, and its tags. Each is an object or a turn of
a loop, and takes a byte or two of a frame that may have 100 MB."""

RESPONSE_BYTES_MAX = 100 * 1024 * 1024
"""Of a response without its payloads. Clients read no more of one (librdkafka 100,000,000 bytes,
franz-go and sarama 100 MiB); a request that asks for it names the same thing again and again."""

CONTENT_DECODE: dict[str, str] = {
    "str": 'str(buf[p:q], "utf-8")',
    "bytes": "bytes(buf[p:q])",
    "memoryview": "buf[p:q]",
    "Records": "buf[p:q]",
}

DECODE_CONTENT = """\
if {null_or_past_end}:
    raise bad_length({name!r}, q - p, end - p)
{target} = {content}
p = q
"""

DECODE_NULLABLE_CONTENT = """\
if q < p:
    {target} = None
else:
    if {past_end}:
        raise bad_length({name!r}, q - p, end - p)
    {target} = {content}
    p = q
"""

DECODE_COUNT_CHECK = """\
if not 0 <= n <= left:
    raise bad_count({name!r}, n, left)
left -= n
"""

DECODE_FIXED_ELEMENTS = """\
{target} = list({layouts}[n].unpack_from(buf, p))
p += n * {element_size}
"""

DECODE_UUIDS = """\
q = p + n * 16
if q > end:
    raise bad_length({name!r}, n * 16, end - p)
{target} = [bytes(buf[i : i + 16]) for i in range(p, q, 16)]
p = q
"""

DECODE_PREFIX_TAIL = """\
if n > 127:
    n, p = finish_uvarint(n, buf, p)
"""

DECODE_TAGS = """\
if n:
    p, left = skip_tags(n, buf, p, left)
"""

# What precedes the length, and what follows it.
ENCODE_CONTENT: dict[str, str] = {
    "str": "{data} = {value}.encode()\n{size} = len({data})",
    "bytes": "{data} = {value}\n{size} = len({data})",
    "Records": "{data} = {value}\n{size} = len({data}) if type({data}) in RAW else {data}.size",
}

# The content of a payload is left to the sender: it is named with the place where it belongs.
ENCODE_CONTENT_TAIL: dict[str, str] = {
    "str": "{out} += {data}",
    "bytes": "{out} += {data}",
    "Records": """\
if type({data}) in RAW:
    {out} += {data}
else:
    payloads.append((len({out}), {data}))
""",
}
ENCODE_CONTENT["memoryview"] = ENCODE_CONTENT["Records"]
ENCODE_CONTENT_TAIL["memoryview"] = ENCODE_CONTENT_TAIL["Records"]

ENCODE_FIXED_ELEMENTS = """\
if {size}:
    {out} += {layouts}[{size}].pack(*{elements})
"""

ENCODE_BOUND = f"""\
if len({{out}}) > {RESPONSE_BYTES_MAX}:
    raise ResponseTooLarge({{title!r}}, {RESPONSE_BYTES_MAX})
"""

ENCODE_COMPACT_PREFIX = """\
if {size} < 127:
    {out}.append({size} + 1)
else:
    write_uvarint({out}, {size} + 1)
"""

ENCODE_COMPACT_STRING_PREFIX = """\
if {size} < 127:
    {out}.append({size} + 1)
else:
    write_string_size({out}, {size})
"""

ENCODE_TAG = """\
write_uvarint({out}, {tag})
write_uvarint({out}, len({inner}))
{out} += {inner}
"""

RAW = frozenset((bytes, bytearray, memoryview))


def bad_length(name: str, length: int, left: int) -> ProtocolError:
    if length < 0:
        return ProtocolError(f"{name} is null")
    return ProtocolError(f"{name} has {length} bytes with {left} left")


def bad_count(name: str, count: int, left: int) -> ProtocolError:
    if count < 0:
        return ProtocolError(f"{name} is null")
    return ProtocolError(
        f"{name} has {count} elements where {left} more may come: a message has no more elements"
        f" and tags than bytes, and a request {REQUEST_ELEMENTS_MAX}"
    )


def finish_uvarint(first: int, buf: bytes | memoryview, p: int) -> tuple[int, int]:
    """The value of a varint whose first byte, above 127, was read, and the position after it.

    Five bytes at most, and no more than an int32 holds, as every length, count and tag is one.
    """
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[p]
        p += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > INT32_MAX:
                raise ProtocolError(f"varint {value} is above an int32")
            return value, p
    raise ProtocolError("varint of more than five bytes")


def read_uvarint(buf: bytes | memoryview, p: int) -> tuple[int, int]:
    first = buf[p]
    if first < 128:
        return first, p + 1
    return finish_uvarint(first, buf, p + 1)


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_string_size(out: bytearray, size: int) -> None:
    if size > STRING_SIZE_MAX:
        raise ValueError(f"string of {size} bytes, {STRING_SIZE_MAX} at most")
    write_uvarint(out, size + 1)


def read_tag(buf: bytes | memoryview, p: int) -> tuple[int, int, int]:
    """One tag, the position of its value and the position after it, both within `buf`."""
    tag, p = read_uvarint(buf, p)
    size, p = read_uvarint(buf, p)
    if size > len(buf) - p:
        raise ProtocolError(f"tag {tag} has {size} bytes with {len(buf) - p} left")
    return tag, p, p + size


def check_tag_end(tag: int, p: int, q: int) -> None:
    if p != q:
        raise ProtocolError(f"tag {tag} ends at byte {p}, declared to end at {q}")


def skip_tags(count: int, buf: bytes | memoryview, p: int, left: int) -> tuple[int, int]:
    """The position after `count` tags, and how many elements and tags may come after them.

    A tag that repeats or is out of order is no error.
    """
    if count > 127:
        count, p = finish_uvarint(count, buf, p)
    left = check_tag_count(count, buf, p, left)
    for _ in range(count):
        _, _, p = read_tag(buf, p)
    return p, left


def check_tag_count(count: int, buf: bytes | memoryview, p: int, left: int) -> int:
    if count > left:
        raise bad_count("the tagged section", count, left)
    return left - count


def uuid_text(value: bytes) -> str:
    """Kafka's text of an id: base64url without padding, 22 characters."""
    assert len(value) == 16
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def parse_uuid(text: str) -> bytes:
    """The 16 bytes of an id in Kafka's text form; ValueError if it is none."""
    try:
        value = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError(f"{text!r} is no id: {error}") from None
    if len(value) != 16:
        raise ValueError(f"{text!r} is no id: {len(value)} bytes, not 16")
    return value
