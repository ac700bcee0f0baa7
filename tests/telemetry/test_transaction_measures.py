"""What the metrics page says of transactions."""

from __future__ import annotations

import re

from ottla.broker.telemetry.metrics import Registry
from ottla.broker.transaction_measures import watch_transactions
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.producer_ids import InitProducerIdRequest
from ottla.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
)
from tests.coordinator.asking import ask
from tests.handlers.rooms import House

TRANSACTION_KEY = 1


def _some(registry: Registry, name: str) -> dict[str, float]:
    found = {}
    for line in registry.lines():
        match = re.fullmatch(rf"{name}\{{\w+=\"(.*)\"\}} (\S+)", line)
        if match is not None and float(match[2]):
            found[match[1]] = float(match[2])
    return found


async def test_transactions_are_shown_by_state_and_result() -> None:
    async with House({"transaction.state.log.num.partitions": "2"}) as house:
        await house.create("t")
        await ask(house, FindCoordinatorRequest(key_type=TRANSACTION_KEY, key="x"), 3)
        page = Registry()
        watch_transactions(page, house.rooms)
        producer = await ask(house, InitProducerIdRequest("x", 60_000), 4)
        assert _some(page, "ottla_transactional_ids") == {"Empty": 1}
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic("t", [0])
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[topic],
        )
        await ask(house, added, 3)
        assert _some(page, "ottla_transactional_ids") == {"Ongoing": 1}
        await ask(house, EndTxnRequest("x", producer.producer_id, 0, committed=True), 3)
        # Answered when the transaction before it is complete.
        await ask(house, InitProducerIdRequest("x", 60_000), 4)
        await ask(house, EndTxnRequest("x", producer.producer_id, 0, committed=True), 3)

        assert _some(page, "ottla_transactional_ids") == {"Empty": 1}
        assert _some(page, "ottla_transactions_total") == {"commit": 1}
        assert _some(page, "ottla_transaction_events_total") == {"transaction_producer_fenced": 1}
