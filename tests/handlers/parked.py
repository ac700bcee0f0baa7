"""Requests that wait, and what is answered to them."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.broker.handlers.answers import CloseConnection, Pending
from ottla.broker.handlers.fetch import ParkedFetch, handle_fetch
from ottla.broker.log.file_slice import FileSlice
from ottla.protocol.codec import decoder
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from tests.handlers.rooms import House

VERSION = 16
CORRELATION_ID = 4711
_HEADER_BYTES = 9
"""Length, correlation id, no tags."""


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


class FetchAnswers(Answers):
    """As messages, those that came as frames, too."""

    def answered(self, answer: Pending) -> None:
        super().answered(answer)
        frame = self.given[-1]
        if isinstance(frame, bytearray):
            self.given[-1] = message_of(frame)


def message_of(frame: bytearray) -> FetchResponse:
    """What an answer to `park` says."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == CORRELATION_ID
    message, end = decoder(FetchResponse, VERSION)(memoryview(frame), _HEADER_BYTES)
    assert end == len(frame)
    return message


def said(answers: Answers) -> FetchResponse:
    """The one answer as a message, with the bytes of its records."""
    (answer,) = answers.given
    response = message_of(answer) if isinstance(answer, bytearray) else answer
    assert isinstance(response, FetchResponse)
    for topic in response.responses:
        for part in topic.partitions:
            records = part.records
            assert isinstance(records, FileSlice | memoryview | bytes)
            part.records = records.read() if isinstance(records, FileSlice) else bytes(records)
    return response


def listen(house: House, request: FetchRequest, *, is_metered: bool = False) -> Answers:
    """What a connection is given, as it is given: a frame or a message."""
    parked, _ = park(house, request, is_metered=is_metered)
    parked.line = answers = Answers()
    return answers


def park(
    house: House, request: FetchRequest, *, is_metered: bool = False
) -> tuple[ParkedFetch, FetchAnswers]:
    """A fetch that waits, and where its answer comes to."""
    parked = handle_fetch(house.session, request, VERSION)
    assert isinstance(parked, ParkedFetch)
    parked.line = answers = FetchAnswers()
    parked.correlation_id = CORRELATION_ID
    parked.is_metered = is_metered
    return parked, answers
