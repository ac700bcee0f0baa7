"""Groups that are to see nothing of aborted transactions, where there are many of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ottla.protocol.messages.configs import IncrementalAlterConfigsRequest
from ottla.protocol.records.batch import stamp
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import build_marker
from ottla.protocol.records.record import Record
from tests.coordinator.asking import ask
from tests.handlers.rooms import START_MS, House
from tests.handlers.transactions import Transactions
from tests.share.sharing import GROUP, TOPIC, Member, acquired_of, begin, loaded, topic_id

GROUP_CONFIG = 32
ABORTED = 4000
AT_ITS_END = [(ABORTED, ABORTED + 1, 1)]
"""The marker, of which clients say that there is no record, and the record behind it."""
PASSED_MAX = 1000
"""Offsets in one turn: of 500 batches, and of the read that was under way."""


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House({"share.coordinator.state.topic.num.partitions": "1"}) as opened:
        await begin(opened, partitions=2)
        name = "share.isolation.level"
        config = IncrementalAlterConfigsRequest.AlterableConfig(name, 0, "read_committed")
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            GROUP_CONFIG, GROUP, [config]
        )
        answer = await ask(opened, IncrementalAlterConfigsRequest([resource]), 1)
        assert answer.responses[0].error_code == 0
        yield opened


async def _abort(house: House) -> None:
    Transactions(house, TOPIC).write(committed=False, batches=ABORTED)
    await house.append(TOPIC, 0, [b"v"])


async def test_a_long_stretch_is_passed_over_in_many_turns(house: House) -> None:
    await _abort(house)
    window = await loaded(house)
    waiting = asyncio.ensure_future(Member(house, "a").acquire(wait_ms=60_000))
    steps: list[int] = []
    while not waiting.done():
        before = window.start
        await asyncio.sleep(0)
        steps.append(window.start - before)

    assert await waiting == AT_ITS_END
    assert sum(steps) == ABORTED
    assert max(steps) <= PASSED_MAX


async def test_many_who_wait_pass_over_no_more_in_a_turn_than_one(house: House) -> None:
    window = await loaded(house)
    members = [Member(house, f"m{number}") for number in range(8)]
    waiting = {asyncio.ensure_future(one.acquire(wait_ms=60_000)) for one in members}
    share = house.rooms.shares.get(GROUP, (topic_id(house), 0))
    assert share is not None
    while len(share.waiters) < len(members):
        await asyncio.sleep(0)
    aborting = asyncio.ensure_future(_abort(house))
    steps: list[int] = []
    while not any(one.done() for one in waiting):
        before = window.start
        await asyncio.sleep(0)
        steps.append(window.start - before)
    await aborting

    assert sum(steps) == ABORTED
    assert max(steps) <= PASSED_MAX
    seen = []
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        seen += [one.result() for one in done]
        await house.append(TOPIC, 0, [b"v"])
    assert seen[0] == AT_ITS_END
    assert [len(one) for one in seen] == [1] * len(members), "nobody is left behind"


async def test_what_others_fetch_does_not_wait_for_those_who_pass_over(house: House) -> None:
    await _abort(house)
    await house.append(TOPIC, 1, [b"v"])
    window = await loaded(house)
    await loaded(house, 1)
    a = asyncio.ensure_future(Member(house, "a").acquire(wait_ms=60_000))
    share = house.rooms.shares.get(GROUP, (topic_id(house), 0))
    assert share is not None
    while not share.is_passing:
        await asyncio.sleep(0)
    before = window.start
    answer = await Member(house, "b").fetch(partitions=(0, 1), wait_ms=60_000)

    assert acquired_of(answer, 1) == [(0, 0, 1)]
    assert window.start <= before + 2 * PASSED_MAX
    assert await a == AT_ITS_END


async def test_what_other_partitions_have_does_not_wait_for_its_end(house: House) -> None:
    await _abort(house)
    await house.append(TOPIC, 1, [b"v"])
    window = await loaded(house)
    await loaded(house, 1)
    answer = await Member(house, "a").fetch(partitions=(0, 1), wait_ms=60_000)

    assert acquired_of(answer, 1) == [(0, 0, 1)]
    assert acquired_of(answer, 0) == []
    assert window.start <= 2 * PASSED_MAX


async def test_a_fetch_that_may_not_wait_goes_on_with_the_next(house: House) -> None:
    await _abort(house)
    window = await loaded(house)
    a = Member(house, "a")
    starts: list[int] = []
    while not (acquired := await a.acquire()):
        starts.append(window.start)

    assert acquired == AT_ITS_END
    assert starts == sorted(set(starts))
    assert len(starts) > 1


@pytest.mark.parametrize("is_parked", [False, True])
async def test_a_gap_behind_an_aborted_batch_is_nobodys(house: House, is_parked: bool) -> None:
    """As compaction leaves it: a batch that is kept for its producer's sequence, and the marker."""
    window = await loaded(house)
    partition = house.rooms.replicas.by_id(topic_id(house), 0)
    share = house.rooms.shares.get(GROUP, (topic_id(house), 0))
    assert partition is not None
    assert share is not None
    member = Member(house, "a")
    waiting = asyncio.ensure_future(member.acquire(records=5, wait_ms=60_000))
    while is_parked and not share.waiters:
        await asyncio.sleep(0)
    records = [Record(0, START_MS, b"k", b"v")] * 3
    batch = build_batch(
        records, transactional=True, base_sequence=0, producer_id=9, producer_epoch=0
    )
    marker = build_marker(
        producer_id=9, producer_epoch=0, committed=False, coordinator_epoch=0, timestamp=START_MS
    )
    for base_offset, one in ((0, batch), (20, marker)):
        at_offset = bytearray(one)
        stamp(memoryview(at_offset), base_offset, 0)
        partition.log.append_as_follower(memoryview(at_offset), now_ms=START_MS)
    await house.append(TOPIC, 0, [b"v"])

    assert (await waiting)[0][0] == 20, "the marker, of which clients say that it is no record"
    assert window.start == 20
