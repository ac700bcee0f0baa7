"""Offsets of groups in transactions."""

from __future__ import annotations

from tests.transactions.names import STRANGE_PID
from tests.transactions.offset_scenario import OffsetScript


def offsets_old(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A", version=4)
    for version in (0, 1, 2, 3, 4):
        s.title(f"v{version}: nobody has added the group")
        s.commit_offsets("A", version, version=version)
        s.title("added")
        s.add_offsets("A", version=3)
        s.commit_offsets("A", version, version=version)
        s.committed()
        s.committed(stable=True)
        s.end("A", version=4)
        s.committed(stable=True)
    s.title("aborted")
    s.add_offsets("A")
    s.commit_offsets("A", 99, version=3)
    s.committed(stable=True)
    s.end("A", commit=False, version=4)
    s.committed(stable=True)


def offsets_new(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A")
    s.commit_offsets("A", 5)
    s.describe()
    s.committed()
    s.committed(stable=True)
    s.commit_offsets("A", 6, metadata="m")
    s.end("A")
    s.committed(stable=True)
    s.title("the epoch of before")
    s.commit_offsets("A", 7, epoch=0)
    s.title("aborted")
    s.commit_offsets("A", 8)
    s.end("A", commit=False)
    s.committed(stable=True)
    s.title("an offset below nothing")
    s.commit_offsets("A", -1)
    s.end("A")
    s.committed(stable=True)


def offsets_refused(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A")
    s.init("A")
    for version in (2, 3, 4, 5):
        s.title(f"v{version}")
        if version < 5:
            s.add_offsets("A")
        s.commit_offsets("A", version=version, epoch=0)
        s.commit_offsets("A", version=version, epoch=2)
        s.commit_offsets("A", version=version, pid=STRANGE_PID)
        s.commit_offsets("A", version=version, txn="nobody")
        s.commit_offsets("A", version=version, txn="")
        s.commit_offsets("A", version=version, places={"nope": [0], "t": [0]})
        s.commit_offsets("A", version=version, places={"t": [0, 9]})
        s.commit_offsets("A", version=version, places={"nope": [0]})
        s.commit_offsets("A", version=version, places={})
        s.commit_offsets("A", version=version, metadata="m" * 5000)
        s.title("with offsets pending the partition asks nobody")
        s.commit_offsets("A", version=version, txn="nobody")
        s.commit_offsets("A", version=version, epoch=0)
        s.commit_offsets("A", version=version, epoch=2)
        s.commit_offsets("A", version=version, pid=STRANGE_PID)
        s.describe()
        s.end("A", version=4)
        s.committed()


def offsets_of_other_groups(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A")
    for version in (3, 4, 5):
        s.title(f"v{version}: who is no member")
        if version < 5:
            s.add_offsets("A")
            s.add_offsets("A", "new")
        s.commit_offsets("A", version=version, member="someone", generation=1)
        s.commit_offsets("A", version=version, member="someone", generation=-1)
        s.commit_offsets("A", version=version, generation=3)
        s.commit_offsets("A", version=version, generation=0)
        s.commit_offsets("A", version=version, instance="i")
        s.commit_offsets("A", version=version, group="new", generation=3)
        s.commit_offsets("A", version=version, group="new", member="someone")
        s.title("a group without a name")
        s.commit_offsets("A", version=version, group="")
        s.describe()
        s.end("A", version=4)


def offsets_of_members(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A")
    member = s.join()
    for version in (2, 3, 4, 5):
        s.title(f"v{version}")
        if version < 5:
            s.add_offsets("A")
        s.commit_offsets("A", version, version=version)
        s.commit_offsets("A", version, version=version, member=member, generation=1)
        if version >= 3:
            s.commit_offsets("A", version, version=version, member=member, generation=2)
            s.commit_offsets("A", version, version=version, member=member, generation=-1)
            s.commit_offsets("A", version, version=version, member="someone", generation=1)
            s.commit_offsets("A", version, version=version, generation=1)
            s.commit_offsets(
                "A", version, version=version, member=member, generation=1, instance="i"
            )
        s.committed()
        s.end("A", version=4)
        s.committed(stable=True)


def offsets_of_static_members(s: OffsetScript) -> None:
    s.topic("t")
    s.init("A")
    member = s.join(instance="i")
    s.commit_offsets("A", member=member, generation=1, instance="i")
    s.commit_offsets("A", member=member, generation=1)
    s.commit_offsets("A", member=member, generation=2, instance="i")
    s.commit_offsets("A", member="someone", generation=1, instance="i")
    s.commit_offsets("A", member="someone", generation=2, instance="i")
    s.commit_offsets("A", member=member, generation=1, instance="other")
    s.commit_offsets("A", generation=-1, instance="i")
    s.end("A")


def offsets_while_rebalancing(s: OffsetScript) -> None:
    """A generation whose members have no assignments yet."""
    s.topic("t")
    s.init("A")
    member = s.join(sync=False)
    s.commit_offsets("A", member=member, generation=1)
    s.commit_offsets("A", member=member, generation=2)
    s.commit_offsets("A", member="someone", generation=1)
    s.commit_offsets("A")
    s.sync(member, 1)
    s.end("A")
    s.committed(stable=True)


def offsets_meanwhile(s: OffsetScript) -> None:
    """What others do to a group while offsets are pending."""
    s.topic("t")
    s.init("A")
    s.title("a plain commit")
    s.commit_plainly(3)
    s.commit_offsets("A", 5)
    s.commit_plainly(4)
    s.committed()
    s.committed(stable=True)
    s.end("A")
    s.committed(stable=True)
    s.title("a plain commit after the pending one, which is aborted")
    s.commit_offsets("A", 6)
    s.commit_plainly(7)
    s.end("A", commit=False)
    s.committed(stable=True)
    s.title("the offset is deleted")
    s.commit_offsets("A", 8)
    s.delete_offset()
    s.committed(stable=True)
    s.end("A")
    s.committed(stable=True)
    s.title("the group is deleted")
    s.commit_offsets("A", 9)
    s.delete_group()
    s.committed(stable=True)
    s.end("A")
    s.committed(stable=True)
    s.title("a group that there is only by its pending offset")
    s.delete_group()
    s.commit_offsets("A", 10)
    s.delete_group()
    s.committed(stable=True)
    s.end("A", commit=False)
    s.committed(stable=True)
    s.delete_group()


def offsets_of_consumers(s: OffsetScript) -> None:
    """A consumer group: the generation is the member's epoch."""
    s.topic("t")
    s.init("A")
    member = s.join_848()
    s.produce("A")
    for version in (3, 5):
        s.title(f"v{version}")
        s.add_offsets("A")
        s.commit_offsets("A", version=version, member=member, generation=s.epoch)
        s.commit_offsets("A", version=version, member=member, generation=s.epoch + 1)
        s.commit_offsets("A", version=version, member=member, generation=s.epoch - 1)
        s.commit_offsets("A", version=version, member=member, generation=-1)
        s.commit_offsets("A", version=version, member="someone", generation=s.epoch)
        s.commit_offsets("A", version=version)
        s.end("A", version=4)
        s.committed(stable=True)


def offsets_of_everything(s: OffsetScript) -> None:
    """OffsetFetch without topics, where all there is is pending."""
    s.topic("t")
    s.init("A")
    s.commit_offsets("A", 5)
    s.committed(everything=True)
    s.committed(everything=True, stable=True)
    s.end("A")
    s.committed(everything=True, stable=True)


def offsets_of_live_groups(s: OffsetScript) -> None:
    """Deleting while a member is there."""
    s.topic("t")
    s.init("A")
    member = s.join()
    s.commit_offsets("A", 5, member=member, generation=1)
    s.delete_group()
    s.delete_offset()
    s.committed(stable=True)
    s.end("A", commit=False)
    s.delete_group()


def offsets_of_two(s: OffsetScript) -> None:
    """Two producers commit for one partition."""
    s.topic("t")
    s.init("A")
    s.init("B", "y")
    s.commit_offsets("A", 5)
    s.commit_offsets("B", 6)
    s.committed(stable=True)
    s.end("B")
    s.committed()
    s.committed(stable=True)
    s.end("A")
    s.committed(stable=True)


OFFSETS = (
    offsets_old,
    offsets_new,
    offsets_refused,
    offsets_of_other_groups,
    offsets_of_members,
    offsets_of_static_members,
    offsets_while_rebalancing,
    offsets_meanwhile,
    offsets_of_two,
    offsets_of_consumers,
    offsets_of_everything,
    offsets_of_live_groups,
)
