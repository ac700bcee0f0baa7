"""Nothing lies about: every module is imported by somebody, every public name is used."""

from __future__ import annotations

import ast
import re
import tomllib

from tests.house.sources import ROOT, Source, everything, none_of, sources

# Declarations of messages that a later handler serves: checked by enumeration, not by name.
DECLARATIONS = "ottla/protocol/messages/"
TARGET = re.compile(r"^(ottla(?:\.\w+)+)(?::\w+)?$")


def _targets(source: Source) -> set[str]:
    """What a source reaches: its imports and the "module:function" strings of command tables."""
    names = {name for _line, name in source.imports()}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = TARGET.match(node.value)
            if found:
                names.add(found.group(1))
    return names


def _entry_points() -> set[str]:
    """The modules that pyproject.toml offers to commands and to pytest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tables = [project["scripts"], *project["entry-points"].values()]
    return {target.partition(":")[0] for table in tables for target in table.values()}


def test_every_module_is_reached() -> None:
    modules = {source.module: source for source in sources("ottla")}
    waiting = [source for source in everything() if not source.path.startswith("ottla/")]
    reached = _entry_points()
    waiting += [modules[name] for name in reached]
    while waiting:
        for name in _targets(waiting.pop()):
            if name in modules and name not in reached:
                reached.add(name)
                waiting.append(modules[name])
    silent = {
        source.module
        for source in modules.values()
        if not source.path.endswith(("__init__.py", "__main__.py"))
        and not source.path.startswith(DECLARATIONS)
    }

    none_of(silent - reached, "delete it, or say who uses it")


def _names(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.alias):
            names.add(node.name.split(".")[-1])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.update(re.findall(r"\w+", node.value) if len(node.value) < 200 else ())
    return names


def test_every_public_name_is_used() -> None:
    used: set[str] = set()
    for source in everything():
        used |= _names(source.tree)
    idle = [
        f"{source.path}:{node.lineno} {node.name}"
        for source in sources("ottla")
        if not source.path.startswith(DECLARATIONS)
        for node in source.tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.name not in used
        and not node.name.startswith("__")
    ]

    none_of(idle, "delete it; git remembers")
