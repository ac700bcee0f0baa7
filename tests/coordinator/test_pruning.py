"""The coordinators' topics are kept short: what is written anew, and what is deleted."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.broker.coordinator.outcome import CoordinatorRecord, EndMarker, Moment
from ottla.broker.coordinator.pruning import prune
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import groups
from ottla.protocol.messages.coordinator_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.messages.transactions import TxnOffsetCommitRequest
from ottla.protocol.schema import Message
from tests.coordinator.asking import ask
from tests.coordinator.served import (
    GROUP,
    SETTINGS,
    begin,
    led,
    offset_commit,
    offset_fetch,
    offset_of,
    stable_member,
)
from tests.coordinator.shards import TOPIC_ID, Lone
from tests.coordinator.steps import steps_of
from tests.handlers.rooms import House

REDUNDANT_MIN = 5


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House(SETTINGS) as opened:
        await begin(opened)
        yield opened


@pytest.mark.parametrize("is_again", [False, True])
async def test_what_is_out_of_date_is_deleted_when_the_rest_is_written_anew(
    house: House, is_again: bool
) -> None:
    for number in range(30):
        await ask(house, offset_commit(number, partition=number % 2), 9)
    member_id = await stable_member(house)
    log = led(house).log
    end_offset = log.log_end_offset
    list(prune(house.rooms.groups, REDUNDANT_MIN))
    if is_again:
        list(prune(house.rooms.groups, REDUNDANT_MIN))
    assert log.log_start_offset == 0, "nothing of it is durable yet"
    await offset_of(house)

    assert (log.log_start_offset, log.log_end_offset) == (end_offset, end_offset + 3)
    async with house.restarted() as again:
        beat = groups.HeartbeatRequest(GROUP, 1, member_id)
        assert await offset_of(again) == 28
        assert (await ask(again, beat, 4)).error_code == 0


async def test_what_cannot_be_written_anew_stays(house: House) -> None:
    for number in range(30):
        await ask(house, offset_commit(number), 9)
    house.disk.inject("pwrite", errno.ENOSPC, path=".log")
    list(prune(house.rooms.groups, REDUNDANT_MIN))
    refused = await ask(house, offset_fetch(), 9)

    assert refused.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    assert await offset_of(house) == 29
    assert led(house).log.log_start_offset == 0


async def test_nothing_is_written_anew_while_the_first_transaction_has_offsets(
    house: House,
) -> None:
    other = next(f"g{number}" for number in range(99) if led(house, f"g{number}") is not led(house))
    for number in range(30):
        await ask(house, offset_commit(number), 9)
        await ask(house, offset_commit(number, group=other), 9)
    _commit_in_transaction(house, 5, offset=77, partition=0)
    log = led(house).log
    for decided in (False, True):
        if decided:
            _decide(house, 5)
        list(prune(house.rooms.groups, REDUNDANT_MIN))
        await offset_of(house)
        await offset_of(house, other)

        assert (log.log_start_offset > 0) == decided
        assert led(house, other).log.log_start_offset > 0, "it is held up by nobody"
    async with house.restarted() as again:
        assert await offset_of(again) == 77


async def test_a_log_is_kept_short_while_one_transaction_follows_the_other(house: House) -> None:
    for number in range(30):
        await ask(house, offset_commit(number), 9)
    log = led(house).log
    _commit_in_transaction(house, 5, offset=70, partition=0)
    await offset_of(house)
    begun_at = log.log_end_offset
    list(prune(house.rooms.groups, REDUNDANT_MIN))
    await offset_of(house)
    assert log.log_start_offset == 0

    _commit_in_transaction(house, 6, offset=80, partition=1)
    _decide(house, 5)
    list(prune(house.rooms.groups, REDUNDANT_MIN))
    await offset_of(house)
    assert log.log_start_offset == begun_at, "what is pending now begins there"

    _commit_in_transaction(house, 5, offset=71, partition=0)
    assert await offset_of(house) == 70
    async with house.restarted() as again:
        assert await offset_of(again) == 70
        for producer_id in (5, 6):
            _decide(again, producer_id)
        assert await offset_of(again) == 71
        assert await offset_of(again, partition=1) == 80
        list(prune(again.rooms.groups, 1))
        await offset_of(again)
        log = led(again).log
        assert log.log_end_offset - log.log_start_offset == 2


async def test_what_a_transaction_will_go_over_is_not_moved_behind_it(house: House) -> None:
    for number in range(30):
        await ask(house, offset_commit(number), 9)
    log = led(house).log
    _commit_in_transaction(house, 6, offset=80, partition=1)
    list(prune(house.rooms.groups, REDUNDANT_MIN))
    _commit_in_transaction(house, 5, offset=70, partition=0)  # over 29, which stands before it
    _decide(house, 6)
    list(prune(house.rooms.groups, REDUNDANT_MIN))
    await offset_of(house)

    assert log.log_start_offset == 0
    async with house.restarted() as again:
        _decide(again, 5)
        assert await offset_of(again) == 70


def test_no_offset_is_looked_at_while_a_transaction_hangs_where_the_log_begins() -> None:
    """It is asked each second, and with 100,000 offsets would hold all up for 10 ms."""
    shard, now, count = Lone().shard, Moment(0, 0), 1000
    value = OffsetCommitValue(1, -1, "", 0, -1, TOPIC_ID)
    for number in range(count):
        shard.apply(CoordinatorRecord(OffsetCommitKey(f"g{number}", "t", 0), value), 0)
    shard.apply(CoordinatorRecord(OffsetCommitKey("y", "t", 0), value), 0, 8)
    assert shard.written_anew(now, range(3 * count)) is None
    shard.apply(CoordinatorRecord(OffsetCommitKey("x", "t", 0), value), 0, 7)
    shard.end_transaction(8, is_commit=True)
    anew = shard.written_anew(now, range(3 * count + 2))
    assert anew is not None
    assert len(anew.outcome.records) == count + 1

    held = range(anew.begins_at, 9 * count)
    assert shard.written_anew(now, held) is None
    assert steps_of(lambda: shard.written_anew(now, held)) < 100


def test_a_group_that_was_deleted_behind_the_cut_is_not_back_after_a_restart() -> None:
    """Nothing is left of what made it, but a commit, and the tombstones behind that."""
    lone = Lone()
    log: list[tuple[CoordinatorRecord, int]] = []
    value = OffsetCommitValue(1, -1, "", 0, -1, TOPIC_ID)

    def put(key: Message, value: Message | None, producer_id: int = -1) -> None:
        log.append((CoordinatorRecord(key, value), producer_id))
        lone.shard.apply(log[-1][0], 0, producer_id)

    put(ConsumerGroupMetadataKey(GROUP), ConsumerGroupMetadataValue(1, 0))
    put(OffsetCommitKey("x", "t", 0), value, 7)
    assert lone.shard.written_anew(lone.now, range(len(log))) is None
    put(OffsetCommitKey("x", "t", 1), value, 8)
    lone.shard.end_transaction(7, is_commit=True)
    put(OffsetCommitKey(GROUP, "t", 0), value)
    put(OffsetCommitKey(GROUP, "t", 0), None)
    put(ConsumerGroupMetadataKey(GROUP), None)
    anew = lone.shard.written_anew(lone.now, range(-10, len(log)))
    assert anew is not None
    again = lone.new_shard()
    for record, producer_id in log[anew.begins_at :]:
        again.apply(record, 0, producer_id)
    for record in anew.outcome.records:
        again.apply(record, 0)

    assert list(again.groups) == list(lone.shard.groups) == ["x"]


def _commit_in_transaction(house: House, producer_id: int, *, offset: int, partition: int) -> None:
    part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition, offset)
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic("t", [part])
    request = TxnOffsetCommitRequest("x", GROUP, producer_id, 0, topics=[topic])
    runner, shard = house.rooms.groups.runner(GROUP)
    runner.perform(shard.commit_in_transaction(request, _Nobody(), runner.now()))


def _decide(house: House, producer_id: int) -> None:
    marker = EndMarker(producer_id, 0, committed=True, coordinator_epoch=0)
    runner, shard = house.rooms.groups.runner(GROUP)
    runner.perform(shard.decide_transaction(marker, _Nobody(), runner.now()))


class _Nobody:
    def complete(self, response: Any) -> None: ...
