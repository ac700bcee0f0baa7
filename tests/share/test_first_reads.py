"""A share fetch of what is not in memory: a worker waits for the disk, and nothing is locked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import Any

import pytest

from ottla.broker.handlers.answers import Pending
from ottla.broker.handlers.share_fetch import handle_share_fetch
from ottla.broker.log.first_touch import TOUCHES_AT_ONCE
from ottla.broker.log.log import UPPER_HIGH_WATERMARK, Log
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.protocol.records.control import build_marker
from tests.coordinator.asking import ask
from tests.handlers.parked import Answers
from tests.handlers.rooms import House
from tests.handlers.test_time_lookups import HeldWorkers
from tests.log.paged_disk import PagedDisk
from tests.share.sharing import (
    GROUP,
    TOPIC,
    Member,
    acquired_of,
    begin,
    loaded,
    produce,
    topic_id,
)
from tests.share.test_fetch import configure

MANY = 3
ALL = range(MANY)
BATCHES = (2, 3, 1)
"""Records of each batch of a partition."""
LAST = sum(BATCHES) - 1
LARGE = b"v" * 5000
"""Of such records the headers of batches lie farther apart than a look-up reads at once."""
SEGMENT_BYTES = 1 << 20
INDEXES, HEADERS = range(2)
"""What a worker reads, one after the other."""


@pytest.fixture
def disk() -> PagedDisk:
    return PagedDisk()


@pytest.fixture
async def house(disk: PagedDisk) -> AsyncIterator[House]:
    async with House({"share.coordinator.state.topic.num.partitions": "2"}, disk=disk) as opened:
        yield opened


@pytest.fixture
async def started(house: House, disk: PagedDisk) -> AsyncIterator[House]:
    """Partitions from which nobody has read since the start."""
    await begin(house, partitions=MANY)
    for index in ALL:
        for size in BATCHES:
            await house.append(TOPIC, index, [LARGE] * size)
    async with house.restarted() as again:
        for index in ALL:
            await loaded(again, index)
        disk.evict()
        yield again


def log_of(house: House, partition: int) -> Log:
    led = house.rooms.replicas.get(TOPIC, partition)
    assert led is not None
    return led.log


def in_hand(house: House, partition: int) -> bool:
    """Whether a record of it is acquired."""
    share = house.rooms.shares.get(GROUP, (topic_id(house), partition))
    assert share is not None
    assert share.window is not None
    return share.window.next_deadline_ms is not None


def park(member: Member, **fields: Any) -> tuple[Pending, Answers]:
    """A fetch that waits, and where its answer comes to."""
    fields.setdefault("wait_ms", 60_000)
    fields.setdefault("partitions", ALL)
    parked = handle_share_fetch(member.house.session, member.fetch_request(**fields), 2)
    member.epoch += 1
    assert isinstance(parked, Pending)
    assert parked.response is None
    parked.line = answers = Answers()
    return parked, answers


async def answer_of(answers: Answers) -> Any:
    await asyncio.wait_for(answers.arrived.wait(), 5)
    (answer,) = answers.given
    return answer


def partitions_of(answer: Any) -> list[int]:
    return sorted(index for index in ALL if acquired_of(answer, index))


@pytest.mark.parametrize("wait_ms", [0, 60_000])
@pytest.mark.parametrize("min_bytes", [1, 3 * LAST * len(LARGE)])
async def test_the_loop_waits_for_no_disk(
    started: House, disk: PagedDisk, wait_ms: int, min_bytes: int
) -> None:
    _, answers = park(Member(started, "a"), wait_ms=wait_ms, min_bytes=min_bytes)
    answer = await answer_of(answers)

    assert [acquired_of(answer, index) for index in ALL] == [[(0, LAST, 1)]] * MANY
    assert disk.waits_of(threading.get_ident()) == []
    read = set(disk.waits_of_others(threading.get_ident()))
    assert read >= {log_of(started, index).segments.active.log_path for index in ALL}


async def test_nothing_is_locked_and_others_are_served_meanwhile(started: House) -> None:
    started.lookup_workers = workers = HeldWorkers()
    _, answers = park(Member(started, "a"))
    for _ in (INDEXES, HEADERS):
        await workers.taken()
        await started.append(TOPIC, 0, [b"v"])
        assert [in_hand(started, index) for index in ALL] == [False] * MANY
        assert answers.given == []
        workers.let_one()

    answer = await answer_of(answers)
    assert acquired_of(answer, 0) == [(0, LAST + 2, 1)]
    assert partitions_of(answer) == [*ALL]


async def test_what_others_acquire_meanwhile_is_theirs(started: House) -> None:
    started.lookup_workers = workers = HeldWorkers()
    _, of_a = park(Member(started, "a"))
    _, of_b = park(Member(started, "b"))
    while not (of_a.given and of_b.given):
        await workers.taken()
        workers.let_one()
        for _ in range(10):
            await asyncio.sleep(0)
        if of_a.given and not of_b.given:
            await started.append(TOPIC, 1, [b"v"])

    assert partitions_of(await answer_of(of_a)) == [*ALL]
    assert acquired_of(await answer_of(of_b), 1) == [(LAST + 1, LAST + 1, 1)]


async def test_what_is_in_memory_does_not_wait_for_what_is_not(started: House) -> None:
    """The next fetch begins with what was left out, though it is another one's turn."""
    a = Member(started, "a")
    others = [0, 1]
    _, answers = park(a, partitions=others)
    assert partitions_of(await answer_of(answers)) == others
    for _ in range(2):  # else the next but one would be the third one's
        park(a, partitions=())[0].hurry()
    for index in others:
        await produce(started, 1, partition=index)
    at_once = handle_share_fetch(started.session, a.fetch_request(partitions=[2]), 2)
    a.epoch += 1
    assert isinstance(at_once, Pending)
    assert at_once.response is not None
    assert partitions_of(at_once.response) == others
    for index in others:
        await produce(started, 1, partition=index)

    _, answers = park(a, partitions=())
    assert partitions_of(await answer_of(answers)) == [*ALL]


async def test_the_end_of_the_wait_waits_for_the_reads(started: House) -> None:
    started.lookup_workers = workers = HeldWorkers()
    parked: Any
    parked, answers = park(Member(started, "a"), min_bytes=1_000_000)
    parked._expired()
    for _ in (INDEXES, HEADERS):
        await workers.taken()
        assert answers.given == []
        workers.let_one()

    assert partitions_of(await answer_of(answers)) == [*ALL]


async def test_it_waits_for_enough_behind_the_reads(started: House) -> None:
    _, answers = park(Member(started, "a"), min_bytes=MANY * 7 * len(LARGE))
    while any(log_of(started, index).segments.active.file is None for index in ALL):
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert answers.given == []
    await started.append(TOPIC, 1, [LARGE] * MANY)

    assert partitions_of(await answer_of(answers)) == [*ALL]


async def test_who_is_sent_away_meanwhile_takes_nothing_along(started: House) -> None:
    started.lookup_workers = workers = HeldWorkers()
    parked, answers = park(Member(started, "a"))
    await workers.taken()
    parked.hurry()
    assert partitions_of(await answer_of(answers)) == []
    workers.let_one()
    for _ in range(10):
        await asyncio.sleep(0)

    assert [in_hand(started, index) for index in ALL] == [False] * MANY
    assert len(answers.given) == 1


async def test_who_is_gone_is_not_read_for(started: House) -> None:
    started.lookup_workers = workers = HeldWorkers()
    parked, answers = park(Member(started, "a"))
    await workers.taken()
    parked.abandoned = True
    parked.on_abandoned()
    workers.let_one()
    for _ in range(10):
        await asyncio.sleep(0)

    assert workers.waiting == []
    assert answers.given == []
    assert [in_hand(started, index) for index in ALL] == [False] * MANY


async def test_what_is_deleted_meanwhile_is_told_at_once(started: House) -> None:
    started.lookup_workers = workers = HeldWorkers()
    _, answers = park(Member(started, "a"))
    await workers.taken()
    await ask(started, DeleteTopicsRequest(topic_names=[TOPIC]), 5)
    answer = await answer_of(answers)
    workers.let_one()
    for _ in range(10):
        await asyncio.sleep(0)

    codes = {part.error_code for topic in answer.responses for part in topic.partitions}
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in codes
    assert len(answers.given) == 1


async def test_what_cannot_be_read_is_the_error_of_its_partition_alone(started: House) -> None:
    started.disk.rename(path := log_of(started, 1).segments.active.log_path, path + ".away")
    _, answers = park(Member(started, "a"))
    answer = await answer_of(answers)

    codes = {
        part.partition_index: part.error_code
        for topic in answer.responses
        for part in topic.partitions
    }
    assert codes == {0: 0, 1: ErrorCode.KAFKA_STORAGE_ERROR, 2: 0}
    assert partitions_of(answer) == [0, 2]


@pytest.mark.parametrize("wait_ms", [0, 60_000])
async def test_what_does_not_stay_in_memory_is_waited_for(
    started: House, disk: PagedDisk, wait_ms: int
) -> None:
    class _Evicting(HeldWorkers):
        def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_result(work(*args, **kwargs))
            disk.evict()
            return future

    started.lookup_workers = _Evicting()
    _, answers = park(Member(started, "a"), wait_ms=wait_ms)

    assert partitions_of(await answer_of(answers)) == [*ALL]


async def test_headers_of_batches_whose_place_is_known_are_a_workers(
    house: House, disk: PagedDisk
) -> None:
    await begin(house)
    for size in BATCHES:
        await house.append(TOPIC, 0, [LARGE] * size)
    await loaded(house)
    disk.evict()
    _, answers = park(Member(house, "a"), partitions=[0])

    assert acquired_of(await answer_of(answers)) == [(0, LAST, 1)]
    assert disk.waits_of(threading.get_ident()) == []


@pytest.mark.parametrize("alone", [False, True])
async def test_transaction_indexes_are_a_workers_too(
    house: House, disk: PagedDisk, alone: bool
) -> None:
    await begin(house, configs={"segment.bytes": str(SEGMENT_BYTES)})
    await configure(house, "share.isolation.level", "read_committed")
    await produce(house, 2)
    await house.append(TOPIC, 0, [b"x", b"y"], transactional=True)
    led = house.rooms.replicas.get(TOPIC, 0)
    assert led is not None
    marker = build_marker(
        producer_id=9, producer_epoch=0, committed=False, coordinator_epoch=0, timestamp=1
    )
    house.rooms.replicas.append_internal(led, memoryview(marker))
    for _ in range(2):
        await house.append(TOPIC, 0, [b"v" * (SEGMENT_BYTES - 1000)])
    async with house.restarted() as again:
        await loaded(again)
        index = log_of(again, 0).segments[0].transactions
        assert index.has_file
        assert not index.is_known
        if alone:  # the rest was read by somebody who takes what is not committed, too
            log_of(again, 0).read(0, max_bytes=1, upper=UPPER_HIGH_WATERMARK, at_least_one=True)
            disk.evict_file(index.path)
            disk.waited.clear()
        else:
            disk.evict()
        _, answers = park(Member(again, "a"), partitions=[0])
        acquired = acquired_of(await answer_of(answers))

        assert acquired == [(0, 1, 1), (4, 5, 1)]
        assert disk.waits_of(threading.get_ident()) == []
        assert index.path in disk.waits_of_others(threading.get_ident())


async def test_only_so_many_partitions_are_waited_for_at_a_time(
    house: House, disk: PagedDisk
) -> None:
    count = TOUCHES_AT_ONCE + 2
    await begin(house, partitions=count)
    for index in range(count):
        await produce(house, 1, partition=index)
    async with house.restarted() as again:
        for index in range(count):
            await loaded(again, index)
        disk.evict()
        a = Member(again, "a")
        given = []
        for partitions in (range(count), ()):
            _, answers = park(a, partitions=partitions)
            answer = await answer_of(answers)
            given.append([index for index in range(count) if acquired_of(answer, index)])

        assert given == [[*range(TOUCHES_AT_ONCE)], [*range(TOUCHES_AT_ONCE, count)]]
        assert disk.waits_of(threading.get_ident()) == []
