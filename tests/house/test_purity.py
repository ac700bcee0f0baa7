"""Which package may touch time, chance, files, sockets and threads.

Pure packages take `(event, now)` and return what is to be done; the world comes in through ports.
import-linter checks who may import whom inside the project; this checks what comes from outside.
"""

from __future__ import annotations

import ast

import pytest

from tests.house.sources import Source, everything, sources

WORLD = frozenset(
    (
        "asyncio",
        "os",
        "random",
        "secrets",
        "select",
        "selectors",
        "socket",
        "structlog",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "uuid",
        "uvloop",
    )
)
PURE = {
    "ottla/broker/log": WORLD,
    "ottla/broker/quorum": WORLD,
    "ottla/broker/metadata": WORLD,
    "ottla/broker/controller": WORLD,
    "ottla/broker/replication": WORLD,
    "ottla/protocol": WORLD | {"logging", "pathlib"},
    "ottla/config": WORLD - {"os"} | {"logging"},
}
# Shells: they drive the pure module beside them, and hold no rules.
SHELLS = {
    "ottla/broker/quorum/driver.py",
    "ottla/broker/replication/conversions.py",
    "ottla/broker/replication/replicas.py",
    "ottla/broker/replication/syncs.py",
}
# The two commands that people start: they read argv and the clock, and are imported by nothing.
COMMANDS = {"ottla/broker/log/__main__.py"}
# Tests that run real processes wait for them on the wall clock.
REAL_PROCESSES = (
    "tests/bench/",
    "tests/conformance/",
    "tests/crash/",
    "tests/peers/",
    "tests/text/",
)


def _world_imports(source: Source, banned: frozenset[str]) -> list[str]:
    found = {
        f"{source.path}:{line} {name.split('.')[0]}"
        for line, name in source.imports()
        if name.split(".")[0] in banned
    }
    return sorted(found)


@pytest.mark.parametrize("folder", sorted(PURE))
def test_pure_packages_import_nothing_of_the_world(folder: str) -> None:
    found = [
        finding
        for source in sources(folder)
        if source.path not in SHELLS | COMMANDS
        for finding in _world_imports(source, PURE[folder])
    ]

    assert found == [], "take it as an argument, or ask for it through a port"


def test_tests_do_not_sleep() -> None:
    found = [
        f"{source.path}:{node.lineno}"
        for source in sources("tests")
        if not source.path.startswith(REAL_PROCESSES)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "sleep"
        and not (
            len(node.args) == 1
            and isinstance(node.args[0], ast.Constant)
            and node.args[0].value == 0
        )
    ]

    assert found == [], "wait for an event, or move the virtual clock"


def test_only_the_table_and_the_test_kit_know_the_test_kit() -> None:
    found = [
        f"{source.path}:{line}"
        for source in everything()
        if source.path.startswith("ottla/") and not source.path.startswith("ottla/testing/")
        for line, name in source.imports()
        if name.startswith("ottla.testing") and source.path != "ottla/__main__.py"
    ]

    assert found == []
