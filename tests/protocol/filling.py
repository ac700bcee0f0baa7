"""The rule by which golden messages are filled; tests/golden/java/Golden.java repeats it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from ottla.protocol.codec import message_classes
from ottla.protocol.schema import Field, Message, Struct, fields_of

GOLDEN = Path(__file__).parent / "golden"


class GoldenFrame(NamedTuple):
    """One line of the golden files: what Kafka's class wrote."""

    cls: type[Message]
    version: int
    data: bytes

    def __str__(self) -> str:
        return f"{self.cls.__name__} v{self.version}"


def golden_frames() -> list[GoldenFrame]:
    classes = {cls.__name__: cls for cls in message_classes()}
    frames = []
    for path in sorted(GOLDEN.glob("*.txt")):
        if path.stem == "headers":
            continue
        for line in path.read_text(encoding="ascii").splitlines():
            name, version, text = line.split(" ")
            frames.append(GoldenFrame(classes[name], int(version), bytes.fromhex(text)))
    return frames


def filled(cls: type[Message], version: int) -> Message:
    """The message with every field of the version set to what the counter says."""
    message = cls()
    _Filler(version).fill(message)
    return message


class _Filler:
    def __init__(self, version: int) -> None:
        self.version = version
        self.counter = 0

    def fill(self, struct: Struct) -> None:
        for item in fields_of(type(struct)):
            if self.version in item.versions:
                setattr(struct, item.name, self.value(item))

    def value(self, item: Field) -> Any:
        if item.is_array:
            return [self.element(item), self.element(item)]
        value = self.element(item)
        return self.element(item) if value == item.default and item.struct is None else value

    def element(self, item: Field) -> Any:
        if item.struct is not None:
            struct = item.struct()
            self.fill(struct)
            return struct
        self.counter += 1
        return _scalar(item.type_name, self.counter)


def _scalar(type_name: str, c: int) -> Any:
    match type_name:
        case "bool":
            return c % 2 == 1
        case "int8":
            return c % 100 + 1
        case "int16":
            return 1000 + c
        case "uint16":
            return 40_000 + c
        case "uint32":
            return 3_000_000_000 + c
        case "int32":
            return 100_000 + c
        case "int64":
            return (1 << 40) + c
        case "float64":
            return c + 0.5
        case "str":
            return f"s{c}\u00e9" + ("x" * 150 if c % 11 == 0 else "")
        case "uuid":
            return _content(c, 16)
        case "bytes":
            return _content(c, 150 if c % 3 == 0 else 3)
        case _:
            return memoryview(_content(c, 140))


def _content(c: int, size: int) -> bytes:
    return bytes((c + i) & 0xFF for i in range(size))
