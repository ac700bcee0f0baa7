"""A Fetch that differs from the one before it on its connection in the offset alone.

Whoever tails one partition without a session, as librdkafka's consumers do, sends the same bytes
again and again but for the correlation id and eight bytes of an offset. What was decoded last is
then taken up again with another offset, and nothing of it is decoded.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.broker.replication.fetch_session import SESSIONLESS_EPOCH
from ottla.protocol.messages.fetch import FetchRequest

BODY_BYTES_MAX: Final = 512
"""Of a request that is kept, with a copy of its bytes, for as long as its connection: a topic's
name has 249 at most."""

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
        "_request",
        "_version",
    )

    def __init__(
        self, request: FetchRequest, body: bytes, *, place: int, position: int, version: int
    ) -> None:
        """The body begins at `position` of its frame, and the offset at `place` of the body."""
        self._request = request
        self._partition = request.topics[0].partitions[0]
        self._before = body[:place]
        self._after = body[place + _OFFSET_SIZE :]
        self._place = position + place
        self._position = position
        self._end = position + len(body)
        self._version = version

    def again(self, frame: memoryview, *, position: int, version: int) -> FetchRequest | None:
        """The request of a frame whose body begins at `position`, if it is the same but for the
        offset. It is the object that was given before: nobody may work on that any more."""
        place = self._place
        if (
            len(frame) != self._end
            or position != self._position
            or version != self._version
            or frame[position:place] != self._before
            or frame[place + _OFFSET_SIZE :] != self._after
        ):
            return None
        (self._partition.fetch_offset,) = _unpack_offset(frame, place)
        return self._request


def remember(
    frame: memoryview, request: FetchRequest, *, position: int, version: int
) -> RepeatedFetch | None:
    """What is to be kept of a request that was decoded from the `position` of its frame.

    None if it is of another kind, or if the bytes of its offset are found at two places.
    """
    if (
        request.session_epoch != SESSIONLESS_EPOCH
        or len(request.topics) != 1
        or len(request.topics[0].partitions) != 1
        or request.forgotten_topics_data  # three bytes of one are an object of a hundred
        or len(frame) - position > BODY_BYTES_MAX
    ):
        return None
    body = bytes(frame[position:])
    offset = _pack_offset(request.topics[0].partitions[0].fetch_offset)
    place = body.find(offset)
    if place != body.rfind(offset):
        return None
    return RepeatedFetch(request, body, place=place, position=position, version=version)
