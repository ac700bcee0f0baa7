"""What comes of a command to a coordinator: records, answers, and what there is to tell.

A coordinator is a pure state machine. A command looks at its state, writes records, and each
record changes the state at once, by the same `apply` that replays it after a restart. The shell
(`runtime.py`) appends the records, and lets an answer go when everything that was written up to it
is durable. If they cannot be appended, the whole state is thrown away and loaded again, so that
memory is never ahead of the log for longer than an append takes.

What no record says (who has joined a rebalance so far, who waits for an answer, when a session
ends) is soft: it is lost with the process, as it is in Kafka, and clients bring it back.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from ottla.protocol.schema import Message


class Moment(NamedTuple):
    """Now: monotonic for every timeout, wall time for what is written down."""

    monotonic_ms: int
    wall_ms: int


class CoordinatorRecord(NamedTuple):
    """One record of a coordinator's topic; a null value is a tombstone."""

    key: Message
    value: Message | None


class Reply(Protocol):
    """Whoever waits for an answer. `complete` is called once, with a response of its API."""

    def complete(self, response: Any) -> None: ...


class Stamp(NamedTuple):
    """Whose transaction records are written in."""

    producer_id: int
    producer_epoch: int


class EndMarker(NamedTuple):
    """The end of a producer's transaction in one partition."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int


class Answer(NamedTuple):
    """`overtaken` is asked when the answer leaves: what is answered instead, for things may have
    changed while it waited; None if it stands."""

    reply: Reply
    response: Any
    overtaken: Callable[[], Any] | None = None

    def leave(self) -> None:
        instead = None if self.overtaken is None else self.overtaken()
        self.reply.complete(self.response if instead is None else instead)


class Counted(Enum):
    """What happens too often to be told each time, and is counted once its records are durable; of
    offsets the unit is one partition's."""

    OFFSET_COMMIT = auto()
    OFFSET_EXPIRATION = auto()
    OFFSET_DELETION = auto()
    TRANSACTION_COMMIT = auto()
    TRANSACTION_ABORT = auto()


class Told(NamedTuple):
    """Something that somebody will ask about: an event of one group, and its reason."""

    event: str
    group_id: str
    reason: str
    fields: dict[str, Any]


class Work(NamedTuple):
    """Something that takes long: `run` does it in a worker, and knows nothing that may change
    meanwhile; `done` is a command with its result."""

    run: Callable[[], Any]
    done: Callable[[Any, Moment], Outcome]


class Outcome:
    """Records in the order in which they were applied, then the answers that rest on them, or on
    earlier ones; and the answers that say nothing of what is written, and may leave now.

    `now` is when the command was carried out; `stamp` says in whose transaction the records are
    written, and `marker` comes behind them. What is `due` is called when all of this is durable,
    and never if the state is thrown away first.
    """

    __slots__ = (
        "answers",
        "answers_now",
        "counted",
        "due",
        "marker",
        "now",
        "records",
        "stamp",
        "told",
        "work",
    )

    def __init__(self, now: Moment) -> None:
        self.now = now
        # By hand: a dataclass calls a factory for each list, and every request has an outcome.
        self.records: list[CoordinatorRecord] = []
        self.stamp: Stamp | None = None
        self.marker: EndMarker | None = None
        self.answers: list[Answer] = []
        self.answers_now: list[Answer] = []
        self.told: list[Told] = []
        self.counted: dict[Counted, int] = {}
        self.work: list[Work] = []
        self.due: list[Callable[[], None]] = []


class Anew(NamedTuple):
    """Records that stand, once they are written, for all that is before a place in the log."""

    outcome: Outcome
    begins_at: int
