"""What the metrics page says of groups, share groups and coordinators, as a scraper reads it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from ottla.broker import group_measures
from ottla.broker.coordinator import loading
from ottla.broker.coordinator.group.coordinator import CONSUMER_OFFSETS
from ottla.broker.group_measures import watch_groups, watch_shares
from ottla.broker.share.counts import IDLE_GROUPS_MAX, ShareCounts
from ottla.broker.telemetry.metrics import PAUSE, Registry
from ottla.protocol.messages import groups
from ottla.protocol.messages.configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.consumer_group import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.share_group import ShareGroupHeartbeatRequest
from tests.coordinator.asking import ask
from tests.handlers.rooms import House
from tests.share.sharing import GROUP, TOPIC, Member, begin, topic_id, written

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
GROUP_CONFIG = 32
LOCK_MS = 30_000
DAY_MS = 86_400_000
MEMBER_ID = "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.fixture
async def house() -> AsyncIterator[House]:
    config = {
        "offsets.topic.num.partitions": "3",
        "share.coordinator.state.topic.num.partitions": "2",
    }
    async with House(config) as opened:
        yield opened


def _page(house: House) -> Registry:
    registry = Registry()
    watch_groups(registry, house.rooms)
    watch_shares(registry, house.rooms)
    return registry


def _values(registry: Registry, name: str) -> dict[str, float]:
    """By the values of the labels, with a space between them."""
    found = {}
    for line in registry.lines():
        match = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        if match is not None:
            found[" ".join(re.findall(r'"([^"]*)"', match[1] or ""))] = float(match[2])
    return found


def _some(registry: Registry, name: str) -> dict[str, float]:
    """Those that are not 0."""
    return {labels: value for labels, value in _values(registry, name).items() if value}


async def _coordinate(house: House) -> None:
    await house.create("t", partitions=2)
    await ask(house, groups.FindCoordinatorRequest(coordinator_keys=["g"]), 4)


async def _commit(house: House, group_id: str, *partitions: int) -> None:
    one = groups.OffsetCommitRequest.OffsetCommitRequestPartition
    topic = groups.OffsetCommitRequest.OffsetCommitRequestTopic(
        "t", partitions=[one(index, 5, -1, None) for index in partitions]
    )
    answer = await ask(house, groups.OffsetCommitRequest(group_id, -1, "", None, topics=[topic]), 8)
    assert [part.error_code for part in answer.topics[0].partitions] == [0] * len(partitions)


async def _beat(house: House, epoch: int) -> None:
    request = ConsumerGroupHeartbeatRequest(
        "modern", MEMBER_ID, epoch, subscribed_topic_names=["t"], rebalance_timeout_ms=60_000
    )
    if epoch == 0:
        request.topic_partitions = []
    answer = await ask(house, request, 1)
    assert answer.error_code == 0, answer.error_message


async def test_groups_by_type_and_state(house: House) -> None:
    page = _page(house)
    await _coordinate(house)
    assert set(_values(page, "ottla_groups").values()) == {0}

    await _commit(house, "simple", 0)
    await _beat(house, 0)
    share = ShareGroupHeartbeatRequest("shared", MEMBER_ID, 0, subscribed_topic_names=["t"])
    answer = await ask(house, share, 1)
    assert answer.error_code == 0, answer.error_message

    assert _some(page, "ottla_groups") == {
        "classic Empty": 1,
        "consumer Stable": 1,
        "share Stable": 1,
    }
    assert _values(page, "ottla_group_members") == {"classic": 0, "consumer": 1, "share": 1}
    assert list(_values(page, "ottla_groups")) == [
        "classic Empty",
        "classic PreparingRebalance",
        "classic CompletingRebalance",
        "classic Stable",
        "consumer Empty",
        "consumer Assigning",
        "consumer Reconciling",
        "consumer Stable",
        "share Empty",
        "share Stable",
    ]

    await _beat(house, -1)

    assert _some(page, "ottla_groups")["consumer Empty"] == 1
    assert _values(page, "ottla_group_members")["consumer"] == 0


async def test_many_groups_are_gone_through_in_pieces(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And while somebody changes them."""
    monkeypatch.setattr(group_measures, "GROUPS_PER_TURN", 2)
    page = _page(house)
    await _coordinate(house)
    for number in range(5):
        await _commit(house, f"simple-{number}", 0)
    lines = page.lines()
    before: list[str] = []
    while PAUSE not in before:
        before.append(next(lines))
    await _commit(house, "late", 0)
    assert not any(line.startswith("ottla_groups{") for line in before)
    rest = list(lines)

    assert 1 <= rest.count(PAUSE) <= 2
    assert 'ottla_groups{type="classic",state="Empty"} 5' in rest or (
        'ottla_groups{type="classic",state="Empty"} 6' in rest
    )
    assert _values(page, "ottla_groups")["classic Empty"] == 6


async def test_what_happens_to_groups_is_counted_by_its_event(house: House) -> None:
    page = _page(house)
    await _coordinate(house)
    shown = _values(page, "ottla_group_events_total")
    assert (shown["group_member_evicted"], shown["share_state_cut"]) == (0, 0)
    assert shown["group_member_joined"] == 0

    await _beat(house, 0)
    assert _some(page, "ottla_group_events_total") == {"group_rebalances": 1, "group_assigned": 1}

    house.rooms.clock.advance(DAY_MS)  # type: ignore[attr-defined]
    now = house.rooms.groups.now()
    house.rooms.groups.perform_all(lambda shard: shard.expire(now))

    assert _some(page, "ottla_group_events_total") == {
        "group_rebalances": 1,
        "group_assigned": 1,
        "group_member_evicted": 1,
        "group_empty": 1,
    }


async def test_offsets_committed_deleted_and_expired(house: House) -> None:
    page = _page(house)
    await _coordinate(house)
    await _commit(house, "simple", 0, 1)
    await _commit(house, "simple", 0)
    await _commit(house, "other", 1)
    partition = groups.OffsetDeleteRequest.OffsetDeleteRequestPartition(1)
    topic = groups.OffsetDeleteRequest.OffsetDeleteRequestTopic("t", [partition])
    await ask(house, groups.OffsetDeleteRequest("simple", [topic]), 0)
    house.rooms.clock.advance(8 * DAY_MS)  # type: ignore[attr-defined]
    now = house.rooms.groups.now()
    house.rooms.groups.perform_all(lambda shard: shard.expire_offsets(now))
    # It is answered when what was written before is durable.
    await ask(house, groups.DescribeGroupsRequest(["simple", "other"]), 5)

    assert _values(page, "ottla_offset_commits_total") == {"": 4}
    assert _values(page, "ottla_offset_deletions_total") == {"": 1}
    assert _values(page, "ottla_offset_expirations_total") == {"": 2}


async def test_partitions_of_coordinators_that_load(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "SHORT_LOG_BYTES", 0)
    page = _page(house)
    assert _some(page, "ottla_coordinator_partitions") == {}
    await _coordinate(house)
    await _commit(house, "simple", 0)
    ((runner, _),) = [
        (runner, shard) for runner, shard in house.rooms.groups.loaded() if shard.groups
    ]
    assert _some(page, "ottla_coordinator_partitions") == {f"{CONSUMER_OFFSETS} loaded": 3}

    runner.start()

    assert _some(page, "ottla_coordinator_partitions") == {
        f"{CONSUMER_OFFSETS} loaded": 2,
        f"{CONSUMER_OFFSETS} loading": 1,
    }
    await house.settle()
    assert _some(page, "ottla_coordinator_partitions") == {f"{CONSUMER_OFFSETS} loaded": 3}


async def test_the_records_that_a_share_group_has_in_hand(house: House) -> None:
    page = _page(house)
    await begin(house)
    await house.append(TOPIC, 0, [b"v"] * 10)
    a = Member(house, "a")
    assert await a.acquire() == [(0, 9, 1)]
    assert _values(page, "ottla_share_partitions") == {GROUP: 1}
    assert _values(page, "ottla_share_sessions") == {"": 1}

    renewed = await a.acknowledge((6, 9, [RENEW]), is_renew_ack=True)
    assert renewed.error_code == 0
    await a.acknowledge(
        (1, 2, [ACCEPT]), (3, 3, [REJECT]), (4, 5, [RELEASE, GAP]), is_renew_ack=False
    )

    assert _values(page, "ottla_share_records_in_flight") == {
        f"{GROUP} available": 1,
        f"{GROUP} acquired": 5,
        f"{GROUP} settled": 4,
    }
    assert _values(page, "ottla_share_acknowledgements_total") == {
        f"{GROUP} accept": 2,
        f"{GROUP} release": 1,
        f"{GROUP} reject": 1,
        f"{GROUP} renew": 4,
        f"{GROUP} gap": 1,
    }
    assert _values(page, "ottla_share_records_given_up_total") == {GROUP: 0}


async def test_many_partitions_of_share_groups_are_gone_through_in_pieces(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_measures, "PARTITIONS_PER_TURN", 2)
    page = _page(house)
    await begin(house, partitions=5)
    for partition in range(5):
        await house.append(TOPIC, partition, [b"v"] * 2)
    await Member(house, "a").fetch(partitions=range(5))

    assert list(page.lines()).count(PAUSE) == 2
    assert _values(page, "ottla_share_records_in_flight")[f"{GROUP} acquired"] == 10


async def test_locks_that_end_and_records_that_come_no_more(house: House) -> None:
    page = _page(house)
    await begin(house)
    config = IncrementalAlterConfigsRequest.AlterableConfig("share.delivery.count.limit", 0, "2")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(GROUP_CONFIG, GROUP, [config])
    await ask(house, IncrementalAlterConfigsRequest([resource]), 1)
    await house.append(TOPIC, 0, [b"v"] * 3)
    a = Member(house, "a")
    share_of = house.rooms.shares.get

    await a.acquire()
    await a.acknowledge((0, 1, [RELEASE]))
    for _ in range(3):
        house.rooms.clock.advance(LOCK_MS)  # type: ignore[attr-defined]
        share = share_of(GROUP, (topic_id(house), 0))
        assert share is not None
        share.expire()
        await written(house)
        await a.acquire()

    assert _values(page, "ottla_share_acknowledgements_total")[f"{GROUP} release"] == 2
    given_up = _values(page, "ottla_share_records_given_up_total")[GROUP]
    timeouts = _values(page, "ottla_share_lock_timeouts_total")[GROUP]
    assert (given_up, timeouts) == (3, 4), "one lock ended twice, two of them once"


async def test_a_release_at_the_limit_is_given_up_and_a_rejection_is_not(house: House) -> None:
    page = _page(house)
    await begin(house)
    config = IncrementalAlterConfigsRequest.AlterableConfig("share.delivery.count.limit", 0, "2")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(GROUP_CONFIG, GROUP, [config])
    await ask(house, IncrementalAlterConfigsRequest([resource]), 1)
    await house.append(TOPIC, 0, [b"v"] * 2)
    a = Member(house, "a")
    await a.acquire()
    await a.acknowledge((0, 0, [RELEASE]), (1, 1, [REJECT]))
    assert await a.acquire() == [(0, 0, 2)]

    await a.acknowledge((0, 0, [RELEASE]))

    assert _values(page, "ottla_share_records_given_up_total") == {GROUP: 1}
    assert _values(page, "ottla_share_acknowledgements_total")[f"{GROUP} reject"] == 1


def test_groups_that_nothing_is_delivered_to_are_forgotten_when_they_are_many() -> None:
    delivering = {"first"}
    counts = ShareCounts(delivering.__contains__)
    for group_id in ("first", "second", *map(str, range(IDLE_GROUPS_MAX))):
        counts.of(group_id).given_up += 1
    shown = dict(counts.by_group())

    assert len(shown) == IDLE_GROUPS_MAX + 1
    assert "first" in shown
    assert "second" not in shown
    assert counts.of("second").given_up == 0
    assert counts.of("first").given_up == 1
