"""The conversations: every cell of the state table and every row of the rules of JoinGroup.

Each function is one trace. Rebalances begin at once (`group.initial.rebalance.delay.ms=0`) but in
those of `DELAYED`, and sessions may be short (`group.min.session.timeout.ms=1000`). The groups of
`SIZED` may have two members (`group.max.size=2`).

One row is not here: a newcomer that joins in a version before 4 is waited for five minutes, which
nobody wants to wait for a trace. `test_newcomers.py` has it, in virtual time alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.coordinator.scenario import Script

TWO = (("range", b"r"), ("sticky", b"s"))
STICKY_FIRST = (("sticky", b"s"), ("range", b"r"))
CHANGED = (("range", b"changed"),)
DELAY_MS = 1_500
SIZE = 2
LONG_MS = 30_000
"""A session that does not end in a conversation."""


def _stable(s: Script, **times: Any) -> None:
    """A leads, B follows, both have their assignments."""
    s.enter("A", **times)
    s.sync("A", {"A": b"all"})
    s.enter("B", **times)
    s.join("A", **times)
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


def member_ids(s: Script) -> None:
    s.title("who comes without an id is given one: of its client or its instance, and of chance")
    s.join("A")
    s.show_id("A")
    s.leave("A")
    s.join("B", instance="i1")
    s.show_id("B")
    s.leave("B", instance="i1")
    s.join("C", version=3)
    s.show_id("C")


def generations(s: Script) -> None:
    s.title("each has the next number, and so has the group when it becomes empty")
    s.enter("A")
    s.sync("A", {"A": b"all"})
    s.leave("A")
    s.enter("B")
    s.sync("B", {"B": b"all"})
    s.join("B")


def rebalance_timeout(s: Script) -> None:
    s.title("A is waited for as long as B may be silent: version 0 has no other timeout than that")
    s.enter("A", session_ms=LONG_MS, rebalance_ms=500)
    s.sync("A", {"A": b"all"})
    s.join("B", version=0, session_ms=1_500)
    s.wait(1_000)
    s.wait(1_000)
    s.describe()


def static_kept(s: Script) -> None:
    times: dict[str, Any] = {"session_ms": LONG_MS, "rebalance_ms": 1_500}
    s.join("A", instance="i1", **times)
    s.sync("A", {"A": b"all"}, instance="i1")
    s.title("the leader does not join again: it is kept, for it is static, and another one leads")
    s.enter("B", **times)
    s.wait(1_800)
    s.heartbeat("A", instance="i1")
    s.sync("B", {"A": b"a", "B": b"b"})
    s.title("it comes back, and has its part")
    s.join("A", instance="i1", **times)
    s.sync("A", instance="i1")
    s.title("nobody else is left, and it does not join: it is waited for again")
    s.leave("B")
    s.wait(1_800)
    s.describe()
    s.heartbeat("A", instance="i1")
    s.join("A", instance="i1", **times)


def static_sessions(s: Script) -> None:
    s.title("the session of a static member ends as any other")
    s.join("A", instance="i1", session_ms=1_000)
    s.sync("A", {"A": b"all"}, instance="i1")
    s.wait(1_500)
    s.describe()
    s.heartbeat("A", instance="i1")
    s.join("A", instance="i1")
    s.join("A2", instance="i1")


def fenced_commits(s: Script) -> None:
    s.join("A", instance="i1")
    s.sync("A", {"A": b"all"}, instance="i1")
    s.commit("A", 5, instance="i1")
    s.title("another one comes as the same instance")
    former = s.member["A"]
    s.join("A2", instance="i1")
    s.commit("A", 6, member_id=former, instance="i1")
    s.commit("A", 6, member_id=former, instance="i1", generation=9)
    s.commit("A", 6, member_id=former)
    s.commit("A2", 7, instance="i9")
    s.fetch("A2")
    s.commit("A2", 7, instance="i1")
    s.commit("A2", 8)
    s.fetch("A2")


def parked_sessions(s: Script) -> None:
    short: dict[str, Any] = {"session_ms": 1_000, "rebalance_ms": 10_000}
    long: dict[str, Any] = {"session_ms": LONG_MS, "rebalance_ms": 10_000}
    s.enter("A", **long)
    s.sync("A", {"A": b"all"})
    s.enter("B", **short)
    s.join("A", **long)
    s.sync("A", {"A": b"a", "B": b"b"})
    s.sync("B")
    s.title("no session ends while its member waits for others to join, be it a new one")
    s.join("C", version=3, **short)
    s.join("B", **short)
    s.wait(1_500)
    s.join("A", **long)
    s.title("nor while it waits for its assignment")
    s.sync("B")
    s.sync("C")
    s.wait(1_500)
    s.sync("A", {"A": b"a", "B": b"b", "C": b"c"})
    s.heartbeat("B")
    s.heartbeat("C")
    s.title("but afterwards")
    s.wait(1_500)
    s.heartbeat("B")
    s.heartbeat("C")


def sessions_renewed(s: Script) -> None:
    s.title("by each of these a session of 1500 ms begins anew; A leads, and rebalances by joining")
    s.enter("A", session_ms=1_500)
    s.sync("A", {"A": b"all"})
    s.wait(1_000)
    s.commit("A", 5)
    s.wait(1_000)
    s.heartbeat("A")
    s.wait(1_000)
    s.join("A", session_ms=1_500)
    s.wait(1_000)
    s.sync("A", {"A": b"all"})
    s.wait(1_000)
    s.heartbeat("A")


def sessions_of_the_settled(s: Script) -> None:
    long: dict[str, Any] = {"session_ms": LONG_MS, "rebalance_ms": 10_000}
    short: dict[str, Any] = {"session_ms": 1_500, "rebalance_ms": 10_000}
    _stable(s, **long)
    s.enter("C", **short)
    s.join("B", **short)
    s.join("A", **long)
    s.sync("A", {"A": b"a", "B": b"b", "C": b"c"})
    s.sync("B")
    s.sync("C")
    s.title("two followers ask once more for what they have")
    s.wait(1_000)
    s.sync("B")
    s.join("C", **short)
    s.wait(1_000)
    s.heartbeat("B")
    s.heartbeat("C")
    s.describe()


def sessions_before_the_assignment(s: Script) -> None:
    long: dict[str, Any] = {"session_ms": LONG_MS, "rebalance_ms": 10_000}
    short: dict[str, Any] = {"session_ms": 1_500, "rebalance_ms": 10_000}
    s.enter("A", **long)
    s.sync("A", {"A": b"all"})
    s.enter("B", **short)
    s.join("A", **long)
    s.title("a follower asks once more for the generation that it is in")
    s.wait(1_000)
    s.join("B", **short)
    s.wait(1_000)
    s.heartbeat("B")
    s.heartbeat("A")


def full(s: Script) -> None:
    long: dict[str, Any] = {"session_ms": LONG_MS, "rebalance_ms": 10_000}
    _stable(s, **long)
    s.title("Stable: who is in may join again, and nobody else")
    s.join("D", **long)
    s.join("D", version=3, **long)
    s.join("D", instance="i1", **long)
    s.join("B", **long)
    s.title("PreparingRebalance: those count who have joined")
    s.join("A", **long)
    s.join("C", version=3, **long)
    s.join("D", **long)
    s.join("D", version=3, **long)
    s.join("D", instance="i1", **long)
    s.title("CompletingRebalance")
    s.leave("B")
    s.join("D", **long)
    s.join("C", version=3, **long)
    s.title("Empty")
    s.leave("A")
    s.leave("C")
    s.join("D", **long)
    s.join("D", **long)


def full_too_late(s: Script) -> None:
    times: dict[str, Any] = {"session_ms": LONG_MS, "rebalance_ms": 1_500}
    _stable(s, **times)
    s.title("a newcomer is in before a member has joined again, and that is out")
    s.join("A", **times)
    s.join("C", version=3, **times)
    s.join("B", **times)
    s.wait(2_000)


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
    member_ids,
    generations,
    rebalance_timeout,
    static_kept,
    static_sessions,
    fenced_commits,
    parked_sessions,
    sessions_renewed,
    sessions_of_the_settled,
    sessions_before_the_assignment,
)
DELAYED: tuple[Callable[[Script], None], ...] = (initial_delay, left_in_the_delay)
SIZED: tuple[Callable[[Script], None], ...] = (full, full_too_late)
