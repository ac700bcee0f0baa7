"""What every kind of group has in common, for whoever lists, deletes and expires groups.

A kind has its rules in files of its own. It is found by its class: `shard.py` sends requests,
records and timers to those rules, and all other code asks what stands here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from enum import Enum
from typing import ClassVar

from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema import Message


class Kind(Enum):
    """By Kafka's names, which ListGroups shows and filters by."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class Group:
    """One group of any kind. No ABC: each request asks for the class of its group, which takes the
    metaclass of those four times as long. mypy sees that nothing abstract is made."""

    __slots__ = ()

    kind: ClassVar[Kind]
    group_id: str

    @property
    @abstractmethod
    def protocol_type_shown(self) -> str:
        """What ListGroups shows as the protocol type; empty if there is none."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state by Kafka's name."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no members; only then may it be deleted or replaced by another kind."""

    @property
    def expires(self) -> bool:
        """Whether it goes by itself when it is empty and no committed offset is left."""
        return True

    @property
    @abstractmethod
    def member_count(self) -> int: ...

    @abstractmethod
    def is_subscribed(self, topic: str) -> bool:
        """Whether a member wants the topic, as far as a broker can tell."""

    @abstractmethod
    def refuse_offset_delete(self) -> ErrorCode:
        """Why no committed offset of it can be deleted now; NONE if the topics decide."""

    @abstractmethod
    def tombstone_keys(self) -> Iterator[Message]:
        """The keys of the records that say that it is, in the order in which to delete them."""
