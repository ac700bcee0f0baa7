"""Kafka's keys that Ottla knows but does not act on, read from three tables when first needed.

An entry of a table is

    name | TYPE | limits | flags
      = default
        sentence

Limits are `low..high` (either may be missing), or the texts allowed, after `~` in any case.
Without a `=` line the default is null. Flags: `cluster` and `broker` are keys.Dynamic; `internal`
keys are shown by nobody unless set; `runtime` keys can be set at run time only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from ottla.config import accepted_groups, accepted_security, accepted_server
from ottla.config.keys import Dynamic, Key
from ottla.config.types import ConfigType

TABLES = (accepted_groups.TABLE, accepted_security.TABLE, accepted_server.TABLE)
_RANGE = re.compile(r"(-?[0-9.]+?)?\.\.(-?[0-9.]+)?")


@dataclass(slots=True, frozen=True)
class Accepted:
    """What the tables say: the keys, and which of them only exist at run time."""

    keys: dict[str, Key]
    runtime_only: frozenset[str]


@cache
def accepted() -> Accepted:
    keys: dict[str, Key] = {}
    runtime_only = set()
    for head, default, sentence in _entries():
        name, kind, limits, flags = (*map(str.strip, head.split("|")), "", "")[:4]
        at_least, at_most, choices = _limits(limits)
        words = flags.split()
        keys[name] = Key(
            name=name,
            type=ConfigType[kind],
            default=default,
            sentence=sentence,
            at_least=at_least,
            at_most=at_most,
            choices=choices,
            any_case=limits.startswith("~"),
            dynamic=next((one for one in Dynamic if one.value in words), Dynamic.NO),
            acts=False,
            internal="internal" in words,
        )
        if "runtime" in words:
            runtime_only.add(name)
    return Accepted(keys=keys, runtime_only=frozenset(runtime_only))


def _entries() -> Iterator[tuple[str, str | None, str]]:
    """(head, default, sentence) of each entry."""
    for table in TABLES:
        lines = iter(table.strip().splitlines())
        for head in lines:
            line = next(lines)
            default = None
            if line.startswith("  ="):
                default = line[3:].strip()
                line = next(lines)
            yield head, default, line.strip()


def _limits(text: str) -> tuple[float | None, float | None, tuple[str, ...]]:
    match = _RANGE.fullmatch(text)
    if match is not None:
        return _number(match[1]), _number(match[2]), ()
    return None, None, tuple(text.removeprefix("~").split(",")) if text else ()


def _number(text: str | None) -> float | None:
    if not text:
        return None
    return float(text) if "." in text else int(text)
