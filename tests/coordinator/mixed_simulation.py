"""The simulation of `consumer_simulation.py` with members of both protocols in one group, which
turns from a classic group into a consumer group and back as they come and go (KIP-848).

    python -m tests.coordinator.mixed_simulation                 1,000 seeds
    python -m tests.coordinator.mixed_simulation --seed 42       one, with its story

A member of the classic protocol gives up everything before it joins again. If the group is classic
at the moment one of them leads, and assigns by what the others subscribe to.
"""

from __future__ import annotations

from typing import Any

import click

from ottla.broker.coordinator.group.classic import ClassicGroup
from ottla.broker.coordinator.group.embedded import (
    AssignedTopic,
    read_assignment,
    read_subscription,
    write_assignment,
)
from ottla.broker.coordinator.group.settings import GroupSettings
from ottla.broker.coordinator.group.states import ON_COMMIT
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import groups
from tests.coordinator.consumer_scenario import subscription
from tests.coordinator.consumer_simulation import Consumer, ConsumerWorld, Place
from tests.coordinator.simulation import (
    ANSWER_MS_MAX,
    GROUP,
    HEARTBEAT_MS,
    REJOIN,
    Member,
    World,
    tell_story,
)

VERSION = 1


class MixedWorld(ConsumerWorld):
    """One seed. The first member uses the consumer protocol, any other either one."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.classic = {one.name for one in self.members[1:] if self.rng.randrange(2)}
        self.led: dict[str, dict[str, int]] = {}
        for member in self.members:
            if member.name in self.classic:
                member.member_id = ""
            else:
                member.away_until_ms = self.rng.choice((0, 0, 5_000, 20_000))

    def _settings(self) -> GroupSettings:
        settings = super()._settings()
        return GroupSettings(
            initial_rebalance_delay_ms=self.rng.choice((0, 500)),
            consumer=settings.consumer,
            assignors=settings.assignors,
        )

    # what happens

    def _step(self, *, calm: bool) -> None:
        if not calm and self._happens(40):
            self.tell("those of the consumer protocol go for a while")
            for member in self.members:
                is_there = member.state == "running" and member.away_until_ms <= self.now_ms
                if member.name not in self.classic and is_there:
                    self._leave(member)
                    member.reset()
                    member.away_until_ms = self.now_ms + self.rng.randrange(3_000, 15_000)
        super()._step(calm=calm)

    def _leave(self, member: Member) -> None:
        if member.name not in self.classic:
            super()._leave(member)
        else:
            World._leave(self, member)

    def _act(self, member: Member) -> None:
        assert isinstance(member, Consumer)
        if member.name not in self.classic:
            super()._act(member)
            return
        if member.waits_since_ms is not None:
            if self.now_ms - member.waits_since_ms > ANSWER_MS_MAX:
                member.reset()
            return
        if member.state == "out":
            self._join(member)
        elif self.led.get(member.name, self.counts) != self.counts:
            del self.led[member.name]
            member.reset()  # it leads, and there are more partitions than it has assigned
        elif self.now_ms - member.heard_ms >= HEARTBEAT_MS:
            self._heartbeat(member)
        elif member.has and self.rng.randrange(4) == 0:
            self._commit(member)

    def _join(self, member: Member) -> None:
        self.led.pop(member.name, None)
        super()._join(member)

    def _metadata(self, member: Member) -> bytes:
        assert isinstance(member, Consumer)
        return subscription(member.topics, {})

    def _is_member(self, member: Member) -> bool:
        """By the protocol that the group uses now."""
        return World._is_member(self, member) or super()._is_member(member)

    def _may_commit(self, member: Consumer, place: Place) -> bool:
        group = self.lone.shard.groups.get(GROUP)
        if isinstance(group, ClassicGroup):
            return self._is_member(member) and not ON_COMMIT[group.state]
        return super()._may_commit(member, place)

    # answers

    def _take(self, member: Member, request: Any, response: Any) -> None:
        assert isinstance(member, Consumer)
        code = ErrorCode(getattr(response, "error_code", 0))
        match response:
            case groups.JoinGroupResponse() if not code:
                self._joined(member, response)
            case groups.SyncGroupResponse() if not code:
                self._assigned(member, response)
            case groups.JoinGroupResponse() | groups.SyncGroupResponse():
                self._refused(member, response, code)
            case groups.HeartbeatResponse():
                member.heard_ms = self.now_ms
                self._refused(member, response, code)
            case groups.OffsetCommitResponse():
                super()._take(member, request, response)
                (part,) = response.topics[0].partitions
                if member.name in self.classic:
                    self._refused(member, response, ErrorCode(part.error_code))
            case _:
                super()._take(member, request, response)

    def _refused(self, member: Member, response: Any, code: ErrorCode) -> None:
        if code in REJOIN:
            member.reset()
            return
        super()._refused(member, response, code)

    def _deal(
        self, member: Member, response: groups.JoinGroupResponse
    ) -> list[groups.SyncGroupRequest.SyncGroupRequestAssignment]:
        self.led[member.name] = dict(self.counts)
        wants = {one.member_id: read_subscription(one.metadata).topics for one in response.members}
        shares: dict[str, list[AssignedTopic]] = {name: [] for name in wants}
        for topic, count in self.counts.items():
            names = [name for name in wants if topic in wants[name]]
            for place, name in enumerate(names):
                mine = list(range(place, count, len(names)))
                shares[name].append(AssignedTopic(topic, mine))
        return [
            groups.SyncGroupRequest.SyncGroupRequestAssignment(
                name, write_assignment(topics, VERSION)
            )
            for name, topics in shares.items()
        ]

    def _assigned(self, member: Member, response: groups.SyncGroupResponse) -> None:
        assert isinstance(member, Consumer)
        member.state = "running"
        member.heard_ms = self.now_ms
        told: set[Place] = set()
        if response.assignment:
            for one in read_assignment(response.assignment).assigned_partitions:
                told.update((one.topic, index) for index in one.partitions)
        member.has = told
        for place in told:
            self._taken_up(member, place)
        self.tell(f"{member.name} has {sorted(told)} in generation {member.generation}")

    def _disconnect(self, member: Member) -> None:
        super()._disconnect(member)
        if member.name in self.classic and member.state != "running":
            member.reset()


def run_seed(seed: int, steps: int = 600) -> MixedWorld:
    """One world, to its end; AssertionError says which invariant it broke."""
    world = MixedWorld(seed)
    world.run(steps)
    return world


@click.command()
@click.option("--seeds", default=1_000, show_default=True)
@click.option("--seed", default=None, type=int, help="Run one and tell its story.")
def main(seeds: int, seed: int | None) -> None:
    """Runs seeds until one breaks an invariant."""
    tell_story(MixedWorld, "mixed_simulation", seeds, seed)


if __name__ == "__main__":
    main()
