"""The clients: what each needs on the machine, how it is made ready, how its driver is called."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tests.peers import jars

HERE = Path(__file__).resolve().parent
DRIVER_SECONDS_MAX = 180.0


@dataclass(frozen=True)
class Client:
    """One client library.

    `driver` is the command that takes `produce|consume BOOTSTRAP TOPIC RECORDS`; see
    `python/arguments.py` for what it answers. `tools` are the programs that it needs.
    """

    name: str
    driver: tuple[str, ...]
    version: Callable[[], str]
    tools: tuple[str, ...] = ()
    prepare: Callable[[], None] = lambda: None
    consumes: bool = True
    codec_header_only: bool = False

    def missing(self) -> list[str]:
        return [tool for tool in self.tools if shutil.which(tool) is None]

    def run(self, verb: str, bootstrap: str, topic: str, count: int) -> tuple[float, list[str]]:
        """Runs the driver in a process of its own; returns its seconds and digests."""
        started = time.perf_counter()
        done = subprocess.run(
            [*self.driver, verb, bootstrap, topic, str(count)],
            cwd=jars.ROOT,
            capture_output=True,
            text=True,
            timeout=DRIVER_SECONDS_MAX,
            check=False,
        )
        seconds = time.perf_counter() - started
        if done.returncode:
            raise ClientError(
                f"{self.name} could not {verb}: {(done.stderr + done.stdout)[-1500:]}"
            )
        answer = json.loads(done.stdout.splitlines()[-1])
        assert answer["records"] == count
        return seconds, answer["digests"]


class ClientError(Exception):
    """A client's driver ended with an error of its own."""


def _python(module: str) -> tuple[str, ...]:
    return sys.executable, "-m", f"tests.conformance.{module}"


def _kcat_version() -> str:
    output = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"Version (\S+)", output)
    return found.group(1) if found else ""


def _node_packages() -> None:
    subprocess.run(["npm", "ci", "--silent"], cwd=HERE / "node", check=True)


def _kafkajs_version() -> str:
    package = json.loads((HERE / "node" / "package.json").read_text(encoding="utf-8"))
    return str(package["dependencies"]["kafkajs"])


FRANZ_GO = jars.ROOT / ".cache" / "franz-go-driver"


def _go_build() -> None:
    FRANZ_GO.parent.mkdir(exist_ok=True)
    subprocess.run(["go", "build", "-o", str(FRANZ_GO), "."], cwd=HERE / "go", check=True)


def _go_version(module: str) -> str:
    found = re.search(rf"{module} (v\S+)", (HERE / "go" / "go.mod").read_text(encoding="utf-8"))
    return found.group(1) if found else ""


def _jars() -> None:
    jars.fetch()


CONFLUENT = Client(
    "confluent-kafka", _python("python.confluent"), lambda: metadata.version("confluent-kafka")
)
JAVA = Client(
    "kafka-clients",
    (
        "java",
        f"-Dlog4j2.configurationFile={jars.LOGGING}",
        "-cp",
        f"{jars.CACHE}/*",
        str(HERE / "java" / "Driver.java"),
    ),
    lambda: jars.KAFKA_VERSION,
    tools=("java", "mvn"),
    prepare=_jars,
)
CLIENTS = (
    CONFLUENT,
    Client("aiokafka", _python("python.aio"), lambda: metadata.version("aiokafka")),
    Client("kafka-python", _python("python.pure"), lambda: metadata.version("kafka-python")),
    Client("kcat", _python("kcat.driver"), _kcat_version, tools=("kcat",), codec_header_only=True),
    Client(
        "kafkajs",
        ("node", str(HERE / "node" / "produce.js")),
        _kafkajs_version,
        tools=("node", "npm"),
        prepare=_node_packages,
        consumes=False,
    ),
    Client(
        "franz-go",
        (str(FRANZ_GO),),
        lambda: _go_version("franz-go"),
        tools=("go",),
        prepare=_go_build,
    ),
    JAVA,
)
# In scenes of transactions alone.
SARAMA = Client(
    "sarama",
    (str(FRANZ_GO), "sarama"),
    lambda: _go_version("sarama"),
    tools=("go",),
    prepare=_go_build,
)
