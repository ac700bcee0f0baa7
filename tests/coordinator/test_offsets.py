"""Committed offsets: what keeps them, what expires them, what transactions do to them."""

from __future__ import annotations

import random
from typing import Any

from ottla.broker.coordinator.group.classic import ClassicGroup
from ottla.broker.coordinator.group.offsets import Offsets
from ottla.broker.coordinator.group.settings import GroupSettings
from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import groups
from ottla.protocol.messages.coordinator_records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.messages.transactions import TxnOffsetCommitRequest
from tests.coordinator.scenario import Script
from tests.coordinator.shards import TOPIC_ID, Lone, Named
from tests.coordinator.steps import steps_of

RETENTION_MS = 60_000
LONG_MS = 20 * RETENTION_MS
KEY = ("g", "t", 0)


def _lone() -> Lone:
    return Lone(
        GroupSettings(
            offsets_retention_ms=RETENTION_MS,
            initial_rebalance_delay_ms=0,
            min_session_timeout_ms=1_000,
        )
    )


def _wants(topic: str) -> tuple[tuple[str, bytes], ...]:
    """The protocols of a consumer that subscribes to one topic."""
    return (("range", b"\0\0\0\0\0\1\0" + bytes([len(topic)]) + topic.encode() + b"\xff" * 4),)


def _topics(lone: Lone) -> set[str]:
    """Those that the group wants; a replay must say the same."""
    group, replayed = lone.shard.groups["g"], lone.replayed().groups["g"]
    assert isinstance(group, ClassicGroup)
    assert isinstance(replayed, ClassicGroup)
    assert group.subscribed_topics == replayed.subscribed_topics
    assert group.subscribed_topics is not None
    return set(group.subscribed_topics)


def _value(offset: int) -> OffsetCommitValue:
    return OffsetCommitValue(offset, 1, "", 1_000, -1, TOPIC_ID)


def _committed(lone: Lone) -> int | None:
    found = lone.shard.offsets.get(*KEY)
    return None if found is None else found.offset


def test_who_comes_back_for_another_topic_keeps_its_offsets() -> None:
    lone = _lone()
    script = Script(lone)
    static: dict[str, Any] = {"protocol_type": "consumer", "instance": "i", "session_ms": LONG_MS}
    script.join("A", protocols=_wants("other"), **static)
    script.sync("A", {"A": b""}, protocol_type="consumer", instance="i")
    assert _topics(lone) == {"other"}
    script.join("A", protocols=_wants("t"), member_id="", **static)
    script.commit("A", 5)
    assert _topics(lone) == {"t"}
    lone.wait(2 * RETENTION_MS)
    lone.expire_offsets()

    assert _committed(lone) == 5


def test_a_group_that_all_have_left_wants_nothing() -> None:
    lone = _lone()
    script = Script(lone)
    script.enter("A", protocol_type="consumer", protocols=_wants("t"))
    script.sync("A", {"A": b""}, protocol_type="consumer")
    script.commit("A", 5)
    script.leave("A")
    assert _topics(lone) == set()
    lone.wait(2 * RETENTION_MS)
    lone.expire_offsets()

    assert _committed(lone) is None


def test_a_member_that_joins_again_for_another_topic_is_replayed_so() -> None:
    lone = _lone()
    script = Script(lone)
    dynamic: dict[str, Any] = {"protocol_type": "consumer", "session_ms": LONG_MS}
    script.enter("A", protocols=_wants("other"), **dynamic)
    script.sync("A", {"A": b""}, protocol_type="consumer")
    script.join("A", protocols=_wants("t"), **dynamic)
    script.sync("A", {"A": b""}, protocol_type="consumer")

    assert _topics(lone) == {"t"}


def test_protocols_that_nobody_knows_any_more_are_forgotten() -> None:
    lone = _lone()
    script = Script(lone)
    script.enter("A")
    script.sync("A", {"A": b""})
    for number in range(10):
        script.join("A", protocols=(("range", b""), (f"p{number}", b"")))
        script.sync("A", {"A": b""})
    group = lone.shard.groups["g"]
    assert isinstance(group, ClassicGroup)

    assert group._protocol_counts == {"range": 1, "p9": 1}


def test_offsets_of_a_simple_group_expire_by_their_commit() -> None:
    lone = _lone()
    Script(lone).commit("A", 5, generation=-1, member_id="")
    lone.wait(RETENTION_MS - 1)
    lone.expire_offsets()

    assert _committed(lone) == 5

    lone.wait(1)
    lone.expire_offsets()

    assert _committed(lone) is None
    assert "g" not in lone.shard.groups
    assert lone.events()[-2:] == ["group_offsets_expired", "group_deleted"]
    assert "g" not in lone.replayed().groups


def test_offsets_of_a_group_that_had_members_expire_when_it_has_been_empty() -> None:
    lone = _lone()
    script = Script(lone)
    script.enter("A")
    script.sync("A", {"A": b""})
    script.commit("A", 5)
    for _ in range(20):
        lone.wait(RETENTION_MS // 30)
        script.heartbeat("A")
    lone.wait(1_000)
    script.leave("A")
    lone.expire_offsets()

    assert _committed(lone) == 5

    lone.wait(RETENTION_MS)
    lone.expire_offsets()

    assert _committed(lone) is None


def test_offsets_of_members_do_not_expire() -> None:
    lone = _lone()
    script = Script(lone)
    script.enter("A")
    script.sync("A", {"A": b""})
    script.commit("A", 5)
    for _ in range(3 * RETENTION_MS // 1_000):
        lone.wait(1_000)
        script.heartbeat("A")
    lone.expire_offsets()

    assert _committed(lone) == 5


def test_a_consumer_group_forgets_topics_that_it_left() -> None:
    lone = _lone()
    script = Script(lone)
    wants_other = b"\0\0" + b"\0\0\0\1" + b"\0\5other" + b"\xff\xff\xff\xff"
    protocols = (("range", wants_other),)
    script.enter("A", protocol_type="consumer", protocols=protocols)
    script.sync("A", {"A": b""}, protocol_type="consumer")
    script.commit("A", 5)
    for _ in range(RETENTION_MS // 1_000 + 1):
        lone.wait(1_000)
        script.heartbeat("A")
    lone.expire_offsets()

    assert _committed(lone) is None
    assert "g" in lone.shard.groups


def test_a_retention_of_its_own_wins() -> None:
    lone = _lone()
    partition = groups.OffsetCommitRequest.OffsetCommitRequestPartition(0, 5)
    topic = groups.OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[partition])
    request = groups.OffsetCommitRequest("g", -1, "", retention_time_ms=100, topics=[topic])
    lone.send("A", request, 2)
    lone.wait(100)
    lone.expire_offsets()

    assert _committed(lone) is None


def test_offsets_go_with_their_topic_and_do_not_come_back_with_its_name() -> None:
    lone = _lone()
    script = Script(lone)
    script.commit("A", 5, generation=-1, member_id="")
    lone.delete_topic("t")

    assert _committed(lone) is None

    lone.put_topic("t", 8, TOPIC_ID)
    script.commit("A", 6, generation=-1, member_id="")
    # The tombstones were lost with the process.
    lone.put_topic("t", 8, bytes(16 * [7]))
    script.fetch("A")

    assert script.lines[-1].startswith("A OffsetFetch v9 -> 0 NONE; 0: -1")

    lone.expire_offsets()

    assert _committed(lone) is None


def _commit_in_transaction(lone: Lone, offset: int, *, ends: bool) -> int:
    part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, offset)
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic("t", [part])
    request = TxnOffsetCommitRequest("x", "g", 9, 0, topics=[topic])
    outcome = lone.shard.commit_in_transaction(request, Named("x", [], 5), lone.now)
    lone.records += outcome.records
    if ends:
        lone.shard.end_transaction(9, is_commit=True)
    (answer,) = outcome.answers
    code: int = answer.response.topics[0].partitions[0].error_code
    return code


def test_what_a_transaction_committed_goes_with_a_topic_that_went_while_nobody_looked() -> None:
    lone = _lone()
    assert _commit_in_transaction(lone, 5, ends=True) == 0
    lone.crash()
    assert _committed(lone) == 5

    lone.topics.remove("t")
    lone.crash()  # the tombstones were lost with the process
    lone.put_topic("t", 8, bytes(16 * [7]))
    assert _committed(lone) is None
    lone.crash()
    assert _committed(lone) is None


def test_what_a_transaction_committed_is_none_of_a_later_topic_of_the_name() -> None:
    """It was deleted and made again while nobody had the offsets in memory."""
    lone = _lone()
    assert _commit_in_transaction(lone, 5, ends=True) == 0
    lone.topics.remove("t")
    lone.topics.put("t", 8, bytes(16 * [7]))
    lone.crash()
    script = Script(lone)
    script.fetch("A")
    assert script.lines[-1].startswith("A OffsetFetch v9 -> 0 NONE; 0: -1")
    lone.expire_offsets()

    assert _committed(lone) is None


def test_a_transaction_commits_nothing_for_a_topic_that_has_just_gone() -> None:
    lone = _lone()
    lone.delete_topic("t")
    assert _commit_in_transaction(lone, 5, ends=True) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    lone.put_topic("t", 8, bytes(16 * [7]))
    assert _committed(lone) is None


def test_a_topic_takes_its_offsets_along_in_every_group_that_has_some() -> None:
    offsets = Offsets()
    for key in (("a", "t", 0), ("a", "t", 3), ("a", "u", 0), ("b", "u", 1), ("c", "t", 2)):
        offsets.commit(key, _value(1))
    offsets.commit(("a", "t", 3), _value(2), 9)
    offsets.commit(("d", "t", 4), _value(2), 9)
    offsets.commit(("d", "v", 4), _value(2), 9)

    assert offsets.topics() == {"t", "u", "v"}
    assert offsets.of_topics(["t", "w"]) == {("a", "t"): [0, 3], ("c", "t"): [2], ("d", "t"): [4]}
    for key in (("a", "t", 0), ("a", "t", 3), ("a", "u", 0), ("c", "t", 2), ("d", "t", 4)):
        offsets.remove(key)
    assert offsets.topics() == {"u", "v"}
    assert offsets.of_topics(["t", "u"]) == {("b", "u"): [1]}


def test_an_offset_set_from_outside_is_told() -> None:
    lone = _lone()
    script = Script(lone)
    script.enter("A")
    script.sync("A", {"A": b""})
    script.commit("A", 5)
    script.leave("A")
    script.commit("admin", 0, generation=-1, member_id="")
    told = lone.told[-1]

    assert (told.event, told.fields["offset"], told.fields["former_offset"]) == (
        "group_offset_reset",
        0,
        5,
    )


def test_a_simple_consumer_that_is_moved_back_is_told_and_one_that_goes_on_is_not() -> None:
    lone = _lone()
    script = Script(lone)
    for offset in (5, 5, 7, 3):
        script.commit("A", offset, generation=-1, member_id="")

    (told,) = [one for one in lone.told if one.event == "group_offset_reset"]
    assert (told.fields["offset"], told.fields["former_offset"]) == (3, 7)
    assert told.reason == "an offset was moved back by a commit without a generation"


def test_a_transaction_is_pending_until_its_marker() -> None:
    offsets = Offsets()
    offsets.commit(KEY, _value(1))
    offsets.commit(KEY, _value(2), 9)

    assert offsets.is_pending(KEY)
    assert offsets.has_open_transaction("g")
    assert offsets.pending_keys("g") == [KEY]

    offsets.end_transaction(9, is_commit=True)
    found = offsets.get(*KEY)

    assert found is not None
    assert found.offset == 2
    assert not offsets.is_pending(KEY)


def test_an_aborted_one_leaves_nothing() -> None:
    offsets = Offsets()
    offsets.commit(KEY, _value(2), 9)
    offsets.end_transaction(9, is_commit=False)

    assert offsets.get(*KEY) is None
    assert not offsets.has_open_transaction("g")


def test_a_commit_meanwhile_wins_over_the_transaction_before_it() -> None:
    offsets = Offsets()
    offsets.commit(KEY, _value(2), 9)
    offsets.commit(KEY, _value(3))
    offsets.end_transaction(9, is_commit=True)
    found = offsets.get(*KEY)

    assert found is not None
    assert found.offset == 3


def test_all_offsets_are_counted_without_a_look_at_each() -> None:
    """What is out of date is sought once a second."""
    offsets = Offsets()
    rng = random.Random(5)
    cost = steps_of(lambda: len(offsets))
    for _ in range(3_000):
        key = (f"g{rng.randrange(100)}", f"t{rng.randrange(2)}", rng.randrange(2))
        producer_id = rng.choice((-1, -1, 9, 10))
        match rng.randrange(5):
            case 0:
                offsets.remove(key)
            case 1:
                offsets.end_transaction(producer_id, is_commit=rng.random() < 0.5)
            case _:
                offsets.commit(key, _value(2), producer_id)
        assert len(offsets) == sum(1 for _ in offsets)

    assert len(offsets) > 100
    assert steps_of(lambda: len(offsets)) == cost


def test_who_asks_for_stable_offsets_is_told_that_one_is_not() -> None:
    lone = _lone()
    Script(lone).commit("A", 5, generation=-1, member_id="")
    lone.shard.apply(CoordinatorRecord(OffsetCommitKey(*KEY), _value(8)), 0, 9)
    topic = groups.OffsetFetchRequest.OffsetFetchRequestTopics("t", partition_indexes=[0])
    one = groups.OffsetFetchRequest.OffsetFetchRequestGroup("g", topics=[topic])
    lone.answers()
    for stable, expected in ((True, (-1, 88)), (False, (5, 0))):
        lone.send("A", groups.OffsetFetchRequest(groups=[one], require_stable=stable), 9)
        ((_, answer),) = lone.answers()
        (part,) = answer.groups[0].topics[0].partitions

        assert (part.committed_offset, part.error_code) == expected
    lone.shard.end_transaction(9, is_commit=True)

    assert _committed(lone) == 8


def test_a_deleted_group_takes_its_offsets_along() -> None:
    lone = _lone()
    script = Script(lone)
    script.commit("A", 5, generation=-1, member_id="")
    script.delete_group()

    assert lone.shard.groups == {}
    assert _committed(lone) is None
    assert lone.replayed().groups == {}
