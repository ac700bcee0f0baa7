"""What the modern kinds of groups share: epochs, targets, topics and their hashes, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from ottla.broker.coordinator.group.consumer import ConsumerGroup, ConsumerMember
from ottla.broker.coordinator.group.kinds import Kind
from ottla.broker.coordinator.group.modern import NOTHING, Assignment
from ottla.broker.coordinator.group.settings import Intervals, ModernSettings
from ottla.broker.coordinator.group.targets import (
    GroupSpec,
    bump_if_due,
    group_spec,
    retarget_if_due,
)
from ottla.broker.coordinator.group.topics import topic_hash
from ottla.broker.coordinator.group.turn import Turn
from ottla.broker.coordinator.group.xxh3 import xxh3_64
from ottla.broker.metadata.image import (
    EMPTY_IMAGE,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from tests.coordinator.shards import TOPIC_ID, Lone

NO_INTERVAL_MS = 0


@pytest.mark.parametrize(
    ("length", "hashed"),
    [
        (0, 3244421341483603138),
        (1, 14144645293874801883),
        (3, 14071657950584810910),
        (4, 15264401271772237449),
        (8, 13298547473703201152),
        (9, 245602082024904742),
        (16, 11358703017679568414),
        (17, 17531454094280037073),
        (128, 7346429547323666821),
        (129, 2884094242154568485),
        (240, 5266862303063109335),
        (241, 6060465359239009000),
        (1024, 15878231082470753371),
        (1025, 16274264765670862374),
        (3600, 6661042557048832892),
    ],
)
def test_xxh3_gives_the_numbers_of_its_authors_library(length: int, hashed: int) -> None:
    data = bytes(index * 7 % 256 for index in range(length))

    assert xxh3_64(data) & (2**64 - 1) == hashed
    assert -(2**63) <= xxh3_64(data) < 2**63


def _put(turn: Turn, member_id: str, *names: str) -> ConsumerGroup:
    group = turn.shard.groups.get("g") or ConsumerGroup("g")
    assert isinstance(group, ConsumerGroup)
    member = ConsumerMember(member_id=member_id, subscribed_names=frozenset(names))
    turn.write(*group.member_record(member))
    group = turn.shard.groups["g"]
    assert isinstance(group, ConsumerGroup)
    return group


def _everything_to_the_first(spec: GroupSpec) -> Mapping[str, Assignment]:
    first = next(iter(spec.members))
    return {first: {topic: frozenset(parts) for topic, parts in spec.partitions.items()}}


def test_a_target_is_made_for_each_epoch_and_written_where_it_differs() -> None:
    lone = Lone()
    turn = Turn(lone.shard, lone.now)
    group = _put(turn, "A", "t")
    bump_if_due(turn, group, "A joined")

    assert retarget_if_due(turn, group, _everything_to_the_first, interval_ms=NO_INTERVAL_MS)
    assert not retarget_if_due(turn, group, _everything_to_the_first, interval_ms=NO_INTERVAL_MS)
    assert (group.epoch, group.target.epoch, group.target_of["A"]) == (
        2,
        2,
        {TOPIC_ID: frozenset(range(8))},
    )

    _put(turn, "B", "t")
    bump_if_due(turn, group, "B joined")
    written = len(turn.outcome.records)
    retarget_if_due(turn, group, _everything_to_the_first, interval_ms=NO_INTERVAL_MS)

    assert group.target_of == {"A": {TOPIC_ID: frozenset(range(8))}, "B": NOTHING}
    assert len(turn.outcome.records) == written + 2, "B's and the epoch's; A's is as it was"


def test_two_targets_are_an_interval_apart() -> None:
    lone = Lone()
    turn = Turn(lone.shard, lone.now)
    group = _put(turn, "A", "t")
    bump_if_due(turn, group, "A joined")
    retarget_if_due(turn, group, _everything_to_the_first, interval_ms=1_000)
    bump_if_due(turn, group, "something else")
    lone.wait(999)
    turn = Turn(lone.shard, lone.now)

    assert not retarget_if_due(turn, group, _everything_to_the_first, interval_ms=1_000)

    lone.wait(1)
    turn = Turn(lone.shard, lone.now)

    assert retarget_if_due(turn, group, _everything_to_the_first, interval_ms=1_000)


def test_only_partitions_that_can_be_assigned_are() -> None:
    lone = Lone()
    group = _put(Turn(lone.shard, lone.now), "A", "t", "not-there")

    def even(topic_id: bytes, count: int) -> Sequence[int]:
        return range(0, count, 2)

    spec = group_spec(lone.shard.topics, group, even)

    assert spec.partitions == {TOPIC_ID: range(0, 8, 2)}
    assert spec.members["A"].topic_ids == {TOPIC_ID}


def test_topics_that_change_make_the_next_epoch_and_others_do_not() -> None:
    lone = Lone()
    turn = Turn(lone.shard, lone.now)
    group = _put(turn, "A", "t", "later")
    bump_if_due(turn, group, "A joined")
    known = group.metadata_hash

    lone.put_topic("unwanted", 1)
    bump_if_due(turn, group, None)

    assert (group.epoch, group.metadata_hash) == (2, known)

    lone.put_topic("later", 1)
    bump_if_due(turn, group, None)

    assert group.epoch == 3
    assert group.metadata_hash != known

    lone.put_topic("t", 9)
    bump_if_due(turn, group, None)

    assert group.epoch == 4

    lone.delete_topic("later")
    lone.put_topic("t", 8)
    bump_if_due(turn, group, None)

    assert (group.epoch, group.metadata_hash) == (5, known)


def test_a_group_of_no_topic_has_the_hash_zero() -> None:
    assert Lone().shard.topics.group_hash(["not-there"]) == 0


def test_the_hash_of_a_topic_is_kafkas_racks_and_all() -> None:
    broker = BrokerImage(1, 0, bytes(16), {}, {}, "r1", False, False, [])
    image = EMPTY_IMAGE._replace(cluster=ClusterImage({1: broker}, {}))

    def partition(*replicas: int) -> PartitionImage:
        return PartitionImage(list(replicas), [], 1, 0, 0, [], [], [], [], [])

    one = TopicImage("t", bytes(range(16)), {0: partition(1), 1: partition(2)})

    assert topic_hash(image, one) == 5379859968738679132


def test_a_groups_own_times_go_over_the_brokers_within_its_bounds() -> None:
    settings = ModernSettings()

    assert settings.of_group(Kind.CONSUMER, {}) is settings.default
    assert settings.of_group(
        Kind.CONSUMER,
        {
            "consumer.session.timeout.ms": "50000",
            "consumer.heartbeat.interval.ms": "1",
            "consumer.assignment.interval.ms": "99999",
            "share.session.timeout.ms": "46000",
        },
    ) == Intervals(50_000, 5_000, 15_000)


def test_a_shard_gives_a_group_its_own_times() -> None:
    lone = Lone()
    group = _put(Turn(lone.shard, lone.now), "A", "t")
    lone.group_configs["g"] = {"consumer.session.timeout.ms": "46000"}

    assert lone.shard.intervals_of(group).session_timeout_ms == 46_000
