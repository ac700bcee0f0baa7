"""Errors are named where they are caught, and log events are names with fields."""

from __future__ import annotations

import ast

from tests.house.sources import everything, none_of

# The handler boundary, for answers given at once, for those given later, and for requests that are
# woken, and the task supervisor: they log with traceback, count, and answer. And the end of a
# broker, which logs, raises, and goes on with its other parts.
BROAD = {
    "ottla/broker/broker.py": 1,
    "ottla/broker/handlers/answers.py": 1,
    "ottla/broker/network/connection.py": 1,
    "ottla/broker/network/server.py": 1,
    "ottla/broker/quorum/driver.py": 1,
    "ottla/broker/scheduler.py": 1,
}
LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}


def _swallows_everything(handler: ast.ExceptHandler) -> bool:
    """Whether it catches every error and does not raise it again at its end."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    broad = any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException"))
        for kind in kinds
    )
    return broad and not isinstance(handler.body[-1], ast.Raise)


def test_broad_except_stands_in_named_places() -> None:
    found: dict[str, list[int]] = {}
    for source in everything():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ExceptHandler) and _swallows_everything(node):
                found.setdefault(source.path, []).append(node.lineno)
    beyond = [
        f"{path}: lines {lines}" for path, lines in found.items() if len(lines) > BROAD.get(path, 0)
    ]

    none_of(beyond, "name the error and give the reason")


def test_log_events_are_names() -> None:
    found = [
        f"{source.path}:{node.lineno}"
        for source in everything()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LEVELS
        and node.args
        and isinstance(node.args[0], ast.JoinedStr)
    ]

    none_of(found, "an event has a constant name; what varies goes into its fields")
