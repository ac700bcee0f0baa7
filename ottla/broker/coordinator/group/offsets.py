"""The committed offsets of groups, and those of transactions that are not decided yet.

Only records change them: a commit, a tombstone, the marker that ends a transaction. An offset
committed in a transaction is pending until the marker of its producer; then it is committed, unless
a newer one has been committed meanwhile, or it is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.protocol.messages.coordinator_records import OffsetCommitValue
from ottla.protocol.wire import ZERO_UUID

NO_PRODUCER_ID = -1


class CommittedOffset(NamedTuple):
    """One committed offset. `sequence` grows with every record, in the order of the log."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: bytes
    sequence: int

    def to_value(self) -> OffsetCommitValue:
        return OffsetCommitValue(
            self.offset,
            self.leader_epoch,
            self.metadata,
            self.commit_timestamp_ms,
            self.expire_timestamp_ms,
            self.topic_id,
        )

    def is_of_former_topic(self, topic_id: bytes | None) -> bool:
        """Whether the topic that it was committed for is gone; `topic_id` is what has its name."""
        return self.topic_id not in (ZERO_UUID, topic_id)


class Cut(NamedTuple):
    """A place in the log behind all that was committed up to some sequence."""

    log_offset: int
    sequence: int


CUTS_MAX = 64
"""Places remembered while transactions are open; of more every second one is forgotten."""

Partitions = dict[int, CommittedOffset]
Topics = dict[str, Partitions]
Key = tuple[str, str, int]
"""Group, topic, partition."""

_NOTHING: Topics = {}


class Offsets:
    """All of one shard. Empty groups and topics are not kept."""

    __slots__ = ("_by_group", "_count", "_ends", "_groups_of", "_open", "_pending", "_sequence")

    def __init__(self) -> None:
        self._by_group: dict[str, Topics] = {}
        self._groups_of: dict[str, dict[str, None]] = {}  # by topic
        self._count = 0
        self._pending: dict[int, dict[Key, CommittedOffset]] = {}
        self._open: dict[str, dict[int, None]] = {}
        self._sequence = 0
        self._ends: list[Cut] = []

    def __len__(self) -> int:
        """Of those that are committed; it is asked each second, however many there are."""
        return self._count

    def __iter__(self) -> Iterator[tuple[Key, CommittedOffset]]:
        for group_id, topics in self._by_group.items():
            for topic, partitions in topics.items():
                for partition, committed in partitions.items():
                    yield (group_id, topic, partition), committed

    def __repr__(self) -> str:
        return f"<Offsets groups={len(self._by_group)} transactions={len(self._pending)}>"

    # what records say

    def commit(self, key: Key, value: OffsetCommitValue, producer_id: int = NO_PRODUCER_ID) -> None:
        """An offset was committed, or is pending if a producer's transaction did it."""
        self._sequence += 1
        committed = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            self._sequence,
        )
        if producer_id == NO_PRODUCER_ID:
            self._put(key, committed)
        else:
            self._pending.setdefault(producer_id, {})[key] = committed
            self._open.setdefault(key[0], {})[producer_id] = None

    def remove(self, key: Key) -> None:
        """A tombstone was written: neither committed nor pending."""
        group_id, topic, partition = key
        topics = self._by_group.get(group_id, _NOTHING)
        partitions = topics.get(topic)
        if partitions is not None and partitions.pop(partition, None) is not None:
            self._count -= 1
            if not partitions:
                del topics[topic]
                del self._groups_of[topic][group_id]
                if not self._groups_of[topic]:
                    del self._groups_of[topic]
            if not topics:
                del self._by_group[group_id]
        for producer_id in self._open.get(group_id, ()):
            self._pending[producer_id].pop(key, None)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The marker of a producer's transaction was written."""
        pending = self._pending.pop(producer_id, {})
        for group_id in [one for one, open_by in self._open.items() if producer_id in open_by]:
            del self._open[group_id][producer_id]
            if not self._open[group_id]:
                del self._open[group_id]
        if not is_commit:
            return
        for key, committed in pending.items():
            newer = self.get(*key)
            if newer is None or newer.sequence < committed.sequence:
                self._put(key, committed)

    # questions

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        partitions = self._by_group.get(group_id, _NOTHING).get(topic)
        return None if partitions is None else partitions.get(partition)

    def of_group(self, group_id: str) -> Topics:
        """Topic -> partition -> offset; not to be changed."""
        return self._by_group.get(group_id, _NOTHING)

    def groups(self) -> list[str]:
        """All that have offsets, or would have if a transaction were committed."""
        return list(dict.fromkeys((*self._by_group, *self._open)))

    def is_pending(self, key: Key) -> bool:
        """Whether a transaction that is not decided has committed an offset for it."""
        return any(key in self._pending[one] for one in self._open.get(key[0], ()))

    def cut(self, log_end_offset: int) -> Cut | None:
        """What may be written anew at the end of the log, and where the log may begin then. None if
        nothing may: ask again later, for this place will do as soon as the transactions that are
        open now are over.

        What a transaction commits goes over what stands before it. So an offset for which one is
        pending stays where it is, and so does the pending one; what was written since may not be
        needed anew, and is not.
        """
        now = Cut(log_end_offset, self._sequence)
        first = self._first_needed()
        if first is None:
            self._ends.clear()
            return now
        older = [end for end in self._ends if end.sequence < first]
        if len(self._ends) >= CUTS_MAX:
            del self._ends[1::2]
        self._ends.append(now)
        return older[-1] if older else None

    def last_written(self, up_to: int) -> list[tuple[Key, CommittedOffset]]:
        """The committed offsets up to a sequence."""
        return [one for one in self if one[1].sequence <= up_to]

    def rewrite(self, key: Key, committed: CommittedOffset) -> None:
        """The same offset was written once more: it is the newest now."""
        self._sequence += 1
        self._put(key, committed._replace(sequence=self._sequence))

    def _first_needed(self) -> int | None:
        """The lowest sequence of what is pending, or what a pending one would go over."""
        first = None
        for pending in self._pending.values():
            for key, one in pending.items():
                before = self.get(*key)
                sequence = one.sequence if before is None else min(one.sequence, before.sequence)
                first = sequence if first is None else min(first, sequence)
        return first

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._open

    def pending_keys(self, group_id: str) -> list[Key]:
        """What transactions that are not decided have committed for the group."""
        return [
            key
            for producer_id in self._open.get(group_id, ())
            for key in self._pending[producer_id]
            if key[0] == group_id
        ]

    def topics(self) -> set[str]:
        """All that have an offset, committed or pending."""
        pending = (topic for one in self._pending.values() for _, topic, _ in one)
        return {*self._groups_of, *pending}

    def of_topics(self, names: list[str]) -> dict[tuple[str, str], list[int]]:
        """(group, topic) -> partitions with an offset that is committed or pending."""
        found: dict[tuple[str, str], dict[int, None]] = {}
        wanted = frozenset(names)
        for name in names:
            for group_id in self._groups_of.get(name, ()):
                found[group_id, name] = dict.fromkeys(self._by_group[group_id][name])
        for pending in self._pending.values():
            for group_id, topic, partition in pending:
                if topic in wanted:
                    found.setdefault((group_id, topic), {})[partition] = None
        return {place: list(partitions) for place, partitions in found.items()}

    def _put(self, key: Key, committed: CommittedOffset) -> None:
        group_id, topic, partition = key
        topics = self._by_group.setdefault(group_id, {})
        if topic not in topics:
            topics[topic] = {}
            self._groups_of.setdefault(topic, {})[group_id] = None
        self._count += partition not in topics[topic]
        topics[topic][partition] = committed
