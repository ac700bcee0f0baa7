"""Records that come to nobody any more are told of, whatever they came back by."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from ottla.broker.share.partition import TELL_EVERY_S
from ottla.broker.share.store import Done
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.configs import IncrementalAlterConfigsRequest
from tests.coordinator.asking import ask
from tests.handlers.rooms import House
from tests.share.sharing import GROUP, TOPIC, Member, begin, topic_id, written

ACCEPT, RELEASE, REJECT = 1, 2, 3
LOCK_MS = 30_000
GROUP_CONFIG = 32
RELEASED = "delivered 2 times, and its member released it"


class _Timer:
    def __init__(self, due_s: float, callback: Callable[[], None]) -> None:
        self.due_s = due_s
        self.callback = callback
        self.is_over = False

    def cancel(self) -> None:
        self.is_over = True


class Timers:
    """In place of the loop of share partitions: their time goes on when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._timers: list[_Timer] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> _Timer:
        self._timers.append(_Timer(self.now_s + delay_s, callback))
        return self._timers[-1]

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        for timer in list(self._timers):
            if timer.due_s <= self.now_s and not timer.is_over:
                timer.is_over = True
                timer.callback()


@pytest.fixture
async def house() -> AsyncIterator[House]:
    """Two deliveries of a record are allowed."""
    async with House({"share.coordinator.state.topic.num.partitions": "2"}) as opened:
        await begin(opened)
        config = IncrementalAlterConfigsRequest.AlterableConfig(
            "share.delivery.count.limit", 0, "2"
        )
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            GROUP_CONFIG, GROUP, [config]
        )
        await ask(opened, IncrementalAlterConfigsRequest([resource]), 1)
        yield opened


@pytest.fixture
def timers(house: House) -> Timers:
    made = Timers()
    house.rooms.shares.loop = made  # type: ignore[assignment]
    return made


def _told_of(house: House, event: str) -> list[dict[str, Any]]:
    return [one for one in house.rooms.groups.history.told_of(GROUP) if one["event"] == event]


def _given_up(house: House) -> list[dict[str, Any]]:
    return _told_of(house, "share_records_given_up")


def _spans(house: House) -> list[tuple[int, int, int]]:
    """(first offset, last offset, records)."""
    return [(one["first_offset"], one["last_offset"], one["records"]) for one in _given_up(house)]


async def _release_each(a: Member, *offsets: int) -> None:
    """For the last time."""
    for offset in offsets:
        assert await a.acquire(records=1, exactly=True) == [(offset, offset, 2)]
        await a.acknowledge((offset, offset, [RELEASE]))


async def test_what_members_released_too_often_and_what_they_held_when_they_went(
    house: House, timers: Timers
) -> None:
    """What a member rejects is not told: somebody wanted that."""
    await house.append(TOPIC, 0, [b"v"] * 6)
    a = Member(house, "a")
    await a.acquire()
    await a.acknowledge((0, 5, [RELEASE]))
    await _release_each(a, 0)
    assert await a.acquire(records=1, exactly=True) == [(1, 1, 2)]
    await a.acknowledge((1, 1, [REJECT]))
    assert await a.acquire(records=1, exactly=True) == [(2, 2, 2)]
    house.rooms.shares.end_session(GROUP, "a", "the member closed it")
    async with asyncio.timeout(5):
        while len(_given_up(house)) < 2:
            timers.advance(TELL_EVERY_S)
            await asyncio.sleep(0)

    assert _spans(house) == [(0, 0, 1), (2, 2, 1)]
    assert [one["reason"] for one in _given_up(house)] == [
        RELEASED,
        "delivered 2 times, and its member's session ended",
    ]


async def test_records_that_are_given_up_one_by_one_are_told_once_a_second(
    house: House, timers: Timers
) -> None:
    await house.append(TOPIC, 0, [b"v"] * 8)
    a = Member(house, "a")
    await a.acquire()
    await a.acknowledge((0, 7, [RELEASE]))
    await _release_each(a, 0, 1, 2)
    assert await a.acquire(records=1, exactly=True) == [(3, 3, 2)]
    await a.acknowledge((3, 3, [REJECT]))
    await _release_each(a, 4)
    timers.advance(TELL_EVERY_S - 0.1)
    assert _spans(house) == [(0, 0, 1)]
    timers.advance(0.1)
    assert _spans(house) == [(0, 0, 1), (1, 4, 3)]

    timers.advance(TELL_EVERY_S)
    await _release_each(a, 5)
    assert _spans(house)[2:] == [(5, 5, 1)], "nothing was told for a second"
    assert {one["reason"] for one in _given_up(house)} == {RELEASED}


async def test_what_was_not_told_yet_is_told_when_it_is_delivered_no_more(
    house: House, timers: Timers
) -> None:
    await house.append(TOPIC, 0, [b"v"] * 4)
    a = Member(house, "a")
    await a.acquire()
    await a.acknowledge((0, 3, [RELEASE]))
    await _release_each(a, 0, 1, 2)
    house.rooms.shares.drop_group(GROUP, "its group has no sessions")
    assert _spans(house) == [(0, 0, 1), (1, 2, 2)]

    timers.advance(TELL_EVERY_S)
    assert len(_spans(house)) == 2


class HeldStore:
    """In place of the share coordinator: a write ends when, and as, the test says."""

    def __init__(self) -> None:
        self.writes: list[Done] = []

    def write(self, *_: object, then: Done, **__: object) -> None:
        self.writes.append(then)


async def _held_twice(house: House, a: Member) -> None:
    """Record 0, for the last time."""
    await a.acquire()
    await a.acknowledge((0, 0, [RELEASE]))
    assert await a.acquire() == [(0, 0, 2)]


def _hold_writes(house: House) -> HeldStore:
    store = HeldStore()
    house.rooms.shares.store = store  # type: ignore[assignment]
    return store


async def _begun(store: HeldStore, writes: int) -> None:
    async with asyncio.timeout(5):
        while len(store.writes) < writes:
            await asyncio.sleep(0)


def _counted(house: House) -> tuple[int, int]:
    """(records given up, records whose lock ended)."""
    counts = house.rooms.shares.counts.of(GROUP)
    return counts.given_up, counts.lock_timeouts


def _expire(house: House) -> None:
    house.rooms.clock.advance(LOCK_MS)  # type: ignore[attr-defined]
    share = house.rooms.shares.get(GROUP, (topic_id(house), 0))
    assert share is not None
    share.expire()


async def test_what_a_newer_state_fences_is_not_given_up(house: House, timers: Timers) -> None:
    """The lock ends while the write is under way, and the write fails."""
    await house.append(TOPIC, 0, [b"v"])
    a = Member(house, "a")
    await _held_twice(house, a)
    store = _hold_writes(house)
    waiting = asyncio.ensure_future(a.acknowledge((0, 0, [ACCEPT])))
    await _begun(store, 1)
    house.rooms.clock.advance(LOCK_MS)  # type: ignore[attr-defined]
    store.writes[0](KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    timers.advance(TELL_EVERY_S)

    assert _spans(house) == []
    assert _counted(house) == (0, 0)


async def test_a_lock_that_ends_while_a_write_fails_counts_with_the_next_write(
    house: House, timers: Timers
) -> None:
    await house.append(TOPIC, 0, [b"v"])
    a = Member(house, "a")
    await _held_twice(house, a)
    store = _hold_writes(house)
    waiting = asyncio.ensure_future(a.acknowledge((0, 0, [ACCEPT])))
    await _begun(store, 1)
    house.rooms.clock.advance(LOCK_MS)  # type: ignore[attr-defined]
    store.writes[0](KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert (await waiting).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert _spans(house) == []
    assert _counted(house) == (0, 0)

    await house.append(TOPIC, 0, [b"v"])
    assert await a.acquire() == [(1, 1, 1)]
    waiting = asyncio.ensure_future(a.acknowledge((1, 1, [ACCEPT])))
    await _begun(store, 2)
    store.writes[1](None)
    assert (await waiting).error_code == 0
    assert _spans(house) == [(0, 0, 1)]
    assert _counted(house) == (1, 1)


async def test_a_lock_that_ends_counts_once_that_is_written(house: House, timers: Timers) -> None:
    """And if that fails, with the next write."""
    await house.append(TOPIC, 0, [b"v"] * 2)
    a = Member(house, "a")
    await _held_twice(house, a)
    store = _hold_writes(house)
    _expire(house)
    store.writes[0](KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert await a.acquire() == [(1, 1, 2)]
    _expire(house)
    timers.advance(TELL_EVERY_S)
    assert _counted(house) == (0, 0)
    assert _told_of(house, "share_locks_ended") == []
    assert _spans(house) == []
    store.writes[1](None)
    timers.advance(TELL_EVERY_S)

    assert _counted(house) == (2, 3)
    assert _spans(house) == [(0, 1, 2)]
    (told,) = _told_of(house, "share_locks_ended")
    assert (told["member_id"], told["topics"]) == ("a", [TOPIC])
    assert (told["partitions"], told["records"]) == (1, 3)


async def test_a_state_that_is_fenced_when_a_lock_ends_is_read_anew(house: House) -> None:
    await house.append(TOPIC, 0, [b"v"])
    a = Member(house, "a")
    await a.acquire()
    store = _hold_writes(house)
    _expire(house)
    store.writes[0](KafkaError(ErrorCode.FENCED_STATE_EPOCH))

    assert house.rooms.shares.get(GROUP, (topic_id(house), 0)) is None


async def test_locks_that_end_together_are_told_by_member(house: House, timers: Timers) -> None:
    await house.append(TOPIC, 0, [b"v"] * 3)
    a, b = Member(house, "a"), Member(house, "b")
    assert await a.acquire(records=1, exactly=True) == [(0, 0, 1)]
    assert await b.acquire() == [(1, 2, 1)]
    _expire(house)
    await written(house)
    timers.advance(TELL_EVERY_S)

    told = _told_of(house, "share_locks_ended")
    assert [(one["member_id"], one["records"]) for one in told] == [("a", 1), ("b", 2)]
    timers.advance(TELL_EVERY_S)
    assert len(_told_of(house, "share_locks_ended")) == 2


async def test_locks_that_ended_are_told_before_the_broker_stops(house: House) -> None:
    await house.append(TOPIC, 0, [b"v"])
    await Member(house, "a").acquire()
    _expire(house)
    await written(house)
    house.rooms.shares.close()

    assert [one["records"] for one in _told_of(house, "share_locks_ended")] == [1]
