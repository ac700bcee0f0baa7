"""A Fetch that differs from the one before it on its connection in the offset alone.

Whoever tails one partition without a session, as librdkafka's consumers do, sends the same bytes
again and again but for the correlation id and eight bytes of an offset. The request that was
decoded last is then taken up again, with another offset; nothing else of it is looked at.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.broker.replication.fetch_session import SESSIONLESS_EPOCH
from ottla.protocol.messages.fetch import FetchRequest

BODY_BYTES_MAX: Final = 1024
"""Of a request that is remembered: a copy of it is kept for each connection."""

_OFFSET: Final = struct.Struct(">q")
_OFFSET_SIZE: Final = 8
_pack_offset: Final = _OFFSET.pack
_unpack_offset: Final = _OFFSET.unpack_from


class RepeatedFetch:
    """A request for one partition, and the bytes of its body around the fetch offset."""

    __slots__ = (
        "_after",
        "_before",
        "_end",
        "_partition",
        "_place",
        "_position",
        "_version",
        "request",
    )

    def __init__(
        self, body: bytes, place: int, position: int, version: int, request: FetchRequest
    ) -> None:
        """The body begins at `position` of its frame, and the offset at `place` of the body."""
        self._version = version
        self._position = position
        self._place = position + place
        self._end = position + len(body)
        self._before = body[:place]
        self._after = body[place + _OFFSET_SIZE :]
        self._partition = request.topics[0].partitions[0]
        self.request = request

    def matches(self, frame: memoryview, position: int, version: int) -> bool:
        """Whether a frame whose body begins at `position` is such a request; `request` is it then.
        The one before it must be answered: nobody looks at that any more."""
        place = self._place
        if (
            len(frame) != self._end
            or position != self._position
            or version != self._version
            or frame[position:place] != self._before
            or frame[place + _OFFSET_SIZE :] != self._after
        ):
            return False
        (self._partition.fetch_offset,) = _unpack_offset(frame, place)
        return True


def remember(
    frame: memoryview, position: int, version: int, request: FetchRequest
) -> RepeatedFetch | None:
    """What is to be remembered of a request that was decoded from the `position` of its frame.

    None if it is of another kind, or if the bytes of its offset are found at two places.
    """
    if (
        request.session_epoch != SESSIONLESS_EPOCH
        or len(request.topics) != 1
        or len(request.topics[0].partitions) != 1
        or len(frame) - position > BODY_BYTES_MAX
    ):
        return None
    body = bytes(frame[position:])
    offset = _pack_offset(request.topics[0].partitions[0].fetch_offset)
    place = body.find(offset)
    if place != body.rfind(offset):
        return None
    return RepeatedFetch(body, place, position, version, request)
