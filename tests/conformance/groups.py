"""Groups of unmodified clients: members that come, die, leave and return, and a broker that dies.

    python -m tests.conformance.groups [--only confluent-kafka,franz-go]

For each client: three members join, one of them static; one is killed; the static one is killed and
restarted while nobody else notices; one leaves; the broker is killed with SIGKILL and restarted.
By the consumer protocol (KIP-848) the static one is stopped and not killed: the name of one that
was killed is taken until its session is over.
Meanwhile records are written. Every record must be read and its offset committed, no partition may
have two owners at a time, and what was committed is committed after the kill. `make conformance`
runs it, too.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conformance import clients, scenes
from tests.conformance.scenes import java, python
from tests.peers import topics
from tests.peers.servers import Ottla

PARTITIONS = 6
RECORDS = 300
JOIN_SECONDS_MAX = 40.0
AT_ONCE = 3
"""Clients at a time, each with a broker of its own."""


@dataclass(frozen=True)
class Kind(scenes.Kind):
    """A client, whether it has static members, by which protocol they join, and how late the time
    may be that stands in a line of them."""

    has_static: bool = True
    protocol: str = "classic"
    late_ms_max: int = 0

    @property
    def name(self) -> str:
        client = self.client.name
        return client if self.protocol == "classic" else f"{client}-{self.protocol}"


_BY_NAME = {client.name: client for client in clients.CLIENTS}
# Those that take longest first, so that none is waited for at the end; not all JVMs at once.
KINDS = (
    Kind(clients.JAVA, java("Member.java")),
    Kind(clients.CONFLUENT, python("confluent"), protocol="consumer"),
    # Its static member leaves without saying its name, which Apache Kafka refuses, too.
    Kind(
        _BY_NAME["franz-go"],
        (str(clients.FRANZ_GO), "member"),
        has_static=False,
        protocol="consumer",
    ),
    Kind(clients.JAVA, java("Member.java"), protocol="consumer"),
    # Its lines get their time from who reads them, which may have to wait for a processor.
    Kind(_BY_NAME["kcat"], python("kcat"), late_ms_max=500),
    Kind(clients.CONFLUENT, python("confluent")),
    Kind(_BY_NAME["aiokafka"], python("aio")),
    Kind(_BY_NAME["kafka-python"], python("pure")),
    Kind(
        _BY_NAME["kafkajs"],
        ("node", str(clients.HERE / "node" / "member.js")),
        has_static=False,
    ),
    Kind(_BY_NAME["franz-go"], (str(clients.FRANZ_GO), "member")),
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


class Member:
    """One member, and what it has told so far."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.spans: list[Span] = []
        self.seen: set[tuple[int, int]] = set()
        self.changes = 0
        self._process = scenes.MemberProcess(command, self._told)
        self.tail = self._process.tail

    @property
    def own(self) -> set[int]:
        return {span.partition for span in self.spans if span.until is None}

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def leave(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        until = round(time.time() * 1000)
        self._process.end(number)
        for span in self.spans:
            span.until = until if span.until is None else min(span.until, until)

    def _told(self, line: dict[str, Any]) -> None:
        if line["event"] == "read":
            self.seen.update((partition, offset) for partition, offset in line["at"])
            return
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
    members: list[Member] = field(default_factory=list)
    written: set[tuple[int, int]] = field(default_factory=set)
    steps: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.kind.name

    def start(self, name: str, instance: str = "-") -> Member:
        group = f"group-{self.name}"
        arguments = [self.server.bootstrap, self.name, group, instance, self.kind.protocol]
        member = Member(name, [*self.kind.command, *arguments])
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

    def settle(self, what: str, *members: Member) -> None:
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
        self.steps.append(scenes.wait(is_so, JOIN_SECONDS_MAX, partial(self._complaint, what)))

    def _complaint(self, what: str) -> str:
        owned = {member.name: sorted(member.own) for member in self.members}
        complaints = "".join(member.tail() for member in self.members)
        missing = len(self.written - self.seen)
        return (
            f"{self.name}: waited in vain until {what}; own {owned}, {missing} records not read;"
            f" {complaints}"
        )

    @property
    def ends(self) -> dict[int, int]:
        """The offset after the last record of each partition."""
        return {
            one: max(offset for partition, offset in self.written if partition == one) + 1
            for one in range(PARTITIONS)
        }

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
        """No partition has been two members' own at any time, as far as the times are known."""
        spans = sorted(
            (span for member in self.members for span in member.spans),
            key=lambda span: (span.partition, span.since),
        )
        for one, other in pairwise(spans):
            if one.partition == other.partition and one.member != other.member:
                assert one.until is not None, f"{self.name}: {one} is followed by {other}"
                until = one.until - self.kind.late_ms_max
                assert until <= other.since, f"{self.name}: {one} is still there in {other}"


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
    scene.wait("every offset is committed", lambda: scene.committed() == scene.ends)
    scene.server.kill()
    scene.server.start()
    assert scene.committed() == scene.ends, f"{scene.name}: {scene.committed()}, {scene.ends}"
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


def run(names: list[str]) -> scenes.Ran:
    """The scene with every client that is named, or with all."""

    def act(kind: Kind, folder: Path) -> list[str]:
        with opened(kind, folder) as scene:
            play(scene)
            return scene.steps

    return scenes.run(KINDS, names, act, at_once=AT_ONCE, what="group")


@click.command()
@click.option("--only", default="", help="Client names, with commas.")
def main(only: str) -> None:
    """Plays the scene with every client that this machine has."""
    scenes.report("group", lambda: run([name for name in only.split(",") if name]))


if __name__ == "__main__":
    main()
