"""Incremental fetch sessions (KIP-227): a consumer names its partitions once, then only changes.

A session remembers what the client wants and what it was last told. Each request carries the
session's id and an epoch that counts up; a wrong one is refused, and the client starts again.

| request (id, epoch) | meaning | session of the answer |
|---|---|---|
| (any, -1) | end session `id` if there is one; serve what is listed, without a session | 0 |
| (any, 0) | end session `id`; a new session with what is listed | new, or 0 if there is no room |
| (id, n > 0) | what is listed changes the session, forgotten partitions leave it | id |

A session may begin with nothing listed; one that has nothing after a later request is gone: so do
`maybeCreateSession` and `newContext` of Apache Kafka, and there, too, the epoch is looked at before
how the session names its topics.

Pure: time comes in, ids come from the Rng.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from ottla.broker.ports import Rng
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest

NO_ERROR: Final = ErrorCode.NONE
SESSIONLESS_EPOCH: Final = -1
FIRST_EPOCH: Final = 0
EPOCH_MAX: Final = 2**31 - 1
STALE_MS: Final = 120_000
"""A session unused this long gives way to any new one, as in Kafka."""
PARTITIONS_MAX: Final = 1_000_000
"""In all sessions together. Kafka counts sessions alone; a partition costs some 700 bytes here, so
its 1000 slots could hold any amount. A thousand consumers of a thousand partitions fit."""
SPARE_PARTITIONS: Final = 1024
"""So many more than the broker has may be named by one session, or by a fetch that waits: what was
just deleted, or is about to be made. Each costs a look and an error with every request, and one of
46 bytes asks a session for all it has."""

Key = tuple[str | bytes, int]


class Wanted:
    """One partition that a fetch asks for; in a session, also what the client was last told.

    A fetch that waits keeps its own: a later one of its session may ask for something else.
    """

    __slots__ = ("request", "sent_high_watermark", "sent_log_start", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: bytes, request: FetchRequest.FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.request = request
        self.sent_high_watermark = -1
        self.sent_log_start = -1


@dataclass(slots=True)
class FetchSession:
    session_id: int
    by_topic_id: bool
    epoch: int
    last_used_ms: int
    partitions: dict[Key, Wanted]

    def moved_last(self, keys: Iterable[Key]) -> None:
        """Partitions that returned data go to the end, so that the others have their turn. One may
        be gone: a later fetch of the session has forgotten it while this one waited."""
        for key in keys:
            wanted = self.partitions.pop(key, None)
            if wanted is not None:
                self.partitions[key] = wanted


class Resolved:
    """What a request means: an error for the whole of it, or the partitions to read."""

    __slots__ = ("error", "incremental", "session", "wanted")

    def __init__(
        self,
        wanted: list[Wanted],
        session: FetchSession | None = None,
        *,
        incremental: bool = False,
        error: ErrorCode = NO_ERROR,
    ) -> None:
        self.wanted = wanted
        self.session = session
        self.incremental = incremental
        self.error = error


def wanted_by(request: FetchRequest) -> list[Wanted]:
    """What it asks for, in its order; of a partition that it names twice, what it says last."""
    wanted = [
        Wanted(topic.topic, topic.topic_id, partition)
        for topic in request.topics
        for partition in topic.partitions
    ]
    if len(wanted) < 2:
        return wanted
    return list({(one.topic, one.topic_id, one.request.partition): one for one in wanted}.values())


class FetchSessions:
    """The sessions of one broker, at most `slots` of them with `partitions_max` in all."""

    def __init__(
        self,
        *,
        slots: int,
        rng: Rng,
        partition_count: Callable[[], int],
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        """`partition_count()` is how many the broker has."""
        self._slots = slots
        self._partition_count = partition_count
        self._partitions_max = partitions_max
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def may_name(self, count: int) -> bool:
        """Whether one fetch may go on to ask for so many partitions."""
        return count <= SPARE_PARTITIONS or count <= SPARE_PARTITIONS + self._partition_count()

    def resolve(self, request: FetchRequest, *, by_topic_id: bool, now_ms: int) -> Resolved:
        if request.session_epoch == SESSIONLESS_EPOCH:
            self._sessions.pop(request.session_id, None)
            return Resolved(wanted_by(request))
        if request.session_epoch == FIRST_EPOCH:
            self._sessions.pop(request.session_id, None)
            return self._open(wanted_by(request), by_topic_id, now_ms)
        return self._continue(request, by_topic_id, now_ms)

    def _open(self, wanted: list[Wanted], by_topic_id: bool, now_ms: int) -> Resolved:
        partitions = {_key(item, by_topic_id): item for item in wanted}
        if not (self.may_name(len(partitions)) and self._make_room(len(partitions), now_ms)):
            return Resolved(wanted)
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._rng.randrange(EPOCH_MAX)
        session = FetchSession(session_id, by_topic_id, 1, now_ms, partitions)
        self._sessions[session_id] = session
        return Resolved(list(partitions.values()), session)

    def _continue(self, request: FetchRequest, by_topic_id: bool, now_ms: int) -> Resolved:
        session = self._sessions.get(request.session_id)
        if session is None:
            return _refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return _refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_topic_id != by_topic_id:
            return _refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        session.last_used_ms = now_ms
        room: int | None = None  # counted when it matters: few requests bring new partitions
        for item in wanted_by(request):
            key = _key(item, by_topic_id)
            known = session.partitions.get(key)
            if known is None:
                room = self._room() if room is None else room - 1
                if room <= 0:
                    del self._sessions[session.session_id]
                    return _refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            else:
                item.sent_high_watermark = known.sent_high_watermark
                item.sent_log_start = known.sent_log_start
            session.partitions[key] = item
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if by_topic_id else topic.topic
            for index in topic.partitions:
                session.partitions.pop((name, index), None)
        if not self.may_name(len(session.partitions)):
            del self._sessions[session.session_id]
            return _refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            del self._sessions[session.session_id]
            return Resolved([], incremental=True)
        return Resolved(list(session.partitions.values()), session, incremental=True)

    def _room(self) -> int:
        return self._partitions_max - sum(len(one.partitions) for one in self._sessions.values())

    def _make_room(self, partition_count: int, now_ms: int) -> bool:
        """A stale session gives way; so does a smaller one than the new."""
        if partition_count > self._room():
            return False
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = min(self._sessions.values(), key=lambda s: s.last_used_ms)
        if now_ms - oldest.last_used_ms > STALE_MS:
            del self._sessions[oldest.session_id]
            return True
        smallest = min(self._sessions.values(), key=lambda s: len(s.partitions))
        if len(smallest.partitions) < partition_count:
            del self._sessions[smallest.session_id]
            return True
        return False


def _key(item: Wanted, by_topic_id: bool) -> Key:
    return (item.topic_id if by_topic_id else item.topic, item.request.partition)


def key_of(item: Wanted, session: FetchSession) -> Key:
    return _key(item, session.by_topic_id)


def _refused(error: ErrorCode) -> Resolved:
    return Resolved([], incremental=True, error=error)
