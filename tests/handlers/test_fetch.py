"""Fetch of committed data: which aborted transactions an answer names."""

from __future__ import annotations

from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.records.batch import iterate_headers
from tests.coordinator.asking import ask
from tests.handlers.rooms import House
from tests.handlers.transactions import PRODUCER_ID, Transactions

TOPIC = "t"
READ_COMMITTED = 1
ABORTED = 300


async def test_a_fetch_names_the_aborted_transactions_of_what_it_returns(house: House) -> None:
    """All others are told to who fetches them, and may be a hundred thousand."""
    topic_id = await house.create(TOPIC)
    transactions = Transactions(house, TOPIC)
    begun = [transactions.write(committed=index % 3 == 0) for index in range(ABORTED)]
    aborted = [offset for index, offset in enumerate(begun) if index % 3]
    await house.append(TOPIC, 0, [b"v"])
    offset, answers = 0, 0
    while offset < 2 * ABORTED:
        part = FetchRequest.FetchPartition(0, fetch_offset=offset, partition_max_bytes=2000)
        request = FetchRequest(
            isolation_level=READ_COMMITTED,
            topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=[part])],
        )
        answer = await ask(house, request, 16)
        (found,) = answer.responses[0].partitions
        last = [header.last_offset for _, header in iterate_headers(bytes(found.records))][-1]
        told = [(one.producer_id, one.first_offset) for one in found.aborted_transactions]
        needed = [(PRODUCER_ID, one) for one in aborted if offset - 1 <= one <= last]

        assert told[: len(needed)] == needed
        assert len(told) <= len(needed) + 1  # the batch that was cut
        offset, answers = last + 1, answers + 1
    assert answers > 10
