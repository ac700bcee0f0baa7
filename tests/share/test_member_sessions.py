"""Sessions of members that open, close and are cut off: what becomes of what they hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import pytest

from ottla.broker.handlers import share_fetch
from ottla.broker.handlers.answers import Pending
from ottla.broker.handlers.share_acknowledge import handle_share_acknowledge
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import share_group
from tests.handlers.rooms import House
from tests.share.sharing import GROUP, TOPIC, Member, acquired_of, begin, produce, topic_id

ACCEPT = 1


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House({"share.coordinator.state.topic.num.partitions": "2"}) as opened:
        yield opened


async def test_what_a_member_holds_goes_back_when_its_session_ends(house: House) -> None:
    await begin(house)
    await produce(house, 2, 2)
    a, b = Member(house, "a"), Member(house, "b")
    await a.acquire(records=2)
    await b.acquire()
    answer = await a.fetch(epoch=-1)
    assert answer.error_code == 0

    assert await b.acquire(wait_ms=60_000) == [(0, 1, 2)]
    assert (await a.fetch(epoch=1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_what_a_member_holds_goes_back_when_its_connection_is_closed(house: House) -> None:
    await begin(house)
    await produce(house, 2)
    await Member(house, "a").acquire()
    assert house.session.on_closed is not None
    house.session.on_closed(house.session)

    assert len(house.rooms.shares.sessions) == 0
    assert await Member(house, "b").acquire(wait_ms=60_000) == [(0, 1, 2)]


async def test_the_last_acknowledgement_closes_the_session(house: House) -> None:
    await begin(house)
    await produce(house, 2)
    a = Member(house, "a")
    await a.acquire()
    part = await a.acknowledge((0, 0, [ACCEPT]), epoch=-1)
    assert part.error_code == 0

    assert await Member(house, "b").acquire(wait_ms=60_000, exactly=True) == [(1, 1, 2)]
    assert (await a.acknowledge(epoch=-1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_a_session_ends_though_nobody_hears_of_it(house: House) -> None:
    """It is closed over a connection that goes before what is acknowledged is durable."""
    await begin(house)
    await produce(house, 2)
    a = Member(house, "a")
    await a.acquire()
    request = a.fetch_request(acks=((0, 0, [ACCEPT]),), epoch=-1)
    ending = share_fetch.handle_share_fetch(house.session, request, 2)
    assert isinstance(ending, Pending)
    assert ending.response is None
    ending.abandoned = True
    ending.on_abandoned()

    assert await Member(house, "b").acquire(wait_ms=60_000, exactly=True) == [(1, 1, 2)]


async def test_epochs_that_are_not_next_are_refused(house: House) -> None:
    await begin(house)
    a = Member(house, "a")
    invalid = ErrorCode.INVALID_SHARE_SESSION_EPOCH

    assert (await a.fetch(epoch=3)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (await a.fetch(epoch=-1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (await a.acknowledge(epoch=0)).error_code == invalid
    await a.fetch()
    assert (await a.fetch(epoch=2)).error_code == invalid
    assert (await a.acknowledge(epoch=2)).error_code == invalid
    with_acks = await a.fetch(epoch=0, acks=[(0, 0, [ACCEPT])])
    assert with_acks.error_code == ErrorCode.INVALID_REQUEST
    assert (await a.fetch()).error_code == 0


async def test_a_session_that_is_closed_late_leaves_the_next_one_alone(house: House) -> None:
    """The first ends when what its last request acknowledges is durable."""
    await begin(house)
    await produce(house, 1, 1, 1)
    member = Member(house, "a")
    assert await member.acquire(records=1) == [(0, 0, 1)]
    part = share_group.ShareAcknowledgeRequest.AcknowledgePartition(
        0, [share_group.ShareAcknowledgeRequest.AcknowledgementBatch(0, 0, [ACCEPT])]
    )
    topic = share_group.ShareAcknowledgeRequest.AcknowledgeTopic(topic_id(house), [part])
    request = share_group.ShareAcknowledgeRequest(GROUP, "a", -1, topics=[topic])
    closing = handle_share_acknowledge(house.session, request, 2)
    assert isinstance(closing, Pending)
    assert closing.response is None
    member.epoch = 0

    assert await member.acquire(records=1) == [(1, 1, 1)]
    while closing.response is None:
        await asyncio.sleep(0)
    assert closing.response.error_code == 0
    assert await member.acquire(records=1) == [(2, 2, 1)]


async def test_who_finds_no_room_for_a_new_session_gives_back_what_it_held(house: House) -> None:
    await begin(house)
    await produce(house, 1)
    member = Member(house, "a")
    assert await member.acquire() == [(0, 0, 1)]
    house.rooms.shares.sessions._places_max = 1
    member.epoch = 0

    refused = await member.fetch(partitions=(0, 1))

    assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert await Member(house, "b").acquire(wait_ms=60_000) == [(0, 0, 2)]


@pytest.mark.parametrize("name", ["", "x" * 37])
async def test_names_that_no_member_has_are_refused(house: House, name: str) -> None:
    await begin(house)

    assert (await Member(house, name).fetch()).error_code == ErrorCode.INVALID_REQUEST
    request = share_group.ShareAcknowledgeRequest(None, "m", 1)
    refused = handle_share_acknowledge(house.session, request, 2)
    assert isinstance(refused, share_group.ShareAcknowledgeResponse)
    assert refused.error_code == ErrorCode.INVALID_REQUEST


async def test_there_are_only_so_many_sessions() -> None:
    settings = {
        "share.coordinator.state.topic.num.partitions": "1",
        "group.share.max.size": "1",
        "group.share.max.share.sessions": "1",
    }
    async with House(settings) as house:
        await begin(house)
        await Member(house, "a").acquire()
        reached = ErrorCode.SHARE_SESSION_LIMIT_REACHED

        assert (await Member(house, "b").fetch()).error_code == reached
        assert (await Member(house, "b").fetch(wait_ms=5)).error_code == reached
        await Member(house, "a").acquire()


@pytest.fixture
async def acknowledging() -> AsyncIterator[tuple[Member, Member]]:
    """Two members that hold a record each. One write takes what both say of theirs, and the first
    of them finds another record behind its own."""
    async with House({"share.coordinator.state.topic.num.partitions": "1"}) as house:
        await begin(house)
        a, b = Member(house, "a"), Member(house, "b")
        await produce(house, 1, 1)
        for member in (a, b):
            await member.acquire(records=1)
        await produce(house, 1)
        yield a, b


async def _both_acknowledge(members: tuple[Member, Member]) -> tuple[Any, Any]:
    a, b = members
    return await asyncio.gather(
        a.fetch(acks=((0, 0, [ACCEPT]),), wait_ms=60_000),
        b.acknowledge((1, 1, [ACCEPT])),
        return_exceptions=True,
    )


async def test_what_cannot_be_read_is_told_to_who_reads_it(
    acknowledging: tuple[Member, Member],
) -> None:
    """A file that was cut within the header of a batch."""
    house = acknowledging[0].house
    led = house.rooms.replicas.get(TOPIC, 0)
    assert led is not None
    segment = led.log.segments.active
    with closing(house.disk.open(segment.log_path)) as file:
        file.truncate(segment.locate(2)[0] + 20)
    fetched, acknowledged = await _both_acknowledge(acknowledging)
    (part,) = fetched.responses[0].partitions

    assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert acknowledged.error_code == 0


async def test_what_breaks_behind_an_acknowledgement_is_the_answer_of_one(
    acknowledging: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(share_fetch, "batches_in", broken)
    fetched, acknowledged = await _both_acknowledge(acknowledging)

    assert str(fetched) == "broken"
    assert acknowledged.error_code == 0


async def test_where_clients_have_many_files_pinned_an_answer_is_of_one_partition(
    house: House,
) -> None:
    await begin(house, partitions=2)
    for index in (0, 1):
        await produce(house, 4, partition=index)
    house.disk.held_max = 0
    a = Member(house, "a")
    answers = [await a.fetch(partitions=(0, 1)) for _ in range(2)]

    gave = [[index for index in (0, 1) if acquired_of(answer, index)] for answer in answers]
    assert sorted(gave) == [[0], [1]]
