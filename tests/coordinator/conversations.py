"""The conversations: every cell of the state table and every row of the rules of JoinGroup.

Each function is one trace. Rebalances begin at once (`group.initial.rebalance.delay.ms=0`) but in
those of `DELAYED`, and sessions may be short (`group.min.session.timeout.ms=1000`).
"""

from __future__ import annotations

from collections.abc import Callable

from tests.coordinator.scenario import Script

TWO = (("range", b"r"), ("sticky", b"s"))
STICKY_FIRST = (("sticky", b"s"), ("range", b"r"))
CHANGED = (("range", b"changed"),)
DELAY_MS = 1_500


def _stable(s: Script) -> None:
    """A leads, B follows, both have their assignments."""
    s.enter("A")
    s.sync("A", {"A": b"all"})
    s.enter("B")
    s.join("A")
    s.sync("B")
    s.sync("A", {"A": b"a", "B": b"b"})


def _completing(s: Script) -> None:
    """A leads, B follows, nobody has assigned."""
    s.enter("A")
    s.sync("A", {"A": b"all"})
    s.enter("B")
    s.join("A")


def _preparing(s: Script) -> None:
    """A is to join again, for B waits."""
    s.enter("A")
    s.sync("A", {"A": b"all"})
    s.enter("B")


def empty(s: Script) -> None:
    s.title("nobody knows the group")
    s.describe()
    s.describe(version=5)
    s.heartbeat("A", member_id="nobody", generation=1)
    s.sync("A", member_id="nobody", generation=1)
    s.leave("A", member_id="nobody")
    s.leave("A", member_id="nobody", version=1)
    s.join("A", member_id="nobody")
    s.commit("A", 5, generation=3)
    s.commit("A", 5, generation=3, version=8)
    s.delete_group()
    s.delete_offset()
    s.fetch("A")
    s.title("it is Empty: its only member has left")
    s.enter("A")
    s.sync("A", {"A": b"all"})
    s.leave("A")
    s.describe()
    s.heartbeat("A")
    s.sync("A")
    s.leave("A")
    s.join("A")
    s.commit("A", 5)
    s.commit("A", 6, generation=-1)
    s.commit("A", 7, generation=-1, member_id="")
    s.fetch("A")
    s.delete_offset()
    s.fetch("A")
    s.delete_group()
    s.describe()


def preparing_rebalance(s: Script) -> None:
    _preparing(s)
    s.describe()
    s.heartbeat("A")
    s.heartbeat("A", generation=9)
    s.sync("A")
    s.commit("A", 5)
    s.commit("A", 5, generation=9)
    s.commit("A", 5, generation=-1, member_id="")
    s.delete_group()
    s.delete_offset()
    s.fetch("A")
    s.title("one leaves, and the other is complete")
    s.leave("A")
    s.describe()


def completing_rebalance(s: Script) -> None:
    _completing(s)
    s.describe()
    s.heartbeat("A")
    s.heartbeat("B")
    s.heartbeat("B", generation=9)
    s.commit("A", 5)
    s.commit("A", 5, generation=9)
    s.title("joining again with the same metadata")
    s.join("B")
    s.join("A")
    s.title("a wrong protocol, then a parked follower")
    s.sync("B", protocol_name="sticky")
    s.sync("B", protocol_type="connect")
    s.sync("B", protocol_name=None)
    s.sync("B", protocol_name=None, protocol_type=None, version=4, generation=9)
    s.sync("B", generation=9)
    s.sync("B")
    s.title("joining with other metadata")
    s.join("A", protocols=CHANGED)
    s.join("B")
    s.title("a member leaves before anybody has assigned")
    s.sync("B")
    s.leave("A")
    s.join("B")
    s.describe()


def stable(s: Script) -> None:
    _stable(s)
    s.describe()
    s.heartbeat("A")
    s.heartbeat("B")
    s.heartbeat("B", generation=1)
    s.heartbeat("B", member_id="nobody")
    s.heartbeat("B", group="")
    s.sync("B")
    s.sync("B", generation=1)
    s.sync("B", member_id="nobody")
    s.commit("B", 5)
    s.commit("B", 5, generation=1)
    s.commit("B", 5, member_id="nobody")
    s.commit("B", 5, generation=-1)
    s.commit("B", 5, generation=-1, member_id="")
    s.commit("B", 5, metadata="x" * 5000)
    s.fetch("B")
    s.delete_group()
    s.delete_offset()
    s.title("a follower joins again as it is")
    s.join("B")
    s.title("a follower joins with other metadata")
    s.join("B", protocols=CHANGED)
    s.join("A")
    s.sync("A", {"A": b"a2"})
    s.sync("B")
    s.title("the leader joins again as it is")
    s.join("A")
    s.heartbeat("B")
    s.join("B", protocols=CHANGED)
    s.sync("A", {"A": b"a3", "B": b"b3"})
    s.sync("B")
    s.title("a member leaves")
    s.leave("A")
    s.heartbeat("B")
    s.join("B", protocols=CHANGED)


def admission(s: Script) -> None:
    s.title("what is refused")
    s.join("A", session_ms=10)
    s.join("A", session_ms=1_900_000)
    s.join("A", group="")
    s.join("A", protocols=())
    s.join("A", protocol_type="")
    s.describe()
    s.title("before version 4 nobody is sent back")
    s.join("A", version=3)
    s.leave("A", version=1)
    s.title("protocol null or empty")
    s.join("B", version=5)
    s.join("C", version=7)


def protocols(s: Script) -> None:
    s.enter("A", protocols=TWO)
    s.sync("A", {"A": b"all"})
    s.title("another type, no common protocol")
    s.join("B", protocol_type="connect")
    s.join("B", protocols=(("other", b""),))
    s.title("one that both know, though the first would rather have another")
    s.enter("B", protocols=(("sticky", b"s"),))
    s.join("A", protocols=TWO)
    s.sync("A", {"A": b"a", "B": b"b"})
    s.sync("B")
    s.title("votes")
    s.leave("B")
    s.enter("C", protocols=STICKY_FIRST)
    s.enter("D", protocols=STICKY_FIRST)
    s.join("A", protocols=TWO)


def static_members(s: Script) -> None:
    s.join("A", instance="i1")
    s.sync("A", {"A": b"a"}, instance="i1")
    s.title("it comes back without its id, and goes on; the old one is fenced")
    former = s.member["A"]
    s.join("A2", instance="i1")
    s.describe()
    s.heartbeat("A", member_id=former, instance="i1")
    s.sync("A", member_id=former, instance="i1")
    s.join("A", member_id=former, instance="i1")
    s.leave("A", member_id=former, instance="i1")
    s.heartbeat("A2", instance="i1")
    s.heartbeat("A2")
    s.title("in a version that cannot skip the assignment")
    s.join("A3", instance="i1", version=8)
    s.title("another instance, an unknown one")
    s.join("B", instance="i2")
    s.heartbeat("B2", instance="i9", member_id="x", generation=1)
    s.join("A3", instance="i1")
    s.sync("A3", {"A3": b"a", "B": b"b"}, instance="i1")
    s.sync("B", instance="i2")
    s.title("back with another protocol: everybody joins again")
    s.join("B2", instance="i2", protocols=TWO)
    s.describe()
    s.join("A3", instance="i1")
    s.title("back while the generation has no assignment")
    s.join("B3", instance="i2", protocols=TWO)
    s.join("A3", instance="i1")
    s.sync("A3", {"A3": b"a", "B3": b"b"}, instance="i1")
    s.title("an administrator removes it by its instance")
    s.leave("admin", member_id="", instance="i1")
    s.leave("admin", member_id="", instance="i1")
    s.heartbeat("B3", instance="i2")


def sessions(s: Script) -> None:
    s.title("an id that nobody comes back with")
    s.join("A", session_ms=1_000)
    s.wait(1_500)
    s.join("A")
    s.title("a follower falls silent")
    s.member.clear()
    s.enter("A", session_ms=30_000)
    s.sync("A", {"A": b"all"})
    s.enter("B", session_ms=1_000)
    s.join("A", session_ms=30_000)
    s.sync("A", {"A": b"a", "B": b"b"})
    s.sync("B")
    s.wait(1_500)
    s.heartbeat("A")
    s.heartbeat("B")
    s.join("A", session_ms=30_000)
    s.title("a member does not join in time")
    s.sync("A", {"A": b"all"})
    s.enter("C", session_ms=30_000, rebalance_ms=1_000)
    s.wait(3_500)
    s.describe()


def pending_sync(s: Script) -> None:
    s.title("a member that does not fetch its assignment in time")
    s.enter("A", session_ms=30_000, rebalance_ms=1_000)
    s.sync("A", {"A": b"all"})
    s.enter("B", session_ms=30_000, rebalance_ms=1_000)
    s.join("A", session_ms=30_000, rebalance_ms=1_000)
    s.sync("A", {"A": b"a", "B": b"b"})
    s.heartbeat("B")
    s.wait(1_500)
    s.heartbeat("B")
    s.heartbeat("A")


def simple_commits(s: Script) -> None:
    s.commit("A", 5, generation=-1, member_id="", version=2)
    s.fetch("A")
    s.describe()
    s.commit("A", 6, generation=-1, member_id="someone")
    s.commit("A", -1, generation=-1, member_id="")
    s.fetch("A")
    s.commit("A", 8, generation=-1, member_id="", group="")
    s.fetch("A", group="")
    s.delete_offset()
    s.delete_group()
    s.describe()


def pending_members(s: Script) -> None:
    s.title("one that was sent back keeps a rebalance open, until it comes or leaves")
    _preparing(s)
    s.join("C")
    s.join("A")
    s.describe()
    s.leave("C")
    s.title("it takes its time, and is in")
    s.join("D")
    s.join("A", protocols=CHANGED)
    s.join("B")
    s.join("D")


def initial_delay(s: Script) -> None:
    s.title("the first generation waits for others, and again when one has come, up to a limit")
    s.enter("A")
    s.wait(DELAY_MS // 3)
    s.enter("B")
    s.wait(DELAY_MS)
    s.enter("C")
    s.wait(DELAY_MS)
    s.describe()


def left_in_the_delay(s: Script) -> None:
    s.title(
        "the only member leaves before its first generation: who comes may know other protocols"
    )
    s.enter("A")
    s.leave("X", member_id=s.member["A"])
    s.enter("B", protocols=(("sticky", b"s"),))
    s.wait(DELAY_MS)
    s.wait(DELAY_MS)
    s.describe()


AT_ONCE: tuple[Callable[[Script], None], ...] = (
    empty,
    preparing_rebalance,
    completing_rebalance,
    stable,
    admission,
    protocols,
    static_members,
    sessions,
    pending_sync,
    simple_commits,
    pending_members,
)
DELAYED: tuple[Callable[[Script], None], ...] = (initial_delay, left_in_the_delay)
