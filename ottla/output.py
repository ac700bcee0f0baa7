"""Lines for whoever runs a command, on streams that may be full, closed or of few letters."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TextIO


def tell(text: str, stream: TextIO | None) -> OSError | ValueError | None:
    """Writes a line, with escapes for what the stream's encoding does not have.

    Raises nothing: returns why the stream did not take it. It leads nowhere then, so that neither
    the next line nor the end of the interpreter tries again.
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return _taken(stream, text.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def flush(stream: TextIO | None) -> OSError | ValueError | None:
    """The same for what somebody else has written to it."""
    return _taken(stream, "")


def _taken(stream: TextIO | None, text: str) -> OSError | ValueError | None:
    if stream is None:  # it was closed before we began
        return None
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError) as error:
        with suppress(OSError, ValueError):  # it is closed, or no file
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return error
    return None
