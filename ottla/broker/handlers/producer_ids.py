"""InitProducerId: numbers for producers, out of blocks that the controller gives.

A block is recorded in the metadata log before any of its numbers is handed out, and what is left
of it at a stop is never used: no two producers ever get the same number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from ottla.broker.controller.producer_ids import allocate_block
from ottla.broker.coordinator.outcome import Reply
from ottla.broker.coordinator.transaction.initializing import Expected
from ottla.broker.handlers.answers import Awaited, Pending
from ottla.broker.handlers.context import Rooms, Session
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
FIRST_EPOCH = 0
FENCED_SINCE_VERSION = 4


class ProducerIds:
    """The rest of this broker's block; one per broker."""

    __slots__ = ("_end", "_next", "_refill")

    def __init__(self) -> None:
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<ProducerIds next={self._next} left={self._end - self._next}>"

    @property
    def left(self) -> int:
        """How many numbers there are without asking."""
        return self._end - self._next

    def take(self) -> int:
        """The next number; COORDINATOR_LOAD_IN_PROGRESS if the block is used up, and then it is
        `refill` that helps."""
        if self._next == self._end:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        producer_id = self._next
        self._next += 1
        return producer_id

    async def refill(self, rooms: Rooms) -> None:
        """Fetches a new block if this one is used up, for which all who come now wait."""
        async with self._refill:
            if not self.left:
                first, count = await rooms.quorum.submit(
                    lambda image: allocate_block(image, broker_id=rooms.config.node_id)
                )
                self._next, self._end = first, first + count

    async def refill_beside(self, rooms: Rooms) -> None:
        """As `refill`, where nobody waits: that it is refused, by a full disk, say, is told, and
        who needs a number next asks again."""
        try:
            await self.refill(rooms)
        except KafkaError as error:
            rooms.events.warning("producer_ids_refused", error=str(error))


class InitPending(Pending):
    """An answer to come, in a version that may not know that a producer can be fenced."""

    __slots__ = ("_asked_version",)

    def __init__(self, version: int) -> None:
        super().__init__()
        self._asked_version = version

    def complete(self, response: InitProducerIdResponse) -> None:
        super().complete(_shown(response, self._asked_version))


def handle_init_producer_id(
    session: Session, request: InitProducerIdRequest, version: int
) -> InitProducerIdResponse | Pending | Awaitable[InitProducerIdResponse]:
    """A new producer id with epoch 0, or the producer of a transactional id in its next epoch."""
    rooms = session.rooms
    code = _refusal(request, rooms.config.transaction_max_timeout_ms)
    if code:
        return _refused(code)
    if not rooms.producer_ids.left:
        return _answer_refilled(rooms, request, version)
    if request.transactional_id is None:
        return _new_producer(rooms)
    pending = InitPending(version)
    _initialize(rooms, request, request.transactional_id, pending)
    return pending


async def _answer_refilled(
    rooms: Rooms, request: InitProducerIdRequest, version: int
) -> InitProducerIdResponse:
    while not rooms.producer_ids.left:
        await rooms.producer_ids.refill(rooms)
    if request.transactional_id is None:
        return _new_producer(rooms)
    reply = Awaited()
    _initialize(rooms, request, request.transactional_id, reply)
    return _shown(await reply.future, version)


def _new_producer(rooms: Rooms) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=rooms.producer_ids.take(), producer_epoch=FIRST_EPOCH)


def _initialize(
    rooms: Rooms, request: InitProducerIdRequest, transactional_id: str, reply: Reply
) -> None:
    try:
        runner, shard = rooms.transactions.runner(transactional_id)
    except KafkaError as error:
        reply.complete(_refused(error.code))
        return
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = Expected(request.producer_id, request.producer_epoch)
    timeout_ms = request.transaction_timeout_ms
    runner.perform(
        shard.init_producer_id(transactional_id, timeout_ms, expected, reply, runner.now())
    )


def _shown(response: InitProducerIdResponse, version: int) -> InitProducerIdResponse:
    if response.error_code == ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE_VERSION:
        response.error_code = int(ErrorCode.INVALID_PRODUCER_EPOCH)
    return response


def _refusal(request: InitProducerIdRequest, timeout_max_ms: int) -> ErrorCode:
    has_id = request.producer_id != NO_PRODUCER_ID
    has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
    if request.transactional_id == "" or has_id != has_epoch:
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is None:
        return ErrorCode.NONE
    if not 0 < request.transaction_timeout_ms <= timeout_max_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=int(code), producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )
