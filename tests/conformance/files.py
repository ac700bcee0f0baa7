"""A cleanly stopped data directory in the hands of Apache Kafka: its dump tool and its broker."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.peers import jars
from tests.peers.servers import ApacheKafka

DUMP_SECONDS_MAX = 300.0
COMPLAINT = re.compile(
    r"corrupt|exception|invalid bytes|isvalid: false|mismatch|non-consecutive|not found"
    r"|out of order|failed",
    re.IGNORECASE,
)
METADATA = "__cluster_metadata-0"


class FilesError(Exception):
    """Apache Kafka's dump tool has a complaint."""


def _dump(files: list[Path], *options: str) -> list[str]:
    command = jars.java("org.apache.kafka.tools.DumpLogSegments", *options)
    command += ["--files", ",".join(map(str, files))]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DUMP_SECONDS_MAX, check=False
    )
    lines = (done.stdout + done.stderr).splitlines()
    complaints = [line for line in lines if COMPLAINT.search(line)]
    if done.returncode or complaints:
        raise FilesError("\n".join(complaints[:10] or lines[-10:]))
    return lines


def _count_records(lines: list[str]) -> int:
    return sum(line.startswith("| offset:") for line in lines)


def dump(data: Path, records: int) -> str:
    """Runs the tool over every log and index; raises FilesError, or says what was looked at.

    `records` is how many the topics' logs must hold in all.
    """
    # A deleted partition waits for its removal as it was when it was renamed.
    folders = [path for path in sorted(data.iterdir()) if not path.name.endswith("-delete")]
    logs = [log for folder in folders for log in sorted(folder.glob("*.log"))]
    indexes = [index for folder in folders for index in sorted(folder.glob("*index"))]
    topics = [log for log in logs if not log.parent.name.startswith("__")]
    found = _count_records(_dump(topics, "--deep-iteration"))
    if found != records:
        raise FilesError(f"{found} records were dumped, {records} were written")
    dump_internal([data])
    _dump(indexes)
    verdicts = ("passed sanity check.", "is empty.")
    sane = sum(line.endswith(verdicts) for line in _dump(indexes, "--index-sanity-check"))
    if sane != len(indexes):
        raise FilesError(f"{sane} of {len(indexes)} indexes passed the sanity check")
    return f"{len(logs)} logs, {len(indexes)} indexes, {found} records"


def dump_internal(dirs: Sequence[Path]) -> None:
    """Runs the tool over the logs of groups and of metadata, decoded. Raises FilesError."""
    logs = [log for folder in dirs for log in sorted(folder.glob("__*/*.log"))]
    committed = [log for log in logs if log.parent.name.startswith("__consumer_offsets-")]
    if committed:
        _dump(committed, "--deep-iteration", "--offsets-decoder")
    metadata = [log for log in logs if log.parent.name == METADATA]
    metadata += [
        path for folder in dirs for path in sorted(folder.glob(f"{METADATA}/*.checkpoint"))
    ]
    _dump(metadata, "--cluster-metadata-decoder", "--skip-record-metadata")


def opened_by_kafka(data: Path, scratch: Path) -> ApacheKafka:
    """Apache Kafka, started on a copy of the directory; the caller closes it."""
    properties = (data / "meta.properties").read_text(encoding="ascii")
    node_id = re.search(r"^node\.id=(\d+)$", properties, re.MULTILINE)
    assert node_id is not None, properties
    kafka = ApacheKafka(scratch, node_id=node_id.group(1))
    shutil.copytree(data, kafka.data)
    kafka.start()
    return kafka
