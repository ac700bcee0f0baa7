"""Compiles (message class, version) to a decode and an encode function.

What is compiled is the straight text of `source`: no loop over fields at run time. It is
registered in `linecache`, so tracebacks show its lines, and
`python -m ottla.protocol.codec Fetch 12` prints it. Without arguments that lists the messages.
"""

from __future__ import annotations

import importlib
import linecache
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, TypeAlias, TypeVar

from ottla.protocol import messages
from ottla.protocol.schema import Message
from ottla.protocol.source import DecodeSource, EncodeSource, Source
from ottla.protocol.wire import Payload

M = TypeVar("M", bound=Message)

NOT_FOUND = 1
USAGE = 2
"""Statuses, as those of the `ottla` commands."""
COMMAND = "python -m ottla.protocol.codec"

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
    """Print the compiled source of a message, or of an API's request and response; without
    arguments the names, each with its versions. The status; what is wrong is a sentence."""
    if not arguments:
        return _write(f"{name} {_shown(classes)}" for name, classes in _by_name().items())
    if len(arguments) != 2 or not re.fullmatch("[0-9]{1,5}", arguments[1]):
        return _refuse(f"usage: {COMMAND} NAME VERSION; `{COMMAND}` lists the names.", USAGE)
    wanted, version = arguments[0].lower(), int(arguments[1])
    known = _by_name() | {cls.__name__: [cls] for cls in message_classes()}
    found = next((name for name in known if name.lower() == wanted), None)
    if found is None:
        near = get_close_matches(wanted, map(str.lower, known), n=1)
        hints = [f" Did you mean {name}?" for name in known if name.lower() in near]
        sentence = f"no message is called {arguments[0]}.{''.join(hints)} `{COMMAND}` lists them."
        return _refuse(sentence, NOT_FOUND)
    classes = [cls for cls in known[found] if version in cls.__schema__.versions]
    if not classes:
        return _refuse(f"{found} has no version {version}: {_shown(known[found])}.", NOT_FOUND)
    sources = [source(cls, version) for cls in classes for source in (DecodeSource, EncodeSource)]
    return _write(f"# {source.title}\n{source.text()}" for source in sources)


def _by_name() -> dict[str, list[type[Message]]]:
    """The messages by the name of their API, sorted; one that has none is there by its own."""
    found: dict[str, list[type[Message]]] = {}
    for cls in message_classes():
        name = cls.__name__.removesuffix("Request").removesuffix("Response")
        found.setdefault(name, []).append(cls)
    return dict(sorted(found.items()))


def _shown(classes: list[type[Message]]) -> str:
    """Their versions, which a request has in common with its response."""
    first = min(cls.__schema__.versions.first for cls in classes)
    last = max(cls.__schema__.versions.last for cls in classes)
    return f"{first}-{last}" if first < last else f"{first}"


def _write(texts: Iterator[str]) -> int:
    try:
        for text in texts:
            sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:  # who reads has seen enough; the interpreter must not try again
        with suppress(BrokenPipeError):
            sys.stdout.close()
    return 0


def _refuse(sentence: str, status: int) -> int:
    sys.stderr.write(f"{sentence}\n")
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
