"""kio's classes beside ours: which they are, and the values that both can hold.

kio names some fields otherwise and gives them richer types (error codes as an enum, durations,
points in time), so its fields are taken in order, and values are drawn that survive those types.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
from typing import Any

from hypothesis import strategies as st

from ottla.protocol.codec import encoder, message_classes
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema import Field, Message, Struct, fields_of
from ottla.protocol.wire import ZERO_UUID

INTEGERS: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
}
SECONDS = st.integers(0, 10**9)
KIO_TYPES: dict[str, st.SearchStrategy[Any]] = {
    "error_code": st.sampled_from([int(code) for code in ErrorCode if code <= 119]),
    "timedelta_i32": st.integers(0, 2**31 - 1),
    "timedelta_i64": SECONDS.map(lambda s: s * 1000),
    "datetime_i64": SECONDS.map(lambda s: s * 1000),
}
# Long enough for length prefixes of two bytes.
CONTENT = st.one_of(st.binary(max_size=5), st.just(bytes(130)))
TEXT = st.one_of(st.text(max_size=5), st.just("x" * 130))


def kio_class(cls: type[Message], version: int) -> Any:
    """kio's class for a version of a message, or None."""
    name = cls.__name__
    for suffix in ("Request", "Response"):
        if name.endswith(suffix):
            path, kind = name.removesuffix(suffix), suffix.lower()
            break
    else:
        path, kind = name, "data"
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in path).lstrip("_")
    try:
        module = importlib.import_module(f"kio.schema.{snake}.v{version}.{kind}")
    except ModuleNotFoundError:
        return None
    return getattr(module, name)


def known_to_kio() -> list[tuple[type[Message], int]]:
    return [
        (cls, version)
        for cls in message_classes()
        for version in cls.__schema__.versions
        if kio_class(cls, version) is not None
    ]


def pairs(cls: type[Struct], version: int, theirs: Any) -> list[tuple[Field, Any]]:
    """Our fields of a version, each with kio's."""
    ours = [item for item in fields_of(cls) if version in item.versions]
    return list(zip(ours, dataclasses.fields(theirs), strict=True))


def kio_element(theirs: Any, item: Field) -> Any:
    """kio's class for the struct in one of its fields, found by the name that both use."""
    assert item.struct is not None
    module = importlib.import_module(theirs.__module__)
    return getattr(module, item.struct.__name__)


def messages(cls: type[Struct], version: int, theirs: Any) -> st.SearchStrategy[Any]:
    """Messages of ours whose values kio can hold."""
    values = {
        item.name: _field_values(item, version, other, theirs)
        for item, other in pairs(cls, version, theirs)
    }
    return st.builds(cls, **values)


def _field_values(item: Field, version: int, other: Any, theirs: Any) -> st.SearchStrategy[Any]:
    if item.struct is not None:
        values = messages(item.struct, version, kio_element(theirs, item))
    else:
        values = _scalars(item, other.metadata.get("kafka_type"))
    if item.is_array:
        values = st.lists(values, max_size=2)
    if version in item.nullable:
        values = st.one_of(values, st.none())
    return values


def _scalars(item: Field, kafka_type: str | None) -> st.SearchStrategy[Any]:
    if kafka_type in KIO_TYPES:
        return KIO_TYPES[kafka_type]
    match item.type_name:
        case "bool":
            return st.booleans()
        case "str":
            return TEXT
        case "uuid":
            return st.one_of(st.binary(min_size=16, max_size=16), st.just(ZERO_UUID))
        case "float64":
            return st.floats(allow_nan=False, allow_infinity=False)
        case "bytes":
            return CONTENT
        case "memoryview" | "Records":
            return CONTENT.map(memoryview)
        case _:
            return INTEGERS[item.type_name]


def encoded(message: Message, version: int) -> bytes:
    out = bytearray()
    encoder(type(message), version)(message, out, [])
    return bytes(out)


def kio_decoded(theirs: Any, data: bytes) -> tuple[Any, int]:
    serial = importlib.import_module("kio.serial")
    value, size = serial.entity_reader(theirs)(data, 0)
    return value, size


def kio_encoded(value: Any) -> bytes:
    serial = importlib.import_module("kio.serial")
    buffer = io.BytesIO()
    serial.entity_writer(type(value))(buffer, value)
    return buffer.getvalue()


def same(ours: Any, theirs: Any, version: int) -> bool:
    """Whether both hold the same values, whatever kio's types for them."""
    if isinstance(ours, Struct):
        return all(
            same(getattr(ours, item.name), getattr(theirs, other.name), version)
            for item, other in pairs(type(ours), version, type(theirs))
        )
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(
            same(a, b, version) for a, b in zip(ours, theirs, strict=True)
        )
    if theirs is None:
        return ours in (None, ZERO_UUID, -1)
    if hasattr(theirs, "total_seconds"):
        return bool(ours == round(theirs.total_seconds() * 1000))
    if hasattr(theirs, "timestamp"):
        return bool(ours == round(theirs.timestamp() * 1000))
    if hasattr(theirs, "bytes"):
        return bool(ours == theirs.bytes)
    return bool(ours == theirs)
