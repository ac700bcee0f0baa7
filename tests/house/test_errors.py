"""Errors are named where they are caught, and log events are names with fields."""

from __future__ import annotations

import ast

from tests.house.sources import everything

# The task supervisor and the handler boundary: they log with traceback, count, and answer.
BROAD = {
    "ottla/broker/network/connection.py": 1,
    "ottla/broker/scheduler.py": 1,
}
LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}


def _is_broad(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException"))
        for kind in kinds
    )


def test_broad_except_stands_in_two_places() -> None:
    found: dict[str, int] = {}
    for source in everything():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ExceptHandler) and _is_broad(node):
                found[source.path] = found.get(source.path, 0) + 1

    assert found.items() <= BROAD.items(), "name the error and give the reason"


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

    assert found == [], "an event has a constant name; what varies goes into its fields"
