"""Members that pause, crash, come back and leave, and a coordinator that crashes: invariants G1-G5.

    python -m tests.coordinator.simulation                 1,000 seeds
    python -m tests.coordinator.simulation --seed 42       one, with its story

Everything is drawn from the seed: how many members and partitions, which of them are static, how
often what fails. Time is virtual. The coordinator's shell is a model of `runtime.py`: answers leave
with the sync that makes durable what they rest on, and a crash forgets everything after it.

After every step:
  G1  a partition has one owner in a generation, and whoever is given one is given it when nobody
      else has it in the belief that he is a member;
  G2  what is fetched is never below what was committed and acknowledged;
  G3  a commit of a former generation, or of a member that is none, is refused and changes nothing.
At the end, faults over:
  G4  the group is Stable with all partitions assigned within session + rebalance timeout + 5 s;
  the replayed records give the same offsets and the same group.
G5 is for consumer groups: `consumer_simulation.py`.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field, replace
from typing import Any

import click

from ottla.broker.coordinator.group.classic import ClassicGroup
from ottla.broker.coordinator.group.settings import NEWCOMERS_MS, GroupSettings
from ottla.broker.coordinator.group.states import State
from ottla.broker.coordinator.outcome import Answer, CoordinatorRecord, Outcome
from ottla.protocol.codec import encoder
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import groups
from tests.coordinator.shards import Lone

GROUP = "g"
TOPIC = "t"
TICK_MS = 100
HEARTBEAT_MS = 1_000
SESSION_MS = 6_000
REBALANCE_MS = 8_000
ANSWER_MS_MAX = 15_000
CALM_MS = SESSION_MS + REBALANCE_MS + 5_000

REJOIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})


@dataclass
class Faults:
    """Chances per member and tick, in 1/10,000; the swarm draws some of them to be never."""

    pause: int
    crash: int
    leave: int
    lost_answer: int
    broker_crash: int
    sync_ms: int

    @classmethod
    def drawn(cls, rng: random.Random) -> Faults:
        def chance(most: int) -> int:
            return rng.choice((0, rng.randrange(most + 1)))

        return cls(
            chance(60), chance(40), chance(20), chance(300), chance(30), rng.choice((0, 100, 300))
        )


class SyncedLate(Lone):
    """The shell of the model: records become durable some time after they are applied."""

    def __init__(self, settings: GroupSettings, seed: int) -> None:
        self._waiting: list[tuple[list[CoordinatorRecord], list[Answer]]] = []
        super().__init__(settings, seed)

    def sync(self) -> None:
        waiting, self._waiting = self._waiting, []
        for records, answers in waiting:
            self.records += records
            for answer in answers:
                answer.leave()
        if not self._waiting:
            self.prune()

    def crash(self) -> None:
        self._waiting.clear()
        super().crash()

    def _perform(self, outcome: Outcome) -> None:
        self.told += outcome.told
        self._waiting.append((outcome.records, outcome.answers))
        for answer in outcome.answers_now:
            answer.leave()
        for work in outcome.work:
            self._perform(work.done(work.run(), self.now))


@dataclass
class Member:
    """A consumer, as clients are: it revokes everything before it joins again."""

    name: str
    instance: str | None
    member_id: str = ""
    generation: int = -1
    state: str = "out"
    owned: list[int] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    connection: int = 0
    waits_since_ms: int | None = None
    away_until_ms: int = 0
    heard_ms: int = 0
    gone: bool = False

    def reset(self) -> None:
        """It owns nothing, and is to join."""
        self.state = "out"
        self.owned = []
        self.waits_since_ms = None
        self.connection += 1


@dataclass
class Mail:
    """Where an answer goes: it may be late, and it may find nobody."""

    world: World
    member: Member
    connection: int
    request: Any

    def complete(self, response: Any) -> None:
        self.world.mail(self, response)


class World:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.faults = Faults.drawn(self.rng)
        self.partitions = self.rng.randrange(1, 9)
        self.lone = SyncedLate(self._settings(), seed)
        self.members = [
            Member(f"m{number}", f"i{number}" if self.rng.randrange(3) == 0 else None)
            for number in range(self.rng.randrange(1, 7))
        ]
        self.story: list[str] = []
        self.owners: dict[tuple[int, int], str] = {}
        self.acked: dict[int, int] = {}
        self._post: list[tuple[int, Mail, Any]] = []
        self._next_sync_ms = 0

    def _settings(self) -> GroupSettings:
        return GroupSettings(
            initial_rebalance_delay_ms=self.rng.choice((0, 500, 3_000)),
            newcomers_ms=self.rng.choice((0, NEWCOMERS_MS)),
        )

    @property
    def now_ms(self) -> int:
        return self.lone.monotonic_ms

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step(calm=False)
        calm_since_ms = self.now_ms
        self.faults = replace(self.faults, lost_answer=0)
        for member in self.members:
            member.away_until_ms = 0
        while not self._settled():
            self._step(calm=True)
            assert self.now_ms - calm_since_ms <= CALM_MS, self._unsettled()
        self._check_replay()

    # what happens

    def _step(self, *, calm: bool) -> None:
        self.lone.wait(TICK_MS)
        if not calm and self._happens(self.faults.broker_crash):
            self.tell("the broker crashes")
            self.lone.crash()
            for member in self.members:
                # Its connection is gone: what it waited for never comes.
                self._disconnect(member)
        for member in self.members:
            if not calm:
                self._maybe_fail(member)
            if not member.gone and member.away_until_ms <= self.now_ms:
                self._act(member)
        if self.now_ms >= self._next_sync_ms:
            self.lone.sync()
            self._next_sync_ms = self.now_ms + self.faults.sync_ms
        self._deliver()

    def _maybe_fail(self, member: Member) -> None:
        if member.away_until_ms > self.now_ms or member.gone:
            return
        if self._happens(self.faults.pause):
            member.away_until_ms = self.now_ms + self.rng.randrange(2 * SESSION_MS)
            self.tell(f"{member.name} pauses")
        elif self._happens(self.faults.crash):
            member.reset()
            member.member_id = ""
            member.away_until_ms = self.now_ms + self.rng.randrange(2 * SESSION_MS)
            self.tell(f"{member.name} crashes")
        elif self._happens(self.faults.leave) and member.state == "running":
            self._leave(member)
            member.reset()
            member.member_id = ""
            member.away_until_ms = self.now_ms + self.rng.randrange(SESSION_MS)
            self.tell(f"{member.name} leaves")

    def _leave(self, member: Member) -> None:
        leaver = groups.LeaveGroupRequest.MemberIdentity(member.member_id)
        self._ask(member, groups.LeaveGroupRequest(GROUP, "", [leaver]), 5)

    def _act(self, member: Member) -> None:
        if member.waits_since_ms is not None:
            if self.now_ms - member.waits_since_ms > ANSWER_MS_MAX:
                member.reset()
            return
        if member.state == "out":
            self._join(member)
        elif member.state == "running":
            if self.now_ms - member.heard_ms >= HEARTBEAT_MS:
                self._heartbeat(member)
            elif member.owned and self.rng.randrange(4) == 0:
                self._commit(member)

    def _join(self, member: Member) -> None:
        member.owned = []
        metadata = self._metadata(member)
        protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol("range", metadata)
        request = groups.JoinGroupRequest(
            GROUP,
            SESSION_MS,
            REBALANCE_MS,
            member.member_id,
            member.instance,
            "consumer",
            [protocol],
        )
        self._ask(member, request, 9)

    def _metadata(self, member: Member) -> bytes:
        """What a member says of itself when it joins: its subscription, which its next connection
        may change."""
        names = [TOPIC, "u"] if member.connection % 3 else [TOPIC]
        out = bytearray(b"\0\0")
        encoder(groups.ConsumerProtocolSubscription, 0)(
            groups.ConsumerProtocolSubscription(topics=names), out, []
        )
        return bytes(out)

    def _heartbeat(self, member: Member) -> None:
        beat = groups.HeartbeatRequest(GROUP, member.generation, member.member_id, member.instance)
        self._ask(member, beat, 4)

    def _commit(self, member: Member) -> None:
        index = self.rng.choice(member.owned)
        member.positions[index] += self.rng.randrange(1, 10)
        partition = groups.OffsetCommitRequest.OffsetCommitRequestPartition(
            index, member.positions[index]
        )
        topic = groups.OffsetCommitRequest.OffsetCommitRequestTopic(TOPIC, partitions=[partition])
        request = groups.OffsetCommitRequest(
            GROUP, member.generation, member.member_id, member.instance, topics=[topic]
        )
        before = self.lone.shard.offsets.get(GROUP, TOPIC, index)
        is_valid = self._is_member(member)
        self._ask(member, request, 9)
        after = self.lone.shard.offsets.get(GROUP, TOPIC, index)
        if not is_valid:
            assert before == after, f"G3: {member} has committed"
        elif before is not None and after is not None:
            assert after.offset >= before.offset, f"G2: {member} has gone back {before} {after}"

    def _is_member(self, member: Member) -> bool:
        group = self.lone.shard.groups.get(GROUP)
        return (
            isinstance(group, ClassicGroup)
            and member.member_id in group.members
            and group.generation == member.generation
        )

    # answers

    def mail(self, mail: Mail, response: Any) -> None:
        if not self._happens(self.faults.lost_answer):
            delay_ms = self.rng.choice((0, 0, 0, TICK_MS, 3 * TICK_MS))
            self._post.append((self.now_ms + delay_ms, mail, response))
        elif mail.connection == mail.member.connection:
            self.tell(f"{mail.member.name} loses its connection")
            self._disconnect(mail.member)

    def _deliver(self) -> None:
        post, self._post = self._post, []
        for due_ms, mail, response in post:
            member = mail.member
            if mail.connection != member.connection or member.gone:
                continue
            if due_ms > self.now_ms or member.away_until_ms > self.now_ms:
                self._post.append((due_ms, mail, response))
                continue
            member.waits_since_ms = None
            self._take(member, mail.request, response)

    def _take(self, member: Member, request: Any, response: Any) -> None:
        code = ErrorCode(getattr(response, "error_code", 0))
        match response:
            case groups.JoinGroupResponse() if not code:
                self._joined(member, response)
                return
            case groups.SyncGroupResponse() if not code:
                self._assigned(member, response)
                return
            case groups.OffsetFetchResponse():
                self._fetched(member, response)
                return
            case groups.OffsetCommitResponse():
                (part,) = response.topics[0].partitions
                code = ErrorCode(part.error_code)
                if not code:
                    asked = request.topics[0].partitions[0]
                    known = self.acked.get(asked.partition_index, -1)
                    self.acked[asked.partition_index] = max(known, asked.committed_offset)
            case groups.HeartbeatResponse():
                member.heard_ms = self.now_ms
        self._refused(member, response, code)

    def _refused(self, member: Member, response: Any, code: ErrorCode) -> None:
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            member.member_id = response.member_id
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            member.reset()
            member.member_id = ""
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            # Its own former self: only one process has the name here.
            member.reset()
            member.member_id = ""
        elif code in REJOIN:
            member.reset()
        else:
            assert not code, (member, code)

    def _joined(self, member: Member, response: groups.JoinGroupResponse) -> None:
        member.member_id = response.member_id
        member.generation = response.generation_id
        member.state = "syncing"
        assignments: list[groups.SyncGroupRequest.SyncGroupRequestAssignment] = []
        if response.leader == response.member_id and not response.skip_assignment:
            assignments = self._deal(member, response)
        request = groups.SyncGroupRequest(
            GROUP,
            member.generation,
            member.member_id,
            member.instance,
            "consumer",
            "range",
            assignments,
        )
        self._ask(member, request, 5)

    def _deal(
        self, member: Member, response: groups.JoinGroupResponse
    ) -> list[groups.SyncGroupRequest.SyncGroupRequestAssignment]:
        """The member leads: what it assigns to whom."""
        names = [one.member_id for one in response.members]
        return [
            groups.SyncGroupRequest.SyncGroupRequestAssignment(
                name, bytes(range(position, self.partitions, len(names)))
            )
            for position, name in enumerate(names)
        ]

    def _assigned(self, member: Member, response: groups.SyncGroupResponse) -> None:
        member.state = "fetching"
        member.heard_ms = self.now_ms
        owned = list(response.assignment)
        for index in owned:
            key = (member.generation, index)
            owner = self.owners.setdefault(key, member.name)
            assert owner == member.name, f"G1: {key} has the owners {owner} and {member.name}"
            if not self._is_member(member):
                continue  # told so late that it has been evicted meanwhile
            for other in self.members:
                if other is not member and index in other.owned:
                    # It has been away and does not know yet; it must be a member no more.
                    assert not self._is_member(other), f"G1: {other} still owns {index}"
        member.owned = owned
        self.tell(f"{member.name} owns {owned} in generation {member.generation}")
        topic = groups.OffsetFetchRequest.OffsetFetchRequestTopics(TOPIC, partition_indexes=owned)
        one = groups.OffsetFetchRequest.OffsetFetchRequestGroup(GROUP, topics=[topic])
        self._ask(member, groups.OffsetFetchRequest(groups=[one]), 9)

    def _fetched(self, member: Member, response: groups.OffsetFetchResponse) -> None:
        member.state = "running"
        for topic in response.groups[0].topics:
            for part in topic.partitions:
                acked = self.acked.get(part.partition_index, -1)
                if self._is_member(member):
                    assert part.committed_offset >= acked, f"G2: {part} is before {acked}"
                member.positions[part.partition_index] = max(part.committed_offset, 0)

    # the end

    def _settled(self) -> bool:
        group = self.lone.shard.groups.get(GROUP)
        if not isinstance(group, ClassicGroup) or group.state is not State.STABLE:
            return False
        owned = sorted(index for member in self.members for index in member.owned)
        return owned == list(range(self.partitions)) and all(
            member.state == "running" and self._is_member(member) for member in self.members
        )

    def _unsettled(self) -> str:
        return f"G4: {self.lone.shard.groups.get(GROUP)} {self.members}"

    def _check_replay(self) -> None:
        self.lone.sync()
        live, replayed = self.lone.shard, self.lone.replayed()
        for name in live.groups:
            assert self._durable(live, name) == self._durable(replayed, name)

    def _ask(self, member: Member, request: Any, version: int) -> None:
        member.waits_since_ms = self.now_ms
        mail = Mail(self, member, member.connection, request)
        self.lone.send_for(mail, member.name, request, version)

    def _disconnect(self, member: Member) -> None:
        """What it waits for does not come; a member that was running goes on."""
        member.connection += 1
        member.waits_since_ms = None
        if member.state != "running":
            member.reset()

    def _happens(self, chance: int) -> bool:
        return self.rng.randrange(10_000) < chance

    def tell(self, line: str) -> None:
        self.story.append(f"{self.now_ms:>7} {line}")

    def _durable(self, shard: Any, name: str) -> tuple[Any, ...]:
        """What a replay must bring back."""
        group = shard.groups[name]
        members = {
            one.member_id: (one.instance_id, one.assignment) for one in group.members.values()
        }
        offsets = durable_offsets(shard, name)
        wanted = group.subscribed_topics
        return group.state, group.generation, group.protocol, group.leader, members, wanted, offsets


def durable_offsets(shard: Any, name: str) -> dict[str, dict[int, Any]]:
    return {
        topic: {index: one[:6] for index, one in parts.items()}
        for topic, parts in shard.offsets.of_group(name).items()
    }


def run_seed(seed: int, steps: int = 600) -> World:
    """One world, to its end; AssertionError says which invariant it broke."""
    world = World(seed)
    world.run(steps)
    return world


def tell_story(kind: type[World], module: str, seeds: int, seed: int | None) -> None:
    """Runs seeds until one breaks an invariant, or one with its story; ends the process then."""
    for number in range(seeds) if seed is None else (seed,):
        world = kind(number)
        try:
            world.run(600)
        except AssertionError as broken:
            for line in world.story[-60:]:
                click.echo(line)
            click.echo(f"{broken}\nreproduce: python -m tests.coordinator.{module} --seed {number}")
            sys.exit(129)
        if seed is not None:
            for line in world.story:
                click.echo(line)
    click.echo(f"{seeds if seed is None else 1} seeds, no invariant broken")


@click.command()
@click.option("--seeds", default=1_000, show_default=True)
@click.option("--seed", default=None, type=int, help="Run one and tell its story.")
def main(seeds: int, seed: int | None) -> None:
    """Runs seeds until one breaks an invariant."""
    tell_story(World, "simulation", seeds, seed)


if __name__ == "__main__":
    main()
