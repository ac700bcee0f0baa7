"""The simulation of `simulation.py` with consumer groups (KIP-848): invariants G1 to G5.

    python -m tests.coordinator.consumer_simulation                 1,000 seeds
    python -m tests.coordinator.consumer_simulation --seed 42       one, with its story

Members own partitions one by one: they give some up, report it, and take up others. Topics grow,
and members subscribe by names or by a pattern. To the invariants:
  G1  whoever takes up a partition takes it up when no other member has it;
  G5  a full heartbeat that is sent again, because its answer was lost, is answered alike: one
      such answer, for a member that has missed two steps is fenced, as with Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import click

from ottla.broker.coordinator.group.consumer import (
    ConsumerGroup,
    ConsumerMember,
    ConsumerState,
)
from ottla.broker.coordinator.group.settings import GroupSettings, Intervals, ModernSettings
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import groups
from ottla.protocol.messages.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.coordinator.simulation import (
    ANSWER_MS_MAX,
    GROUP,
    HEARTBEAT_MS,
    REBALANCE_MS,
    SESSION_MS,
    Mail,
    Member,
    World,
    durable_offsets,
    tell_story,
)

TOPICS = ("t", "u")
PATTERN = "t|u"
PARTITIONS_MAX = 12
FENCED = frozenset(
    {
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
NAME_TAKEN = frozenset({ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID})

Place = tuple[str, int]


@dataclass
class Consumer(Member):
    """`has` is what it owns, `told` what it is to own; the difference it gives up, or takes up."""

    topics: tuple[str, ...] = TOPICS
    by_pattern: bool = False
    has: set[Place] = field(default_factory=set)
    told: set[Place] | None = None
    at: dict[Place, int] = field(default_factory=dict)
    busy_until_ms: int = 0
    is_sure: bool = False
    """Whether the coordinator knows what it has; else the next heartbeat says everything."""
    is_behind: bool = False
    """Whether it had already missed an answer when it last sent a heartbeat."""
    incarnation: int = 0

    def reset(self) -> None:
        super().reset()
        self.has = set()
        self.told = None
        self.at = {}
        self.generation = 0
        self.is_sure = False

    def reborn(self) -> None:
        """Another process: another id."""
        self.reset()
        self.incarnation += 1
        self.member_id = f"{self.name}.{self.incarnation}"


class Captured:
    """Notes one answer."""

    def __init__(self) -> None:
        self.response: Any = None

    def complete(self, response: Any) -> None:
        self.response = response


class ConsumerWorld(World):
    """One seed."""

    members: list[Consumer]  # type: ignore[assignment]

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.members = [
            Consumer(
                one.name,
                one.instance,
                topics=self.rng.choice((TOPICS, TOPICS, TOPICS, ("t",))),
                by_pattern=self.rng.randrange(4) == 0,
            )
            for one in self.members
        ]
        # Somebody wants everything, so that everything can be assigned in the end.
        self.members[0].topics = TOPICS
        for member in self.members:
            member.reborn()
        self.acked_at: dict[Place, int] = {}
        self.counts = dict.fromkeys(TOPICS, self.partitions)
        for name, count in self.counts.items():
            self.lone.put_topic(name, count)

    def _settings(self) -> GroupSettings:
        interval_ms = self.rng.choice((0, 0, 300, 1_000))
        times = Intervals(SESSION_MS, HEARTBEAT_MS, interval_ms)
        names = self.rng.choice((("uniform", "range"), ("range", "uniform")))
        return GroupSettings(consumer=ModernSettings(times), assignors=names)

    # what happens

    def _step(self, *, calm: bool) -> None:
        if not calm and self._happens(20):
            name = self.rng.choice(TOPICS)
            self.counts[name] = min(self.counts[name] + 1, PARTITIONS_MAX)
            self.lone.put_topic(name, self.counts[name])
            self.tell(f"{name} has {self.counts[name]} partitions")
        if not calm and self._happens(10):
            member = self.rng.choice(self.members[1:] or self.members)
            if len(self.members) > 1 and member is not self.members[0]:
                member.topics = ("t",) if member.topics == TOPICS else TOPICS
                member.is_sure = False
                self.tell(f"{member.name} subscribes to {member.topics}")
        super()._step(calm=calm)

    def _leave(self, member: Member) -> None:
        assert isinstance(member, Consumer)
        is_static = member.instance is not None and self.rng.randrange(2) == 0
        epoch = -2 if is_static else -1
        request = ConsumerGroupHeartbeatRequest(GROUP, member.member_id, epoch, member.instance)
        self._ask(member, request, 1)

    def _act(self, member: Member) -> None:
        assert isinstance(member, Consumer)
        if not member.member_id:
            member.reborn()
        if member.waits_since_ms is not None:
            if self.now_ms - member.waits_since_ms > ANSWER_MS_MAX:
                self._disconnect(member)
            return
        is_due = self.now_ms - member.heard_ms >= HEARTBEAT_MS
        if member.state == "out" or self._reconcile(member) or is_due:
            self._beat(member)
        elif member.has and self.rng.randrange(4) == 0:
            self._commit(member)

    def _reconcile(self, member: Consumer) -> bool:
        """Gives up and takes up what it was told to, which takes time; whether it has."""
        if member.told is None or self.now_ms < member.busy_until_ms:
            return False
        told, member.told = member.told, None
        before, member.has = member.has, set(told)
        for place in told - before:
            self._taken_up(member, place)
        if told != before:
            self.tell(f"{member.name} has {sorted(told)} in epoch {member.generation}")
        return told != before

    def _taken_up(self, member: Consumer, place: Place) -> None:
        committed = self.lone.shard.offsets.get(GROUP, *place)
        member.at[place] = 0 if committed is None else committed.offset
        if not self._is_member(member):
            return  # told so late that it has been evicted meanwhile
        assert member.at[place] >= self.acked_at.get(place, 0), f"G2: {place} of {member.name}"
        for other in self.members:
            if other is not member and place in other.has:
                # It has been away and does not know yet; it must be a member no more.
                assert not self._is_member(other), f"G1: {other.name} still has {place}"

    def _beat(self, member: Consumer) -> None:
        is_joining = member.state == "out"
        is_full = is_joining or not member.is_sure
        request = ConsumerGroupHeartbeatRequest(
            GROUP, member.member_id, 0 if is_joining else member.generation, member.instance
        )
        if is_full:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = [] if member.by_pattern else list(member.topics)
            request.subscribed_topic_regex = ""
            if member.by_pattern:
                request.subscribed_topic_regex = PATTERN if member.topics == TOPICS else "t"
        request.topic_partitions = self._reported(member)
        member.is_sure = True
        known = self._known(member)
        member.is_behind = known is not None and known.epoch != request.member_epoch
        self._ask(member, request, 1)

    def _reported(self, member: Consumer) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
        by_topic: dict[str, list[int]] = {}
        for name, index in sorted(member.has):
            by_topic.setdefault(name, []).append(index)
        return [
            ConsumerGroupHeartbeatRequest.TopicPartitions(self.lone.topic_id(name), indexes)
            for name, indexes in by_topic.items()
        ]

    def _commit(self, member: Member) -> None:
        assert isinstance(member, Consumer)
        place = self.rng.choice(sorted(member.has))
        name, index = place
        member.at[place] += self.rng.randrange(1, 10)
        part = groups.OffsetCommitRequest.OffsetCommitRequestPartition(index, member.at[place])
        topic = groups.OffsetCommitRequest.OffsetCommitRequestTopic(name, partitions=[part])
        request = groups.OffsetCommitRequest(
            GROUP, member.generation, member.member_id, member.instance, topics=[topic]
        )
        before = self.lone.shard.offsets.get(GROUP, name, index)
        may = self._may_commit(member, place)
        self._ask(member, request, 9)
        after = self.lone.shard.offsets.get(GROUP, name, index)
        if not may:
            assert before == after, f"G3: {member.name} has committed {place}"
        elif before is not None and after is not None:
            assert after.offset >= before.offset, f"G2: {member.name} has gone back at {place}"

    def _may_commit(self, member: Consumer, place: Place) -> bool:
        known = self._known(member)
        if known is None or member.generation > known.epoch:
            return False
        if member.generation == known.epoch:
            return True
        topic_id = self.lone.topic_id(place[0])
        return any(
            owned.get(topic_id, {}).get(place[1], member.generation + 1) <= member.generation
            for owned in (known.assigned, known.revoking)
        )

    def _known(self, member: Member) -> ConsumerMember | None:
        """What the coordinator knows of it."""
        group = self.lone.shard.groups.get(GROUP)
        return group.members.get(member.member_id) if isinstance(group, ConsumerGroup) else None

    def _is_member(self, member: Member) -> bool:
        return self._known(member) is not None

    # answers

    def mail(self, mail: Mail, response: Any) -> None:
        connection = mail.member.connection
        super().mail(mail, response)
        was_lost = connection == mail.connection and mail.member.connection != connection
        if was_lost and isinstance(response, ConsumerGroupHeartbeatResponse):
            assert isinstance(mail.member, Consumer)
            if not mail.member.is_behind:
                self._ask_again(mail.request, response)

    def _ask_again(
        self, request: ConsumerGroupHeartbeatRequest, lost: ConsumerGroupHeartbeatResponse
    ) -> None:
        """Asks the coordinator at this very moment; it does not change anything by that."""
        group = self.lone.shard.groups.get(GROUP)
        is_full = request.rebalance_timeout_ms > 0
        if lost.error_code or not is_full or not isinstance(group, ConsumerGroup):
            return
        if group.epoch != group.target.epoch or group.metadata_is_stale:
            return  # the next heartbeat, whatever it says, makes another target
        known = group.members.get(request.member_id)
        if known is None or known.epoch != lost.member_epoch or request.member_epoch == 0:
            return  # it has gone on, or gone
        answer = Captured()
        self.lone.send_for(answer, "again", request, 1)
        self.lone.sync()
        again = answer.response
        same = (lost.error_code, lost.member_epoch, _places(lost))
        assert (again.error_code, again.member_epoch, _places(again)) == same, (
            f"G5: {request} was answered {lost}, then {again}"
        )

    def _take(self, member: Member, request: Any, response: Any) -> None:
        assert isinstance(member, Consumer)
        match response:
            case ConsumerGroupHeartbeatResponse():
                self._beaten(member, request, response)
            case groups.OffsetCommitResponse():
                (part,) = response.topics[0].partitions
                asked = request.topics[0]
                if not part.error_code:
                    place = (asked.name, part.partition_index)
                    offset = asked.partitions[0].committed_offset
                    self.acked_at[place] = max(self.acked_at.get(place, 0), offset)
                elif part.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                    member.reset()

    def _beaten(
        self,
        member: Consumer,
        request: ConsumerGroupHeartbeatRequest,
        response: ConsumerGroupHeartbeatResponse,
    ) -> None:
        code = ErrorCode(response.error_code)
        if request.member_epoch < 0:
            return  # it has left, whatever the answer
        if code in FENCED:
            self.tell(f"{member.name} is fenced: {response.error_message}")
            member.reset()
            return
        if code in NAME_TAKEN:
            member.reborn()
            member.away_until_ms = self.now_ms + HEARTBEAT_MS
            return
        assert not code, (member, response)
        member.state = "running"
        member.heard_ms = self.now_ms
        member.generation = response.member_epoch
        if response.assignment is not None:
            names = {self.lone.topic_id(name): name for name in TOPICS}
            member.told = {(names[topic_id], index) for topic_id, index in _places(response) or ()}
            if member.has - member.told:
                member.busy_until_ms = self.now_ms + self.rng.choice((0, 100, 500, 2_000))

    def _disconnect(self, member: Member) -> None:
        assert isinstance(member, Consumer)
        member.connection += 1
        member.waits_since_ms = None
        member.is_sure = False

    # the end

    def _settled(self) -> bool:
        group = self.lone.shard.groups.get(GROUP)
        if not isinstance(group, ConsumerGroup) or group.state is not ConsumerState.STABLE:
            return False
        had = sorted(place for member in self.members for place in member.has)
        every = sorted((name, index) for name in TOPICS for index in range(self.counts[name]))
        return had == every and all(
            member.state == "running" and member.told is None and self._is_member(member)
            for member in self.members
        )

    def _durable(self, shard: Any, name: str) -> tuple[Any, ...]:
        group = shard.groups[name]
        if not isinstance(group, ConsumerGroup):
            return super()._durable(shard, name)
        group.take_stock()
        owners = {
            (topic_id, index): group.owner_of(topic_id, index)
            for member in group.members.values()
            for owned in (member.assigned, member.revoking)
            for topic_id, epochs in owned.items()
            for index in epochs
        }
        return (
            (group.epoch, group.metadata_hash, group.target, group.target_of),
            (group.members, group.static_members, group.resolved, dict(group.regexes)),
            (owners, group.wanted_names, durable_offsets(shard, name)),
        )


def _places(response: ConsumerGroupHeartbeatResponse) -> set[tuple[bytes, int]] | None:
    if response.assignment is None:
        return None
    return {
        (one.topic_id, index)
        for one in response.assignment.topic_partitions
        for index in one.partitions
    }


def run_seed(seed: int, steps: int = 600) -> ConsumerWorld:
    """One world, to its end; AssertionError says which invariant it broke."""
    world = ConsumerWorld(seed)
    world.run(steps)
    return world


@click.command()
@click.option("--seeds", default=1_000, show_default=True)
@click.option("--seed", default=None, type=int, help="Run one and tell its story.")
def main(seeds: int, seed: int | None) -> None:
    """Runs seeds until one breaks an invariant."""
    tell_story(ConsumerWorld, "consumer_simulation", seeds, seed)


if __name__ == "__main__":
    main()
