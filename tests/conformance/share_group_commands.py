"""Apache Kafka's kafka-share-groups: on a group with a member, which refuses most, and without."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import ShareConsumer

from tests.conformance.command_process import TOOLS, Commands, Row, among, refused, whole
from tests.conformance.group_commands import ERRORS, LISTED, Topic

CLIENT = "share"
COMMAND = f"{TOOLS}.consumer.group.ShareGroupCommand"
OFFSETS = "GROUP TOPIC PARTITION START-OFFSET LAG"
MEMBERS = "GROUP CONSUMER-ID HOST CLIENT-ID #PARTITIONS"
STATES = "GROUP COORDINATOR (ID) STATE"


@contextmanager
def _joined(commands: Commands, bootstrap: str, topic: str) -> Iterator[None]:
    """A member that has all partitions and takes no records; it leaves at the end."""
    consumer = ShareConsumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "client.id": CLIENT, "log_level": 0}
    )
    consumer.subscribe([topic])
    try:
        # With the broker's default, to begin at the end, there is nothing that comes.
        assert not consumer.poll(0.5)
        members = (COMMAND, "--group", topic, "--describe", "--members")
        commands.wait(among(members, f"{topic} ... /127.0.0.1 {CLIENT} 2 {topic}:0,1"))
        yield
    finally:
        consumer.close()


def _while_live(bootstrap: str, topic: str) -> list[Row]:
    """It is shown, and neither reset nor deleted."""
    command = (COMMAND, "--group", topic)
    describe = (*command, "--describe")
    subscribed = "Error: The group is not empty."
    return [
        whole(describe, OFFSETS, f"{topic} {topic} 0 - -", f"{topic} {topic} 1 - -"),
        whole(
            (*describe, "--offsets", "--verbose"),
            "GROUP TOPIC PARTITION LEADER-EPOCH START-OFFSET LAG",
            f"{topic} {topic} 0 - - -",
            f"{topic} {topic} 1 - - -",
        ),
        whole(
            (*describe, "--members", "--verbose"),
            f"{MEMBERS} MEMBER-EPOCH ASSIGNMENT",
            f"{topic} ... /127.0.0.1 {CLIENT} 2 ... {topic}:0,1",
        ),
        whole((*describe, "--state"), f"{STATES} #MEMBERS", f"{topic} {bootstrap} (1) Stable 1"),
        whole(
            (*describe, "--state", "--verbose"),
            f"{STATES} GROUP-EPOCH ASSIGNMENT-EPOCH #MEMBERS",
            f"{topic} {bootstrap} (1) Stable ... 1",
        ),
        among((COMMAND, "--list"), topic),
        among((COMMAND, "--list", "--state"), "GROUP STATE", f"{topic} Stable"),
        among((COMMAND, "--list", "--state", "Empty"), lacks=topic),
        among((LISTED, "--list", "--share"), "GROUP TYPE PROTOCOL", f"{topic} Share share"),
        refused(
            (*command, "--reset-offsets", "--to-earliest", "--topic", topic, "--execute"),
            f"Share group '{topic}' is not empty.",
        ),
        whole(
            (*command, "--delete-offsets", "--topic", topic),
            subscribed,
            "TOPIC STATUS",
            f"{topic} {subscribed}",
        ),
        whole(
            (*command, "--delete"),
            "Error: Deletion of some share groups failed:",
            f"* Group '{topic}' could not be deleted due to: {ERRORS}.GroupNotEmptyException: "
            f"Share group '{topic}' is not EMPTY.",
        ),
    ]


def _when_empty(topic: Topic) -> list[Row]:
    """It is reset in every way, and deleted."""
    name = topic.name
    command = (COMMAND, "--group", name)
    describe = (*command, "--describe")
    deleting = (*command, "--delete-offsets", "--topic")
    hours, younger = topic.aged_hours
    when = time.strftime("%Y-%m-%dT%H:%M:%S.000", time.gmtime(time.time() - hours * 3600))
    resets: list[Row] = []
    for how, offset in (
        (("--to-latest",), topic.end),
        (("--to-datetime", when), younger),
        (("--to-earliest",), topic.start),
    ):
        resetting = (*command, "--reset-offsets", "--topic", f"{name}:0", *how)
        reset = ("GROUP TOPIC PARTITION NEW-OFFSET", f"{name} {name} 0 {offset}")
        shown = f"{name} {name} 0 {offset} {topic.end - offset}"
        resets += [
            whole((*resetting, "--dry-run"), *reset),
            whole((*resetting, "--execute"), *reset),
            whole(describe, OFFSETS, shown, f"{name} {name} 1 - -"),
        ]
    return [
        whole((*describe, "--members"), f"Share group '{name}' has no active members."),
        *resets,
        whole((*deleting, name), "TOPIC STATUS", f"{name} Successful"),
        whole(
            (*deleting, "unknown"),
            "TOPIC STATUS",
            "unknown Error: This server does not host this topic-partition.",
        ),
        whole(
            (*deleting, name),
            "TOPIC STATUS",
            f"{name} Error: There is no offset information to delete.",
        ),
        whole(describe, f"Share group '{name}' has no offset information."),
        whole(
            (*command, "--delete"), f"Deletion of requested share groups ('{name}') was successful."
        ),
        among(describe, f"Error: ...GroupIdNotFoundException: Group {name} not found."),
        among((COMMAND, "--list"), lacks=name),
    ]


def run(commands: Commands, bootstrap: str, topic: Topic) -> None:
    """Raises CommandError if a row is answered otherwise."""
    with _joined(commands, bootstrap, topic.name):
        commands.check(*_while_live(bootstrap, topic.name))
    state = (COMMAND, "--group", topic.name, "--describe", "--state")
    commands.wait(among(state, f"{topic.name} {bootstrap} (1) Empty 0"))
    commands.check(*_when_empty(topic))
