"""The image's start script, as those call it who start a broker from an apache/kafka image."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.house.sources import ROOT
from tests.peers import topics
from tests.peers.servers import free_port

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")

READY = "Transitioning from RECOVERY to RUNNING"
"""What testcontainers' KafkaContainer waits for, in Java, Go and .NET."""


@contextmanager
def _replaced_command(
    tmp_path: Path, environ: dict[str, str], advertised: str
) -> Iterator[subprocess.Popen[str]]:
    """A container whose command waits for a script, for only then is known what to advertise."""
    script = tmp_path / "start.sh"
    waits = f"while [ ! -f {script} ]; do sleep 0.1; done; {script}"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    process = subprocess.Popen(
        ["sh", "-c", waits],
        env=os.environ | environ | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        whole = script.with_suffix(".new")
        whole.write_text(
            "#!/bin/bash\n"
            f"export KAFKA_ADVERTISED_LISTENERS={advertised}\n"
            f"{ROOT}/packaging/container/run \n",
            encoding="utf-8",
        )
        whole.chmod(0o777)
        whole.rename(script)
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=20)


def test_who_replaces_the_images_command_finds_kafkas_start_script_and_its_line(
    tmp_path: Path,
) -> None:
    outside, inside, controller, telemetry = free_port(), free_port(), free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{outside},BROKER://127.0.0.1:{inside}"
    environ = {
        "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_LOG_DIRS": str(tmp_path / "data"),
        "KAFKA_OTTLA_TELEMETRY_PORT": str(telemetry),
    }
    with _replaced_command(tmp_path, environ, listeners) as container:
        assert container.stdout is not None
        assert any(READY in line for line in container.stdout)
        topics.create(f"127.0.0.1:{outside}", {"t": 1})
