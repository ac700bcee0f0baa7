"""Groups of unmodified clients: members that come, die, leave and return, and a broker that dies.

    python -m tests.conformance.groups [--only confluent-kafka,franz-go] [--bootstrap HOST:PORT]

For each client: three members join, one of them static; one is killed; the static one is killed and
restarted while nobody else notices; one leaves; the broker is killed with SIGKILL and restarted.
By the consumer protocol (KIP-848) the static one is stopped and not killed: the name of one that
was killed is taken until its session is over.
Meanwhile records are written. Every record must be read, no partition may have two owners at a
time, and what was committed is committed after the kill. `make conformance` runs it, too.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import click
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conformance import clients
from tests.peers import jars, topics
from tests.peers.servers import Ottla

PARTITIONS = 6
RECORDS = 300
JOIN_SECONDS_MAX = 40.0
EVICTION_SECONDS_MAX = 30.0
AT_ONCE = 3
"""Clients at a time, each with a broker of its own."""


@dataclass(frozen=True)
class Kind:
    """A client whose members are run by `command` and arguments (see members/lines.py)."""

    client: clients.Client
    command: tuple[str, ...]
    has_static: bool = True
    protocol: str = "classic"

    @property
    def name(self) -> str:
        client = self.client.name
        return client if self.protocol == "classic" else f"{client}-{self.protocol}"


def _python(module: str) -> tuple[str, ...]:
    return sys.executable, "-m", f"tests.conformance.members.{module}"


_BY_NAME = {client.name: client for client in clients.CLIENTS}
JAVA_MEMBER = (*clients.JAVA.driver[:-1], str(clients.HERE / "java" / "Member.java"))
KINDS = (
    Kind(clients.CONFLUENT, _python("confluent")),
    Kind(_BY_NAME["aiokafka"], _python("aio")),
    Kind(_BY_NAME["kafka-python"], _python("pure")),
    Kind(
        _BY_NAME["kafkajs"],
        ("node", str(clients.HERE / "node" / "member.js")),
        has_static=False,
    ),
    Kind(_BY_NAME["franz-go"], (str(clients.FRANZ_GO), "member")),
    Kind(clients.JAVA, JAVA_MEMBER),
    Kind(clients.CONFLUENT, _python("confluent"), protocol="consumer"),
    Kind(clients.JAVA, JAVA_MEMBER, protocol="consumer"),
)
# So long a stopped static member may take to come back: a JVM starts in seconds.
CONSUMER_GROUPS = {
    "group_consumer_min_session_timeout_ms": 6_000,
    "group_consumer_session_timeout_ms": 12_000,
    "group_consumer_min_heartbeat_interval_ms": 500,
    "group_consumer_heartbeat_interval_ms": 500,
}


@dataclass
class Span:
    """A partition that was a member's own, from one time in milliseconds to another."""

    member: str
    partition: int
    since: int
    until: int | None = None


class MemberProcess:
    """One member, and what it has told so far."""

    def __init__(self, name: str, command: tuple[str, ...], arguments: list[str]) -> None:
        self.name = name
        self.spans: list[Span] = []
        self.seen: set[tuple[int, int]] = set()
        self.changes = 0
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the member
        self._process = subprocess.Popen(
            [*command, *arguments],
            cwd=jars.ROOT,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def own(self) -> set[int]:
        return {span.partition for span in self.spans if span.until is None}

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def leave(self) -> None:
        self._end(signal.SIGTERM)

    def tail(self) -> str:
        """What it complained about."""
        self._errors.seek(0)
        return self._errors.read()[-1500:].decode(errors="replace")

    def _end(self, number: int) -> None:
        until = round(time.time() * 1000)
        self._process.send_signal(number)
        self._process.wait(20)
        self._reader.join(5)
        for span in self.spans:
            span.until = until if span.until is None else min(span.until, until)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            line = json.loads(text)
            if line["event"] == "read":
                self.seen.update((partition, offset) for partition, offset in line["at"])
                continue
            self.changes += 1
            partitions = line.get("partitions", [])
            if line["event"] == "assigned":
                self.spans += [Span(self.name, one, line["t"]) for one in partitions]
            for span in self.spans:
                if line["event"] == "revoked" and span.partition in partitions:
                    span.until = line["t"] if span.until is None else span.until


@dataclass
class Scene:
    """One client's members and one broker."""

    kind: Kind
    server: Ottla
    members: list[MemberProcess] = field(default_factory=list)
    written: set[tuple[int, int]] = field(default_factory=set)
    steps: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.kind.name

    def start(self, name: str, instance: str = "-") -> MemberProcess:
        group = f"group-{self.name}"
        arguments = [self.server.bootstrap, self.name, group, instance, self.kind.protocol]
        member = MemberProcess(name, self.kind.command, arguments)
        self.members.append(member)
        return member

    def write(self) -> None:
        """Writes records into all partitions, and waits until they are read."""

        def delivered(error: object, message: object) -> None:
            assert error is None, error
            self.written.add((message.partition(), message.offset()))  # type: ignore[attr-defined]

        producer = Producer({"bootstrap.servers": self.server.bootstrap, "log_level": 0})
        for number in range(RECORDS):
            producer.produce(
                self.name,
                b"value %d" % number,
                partition=number % PARTITIONS,
                on_delivery=delivered,
            )
        assert producer.flush(30) == 0
        self.wait("every record is read", lambda: self.written <= self.seen)

    @property
    def seen(self) -> set[tuple[int, int]]:
        return set().union(*(member.seen for member in self.members))

    def settle(self, what: str, *members: MemberProcess) -> None:
        """These members share all partitions, and each has some."""
        everything = list(range(PARTITIONS))
        self.wait(
            what,
            lambda: (
                sorted(one for member in members for one in member.own) == everything
                and all(member.own for member in members)
            ),
        )

    def wait(self, what: str, is_so: Callable[[], bool]) -> None:
        started = time.perf_counter()
        while not is_so():
            if time.perf_counter() - started > JOIN_SECONDS_MAX:
                owned = {member.name: sorted(member.own) for member in self.members}
                complaints = "".join(member.tail() for member in self.members)
                missing = len(self.written - self.seen)
                raise AssertionError(
                    f"{self.name}: waited in vain until {what}; own {owned}, {missing} records"
                    f" not read; {complaints}"
                )
            time.sleep(0.02)
        self.steps.append(f"{time.perf_counter() - started:.1f}")

    def committed(self) -> dict[int, int]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.server.bootstrap,
                "group.id": f"group-{self.name}",
                "log_level": 0,
            }
        )
        asked = [TopicPartition(self.name, index) for index in range(PARTITIONS)]
        found = {one.partition: one.offset for one in consumer.committed(asked, 20)}
        consumer.close()
        return found

    def check_owners(self) -> None:
        """No partition has been two members' own at any time."""
        spans = sorted(
            (span for member in self.members for span in member.spans),
            key=lambda span: (span.partition, span.since),
        )
        for one, other in pairwise(spans):
            if one.partition == other.partition and one.member != other.member:
                assert one.until is not None, f"{self.name}: {one} is followed by {other}"
                assert one.until <= other.since, f"{self.name}: {one} is still there in {other}"


def play(scene: Scene) -> None:
    """The scene, from the first member to the last commit."""
    topics.create(scene.server.bootstrap, {scene.name: PARTITIONS})
    static = "c1" if scene.kind.has_static else "-"
    first, second = scene.start("first"), scene.start("second")
    third = scene.start("third", static)
    scene.settle("three members have joined", first, second, third)
    scene.write()
    first.kill()
    scene.settle("the killed one's partitions are taken over", second, third)
    scene.write()
    if scene.kind.has_static:
        changes, owned = second.changes, third.own
        if scene.kind.protocol == "classic":
            third.kill()
        else:
            third.leave()
        third = scene.start("third again", static)
        scene.settle("the static member is back", second, third)
        assert third.own == owned, f"{scene.name}: it had {owned}, now {third.own}"
        assert second.changes == changes, f"{scene.name}: the other one has noticed"
        scene.write()
    second.leave()
    scene.settle("the rest has what was left behind", third)
    scene.write()
    before = scene.committed()
    scene.server.kill()
    scene.server.start()
    assert scene.committed() == before, f"{scene.name}: commits before and after the kill differ"
    scene.write()
    scene.check_owners()


@contextmanager
def opened(kind: Kind, folder: Path) -> Iterator[Scene]:
    settings = {"group_initial_rebalance_delay_ms": 500, **CONSUMER_GROUPS}
    server = Ottla(folder / kind.name, **settings)
    scene = Scene(kind, server)
    try:
        server.start()
        yield scene
    finally:
        for member in scene.members:
            member.kill()
        server.close()


def run(names: list[str]) -> tuple[dict[str, str], list[str], list[str]]:
    """(what each client's steps took, failures, clients that cannot run here)."""
    present = [kind for kind in KINDS if not names or kind.client.name in names]
    skipped = [kind.name for kind in present if kind.client.missing()]
    present = [kind for kind in present if not kind.client.missing()]
    for client in {kind.client.name: kind.client for kind in present}.values():
        client.prepare()
    folder = Path(tempfile.mkdtemp(prefix="ottla-groups-"))
    done: dict[str, str] = {}
    failures: list[str] = []

    def act(kind: Kind) -> None:
        with opened(kind, folder) as scene:
            try:
                play(scene)
            except (AssertionError, OSError, RuntimeError, subprocess.SubprocessError) as error:
                failures.append(f"{kind.name}: {error}")
            else:
                done[kind.name] = " ".join(scene.steps)

    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(act, present))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return done, failures, skipped


@click.command()
@click.option("--only", default="", help="Client names, with commas.")
def main(only: str) -> None:
    """Plays the scene with every client that this machine has."""
    started = time.perf_counter()
    done, failures, skipped = run([name for name in only.split(",") if name])
    for name, steps in done.items():
        click.echo(f"{name}: seconds of each wait: {steps}")
    for line in failures:
        click.echo(f"FAILED {line}")
    for name in skipped:
        click.echo(f"skipped: {name}")
    click.echo(
        f"{len(done)} clients, {len(failures)} failures, {time.perf_counter() - started:.0f} s"
    )
    short = os.environ.get("CI") == "true" and skipped
    sys.exit(1 if failures or short or not done else 0)


if __name__ == "__main__":
    main()
