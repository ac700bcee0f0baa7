"""The corners of Java's .properties format that real server.properties files use."""

from __future__ import annotations

import pytest

from ottla.config.properties import MalformedEscape, Property, parse_properties


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("a=b", "a", "b"),
        ("  a : b c ", "a", "b c "),
        ("a b", "a", "b"),
        ("a", "a", ""),
        ("a==b", "a", "=b"),
        ("a=b\\\n   c", "a", "bc"),
        ("a=b\\\\\n", "a", "b\\"),
        ("a\\=b=c", "a=b", "c"),
        ("a=\\u0041\\t\\q", "a", "A\tq"),
        ("a=b\\", "a", "b"),
        ("a=\\ud83d\\ude00", "a", "\U0001f600"),
        ("a=\\ud83d\\\n \\ude00", "a", "\U0001f600"),
        ("a=\\ud83dx\\ude00", "a", "\ud83dx\ude00"),
        ("a\fb", "a", "b"),
        ("a\u00a0b=c", "a\u00a0b", "c"),
        ("a\x0bb=\x0bc\x0b", "a\x0bb", "\x0bc\x0b"),
        ("\x1ca\x85b\u2028=\u2028", "\x1ca\x85b\u2028", "\u2028"),
        ("a=b\\\n\n", "a", "b"),
        ("a=b\\\n  \n#c", "a", "b"),
        ("a=b\\\n#c", "a", "b#c"),
        ("\\\na=b", "a", "b"),
        ("\\\n# no setting\na=b", "a", "b"),
        ("\\\n\na=b", "a", "b"),
        ("a=\\\\u12", "a", "\\u12"),
    ],
)
def test_one_setting(text: str, name: str, value: str) -> None:
    assert [(one.name, one.value) for one in parse_properties(text)] == [(name, value)]


def test_lines_are_counted_with_comments_and_continuations() -> None:
    text = "# one\r\n! two\r\n\r\na=1\\\r\n  2\r\nb=3\r\n"

    assert parse_properties(text) == [Property("a", "12", 4), Property("b", "3", 6)]


def test_a_line_that_ends_nowhere_is_no_setting() -> None:
    for text in ("\\\n\n", "\\\r\n", "\\\n  ", "\\\n#a=b"):
        assert parse_properties(text) == []


@pytest.mark.parametrize("text", ["\\u12", "\\u", "\\u12g4", "\\uu0041", "C:\\users"])
def test_a_malformed_escape_is_refused_as_by_java(text: str) -> None:
    for line in (f"b={text}", f"{text}=b"):
        with pytest.raises(MalformedEscape, match=r"^line 2: \\u.* is no escape"):
            parse_properties(f"a=1\n{line}\n")
    assert parse_properties(f"# {text}") == []
