"""The hot path is compiled where it can be, and runs as it is where it cannot."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.house.sources import ROOT, none_of, sources

CODE = "def double(number: int) -> int:\n    return number * 2\n"
NO_COMPILER = {"CC": "false"}
COMPILE = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from hatch_build import compile_in
stage, package = map(pathlib.Path, sys.argv[2:])
libraries, said = compile_in(stage, package, ["small/code.py", "small/more.py"])
print(len(libraries), said)
"""


def _build(folder: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    temporary = folder / "temporary"
    temporary.mkdir()
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        env={**os.environ, **environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )


def _can_compile() -> bool:
    command = [sys.executable, str(ROOT / "packaging" / "compiler.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout in ("yes\n", "no\n")
    return done.stdout == "yes\n"


def _compile(folder: Path, code: str, environ: Mapping[str, str]) -> str:
    """How many libraries come of a package of two modules, and what is said."""
    package = folder / "small"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "code.py").write_text(code, encoding="utf-8")
    (package / "more.py").write_text(CODE, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(ROOT), str(folder / "stage"), str(package)],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def _compiled() -> list[str]:
    """The paths of the modules that are compiled."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    hook = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    modules: list[str] = hook["modules"]
    return modules


def test_what_is_compiled_is_there() -> None:
    modules = _compiled()

    assert [name for name in modules if not (ROOT / name).is_file()] == []
    assert modules == sorted(set(modules))


CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]+|_(un)?pack_\w+")


def _not_final(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, name) of each constant of a module that may be set again."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from ((node.lineno, one.id) for one in node.targets if isinstance(one, ast.Name))
        elif isinstance(node, ast.AnnAssign) and not ast.unparse(node.annotation).startswith(
            "Final"
        ):
            yield node.lineno, ast.unparse(node.target)


def test_constants_of_what_is_compiled_are_final() -> None:
    """Those that are not are looked up in a dict by each use, and taken out of an object. Those of
    other modules are read from there, so what is imported has to be final there."""
    compiled = [one for one in sources("ottla") if one.path in _compiled()]
    imported = {name for one in compiled for _, name in one.imports()}
    none_of(
        (
            f"{one.path}:{line} {name}"
            for one in sources("ottla")
            for line, name in _not_final(one.tree)
            if CONSTANT.fullmatch(name) and (one in compiled or f"{one.module}.{name}" in imported)
        ),
        "constants that compiled code uses are Final",
    )


@pytest.mark.skipif(
    not _can_compile() and "CI" not in os.environ, reason="no C compiler, or no headers of Python"
)
def test_modules_are_compiled(tmp_path: Path) -> None:
    (tmp_path / "mypy.ini").write_text("[mypy]\nplugins = not.to.be.run\n", encoding="utf-8")

    assert _compile(tmp_path, CODE, {}) == "3"  # and what they share


@pytest.mark.parametrize(
    ("code", "environ", "why"),
    [(CODE, NO_COMPILER, r"error: .*\bfalse\b"), (CODE.replace("-> int", "-> str"), {}, "error:")],
)
def test_what_cannot_be_compiled_says_why(
    code: str, environ: Mapping[str, str], why: str, tmp_path: Path
) -> None:
    said = _compile(tmp_path, code, environ)

    assert said.startswith("0 mypyc:")
    assert re.search(why, said), said


@pytest.mark.parametrize(
    ("what", "environ"),
    [("a C compiler (no-cc;", {"CC": "no-cc -pthread"}), ("", {})],
)
def test_what_is_missing_for_a_compiler_is_named(what: str, environ: Mapping[str, str]) -> None:
    command = [sys.executable, str(ROOT / "packaging" / "compiler.py")]
    done = subprocess.run(
        command, env={**os.environ, **environ}, capture_output=True, text=True, check=True
    )

    assert (done.stdout == "no\n") == ("Requests will take" in done.stderr)
    assert what in done.stderr


@pytest.mark.slow
def test_without_a_compiler_the_wheel_is_plain_python(tmp_path: Path) -> None:
    done = _build(tmp_path, {"OTTLA_COMPILE": "auto", **NO_COMPILER})

    assert done.returncode == 0, done.stderr
    assert [path.name.partition("-py3")[2] for path in tmp_path.glob("*.whl")] == ["-none-any.whl"]
    assert "run interpreted" in done.stderr + done.stdout


@pytest.mark.slow
def test_who_asks_for_a_compiled_wheel_gets_no_other(tmp_path: Path) -> None:
    done = _build(tmp_path, {"OTTLA_COMPILE": "yes", **NO_COMPILER})

    assert (done.returncode != 0, [*tmp_path.rglob("*")]) == (True, [tmp_path / "temporary"])
    assert "mypyc: " in done.stderr


def test_another_wish_is_refused(tmp_path: Path) -> None:
    done = _build(tmp_path, {"OTTLA_COMPILE": "perhaps"})

    assert done.returncode != 0
    assert "OTTLA_COMPILE=perhaps: it is one of yes, no, auto" in done.stderr
