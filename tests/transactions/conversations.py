"""The conversations: each function is one trace. Here are ids and the enlisting of partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tests.transactions.ending_conversations import (
    ENDING,
    first_answers,
    meanwhile,
)
from tests.transactions.exhaustion_conversations import EXHAUSTION
from tests.transactions.inspection_conversations import INSPECTION
from tests.transactions.log_conversations import LOGS
from tests.transactions.names import STRANGE_PID
from tests.transactions.offset_conversations import OFFSETS
from tests.transactions.partition_conversations import PARTITIONS, markers_of_nobody
from tests.transactions.partition_scenario import PartitionScript

Conversation: TypeAlias = Callable[[Any], None]


def finding(s: PartitionScript) -> None:
    s.find("x", version=1)
    s.find("x", version=3)
    s.find("x", "y", version=4)
    s.find("x", version=6)
    s.find("", version=3)
    s.find("", version=6)


def initialising(s: PartitionScript) -> None:
    for version in (0, 1, 2):
        s.init("A", version=version)
    s.title("without a transactional id")
    s.init("B", None)
    s.init("B", None)
    s.init("B", None, timeout_ms=0)
    s.init("B", None, timeout_ms=-1)
    s.init("B", None, pid=STRANGE_PID, epoch=3)
    s.init("B", None, pid=STRANGE_PID, epoch=3, version=3)
    s.title("refused")
    s.init("C", "")
    s.init("C", "", version=0)
    for version in (1, 3, 4):
        s.init("C", "y", timeout_ms=0, version=version)
        s.init("C", "y", timeout_ms=-1, version=version)
        s.init("C", "y", timeout_ms=900_001, version=version)
    s.init("D", "y", version=6)
    s.init("C", "y", timeout_ms=900_000)
    s.describe("y")
    s.init("C", "y", timeout_ms=1)
    s.describe("y")


def initialising_again(s: PartitionScript) -> None:
    for version in (3, 4, 5):
        txn = f"x{version}"
        s.title(f"v{version}")
        s.init("A", txn, version=version)
        pid = s.producers["A"].pid
        s.again("A", version=version)
        s.title("its retry, with the epoch of before")
        s.again("A", version=version, epoch=0)
        s.title("wrong ones")
        s.again("A", version=version, epoch=2)
        s.again("A", version=version, epoch=7)
        s.again("A", version=version, pid=STRANGE_PID)
        s.again("A", version=version, pid=STRANGE_PID, epoch=0)
        s.init("A", txn, version=version, pid=pid, epoch=-1)
        s.init("A", txn, version=version, pid=-1, epoch=1)
        s.title("twice on, and the epoch of before that")
        s.again("A", version=version)
        s.again("A", version=version, epoch=0)
        s.again("A", version=version, epoch=1)
        s.title("another begins: the epoch of before is no retry any more")
        s.init("B", txn, version=version)
        s.again("A", version=version, epoch=2)
        s.again("B", version=version)


def initialising_with_strange_ids(s: PartitionScript) -> None:
    """An id that the coordinator has forgotten, or never knew."""
    s.init("A", pid=STRANGE_PID, epoch=3)
    s.init("A", "y", pid=STRANGE_PID, epoch=3, version=3)
    s.describe("x", "y")


def initialising_after_ending(s: PartitionScript) -> None:
    s.topic("t")
    s.title("after a commit of the new protocol")
    s.init("A")
    s.produce("A")
    s.end("A")
    s.again("A")
    s.title("with the epoch before the commit's")
    s.produce("A")
    s.end("A")
    epoch = s.producers["A"].epoch
    s.again("A", epoch=epoch - 1)
    s.init("A")
    s.title("after one of the old protocol")
    s.init("B", "y", version=4)
    s.add("B")
    s.end("B", version=4)
    s.again("B", version=4)
    s.init("B", "y", version=4)


def adding(s: PartitionScript) -> None:
    s.topic("t", 3)
    s.init("A")
    for version in (0, 1, 2, 3):
        s.title(f"v{version}")
        s.add("A", version=version)
        s.add("A", version=version)
        s.add("A", {"t": [0, version]}, version=version)
        s.add("A", {"nope": [0], "t": [1]}, version=version)
        s.add("A", {"t": [1, 9]}, version=version)
        s.add("A", {"t": [-1]}, version=version)
        s.add("A", {"__consumer_offsets": [0]}, version=version)
        s.add("A", {"__transaction_state": [0], "t": [1]}, version=version)
        s.add("A", {}, version=version)
        s.add("A", {"t": []}, version=version)
        s.add("A", {"t": [1, 1]}, version=version)
        s.describe()
        s.end("A", version=4)


def adding_refused(s: PartitionScript) -> None:
    s.topic("t")
    s.init("A")
    s.init("A")
    for version in (0, 1, 2, 3):
        s.title(f"v{version}")
        s.add("A", version=version, epoch=0)
        s.add("A", version=version, epoch=2)
        s.add("A", version=version, pid=STRANGE_PID)
        s.add("A", version=version, pid=-1)
        s.add("A", version=version, txn="nobody")
        s.add("A", version=version, txn="")
        s.add("A", {}, version=version, epoch=0)
        s.add("A", {"nope": [0], "t": [0]}, version=version, epoch=0)
    s.describe()


def adding_batched(s: PartitionScript) -> None:
    s.topic("t")
    s.init("A")
    s.init("B", "y")
    for version in (4, 5):
        s.title(f"v{version}")
        s.batched(("A", {"t": [0]}, {}), version=version)
        s.batched(("A", {"t": [0, 1]}, {}), ("B", {"t": [1]}, {}), version=version)
        s.batched(("A", {"t": [0]}, {"epoch": 7}), ("B", {"t": [0]}, {}), version=version)
        s.batched(("A", {"t": [0], "nope": [0]}, {}), version=version)
        s.batched(("A", {"__consumer_offsets": [0]}, {}), version=version)
        s.batched(("A", {"t": [0]}, {"pid": STRANGE_PID}), version=version)
        s.batched(("A", {"t": [0]}, {"txn": "nobody"}), version=version)
        s.batched(("A", {"t": [0]}, {"txn": ""}), version=version)
        s.batched(("A", {}, {}), version=version)
        s.describe("x", "y")


def adding_batched_twice(s: PartitionScript) -> None:
    """What Kafka does not expect of a broker that asks: one id twice, and none."""
    s.topic("t")
    s.init("A")
    s.batched(("A", {"t": [0]}, {}), ("A", {"t": [1]}, {}))
    s.describe("x")
    s.batched(("A", {"t": [0]}, {}), ("A", {"t": [1]}, {"epoch": 7}))
    s.batched()


def verifying(s: PartitionScript) -> None:
    s.topic("t")
    s.init("A")
    for version in (4, 5):
        s.title(f"v{version}: in no transaction, and in one")
        s.batched(("A", {"t": [0]}, {}), verify=True, version=version)
        s.add("A", {"t": [0]})
        s.batched(("A", {"t": [0]}, {}), verify=True, version=version)
        s.batched(("A", {"t": [1]}, {}), verify=True, version=version)
        s.batched(("A", {"t": [0, 1]}, {}), verify=True, version=version)
        s.batched(("A", {"nope": [0]}, {}), verify=True, version=version)
        s.batched(("A", {"t": [0]}, {"epoch": 7}), verify=True, version=version)
        s.batched(("A", {"t": [0]}, {"pid": STRANGE_PID}), verify=True, version=version)
        s.batched(("A", {"t": [0]}, {"txn": "nobody"}), verify=True, version=version)
        s.batched(("A", {"t": [0]}, {"txn": ""}), verify=True, version=version)
        s.end("A", version=4)
        s.batched(("A", {"t": [0]}, {}), verify=True, version=version)


def adding_offsets(s: PartitionScript) -> None:
    s.topic("t")
    s.init("A")
    s.init("A")
    for version in (0, 1, 2, 3, 4):
        s.title(f"v{version}")
        s.add_offsets("A", version=version)
        s.add_offsets("A", version=version)
        s.add_offsets("A", version=version, epoch=0)
        s.add_offsets("A", version=version, epoch=2)
        s.add_offsets("A", version=version, pid=STRANGE_PID)
        s.add_offsets("A", version=version, txn="nobody")
        s.add_offsets("A", version=version, txn="")
    s.end("A", version=4)
    s.title("a group without a name")
    s.add_offsets("A", "")
    s.describe()
    s.end("A", version=4)


CONVERSATIONS: tuple[Conversation, ...] = (
    finding,
    initialising,
    initialising_again,
    initialising_with_strange_ids,
    initialising_after_ending,
    adding,
    adding_refused,
    adding_batched,
    verifying,
    adding_offsets,
    *ENDING,
    *OFFSETS,
    *PARTITIONS,
    *INSPECTION,
    *LOGS,
)
SHOWN_ONLY: tuple[Conversation, ...] = (
    first_answers,
    meanwhile,
    adding_batched_twice,
    markers_of_nobody,
)
"""What Kafka answers depends on the moment, or is no model: nobody is compared with it."""
LONG: tuple[Conversation, ...] = EXHAUSTION
"""They wear out the epochs of an id, one by one."""
