"""What leaves the house: one package, reached by one name, with the doors left at home."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.house.sources import DOORS, ROOT, sources

IMPORT_ALL = """
import importlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module(name)
for name, module in sorted(sys.modules.items()):
    place = getattr(module, "__file__", None)
    if place and pathlib.Path(place).resolve().is_relative_to(root / "ottla"):
        if name != "__main__" and not name.startswith("ottla"):
            print(name, place)
"""


def test_doors_are_links_into_the_package() -> None:
    links = {door: os.readlink(ROOT / door) for door in DOORS}

    assert links == {door: f"ottla/{door}" for door in DOORS}


def test_every_loaded_module_is_named_ottla() -> None:
    modules = [
        source.module for source in sources("ottla") if not source.path.endswith("__main__.py")
    ]
    command = [sys.executable, "-c", IMPORT_ALL, str(ROOT), *modules]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source archive, built as pip builds them."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    plain = {**os.environ, "OTTLA_COMPILE": "no"}
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env=plain)
    return folder


def test_the_wheel_holds_the_package_and_no_door(built: Path) -> None:
    wheel = next(built.glob("*.whl"))
    files = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}

    assert {source.path for source in sources("ottla")} <= files
    assert {name.split("/")[0] for name in files} <= {"ottla", "pyspark_ottla.py"}


def test_the_source_archive_holds_the_package_and_no_door(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}

    assert {source.path for source in sources("ottla")} <= files
    assert not {name.split("/")[0] for name in files} & set(DOORS)
