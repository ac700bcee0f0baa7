"""Kafka Connect and MirrorMaker 2 as they are run: a worker and the broker are killed under them.

    python -m tests.conformance.connect [--kafka]

A worker in distributed mode, with exactly-once support, runs four connectors: one copies a growing
file into a topic, MirrorMaker's source and checkpoint connectors copy that topic, as of another
cluster, with a group's committed offsets, and one writes the topic to a file. The worker is killed
with SIGKILL while they copy, another takes its place, and then the broker is killed and started
again. Of both topics readers of committed records see each line once and in order. The file has
every line in order, some of them again behind a kill. The group's offset is where it should be in
the copy. `make conformance` runs it, too.

With --kafka Apache Kafka is the broker.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL
from typing import Any

import click
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.cimpl import OFFSET_BEGINNING, KafkaException

from tests.conformance import clients, scenes
from tests.conformance.scenes import BRIEF, Kind, MemberProcess
from tests.peers import jars, topics
from tests.peers.servers import ApacheKafka, Ottla, Server, free_port

LINES, COPY = "lines", "there.lines"
GROUP = "reader"
LINES_A_PART = 5_000
"""Lines that are written before, between and after the two kills."""
PROGRESS = 500
"""Lines that are seen before a kill: there is work, and most is still to be done."""
COMMITTED = 1_234
"""Where the group stands in the topic that is copied."""
SECONDS_MAX = 90.0
MIRROR = "org.apache.kafka.connect.mirror.Mirror"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
WORKER = {
    "group.id": "connect",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "config.storage.topic": "connect-configs",
    "config.storage.replication.factor": 1,
    "offset.storage.topic": "connect-offsets",
    "offset.storage.replication.factor": 1,
    "offset.storage.partitions": 5,
    "status.storage.topic": "connect-status",
    "status.storage.replication.factor": 1,
    "status.storage.partitions": 2,
    "exactly.once.source.support": "enabled",
    "plugin.discovery": "service_load",
    # By default the tasks of one that died wait five minutes for its return.
    "scheduled.rebalance.max.delay.ms": 0,
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 1_000,
    "offset.flush.interval.ms": 1_000,
    # What one that died has open holds up whoever reads committed records, for a minute by default.
    "producer.transaction.timeout.ms": 5_000,
}


def connectors(bootstrap: str, source: Path, sink: Path) -> dict[str, dict[str, object]]:
    """Name -> configuration."""
    clusters = {
        "source.cluster.alias": "there",
        "source.cluster.bootstrap.servers": bootstrap,
        "target.cluster.alias": "here",
        "target.cluster.bootstrap.servers": bootstrap,
        "offset-syncs.topic.replication.factor": 1,
        "key.converter": BYTES,
        "value.converter": BYTES,
        # Ottla has no ACLs to copy.
        "sync.topic.acls.enabled": False,
    }
    return {
        "source": {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "file": source,
            "topic": LINES,
        },
        "mirror": {
            "connector.class": f"{MIRROR}SourceConnector",
            **clusters,
            "topics": LINES,
            "replication.factor": 1,
            "consumer.isolation.level": "read_committed",
            "offset.lag.max": 0,
        },
        "checkpoints": {
            "connector.class": f"{MIRROR}CheckpointConnector",
            **clusters,
            "groups": GROUP,
            "checkpoints.topic.replication.factor": 1,
            "emit.checkpoints.interval.seconds": 1,
            "sync.group.offsets.enabled": True,
            "sync.group.offsets.interval.seconds": 1,
            "refresh.groups.interval.seconds": 1,
        },
        "sink": {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "file": sink,
            "topics": LINES,
            "consumer.override.isolation.level": "read_committed",
        },
    }


class Source:
    """The file that grows, a line for each number."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []
        path.touch()

    def write_part(self) -> None:
        part = [f"line {len(self.lines) + i}" for i in range(LINES_A_PART)]
        self.lines += part
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(one + "\n" for one in part)


class Worker:
    """One worker's process, and its REST interface."""

    def __init__(self, server: Server) -> None:
        self._port = free_port()
        settings = {
            "bootstrap.servers": server.bootstrap,
            "listeners": f"http://127.0.0.1:{self._port}",
            **WORKER,
        }
        path = server.directory / f"worker-{self._port}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        java, *arguments = jars.java("org.apache.kafka.connect.cli.ConnectDistributed", str(path))
        self._process = MemberProcess((java, *BRIEF, *arguments), lambda told: None)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer's content; None if there is no answer yet, or an error."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            content = None if body is None else json.dumps(body, default=str)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read()
        except OSError:
            return None
        finally:
            connection.close()
        return json.loads(said) if answer.status < 400 else None

    def configure(self, wanted: Mapping[str, object]) -> None:
        """Gives the connectors to it, or to whichever worker leads."""
        for name, config in wanted.items():
            told = self.ask("PUT", f"/connectors/{name}/config", config)
            assert told is not None, f"{name} was refused: {self.tail()}"

    def is_running(self, names: list[str]) -> bool:
        """Whether all connectors and their tasks run."""
        found = self.ask("GET", "/connectors?expand=status")
        if found is None or sorted(found) != sorted(names):
            return False
        status = [one["status"] for one in found.values()]
        states = [part["state"] for one in status for part in (one["connector"], *one["tasks"])]
        return all(one["tasks"] for one in status) and set(states) == {"RUNNING"}

    def wait_for_rest(self) -> str:
        return scenes.wait(lambda: self.ask("GET", "/") is not None, SECONDS_MAX, self.tail)

    def wait(self, names: list[str]) -> str:
        return scenes.wait(
            lambda: self.is_running(names),
            SECONDS_MAX,
            lambda: f"{self.ask('GET', '/connectors?expand=status')} {self.tail()}",
        )

    def tail(self) -> str:
        return self._process.tail()

    def end(self) -> None:
        if not self._process.is_over:
            self._process.end(SIGKILL)


class Reader:
    """The committed lines of a topic of one partition, in their order."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.lines: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "of-lines",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def close(self) -> None:
        self._consumer.close()

    def have(self, count: int) -> bool:
        """Reads on; whether that many lines have come."""
        for message in self._consumer.consume(5_000, 0.1):
            value = message.value()
            if message.error() is None and value is not None:
                self.lines.append(value.decode())
        return len(self.lines) >= count


def _is_written(sink: Path, lines: list[str]) -> bool:
    """Whether the file has all lines. Raises AssertionError if one is left out; what was written
    may be written again behind a kill."""
    following = 0
    for one in sink.read_text(encoding="utf-8").splitlines(keepends=True):
        if not one.endswith("\n"):
            break  # it is being written
        number = int(one.split()[1])
        assert number <= following, f"the file has {one!r} in place of {lines[following]!r}"
        following = max(following, number + 1)
    return following == len(lines)


def _commit(bootstrap: str) -> None:
    """Has the group stand somewhere in the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0})
    place = TopicPartition(LINES, 0, COMMITTED)
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


def _committed_in_copy(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0})
    try:
        (place,) = consumer.committed([TopicPartition(COPY, 0)], 5.0)
    except KafkaException:
        return -1
    finally:
        consumer.close()
    return int(place.offset)


def _act(server: Server) -> list[str]:
    steps: list[str] = []
    with ExitStack() as held:
        held.callback(server.close)
        server.start()
        topics.create(server.bootstrap, {LINES: 1})
        # The connector of checkpoints begins with the groups that there are.
        _commit(server.bootstrap)
        source, sink = Source(server.directory / "in.txt"), server.directory / "out.txt"
        wanted = connectors(server.bootstrap, source.path, sink)

        def start() -> Worker:
            worker = Worker(server)
            held.callback(worker.end)
            return worker

        def seen(reader: Reader, count: int, worker: Worker) -> str:
            return scenes.wait(
                lambda: reader.have(count),
                SECONDS_MAX,
                lambda: f"{len(reader.lines)} of {count} in {reader.topic}: {worker.tail()}",
            )

        worker = start()
        steps.append(worker.wait_for_rest())
        worker.configure(wanted)
        steps.append(worker.wait(list(wanted)))
        source.write_part()
        reader, copied = Reader(server.bootstrap, LINES), Reader(server.bootstrap, COPY)
        held.callback(reader.close)
        held.callback(copied.close)
        steps.append(seen(copied, PROGRESS, worker))
        steps.append(f"(killed at {len(copied.lines)})")
        worker.end()
        worker = start()
        source.write_part()
        steps.append(seen(copied, LINES_A_PART + PROGRESS, worker))
        steps.append(f"(broker killed at {len(copied.lines)})")
        server.kill()
        server.start()
        source.write_part()
        for one in (reader, copied):
            steps.append(seen(one, len(source.lines), worker))
            assert one.lines == source.lines, f"{one.topic}: missing, doubled or misplaced lines"
        steps.append(scenes.wait(lambda: _is_written(sink, source.lines), SECONDS_MAX, worker.tail))
        steps.append(
            scenes.wait(
                lambda: 0 < _committed_in_copy(server.bootstrap) <= COMMITTED,
                SECONDS_MAX,
                worker.tail,
            )
        )
        steps.append(f"(the group is at {_committed_in_copy(server.bootstrap)} in the copy)")
        steps.append(worker.wait(list(wanted)))
    return steps


KINDS = (Kind(replace(clients.JAVA, name="connect"), ()),)


def run(names: list[str], *, is_kafka: bool = False) -> scenes.Ran:
    """Plays it with Ottla, or with Apache Kafka."""

    def act(kind: Kind, folder: Path) -> list[str]:
        broker = ApacheKafka if is_kafka else Ottla
        return _act(broker(folder / kind.name))

    return scenes.run(KINDS, names, act, at_once=1, what="connect worker")


@click.command()
@click.option("--kafka", "is_kafka", is_flag=True, help="Apache Kafka is the broker.")
def main(is_kafka: bool) -> None:
    """Play it alone."""
    scenes.report("connect worker", lambda: run([], is_kafka=is_kafka))


if __name__ == "__main__":
    main()
