"""kafka-python's own integration tests, against Apache Kafka and against Ottla in one run.

    make suite
    make suite ARGS="-k consumer_group"                 some of them: pytest's expression

The source distribution on PyPI carries the tests, but not two modules of their package; ours stand
in for them. Both brokers have the same settings. What passes on Apache Kafka must pass on Ottla.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import xml.etree.ElementTree as ElementTree
from importlib.metadata import version
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tests.peers.jars import KAFKA_VERSION, ROOT
from tests.peers.servers import ApacheKafka, Ottla, Server

DISTRIBUTION = "kafka-python"
NEEDED = ("pytest", "pytest-mock", "pytest-timeout", "py", "lz4", "python-snappy", "zstandard")
TEST_SECONDS_MAX = 40
SERVICE = '''"""The one of the two services that a run against a given broker needs."""


class ExternalService:
    def __init__(self, host, port):
        self.host = host
        self.port = port


class SpawnedService:
    """Only imported: nothing is spawned here."""
'''
console = Console(width=130, highlight=False)


def prepare() -> tuple[Path, Path]:
    """(the Python that has the client, the folder of its source); made once, kept in the cache."""
    number = version(DISTRIBUTION)
    home = ROOT / ".cache" / f"{DISTRIBUTION}-{number}"
    python = home / "venv" / "bin" / "python"
    source = home / f"{DISTRIBUTION.replace('-', '_')}-{number}"
    stamp = home / ".complete"
    if not stamp.exists():
        venv.create(home / "venv", with_pip=True)
        pip = [str(python), "-m", "pip", "--quiet"]
        # The binary form has no tests.
        what = ["--no-deps", "--no-binary", DISTRIBUTION, f"{DISTRIBUTION}=={number}"]
        subprocess.run([*pip, "download", "--dest", str(home), *what], check=True)
        with tarfile.open(f"{source}.tar.gz") as archive:
            # Python has the filter since 3.11.4, and Debian's is older.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(home)
        subprocess.run([*pip, "install", str(source), *NEEDED], check=True)
        # The package that the standard library calls `test`, too, would be found before theirs.
        (source / "test" / "__init__.py").touch()
        (source / "test" / "service.py").write_text(SERVICE, encoding="ascii")
        stamp.touch()
    return python, source


def run_suite(server: Server, python: Path, source: Path, folder: Path, some: str) -> Path:
    """Runs the tests against a broker; the report that pytest has written."""
    report = folder / f"{server.name}.xml"
    command = [str(python), "-m", "pytest", "test/integration", "-q", "-p", "no:cacheprovider"]
    # Their own timeout ends the whole process, with all tests that are still to come.
    command += ["-o", "addopts=", f"--timeout={TEST_SECONDS_MAX}", "--timeout-method=signal"]
    command += [f"--junitxml={report}", "-k", some] if some else [f"--junitxml={report}"]
    environment = {
        **os.environ,
        "KAFKA_URI": f"kafka://{server.bootstrap}",
        "KAFKA_VERSION": KAFKA_VERSION,
        "KAFKA_ROOT": str(source),  # a folder, asked for even when nothing of it is used
    }
    output = folder / f"{server.name}.txt"
    with output.open("wb") as printed:
        subprocess.run(
            command, cwd=source, env=environment, stdout=printed, stderr=subprocess.STDOUT
        )
    if not report.exists():
        raise RuntimeError(f"the tests did not run:\n{output.read_text()[-3000:]}")
    return report


def results_of(report: Path) -> dict[str, str]:
    """Test -> "passed", "skipped", or what went wrong."""
    results = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        bad = [one for tag in ("failure", "error") for one in case.iter(tag)]
        if bad:
            results[name] = (bad[0].get("message") or "failed").splitlines()[0]
        else:
            results[name] = "passed" if case.find("skipped") is None else "skipped"
    return results


def compare(kafka: dict[str, str], ours: dict[str, str]) -> list[str]:
    """The tests that pass on Apache Kafka and not here, printed with what differs else."""
    table = Table("test", "Apache Kafka", "Ottla")
    worse = []
    for name, theirs in sorted(kafka.items()):
        mine = ours.get(name, "did not run")
        if theirs == "passed" and mine != "passed":
            worse.append(name)
        if (theirs == "passed") != (mine == "passed"):
            table.add_row(name, theirs[:50], mine[:50])
    if table.row_count:
        console.print(table)
    return worse


def measure(make: type[Server], python: Path, source: Path, folder: Path, some: str) -> Path:
    """One broker's run, from its start to its end."""
    started = time.perf_counter()
    port = make(folder / "unused").port
    settings = {
        "advertised_listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "group_initial_rebalance_delay_ms": 0,
        "offsets_topic_num_partitions": 5,
    }
    server = make(folder / make.name, port, **settings)
    try:
        server.start()
        report = run_suite(server, python, source, folder, some)
        server.stop()
    finally:
        server.close()
    console.print(f"{make.name}: {time.perf_counter() - started:.0f} s")
    return report


@click.command(help=__doc__)
@click.option("-k", "some", default="", help="only the tests of this expression of pytest's")
def main(some: str) -> None:
    python, source = prepare()
    with tempfile.TemporaryDirectory(prefix="ottla-suite-") as name:
        folder = Path(name)
        theirs = results_of(measure(ApacheKafka, python, source, folder, some))
        ours = results_of(measure(Ottla, python, source, folder, some))
        worse = compare(theirs, ours)
    passed = [sum(one == "passed" for one in results.values()) for results in (theirs, ours)]
    console.print(f"passed: {passed[0]} on Apache Kafka, {passed[1]} on Ottla")
    for test in worse:
        console.print(f"passes on Apache Kafka only: {test}", style="red")
    sys.exit(1 if worse or not passed[0] else 0)


if __name__ == "__main__":
    main()
