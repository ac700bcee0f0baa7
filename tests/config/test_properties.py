"""The corners of Java's .properties format that real server.properties files use."""

from __future__ import annotations

import pytest

from ottla.config.properties import Property, parse_properties


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
    ],
)
def test_one_setting(text: str, name: str, value: str) -> None:
    assert [(one.name, one.value) for one in parse_properties(text)] == [(name, value)]


def test_lines_are_counted_with_comments_and_continuations() -> None:
    text = "# one\r\n! two\r\n\r\na=1\\\r\n  2\r\nb=3\r\n"

    assert parse_properties(text) == [Property("a", "12", 4), Property("b", "3", 6)]
