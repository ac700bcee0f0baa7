"""Rows 28 to 33: what decodes and should never be asked gets its error, and changes nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from ottla.protocol.schema import Struct
from ottla.testing.embedded import BrokerThread
from tests.corpus.house import House, opened
from tests.corpus.memory import MIB
from tests.corpus.requests import COLLIDING, RECORDS, ROWS, TOPIC, Row

GROWTH_MAX = 64 * MIB
"""Some rows send a megabyte, and their own message and its answer live in this process too."""
LEGAL_ENTRY = re.compile(r"[a-zA-Z0-9._-]{1,255}")


@pytest.fixture(scope="module")
def stocked(broker: BrokerThread) -> BrokerThread:
    """The module's broker with the topic of the rows in it."""
    with opened(broker) as house:
        house.create_topic(COLLIDING)
        house.create_topic(TOPIC)
        for count in (1, RECORDS - 1):
            _produce(house, build_batch([Record(0, 1_700_000_000_000, b"k", b"v")] * count))
    return broker


def _produce(house: House, records: bytearray) -> None:
    data = ProduceRequest.PartitionProduceData(0, memoryview(records))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[ProduceRequest.TopicProduceData(TOPIC, partition_data=[data])],
    )
    with house.peer() as peer:
        answer: ProduceResponse = peer.request(request, 12)
    assert answer.responses[0].partition_responses[0].error_code == 0


def _errors(message: object) -> Iterator[ErrorCode]:
    """The error codes of an answer that are not 0, from its beginning to its end."""
    code = getattr(message, "error_code", 0)
    if code:
        yield ErrorCode(code)
    for name in type(message).__slots__:  # type: ignore[attr-defined]
        value = getattr(message, name)
        for item in value if isinstance(value, list) else ():
            if isinstance(item, Struct):
                yield from _errors(item)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.number}-{row.name}")
def test_row(stocked: BrokerThread, row: Row) -> None:
    with opened(stocked, growth_max=GROWTH_MAX) as house, house.peer() as peer:
        answer = peer.request(row.message, row.version)

        assert tuple(_errors(answer)) == row.errors
        assert row.judge is None or row.judge(answer)
        assert peer.works()
        assert house.running.replicas.get(TOPIC, 0).log.high_watermark == RECORDS  # type: ignore[union-attr]
        assert all(LEGAL_ENTRY.fullmatch(entry) for entry in os.listdir(stocked.data_dir))
