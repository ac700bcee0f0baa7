"""Requests that wait, and what is answered to them."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.broker.handlers.answers import CloseConnection, Pending
from ottla.broker.handlers.fetch import ParkedFetch, handle_fetch
from ottla.protocol.messages.fetch import FetchRequest
from tests.handlers.rooms import House


class Answers:
    """The line of a connection: what it would send."""

    def __init__(self) -> None:
        self.given: list[Any] = []
        self.arrived = asyncio.Event()

    def answered(self, answer: Pending) -> None:
        self.given.append(answer.response)
        self.arrived.set()

    def failed(self, answer: Pending, error: Exception) -> None:
        raise error

    def refused(self, answer: Pending, closing: CloseConnection) -> None:
        raise closing


def park(house: House, request: FetchRequest) -> tuple[ParkedFetch, Answers]:
    """A fetch that waits, and where its answer comes to."""
    parked = handle_fetch(house.session, request, 16)
    assert isinstance(parked, ParkedFetch)
    parked.line = answers = Answers()
    return parked, answers
