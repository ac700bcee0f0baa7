"""Builds the wheel: the modules of the hot path compiled by mypyc, where there is a C compiler.

The sources stay what they are, typed Python, and run as they are where nothing was compiled: in an
editable install, without a compiler, or with OTTLA_COMPILE=no. Compiled, a request takes a quarter
less processor time. OTTLA_COMPILE=yes makes a build fail that cannot compile. Which of both it is
stands in the broker's start-up line and in `ottla --version`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WANTED = "OTTLA_COMPILE"
ANSWERS = ("yes", "no", "auto")
ERROR_LINES = 20


class CompileHook(BuildHookInterface[Any]):
    """Adds the compiled modules beside their sources, and has the wheel named for this platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get(WANTED) or "auto"
        if wanted not in ANSWERS:
            raise SystemExit(f"{WANTED}={wanted}: it is one of {', '.join(ANSWERS)}")
        if version == "editable" or wanted == "no":
            return
        stage = Path(tempfile.mkdtemp(prefix="ottla-compile-"))
        self._stage = stage
        error = compile_in(stage, Path(self.root) / "ottla", self.config["modules"])
        if error:
            if wanted == "yes":
                raise SystemExit(error)
            self.app.display_warning(
                f"{error}\nThe modules are not compiled: they run interpreted."
            )
            return
        for suffix in (".so", ".pyd"):
            for library in (*stage.glob(f"*{suffix}"), *stage.glob(f"ottla/**/*{suffix}")):
                build_data["force_include"][str(library)] = str(library.relative_to(stage))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        stage = getattr(self, "_stage", None)
        if stage is not None:
            shutil.rmtree(stage, ignore_errors=True)


def compile_in(stage: Path, package: Path, modules: list[str]) -> str:
    """Compiles modules of a copy of the package; returns why that failed, or nothing."""
    shutil.copytree(package, stage / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        # What a module imports from other packages need not be here.
        [sys.executable, "-m", "mypyc", "--ignore-missing-imports", *modules],
        cwd=stage,
        env={**os.environ, "MYPYC_OPT_LEVEL": "3", "MYPYC_DEBUG_LEVEL": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return ""
    return "mypyc: " + "\n".join(done.stdout.splitlines()[-ERROR_LINES:])
