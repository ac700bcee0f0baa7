"""What the members of a share group have acquired on one broker, and what they say of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.broker.share.sessions import LAST_EPOCH
from ottla.broker.share.window import RENEW
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from tests.differences.requests import Acknowledged, Body, Request

Range = tuple[int, int]
"""The first offset and the last."""
NO_SUCH_KIND = 9


@dataclass(slots=True)
class Sharing:
    """`epochs` are those of the next request of each member's session."""

    epochs: dict[str, int] = field(default_factory=dict)
    _held: dict[tuple[str, int], list[Range]] = field(default_factory=dict)
    _last: dict[tuple[str, int], list[Body]] = field(default_factory=dict)

    def acknowledged(self, symbol: Acknowledged) -> list[Body]:
        """The batches of an acknowledgement; what it gives up is not the member's any more."""
        key = symbol.member, symbol.partition
        held = self._held.get(key, [])
        if symbol.odd == "again":
            return self._last.get(key, [])
        chosen = held if symbol.whole else held[:1]
        if symbol.odd in ("behind", "below"):
            by = 2 if symbol.odd == "behind" else -1
            chosen = [(first, last + by) for first, last in chosen[-1:] if last + by >= first]
        out = [self._of(one, symbol) for one in chosen]
        if not symbol.odd and RENEW not in symbol.kinds:
            self._held[key] = [one for one in held if one not in chosen]
            self._last[key] = out
        return out

    def _of(self, one: Range, symbol: Acknowledged) -> Body:
        first, last = one
        kinds = (*symbol.kinds, NO_SUCH_KIND) if symbol.odd == "kind" else symbol.kinds
        each = [kinds[number % len(kinds)] for number in range(last - first + 1)]
        given = each if len(kinds) > 1 else each[:1]
        return {"first_offset": first, "last_offset": last, "acknowledge_types": given}

    def learn(self, request: Request, answer: Body) -> None:
        member = request.name
        if answer["error_code"]:
            if answer["error_code"] == ErrorCode.SHARE_SESSION_NOT_FOUND:
                self._end(member)
            return
        asked = request.body["share_session_epoch"]
        if asked == LAST_EPOCH:
            self._end(member)
        else:
            self.epochs[member] = self.epochs.get(member, 0) + 1 if asked else 1
        if request.api is not ApiKey.SHARE_FETCH:
            return
        for topic in answer["responses"]:
            for part in topic["partitions"]:
                held = self._held.setdefault((member, part["partition_index"]), [])
                held += [
                    (one["first_offset"], one["last_offset"]) for one in part["acquired_records"]
                ]
                held[:] = joined(held)

    def _end(self, member: str) -> None:
        """The session, with all that its member had."""
        self.epochs[member] = 0
        for key in [key for key in self._held if key[0] == member]:
            del self._held[key]


def joined(ranges: list[Range]) -> list[Range]:
    """The same offsets, by as few ranges as there can be."""
    out: list[Range] = []
    for first, last in sorted(ranges):
        if out and first <= out[-1][1] + 1:
            out[-1] = out[-1][0], max(last, out[-1][1])
        else:
            out.append((first, last))
    return out
