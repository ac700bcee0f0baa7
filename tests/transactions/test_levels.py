"""Transactions with each level of transaction.version, also in a directory that was made before."""

from __future__ import annotations

import pytest

from ottla.broker.metadata.records import TRANSACTION_VERSION
from ottla.protocol.messages.features import UpdateFeaturesRequest
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.producer_ids import InitProducerIdRequest
from ottla.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
)
from tests.coordinator.asking import ask
from tests.handlers.rooms import House

ID = "x"
SAFE_DOWNGRADE = 2


async def _state(house: House) -> tuple[str, int]:
    answer = await ask(house, DescribeTransactionsRequest([ID]), 0)
    (shown,) = answer.transaction_states
    assert shown.error_code == 0
    return shown.transaction_state, shown.producer_epoch


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize(("version", "epoch"), [(3, 0), (5, 1)])
async def test_a_transaction_goes_its_way(level: int, version: int, epoch: int) -> None:
    """A client that resets its sequences with each transaction needs the next epoch at any level:
    its first batch would be taken for a repetition."""
    async with House({"transaction.state.log.num.partitions": "2"}) as house:
        await house.create("t")
        update = UpdateFeaturesRequest.FeatureUpdateKey(
            TRANSACTION_VERSION, level, upgrade_type=SAFE_DOWNGRADE
        )
        answer = await ask(house, UpdateFeaturesRequest(feature_updates=[update]), 1)
        assert answer.error_code == 0
        await ask(house, FindCoordinatorRequest(key_type=1, key=ID), 3)
        producer = await ask(house, InitProducerIdRequest(ID, 60_000), 4)
        assert (producer.error_code, producer.producer_epoch) == (0, 0)
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic("t", [0])
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[topic],
        )
        await ask(house, added, 3)
        async with house.restarted() as again:
            assert await _state(again) == ("Ongoing", 0)
            end = EndTxnRequest(ID, producer.producer_id, 0, committed=True)
            ended = await ask(again, end, version)
            assert ended.error_code == 0
            if version == 5:
                assert (ended.producer_id, ended.producer_epoch) == (producer.producer_id, epoch)
            await ask(again, end, version)  # answered when the transaction is complete
            async with again.restarted() as third:
                assert await _state(third) == ("CompleteCommit", epoch)
