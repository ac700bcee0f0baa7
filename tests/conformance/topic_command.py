"""Apache Kafka's TopicCommand against a broker: create, describe, alter and delete a topic."""

from __future__ import annotations

import re
import subprocess

from tests.peers import jars

TOPIC = "made-by-topic-command"
COMMAND_SECONDS_MAX = 60.0


class TopicCommandError(Exception):
    """The command failed, or said something else than was done."""


def _command(bootstrap: str, *arguments: str) -> str:
    command = jars.java("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", bootstrap)
    done = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    output = done.stdout + done.stderr
    if done.returncode or "Error while executing" in output:
        raise TopicCommandError(f"{' '.join(arguments)}: {output}")
    return output


def _described_partitions(bootstrap: str) -> list[int]:
    output = _command(bootstrap, "--describe", "--topic", TOPIC)
    if "retention.ms=86400000" not in output:
        raise TopicCommandError(f"the configuration is not described: {output}")
    return [int(found) for found in re.findall(r"Partition: (\d+)\s+Leader: \d+", output)]


def run(bootstrap: str) -> str:
    """Raises TopicCommandError, or says what was seen: made, described, widened, gone."""
    create = ("--create", "--topic", TOPIC, "--partitions", "2", "--replication-factor", "1")
    _command(bootstrap, *create, "--config", "retention.ms=86400000")
    if _described_partitions(bootstrap) != [0, 1]:
        raise TopicCommandError("two partitions with leaders were expected after --create")
    _command(bootstrap, "--alter", "--topic", TOPIC, "--partitions", "5")
    if _described_partitions(bootstrap) != [0, 1, 2, 3, 4]:
        raise TopicCommandError("five partitions with leaders were expected after --alter")
    _command(bootstrap, "--delete", "--topic", TOPIC)
    if TOPIC in _command(bootstrap, "--list").split():
        raise TopicCommandError("the topic is still listed after --delete")
    return "2 partitions, then 5, then gone"
