"""What administrators are told of transactions."""

from __future__ import annotations

from tests.transactions.names import STRANGE_PID
from tests.transactions.offset_scenario import OffsetScript


def describing(s: OffsetScript) -> None:
    s.topic("t")
    s.describe("x")
    s.describe("")
    s.init("A")
    s.describe("x")
    s.title("Ongoing")
    s.produce("A", 1)
    s.produce("A", 0)
    s.commit_offsets("A")
    s.describe("x")
    s.describe("x", "nobody", "x")
    s.end("A")
    s.describe("x")
    s.produce("A")
    s.end("A", commit=False)
    s.describe("x")
    s.init("A")
    s.describe("x")


def listing(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A", "empty")
    s.init("B", "ongoing")
    s.produce("B")
    s.init("C", "committed")
    s.produce("C")
    s.end("C")
    s.init("D", "aborted")
    s.produce("D")
    s.end("D", commit=False)
    pids = {who: s.producers[who].pid for who in "ABCD"}
    everybody = tuple(pids.values())
    s.title("by id of the producer, in every version")
    for version in (0, 1, 2):
        s.list_transactions(pids=everybody, version=version)
        s.list_transactions(pids=(pids["A"], STRANGE_PID), version=version)
    s.title("by state")
    s.list_transactions(states=("Ongoing",), pids=everybody)
    s.list_transactions(states=("CompleteCommit", "CompleteAbort"), pids=everybody)
    s.list_transactions(states=("Empty", "Nonsense", "ongoing"), pids=everybody)
    s.list_transactions(states=("Nonsense",), pids=everybody)
    s.list_transactions(
        states=("Dead", "PrepareEpochFence", "PrepareCommit", "PrepareAbort"), pids=everybody
    )
    s.list_transactions(states=("",), pids=everybody)


def listing_by_age(s: OffsetScript) -> None:
    """Those that never began count from the beginning of time."""
    s.topic("t")
    s.init("A", "empty")
    s.init("B", "ongoing")
    s.produce("B")
    s.init("C", "committed")
    s.produce("C")
    s.end("C")
    pids = tuple(s.producers[who].pid for who in "ABC")
    s.list_transactions(pids=pids, duration=-1)
    s.list_transactions(pids=pids, duration=0)
    s.list_transactions(pids=pids, duration=10**12)
    s.list_transactions(pids=pids, duration=10**15)
    s.list_transactions(pids=pids, duration=-5)


def listing_by_pattern(s: OffsetScript) -> None:
    s.init("A", "orders")
    s.init("B", "payments")
    pids = (s.producers["A"].pid, s.producers["B"].pid)
    s.list_transactions(pids=pids, pattern="orders-.*")
    s.list_transactions(pids=pids, pattern=".*(order|pay).*")
    s.list_transactions(pids=pids, pattern="orders")
    s.list_transactions(pids=pids, pattern="order|pay")
    s.list_transactions(pids=pids, pattern=".*")
    s.list_transactions(pids=pids, pattern="nothing")
    s.list_transactions(pids=pids, pattern="")
    s.list_transactions(pids=pids, pattern="[")
    s.list_transactions(pids=pids, pattern="*")


INSPECTION = (
    describing,
    listing,
    listing_by_age,
    listing_by_pattern,
)
