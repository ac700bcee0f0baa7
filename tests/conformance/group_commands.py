"""Apache Kafka's commands for groups: on one with a member, which refuses most, and when it left.

They are asked of a classic group and of one by KIP-848. Each has one member, which has committed
offset 4 of partition 0 and offset 0 of partition 1.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.conformance.command_process import GROUPS, TOOLS, Commands, Row, among, whole

COMMITTED = 4
JOIN_SECONDS_MAX = 30.0
LISTED = f"{TOOLS}.GroupsCommand"
PLACES = "GROUP TOPIC PARTITION"
OFFSETS = "CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
MEMBERS = "GROUP CONSUMER-ID HOST CLIENT-ID #PARTITIONS"
STATES = "GROUP COORDINATOR (ID) ASSIGNMENT-STRATEGY STATE"
DELETED = "TOPIC PARTITION STATUS"
ERRORS = "org.apache.kafka.common.errors"


@dataclass(frozen=True)
class Topic:
    """A topic of two partitions, the second of which is empty."""

    name: str
    start: int
    end: int
    aged_hours: tuple[float, int]
    """An age, and the first offset of partition 0 that is younger."""


@dataclass(frozen=True)
class Group:
    """A group of one member, by either protocol."""

    protocol: str
    bootstrap: str
    topic: Topic

    @property
    def name(self) -> str:
        return f"{self.topic.name}-{self.protocol}"

    @property
    def _assignor(self) -> str:
        return "range" if self.protocol == "classic" else "uniform"

    def _command(self, *arguments: str) -> tuple[str, ...]:
        return (GROUPS, "--group", self.name, *arguments)

    def _offsets(self, committed: dict[int, int], member: str, epoch: str = "") -> list[str]:
        ends = {0: self.topic.end, 1: 0}
        return [
            f"{self.name} {self.topic.name} {partition} {epoch}{offset} {ends[partition]}"
            f" {ends[partition] - offset} {member}"
            for partition, offset in committed.items()
        ]

    @contextmanager
    def joined(self) -> Iterator[str]:
        """The member, by its id; it leaves at the end."""
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.name,
            "client.id": self.protocol,
            "group.protocol": self.protocol,
            "enable.auto.commit": False,
            "log_level": 0,
        }
        consumer = Consumer(settings)
        try:
            consumer.subscribe([self.topic.name])
            deadline = time.monotonic() + JOIN_SECONDS_MAX
            while len(consumer.assignment()) < 2:
                consumer.poll(0.1)
                assert time.monotonic() < deadline, f"{self.name} has no member"
            places = {0: COMMITTED, 1: 0}
            consumer.commit(
                offsets=[TopicPartition(self.topic.name, *one) for one in places.items()],
                asynchronous=False,
            )
            member = consumer.memberid()
            assert member is not None
            yield member
        finally:
            consumer.close()

    def state(self, state: str, members: int) -> Row:
        """The row that says what its state is."""
        # An empty classic group has none: the next members may bring another.
        assignor = "-" if self.protocol == "classic" and not members else self._assignor
        coordinator = f"{self.bootstrap} (1)"
        return among(
            self._command("--describe", "--state"),
            f"{STATES} #MEMBERS",
            f"{self.name} {coordinator} {assignor} {state} {members}",
        )

    def while_live(self, member: str) -> list[Row]:
        """It is shown, and neither reset nor deleted."""
        name, topic = self.name, self.topic.name
        client = f"{member} /127.0.0.1 {self.protocol}"
        committed = {0: COMMITTED, 1: 0}
        is_classic = self.protocol == "classic"
        columns = "CURRENT-EPOCH CURRENT-ASSIGNMENT TARGET-EPOCH TARGET-ASSIGNMENT"
        places = f"{topic}:0,1"
        assigned = f"- {places} - -" if is_classic else f"2 {places} 2 {places}"
        subscribed = (
            f"Error: {ERRORS}.GroupSubscribedToTopicException: Deleting offsets of a topic is "
            "forbidden while the consumer group is actively subscribed to it."
        )
        return [
            whole(
                self._command("--describe"),
                f"{PLACES} {OFFSETS}",
                *self._offsets(committed, client),
            ),
            whole(
                self._command("--describe", "--offsets", "--verbose"),
                f"{PLACES} LEADER-EPOCH {OFFSETS}",
                *self._offsets(committed, client, "- "),
            ),
            whole(self._command("--describe", "--members"), MEMBERS, f"{name} {client} 2"),
            whole(
                self._command("--describe", "--members", "--verbose"),
                f"{MEMBERS} {columns}",
                f"{name} {client} 2 {assigned}",
            ),
            whole(
                self._command("--describe", "--state", "--verbose"),
                f"{STATES} GROUP-EPOCH TARGET-ASSIGNMENT-EPOCH #MEMBERS",
                f"{name} {self.bootstrap} (1) {self._assignor} Stable "
                f"{'- -' if is_classic else '2 2'} 1",
            ),
            *self._listed("Stable"),
            whole(
                self._command("--reset-offsets", "--to-earliest", "--topic", topic, "--execute"),
                f"Error: Assignments can only be reset if the group '{name}' is inactive, but the "
                "current state is Stable.",
                f"{PLACES} NEW-OFFSET",
            ),
            whole(
                self._command("--delete-offsets", "--topic", topic),
                "Error: Encountered some partition-level error, see the follow-up details.",
                DELETED,
                *(f"{topic} {partition} {subscribed}" for partition in committed),
            ),
            whole(
                self._command("--delete"),
                "Error: Deletion of some consumer groups failed:",
                f"* Group '{name}' could not be deleted due to: {ERRORS}.GroupNotEmptyException: "
                "The group is not empty.",
            ),
        ]

    def _listed(self, state: str) -> list[Row]:
        name = self.name
        kind, other = (
            ("Classic", "consumer") if self.protocol == "classic" else ("Consumer", "classic")
        )
        grouped = f"{name} {kind} consumer"
        return [
            among((GROUPS, "--list"), name),
            among((GROUPS, "--list", "--state"), "GROUP STATE", f"{name} {state}"),
            among((GROUPS, "--list", "--type"), "GROUP TYPE", f"{name} {kind}"),
            among((GROUPS, "--list", "--type", self.protocol), f"{name} {kind}"),
            among((GROUPS, "--list", "--type", other), lacks=name),
            among((GROUPS, "--list", "--state", state), f"{name} {state}"),
            among((GROUPS, "--list", "--state", "Dead"), lacks=name),
            among((LISTED, "--list"), "GROUP TYPE PROTOCOL", grouped),
            among((LISTED, "--list", "--consumer"), grouped),
            among((LISTED, "--list", "--group-type", self.protocol), grouped),
            among((LISTED, "--list", "--group-type", other), lacks=name),
            among((LISTED, "--list", "--share"), lacks=name),
        ]

    def when_empty(self, folder: Path) -> list[Row]:
        """It is reset in every way, and deleted."""
        name, topic = self.name, self.topic.name
        alone = f"Consumer group '{name}' has no active members."
        describe = self._command("--describe")
        gone = f"{ERRORS}.GroupIdNotFoundException: The group id does not exist."

        def described(committed: dict[int, int]) -> Row:
            lines = self._offsets(committed, "- - -")
            return whole(describe, alone, f"{PLACES} {OFFSETS}", *lines)

        deleting = self._command("--delete-offsets", "--topic")
        return [
            described({0: COMMITTED, 1: 0}),
            whole(self._command("--describe", "--members"), alone, MEMBERS),
            *self._listed("Empty"),
            *self._resets(folder),
            described({0: self.topic.end - 1, 1: 0}),
            whole(
                (*deleting, f"{topic}:1"),
                f"Request succeeded for deleting offsets from group {name}.",
                DELETED,
                f"{topic} 1 Successful",
            ),
            among(
                (*deleting, "unknown"),
                f"unknown - Error: {ERRORS}.UnknownTopicOrPartitionException: This server does not "
                "host this topic-partition.",
            ),
            described({0: self.topic.end - 1}),
            whole(
                self._command("--delete"),
                f"Deletion of requested consumer groups ('{name}') was successful.",
            ),
            whole(
                self._command("--delete"),
                "Error: Deletion of some consumer groups failed:",
                f"* Group '{name}' could not be deleted due to: {gone}",
            ),
            among((*deleting, topic), "Error: The group id does not exist."),
            among(describe, f"Error: ...GroupIdNotFoundException: Group {name} not found."),
        ]

    def _resets(self, folder: Path) -> list[Row]:
        """Each is from where the one before has left it."""
        start, end = self.topic.start, self.topic.end
        hours, younger = self.topic.aged_hours
        age = f"PT{int(hours)}H{round(hours % 1 * 60)}M"
        when = time.strftime("%Y-%m-%dT%H:%M:%S.000", time.gmtime(time.time() - hours * 3600))
        path = folder / "offsets.csv"
        path.write_text(f"{self.topic.name},0,{end - 1}\n")
        resetting = self._command("--reset-offsets")
        steps: list[tuple[tuple[str, ...], int]] = [
            (("--to-offset", "3"), 3),
            (("--shift-by", "2"), 5),
            (("--shift-by", "-1"), 4),
            (("--shift-by", "-99"), start),
            (("--to-offset", "99"), end),
            (("--by-duration", age), younger),
            (("--to-latest",), end),
            (("--to-datetime", when), younger),
            (("--to-current",), younger),
        ]
        rows = [
            self._reset((*resetting, "--topic", f"{self.topic.name}:0", *how), {0: offset})
            for how, offset in steps
        ]
        everything = (*resetting, "--all-topics")
        return [
            *rows,
            whole(
                (*everything, "--to-earliest", "--dry-run"),
                f"{PLACES} NEW-OFFSET",
                f"{self.name} {self.topic.name} 0 {start}",
                f"{self.name} {self.topic.name} 1 0",
            ),
            whole(
                (*everything, "--to-current", "--export", "--dry-run"),
                f"{self.topic.name},0,{younger}",
                f"{self.topic.name},1,0",
            ),
            self._reset((*everything, "--to-earliest"), {0: start, 1: 0}),
            self._reset((*resetting, "--from-file", str(path)), {0: end - 1}),
        ]

    def _reset(self, command: tuple[str, ...], offsets: dict[int, int]) -> Row:
        return whole(
            (*command, "--execute"),
            f"{PLACES} NEW-OFFSET",
            *(f"{self.name} {self.topic.name} {one} {offset}" for one, offset in offsets.items()),
        )


def run(commands: Commands, bootstrap: str, topic: Topic, folder: Path) -> None:
    """Raises CommandError if a row is answered otherwise."""
    for protocol in ("classic", "consumer"):
        group = Group(protocol, bootstrap, topic)
        with group.joined() as member:
            commands.wait(group.state("Stable", 1))
            commands.check(*group.while_live(member))
        commands.wait(group.state("Empty", 0))
        commands.check(*group.when_empty(folder))
