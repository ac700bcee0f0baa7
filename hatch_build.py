"""Builds the wheel: the modules of the hot path compiled by mypyc, where there is a C compiler.

The sources stay what they are, typed Python, and run as they are where nothing was compiled: in an
editable install, without a compiler, or with OTTLA_COMPILE=no. Compiled, a request takes a quarter
less processor time. OTTLA_COMPILE=yes makes a build fail that cannot compile. Which of both it is
stands in `ottla --version` and in the event `broker_started`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WANTED = "OTTLA_COMPILE"
ANSWERS = ("yes", "no", "auto")
ERROR_LINES = 20
# `python -m mypyc` makes one C file of all modules, which one processor has to compile; here each
# has its own, which mypyc can do of two and more. No settings of whoever has some in a folder
# above, or at home: they can name code to run. What a module imports from other packages need not
# be here.
COMPILE = """
import os, sys
from mypyc.build import mypycify
from pybind11.setup_helpers import ParallelCompile
from setuptools import setup

options = ["--config-file=", "--ignore-missing-imports"]
modules = mypycify([*options, *sys.argv[1:]], opt_level="3", debug_level="0", multi_file=True)
at_once = min(os.cpu_count() or 1, 4)  # a compiler takes a quarter of a GB
ParallelCompile(default=at_once).install()
setup(
    name="compiled",
    ext_modules=modules,
    script_args=["build_ext", "--inplace", "--parallel", str(at_once)],
)
"""


class CompileHook(BuildHookInterface[Any]):
    """Adds the compiled modules beside their sources, and has the wheel named for this platform."""

    _stage: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get(WANTED) or "auto"
        if wanted not in ANSWERS:
            raise SystemExit(f"{WANTED}={wanted}: it is one of {', '.join(ANSWERS)}")
        if version == "editable" or wanted == "no":
            return
        stage = self._stage = Path(tempfile.mkdtemp(prefix="ottla-compile-"))
        with ExitStack() as unless_done:  # hatchling calls `finalize` for what it has built alone
            unless_done.callback(self._clear)
            libraries, error = compile_in(stage, Path(self.root) / "ottla", self.config["modules"])
            if error and wanted == "yes":
                raise SystemExit(error)
            unless_done.pop_all()
        if error:
            self.app.display_warning(f"{error}\nNothing is compiled: all modules run interpreted.")
            return
        for library in libraries:
            build_data["force_include"][str(library)] = str(library.relative_to(stage))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._clear()

    def _clear(self) -> None:
        if self._stage is not None:
            shutil.rmtree(self._stage, ignore_errors=True)


def compile_in(stage: Path, package: Path, modules: list[str]) -> tuple[list[Path], str]:
    """Compiles modules of a copy of the package. Returns the libraries, and why there are none."""
    shutil.copytree(package, stage / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, *modules],
        cwd=stage,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        return [], "mypyc: " + "\n".join(done.stdout.splitlines()[-ERROR_LINES:])
    libraries = [
        library
        for suffix in (".so", ".pyd")
        for library in (*stage.glob(f"*{suffix}"), *stage.glob(f"{package.name}/**/*{suffix}"))
    ]
    # One for each module, and one that all of them share.
    if len(libraries) != len(modules) + 1:
        return [], f"mypyc: {len(libraries)} libraries of {len(modules)} modules"
    return libraries, ""
