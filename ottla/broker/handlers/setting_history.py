"""Who changed which setting, from what to what: told to the log, and kept for /events.

A change is told when it is in force and before its client is answered. The newest are kept in a
ring of their own, which no rebalance fills; counts by resource are for the metrics page.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.broker.controller.quota_accounts import ANONYMOUS
from ottla.broker.controller.setting_changes import (
    GROUP,
    SHOWN_CHARS_MAX,
    SettingChange,
    setting_changes,
)
from ottla.broker.handlers.telling import in_turns
from ottla.broker.ports import Clock, Events
from ottla.broker.telemetry.shown import shown

if TYPE_CHECKING:
    from ottla.broker.handlers.context import Session
    from ottla.broker.metadata.image import MetadataImage
    from ottla.broker.quorum.driver import Command
    from ottla.protocol.schema import Message

KEPT_MAX = 500
"""Some hundred bytes each; settings change seldom."""
SETTING_CHANGED = "setting_changed"

T = TypeVar("T")


class SettingHistory:
    """A bounded ring of changes; one per broker. `counts` is by resource, since the start."""

    __slots__ = ("_clock", "_events", "_ring", "counts")

    def __init__(self, clock: Clock, events: Events) -> None:
        self._clock = clock
        self._events = events
        self._ring: deque[tuple[int, dict[str, Any]]] = deque(maxlen=KEPT_MAX)
        self.counts: Counter[str] = Counter()

    def add(self, change: SettingChange, session: Session) -> None:
        """A client's change is in force; one of little use is a warning."""
        fields: dict[str, Any] = change._asdict()
        if change.caution is None:
            del fields["caution"]
        fields |= {
            "client_id": shown(session.client_id),
            "principal": f"User:{ANONYMOUS}",
            "address": session.peer,
        }
        self.counts[change.resource] += 1
        self._ring.append((self._clock.wall_ms(), fields))
        write = self._events.info if change.caution is None else self._events.warning
        write(SETTING_CHANGED, **fields)

    def told_of(self, group_id: str | None) -> list[dict[str, Any]]:
        """The changes of a group's own settings, of all settings if it is None, the oldest first,
        for JSON; as groups' events, those of groups have the group and a reason."""
        asked = shown(group_id, SHOWN_CHARS_MAX)
        told = []
        for wall_ms, fields in self._ring:
            own = fields["name"] if fields["resource"] == GROUP else None
            if asked is None or own == asked:
                verb = "took back" if fields["new"] is None else "set"
                head: dict[str, Any] = {"wall_ms": wall_ms, "event": SETTING_CHANGED}
                if own is not None:
                    head["group"] = own
                told.append({**head, "reason": f"a client {verb} {fields['key']}", **fields})
        return told


async def change_settings(session: Session, command: Command[T]) -> T:
    """Has the quorum run a command that changes settings, and tells what it changed."""
    changes: list[SettingChange] = []

    def noted(image: MetadataImage) -> tuple[list[Message], T]:
        records, response = command(image)
        changes.extend(setting_changes(image, records))
        return records, response

    rooms = session.rooms
    response = await rooms.quorum.submit(noted)
    async for change in in_turns(changes):
        rooms.setting_history.add(change, session)
    return response
