"""Consumer groups behind their handlers, and what the conversations with Apache Kafka cannot show:
settings, patterns, events, replays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla.broker.controller.features import GROUP_VERSION
from ottla.broker.coordinator.group.classic import ClassicGroup
from ottla.broker.coordinator.group.consumer import ConsumerGroup, ConsumerState
from ottla.broker.coordinator.group.patterns import (
    PATTERN_LENGTH_MAX,
    check_pattern,
    resolve,
)
from ottla.broker.coordinator.group.settings import GroupSettings, Intervals, ModernSettings
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import groups
from ottla.protocol.messages.configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.features import UpdateFeaturesRequest
from ottla.protocol.messages.transactions import TxnOffsetCommitRequest
from tests.coordinator.asking import ask
from tests.coordinator.shards import Lone, Named
from tests.handlers.rooms import House

AT_ONCE = GroupSettings(consumer=ModernSettings(Intervals(45_000, 5_000, 0)))
GROUP_RESOURCE = 32
BROKER_RESOURCE = 4


def joining(member: str = "A", group: str = "g", **fields: Any) -> ConsumerGroupHeartbeatRequest:
    fields = {"subscribed_topic_names": ["t"], **fields}
    return ConsumerGroupHeartbeatRequest(
        group, member, 0, rebalance_timeout_ms=3_000, topic_partitions=[], **fields
    )


@asynccontextmanager
async def opened(settings: dict[str, str] | None = None) -> AsyncIterator[House]:
    async with House({"offsets.topic.num.partitions": "3", **(settings or {})}) as house:
        await ask(house, groups.FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        yield house


class Pair:
    """A shard alone, asked directly."""

    def __init__(self, settings: GroupSettings = AT_ONCE) -> None:
        self.lone = Lone(settings)

    def ask(self, request: Any) -> ConsumerGroupHeartbeatResponse:
        self.lone.send("x", request, 1)
        ((_, answer),) = self.lone.answers()
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer

    def beat(self, member: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        return self.ask(ConsumerGroupHeartbeatRequest("g", member, epoch, **fields))

    @property
    def group(self) -> ConsumerGroup:
        group = self.lone.shard.groups["g"]
        assert isinstance(group, ConsumerGroup)
        return group


# handlers


async def test_a_member_joins_and_is_described_and_listed() -> None:
    async with opened() as house:
        await house.create("t", partitions=2)
        joined = await ask(house, joining(), 1)

        assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (
            0,
            2,
            5_000,
        )
        assert joined.assignment.topic_partitions[0].partitions == [0, 1]

        asked = ConsumerGroupDescribeRequest(["g", "nobody", ""], True)
        found, unknown, nameless = (await ask(house, asked, 1)).groups

        assert (found.group_state, found.members[0].client_host) == ("Stable", "/127.0.0.1")
        assert found.authorized_operations > 0
        assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert nameless.error_code == ErrorCode.INVALID_GROUP_ID

        (listed,) = (await ask(house, groups.ListGroupsRequest([], ["consumer"]), 5)).groups

        assert (listed.group_id, listed.group_state) == ("g", "Stable")


async def test_nothing_is_served_while_the_feature_is_off() -> None:
    async with opened() as house:
        update = UpdateFeaturesRequest.FeatureUpdateKey(GROUP_VERSION, 0, False, 2)
        await ask(house, UpdateFeaturesRequest(1_000, [update]), 2)

        assert (await ask(house, joining(), 1)).error_code == ErrorCode.UNSUPPORTED_VERSION
        (found,) = (await ask(house, ConsumerGroupDescribeRequest(["g"]), 1)).groups
        assert found.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_nothing_is_served_that_the_broker_is_not_to_serve() -> None:
    async with opened({"group.coordinator.rebalance.protocols": "classic"}) as house:
        assert (await ask(house, joining(), 1)).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"group": " "}, ErrorCode.INVALID_REQUEST),
        ({"member": ""}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({}, ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_what_is_no_request_is_told_by_who_coordinates_nothing(
    wrong: dict[str, Any], code: ErrorCode
) -> None:
    """To look for another coordinator would mend nothing."""
    async with House() as house:
        assert (await ask(house, joining(**wrong), 1)).error_code == code


async def test_settings_of_a_group_and_of_the_cluster_take_effect_at_once() -> None:
    async with opened() as house:
        await house.create("t", partitions=2)
        await ask(house, joining(), 1)
        await _alter(house, GROUP_RESOURCE, "g", "consumer.heartbeat.interval.ms", "7000")

        beat = ConsumerGroupHeartbeatRequest("g", "A", 2)
        assert (await ask(house, beat, 1)).heartbeat_interval_ms == 7_000

        # The assignment interval holds back the second member's share, and then does not.
        await ask(house, joining("B"), 1)
        assert (await ask(house, ConsumerGroupDescribeRequest(["g"]), 1)).groups[
            0
        ].group_state == "Assigning"
        name = "group.consumer.assignment.interval.ms"
        await _alter(house, BROKER_RESOURCE, "", name, "0")
        await ask(house, beat, 1)
        (found,) = (await ask(house, ConsumerGroupDescribeRequest(["g"]), 1)).groups
        assert (found.group_state, found.assignment_epoch) == ("Reconciling", 3)


async def test_topics_that_are_made_and_grow_are_assigned() -> None:
    async with opened() as house:
        joined = await ask(house, joining(), 1)
        assert joined.assignment.topic_partitions == []

        name = "group.consumer.assignment.interval.ms"
        await _alter(house, BROKER_RESOURCE, "", name, "0")
        await house.create("t", partitions=3)
        beat = ConsumerGroupHeartbeatRequest("g", "A", joined.member_epoch)
        told = await ask(house, beat, 1)

        assert told.assignment.topic_partitions[0].partitions == [0, 1, 2]


async def test_a_pattern_is_matched_beside_everything_else() -> None:
    async with opened() as house:
        name = "group.consumer.assignment.interval.ms"
        await _alter(house, BROKER_RESOURCE, "", name, "0")
        await house.create("orders.eu", partitions=1)
        await house.create("other", partitions=1)
        asked = joining(subscribed_topic_names=None, subscribed_topic_regex=r"orders\..*")
        told = await ask(house, asked, 1)
        assert told.assignment.topic_partitions == []
        async with asyncio.timeout(5):
            while not (told.assignment and told.assignment.topic_partitions):
                beat = ConsumerGroupHeartbeatRequest("g", "A", told.member_epoch)
                told = await ask(house, beat, 1)
                await asyncio.sleep(0)

        (one,) = told.assignment.topic_partitions
        assert one.topic_id == house.rooms.image.topics.by_name["orders.eu"].topic_id


async def _alter(house: House, kind: int, resource: str, name: str, value: str) -> None:
    change = IncrementalAlterConfigsRequest.AlterableConfig(name, 0, value)
    one = IncrementalAlterConfigsRequest.AlterConfigsResource(kind, resource, [change])
    (answer,) = (await ask(house, IncrementalAlterConfigsRequest([one]), 1)).responses
    assert not answer.error_code, answer


# patterns


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("a.c", ["abc", "a.c"]),
        ("a", ["a"]),
        (r"a\.c", ["a.c"]),
        ("(?i)ABC", ["abc"]),
        (r"\Qa.c\E|x+", ["a.c", "xxx"]),
        ("[[:alpha:]]{3}", ["abc", "xxx"]),
        ("", []),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, matches: list[str]) -> None:
    names = ["a", "abc", "a.c", "xxx", "ab"]

    assert resolve([pattern], names)[pattern] == frozenset(matches)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(a", "missing closing )"),
        ("[a", "missing closing ]"),
        ("*", "missing argument to repetition operator"),
        ("a{2,1}", "invalid repeat count"),
        ("[z-a]", "invalid character class range"),
        ("a**", "invalid nested repetition operator"),
        ("\\8", "invalid escape sequence"),
        ("(?=a)", "invalid perl operator"),
    ],
)
def test_what_is_no_pattern_is_refused_in_kafkas_words(pattern: str, said: str) -> None:
    expected = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {said}."

    with pytest.raises(KafkaError, match="INVALID_REGULAR_EXPRESSION") as caught:
        check_pattern(pattern)

    assert caught.value.message == expected
    assert resolve([pattern], ["a"]) == {pattern: frozenset()}


def test_no_pattern_takes_long() -> None:
    """It would take a backtracking matcher longer than there is time."""
    started = time.perf_counter()
    resolve(["(a+)+$", "(a|a)*b", "(.*)*x"], ["a" * 249 + "!"] * 100)

    assert time.perf_counter() - started < 1


def test_a_pattern_that_takes_long_to_compile_is_refused_unread() -> None:
    pair = Pair()
    longest = "a" * PATTERN_LENGTH_MAX
    refused = pair.ask(
        joining(subscribed_topic_names=None, subscribed_topic_regex="a{1,9}" * 5_000)
    )
    taken = pair.ask(joining(subscribed_topic_names=None, subscribed_topic_regex=longest))

    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.error_message == ("SubscribedTopicRegex has 30000 characters; it may have 4096.")
    assert not taken.error_code


def test_a_short_pattern_that_stands_for_very_much_is_refused() -> None:
    """Half a million instructions: they would take a third of a second, and 8 MB for good."""
    with pytest.raises(KafkaError, match="stands for too much") as caught:
        check_pattern(r"(?:\pL|\pN)" * 370)

    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    check_pattern(r"(?:\pL|\pN)+" * 3)


def test_patterns_are_matched_again_for_new_topics_but_not_too_often() -> None:
    pair = Pair()
    pair.ask(joining(subscribed_topic_names=None, subscribed_topic_regex="u.*"))
    assert pair.group.resolved["u.*"].topics == frozenset()
    assert not pair.group.is_resolving

    pair.lone.put_topic("u1", 1)
    pair.beat("A", 1)
    assert pair.group.resolved["u.*"].topics == frozenset(), "ten seconds are not over"

    pair.lone.wait(10_001)
    pair.beat("A", 1)
    assert pair.group.resolved["u.*"].topics == {"u1"}
    assert pair.beat("A", 1).assignment is not None

    pair.lone.delete_topic("u1")
    pair.lone.wait(10_001)
    pair.beat("A", 2)
    assert pair.group.resolved["u.*"].topics == {"u1"}, "no topic is new"


def test_patterns_are_matched_again_when_they_are_old() -> None:
    pair = Pair(GroupSettings(consumer=AT_ONCE.consumer, regex_refresh_ms=20_000))
    pair.ask(joining(subscribed_topic_names=None, subscribed_topic_regex="t|u.*"))
    first = pair.group.resolved["t|u.*"].timestamp_ms
    pair.lone.wait(15_000)
    pair.beat("A", 1)
    assert pair.group.resolved["t|u.*"].timestamp_ms == first

    pair.lone.wait(5_001)
    pair.beat("A", 2)
    assert pair.group.resolved["t|u.*"].timestamp_ms == first + 20_001


# everything else


def test_a_full_group_lets_nobody_else_in() -> None:
    pair = Pair(GroupSettings(consumer=ModernSettings(AT_ONCE.consumer.default, max_size=1)))
    pair.ask(joining())
    refused = pair.ask(joining("B"))

    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (
        refused.error_message == "The consumer group has reached its maximum capacity of 1 members."
    )
    assert not pair.ask(joining()).error_code


@pytest.mark.parametrize(
    ("upgrade", "downgrade"), [(False, False), (True, False), (False, True), (True, True)]
)
def test_the_migration_policy_says_who_may_turn_into_what(upgrade: bool, downgrade: bool) -> None:
    pair = Pair(
        GroupSettings(consumer=AT_ONCE.consumer, can_upgrade=upgrade, can_downgrade=downgrade)
    )
    pair.ask(joining())
    protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol(
        "range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
    )
    request = groups.JoinGroupRequest("g", 10_000, 10_000, "B", None, "consumer", [protocol])
    pair.lone.send("B", request, 9)
    ((_, joined),) = pair.lone.answers()

    if not upgrade and not downgrade:
        assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return
    assert not joined.error_code
    pair.beat("A", -1)
    is_classic = pair.lone.shard.groups["g"].kind.value == "classic"
    assert is_classic == downgrade
    if not is_classic:
        return
    answer = pair.ask(joining("C"))
    assert answer.error_code == (0 if upgrade else ErrorCode.GROUP_ID_NOT_FOUND)
    if not upgrade:
        assert answer.error_message == (
            "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
        )


def test_a_crash_forgets_nothing_that_matters() -> None:
    pair = Pair()
    pair.ask(joining(instance_id="i"))
    pair.ask(joining("B", subscribed_topic_regex="u.*"))
    pair.beat("A", 2, instance_id="i")
    before = (pair.group.members, pair.group.target_of, pair.group.resolved, pair.group.epoch)

    pair.lone.crash()

    assert (
        pair.group.members,
        pair.group.target_of,
        pair.group.resolved,
        pair.group.epoch,
    ) == before
    topic_id = pair.lone.topic_id("t")
    assert {pair.group.owner_of(topic_id, index) for index in range(8)} == {"A"}
    # Everybody has a session again, and A as long as at first to give up its half.
    pair.lone.wait(3_000)
    assert list(pair.group.members) == ["B"]
    pair.lone.wait(42_000)
    assert pair.group.state is ConsumerState.EMPTY


def test_each_thing_that_happens_is_told_with_its_reason() -> None:
    pair = Pair()
    pair.ask(joining(instance_id="i"))
    pair.beat("A", 9, instance_id="i")
    pair.ask(joining("B"))
    pair.beat("A", -2, instance_id="i")
    pair.ask(joining("C", instance_id="i"))
    pair.lone.put_topic("t", 9)
    pair.lone.wait(1)
    pair.beat("B", 3)
    pair.lone.wait(45_000)

    told = [(one.event, one.reason) for one in pair.lone.told if one.event != "group_assigned"]
    assert told == [
        ("group_rebalances", "A joined (x, /127.0.0.1)"),
        (
            "group_member_fenced",
            "The consumer group member has a greater member epoch (9) than the one known by the"
            " group coordinator (2). The member must abandon all its partitions and rejoin.",
        ),
        ("group_rebalances", "B joined (x, /127.0.0.1)"),
        ("group_member_left", "it is static, and says that it will be back"),
        ("group_static_member_replaced", "the instance joined anew"),
        ("group_rebalances", "its topics have changed"),
        ("group_member_evicted", "its session of 45000 ms is over"),
        ("group_rebalances", "C was evicted: its session of 45000 ms is over"),
        ("group_member_evicted", "its session of 45000 ms is over"),
        ("group_empty", "B was evicted: its session of 45000 ms is over"),
    ]
    (left,) = [one.fields for one in pair.lone.told if one.event == "group_member_left"]
    assert left["client_id"] == "x"


def test_a_group_that_is_empty_goes_with_its_last_offset() -> None:
    pair = Pair()
    pair.ask(joining())
    part = groups.OffsetCommitRequest.OffsetCommitRequestPartition(0, 5)
    topic = groups.OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[part])
    pair.lone.send("A", groups.OffsetCommitRequest("g", 2, "A", topics=[topic]), 9)
    pair.lone.answers()
    week_ms = 7 * 24 * 3_600_000
    pair.beat("A", -1)
    pair.lone.expire_offsets()
    assert "g" in pair.lone.shard.groups

    pair.lone.wait(week_ms)
    pair.lone.expire_offsets()

    assert pair.lone.shard.groups == {}
    assert pair.lone.replayed().groups == {}
    assert pair.lone.events()[-1] == "group_deleted"


@pytest.mark.parametrize(("protocol_type", "names"), [("", ["range"]), ("consumer", [])])
def test_a_classic_join_that_is_refused_leaves_an_empty_group_alone(
    protocol_type: str, names: list[str]
) -> None:
    pair = Pair()
    pair.ask(joining())
    pair.beat("A", -1)
    before = pair.group.epoch
    protocols = [groups.JoinGroupRequest.JoinGroupRequestProtocol(name, b"") for name in names]
    request = groups.JoinGroupRequest("g", 10_000, 10_000, "", None, protocol_type, protocols)
    pair.lone.send("B", request, 9)
    ((_, refused),) = pair.lone.answers()

    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (pair.group.epoch, pair.group.state) == (before, ConsumerState.EMPTY)
    assert pair.lone.events()[-1] == "group_member_refused"


def test_a_pattern_joins_a_classic_group_that_has_no_generation_yet() -> None:
    """A member epoch is never 0, though nothing is known to be assigned."""
    pair = Pair(GroupSettings(consumer=AT_ONCE.consumer, initial_rebalance_delay_ms=3_000))
    protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol(
        "range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
    )
    request = groups.JoinGroupRequest("g", 10_000, 10_000, "", "i", "consumer", [protocol])
    pair.lone.send("B", request, 9)
    assert pair.lone.answers() == []

    pair.lone.send("A", joining(subscribed_topic_names=None, subscribed_topic_regex="t"), 1)
    (_, refused), (_, joined) = pair.lone.answers()

    assert refused.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (joined.error_code, joined.member_epoch) == (0, 1)


def test_a_downgrade_is_not_stopped_by_a_protocol_that_nobody_can_read() -> None:
    pair = Pair(GroupSettings(consumer=AT_ONCE.consumer, initial_rebalance_delay_ms=0))
    readable = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
    protocols = [
        groups.JoinGroupRequest.JoinGroupRequestProtocol("odd", b""),
        groups.JoinGroupRequest.JoinGroupRequestProtocol("range", readable),
    ]
    request = groups.JoinGroupRequest("g", 10_000, 10_000, "", "i", "consumer", protocols[1:])
    pair.lone.send("B", request, 9)
    ((_, first),) = pair.lone.answers()
    request.member_id, request.protocols = first.member_id, protocols
    pair.lone.send("B", request, 9)
    ((_, joined),) = pair.lone.answers()
    assert joined.protocol_name == "odd"

    pair.lone.shard.groups["g"].protocol = "range"  # type: ignore[attr-defined]
    assert not pair.ask(joining()).error_code
    assert not pair.beat("A", -1).error_code

    assert pair.lone.shard.groups["g"].kind.value == "classic"


def test_patterns_are_matched_again_after_a_crash() -> None:
    """A topic may have come that nobody has matched yet."""
    pair = Pair()
    pair.ask(joining(subscribed_topic_names=None, subscribed_topic_regex="u.*"))
    pair.lone.put_topic("u1", 1)
    pair.lone.crash()
    pair.lone.wait(10_001)
    pair.beat("A", 1)

    assert pair.group.resolved["u.*"].topics == {"u1"}


def test_a_wall_clock_that_is_set_back_holds_up_nothing() -> None:
    pair = Pair(GroupSettings())
    pair.lone.wait(3_600_000)
    pair.ask(joining(subscribed_topic_names=None, subscribed_topic_regex="u.*"))
    pair.lone.put_topic("u1", 1)
    pair.lone.monotonic_ms = 0
    pair.beat("A", 1)
    pair.ask(joining("B"))

    assert pair.group.resolved["u.*"].topics == {"u1"}
    assert pair.group.target.epoch == pair.group.epoch


@pytest.mark.parametrize("crashes", [False, True])
def test_a_static_member_that_is_away_has_nothing_to_give_up(crashes: bool) -> None:
    pair = Pair()
    pair.ask(joining(instance_id="i"))
    pair.ask(joining("B"))
    pair.beat("A", 2, instance_id="i")
    assert pair.group.members["A"].revoking
    pair.beat("A", -2, instance_id="i")
    if crashes:
        pair.lone.crash()

    pair.lone.wait(44_999)
    assert set(pair.group.members) == {"A", "B"}


def test_members_of_the_classic_protocol_are_assigned_to_when_nobody_else_is_left() -> None:
    pair = Pair(GroupSettings(consumer=AT_ONCE.consumer, can_downgrade=False))
    pair.ask(joining())
    protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol(
        "range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
    )
    join = groups.JoinGroupRequest("g", 60_000, 60_000, "B", None, "consumer", [protocol])
    _ask(pair, join, 9)
    part = ConsumerGroupHeartbeatRequest.TopicPartitions(pair.lone.topic_id("t"), [0, 1, 2, 3])
    pair.beat("A", 2)
    pair.beat("A", 2, topic_partitions=[part])
    beat = groups.HeartbeatRequest("g", _ask(pair, join, 9).generation_id, "B")
    assert pair.group.state is ConsumerState.STABLE

    pair.beat("A", -1)
    assert _ask(pair, beat, 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    beat.generation_id = _ask(pair, join, 9).generation_id
    topic_id = pair.lone.topic_id("t")
    assert len(pair.group.members["B"].assigned[topic_id]) == 8

    pair.lone.put_topic("t", 9)
    assert _ask(pair, beat, 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_downgrade_that_a_crash_cuts_short_goes_on_after_it(comes_back: bool) -> None:
    """Else what the members had who are gone would be nobody's until somebody joins."""
    pair = Pair()
    pair.ask(joining())
    protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol(
        "range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
    )
    join = groups.JoinGroupRequest("g", 10_000, 20_000, "B", None, "consumer", [protocol])
    _ask(pair, join, 9)
    pair.beat("A", -1)
    assert pair.lone.events()[-2:] == ["group_downgraded", "group_rebalances"]
    pair.lone.crash()
    group = pair.lone.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    beat = groups.HeartbeatRequest("g", group.generation, "B")

    if not comes_back:
        pair.lone.wait(10_000)
        assert group.is_empty
        return
    assert _ask(pair, beat, 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    joined = _ask(pair, join, 9)
    assert (joined.leader, joined.generation_id) == ("B", group.generation)
    assignment = groups.SyncGroupRequest.SyncGroupRequestAssignment("B", b"all of it")
    sync = groups.SyncGroupRequest("g", joined.generation_id, "B", None, "consumer", "range")
    sync.assignments = [assignment]
    assert _ask(pair, sync, 5).assignment == b"all of it"
    pair.lone.crash()
    beat.generation_id = joined.generation_id
    assert _ask(pair, beat, 4).error_code == ErrorCode.NONE


def test_a_sync_without_its_protocol_is_refused_whoever_asks() -> None:
    """As a request that is not complete, from the version on that has it."""
    pair = Pair()
    pair.ask(joining())
    sync = groups.SyncGroupRequest("g", 1, "nobody")

    assert _ask(pair, sync, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert _ask(pair, sync, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("kind", "name"), [("", ""), ("consumer", ""), ("", "range")])
@pytest.mark.parametrize("is_classic", [True, False])
def test_a_sync_whose_protocol_has_an_empty_name_is_refused(
    is_classic: bool, kind: str, name: str
) -> None:
    """It is a name like others; none at all is null."""
    pair = Pair()
    if not is_classic:
        pair.ask(joining())
    protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol(
        "range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
    )
    join = groups.JoinGroupRequest("g", 10_000, 20_000, "", None, "consumer", [protocol])
    pair.lone.send("B", join, 3)
    if is_classic:
        pair.lone.wait(10_000)  # for more members
    ((_, joined),) = pair.lone.answers()
    sync = groups.SyncGroupRequest("g", joined.generation_id, joined.member_id, None, kind, name)

    assert _ask(pair, sync, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    sync.protocol_type, sync.protocol_name = "consumer", "range"
    assert _ask(pair, sync, 5).error_code == ErrorCode.NONE


def test_a_former_incarnation_by_the_classic_protocol_is_fenced_and_told() -> None:
    pair = Pair()
    pair.ask(joining())
    protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol(
        "range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
    )
    join = groups.JoinGroupRequest("g", 60_000, 60_000, "", "i", "consumer", [protocol])
    former = _ask(pair, join, 9)
    newer = _ask(pair, join, 9)
    assert former.member_id != newer.member_id

    generation, former_id = former.generation_id, former.member_id
    join.member_id = former_id
    sync = groups.SyncGroupRequest("g", generation, former_id, "i", "consumer", "range")
    leaver = groups.LeaveGroupRequest.MemberIdentity(former_id, "i")
    left = _ask(pair, groups.LeaveGroupRequest("g", members=[leaver]), 5)
    codes = [
        _ask(pair, join, 9).error_code,
        _ask(pair, sync, 5).error_code,
        _ask(pair, groups.HeartbeatRequest("g", generation, former_id, "i"), 4).error_code,
        left.members[0].error_code,
    ]
    assert codes == [ErrorCode.FENCED_INSTANCE_ID] * 4
    fenced = [one for one in pair.lone.told if one.event == "group_member_fenced"]
    assert [one.reason for one in fenced] == [
        f"{api} by a former incarnation"
        for api in ("LeaveGroup", "JoinGroup", "SyncGroup", "Heartbeat")
    ]
    assert {one.fields["current_member_id"] for one in fenced} == {newer.member_id}


def test_who_comes_for_a_name_that_is_taken_is_told_of() -> None:
    pair = Pair()
    pair.ask(joining(instance_id="i"))

    refused = pair.ask(joining("B", instance_id="i"))

    assert refused.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    (taken,) = [one for one in pair.lone.told if one.event == "group_instance_taken"]
    assert taken.reason == refused.error_message
    assert taken.fields["member_id"] == "B"
    assert taken.fields["instance_id"] == "i"
    assert taken.fields["client_id"] == "x"


def _ask(pair: Pair, request: Any, version: int) -> Any:
    """A member of the classic protocol is answered at once."""
    pair.lone.send("B", request, version)
    ((_, answer),) = pair.lone.answers()
    return answer


def test_a_transaction_commits_what_its_member_has_had_since_before_its_newest_epoch() -> None:
    """KIP-1251, as OffsetCommit; seen on Apache Kafka 4.3.1."""
    pair = Pair()
    pair.lone.put_topic("u", 1)
    first = pair.ask(joining()).member_epoch
    newest = pair.beat("A", first, subscribed_topic_names=["t", "u"]).member_epoch
    assert newest > first

    def code(generation: int, *topics: str, member: str = "A") -> int:
        part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, 5)
        asked = [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(one, [part]) for one in topics]
        request = TxnOffsetCommitRequest("x", "g", 7, 0, generation, member, topics=asked)
        shard, now = pair.lone.shard, pair.lone.now
        (answer,) = shard.commit_in_transaction(request, Named("x", [], 5), now).answers
        (found,) = {one.error_code for topic in answer.response.topics for one in topic.partitions}
        assert isinstance(found, int)
        return found

    assert code(newest, "t", "u") == 0
    assert code(first, "t") == 0
    assert code(first, "t", "u") == ErrorCode.ILLEGAL_GENERATION
    assert code(first - 1, "t") == ErrorCode.ILLEGAL_GENERATION
    assert code(newest + 1, "t") == ErrorCode.ILLEGAL_GENERATION
    assert code(-1, "t", member="") == 0
    assert code(-2, "t", member="") == ErrorCode.UNKNOWN_MEMBER_ID
