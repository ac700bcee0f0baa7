"""A file is named by a noun of the domain, and its text says what is, not what may come."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from tests.house.sources import everything, none_of

BANNED_FILES = {"common", "helper", "helpers", "misc", "util", "utils"}
# Written in pieces, so that this file is no finding of its own.
BANNED_PHRASES = re.compile(
    r"\b(?:" + "|".join(("fix" + "me", "for " + "now", "place" + "holder", "to" + "do")) + r")\b",
    re.IGNORECASE,
)


def test_no_grab_bags() -> None:
    found = [
        source.path for source in everything() if PurePosixPath(source.path).stem in BANNED_FILES
    ]

    none_of(found, "name the thing that the file is about")


def test_source_is_ascii() -> None:
    found = [
        f"{source.path}:{number}"
        for source in everything()
        for number, line in enumerate(source.text.splitlines(), 1)
        if not line.isascii()
    ]

    none_of(found, "write characters beyond ASCII as escapes")


def test_nothing_is_announced_instead_of_done() -> None:
    found = [
        f"{source.path}:{number} {match.group()}"
        for source in everything()
        for number, line in enumerate(source.text.splitlines(), 1)
        for match in BANNED_PHRASES.finditer(line)
    ]

    none_of(found, "finish it, or leave it out")
