"""Which errors an answer tells: a function for each response, made of its declaration.

Kafka's messages have no errors but `error_code` and its like (`topic_config_error_code`), at the
top, in each topic or in each partition. What is compiled is the loops over those alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from ottla.protocol.schema import Field, Message, Struct, fields_of

ErrorCounts = defaultdict[int, int]
"""How often each code but 0 was told."""
CountErrors = Callable[[Any, ErrorCounts], None]

_SUFFIX = "error_code"


def error_counter(cls: type[Message]) -> CountErrors:
    """A function (message, counts) that adds each error which the message tells to `counts`."""
    constants: dict[str, Any] = {}
    exec(compile(source(cls), f"<errors of {cls.__name__}>", "exec"), constants)
    count: CountErrors = constants["count_errors"]
    return count


def source(cls: type[Message]) -> str:
    """The text of that function."""
    lines = [*_lines(cls, "m0", 1)] or ["    pass"]
    return "\n".join(["def count_errors(m0, counts):", *lines, ""])


def _lines(cls: type[Struct], holder: str, depth: int) -> Iterator[str]:
    pad = "    " * depth
    for item in fields_of(cls):
        value = f"{holder}.{item.name}"
        if _is_error(item):
            yield f"{pad}if {value}:"
            yield f"{pad}    counts[{value}] += 1"
        elif item.struct is not None:
            inner = [*_lines(item.struct, f"m{depth}", depth + 1)]
            if inner and item.is_array:
                yield f"{pad}for m{depth} in {value} or ():"
                yield from inner
            elif inner:
                yield f"{pad}if (m{depth} := {value}) is not None:"
                yield from inner


def _is_error(item: Field) -> bool:
    return item.type_name == "int16" and not item.is_array and item.name.endswith(_SUFFIX)
