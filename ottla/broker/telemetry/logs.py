"""The broker's log: structured events, as lines for people in a terminal and as JSON elsewhere.

Importing structlog costs as much as the rest of a start, so it is imported with the first event
that is written. Nothing global is configured: a broker inside somebody's program leaves that
program's logging alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, MutableMapping
from types import ModuleType
from typing import Any, TextIO, cast

from ottla.broker.telemetry.shown import shown

_encode_json = json.JSONEncoder(default=repr).encode
FIELD_CHARS_MAX = 2_000
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def open_log(
    level: str = "info",
    form: str = "auto",
    stream: TextIO | None = None,
    *,
    is_ours: bool = False,
) -> StructuredLog:
    """A log that satisfies ports.Events; `form` is console, json or auto (by the stream). In a
    process that `is_ours` structlog may be loaded as nobody else would want it."""
    assert level in LEVELS, level
    assert form in ("auto", "console", "json"), form
    target = sys.stderr if stream is None else stream
    console = target.isatty() if form == "auto" else form == "console"
    return StructuredLog(_Output(target, console=console, is_ours=is_ours), LEVELS[level], {})


def quiet_logger() -> StructuredLog:
    """The log of a broker in somebody's program: nothing but warnings and errors, to stderr."""
    return open_log(level="warning")


class StructuredLog:
    """Writes events at or above its level, with the fields that it is bound to."""

    __slots__ = ("_fields", "_level", "_output")

    def __init__(self, output: _Output, level: int, fields: Mapping[str, Any]) -> None:
        self._output = output
        self._level = level
        self._fields = fields

    def bind(self, **fields: Any) -> StructuredLog:
        """A log whose events all carry these fields too."""
        return StructuredLog(self._output, self._level, {**self._fields, **fields})

    def is_enabled_for(self, level: int) -> bool:
        return level >= self._level

    def debug(self, event: str, **fields: Any) -> None:
        if self._level <= 10:
            self._output.write("debug", event, {**self._fields, **fields})

    def info(self, event: str, **fields: Any) -> None:
        if self._level <= 20:
            self._output.write("info", event, {**self._fields, **fields})

    def warning(self, event: str, **fields: Any) -> None:
        if self._level <= 30:
            self._output.write("warning", event, {**self._fields, **fields})

    def error(self, event: str, **fields: Any) -> None:
        if self._level <= 40:
            self._output.write("error", event, {**self._fields, **fields})

    @property
    def lost_lines(self) -> int:
        """Lines that the stream did not take."""
        return self._output.lost


class _Output:
    """One stream and the structlog logger that writes to it, made for the first line."""

    __slots__ = ("_console", "_is_ours", "_logger", "_stream", "lost")

    def __init__(self, stream: TextIO, *, console: bool, is_ours: bool) -> None:
        self._stream = stream
        self._is_ours = is_ours
        self._console = console
        self._logger: Any = None
        self.lost = 0

    def write(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        if self._logger is None:
            self._logger = self._make_logger()
        # Ids and names are what clients made them, up to 32,767 bytes.
        cut = {
            name: shown(value, FIELD_CHARS_MAX) if isinstance(value, str) else value
            for name, value in fields.items()
        }
        getattr(self._logger, level)(event, **cut)

    def msg(self, line: str) -> None:
        """Where structlog puts a finished line."""
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # A full disk or a closed pipe under the log must not stop the broker.
            self.lost += 1

    debug = info = warning = error = msg

    def _make_logger(self) -> Any:
        if self._is_ours:
            _load_structlog_alone()
        import structlog

        if self._console:
            render: Any = structlog.dev.ConsoleRenderer(
                colors=self._stream.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
            tail = [_make_printable, render]
        else:
            tail = [structlog.processors.format_exc_info, _render_json]
        # Bound at once: what wrap_logger returns would look up the class anew for each line.
        return structlog.wrap_logger(
            self,
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                *tail,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(0),
            context_class=dict,
        ).bind()


def _load_structlog_alone() -> None:
    """structlog loads rich if it is there, for tracebacks that we do not draw: a tenth of a start,
    and 3 MB."""
    if "rich" in sys.modules:
        return
    sys.modules["rich"] = cast(ModuleType, None)  # as Python marks what cannot be imported
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules["rich"]


def _make_printable(
    logger: Any, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Names and reasons may be a client's own text, which must not command a terminal; JSON escapes
    it anyway, as Python does inside of lists."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            shown = (one if one.isprintable() else repr(one)[1:-1] for one in value)
            event[name] = "".join(shown)
    return event


def _render_json(logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
    """Time, level and event at the beginning of a JSON line, where eyes look for them."""
    head = {name: event.pop(name) for name in ("timestamp", "level", "event")}
    return _encode_json({**head, **event})
