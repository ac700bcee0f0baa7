"""Requests before they are sent: a body by the schema's names, and symbols for what each broker
names for itself.

A body is a dict of fields, nested as the schema is; what it leaves out has its default. Where a
value is another on each broker, a symbol stands for it (a topic's id, a producer's, the end of a
log), and `OWN` in a string for the prefix of one replay: so the same sequence can be played again
on topics, groups and producers that nobody has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, TypeAlias, cast

from ottla.protocol.api import SERVED, ApiKey
from ottla.protocol.schema import Message, Struct, fields_of

OWN = "~"
"""It may stand in no topic's name, so nothing else is written with it."""

PARKED_MS = 1_000
"""A fetch that waits so long is one that waits."""
Body: TypeAlias = dict[str, Any]


class Symbol:
    """What each broker has its own value for."""

    __slots__ = ()

    def __repr__(self) -> str:
        values = [getattr(self, item.name) for item in fields(cast(Any, self))]
        return f"{type(self).__name__}({', '.join(repr(one) for one in values if one)})"


@dataclass(frozen=True, slots=True, repr=False)
class TopicId(Symbol):
    """The id of a topic by name; `back` 1 is the one that it had before it was made anew."""

    name: str
    back: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class ProducerId(Symbol):
    """The last id that a transactional id was given, or its first."""

    transactional_id: str
    more: int = 0
    first: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class ProducerEpoch(Symbol):
    transactional_id: str
    more: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Offset(Symbol):
    """An offset counted from the `start` or `end` of a log, or the one after what was `read`."""

    topic: str
    partition: int
    base: str
    more: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Moment(Symbol):
    """Milliseconds after the beginning of the replay."""

    after_ms: int


@dataclass(frozen=True, slots=True, repr=False)
class SessionId(Symbol):
    """The fetch session that was begun by this name."""

    name: str


@dataclass(frozen=True, slots=True, repr=False)
class SessionEpoch(Symbol):
    """The epoch that the next request of a session is to have."""

    name: str
    more: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class MemberId(Symbol):
    """The id that a member of a group was given last."""

    member: str


@dataclass(frozen=True, slots=True, repr=False)
class MemberEpoch(Symbol):
    """The generation or the epoch that a member of a group heard last."""

    member: str
    more: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Assigned(Symbol):
    """The partitions that a member was assigned last, as it says what it owns."""

    member: str


@dataclass(frozen=True, slots=True, repr=False)
class ShareEpoch(Symbol):
    """The epoch that the next request of a member's share session is to have."""

    member: str
    more: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Acknowledged(Symbol):
    """What a member says of the records that it has acquired of a partition: of all of them, or of
    the first batch. `kinds` are given in turn to the records of each batch, or one to all of it;
    `odd` is what is wrong: `behind` or `below` what was acquired, `again` what was acknowledged
    last, `kind` one that there is not."""

    member: str
    partition: int
    kinds: tuple[int, ...]
    whole: bool
    odd: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Subscription(Symbol):
    """What a consumer of the classic protocol puts into its JoinGroup: the topics that it wants,
    and from version 1 on what it was dealt last."""

    topics: tuple[str, ...]
    version: int
    member: str


@dataclass(frozen=True, slots=True, repr=False)
class Dealt(Symbol):
    """What the leader of a group of the classic protocol deals out to one member."""

    partitions: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, repr=False)
class LogDir(Symbol):
    """The path of the broker's log dir, with something behind it."""

    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `who` is the connection that it goes by.

    `name` is what its answer is known by to later ones: a fetch session, a member of a group.
    """

    api: ApiKey
    version: int
    body: Body
    who: str = "client"
    name: str = ""

    def __str__(self) -> str:
        title = "".join(word.capitalize() for word in self.api.name.split("_"))
        fields = ", ".join(f"{name}={value!r}" for name, value in self.body.items())
        by = "" if self.who == "client" else f" by {self.who}"
        return f"{title} v{self.version}{by}: {fields}"


@dataclass(frozen=True, slots=True)
class HangUp:
    """A connection ends, and what it waits for is not heard."""

    who: str

    def __str__(self) -> str:
        return f"{self.who} hangs up"


Step: TypeAlias = tuple[Request, ...] | HangUp
"""Requests of one connection that are written at once, or its end."""
Sequence: TypeAlias = tuple[Step, ...]


def requests_of(sequence: Sequence) -> Iterator[Request]:
    for step in sequence:
        if not isinstance(step, HangUp):
            yield from step


def resolved(value: Any, meaning: Callable[[Symbol], Any], prefix: str) -> Any:
    """A value with the names of one broker and one replay in the place of symbols."""
    if isinstance(value, Symbol):
        return meaning(value)
    if isinstance(value, str):
        return value.replace(OWN, prefix)
    if isinstance(value, list):
        return [resolved(one, meaning, prefix) for one in value]
    if isinstance(value, dict):
        return {name: resolved(one, meaning, prefix) for name, one in value.items()}
    return value


def message(request: Request, body: Body) -> Message:
    """The message of a request whose body is resolved."""
    built = _built(SERVED[request.api].request, body, request.version)
    assert isinstance(built, Message)
    return built


def _built(cls: type[Struct], body: Body, version: int) -> Struct:
    fields = {item.name: item for item in fields_of(cls)}
    assert body.keys() <= fields.keys(), f"{cls.__qualname__} has no {body.keys() - fields.keys()}"
    values: Body = {}
    for name, value in body.items():
        item = fields[name]
        if version not in item.versions:
            continue
        if item.struct is None or value is None:
            values[name] = value
        elif item.is_array:
            values[name] = [_built(item.struct, one, version) for one in value]
        else:
            values[name] = _built(item.struct, value, version)
    return cls(**values)


def tree(answer: Struct, version: int) -> Body:
    """An answer as dicts and lists, with the fields that its version has."""
    out: Body = {}
    for item in fields_of(type(answer)):
        if version not in item.versions:
            continue
        value = getattr(answer, item.name)
        if item.struct is not None and value is not None:
            value = [tree(one, version) for one in value] if item.is_array else tree(value, version)
        out[item.name] = value
    return out
