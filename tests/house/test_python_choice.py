"""Which Python `make` builds its environment from: `packaging/python.sh`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.house.sources import ROOT

# A stand-in tells the two questions apart by what they import.
STAND_IN = """#!/bin/sh
case $2 in
    *sysconfig*) exit {optimised} ;;
    *ensurepip*) exit {serves} ;;
esac
exit 2
"""
YES, NO = 0, 1


def stand_in(path: Path, *, optimised: int, serves: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(STAND_IN.format(optimised=optimised, serves=serves), encoding="ascii")
    path.chmod(0o755)
    return path


def choice(path: str, system: Path) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", str(ROOT / "packaging/python.sh"), str(system)]
    environment = {**os.environ, "PATH": path}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


@pytest.mark.parametrize(
    ("optimised", "serves", "chosen"),
    [(YES, YES, "python3"), (NO, YES, "system"), (NO, NO, "python3"), (YES, NO, "python3")],
)
def test_the_system_takes_the_place_of_one_without_optimisations(
    tmp_path: Path, optimised: int, serves: int, chosen: str
) -> None:
    stand_in(tmp_path / "bin/python3", optimised=optimised, serves=NO)
    system = stand_in(tmp_path / "usr/python3", optimised=NO, serves=serves)

    done = choice(str(tmp_path / "bin"), system)

    assert done.stdout.strip() == (str(system) if chosen == "system" else "python3")
    assert ("PYTHON=python3 keeps it" in done.stderr) == (chosen == "system")


def test_where_there_is_no_other_it_is_taken_without_a_word(tmp_path: Path) -> None:
    system = stand_in(tmp_path / "bin/python3", optimised=NO, serves=YES)

    done = choice(str(tmp_path / "bin"), system)

    assert (done.stdout.strip(), done.stderr) == ("python3", "")


def test_without_one_in_path_the_systems_serves(tmp_path: Path) -> None:
    system = stand_in(tmp_path / "usr/python3", optimised=NO, serves=YES)

    assert choice(str(tmp_path), system).stdout.strip() == str(system)
