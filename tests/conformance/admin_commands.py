"""Apache Kafka's own administrative commands against a broker that is one node.

Each row is a command and what its output must hold; the words are what the commands print when
they talk to Apache Kafka 4.3.1.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from tests.peers import jars

TOPIC = "made-by-admin-commands"
GROUP = "made-by-admin-commands"
COMMAND_SECONDS_MAX = 60.0
TOOLS = "org.apache.kafka.tools"
CONFIG = "kafka.admin.ConfigCommand"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
PARTITION = {"topic": TOPIC, "partition": 0}


class AdminCommandError(Exception):
    """A command failed, or said something else than was asked for."""


def _config(kind: str, *arguments: str) -> tuple[str, ...]:
    return (CONFIG, "--entity-type", kind, *arguments)


def _rows(folder: Path) -> list[tuple[tuple[str, ...], str]]:
    """(command, words of its output), in an order that leaves nothing behind."""
    records, moves = folder / "records.json", folder / "moves.json"
    records.write_text(json.dumps({"version": 1, "partitions": [{**PARTITION, "offset": 0}]}))
    moves.write_text(json.dumps({"version": 1, "partitions": [{**PARTITION, "replicas": [1]}]}))
    topics = f"{TOOLS}.TopicCommand"
    elect = (f"{TOOLS}.LeaderElectionCommand", "--election-type", "PREFERRED")
    to_earliest = ("--reset-offsets", "--to-earliest", "--execute")
    named = ("--entity-name", TOPIC)
    rate = "producer_byte_rate"
    return [
        ((topics, "--create", "--topic", TOPIC, "--partitions", "2"), "Created topic"),
        (_config("topics", *named, "--alter", "--add-config", "retention.ms=7"), "Completed"),
        (_config("topics", *named, "--describe"), "retention.ms=7"),
        (_config("clients", *named, "--alter", "--add-config", f"{rate}=1024"), "Completed"),
        (_config("clients", "--describe"), f"{rate}=1024.0"),
        (_config("clients", *named, "--alter", "--delete-config", rate), "Completed"),
        (_config("users", "--describe"), ""),
        (
            _config(
                "groups", *named, "--alter", "--add-config", "consumer.session.timeout.ms=50000"
            ),
            "Completed",
        ),
        (_config("groups", *named, "--describe"), "DYNAMIC_GROUP_CONFIG"),
        (
            _config("groups", *named, "--alter", "--delete-config", "consumer.session.timeout.ms"),
            "Completed",
        ),
        ((f"{TOOLS}.GetOffsetShell", "--topic", TOPIC), f"{TOPIC}:1:0"),
        ((f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", TOPIC), f"{TOPIC}-1"),
        (
            (f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(records)),
            f"partition: {TOPIC}-0\tlow_watermark: 0",
        ),
        ((f"{TOOLS}.FeatureCommand", "describe"), "Feature: metadata.version"),
        ((f"{TOOLS}.MetadataQuorumCommand", "describe", "--status"), "HighWatermark:"),
        ((f"{TOOLS}.ClusterTool", "cluster-id"), "Cluster ID:"),
        ((f"{TOOLS}.ClusterTool", "list-endpoints"), "unfenced"),
        ((*elect, "--all-topic-partitions"), ""),
        ((*elect, "--topic", TOPIC, "--partition", "0"), "Valid replica already elected"),
        ((REASSIGN, "--reassignment-json-file", str(moves), "--execute"), "Successfully started"),
        ((REASSIGN, "--reassignment-json-file", str(moves), "--verify"), "is completed."),
        ((REASSIGN, "--list"), "No partition reassignments found."),
        ((GROUPS, "--group", GROUP, "--topic", TOPIC, *to_earliest), TOPIC),
        ((GROUPS, "--list", "--state"), GROUP),
        ((GROUPS, "--describe", "--group", GROUP), "has no active members."),
        ((GROUPS, "--delete", "--group", GROUP), "was successful."),
        ((topics, "--delete", "--topic", TOPIC), ""),
    ]


def run(bootstrap: str) -> str:
    """Raises AdminCommandError, or says how many commands were run."""
    with tempfile.TemporaryDirectory(prefix="ottla-admin-") as folder:
        rows = _rows(Path(folder))
        for (tool, *arguments), words in rows:
            # Of several commands in one program the first argument names the one.
            at = 1 if tool.endswith("ClusterTool") else 0
            server = ["--bootstrap-server", bootstrap]
            command = jars.java(tool, *arguments[:at], *server, *arguments[at:])
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False
            )
            output = done.stdout + done.stderr
            if done.returncode or "Exception" in output or words not in output:
                raise AdminCommandError(f"{tool} {' '.join(arguments)}: {output}")
    return f"{len(rows)} commands"
