"""Which package may touch time, chance, files, sockets and threads.

Pure packages take `(event, now)` and return what is to be done; the world comes in through ports.
import-linter checks who may import whom inside the project; this checks what comes from outside.
"""

from __future__ import annotations

import ast

import pytest

from tests.house.sources import Source, everything, none_of, sources

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
    "ottla/broker/network/connection_rates.py": WORLD,
    "ottla/broker/network/moderation.py": WORLD,
    "ottla/broker/network/quotas.py": WORLD,
    "ottla/broker/network/refusals.py": WORLD,
    "ottla/broker/coordinator": WORLD,
    "ottla/broker/replication": WORLD,
    "ottla/broker/share": WORLD,
    "ottla/protocol": WORLD | {"logging", "pathlib"},
    "ottla/config": WORLD - {"os"} | {"logging"},
}
# Shells: they drive the pure module beside them, and hold no rules.
SHELLS = {
    # Log dirs are opened by several threads at once, and written by the flusher's.
    "ottla/broker/log/loading.py",
    "ottla/broker/log/log_dir.py",
    "ottla/broker/log/partition_dir.py",
    "ottla/broker/coordinator/group/coordinator.py",
    "ottla/broker/coordinator/loading.py",
    "ottla/broker/coordinator/runtime.py",
    "ottla/broker/coordinator/share/coordinator.py",
    "ottla/broker/coordinator/transaction/coordinator.py",
    "ottla/broker/coordinator/transaction/markers.py",
    "ottla/broker/quorum/driver.py",
    "ottla/broker/replication/conversions.py",
    "ottla/broker/replication/moves.py",
    "ottla/broker/replication/replicas.py",
    "ottla/broker/replication/syncs.py",
    "ottla/broker/share/partition.py",
    "ottla/broker/share/partitions.py",
    "ottla/broker/share/store.py",
}
# The two commands that people start: they read argv and the clock, and are imported by nothing.
COMMANDS = {"ottla/broker/log/__main__.py"}
# Tests that run real processes wait for them on the wall clock.
REAL_PROCESSES = (
    "tests/bench/",
    "tests/coordinator/wire.py",
    "tests/conformance/",
    "tests/crash/",
    "tests/differences/",
    "tests/peers/",
    "tests/text/",
    "tests/transactions/wire.py",
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
        for source in sources("ottla")
        if source.path.startswith(folder) and source.path not in SHELLS | COMMANDS
        for finding in _world_imports(source, PURE[folder])
    ]

    none_of(found, "take it as an argument, or ask for it through a port")


def _sleeps(node: ast.AST) -> bool:
    """A call of some sleep; sleep(0) only gives way."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    gives_way = [ast.unparse(argument) for argument in node.args] == ["0"]
    return node.func.attr == "sleep" and not gives_way


def test_tests_do_not_sleep() -> None:
    found = [
        f"{source.path}:{node.lineno}"
        for source in sources("tests")
        if not source.path.startswith(REAL_PROCESSES)
        and not any(name.endswith("virtual_loop") for _line, name in source.imports())
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and _sleeps(node)
    ]

    none_of(found, "wait for an event, or move the virtual clock")


def test_only_the_table_and_the_test_kit_know_the_test_kit() -> None:
    found = [
        f"{source.path}:{line}"
        for source in everything()
        if source.path.startswith("ottla/") and not source.path.startswith("ottla/testing/")
        for line, name in source.imports()
        if name.startswith("ottla.testing") and source.path != "ottla/__main__.py"
    ]

    none_of(found, "the test kit is for tests and for users; the broker does without")
