"""The states of a classic group, and what each request is answered in each of them: all as data.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
      ^             |    ^                  |               |
      +-------------+    +------------------+---------------+
    any -> Dead

PreparingRebalance gathers JoinGroup requests, CompletingRebalance waits for the leader to assign.
A group of which nothing is known is Dead to whoever asks for it.
"""

from __future__ import annotations

from enum import Enum, auto

from ottla.protocol.errors import ErrorCode


class State(Enum):
    """By Kafka's names, which DescribeGroups and ListGroups show."""

    __hash__ = object.__hash__  # Enum's own is Python, and each request looks up a few
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset(
        {State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD},
    ),
    State.COMPLETING_REBALANCE: frozenset(
        {State.STABLE, State.PREPARING_REBALANCE, State.DEAD},
    ),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.DEAD: frozenset(),
}


class Reaction(Enum):
    """What a request of a known member does to its group."""

    REFUSE = auto()
    """It is not a member any more, as far as the group can tell."""
    PARK = auto()
    """The answer comes with the others'."""
    ANSWER = auto()
    """The current generation, as the member knows it already."""
    REBALANCE = auto()
    """A new generation begins, and the answer comes with it."""


ON_REJOIN: dict[State, dict[bool, Reaction]] = {
    State.EMPTY: {True: Reaction.REFUSE, False: Reaction.REFUSE},
    State.PREPARING_REBALANCE: {True: Reaction.PARK, False: Reaction.PARK},
    State.COMPLETING_REBALANCE: {True: Reaction.ANSWER, False: Reaction.REBALANCE},
    State.STABLE: {True: Reaction.ANSWER, False: Reaction.REBALANCE},
}
"""JoinGroup of a member, by whether it brings what the group has of it. A leader never does in a
Stable group: it joins again because it wants to assign anew."""

ON_HEARTBEAT: dict[State, ErrorCode] = {
    State.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    State.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    State.COMPLETING_REBALANCE: ErrorCode.NONE,
    State.STABLE: ErrorCode.NONE,
}

ON_SYNC: dict[State, ErrorCode] = {
    State.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    State.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    State.COMPLETING_REBALANCE: ErrorCode.NONE,
    State.STABLE: ErrorCode.NONE,
}

ON_COMMIT: dict[State, ErrorCode] = {
    State.EMPTY: ErrorCode.NONE,
    State.PREPARING_REBALANCE: ErrorCode.NONE,
    State.COMPLETING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    State.STABLE: ErrorCode.NONE,
}
"""OffsetCommit of a member of the current generation. In an Empty group there is none: what passes
there is a commit without a member."""
