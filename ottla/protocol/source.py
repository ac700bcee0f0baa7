"""The source text of decode and encode functions, made of the templates of `wire`.

A writer walks the fields of one version. Fixed-width fields gather in a run, which a following
length, count or tag count joins, and leave it as one pack or unpack of a precompiled struct.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ottla.protocol import wire
from ottla.protocol.errors import ProtocolError, ResponseTooLarge
from ottla.protocol.schema import UNSET, Field, Message, Struct, fields_of

_WIRE_NAMES = (
    "RAW",
    "bad_count",
    "bad_length",
    "check_tag_count",
    "check_tag_end",
    "finish_uvarint",
    "read_tag",
    "skip_tags",
    "write_string_size",
    "write_uvarint",
)

_IN_REQUESTS = ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment")
"""What clients put into requests as bytes, and the broker reads."""


class Source:
    """The text of one function as it grows, and the constants that it names."""

    verb: str

    def __init__(self, cls: type[Message], version: int) -> None:
        schema = cls.__schema__
        if version not in schema.versions:
            raise ValueError(f"{cls.__name__} has no version {version}")
        self.cls = cls
        self.version = version
        self.flexible = version in schema.flexible
        self.lines: list[str] = []
        self.depth = 0
        self.names = 0
        self.run: list[tuple[str, str]] = []
        self.constants: dict[str, Any] = {
            "new": object.__new__,
            "struct_error": struct.error,
            "ProtocolError": ProtocolError,
            "ResponseTooLarge": ResponseTooLarge,
        } | {name: getattr(wire, name) for name in _WIRE_NAMES}

    @property
    def title(self) -> str:
        return f"{self.cls.__name__} v{self.version}"

    def text(self) -> str:
        raise NotImplementedError

    def emit(self, text: str) -> None:
        pad = "    " * self.depth
        self.lines.extend(pad + line for line in text.splitlines())

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """The lines of a branch or a loop; a run of fixed fields never crosses its border."""
        self.flush()
        self.emit(head)
        self.depth += 1
        size = len(self.lines)
        yield
        self.flush()
        if len(self.lines) == size:
            self.emit("pass")
        self.depth -= 1

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def constant(self, stem: str, value: object) -> str:
        for name, known in self.constants.items():
            if known is value:
                return name
        name = self.name(stem)
        self.constants[name] = value
        return name

    def default(self, item: Field) -> str:
        """The source of a field's default."""
        if item.default is UNSET:
            return "[]"
        if item.struct is not None and item.default is not None:
            return self.constant("DEFAULT", item.default)
        return repr(item.default)

    def flush(self) -> None:
        raise NotImplementedError

    def take_run(self) -> tuple[str, list[str]]:
        letters = "".join(letter for letter, _ in self.run)
        names = [name for _, name in self.run if name]
        self.run.clear()
        return letters, names

    def prefix_letter(self, item: Field) -> str:
        if self.flexible:
            return "B"
        return "h" if item.type_name == "str" and not item.is_array else "i"


class DecodeSource(Source):
    """Where no field is a view of the frame, a small frame is copied first: parts of bytes cost
    less than parts of a view, and one copy less than the views of all texts."""

    verb = "decode"

    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__(cls, version)
        self.has_views = _has_views(cls, version)

    def text(self) -> str:
        self.emit("def decode(buf, p):")
        self.depth = 1
        if not self.has_views:
            with self.block(f"if len(buf) <= {wire.COPIED_BYTES_MAX}:"):
                self.emit("buf = bytes(buf)")
        self.emit("end = len(buf)")
        # What was written to a log must be read again, however much it is.
        is_clients = self.cls.__name__.endswith("Request") or self.cls.__name__ in _IN_REQUESTS
        self.emit(f"left = {wire.REQUEST_ELEMENTS_MAX if is_clients else 'end'}")
        with self.block("try:"):
            self.emit(f"return {self.struct(self.cls)}, p")
        with self.block("except (struct_error, IndexError) as error:"):
            self.emit(
                f'raise ProtocolError(f"{self.title} is cut off after byte {{p}}:'
                ' a field needs more than the {end - p} bytes left") from error'
            )
        with self.block("except UnicodeDecodeError as error:"):
            self.emit(
                f'raise ProtocolError(f"{self.title}: {{error}} after byte {{p}}") from error'
            )
        return "\n".join(self.lines) + "\n"

    def flush(self) -> None:
        if not self.run:
            return
        letters, targets = self.take_run()
        if letters == "B":
            self.emit(f"{targets[0]} = buf[p]\np += 1")
            return
        size = struct.calcsize(">" + letters)
        unpack = self.constant("unpack", struct.Struct(">" + letters).unpack_from)
        comma = "," if len(targets) == 1 else ""
        self.emit(f"{', '.join(targets)}{comma} = {unpack}(buf, p)\np += {size}")

    def struct(self, cls: type[Struct]) -> str:
        """Decode one struct into a new variable; the name of that."""
        target = self.name("v")
        self.emit(f"{target} = new({self.constant('C', cls)})")
        tagged = []
        for item in fields_of(cls):
            if self.version not in item.versions:
                self.emit(f"{target}.{item.name} = {self.default(item)}")
            elif item.tag is not None:
                tagged.append(item)
            else:
                self.value(item, f"{target}.{item.name}")
        if self.flexible:
            self.tags(tagged, target)
        self.flush()
        return target

    def value(self, item: Field, target: str) -> None:
        if item.is_array:
            self.array(item, target)
        elif item.type_name in wire.FIXED:
            self.run.append((wire.FIXED[item.type_name], target))
        elif item.struct is None:
            self.content(item, target, nullable=self.version in item.nullable)
        elif self.version in item.nullable:
            self.run.append(("b", "n"))
            # In the tagged section Kafka writes null as 0, elsewhere as -1.
            with self.block("if n < 0:" if item.tag is None else "if n <= 0:"):
                self.emit(f"{target} = None")
            with self.block("else:"):
                self.emit(f"{target} = {self.struct(item.struct)}")
        else:
            self.emit(f"{target} = {self.struct(item.struct)}")

    def prefix(self, item: Field) -> None:
        """Read a length or count, still plus one if flexible, into `n`."""
        self.run.append((self.prefix_letter(item), "n"))
        self.flush()
        if self.flexible:
            self.emit(wire.DECODE_PREFIX_TAIL)

    def content(self, item: Field, target: str, *, nullable: bool) -> None:
        self.prefix(item)
        self.emit("q = p + n - 1" if self.flexible else "q = p + n")
        too_long = ""
        if item.type_name == "str" and self.flexible:
            too_long = f" or n > {wire.STRING_SIZE_MAX + 1}"
        template = wire.DECODE_NULLABLE_CONTENT if nullable else wire.DECODE_CONTENT
        self.emit(
            template.format(
                null_or_past_end=f"q < p or q > end{too_long}",
                past_end=f"q > end{too_long}",
                name=item.name,
                target=target,
                content=wire.CONTENT_DECODE[item.type_name],
            )
        )

    def array(self, item: Field, target: str) -> None:
        self.prefix(item)
        if self.flexible:
            self.emit("n -= 1")
        if self.version not in item.nullable:
            self.elements(item, target)
            return
        with self.block("if n < 0:"):
            self.emit(f"{target} = None")
        with self.block("else:"):
            self.elements(item, target)

    def elements(self, item: Field, target: str) -> None:
        self.emit(wire.DECODE_COUNT_CHECK.format(name=item.name))
        letter = wire.FIXED.get(item.type_name)
        if letter == "16s":
            self.emit(wire.DECODE_UUIDS.format(name=item.name, target=target))
        elif letter is not None:
            layouts = self.constant("layouts", wire.LAYOUTS[letter])
            self.emit(
                wire.DECODE_FIXED_ELEMENTS.format(
                    target=target, layouts=layouts, element_size=struct.calcsize(letter)
                )
            )
        else:
            elements = self.name("elements")
            self.emit(f"{target} = {elements} = []")
            with self.block("for _ in range(n):"):
                if item.struct is None:
                    element = "element"
                    self.content(element_of(item), element, nullable=False)
                else:
                    element = self.struct(item.struct)
                self.emit(f"{elements}.append({element})")

    def tags(self, tagged: list[Field], target: str) -> None:
        for item in tagged:
            self.emit(f"{target}.{item.name} = {self.default(item)}")
        self.run.append(("B", "n"))
        self.flush()
        if not tagged:
            self.emit(wire.DECODE_TAGS)
            return
        tag, end = self.name("tag"), self.name("end")
        with self.block("if n:"):
            self.emit(wire.DECODE_PREFIX_TAIL)
            self.emit("left = check_tag_count(n, buf, p, left)")
            with self.block("for _ in range(n):"):
                self.emit(f"{tag}, p, {end} = read_tag(buf, p)")
                for item in tagged:
                    with self.block(f"if {tag} == {item.tag}:"):
                        self.value(item, f"{target}.{item.name}")
                        self.flush()
                        self.emit(f"check_tag_end({tag}, p, {end})")
                self.emit(f"p = {end}")


def _has_views(cls: type[Struct], version: int) -> bool:
    """Whether a field of the version is a part of the frame, and no copy of it."""
    return any(
        item.type_name in wire.VIEWS
        or (item.struct is not None and _has_views(item.struct, version))
        for item in fields_of(cls)
        if version in item.versions
    )


class EncodeSource(Source):
    verb = "encode"

    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__(cls, version)
        self.out = "out"
        self.is_response = cls.__name__.endswith("Response")

    def text(self) -> str:
        self.emit("def encode(v, out, payloads):")
        self.depth = 1
        with self.block("try:"):
            self.struct(self.cls, "v")
        with self.block("except (struct_error, AttributeError, TypeError) as error:"):
            self.emit(f'raise ValueError(f"{self.title}: {{error}}") from error')
        return "\n".join(self.lines) + "\n"

    def flush(self) -> None:
        if not self.run:
            return
        letters, values = self.take_run()
        if all(value.lstrip("-").isdigit() for value in values):
            known = struct.pack(">" + letters, *map(int, values))
            self.emit(f"{self.out} += {known!r}")
            return
        pack = self.constant("pack", struct.Struct(">" + letters).pack)
        self.emit(f"{self.out} += {pack}({', '.join(values)})")

    def struct(self, cls: type[Struct], source: str) -> None:
        for item in fields_of(cls):
            # First of all, lest they part the fixed fields of a run.
            if self.version not in item.versions and not item.ignorable:
                with self.block(f"if {self.differs(item, f'{source}.{item.name}')}:"):
                    self.emit(f'raise ValueError("{self.title} has no {item.name}")')
        tagged = []
        for item in fields_of(cls):
            if self.version not in item.versions:
                continue
            if item.tag is not None:
                tagged.append(item)
            else:
                self.value(item, f"{source}.{item.name}")
        if self.flexible:
            self.tags(tagged, source)

    def differs(self, item: Field, value: str) -> str:
        """The condition that `value` is not the field's default."""
        default = self.default(item)
        if default == "None":
            return f"{value} is not None"
        if item.default is UNSET:
            return f"{value} is None or len({value})"
        if item.struct is not None:
            return f"{value} is not {default} and {value} != {default}"
        return f"{value} != {default}"

    def value(self, item: Field, value: str) -> None:
        if item.type_name in wire.FIXED and not item.is_array:
            self.run.append((wire.FIXED[item.type_name], value))
        elif self.version not in item.nullable:
            self.present(item, value)
        else:
            # What stands before it is packed in both branches, with the mark or the length.
            before = self.run.copy()
            self.run.clear()
            with self.block(f"if {value} is None:"):
                self.run += before
                self.null(item)
            with self.block("else:"):
                self.run += before
                if item.struct is not None and not item.is_array:
                    self.run.append(("b", "1"))
                self.present(item, value)

    def null(self, item: Field) -> None:
        if item.struct is not None and not item.is_array:
            self.run.append(("b", "-1" if item.tag is None else "0"))
        else:
            self.run.append((self.prefix_letter(item), "0" if self.flexible else "-1"))

    def present(self, item: Field, value: str) -> None:
        if item.is_array:
            self.array(item, value)
        elif item.struct is not None:
            self.struct(item.struct, value)
        else:
            self.content(item, value)

    def prefix(self, item: Field, size: str) -> None:
        if self.flexible:
            is_string = item.type_name == "str" and not item.is_array
            template = (
                wire.ENCODE_COMPACT_STRING_PREFIX if is_string else wire.ENCODE_COMPACT_PREFIX
            )
            self.flush()
            self.emit(template.format(size=size, out=self.out))
        else:
            self.run.append((self.prefix_letter(item), size))
            self.flush()

    def content(self, item: Field, value: str) -> None:
        data, size = self.name("data"), self.name("size")
        self.emit(wire.ENCODE_CONTENT[item.type_name].format(data=data, size=size, value=value))
        self.prefix(item, size)
        self.emit(wire.ENCODE_CONTENT_TAIL[item.type_name].format(data=data, out=self.out))

    def array(self, item: Field, value: str) -> None:
        elements, size = self.name("elements"), self.name("size")
        self.emit(f"{elements} = {value}\n{size} = len({elements})")
        self.prefix(item, size)
        letter = wire.FIXED.get(item.type_name)
        if letter is not None:
            self.emit(
                wire.ENCODE_FIXED_ELEMENTS.format(
                    out=self.out,
                    layouts=self.constant("layouts", wire.LAYOUTS[letter]),
                    size=size,
                    elements=elements,
                )
            )
            return
        element = self.name("v")
        with self.block(f"for {element} in {elements}:"):
            if item.struct is None:
                self.content(element_of(item), element)
            else:
                self.struct(item.struct, element)
            if self.is_response and item.struct is not None and self.has_arrays(item.struct):
                self.flush()
                self.emit(wire.ENCODE_BOUND.format(out=self.out, title=self.title))

    def has_arrays(self, cls: type[Struct]) -> bool:
        """Whether one element of the version may be of any size. An array of those that may not
        is as large as the message that holds it."""
        return any(
            item.is_array or (item.struct is not None and self.has_arrays(item.struct))
            for item in fields_of(cls)
            if self.version in item.versions
        )

    def tags(self, tagged: list[Field], source: str) -> None:
        if not tagged:
            self.run.append(("x", ""))
        elif all(item.struct is not None and not item.is_array for item in tagged):
            # Hardly ever there, and known by one look at each that none is.
            absent = (f"{source}.{item.name} is {self.default(item)}" for item in tagged)
            with self.block(f"if {' and '.join(absent)}:"):
                self.emit(f"{self.out}.append(0)")
            with self.block("else:"):
                self.present_tags(tagged, source)
        else:
            self.flush()
            self.present_tags(tagged, source)

    def present_tags(self, tagged: list[Field], source: str) -> None:
        marks = []
        for item in tagged:
            mark = self.name("tag")
            marks.append(mark)
            self.emit(f"{mark} = bool({self.differs(item, f'{source}.{item.name}')})")
        self.emit(f"{self.out}.append({' + '.join(marks)})")
        for item, mark in sorted(zip(tagged, marks, strict=True), key=lambda pair: _tag(pair[0])):
            with self.block(f"if {mark}:"):
                outer, self.out = self.out, self.name("out")
                self.emit(f"{self.out} = bytearray()")
                self.value(item, f"{source}.{item.name}")
                self.flush()
                inner, self.out = self.out, outer
                self.emit(wire.ENCODE_TAG.format(out=outer, tag=item.tag, inner=inner))


def _tag(item: Field) -> int:
    assert item.tag is not None
    return item.tag


def element_of(item: Field) -> Field:
    """The field that stands for one element of an array."""
    return Field(
        name=item.name,
        type_name=item.type_name,
        struct=item.struct,
        is_array=False,
        versions=item.versions,
        nullable=item.nullable,
        tag=None,
        default=item.default,
        ignorable=item.ignorable,
    )
