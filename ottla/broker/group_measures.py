"""Groups, share groups and their coordinators on the metrics page.

What there is just now is looked up when the page is asked for; what has happened was counted where
it happened. No metric is by member. Those by group are of share groups: of those that deliver just
now, and for what has happened also of some that did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from ottla.broker.coordinator.group.consumer import ConsumerState
from ottla.broker.coordinator.group.kinds import Kind
from ottla.broker.coordinator.group.share import EMPTY, STABLE
from ottla.broker.coordinator.group.states import State
from ottla.broker.coordinator.outcome import Counted
from ottla.broker.coordinator.runtime import RunnerState
from ottla.broker.handlers.context import Rooms
from ottla.broker.share.counts import ACKNOWLEDGEMENTS
from ottla.broker.telemetry.metrics import Registry, Sample

STATES: dict[Kind, list[str]] = {
    Kind.CLASSIC: [state.value for state in State if state is not State.DEAD],
    Kind.CONSUMER: [state.value for state in ConsumerState],
    Kind.SHARE: [EMPTY, STABLE],
}
"""All are shown, those that no group is in as 0; a group that is dead is none."""
SHOWN_EVENTS = (
    "group_rebalances",
    "group_stable",
    "group_assigned",
    "group_member_joined",
    "group_member_left",
    "group_member_evicted",
    "group_member_fenced",
    "group_offset_reset",
    "group_offsets_expired",
    "share_locks_ended",
    "share_records_given_up",
    "share_state_cut",
)
"""Shown from the start, so that their first occurrence is an increase; others once there is one."""
GROUPS_PER_TURN = 500
"""Groups gone through before others get the loop, of any size: one to two milliseconds."""
PARTITIONS_PER_TURN = 1000
"""The same for what share groups deliver from: half a millisecond."""
OFFSET_COUNTERS = {
    Counted.OFFSET_COMMIT: (
        "ottla_offset_commits_total",
        "Offsets of partitions that OffsetCommit requests have committed.",
    ),
    Counted.OFFSET_EXPIRATION: (
        "ottla_offset_expirations_total",
        "Committed offsets forgotten after offsets.retention.minutes.",
    ),
    Counted.OFFSET_DELETION: (
        "ottla_offset_deletions_total",
        "Committed offsets deleted by request, or with their topic.",
    ),
}


def watch_groups(registry: Registry, rooms: Rooms) -> None:
    """Registers what there is to see of groups, whatever their type, and of the coordinators."""
    groups = rooms.groups
    census = _Census(rooms)
    registry.watch("ottla_groups", "Groups by type and state.", census.groups)
    registry.watch("ottla_group_members", "Members of groups, by the group's type.", census.members)
    registry.watch(
        "ottla_group_events_total",
        "What coordinators did to groups, by the names of /events: group_rebalances begins a"
        " rebalance; group_stable (classic) or group_assigned (consumer, share) completes it.",
        lambda: _events(rooms),
        kind="counter",
    )
    for what, (name, sentence) in OFFSET_COUNTERS.items():
        registry.watch(name, sentence, partial(groups.counted.__getitem__, what), kind="counter")
    registry.watch(
        "ottla_coordinator_partitions",
        "Partitions of coordinators' topics that this broker leads, by whether their state is"
        " loaded.",
        lambda: _coordinator_partitions(rooms),
    )


def watch_shares(registry: Registry, rooms: Rooms) -> None:
    """Registers what there is to see of the records that share groups have in hand."""
    shares = rooms.shares
    counts = shares.counts
    registry.watch(
        "ottla_share_records_in_flight",
        "Records that a share group has in hand: available, acquired by a member, or settled"
        " behind one that is not.",
        lambda: _in_flight(rooms),
    )
    registry.watch(
        "ottla_share_partitions",
        "Partitions that share groups are delivered from, by group.",
        lambda: [({"group": group_id}, len(own)) for group_id, own in shares.by_group()],
    )
    registry.watch(
        "ottla_share_sessions", "Sessions of members of share groups.", lambda: len(shares.sessions)
    )
    registry.watch(
        "ottla_share_acknowledgements_total",
        "Records acknowledged, by group and by what their members said of them.",
        lambda: [
            ({"group": group_id, "type": name}, own.acknowledged[kind])
            for group_id, own in counts.by_group()
            for kind, name in ACKNOWLEDGEMENTS.items()
        ],
        kind="counter",
    )
    registry.watch(
        "ottla_share_lock_timeouts_total",
        "Records whose acquisition lock ended before they were acknowledged, by group.",
        lambda: [({"group": group_id}, own.lock_timeouts) for group_id, own in counts.by_group()],
        kind="counter",
    )
    registry.watch(
        "ottla_share_records_given_up_total",
        "Records archived for they were delivered as often as their group allows, by group;"
        " rejected ones are acknowledgements.",
        lambda: [({"group": group_id}, own.given_up) for group_id, own in counts.by_group()],
        kind="counter",
    )


class _Census:
    """Goes through all groups once for a page: `members` shows what `groups`, which is shown before
    it, has counted."""

    __slots__ = ("_members", "_rooms")

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._members: Counter[Kind] = Counter()

    def groups(self) -> Iterator[Sample | None]:
        found: Counter[tuple[Kind, str]] = Counter()
        members: Counter[Kind] = Counter()
        left = GROUPS_PER_TURN
        for _, shard in list(self._rooms.groups.loaded()):
            # It may change in a pause, and a page is not of one instant anyway.
            for group in list(shard.groups.values()):
                found[group.kind, group.state_name] += 1
                members[group.kind] += group.member_count
                left -= 1
                if left <= 0:
                    left = GROUPS_PER_TURN
                    yield None
        self._members = members
        for kind, states in STATES.items():
            for state in states:
                yield {"type": kind.value, "state": state}, found[kind, state]

    def members(self) -> Iterator[Sample]:
        for kind in Kind:
            yield {"type": kind.value}, self._members[kind]


def _events(rooms: Rooms) -> Iterable[Sample]:
    counts = rooms.groups.history.counts
    for event in dict.fromkeys((*SHOWN_EVENTS, *counts)):
        yield {"event": event}, counts[event]


def _coordinator_partitions(rooms: Rooms) -> Iterable[Sample]:
    for topic, found in (
        (rooms.groups.topic, rooms.groups.states()),
        (rooms.share_state.topic, rooms.share_state.states()),
        (rooms.transactions.topic, rooms.transactions.states()),
    ):
        for state in RunnerState:
            yield {"topic": topic, "state": state.value}, found[state]


def _in_flight(rooms: Rooms) -> Iterator[Sample | None]:
    left = PARTITIONS_PER_TURN
    for group_id, own in rooms.shares.by_group():
        available = acquired = settled = 0
        for share in own:
            if share.window is not None:
                available += share.window.available_count
                acquired += share.window.acquired_count
                settled += share.window.settled_count
            left -= 1
            if left <= 0:
                left = PARTITIONS_PER_TURN
                yield None
        for state, count in (
            ("available", available),
            ("acquired", acquired),
            ("settled", settled),
        ):
            yield {"group": group_id, "state": state}, count
