"""What the records that every kind of modern group has change in it.

A log that was compacted may hold the end of a story without its beginning: the tombstone of a group
that nothing else is known of changes nothing, and the first record that is left, of whichever type,
makes its group. Offsets make a classic one; where they are gone when the group's tombstone comes it
goes with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ottla.broker.coordinator.group.classic import ClassicGroup
from ottla.broker.coordinator.group.kinds import Group
from ottla.broker.coordinator.group.modern import LEAVE_EPOCH, ModernGroup, Target
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.schema import Message

if TYPE_CHECKING:
    from ottla.broker.coordinator.group.shard import GroupShard

G = TypeVar("G", bound=ModernGroup[Any])


class Replay(Generic[G]):
    """The groups of one class; `word` is what a group of it is called ("consumer")."""

    def __init__(self, group_class: type[G], word: str) -> None:
        self._class = group_class
        self._word = word

    def found(self, shard: GroupShard, group_id: str, value: Message | None) -> G | None:
        """The group, made if a value is to go into it; None if a tombstone finds none."""
        if value is not None:
            return self.made(shard, group_id)
        group = shard.groups.get(group_id)
        return group if isinstance(group, self._class) else None

    def made(self, shard: GroupShard, group_id: str) -> G:
        """The group; a classic one that is known by its offsets only turns into it.

        Raises CORRUPT_MESSAGE where another kind of group has the name.
        """
        group = shard.groups.get(group_id)
        if isinstance(group, self._class):
            return group
        if group is not None and not (isinstance(group, ClassicGroup) and group.is_simple):
            said = f"Group {group_id} is not a {self._word} group."
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, said)
        made = self._class(group_id)
        shard.groups[group_id] = made
        return made

    def apply_group(self, shard: GroupShard, key: Any, value: Any) -> None:
        if value is None:
            group = shard.groups.get(key.group_id)
            if isinstance(group, self._class) or _is_left_over(shard, group):
                del shard.groups[key.group_id]
            return
        made = self.made(shard, key.group_id)
        made.epoch = value.epoch
        made.metadata_hash = value.metadata_hash

    def apply_target(self, shard: GroupShard, key: Any, value: Any) -> None:
        group = self.found(shard, key.group_id, value)
        if group is not None:
            group.target = (
                Target(LEAVE_EPOCH)
                if value is None
                else Target(value.assignment_epoch, value.assignment_timestamp)
            )

    def apply_target_member(self, shard: GroupShard, key: Any, value: Any) -> None:
        group = self.found(shard, key.group_id, value)
        if group is None:
            return
        if value is None:
            group.target_of.pop(key.member_id, None)
        else:
            group.target_of[key.member_id] = partitions_of(value.topic_partitions)


def _is_left_over(shard: GroupShard, group: Group | None) -> bool:
    """Whether a group is known by nothing but offsets, which are gone."""
    return (
        isinstance(group, ClassicGroup)
        and group.is_simple
        and not shard.offsets.of_group(group.group_id)
        and not shard.offsets.pending_keys(group.group_id)
    )


def partitions_of(topics: Sequence[Any]) -> dict[bytes, frozenset[int]]:
    """Partitions by topic id; a topic of which there are none is left out."""
    return {one.topic_id: frozenset(one.partitions) for one in topics if one.partitions}
