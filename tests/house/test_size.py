"""Files and functions stay short enough to be read in one go."""

from __future__ import annotations

import ast

from tests.house.sources import everything, none_of

FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70


def test_no_file_is_too_long() -> None:
    long = [
        f"{source.path}: {lines} lines"
        for source in everything()
        if (lines := source.text.count("\n")) > FILE_LINES_MAX
    ]

    none_of(long, f"over {FILE_LINES_MAX} lines: split by what the parts are about")


def test_every_function_fits_a_screen() -> None:
    long = [
        f"{source.path}:{node.lineno} {node.name}: {lines} lines"
        for source in everything()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]

    none_of(long, f"over {FUNCTION_LINES_MAX} lines: the parent branches, leaves compute")
