"""A message is a class whose fields carry types, versions, tags and defaults.

    class ProduceRequest(Message, key=0, versions="3-13", flexible="9+"):
        class PartitionProduceData(Struct):
            index: int32 = 0
            records: memoryview | None = None

        transactional_id: str | None = None
        acks: int16 = 0

The annotation is the wire type (a name of `wire`, `str`, `bool`, `bytes`, a nested struct, or a
list of one of these); `| None` makes it nullable; the value is the default, and a field that needs
more has `field(...)`. One class stands for all versions of a message; `codec` compiles each. In
the docstring of a message a bare number is a version: "8 adds ...".

Instances have slots and a constructor with all fields in order, positional or named, compiled by
the first call of it: a standard dataclass costs a millisecond of start-up each, and there are
hundreds. A field that defaults to a struct shares one frozen instance of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NoReturn, TypeVar, cast, dataclass_transform, overload

T = TypeVar("T")

VERSION_MAX: Final = 0x7FFF


@dataclass(slots=True, frozen=True)
class Versions:
    """An inclusive range of versions; empty when `last` is below `first`."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))


ALL_VERSIONS = Versions(0, VERSION_MAX)
NO_VERSIONS = Versions(0, -1)


def parse_versions(text: str) -> Versions:
    """`3-13`, `9+`, `4` or `none`."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), VERSION_MAX)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


@dataclass(slots=True)
class FieldOptions:
    """What a declaration says of a field beside its type; the wire form is in `Field`."""

    default: object
    versions: str | None
    nullable: str | None
    tag: int | None
    ignorable: bool


class _Unset:
    """The mark of a default that is made anew for each instance, or is the type's own."""

    def __repr__(self) -> str:
        return "..."


UNSET: Any = _Unset()


@overload
def field(
    *,
    versions: str | None = None,
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any: ...
@overload
def field(
    default: T,
    *,
    versions: str | None = None,
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> T: ...
def field(
    default: object = UNSET,
    *,
    versions: str | None = None,
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> object:
    """Declare a field that is not in all versions, or is tagged, or has another rule.

    `versions`: where the field exists (default: all of the message's). `nullable`: where it may be
    null (default: wherever it exists, if annotated `| None`). `tag`: its number, if it stands in
    the tagged section. `ignorable`: a value that a version cannot carry is dropped silently;
    without it, encoding such a value is a ValueError. Without `default` a struct field is a
    struct of defaults.
    """
    return FieldOptions(default, versions, nullable, tag, ignorable)


@dataclass(slots=True, frozen=True)
class Field:
    """One field as the compiler sees it. `struct` is set when `type_name` is one of ours."""

    name: str
    type_name: str
    struct: type[Struct] | None
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    default: Any
    ignorable: bool


@dataclass(slots=True)
class Schema:
    """What a class declares; fields are resolved when first asked for, as classes nest."""

    key: int | None
    versions: Versions
    flexible: Versions
    declared: dict[str, tuple[str, object]]
    message: StructMeta | None = None
    resolved: tuple[Field, ...] | None = None
    shared_default: Any = None


@dataclass_transform()
class StructMeta(type):
    """Turns annotations into slots and keeps the declaration as `__schema__`."""

    __schema__: Schema

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: int | None = None,
        versions: str = "0+",
        flexible: str = "none",
    ) -> StructMeta:
        declared: dict[str, tuple[str, object]] = {}
        if any(isinstance(base, StructMeta) for base in bases):
            for attribute, annotation in namespace.get("__annotations__", {}).items():
                declared[attribute] = (annotation, namespace.pop(attribute))
            namespace["__slots__"] = tuple(declared)
            if declared:
                namespace["__init__"] = _compile_and_init
        cls = super().__new__(mcs, name, bases, namespace)
        cls.__schema__ = Schema(key, parse_versions(versions), parse_versions(flexible), declared)
        cls.__schema__.message = cls
        for value in namespace.values():
            if isinstance(value, StructMeta):
                value.__schema__.message = cls
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: object):
        super().__init__(name, bases, namespace)


class Struct(metaclass=StructMeta):
    """A struct nested in a message, or the base of one."""

    __slots__ = ()
    __schema__: ClassVar[Schema]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__schema__.declared)
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or self.__schema__ is not other.__schema__:
            return NotImplemented
        return all(getattr(self, f) == getattr(other, f) for f in self.__schema__.declared)

    __hash__ = None  # type: ignore[assignment]


class Message(Struct):
    """A request, a response or a record: the unit that is encoded and decoded."""

    __slots__ = ()


def fields_of(cls: type[Struct]) -> tuple[Field, ...]:
    """The fields of a struct in the order of the wire."""
    schema = cls.__schema__
    if schema.resolved is None:
        schema.resolved = tuple(
            _resolve(cls, name, annotation, value)
            for name, (annotation, value) in schema.declared.items()
        )
    return schema.resolved


def shared_default(cls: type[Struct]) -> Struct:
    """The one instance of defaults of a struct; it refuses to be changed."""
    schema = cls.__schema__
    if schema.shared_default is None:
        methods: dict[str, Any] = {
            "__slots__": (),
            "__setattr__": _refuse_change,
            "__qualname__": cls.__qualname__,
            "__module__": cls.__module__,
        }
        frozen: Any = type.__new__(StructMeta, cls.__name__, (cls,), methods)
        instance = object.__new__(frozen)
        for item in fields_of(cls):
            object.__setattr__(instance, item.name, fresh_default(item))
        schema.shared_default = instance
    return cast(Struct, schema.shared_default)


def fresh_default(item: Field) -> Any:
    """The default of a field as a new instance would have it."""
    return [] if item.default is UNSET else item.default


def _resolve(cls: type[Struct], name: str, annotation: str, value: object) -> Field:
    options = value if isinstance(value, FieldOptions) else FieldOptions(value, *_PLAIN_OPTIONS)
    type_name = annotation.removesuffix(" | None")
    optional = type_name != annotation
    is_array = type_name.startswith("list[")
    if is_array:
        type_name = type_name[5:-1]
    type_name = type_name.rpartition(".")[2]
    struct = getattr(cls.__schema__.message, type_name, None)
    versions = parse_versions(options.versions) if options.versions else ALL_VERSIONS
    if options.nullable:
        nullable = parse_versions(options.nullable)
    else:
        nullable = versions if optional else NO_VERSIONS
    default = options.default
    if is_array and default is not None:
        assert default in (UNSET, []), f"{cls.__qualname__}.{name}: a list defaults to [] or None"
        default = UNSET
    elif default is UNSET:
        assert struct is not None, f"{cls.__qualname__}.{name}: no default"
        default = shared_default(struct)
    return Field(
        name=name,
        type_name=type_name,
        struct=struct,
        is_array=is_array,
        versions=versions,
        nullable=nullable,
        tag=options.tag,
        default=default,
        ignorable=options.ignorable,
    )


_PLAIN_OPTIONS: Any = (None, None, None, False)


def _compile_and_init(self: Struct, *args: object, **values: object) -> None:
    """The constructor until it is first called: replaces itself by the real one, and calls that."""
    cls = type(self)
    constants = {"UNSET": UNSET}
    parameters, lines = [], []
    for item in fields_of(cls):
        constants[f"default_{item.name}"] = item.default
        parameters.append(f"{item.name}=default_{item.name}")
        value = f"[] if {item.name} is UNSET else {item.name}"
        lines.append(f"    self.{item.name} = {value if item.default is UNSET else item.name}\n")
    source = f"def __init__(self, {', '.join(parameters)}):\n{''.join(lines)}"
    exec(compile(source, f"<constructor of {cls.__qualname__}>", "exec"), constants)
    constructor = cast(Callable[..., None], constants["__init__"])
    cls.__init__ = constructor  # type: ignore[method-assign]
    constructor(self, *args, **values)


def _refuse_change(self: Struct, name: str, value: object) -> NoReturn:
    raise AttributeError(f"{type(self).__qualname__} is a shared default: make a new one")


def response_type(request: type[Message]) -> type[Message]:
    """The response of a request: it stands beside it, under its name."""
    assert request.__name__.endswith("Request")
    name = request.__name__.removesuffix("Request") + "Response"
    return cast(type[Message], getattr(sys.modules[request.__module__], name))
