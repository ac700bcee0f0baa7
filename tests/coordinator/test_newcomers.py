"""For whom a rebalance of a group waits."""

from __future__ import annotations

from ottla.broker.coordinator.group.classic import ClassicGroup
from ottla.broker.coordinator.group.joining import PREFIX_MAX
from ottla.broker.coordinator.group.settings import NEWCOMERS_MS, SETTLE_MS_MAX, GroupSettings
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tests.coordinator.scenario import Script
from tests.coordinator.shards import Lone

WITHOUT_ID_FIRST, WITH_ID_FIRST, WITH_REASON_FIRST = 3, 5, 8
"""Versions of JoinGroup: from 4 on a newcomer is given its id, and comes again with it; from 8 on
it may say why."""


def _join(member_id: str = "") -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
    request = JoinGroupRequest("g", 10_000, 60_000, member_id, None, "consumer")
    request.protocols = [protocol]
    return request


def _answer(lone: Lone, who: str) -> JoinGroupResponse:
    ((_, answer),) = [one for one in lone.answers() if one[0] == who]
    assert isinstance(answer, JoinGroupResponse)
    return answer


def _given_id(lone: Lone, who: str) -> str:
    lone.send(who, _join(), WITH_ID_FIRST)
    answer = _answer(lone, who)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    return answer.member_id


def test_one_that_has_just_been_given_its_id_is_waited_for() -> None:
    """Or it would come after the assignment, and wait until all others have sent a heartbeat."""
    lone = Lone(GroupSettings(initial_rebalance_delay_ms=NEWCOMERS_MS, newcomers_ms=NEWCOMERS_MS))
    lone.send("first", _join(), WITHOUT_ID_FIRST)
    lone.wait(NEWCOMERS_MS - 1)
    member_id = _given_id(lone, "second")
    lone.wait(NEWCOMERS_MS // 2)
    assert not lone.answers(), "the first one waits"
    lone.send("second", _join(member_id), WITH_ID_FIRST)
    lone.wait(2 * NEWCOMERS_MS)
    answers = dict(lone.answers())
    assert {who: one.generation_id for who, one in answers.items()} == {"first": 1, "second": 1}
    assert len(answers["first"].members) == 2


def test_one_that_never_comes_with_its_id_is_not_waited_for_again() -> None:
    lone = Lone(GroupSettings(initial_rebalance_delay_ms=3_000, newcomers_ms=NEWCOMERS_MS))
    lone.send("first", _join(), WITHOUT_ID_FIRST)
    lone.wait(2_999)
    _given_id(lone, "second")
    lone.wait(1 + NEWCOMERS_MS)
    assert _answer(lone, "first").generation_id == 1


def _stable_group() -> tuple[Lone, str]:
    """One member in generation 1, which has its assignment."""
    lone = Lone(GroupSettings(initial_rebalance_delay_ms=NEWCOMERS_MS, newcomers_ms=NEWCOMERS_MS))
    lone.send("first", _join(), WITHOUT_ID_FIRST)
    lone.wait(2 * NEWCOMERS_MS)
    first_id = _answer(lone, "first").member_id
    lone.send("first", SyncGroupRequest("g", 1, first_id), WITHOUT_ID_FIRST)
    assert lone.answers()
    lone.wait(10 * NEWCOMERS_MS)
    return lone, first_id


def _comes(lone: Lone, who: str) -> None:
    lone.send(who, _join(_given_id(lone, who)), WITH_ID_FIRST)


def test_a_later_generation_waits_while_newcomers_follow_one_another() -> None:
    """Or the first of them would be sent back for each that comes after it."""
    lone, first_id = _stable_group()
    _comes(lone, "second")
    lone.wait(NEWCOMERS_MS // 2)
    _comes(lone, "third")
    lone.send("first", _join(first_id), WITH_ID_FIRST)
    lone.wait(NEWCOMERS_MS - 1)
    assert not lone.answers(), "all have joined, and the last has just come"
    _comes(lone, "fourth")
    lone.wait(NEWCOMERS_MS - 1)
    assert not lone.answers()
    lone.wait(1)
    answers = dict(lone.answers())
    assert {who: one.generation_id for who, one in answers.items()} == dict.fromkeys(
        ("first", "second", "third", "fourth"), 2
    )


def test_nobody_waits_for_a_newcomer_that_comes_alone() -> None:
    lone, first_id = _stable_group()
    _comes(lone, "second")
    lone.send("first", _join(first_id), WITH_ID_FIRST)
    assert {one.generation_id for _, one in lone.answers()} == {2}


def test_one_that_is_given_an_id_while_all_wait_and_never_comes_holds_nobody_for_good() -> None:
    lone, first_id = _stable_group()
    _comes(lone, "second")
    _comes(lone, "third")
    lone.send("first", _join(first_id), WITH_ID_FIRST)
    _given_id(lone, "never")
    lone.wait(_join().session_timeout_ms)
    assert {one.generation_id for _, one in lone.answers()} == {2}


def test_newcomers_without_end_hold_a_generation_for_three_seconds_at_most() -> None:
    """Or a client that joins in a loop would hold the others up to their rebalance timeout."""
    lone, first_id = _stable_group()
    _comes(lone, "second")
    _comes(lone, "third")
    lone.send("first", _join(first_id), WITH_ID_FIRST)
    began_ms = lone.monotonic_ms
    answers: dict[str, JoinGroupResponse] = {}
    count = 0
    while "first" not in answers:
        count += 1
        lone.send(f"more {count}", _join(), WITHOUT_ID_FIRST)
        lone.wait(NEWCOMERS_MS - 10)
        answers = dict(lone.answers())
        assert lone.monotonic_ms - began_ms <= SETTLE_MS_MAX + NEWCOMERS_MS
    assert answers["first"].generation_id == 2
    assert lone.monotonic_ms - began_ms >= SETTLE_MS_MAX


def test_a_group_that_all_leave_while_it_waits_is_empty_at_once() -> None:
    """Or whoever deletes it after its last member would be told that it has members."""
    lone, first_id = _stable_group()
    ids = [first_id, _given_id(lone, "second"), _given_id(lone, "third")]
    for member_id in ids:
        lone.send("one", _join(member_id), WITH_ID_FIRST)
    leavers = [LeaveGroupRequest.MemberIdentity(member_id) for member_id in ids]
    lone.send("admin", LeaveGroupRequest("g", members=leavers), 3)
    lone.send("admin", DeleteGroupsRequest(["g"]), 2)
    _, deleted = lone.answers()[-1]
    assert isinstance(deleted, DeleteGroupsResponse)
    assert deleted.results[0].error_code == ErrorCode.NONE


def test_one_that_is_refused_for_want_of_room_holds_nobody() -> None:
    lone = Lone(GroupSettings(initial_rebalance_delay_ms=0, max_size=2))
    lone.send("first", _join(), WITHOUT_ID_FIRST)
    lone.wait(0)
    first_id = _answer(lone, "first").member_id
    second_id, third_id = _given_id(lone, "second"), _given_id(lone, "third")
    lone.send("second", _join(second_id), WITH_ID_FIRST)
    lone.send("first", _join(first_id), WITH_ID_FIRST)
    assert not lone.answers(), "the third one may come"
    lone.send("third", _join(third_id), WITH_ID_FIRST)
    answers = dict(lone.answers())
    assert answers.pop("third").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {who: one.generation_id for who, one in answers.items()} == {"first": 2, "second": 2}


def test_one_that_came_without_an_id_is_waited_for_five_minutes() -> None:
    """Silence is no sign before it has had an answer, but not for good: its client may have come
    again as another. Kafka's own rule, in virtual time: no trace takes that long."""
    lone = Lone(GroupSettings(initial_rebalance_delay_ms=0))
    patient = _join()
    patient.session_timeout_ms, patient.rebalance_timeout_ms = 1_800_000, 1_800_000
    lone.send("first", patient, WITHOUT_ID_FIRST)
    first_id = _answer(lone, "first").member_id
    lone.send("first", SyncGroupRequest("g", 1, first_id), WITHOUT_ID_FIRST)
    assert lone.answers()
    lone.send("second", _join(), WITHOUT_ID_FIRST)
    lone.wait(5 * 60 * 1_000 - 1)
    assert not lone.answers()
    lone.wait(1)
    assert _answer(lone, "second").error_code == ErrorCode.UNKNOWN_MEMBER_ID

    patient.member_id = first_id
    lone.send("first", patient, WITH_ID_FIRST)
    answer = _answer(lone, "first")
    assert (answer.generation_id, len(answer.members)) == (2, 1)


def _told_joins(lone: Lone) -> list[tuple[str, str]]:
    """The newcomers that were told, by client id and member id."""
    return [
        (one.fields["client_id"], one.fields["member_id"])
        for one in lone.told
        if one.event == "group_member_joined"
    ]


def test_each_newcomer_is_told_by_name_though_the_group_rebalances_already() -> None:
    lone, first_id = _stable_group()
    ids = {"first": first_id}
    for who in ("second", "third"):
        ids[who] = _given_id(lone, who)
        request = _join(ids[who])
        request.reason = f"{who} was started"
        lone.send(who, request, WITH_REASON_FIRST)

    assert _told_joins(lone) == list(ids.items())
    told = [one for one in lone.told if one.event in ("group_member_joined", "group_rebalances")]
    assert [(one.event, one.reason.partition(" (")[0]) for one in told] == [
        ("group_member_joined", "it gives no reason"),
        ("group_rebalances", "a new member joined"),
        ("group_member_joined", "it says: second was started"),
        ("group_rebalances", "a new member joined"),
        ("group_member_joined", "it says: third was started"),
    ]


def test_a_member_that_is_known_is_not_told_again() -> None:
    """Neither while the group waits for another, nor when it completes the generation."""
    lone, first_id = _stable_group()
    second_id = _given_id(lone, "second")
    for _ in range(3):
        lone.send("second", _join(second_id), WITH_ID_FIRST)
    lone.send("first", _join(first_id), WITH_ID_FIRST)
    lone.wait(2 * NEWCOMERS_MS)

    assert _told_joins(lone) == [("first", first_id), ("second", second_id)]
    assert lone.told[-1].event == "group_generation"


def test_a_static_member_that_comes_back_is_told_by_its_new_name_and_its_words() -> None:
    lone = Lone(GroupSettings(initial_rebalance_delay_ms=NEWCOMERS_MS, newcomers_ms=NEWCOMERS_MS))
    request = _join()
    request.group_instance_id = "i"
    lone.send("before", request, WITH_REASON_FIRST)
    request.reason = "it was restarted"
    lone.send("after", request, WITH_REASON_FIRST)

    (old,) = [one for one in lone.told if one.event == "group_member_joined"]
    (told,) = [one for one in lone.told if one.event == "group_static_member_replaced"]
    assert told.reason == "the instance joined without a member id (it says: it was restarted)"
    assert told.fields["client_id"] == "after"
    assert told.fields["old_member_id"] == old.fields["member_id"]
    assert told.fields["member_id"].startswith("i-")


def test_an_id_has_no_more_than_the_beginning_of_a_long_client_id() -> None:
    """All of it would fit into no answer, nor into that of the others."""
    lone = Lone(GroupSettings(initial_rebalance_delay_ms=0))
    member_id = _given_id(lone, "c" * 32_767)

    assert member_id.startswith("ccc")
    assert len(member_id) == PREFIX_MAX + 1 + 36


def test_a_static_member_without_patience_is_not_waited_for_without_rest() -> None:
    """It has set 0 ms for a rebalance, and is not there when the last other member leaves."""
    lone = Lone(GroupSettings(initial_rebalance_delay_ms=0, min_session_timeout_ms=1_000))
    script = Script(lone)
    script.enter("dynamic")
    script.join("static", instance="i", session_ms=30_000, rebalance_ms=0)
    script.join("dynamic")
    assert script.generation == {"dynamic": 2, "static": 2}
    script.sync("dynamic", {})
    script.sync("static", instance="i")
    leaver = LeaveGroupRequest.MemberIdentity(script.member["dynamic"])
    lone.send("admin", LeaveGroupRequest("g", members=[leaver]), 4)
    wakes = 0
    group = lone.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    while group.members:
        wakes += 1
        assert wakes <= 60, "more than once or twice a second"
        lone.monotonic_ms = max(lone.monotonic_ms, lone.shard.next_deadline_ms() or 0)
        lone.shard.expire(lone.now)

    assert lone.monotonic_ms == 30_000, "its session has ended"
