"""InitProducerId: distinct ids, blocks of the controller, and what is not served yet."""

from __future__ import annotations

import asyncio
import errno

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.producer_ids import InitProducerIdRequest
from tests.handlers.rooms import House

BLOCK = 1000


async def take(house: House, version: int = 5) -> int:
    answer = await house.ask(InitProducerIdRequest(None, 60_000), version)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    producer_id: int = answer.producer_id
    return producer_id


@pytest.mark.parametrize("version", range(6))
async def test_ids_count_from_0(house: House, version: int) -> None:
    assert [await take(house, version) for _ in range(3)] == [0, 1, 2]


async def test_the_first_who_come_together_share_one_block(house: House) -> None:
    taken = await asyncio.gather(*(take(house) for _ in range(5)))

    assert sorted(taken) == [0, 1, 2, 3, 4]
    assert house.rooms.image.next_producer_id == BLOCK


async def test_a_used_up_block_is_followed_by_the_next(house: House) -> None:
    for expected in range(BLOCK + 1):
        assert await take(house) == expected

    assert house.rooms.image.next_producer_id == 2 * BLOCK


async def test_a_restart_leaves_the_rest_of_a_block(house: House) -> None:
    await take(house)

    async with house.restarted() as again:
        assert await take(again) == BLOCK


async def test_an_id_without_a_transaction_is_replaced(house: House) -> None:
    answer = await house.ask(InitProducerIdRequest(None, 60_000, 5, 3), 5)

    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 0, 0)


@pytest.mark.parametrize(
    ("transactional_id", "producer_id", "epoch", "code"),
    [
        ("", -1, -1, ErrorCode.INVALID_REQUEST),
        (None, 5, -1, ErrorCode.INVALID_REQUEST),
        (None, -1, 3, ErrorCode.INVALID_REQUEST),
        ("tx", -1, -1, ErrorCode.NOT_COORDINATOR),
        ("tx", 5, 3, ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_refusals(
    house: House, transactional_id: str | None, producer_id: int, epoch: int, code: ErrorCode
) -> None:
    request = InitProducerIdRequest(transactional_id, 60_000, producer_id, epoch)

    answer = await house.ask(request, 5)

    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


async def test_a_refill_that_nobody_waits_for_is_told_of_its_refusal(house: House) -> None:
    """What it raised would end the broker; the next one may find room again."""
    producer_ids = house.rooms.producer_ids
    house.disk.inject("pwrite", errno.ENOSPC, path="__cluster_metadata")
    await producer_ids.refill_beside(house.rooms)
    assert producer_ids.left == 0
    assert len(house.events.named("producer_ids_refused")) == 1
    await producer_ids.refill_beside(house.rooms)

    assert producer_ids.left == BLOCK
