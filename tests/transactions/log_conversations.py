"""What the coordinators write into their topics."""

from __future__ import annotations

from collections.abc import Callable

from tests.transactions.log_scenario import LogScript


def log_of_initialising(s: LogScript) -> None:
    s.init("A")
    s.init("A")
    s.init("B", "y", version=1)
    s.again("B")
    s.show_transactions()
    s.show_transactions("y")


def log_of_old_commit(s: LogScript) -> None:
    s.topic("t")
    s.init("A", version=4)
    s.add("A")
    s.add("A", {"t": [0, 1]})
    s.add("A")
    s.produce("A", version=11)
    s.end("A", version=4)
    s.title("the same epoch again")
    s.add("A")
    s.end("A", version=4)
    s.show_transactions()


def log_of_old_abort(s: LogScript) -> None:
    s.topic("t")
    s.init("A", version=4)
    s.add("A")
    s.produce("A", version=11)
    s.end("A", commit=False, version=4)
    s.init("A", version=4)
    s.show_transactions()


def log_of_new_commit(s: LogScript) -> None:
    s.topic("t")
    s.init("A")
    s.produce("A")
    s.produce("A", 1)
    s.end("A")
    s.produce("A")
    s.end("A")
    s.show_transactions()


def log_of_new_abort(s: LogScript) -> None:
    s.topic("t")
    s.init("A")
    s.produce("A")
    s.end("A", commit=False)
    s.end("A", commit=False)
    s.show_transactions()


def log_of_initialising_afterwards(s: LogScript) -> None:
    s.topic("t")
    s.title("after a new commit")
    s.init("A")
    s.produce("A")
    s.end("A")
    s.init("A")
    s.title("with the id and epoch")
    s.produce("A")
    s.end("A")
    s.again("A")
    s.show_transactions()


def log_of_fencing_new(s: LogScript) -> None:
    s.topic("t")
    s.init("A")
    s.produce("A")
    s.init("B")
    s.show_transactions()


def log_of_fencing_old(s: LogScript) -> None:
    s.topic("t")
    s.init("A", version=4)
    s.add("A")
    s.init("B", version=4)
    s.show_transactions()


def log_of_mixed_versions(s: LogScript) -> None:
    s.topic("t")
    s.title("an old client after a new one")
    s.init("A")
    s.produce("A")
    s.end("A")
    s.add("A")
    s.end("A", version=4)
    s.title("and a new one after an old one")
    s.produce("A")
    s.end("A")
    s.title("a transaction that began old and ends new")
    s.add("A")
    s.end("A")
    s.title("one that began new and ends old")
    s.produce("A")
    s.end("A", version=4)
    s.show_transactions()


def log_of_timeout_new(s: LogScript) -> None:
    s.topic("t")
    s.init("A", timeout_ms=500)
    s.produce("A")
    s.expire()
    s.describe()
    s.show_transactions()


def log_of_timeout_old(s: LogScript) -> None:
    s.topic("t")
    s.init("A", version=4, timeout_ms=500)
    s.add("A")
    s.produce("A", version=11)
    s.expire()
    s.describe()
    s.show_transactions()


def log_of_offsets(s: LogScript) -> None:
    s.topic("t")
    s.init("A")
    s.commit_offsets("A", 5)
    s.commit_offsets("A", 6, places={"t": [0, 1]})
    s.end("A")
    s.commit_offsets("A", 7)
    s.end("A", commit=False)
    s.title("by an old client")
    s.add_offsets("A")
    s.commit_offsets("A", 8, version=3)
    s.end("A", version=4)
    s.show_transactions()
    s.show_offsets()


def log_of_batched(s: LogScript) -> None:
    """AddPartitionsToTxn as brokers send it."""
    s.topic("t")
    s.init("A")
    s.batched(("A", {"t": [0]}, {}))
    s.batched(("A", {"t": [0]}, {}), verify=True)
    s.batched(("A", {"t": [0]}, {}))
    s.batched(("A", {"t": [0, 1]}, {}), version=5)
    s.end("A")
    s.title("added by an old client, and once more by a new one")
    s.add("A")
    s.produce("A")
    s.title("and another partition")
    s.produce("A", 1)
    s.end("A")
    s.show_transactions()


def log_of_ending_nothing(s: LogScript) -> None:
    """EndTxn in the new protocol where there is no transaction."""
    s.init("A")
    s.end("A", commit=False)
    s.end("A", commit=False)
    s.describe()
    s.show_transactions()


def log_of_deleted_offsets(s: LogScript) -> None:
    """What is written as pending offsets are deleted."""
    s.topic("t")
    s.init("A")
    s.commit_offsets("A", 5)
    s.delete_offset()
    s.end("A")
    s.title("the group")
    s.commit_offsets("A", 6)
    s.delete_group()
    s.end("A")
    s.title("with a committed one, and pending ones of two producers")
    s.init("B", "y")
    s.commit_plainly(7)
    s.commit_offsets("A", 8)
    s.commit_offsets("B", 9)
    s.delete_offset()
    s.delete_group()
    s.end("A")
    s.end("B")
    s.title("a group with all of them")
    s.commit_plainly(10)
    s.commit_offsets("A", 11)
    s.commit_offsets("B", 12, places={"t": [0, 1]})
    s.delete_group()
    s.end("A")
    s.end("B", commit=False)
    s.committed(stable=True)
    s.show_offsets()


LOGS: tuple[Callable[[LogScript], None], ...] = (
    log_of_initialising,
    log_of_old_commit,
    log_of_old_abort,
    log_of_new_commit,
    log_of_new_abort,
    log_of_initialising_afterwards,
    log_of_fencing_new,
    log_of_fencing_old,
    log_of_mixed_versions,
    log_of_timeout_new,
    log_of_timeout_old,
    log_of_offsets,
    log_of_batched,
    log_of_ending_nothing,
    log_of_deleted_offsets,
)
