"""Compiles (message class, version) to a decode and an encode function.

What is compiled is the straight text of `source`: no loop over fields at run time. It is
registered in `linecache`, so tracebacks show its lines, and
`python -m ottla.protocol.codec Fetch 12` prints it.
"""

from __future__ import annotations

import importlib
import linecache
import pkgutil
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar

from ottla.protocol import messages
from ottla.protocol.schema import Message
from ottla.protocol.source import DecodeSource, EncodeSource, Source
from ottla.protocol.wire import Payload

M = TypeVar("M", bound=Message)

Decoder: TypeAlias = Callable[[memoryview, int], tuple[M, int]]
Encoder: TypeAlias = Callable[[M, bytearray, list[tuple[int, Payload]]], None]

_decoders: dict[tuple[type[Message], int], Any] = {}
_encoders: dict[tuple[type[Message], int], Any] = {}


def decoder(cls: type[M], version: int) -> Decoder[M]:
    """A function (buffer, position) -> (message, position after it), compiled on first use.

    It raises ProtocolError for bytes that are no such message, and never reads past the buffer.
    Records are views of the buffer; all else is copied out of it.
    """
    found: Decoder[M] | None = _decoders.get((cls, version))
    if found is None:
        found = _decoders[cls, version] = _compile(DecodeSource(cls, version))
    return found


def encoder(cls: type[M], version: int) -> Encoder[M]:
    """A function (message, out, payloads) that appends the message to `out`.

    Of records that are no bytes only the length is written, and (position in `out`, payload) is
    appended to `payloads`: their bytes belong there. ValueError for a value that the version
    cannot carry.
    """
    found: Encoder[M] | None = _encoders.get((cls, version))
    if found is None:
        found = _encoders[cls, version] = _compile(EncodeSource(cls, version))
    return found


def _compile(source: Source) -> Any:
    text = source.text()
    filename = f"<ottla {source.verb} {source.title}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    exec(compile(text, filename, "exec"), source.constants)
    return source.constants[source.verb]


def message_classes() -> Iterator[type[Message]]:
    """Every declared message, by module and then in order of declaration."""
    for module in pkgutil.iter_modules(messages.__path__):
        declared = vars(importlib.import_module(f"{messages.__name__}.{module.name}"))
        for value in declared.values():
            if (
                isinstance(value, type)
                and issubclass(value, Message)
                and value.__module__.endswith(f".{module.name}")
            ):
                yield value


def main(arguments: list[str]) -> int:
    """Print the compiled source of a message, or of an API's request and response."""
    if len(arguments) != 2 or not arguments[1].isdigit():
        sys.stderr.write("usage: python -m ottla.protocol.codec NAME VERSION\n")
        return 2
    name, version = arguments[0], int(arguments[1])
    wanted = {name, name + "Request", name + "Response"}
    found = [cls for cls in message_classes() if cls.__name__ in wanted]
    if not found:
        sys.stderr.write(f"no message is called {name}\n")
        return 1
    for cls in found:
        for source in (DecodeSource(cls, version), EncodeSource(cls, version)):
            sys.stdout.write(f"# {source.title}\n{source.text()}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
