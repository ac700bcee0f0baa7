"""InitProducerId: numbers for idempotent producers, out of blocks that the controller gives.

A block is recorded in the metadata log before any of its numbers is handed out, and what is left
of it at a stop is never used: no two producers ever get the same number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from ottla.broker.controller.producer_ids import allocate_block
from ottla.broker.handlers.context import Rooms, Session
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
FIRST_EPOCH = 0


class ProducerIds:
    """The rest of this broker's block; one per broker."""

    __slots__ = ("_end", "_next", "_refill")

    def __init__(self) -> None:
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<ProducerIds next={self._next} left={self._end - self._next}>"

    def take(self) -> int | None:
        """The next number, or None when the block is used up."""
        if self._next == self._end:
            return None
        producer_id = self._next
        self._next += 1
        return producer_id

    async def take_refilled(self, rooms: Rooms) -> int:
        """The next number, out of a new block if need be, for which all who come now wait."""
        while True:
            async with self._refill:
                producer_id = self.take()
                if producer_id is not None:
                    return producer_id
                first, count = await rooms.quorum.submit(
                    lambda image: allocate_block(image, broker_id=rooms.config.node_id)
                )
                self._next, self._end = first, first + count


def handle_init_producer_id(
    session: Session, request: InitProducerIdRequest, version: int
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    """A new producer id with epoch 0, or the refusal of a transactional id."""
    refused = _refusal(request)
    if refused is not None:
        return InitProducerIdResponse(
            error_code=int(refused), producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
        )
    rooms = session.rooms
    producer_id = rooms.producer_ids.take()
    if producer_id is None:
        return _answer_refilled(rooms)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=FIRST_EPOCH)


async def _answer_refilled(rooms: Rooms) -> InitProducerIdResponse:
    producer_id = await rooms.producer_ids.take_refilled(rooms)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=FIRST_EPOCH)


def _refusal(request: InitProducerIdRequest) -> ErrorCode | None:
    has_id = request.producer_id != NO_PRODUCER_ID
    has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
    if request.transactional_id == "" or has_id != has_epoch:
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is not None:
        # There is no transaction coordinator that could own the id, and to ask again is in vain.
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return None
