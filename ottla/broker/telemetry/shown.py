"""What an event tells of what a client has sent: its beginning, for a client may send megabytes.

Events are kept by their number, and a line of the log is for eyes.
"""

from __future__ import annotations

from typing import Any

CHARS_MAX = 256
"""Of a string: ids of clients and groups have some dozen; the protocol allows 32767."""
ITEMS_MAX = 20
"""Of a list."""


def shown(value: Any, chars_max: int = CHARS_MAX) -> Any:
    """A field as it is told. Strings are cut, and lists, which then say how much is left out."""
    if isinstance(value, str):
        return value if len(value) <= chars_max else f"{value[:chars_max]}..."
    if isinstance(value, list):
        items = [shown(one, chars_max) for one in value[:ITEMS_MAX]]
        left_out = len(value) - len(items)
        return [*items, f"and {left_out} more"] if left_out else items
    return value
