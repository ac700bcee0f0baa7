"""Sessions that end at one moment: what the first of them does counts for the others."""

from __future__ import annotations

from ottla.protocol.messages import groups
from tests.coordinator.shards import GROUP, Lone

SESSION_MS = 10_000
SUBSCRIBED = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff"
OWNS_NOTHING = SUBSCRIBED + bytes(4)

Protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol
Assignment = groups.SyncGroupRequest.SyncGroupRequestAssignment


def join(lone: Lone, who: str, member_id: str, metadata: bytes = SUBSCRIBED) -> None:
    protocols = [Protocol("range", metadata)]
    lone.send(
        who,
        groups.JoinGroupRequest(GROUP, SESSION_MS, 60_000, member_id, None, "consumer", protocols),
        5,
    )


def enter(lone: Lone, who: str) -> str:
    """Joins for the first time, by an id that it is given."""
    join(lone, who, "")
    ((_, refused),) = lone.answers()
    join(lone, who, refused.member_id)
    return str(refused.member_id)


def sync(lone: Lone, who: str, generation: int, member_id: str, *, leads: bool = False) -> None:
    assignments = [Assignment(member_id, b"x")] if leads else []
    lone.send(
        who, groups.SyncGroupRequest(GROUP, generation, member_id, assignments=assignments), 3
    )


def codes(lone: Lone) -> dict[str, int]:
    return {who: answer.error_code for who, answer in lone.answers()}


def test_who_waits_for_a_generation_stays_when_the_session_of_another_ends() -> None:
    lone = Lone()
    leader, other = enter(lone, "leader"), enter(lone, "other")
    lone.wait(7_000)
    generation = dict(lone.answers())["leader"].generation_id
    sync(lone, "other", generation, other)
    sync(lone, "leader", generation, leader, leads=True)
    assert codes(lone) == {"leader": 0, "other": 0}

    join(
        lone, "other", other, OWNS_NOTHING
    )  # it has given something up, by the cooperative protocol
    lone.wait(SESSION_MS)  # the leader says no more, and both sessions began at one moment
    ((who, joined),) = lone.answers()
    assert (who, joined.error_code, joined.generation_id) == ("other", 0, generation + 1)
    sync(lone, "other", generation + 1, other, leads=True)
    assert codes(lone) == {"other": 0}


def test_who_waits_for_an_assignment_stays_when_the_session_of_the_leader_ends() -> None:
    lone = Lone()
    leader, one, two = (enter(lone, who) for who in ("leader", "one", "two"))
    lone.wait(7_000)
    joined = dict(lone.answers())
    generation = joined["leader"].generation_id
    assert joined["leader"].leader == leader
    for who, member_id in (("one", one), ("two", two)):
        sync(lone, who, generation, member_id)
    lone.wait(SESSION_MS)
    assert codes(lone) == {"one": 27, "two": 27}

    for who, member_id in (("one", one), ("two", two)):
        join(lone, who, member_id)
    assert codes(lone) == {"one": 0, "two": 0}
