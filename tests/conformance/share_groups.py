"""Share groups (KIP-932) of unmodified clients: records acknowledged one by one, as from a queue.

    python -m tests.conformance.share_groups [--only confluent-kafka,kafka-clients]

For each client: one member takes records and says nothing of them, so their locks end; two members
accept, release and reject, and renew locks, which Java's client alone can; the broker is killed
with SIGKILL while they do; a last member leaves the accepting to its client. What the broker has
taken must not come again, what is released must, up to the delivery limit, and nothing may be left
out. `make conformance` runs it, too; Apache Kafka's command is in share_group_commands.py.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Producer, admin

from tests.conformance import clients, scenes
from tests.conformance.scenes import MemberProcess, java, python
from tests.peers import jars, topics
from tests.peers.servers import Ottla

PARTITIONS = 2
RECORDS = 140
HELD_RECORDS = 14
DELIVERY_LIMIT = 3
LOCK_MS = 1_500
WAIT_SECONDS_MAX = 30.0
RELEASE = 2
POISON = 6
"""The remainder of the numbers of records that are released whenever they come."""
RENEWED = {74, 81, 88, 95}
"""Numbers of records whose locks are renewed until the one that they came with would have ended."""
SETTINGS = {
    "group_share_record_lock_duration_ms": LOCK_MS,
    "group_share_min_record_lock_duration_ms": LOCK_MS,
    "group_share_delivery_count_limit": DELIVERY_LIMIT,
    "group_share_assignment_interval_ms": 0,
    "group_share_heartbeat_interval_ms": 500,
    "group_share_min_heartbeat_interval_ms": 500,
    "group_share_session_timeout_ms": 5_000,
    "group_share_min_session_timeout_ms": 5_000,
}
COMMAND = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"

Place = tuple[int, int]


@dataclass(frozen=True)
class Kind(scenes.Kind):
    """A client, and whether it can renew locks (KIP-1222)."""

    renews: bool = False


KINDS = (
    Kind(clients.CONFLUENT, python("share")),
    Kind(clients.JAVA, java("ShareMember.java"), renews=True),
)


@dataclass
class Scene:
    """One client's members and one broker."""

    kind: Kind
    server: Ottla
    members: list[MemberProcess] = field(default_factory=list)
    numbers: dict[Place, int] = field(default_factory=dict)
    held: set[Place] = field(default_factory=set)
    counts: dict[Place, list[int]] = field(default_factory=dict)
    settled: set[Place] = field(default_factory=set)
    lost: set[Place] = field(default_factory=set)
    """Nobody knows whether the broker took what was said of them: they may come again or not."""
    renewed_at: dict[Place, int] = field(default_factory=dict)
    renewed_ms: dict[int, int] = field(default_factory=dict)
    """By number of the record: from its first renewal until it was accepted."""
    faults: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def group(self) -> str:
        return f"share-{self.name}"

    def start(self, how: str) -> MemberProcess:
        arguments = [self.server.bootstrap, self.name, self.group, how]
        member = MemberProcess([*self.kind.command, *arguments], self._told)
        self.members.append(member)
        return member

    def write(self, count: int) -> None:
        first = len(self.numbers)

        def delivered(error: object, message: object) -> None:
            assert error is None, error
            place = (message.partition(), message.offset())  # type: ignore[attr-defined]
            self.numbers[place] = int(message.value())  # type: ignore[attr-defined]

        producer = Producer({"bootstrap.servers": self.server.bootstrap, "log_level": 0})
        for number in range(first, first + count):
            producer.produce(
                self.name, b"%d" % number, partition=number % PARTITIONS, on_delivery=delivered
            )
        assert producer.flush(30) == 0

    def wait(self, what: str, is_so: Callable[[], bool]) -> None:
        self.steps.append(scenes.wait(is_so, WAIT_SECONDS_MAX, partial(self._complaint, what)))

    def _complaint(self, what: str) -> str:
        complaints = "".join(member.tail() for member in self.members)
        missing = sorted(self.numbers.keys() - self.settled - self.lost)[:10]
        return f"{self.name}: waited in vain until {what}; not settled: {missing}; {complaints}"

    def all_settled(self) -> bool:
        return self.numbers.keys() <= self.settled | self.lost

    def check(self) -> None:
        assert not self.faults, f"{self.name}: {self.faults[:5]}"

    def _told(self, line: dict[str, Any]) -> None:
        event = line["event"]
        for partition, offset, count, kind in line["at"]:
            place = (partition, offset)
            if event in ("held", "lost"):
                (self.held if event == "held" else self.lost).add(place)
                continue
            if event == "renewed":
                self.renewed_at.setdefault(place, line["t"])
                continue
            if place in self.renewed_at:
                self.renewed_ms[self.numbers[place]] = line["t"] - self.renewed_at[place]
            counts = self.counts.setdefault(place, [])
            # What one member released may be told after what another did with its next delivery.
            if count in counts or (place in self.settled and count > max(counts)):
                self.faults.append(f"{place} came {counts} times, settled, and again: {count}")
            counts.append(count)
            if kind != RELEASE or count >= DELIVERY_LIMIT:
                self.settled.add(place)


def play(scene: Scene) -> None:
    """The scene, from the first record to the last."""
    topics.create(scene.server.bootstrap, {scene.name: PARTITIONS})
    _begin_at_the_earliest(scene)
    scene.write(HELD_RECORDS)
    holder = scene.start("hold")
    scene.wait("a member holds records", lambda: bool(scene.held))
    workers = [scene.start("work"), scene.start("work")]
    scene.wait("the locks of what was held have ended", scene.all_settled)
    scene.check()
    again = [min(scene.counts[place]) for place in scene.held]
    assert all(count >= 2 for count in again), f"{scene.name}: held, and came as new: {again}"
    holder.end(signal.SIGKILL)
    scene.write(RECORDS)
    scene.wait("everything is settled", scene.all_settled)
    scene.check()
    for place, number in scene.numbers.items():
        expected = 2 if number % 7 == 5 else DELIVERY_LIMIT if number % 7 == POISON else 1
        counts = scene.counts.get(place, [0])  # what is lost may not have come again
        assert max(counts) == expected or place in scene.held, (
            f"{scene.name}: {place} came {counts}, expected {expected} times"
        )
    if scene.kind.renews:
        assert scene.renewed_ms.keys() == RENEWED, f"{scene.name}: renewed {scene.renewed_ms}"
        assert min(scene.renewed_ms.values()) > LOCK_MS, f"{scene.name}: {scene.renewed_ms}"
    scene.write(RECORDS)
    scene.server.kill()
    scene.server.start()
    scene.write(HELD_RECORDS)
    scene.wait("everything is settled after the broker was killed", scene.all_settled)
    for worker in workers:
        worker.end()
    scene.write(HELD_RECORDS)
    implicit = scene.start("implicit")
    scene.wait("everything is accepted by a client of its own accord", scene.all_settled)
    implicit.end()
    scene.check()


def check_lag(scene: Scene) -> None:
    """By Apache Kafka's command, the broker knows of each record that it was taken."""
    command = ("--bootstrap-server", scene.server.bootstrap, "--describe", "--group", scene.group)
    done = subprocess.run(
        jars.java(COMMAND, *command), capture_output=True, text=True, timeout=60, check=True
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    lags = {row[2]: row[-1] for row in rows if row and row[0] == scene.group}
    assert lags == {str(one): "0" for one in range(PARTITIONS)}, f"{scene.name}: lags {lags}"


def _begin_at_the_earliest(scene: Scene) -> None:
    kinds: Any = admin  # its stubs leave out what its own documents import
    entry = kinds.ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=kinds.AlterConfigOpType.SET
    )
    resource = kinds.ConfigResource(
        kinds.ResourceType.GROUP, scene.group, incremental_configs=[entry]
    )
    client = kinds.AdminClient({"bootstrap.servers": scene.server.bootstrap, "log_level": 0})
    for future in client.incremental_alter_configs([resource]).values():
        future.result(20)


@contextmanager
def opened(kind: Kind, folder: Path) -> Iterator[Scene]:
    server = Ottla(folder / kind.name, **SETTINGS)
    scene = Scene(kind, server)
    try:
        server.start()
        yield scene
    finally:
        for member in scene.members:
            member.end(signal.SIGKILL)
        server.close()


def run(names: list[str]) -> scenes.Ran:
    """The scene with every client that is named, or with all."""

    def act(kind: Kind, folder: Path) -> list[str]:
        with opened(kind, folder) as scene:
            play(scene)
            check_lag(scene)
            return scene.steps

    return scenes.run(KINDS, names, act, at_once=len(KINDS), what="share group")


@click.command()
@click.option("--only", default="", help="Client names, with commas.")
def main(only: str) -> None:
    """Plays the scene with every client that this machine has."""
    scenes.report("share group", lambda: run([name for name in only.split(",") if name]))


if __name__ == "__main__":
    main()
