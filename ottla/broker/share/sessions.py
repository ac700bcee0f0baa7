"""Share sessions (KIP-932): a member names its partitions once, then only changes.

A session belongs to a member of a group and to the connection on which it was opened. Each request
carries an epoch that counts up.

| epoch | meaning |
|---|---|
| 0 | ends the member's session, if there is one, and opens a new one with what is listed |
| n | goes on with the session; what is listed is added, what is forgotten leaves it |
| -1 | the last request of the session: what the member holds goes back |

Pure; who holds what is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from ottla.broker.replication.fetch_session import SPARE_PARTITIONS
from ottla.protocol.errors import ErrorCode, KafkaError

FIRST_EPOCH = 0
LAST_EPOCH = -1
EPOCH_MAX = 2**31 - 1
PLACES_MAX = 1_000_000
"""Partitions of all sessions together. Kafka counts sessions alone; a partition costs 200 bytes
here, and thousands of members of hundreds of partitions fit."""

Place = tuple[bytes, int]
"""Topic id and partition."""


class ShareSession:
    """`places` are the partitions in the order in which they were named. When it has ended,
    `is_open` is false. `left_out` is one of them that had its turn and gave nothing, since it is
    not in memory."""

    __slots__ = ("connection", "epoch", "group_id", "is_open", "left_out", "member_id", "places")

    def __init__(
        self, group_id: str, member_id: str, places: Iterable[Place], connection: Hashable
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = FIRST_EPOCH + 1
        self.places: dict[Place, None] = dict.fromkeys(places)
        self.connection = connection
        self.is_open = True
        self.left_out: Place | None = None

    def __repr__(self) -> str:
        who = f"{self.group_id} {self.member_id}"
        return f"<ShareSession {who} epoch={self.epoch} partitions={len(self.places)}>"

    def in_turn(self) -> list[Place]:
        """The partitions, another one first in each request, so that each has its turn; the one
        that was left out goes before. As in Kafka the first request of a session has them as they
        were named."""
        places = list(self.places)
        first = (self.epoch - 1) % len(places) if places else 0
        if self.left_out in self.places:
            first = places.index(self.left_out)
        return places[first:] + places[:first]


class ShareSessions:
    """The sessions of one broker, at most `most` of them, which is given with each request."""

    __slots__ = ("_of_connection", "_partition_count", "_place_count", "_places_max", "_sessions")

    def __init__(self, *, partition_count: Callable[[], int], places_max: int = PLACES_MAX) -> None:
        """`partition_count()` is how many the broker has; one session may name little more."""
        self._partition_count = partition_count
        self._places_max = places_max
        self._place_count = 0
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._of_connection: dict[Hashable, dict[tuple[str, str], None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, group_id: str, member_id: str) -> ShareSession:
        """The member's session. Raises SHARE_SESSION_NOT_FOUND."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, "There is no such share session.")
        return session

    def open(
        self,
        group_id: str,
        member_id: str,
        places: Iterable[Place],
        connection: Hashable,
        *,
        most: int,
    ) -> ShareSession:
        """A new session; the member's old one has been removed. Raises
        SHARE_SESSION_LIMIT_REACHED."""
        if len(self._sessions) >= most:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"There are {most} share sessions."
            )
        key = group_id, member_id
        assert key not in self._sessions, key
        session = ShareSession(group_id, member_id, (), connection)
        self.change(session, places, ())
        self._sessions[key] = session
        self._of_connection.setdefault(connection, {})[key] = None
        return session

    def go_on(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session of a request, which counts its epoch up. Raises SHARE_SESSION_NOT_FOUND or
        INVALID_SHARE_SESSION_EPOCH."""
        session = self.get(group_id, member_id)
        if session.epoch != epoch:
            reason = f"The session is at epoch {session.epoch}."
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, reason)
        session.epoch = FIRST_EPOCH + 1 if epoch == EPOCH_MAX else epoch + 1
        return session

    def change(
        self, session: ShareSession, added: Iterable[Place], forgotten: Sequence[Place]
    ) -> None:
        """Raises SHARE_SESSION_LIMIT_REACHED, and changes nothing, if there is no room."""
        new = [place for place in added if place not in session.places]
        if self._place_count + len(new) > self._places_max:
            reason = f"Share sessions have {self._places_max} partitions."
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, reason)
        before = len(session.places)
        leaving = {place for place in forgotten if place in session.places}
        count = before + len(new) - len(leaving)
        if new and count > SPARE_PARTITIONS:
            most = SPARE_PARTITIONS + self._partition_count()
            if count > most:
                reason = f"A share session has at most {most} partitions just now."
                raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, reason)
        session.places.update(dict.fromkeys(new))
        for place in forgotten:
            session.places.pop(place, None)
        self._place_count += len(session.places) - before

    def remove(self, group_id: str, member_id: str) -> ShareSession | None:
        key = group_id, member_id
        session = self._sessions.pop(key, None)
        if session is not None:
            session.is_open = False
            self._place_count -= len(session.places)
            own = self._of_connection[session.connection]
            del own[key]
            if not own:
                del self._of_connection[session.connection]
        return session

    def has_any(self, group_id: str) -> bool:
        return any(group == group_id for group, _ in self._sessions)

    def of_connection(self, connection: Hashable) -> list[ShareSession]:
        return [self._sessions[key] for key in self._of_connection.get(connection, ())]
