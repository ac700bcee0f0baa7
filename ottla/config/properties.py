"""Java's .properties files: one setting a line, with comments, continuations and escapes.

An escape names a unit of UTF-16, as Java's strings consist of. Two that make a pair are the one
character that they stand for; one alone stays, and no file or record can hold it.

White space is space, tab and form feed and nothing else, and a line ends with \\n, \\r or both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BLANKS = " \t\f"
_KEY = re.compile(r"(?:[^\\ \t\f=:]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class MalformedEscape(ValueError):
    """As Java, which refuses the file; the text is a sentence without the file's name."""


@dataclass(slots=True, frozen=True)
class Property:
    """One setting of a file; `line` counts from 1."""

    name: str
    value: str
    line: int


def parse_properties(text: str) -> list[Property]:
    """The settings in the order of the file; of a name that stands twice, Java takes the last.

    Raises MalformedEscape.
    """
    properties = []
    for number, line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        value = line[separator.end() :]
        try:
            properties.append(Property(_unescape(key[0]), _unescape(value), number))
        except MalformedEscape as error:
            raise MalformedEscape(f"line {number}: {error}") from error
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of the first line, line) with continued lines joined and comments left out.

    A line begins with its first character: behind a backslash alone, what follows is not joined to
    anything, and may be a comment. Where one ends the file, Java has an empty key; here is none.
    """
    first, joined = 0, ""
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = raw.lstrip(_BLANKS)
        if not joined:
            if line.startswith(("#", "!")):
                continue
            first = number
        joined += line
        if _is_continued(joined):
            joined = joined[:-1]
        elif joined:
            yield first, joined
            joined = ""
    if joined:
        yield first, joined


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    units = _ESCAPE.sub(_unescaped, text).encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "surrogatepass")


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    if len(escaped) == 5:
        return chr(int(escaped[1:], 16))
    if escaped == "u":
        shown = match.string[match.start() : match.start() + 6]
        raise MalformedEscape(
            f"{shown} is no escape, for four hexadecimal digits belong behind \\u;"
            " a backslash itself is written twice."
        )
    return _CONTROLS.get(escaped, escaped)
