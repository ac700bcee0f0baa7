"""Apache Kafka's own jars, fetched once by Maven into the checkout's cache."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POM = ROOT / "tests" / "conformance" / "java" / "pom.xml"
LOGGING = POM.with_name("log4j2.properties")
KAFKA_VERSION = "4.3.1"
CACHE = ROOT / ".cache" / f"kafka-{KAFKA_VERSION}"


def missing_tools() -> str:
    """What this machine lacks to run Kafka's own programs; empty when nothing."""
    return ", ".join(tool for tool in ("java", "mvn") if shutil.which(tool) is None)


def fetch() -> Path:
    """The folder of the jars; the first call, and that after a change of what is wanted, takes what
    Maven takes."""
    stamp = CACHE / ".complete"
    wanted = POM.read_text(encoding="utf-8")
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={CACHE}"]
        subprocess.run(command, check=True)
        stamp.write_text(wanted, encoding="utf-8")
    return CACHE


def java(*arguments: str) -> list[str]:
    """A command line for one of Kafka's programs, errors to stderr and nothing else logged."""
    return ["java", f"-Dlog4j2.configurationFile={LOGGING}", "-cp", f"{fetch()}/*", *arguments]
