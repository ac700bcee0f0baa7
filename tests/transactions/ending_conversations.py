"""How transactions end: EndTxn in the old protocol and the new, fencing, and timeouts."""

from __future__ import annotations

from tests.transactions.names import STRANGE_PID
from tests.transactions.offset_scenario import OffsetScript


def ending_old(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A", version=4)
    s.title("from Empty")
    s.end("A", version=4)
    s.end("A", commit=False, version=4)
    for version in (0, 1, 2, 3, 4):
        s.title(f"v{version}: commit, twice, and the opposite")
        s.add("A")
        s.end("A", version=version)
        s.end("A", version=version)
        s.end("A", commit=False, version=version)
    s.title("abort, twice, and the opposite")
    s.add("A")
    s.end("A", commit=False, version=4)
    s.end("A", commit=False, version=4)
    s.end("A", version=4)
    s.describe()


def ending_refused(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A")
    s.init("A")
    s.produce("A")
    for version in (1, 2, 3, 4, 5):
        s.title(f"v{version}")
        s.end("A", version=version, epoch=0)
        s.end("A", version=version, epoch=2)
        s.end("A", version=version, epoch=-1)
        s.end("A", version=version, pid=STRANGE_PID)
        s.end("A", version=version, pid=-1)
        s.end("A", version=version, txn="nobody")
        s.end("A", version=version, txn="")
    s.describe()


def ending_new(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A")
    s.title("from Empty")
    s.end("A")
    s.end("A", commit=False)
    s.end("A", commit=False)
    s.title("commit, its retry with the epoch of before, and the opposite of that")
    s.produce("A")
    s.end("A")
    epoch = s.producers["A"].epoch
    s.end("A", epoch=epoch - 1)
    s.end("A", epoch=epoch - 1, commit=False)
    s.end("A", epoch=epoch - 2)
    s.title("commit and abort from CompleteCommit")
    s.end("A")
    s.end("A", commit=False)
    s.end("A", epoch=epoch, commit=False)
    s.end("A", epoch=epoch)
    s.describe()


def ending_new_abort(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A")
    s.title("abort, its retry, and the opposite of that")
    s.produce("A")
    s.end("A", commit=False)
    epoch = s.producers["A"].epoch
    s.end("A", epoch=epoch - 1, commit=False)
    s.end("A", epoch=epoch - 1)
    s.end("A")
    s.title("abort from CompleteAbort")
    s.end("A", commit=False)
    s.end("A", epoch=epoch, commit=False)
    s.end("A", epoch=epoch - 1, commit=False)
    s.describe()
    s.describe_producers()
    s.fetch()


def epochs_after_ending(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A")
    s.produce("A", count=3)
    s.end("A")
    s.describe_producers()
    s.title("the epoch of before is fenced at the partition")
    s.produce("A", epoch=0, sequence=3)
    s.produce("A", epoch=0, sequence=0, count=3)
    s.title("the new one begins at 0")
    s.produce("A", sequence=3)
    s.produce("A", sequence=1)
    s.produce("A", sequence=0)
    s.produce("A", sequence=0)
    s.produce("A", sequence=5)
    s.produce("A", sequence=1)
    s.title("a partition that has never seen the producer")
    s.produce("A", 1, sequence=4)
    s.produce("A", 1, sequence=0)
    s.describe()
    s.end("A", commit=False)
    s.fetch()


def epochs_after_old_ending(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A", version=4)
    s.add("A")
    s.produce("A", version=11, count=2)
    s.end("A", version=4)
    s.describe_producers()
    s.title("the epoch and the sequences go on")
    s.add("A")
    s.produce("A", version=11, sequence=2)
    s.produce("A", version=11, sequence=0)
    s.produce("A", version=11, sequence=0, count=2)
    s.produce("A", version=11, sequence=2)
    s.produce("A", version=11, sequence=3)
    s.end("A", version=4)
    s.title("a partition that has never seen the producer takes any sequence")
    s.add("A", {"t": [1]})
    s.produce("A", 1, version=11, sequence=7)
    s.end("A", version=4)
    s.fetch()


def fencing_new(s: OffsetScript) -> None:
    s.topic("t")
    s.title("A is in a transaction as B begins")
    s.init("A")
    s.produce("A")
    s.init("B")
    s.describe()
    s.describe_producers()
    s.fetch()
    s.title("A goes on")
    s.produce("A")
    s.end("A")
    s.end("A", epoch=1)
    s.add("A")
    s.add("A", version=1)
    s.again("A")
    s.again("A", version=3)
    s.title("B works")
    s.produce("B")
    s.end("B")


def fencing_old(s: OffsetScript) -> None:
    s.topic("t")
    s.title("A is in a transaction as B begins")
    s.init("A", version=4)
    s.add("A")
    s.produce("A", version=11)
    s.init("B", version=4)
    s.describe()
    s.describe_producers()
    s.fetch()
    s.title("A goes on")
    s.produce("A", version=11)
    s.end("A", version=4)
    s.end("A", version=1)
    s.add("A")
    s.add("A", version=1)
    s.again("A", version=4)
    s.again("A", version=3)
    s.title("B works")
    s.add("B")
    s.produce("B", version=11)
    s.end("B", version=4)


def going_on_in_a_transaction(s: OffsetScript) -> None:
    """InitProducerId with the producer's own id and epoch while its transaction is open."""
    s.topic("t")
    s.title("in the new protocol")
    s.init("A")
    s.produce("A")
    s.again("A")
    s.describe()
    s.describe_producers()
    s.produce("A")
    s.end("A")
    s.title("in the old one")
    s.init("B", "y", version=4)
    s.add("B")
    s.again("B", version=4)
    s.describe("y")
    s.add("B")
    s.end("B", version=4)


def going_on_as_another(s: OffsetScript) -> None:
    """InitProducerId with an id that is not the producer's, while a transaction is open."""
    s.topic("t")
    s.init("A")
    s.produce("A")
    for version in (3, 4, 5):
        s.again("A", pid=STRANGE_PID, version=version)
    s.describe()
    s.produce("A")
    s.end("A")


def going_on_wrongly(s: OffsetScript) -> None:
    """With an epoch that is not the producer's: it is refused, and the transaction aborted."""
    s.topic("t")
    s.init("A")
    s.init("A")
    for epoch in (0, 5):
        s.produce("A")
        s.again("A", epoch=epoch)
        s.describe()
        s.init("A")


def first_answers(s: OffsetScript) -> None:
    """What is answered at once where the other conversations ask again."""
    s.topic("t")
    s.init("A")
    s.produce("A")
    s.init("B", once=True)
    s.init("B")
    s.produce("B")
    s.again("B", once=True)
    s.again("B")


def meanwhile(s: OffsetScript) -> None:
    """Right after the answer to EndTxn, while the markers may not be written."""
    s.topic("t", 2)
    s.init("A", version=4)
    for _ in range(3):
        s.add("A", {"t": [0, 1]})
        s.end("A", version=4, once=True)
        s.add("A", once=True)
        s.end("A", version=4)
        s.add("A")
        s.end("A", version=4, once=True)
        s.end("A", version=4, once=True)
        s.end("A", version=4, commit=False, once=True)
        s.init("A", version=4, once=True)
        s.init("A", version=4)
    for _ in range(3):
        s.produce("A", 0, 1)
        s.end("A", once=True)
        s.produce("A", once=True)
        s.produce("A")
        s.commit_offsets("A")
        epoch = s.producers["A"].epoch
        s.end("A", once=True)
        s.end("A", once=True, epoch=epoch)
        s.commit_offsets("A", once=True)
        s.commit_offsets("A")
        s.end("A")


def deleted_topic(s: OffsetScript) -> None:
    """A topic goes away while it is in a transaction."""
    s.topic("t")
    s.topic("u")
    s.init("A")
    s.produce("A")
    s.produce("A", topic="u")
    s.no_topic("u")
    s.describe()
    s.end("A")
    s.describe()
    s.fetch()


def timeout_new(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A", timeout_ms=500)
    s.produce("A")
    s.expire()
    s.describe()
    s.describe_producers()
    s.fetch()
    s.title("the producer comes back")
    s.produce("A")
    s.add("A")
    s.add("A", version=1)
    s.add_offsets("A")
    s.commit_offsets("A")
    s.end("A", version=4)
    s.end("A", version=4, commit=False)
    s.end("A", version=1)
    s.end("A")
    s.end("A", commit=False)
    s.title("it goes on with what it was told")
    s.produce("A")
    s.end("A")


def timeout_and_going_on(s: OffsetScript) -> None:
    s.topic("t")
    for version in (3, 4, 5):
        txn = f"x{version}"
        s.init("A", txn, timeout_ms=500)
        s.produce("A")
        s.expire(txn)
        s.again("A", version=version)
        s.again("A", version=version, epoch=0)
        s.again("A", version=version)
        s.produce("A")
        s.end("A")


def timeout_old(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A", version=4, timeout_ms=500)
    s.add("A")
    s.produce("A", version=11)
    s.expire()
    s.describe()
    s.describe_producers()
    s.fetch()
    s.title("the producer comes back")
    s.produce("A", version=11)
    s.add("A")
    s.add("A", version=1)
    s.add_offsets("A")
    s.end("A", version=4)
    s.end("A", version=4, commit=False)
    s.end("A", version=1)
    s.again("A", version=3)
    s.again("A", version=4)
    s.describe()


ENDING = (
    ending_old,
    ending_refused,
    ending_new,
    ending_new_abort,
    epochs_after_ending,
    epochs_after_old_ending,
    fencing_new,
    fencing_old,
    going_on_in_a_transaction,
    going_on_as_another,
    going_on_wrongly,
    timeout_new,
    timeout_and_going_on,
    timeout_old,
    deleted_topic,
)
