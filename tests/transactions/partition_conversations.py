"""What partitions take from producers in transactions, what readers see, and markers."""

from __future__ import annotations

from tests.transactions.names import STRANGE_PID
from tests.transactions.offset_scenario import OffsetScript


def producing_refused(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A")
    s.init("A")
    for version in (9, 11, 12, 13):
        s.title(f"v{version}")
        s.produce("A", version=version, named=False)
        s.produce("A", version=version, transactional=False, sequence=100)
        s.produce("A", version=version, txn="nobody")
        s.produce("A", version=version, txn="")
        s.produce("A", version=version, epoch=0)
        s.produce("A", version=version, epoch=2)
        s.produce("A", version=version, pid=STRANGE_PID)
        s.produce("A", version=version, topic="nope") if version < 13 else None
        s.produce("A", 0, 9, version=version)
        s.describe()
        s.fetch(committed=False)


def producing_not_added(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A")
    for version in (3, 8, 9, 10, 11):
        s.produce("A", version=version)
    s.title("another partition is in the transaction")
    s.add("A", {"t": [1]})
    s.produce("A", version=9)
    s.produce("A", version=11)
    s.produce("A", 0, 1, version=11)
    s.produce("A", 1, version=9)
    s.end("A", version=4)
    s.title("after the end")
    s.produce("A", 1, version=9)
    s.produce("A", 1, version=11)


def producing_implicitly(s: OffsetScript) -> None:
    s.topic("t", 3)
    s.init("A")
    s.produce("A")
    s.describe()
    s.produce("A", 0, 1)
    s.produce("A", 2, version=13)
    s.produce("A", version=13)
    s.describe()
    s.title("old versions in a transaction that is open")
    s.produce("A", version=11)
    s.produce("A", version=9)
    s.end("A")
    s.fetch()


def producing_untransactionally(s: OffsetScript) -> None:
    """Batches of the same producer without the mark of a transaction."""
    s.topic("t")
    s.init("A")
    s.title("in no transaction")
    s.produce("A", transactional=False, named=False)
    s.produce("A", transactional=False)
    s.produce("A", 1, transactional=False)
    s.title("in one")
    s.produce("A")
    s.produce("A", transactional=False, named=False)
    s.produce("A", transactional=False)
    s.describe()
    s.describe_producers()
    s.end("A")
    s.fetch()


def sequences_new(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A")
    s.title("the first one")
    s.produce("A", sequence=3)
    s.produce("A", sequence=0)
    s.produce("A", sequence=2)
    s.produce("A", sequence=0)
    s.produce("A", sequence=1, count=2)
    s.produce("A", sequence=3)
    s.title("an epoch that is not the coordinator's")
    s.produce("A", sequence=0, epoch=1)
    s.describe()
    s.describe_producers()


def sequences_old(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A", version=4)
    s.title("the first one")
    s.add("A", {"t": [0, 1]})
    s.produce("A", version=11, sequence=3)
    s.produce("A", version=11, sequence=0)
    s.produce("A", version=11, sequence=4)
    s.title("after another epoch")
    s.end("A", version=4)
    s.init("A", version=4)
    s.add("A", {"t": [0, 1]})
    s.produce("A", version=11, sequence=3)
    s.produce("A", version=11, sequence=0)
    s.describe_producers()


def sequences_refused(s: OffsetScript) -> None:
    """The first batch of a transaction that is refused leaves its sequence behind."""
    s.topic("t")
    s.init("A", version=4)
    s.add("A", {"t": [0, 1]})
    s.produce("A", version=11, count=2)
    s.end("A", version=4)
    s.title("a lower one first: the right one is refused, too")
    s.add("A", {"t": [0, 1]})
    s.produce("A", version=11, sequence=0)
    s.produce("A", version=11, sequence=2)
    s.produce("A", version=11, sequence=2)
    s.title("the next transaction has forgotten it")
    s.end("A", version=4)
    s.add("A", {"t": [0, 1]})
    s.produce("A", version=11, sequence=2)
    s.title("a higher one first: the right one comes in")
    s.produce("A", version=11, sequence=7)
    s.produce("A", version=11, sequence=3)


def sequences_after_markers(s: OffsetScript) -> None:
    """A partition that knows the producer only by a marker."""
    s.topic("t")
    s.init("A", version=4)
    s.add("A", {"t": [0, 1]})
    s.end("A", version=4)
    s.describe_producers()
    s.add("A", {"t": [0, 1]})
    s.title("the first sequence is 0, but a refused one is in the way only if it is lower")
    s.produce("A", version=11, sequence=7)
    s.produce("A", version=11, sequence=0)
    s.produce("A", 1, version=11, sequence=0)
    s.title("with another epoch, too")
    s.end("A", version=4)
    s.init("A", version=4)
    s.add("A", {"t": [0, 1]})
    s.produce("A", version=11, sequence=5)
    s.produce("A", version=11, sequence=0)


def producing_mixed(s: OffsetScript) -> None:
    """Several producers in one request."""
    s.topic("t")
    s.init("A")
    s.init("B", "y")
    s.init("N", None)
    for version in (11, 12):
        s.title(f"v{version}")
        s.produce_mixed("A", (0, "A", True), (1, "B", True), version=version)
        s.produce_mixed("A", (0, "A", True), (1, "N", False), version=version)
        s.produce_mixed("A", (0, "B", True), version=version)
        s.produce_mixed("N", (0, "N", False), (1, "A", True), version=version, named=False)
        s.describe("x", "y")
        s.end("A")


def producing_with_few_acks(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A")
    s.produce("A", acks=1)
    s.end("A")


def reading(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A")
    s.init("B", "y")
    s.init("N", None)
    s.produce("N", transactional=False, named=False)
    s.list_offset()
    s.title("two are open")
    s.produce("A")
    s.produce("B", count=2)
    s.produce("N", transactional=False, named=False)
    s.produce("A")
    for committed in (False, True):
        s.fetch(committed=committed)
        s.list_offset(committed=committed)
    s.fetch(offset=1)
    s.fetch(offset=3)
    s.fetch(offset=9)
    s.describe_producers()
    s.title("the later one commits")
    s.end("B")
    s.fetch()
    s.list_offset()
    s.title("the earlier one aborts")
    s.end("A", commit=False)
    for committed in (False, True):
        s.fetch(committed=committed)
        s.list_offset(committed=committed)
    s.describe_producers()
    s.title("from behind")
    s.fetch(offset=4)
    s.fetch(offset=5)
    s.fetch(offset=6)
    s.fetch(offset=7)
    s.fetch(offset=8)


def reading_many_aborts(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A")
    for commit in (False, True, False):
        s.produce("A")
        s.end("A", commit=commit)
    s.produce("A")
    for offset in range(7):
        s.fetch(offset=offset)
    s.fetch(committed=False)


def reading_little(s: OffsetScript) -> None:
    """Few bytes at a time: how far the aborted are told."""
    s.topic("t")
    s.init("A")
    for commit in (False, True, False):
        s.produce("A")
        s.end("A", commit=commit)
    s.fetch(size=1)
    s.fetch(size=147)
    s.fetch(offset=2, size=1)
    s.fetch(offset=4, size=1)
    s.fetch(committed=False, size=1)


def listing_offsets(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A")
    s.init("N", None)
    s.produce("N", transactional=False, named=False)
    s.produce("A")
    s.produce("N", transactional=False, named=False)
    for committed in (False, True):
        s.list_offset(committed=committed)
        s.list_offset(committed=committed, timestamp=-2)
        s.list_offset(committed=committed, timestamp=-3)
        s.list_offset(committed=committed, timestamp=1)
        s.list_offset(committed=committed, since=2)
        s.list_offset(committed=committed, since=3)
        s.list_offset(committed=committed, timestamp=10**14)


def reading_old_epochs(s: OffsetScript) -> None:
    """Aborted twice in one epoch, as the old protocol does."""
    s.topic("t")
    s.init("A", version=4)
    for _ in range(2):
        s.add("A")
        s.produce("A", version=11)
        s.end("A", commit=False, version=4)
    s.fetch()
    s.describe_producers()
    s.title("a partition that was added and not written")
    s.add("A", {"t": [1]})
    s.end("A", commit=False, version=4)
    s.fetch(1)
    s.describe_producers(1)


def markers(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A")
    s.init("A")
    pid = s.producers["A"].pid
    for version, kind in ((1, 0), (2, 0), (2, 1)):
        s.title(f"v{version} tv={kind}: a lower epoch, the same, a higher one")
        s.produce("A")
        epoch = s.producers["A"].epoch
        s.mark(pid, epoch - 1, version=version, transaction_version=kind)
        s.mark(pid, epoch, version=version, transaction_version=kind)
        s.describe_producers()
        s.produce("A")
        s.mark(pid, epoch + 1, commit=True, version=version, transaction_version=kind)
        s.describe_producers()
        s.produce("A")
        s.end("A")
        s.describe_producers()
        s.init("A")
    s.fetch()


def markers_of_the_new_protocol(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A")
    pid = s.producers["A"].pid
    s.produce("A")
    s.mark(pid, 0, transaction_version=2)
    s.describe_producers()
    s.mark(pid, 1, transaction_version=2)
    s.describe_producers()
    s.title("again, with nothing open")
    s.mark(pid, 1, transaction_version=2)
    s.mark(pid, 1, commit=True, transaction_version=2)
    s.mark(pid, 2, transaction_version=2)
    s.mark(pid, 1, transaction_version=2)
    s.describe_producers()
    s.fetch()


def markers_by_coordinators(s: OffsetScript) -> None:
    """The epoch of the coordinator who decides."""
    s.topic("t")
    s.init("A")
    pid = s.producers["A"].pid
    s.produce("A")
    s.mark(pid, 0, coordinator_epoch=5, version=1)
    s.produce("A")
    s.mark(pid, 0, coordinator_epoch=4, version=1)
    s.mark(pid, 0, coordinator_epoch=-1, version=1)
    s.describe_producers()
    s.mark(pid, 0, coordinator_epoch=5, version=1)
    s.describe_producers()
    s.fetch()


def markers_at_strange_places(s: OffsetScript) -> None:
    s.topic("t")
    s.mark(STRANGE_PID, 3, version=1)
    s.mark(STRANGE_PID, 3)
    s.mark(STRANGE_PID, 3, transaction_version=1)
    s.mark(STRANGE_PID, 3, transaction_version=2)
    s.mark(STRANGE_PID, 3, transaction_version=9)
    s.mark(STRANGE_PID, 3, places={"nope": [0], "t": [0, 9]})
    s.mark(STRANGE_PID, 3, places={})
    s.mark(STRANGE_PID, 3, places={"t": []})
    s.fetch()
    s.describe_producers()


def markers_of_nobody(s: OffsetScript) -> None:
    s.topic("t")
    s.mark(-1, 0)
    s.mark(STRANGE_PID, -1)


def markers_of_offsets(s: OffsetScript) -> None:
    """An administrator ends what a producer has done to a group."""
    s.topic("t")
    s.init("A")
    pid = s.producers["A"].pid
    s.commit_offsets("A", 5)
    s.mark_offsets(pid, 0)
    s.committed(stable=True)
    s.commit_offsets("A", 6)
    s.mark_offsets(pid, 0, commit=False)
    s.committed(stable=True)
    s.mark_offsets(STRANGE_PID, 0)
    s.commit_offsets("A", 7)
    s.end("A")
    s.committed(stable=True)


PARTITIONS = (
    producing_refused,
    producing_not_added,
    producing_implicitly,
    producing_untransactionally,
    producing_mixed,
    producing_with_few_acks,
    sequences_new,
    sequences_old,
    sequences_refused,
    sequences_after_markers,
    reading,
    reading_many_aborts,
    reading_little,
    reading_old_epochs,
    listing_offsets,
    markers,
    markers_of_the_new_protocol,
    markers_by_coordinators,
    markers_at_strange_places,
    markers_of_offsets,
)
