"""Regular expressions in a consumer group: when they are matched against the topics, and what
becomes of the result.

The matching is work for another thread. A new expression is matched when it comes, all of them
again when there are new topics, and every `group.consumer.regex.refresh.interval.ms`; in one group
not more often than every ten seconds. Until it is matched, an expression stands for no topic.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.coordinator.group.consumer import ConsumerGroup, ConsumerMember, Resolved
from ottla.broker.coordinator.group.patterns import check_pattern, resolve
from ottla.broker.coordinator.group.targets import bump_if_due
from ottla.broker.coordinator.group.turn import Turn
from ottla.broker.coordinator.outcome import Moment, Outcome, Work
from ottla.protocol.messages.coordinator_records import ConsumerGroupRegularExpressionKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.broker.coordinator.group.shard import GroupShard

MIN_INTERVAL_MS = 10_000


class Change(Enum):
    """What a member's subscription by expression is now, beside what it was."""

    NONE = auto()
    UNRESOLVED = auto()
    """Another one, of which nobody knows yet what it stands for."""
    RESOLVED = auto()
    """Another one that is known, or none any more."""


def check_regex(group: ConsumerGroup, member: ConsumerMember, asked: str | None) -> None:
    """INVALID_REGULAR_EXPRESSION if a member brings a new one that is none."""
    if asked and asked != member.regex and asked not in group.regexes:
        check_pattern(asked)


def change_of(group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember) -> Change:
    if before.regex == after.regex:
        return Change.NONE
    if not after.regex or after.regex in group.resolved:
        return Change.RESOLVED
    return Change.UNRESOLVED


def forget_unwanted(turn: Turn, group: ConsumerGroup) -> None:
    """What expressions stand for that no member subscribes to any more."""
    for regex in [one for one in group.resolved if one not in group.regexes]:
        turn.write(ConsumerGroupRegularExpressionKey(group.group_id, regex), None)


def resolve_if_due(turn: Turn, group: ConsumerGroup) -> None:
    """Has the expressions of a group matched anew, if it is time."""
    if group.is_resolving or not group.regexes:
        return
    now_ms = turn.now.wall_ms
    known = group.resolved.values()
    last_ms = max((one.timestamp_ms for one in known), default=None)
    if last_ms is not None and last_ms <= now_ms <= last_ms + MIN_INTERVAL_MS:
        return
    version = max((one.version for one in known), default=-1)
    if (
        last_ms is None
        or now_ms < last_ms  # the wall clock was set back
        or group.regexes.keys() != group.resolved.keys()
        or version < turn.shard.new_topics_version
        or now_ms > last_ms + turn.settings.regex_refresh_ms
    ):
        group.is_resolving = True
        topics = turn.shard.topics
        turn.outcome.work.append(
            Work(
                partial(resolve, tuple(group.regexes), topics.names()),
                partial(_resolved, turn.shard, group.group_id, topics.version),
            )
        )


def _resolved(
    shard: GroupShard,
    group_id: str,
    version: int,
    found: Mapping[str, frozenset[str]],
    now: Moment,
) -> Outcome:
    """The expressions have been matched; the group may be another by now."""
    turn = Turn(shard, now)
    group = shard.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        return turn.outcome
    group.is_resolving = False
    changed: list[str] = []
    for regex, names in found.items():
        if regex not in group.regexes:
            continue
        before = group.resolved.get(regex)
        if (frozenset() if before is None else before.topics) != names:
            changed.append(regex)
        turn.write(*group.resolved_record(regex, Resolved(names, version, now.wall_ms)))
    group.metadata_is_stale = True
    shown = ", ".join(changed)
    bump_if_due(turn, group, f"other topics match {shown}" if changed else None)
    return turn.outcome
