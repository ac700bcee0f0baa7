"""Subscriptions by regular expression: which topics a pattern stands for, in linear time.

The syntax is RE2's, which is that of the RE2/J of Kafka's coordinator; a pattern must match a whole
name. RE2 takes time in proportion to the length of the name, whatever the pattern. While it
compiles one nothing else runs: how long a pattern may be is bounded, and how large what it becomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.protocol.errors import ErrorCode, KafkaError

PATTERN_LENGTH_MAX = 4096
"""Characters, the names of sixteen topics at their longest."""
PROGRAM_BYTES_MAX = 1 << 20
"""With both bounds the worst pattern takes 60 ms; by RE2's own 8 MiB it takes a third of a second,
and the longest that a request can carry five seconds."""

_KAFKAS_WORDS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "trailing \\": "trailing backslash at end of expression",
    "pattern too large - compile failed": "it stands for too much to be compiled",
}
"""What RE2 says, as RE2/J says it, which knows no pattern that is too large; the rest they say
alike."""


def check_pattern(pattern: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION if nothing can be subscribed to by this pattern,
    or it is longer than PATTERN_LENGTH_MAX, or too large when it is compiled."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        said = (
            f"SubscribedTopicRegex has {len(pattern)} characters; it may have {PATTERN_LENGTH_MAX}."
        )
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, said)
    try:
        _compiled(pattern)
    except ValueError as error:
        said = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}."
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, said) from error


def resolve(patterns: Iterable[str], names: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """The names that match each pattern; none match one that is not valid any more."""
    known = tuple(names)
    found: dict[str, frozenset[str]] = {}
    for pattern in patterns:
        try:
            compiled = _compiled(pattern)
        except ValueError:
            found[pattern] = frozenset()
        else:
            found[pattern] = frozenset(name for name in known if compiled.fullmatch(name))
    return found


def _compiled(pattern: str) -> Any:
    """Raises ValueError. The library costs a megabyte and some milliseconds: only who uses
    patterns pays for it."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PROGRAM_BYTES_MAX
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        (reason,) = error.args
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        what = said.partition(": ")[0]
        raise ValueError(_KAFKAS_WORDS.get(what, what)) from error
