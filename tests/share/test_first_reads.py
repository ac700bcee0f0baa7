"""A share fetch of what is not in memory: a worker waits for the disk, and nothing is locked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
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
from tests.handlers.transactions import Transactions
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
    written,
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
MUCH = 1 << 20
RELEASE = 2
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


@asynccontextmanager
async def of_many(house: House, disk: PagedDisk, count: int) -> AsyncIterator[House]:
    """The same of so many partitions with a small record each."""
    await begin(house, partitions=count)
    for index in range(count):
        await produce(house, 1, partition=index)
    async with house.restarted() as again:
        for index in range(count):
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


async def behind_aborted(house: House, *, partitions: int = 1) -> None:
    """A record behind a long aborted transaction."""
    large = {"segment.bytes": str(16 * SEGMENT_BYTES)}
    await begin(house, partitions=partitions, configs=large)
    await configure(house, "share.isolation.level", "read_committed")
    Transactions(house, TOPIC).write(committed=False, batches=100, value=LARGE)
    await produce(house, 1)


def read_all(house: House, partition: int) -> None:
    piece = log_of(house, partition).read(
        0, max_bytes=MUCH, upper=UPPER_HIGH_WATERMARK, at_least_one=True
    )
    assert piece is not None
    piece.read()


def starve(house: House) -> None:
    """Others pass over all that may be passed over in this turn."""
    shares = house.rooms.shares
    shares.passing.take(shares.passing.left)
    for index in ALL:
        share = shares.get(GROUP, (topic_id(house), index))
        assert share is not None
        share.is_passing = True


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
    session = started.rooms.shares.sessions.get(GROUP, "a")
    assert session.left_out == (topic_id(started), 2)

    _, answers = park(a, partitions=())
    assert partitions_of(await answer_of(answers)) == [*ALL]
    assert session.left_out is None


@pytest.mark.parametrize("comes", ["before", "behind"])
async def test_the_end_of_the_wait_waits_for_no_reads_where_others_have_something(
    started: House, comes: str
) -> None:
    started.lookup_workers = workers = HeldWorkers()
    if comes == "before":
        read_all(started, 1)
    a = Member(started, "a")
    parked: Any
    parked, answers = park(a, partitions=(0, 1))
    await workers.taken()
    parked._expired()
    if comes == "behind":
        read_all(started, 1)
        await produce(started, 1, partition=1)
    assert partitions_of(await answer_of(answers)) == [1]
    workers.let_one()
    for _ in range(10):
        await asyncio.sleep(0)
    assert workers.waiting == []
    assert not in_hand(started, 0)

    _, answers = park(a, partitions=())
    for _ in (INDEXES, HEADERS):
        await workers.taken()
        workers.let_one()
    assert acquired_of(await answer_of(answers), 0) == [(0, LAST, 1)]


async def test_the_end_of_the_wait_waits_for_the_reads_where_nothing_else_is(
    started: House,
) -> None:
    started.lookup_workers = workers = HeldWorkers()
    parked: Any
    parked, answers = park(Member(started, "a"), min_bytes=1_000_000)
    for number in (INDEXES, HEADERS):
        await workers.taken()
        if number == INDEXES:
            parked._expired()
        assert answers.given == []
        workers.let_one()

    assert partitions_of(await answer_of(answers)) == [*ALL]


@pytest.mark.parametrize("count", [2, TOUCHES_AT_ONCE + 2])
@pytest.mark.parametrize("warm", [(), (0,)])
async def test_less_than_the_least_is_no_answer_whatever_is_in_memory(
    house: House, disk: PagedDisk, count: int, warm: tuple[int, ...]
) -> None:
    async with of_many(house, disk, count) as again:
        for index in warm:
            read_all(again, index)
        least = {"partitions": range(count), "min_bytes": 1_000_000}
        parked, answers = park(Member(again, "a"), **least)
        while any(log_of(again, index).segments.active.file is None for index in range(count)):
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert answers.given == []
        parked.hurry()


@pytest.mark.parametrize("is_cold", [False, True])
async def test_who_may_not_wait_gets_less_than_the_least(
    started: House, disk: PagedDisk, is_cold: bool
) -> None:
    a = Member(started, "a")
    park(a)[0].hurry()
    if not is_cold:
        for index in ALL:
            read_all(started, index)
    answer = await a.fetch(partitions=(), min_bytes=1_000_000, wait_ms=0)

    assert partitions_of(answer) == [*ALL]
    assert bool(disk.waits_of_others(threading.get_ident())) == is_cold


async def test_what_is_passed_over_does_not_keep_others(house: House, disk: PagedDisk) -> None:
    await behind_aborted(house, partitions=2)
    await produce(house, 1, partition=1)
    async with house.restarted() as again:
        for index in range(2):
            await loaded(again, index)
        disk.evict()
        read_all(again, 1)
        again.lookup_workers = workers = HeldWorkers()
        _, answers = park(Member(again, "a"), partitions=(0, 1), records=10)
        for _ in (INDEXES, HEADERS):
            await workers.taken()
            workers.let_one()

        assert partitions_of(await answer_of(answers)) == [1]
        session = again.rooms.shares.sessions.get(GROUP, "a")
        assert session.left_out == (topic_id(again), 0)


async def test_who_may_not_wait_goes_on_with_the_next(house: House, disk: PagedDisk) -> None:
    await behind_aborted(house)
    async with house.restarted() as again:
        window = await loaded(again)
        disk.evict()
        a = Member(again, "a")
        starts = []
        for _ in range(200):
            again.lookup_workers = workers = HeldWorkers()
            _, answers = park(a, partitions=(0,), wait_ms=0, records=10)
            for _ in (INDEXES, HEADERS):
                await workers.taken()
                workers.let_one()
            starts.append(window.start)
            if acquired_of(await answer_of(answers)):
                break

        assert len(starts) > 2
        assert starts == sorted(set(starts))


async def test_who_waits_comes_to_the_end_of_it(house: House, disk: PagedDisk) -> None:
    await behind_aborted(house)
    async with house.restarted() as again:
        await loaded(again)
        disk.evict()
        _, answers = park(Member(again, "a"), partitions=(0,), records=10)

        ((_, last, _),) = acquired_of(await answer_of(answers))
        assert last == log_of(again, 0).log_end_offset - 1
        assert disk.waits_of(threading.get_ident()) == []


@pytest.mark.parametrize("ending", ["hurry", "deleted"])
async def test_who_has_an_extra_turn_is_told_as_well(started: House, ending: str) -> None:
    started.lookup_workers = workers = HeldWorkers()
    starve(started)
    parked, answers = park(Member(started, "a"), wait_ms=0)
    await workers.taken()
    if ending == "hurry":
        parked.hurry()
    else:
        await ask(started, DeleteTopicsRequest(topic_names=[TOPIC]), 5)

    assert partitions_of(await answer_of(answers)) == []


async def test_who_has_waited_for_a_worker_has_an_extra_turn(started: House) -> None:
    started.lookup_workers = workers = HeldWorkers()
    _, answers = park(Member(started, "a"), wait_ms=0)
    for _ in (INDEXES, HEADERS):
        await workers.taken()
        starve(started)
        workers.let_one()

    assert partitions_of(await answer_of(answers)) == [*ALL]


async def test_several_whose_places_are_known_are_waited_for_together(
    house: House, disk: PagedDisk
) -> None:
    await begin(house, partitions=MANY)
    for index in ALL:
        await house.append(TOPIC, index, [LARGE])
        await house.append(TOPIC, index, [LARGE])
        await loaded(house, index)
    disk.evict()
    _, answers = park(Member(house, "a"))

    assert partitions_of(await answer_of(answers)) == [*ALL]


async def test_what_a_worker_reads_serves_all_who_wait_there(house: House, disk: PagedDisk) -> None:
    members = 10
    await begin(house, configs={"segment.bytes": str(4 * SEGMENT_BYTES)})
    for _ in range(members):
        await house.append(TOPIC, 0, [LARGE])
    async with house.restarted() as again:
        await loaded(again)
        disk.evict()
        again.lookup_workers = workers = HeldWorkers()
        one = {"partitions": [0], "records": 1, "exactly": True}
        waiting = [park(Member(again, str(name)), **one)[1] for name in range(members)]
        jobs = 0
        while not all(answers.given for answers in waiting):
            if workers.waiting:
                workers.let_one()
                jobs += 1
            await asyncio.sleep(0)

        got = [acquired_of(await answer_of(answers)) for answers in waiting]
        assert sorted(got) == [[(offset, offset, 1)] for offset in range(members)]
        assert jobs <= 2 * members


async def test_what_was_left_out_stays_so_where_nothing_is_fetched(started: House) -> None:
    a = Member(started, "a")
    _, answers = park(a, partitions=[0, 1])
    await answer_of(answers)
    for index in (0, 1):
        await produce(started, 1, partition=index)
    await a.fetch(partitions=[2])
    session = started.rooms.shares.sessions.get(GROUP, "a")
    left_out = session.left_out
    assert left_out == (topic_id(started), 2)
    await a.fetch(partitions=(), max_bytes=0, max_records=0)

    assert session.left_out == left_out


async def test_a_look_that_ends_early_leaves_no_fetch_without_an_answer(started: House) -> None:
    started.lookup_workers = workers = HeldWorkers()
    parked: Any
    parked, answers = park(Member(started, "a"))
    await workers.taken()
    parked._following.cancel()

    assert partitions_of(await answer_of(answers)) == []


async def test_an_index_that_was_evicted_is_a_workers_where_the_place_is_known(
    house: House, disk: PagedDisk
) -> None:
    """Where something was aborted the index says where a piece ends."""
    small = {"segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "1"}
    await begin(house, configs=small)
    await configure(house, "share.isolation.level", "read_committed")
    await produce(house, 2, 2, 2)
    Transactions(house, TOPIC).write(committed=False, batches=1)
    for _ in range(3):
        await house.append(TOPIC, 0, [b"v" * (SEGMENT_BYTES - 1000)])
    async with house.restarted() as again:
        await loaded(again)
        a = Member(again, "a")
        index = log_of(again, 0).segments[0].index.entries
        for count in range(1, 4):
            if count == 3:
                for _ in range(2):
                    index.release_idle()
                disk.evict_file(index.path)
                disk.waited.clear()
            answer = await a.fetch(records=1, exactly=True, wait_ms=60_000)
            assert acquired_of(answer) == [(0, 0, count)]
            await a.acknowledge((0, 0, [RELEASE]))
            await written(again)

        waits = disk.waits_of(threading.get_ident())
        assert index.path not in waits
        assert index.path in disk.waits_of_others(threading.get_ident())


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
    async with of_many(house, disk, count) as again:
        a = Member(again, "a")
        given = []
        for partitions in (range(count), ()):
            _, answers = park(a, partitions=partitions)
            answer = await answer_of(answers)
            given.append([index for index in range(count) if acquired_of(answer, index)])

        assert given == [[*range(TOUCHES_AT_ONCE)], [*range(TOUCHES_AT_ONCE, count)]]
        assert disk.waits_of(threading.get_ident()) == []
