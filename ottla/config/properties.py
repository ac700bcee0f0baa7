"""Java's .properties files: one setting a line, with comments, continuations and escapes.

An escape names a unit of UTF-16, as Java's strings consist of. Two that make a pair are the one
character that they stand for; one alone stays, and no file or record can hold it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_KEY = re.compile(r"(?:[^\\\s=:]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"\s*[=:]?\s*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(slots=True, frozen=True)
class Property:
    """One setting of a file; `line` counts from 1."""

    name: str
    value: str
    line: int


def parse_properties(text: str) -> list[Property]:
    """The settings in the order of the file; of a name that stands twice, Java takes the last."""
    properties = []
    for number, line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        value = line[separator.end() :]
        properties.append(Property(_unescape(key[0]), _unescape(value), number))
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of the first line, line) with continued lines joined and comments left out."""
    lines = iter(enumerate(re.split(r"\r\n|\r|\n", text), start=1))
    for number, raw in lines:
        line = raw.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while _is_continued(line):
            _, following = next(lines, (number, ""))
            line = line[:-1] + following.lstrip(" \t\f")
        yield number, line


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    units = _ESCAPE.sub(_unescaped, text).encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "surrogatepass")


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    if len(escaped) == 5:
        return chr(int(escaped[1:], 16))
    return _CONTROLS.get(escaped, escaped)
