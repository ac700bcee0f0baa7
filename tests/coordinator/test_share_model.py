"""Share groups by random heartbeats: a replay gives the same, and everybody has what is to be had.

After each step another shard is made of the records as they come back from the disk. When all that
is asked of the share coordinator has been answered and every member has reported, each partition
that can be delivered and that somebody wants has a member, and no member has what it does not want.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.broker.coordinator.group import share_heartbeat, share_offsets
from ottla.broker.coordinator.group.joining import Caller
from ottla.broker.coordinator.group.settings import GroupSettings, Intervals, ModernSettings
from ottla.broker.coordinator.group.shard import GroupShard
from ottla.broker.coordinator.group.share import ShareGroup
from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.coordinator.records import GROUP_RECORDS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.share_group import ShareGroupHeartbeatRequest
from tests.coordinator.shards import Lone

GROUP = "g"
NAMES = ("t", "u", "v")
MEMBERS = ("a", "b", "c", "d")
CALLER = Caller("client", "/127.0.0.1", 1)
EVERY_BEAT = GroupSettings(share=ModernSettings(default=Intervals(45_000, 5_000, 0), max_size=3))
TOPICS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)


class Noted:
    def __init__(self) -> None:
        self.response: Any = None

    def complete(self, response: Any) -> None:
        self.response = response


class Model(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.lone = Lone(EVERY_BEAT)
        self.epochs: dict[str, int] = {}
        self.open: list[tuple[str, dict[bytes, frozenset[int]]]] = []

    @property
    def group(self) -> ShareGroup | None:
        group = self.lone.shard.groups.get(GROUP)
        assert group is None or isinstance(group, ShareGroup)
        return group

    @rule(member=st.sampled_from(MEMBERS), topics=TOPICS)
    def join(self, member: str, topics: list[str]) -> None:
        is_member = self.group is not None and member in self.group.members
        is_full = self.group is not None and len(self.group.members) == 3
        answer = self._beat(member, 0, topics)
        full = ErrorCode.GROUP_MAX_SIZE_REACHED
        assert answer.error_code == (full if is_full and not is_member else 0)

    @precondition(lambda self: self.epochs)
    @rule(data=st.data(), topics=st.none() | TOPICS)
    def report(self, data: st.DataObject, topics: list[str] | None) -> None:
        member = data.draw(st.sampled_from(sorted(self.epochs)))
        assert self._beat(member, self.epochs[member], topics).error_code == 0

    @precondition(lambda self: self.epochs)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted(self.epochs)))
        assert self._beat(member, -1, None).error_code == 0
        del self.epochs[member]

    @rule(ms=st.sampled_from((1_000, 31_000, 46_000)))
    def time_passes(self, ms: int) -> None:
        self._wait(ms)

    @rule(name=st.sampled_from(NAMES), partitions=st.integers(1, 4))
    def make_topic(self, name: str, partitions: int) -> None:
        known = self.lone.shard.topics.named(name)
        if known is None or known.partition_count < partitions:
            self.lone.put_topic(name, partitions)
            self.lone.shard.topics_changed([name], any_new=known is None)

    @rule(name=st.sampled_from(NAMES))
    def delete_topic(self, name: str) -> None:
        if self.lone.shard.topics.named(name) is not None:
            self.lone.delete_topic(name)

    @precondition(lambda self: self.open)
    @rule(succeeds=st.sampled_from((True, True, False)))
    def the_share_coordinator_answers(self, succeeds: bool) -> None:
        member, places = self.open.pop(0)
        topics = self.lone.shard.topics
        places = {one: parts for one, parts in places.items() if topics.of_id(one) is not None}
        answer = self._ask(
            partial(
                share_heartbeat.initialized,
                group_id=GROUP,
                member_id=member,
                done=places if succeeds else {},
                failed=() if succeeds else list(places),
            )
        )
        if answer.error_code == 0:
            self.epochs[member] = answer.member_epoch

    @precondition(lambda self: self.group is not None and not self.group.members)
    @rule(name=st.sampled_from(NAMES))
    def offsets_are_deleted(self, name: str) -> None:
        topic = self.lone.shard.topics.named(name)
        if topic is None:
            return
        ids = frozenset((topic.topic_id,))
        begin = partial(share_offsets.begin_delete_offsets, group_id=GROUP, topic_ids=ids)
        begun = self._ask(begin)
        assert begun.error_code == 0
        self._ask(partial(share_offsets.finish_delete_offsets, group_id=GROUP, topic_ids=ids))

    @rule()
    def the_broker_begins_anew(self) -> None:
        self.lone.crash()
        self.open.clear()

    @rule()
    def everything_settles(self) -> None:
        for _ in range(4):
            while self.open:
                self.the_share_coordinator_answers(True)
            self._beat_all()
            self._wait(30_000)  # what was asked for and lost is asked for again
            self._beat_all()
        group = self.group
        assert not self.open
        if group is None:
            return
        topics = self.lone.shard.topics
        for name in NAMES:
            topic = topics.named(name)
            if topic is None:
                continue
            wanted = any(name in one.subscribed_names for one in group.members.values())
            held = {
                index
                for one in group.members.values()
                for index in one.assigned.get(topic.topic_id, ())
            }
            assert held == (set(range(topic.partition_count)) if wanted else set())
        for one in group.members.values():
            held_topics = map(topics.of_id, one.assigned)
            assert {t.name for t in held_topics if t is not None} <= one.subscribed_names

    @invariant()
    def a_replay_gives_the_same(self) -> None:
        anew = self.lone.shard.written_anew(self.lone.now, range(10**9))
        assert anew is not None
        assert len(anew.outcome.records) == self.lone.shard.record_count
        for records in (self.lone.records, anew.outcome.records):
            self._replay(records)

    def _replay(self, records: list[CoordinatorRecord]) -> None:
        again: GroupShard = self.lone.new_shard()
        for one in records:
            written = GROUP_RECORDS.encode(one, 0)
            record = GROUP_RECORDS.decode(written.key, written.value)
            assert record is not None
            again.apply(record, 0)
        assert again.groups.keys() == self.lone.shard.groups.keys()
        other = again.groups.get(GROUP)
        group = self.group
        if group is None:
            return
        assert isinstance(other, ShareGroup)
        for name in ("epoch", "metadata_hash", "members", "target", "target_of", "state_of"):
            assert getattr(other, name) == getattr(group, name), name
        assert group.state_name == ("Stable" if group.members else "Empty")

    def _wait(self, ms: int) -> None:
        self.lone.wait(ms)
        present = {} if self.group is None else self.group.members
        self.epochs = {one: epoch for one, epoch in self.epochs.items() if one in present}

    def _beat_all(self) -> None:
        """Everybody reports; who was never answered joins again."""
        waiting = {member for member, _ in self.open}
        for one in [] if self.group is None else list(self.group.members.values()):
            if one.member_id in waiting:
                continue
            epoch = self.epochs.get(one.member_id, 0)
            names = None if one.member_id in self.epochs else sorted(one.subscribed_names)
            assert self._beat(one.member_id, epoch, names).error_code == 0

    def _beat(self, member: str, epoch: int, topics: list[str] | None) -> Any:
        request = ShareGroupHeartbeatRequest(GROUP, member, epoch, None, topics)
        beaten = self._ask(partial(share_heartbeat.heartbeat, caller=CALLER, request=request))
        if beaten.error_code == 0 and beaten.to_initialize:
            # It is answered when the share coordinator has been asked; so long it says nothing.
            self.epochs.pop(member, None)
            self.open.append((member, beaten.to_initialize))
        elif beaten.error_code == 0 and epoch >= 0:
            self.epochs[member] = beaten.response.member_epoch
        return beaten

    def _ask(self, command: Any) -> Any:
        noted = Noted()
        self.lone._perform(self.lone.shard.carry_out(command, noted, self.lone.now))
        return noted.response


Model.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestModel = Model.TestCase
