"""Requests to a house as a client sends them, whether their answers come at once or later."""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from typing import Any

from ottla.broker.handlers.answers import CloseConnection, Pending
from ottla.broker.handlers.served import HANDLERS
from ottla.protocol.api import SERVED
from ottla.protocol.codec import decoder, encoder
from ottla.protocol.schema import Message
from tests.handlers.rooms import House

API_OF = {api.request: api for api in SERVED.values()}


class _Line:
    """The end of a connection's line: it hears of one answer."""

    def __init__(self) -> None:
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answered(self, answer: Pending) -> None:
        self.done.set_result(answer.response)

    def failed(self, answer: Pending, error: Exception) -> None:
        self.done.set_exception(error)

    def refused(self, answer: Pending, closing: CloseConnection) -> None:
        raise closing


async def ask(house: House, request: Message, version: int) -> Any:
    """The answer as a client decodes it, to the request as it encodes it."""
    api = API_OF[type(request)]
    assert api.min_version <= version <= api.max_version
    answer = HANDLERS[api.key](house.session, through_wire(request, version), version)
    if isawaitable(answer):
        answer = await answer
    elif isinstance(answer, Pending):
        answer.correlation_id = 0
        if answer.response is None:
            answer.line = line = _Line()
            answer = await line.done
        else:
            answer = answer.response
    return through_wire(answer, version)


def through_wire(message: Any, version: int) -> Any:
    out = bytearray()
    slices: list[tuple[int, Any]] = []
    encoder(type(message), version)(message, out, slices)
    for position, piece in reversed(slices):
        out[position:position] = piece.read()
    decoded, end = decoder(type(message), version)(memoryview(out), 0)
    assert end == len(out)
    return decoded
