"""Fetch: which aborted transactions an answer names, and what it says where there is no room."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.broker.handlers.answers import Pending
from ottla.broker.handlers.fetch import ParkedFetch, handle_fetch
from ottla.broker.log.file_slice import FileSlice
from ottla.broker.log.log import Log
from ottla.broker.replication.fetch_session import SPARE_PARTITIONS
from ottla.broker.replication.replicas import Partition, Replicas
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.records.batch import iterate_headers
from tests.coordinator.asking import ask
from tests.handlers.parked import Answers, park
from tests.handlers.rooms import NODE_ID, House
from tests.handlers.transactions import PRODUCER_ID, Transactions

TOPIC = "t"
READ_COMMITTED = 1
ABORTED = 300


def _parked(house: House, request: FetchRequest) -> Answers:
    """Where the answer comes to a fetch that waits."""
    _, answers = park(house, request)
    return answers


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


def _asked(topic_id: bytes, *offsets: tuple[int, int]) -> FetchRequest.FetchTopic:
    """A thousand bytes at most of each (partition, offset)."""
    parts = [
        FetchRequest.FetchPartition(index, fetch_offset=offset, partition_max_bytes=1000)
        for index, offset in offsets
    ]
    return FetchRequest.FetchTopic(topic_id=topic_id, partitions=parts)


async def test_an_offset_out_of_range_is_told_where_others_have_taken_all_room(
    house: House,
) -> None:
    topic_id = await house.create(TOPIC, partitions=3)
    await house.append(TOPIC, 0, [b"v"])
    topic = _asked(topic_id, (0, 0), (1, 5), (2, 0))
    answer = await ask(house, FetchRequest(max_bytes=1, topics=[topic]), 16)

    assert [part.error_code for part in answer.responses[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.NONE,
    ]


@pytest.mark.parametrize(
    ("offset", "fetched_epoch", "expected"),
    [
        (3, 1, (ErrorCode.NONE, 0, 2)),  # no epoch 1: the end of the one before
        (2, 1, (ErrorCode.NONE, 0, 2)),
        (2, 0, (ErrorCode.NONE, -1, -1)),
        (2, 3, (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1)),
        (0, 0, (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1)),
        (0, 1, (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1)),
    ],
)
async def test_where_the_log_of_a_client_leaves_ours(
    house: House, offset: int, fetched_epoch: int, expected: tuple[int, int, int]
) -> None:
    """Epoch 0 has written the offsets 0 and 1, epoch 2 the offset 2; the log begins at 1."""
    topic_id = await house.create(TOPIC)
    await house.append(TOPIC, 0, [b"v"])
    await house.append(TOPIC, 0, [b"v"])
    for _ in range(2):
        await house.raise_leader_epoch(TOPIC, 0)
    await house.append(TOPIC, 0, [b"v"])
    partition = house.rooms.replicas.get(TOPIC, 0)
    assert partition is not None
    partition.log.delete_records(1)
    topic = _asked(topic_id, (0, offset))
    topic.partitions[0].last_fetched_epoch = fetched_epoch
    answer = await ask(house, FetchRequest(topics=[topic]), 16)
    (part,) = answer.responses[0].partitions
    diverging = part.diverging_epoch

    assert (part.error_code, diverging.epoch, diverging.end_offset) == expected


async def test_where_clients_have_many_files_pinned_an_answer_is_of_one_partition(
    house: House,
) -> None:
    topic_id = await house.create(TOPIC, partitions=3)
    for index in range(3):
        await house.append(TOPIC, index, [b"v"])
    house.disk.held_max = 2
    request = FetchRequest(topics=[_asked(topic_id, (0, 0), (1, 0), (2, 0))])

    def with_records(answer: Any) -> list[int]:
        parts = answer.responses[0].partitions
        assert [part.error_code for part in parts] == [0, 0, 0]
        return [part.partition_index for part in parts if part.records]

    answer: Any = handle_fetch(house.session, request, 16)
    assert with_records(answer) == [0, 1]
    for part in answer.responses[0].partitions[:2]:
        part.records.file.pin()

    assert with_records(handle_fetch(house.session, request, 16)) == [0]


async def test_a_batch_that_has_no_room_behind_others_is_not_begun(house: House) -> None:
    """Java's consumer throws where it is sent the beginning of a batch and nothing else."""
    topic_id = await house.create(TOPIC, partitions=2)
    for index in (0, 1):
        await house.append(TOPIC, index, [bytes(1000)])
    asked = [FetchRequest.FetchPartition(index, partition_max_bytes=1 << 20) for index in (0, 1)]
    topic = FetchRequest.FetchTopic(topic_id=topic_id, partitions=asked)
    answer = await ask(house, FetchRequest(max_bytes=1500, topics=[topic]), 16)
    first, second = answer.responses[0].partitions

    assert len(list(iterate_headers(bytes(first.records)))) == 1
    assert (second.error_code, bytes(second.records)) == (ErrorCode.NONE, b"")
    assert second.high_watermark == 1


async def test_of_a_partition_that_is_named_twice_the_last_is_answered(house: House) -> None:
    topic_id = await house.create(TOPIC, partitions=2)
    await house.append(TOPIC, 0, [b"v"])
    topic = _asked(topic_id, (0, 9), (1, 0), (0, 0))
    answer = await ask(house, FetchRequest(topics=[topic]), 16)
    found = answer.responses[0].partitions

    assert [(one.partition_index, one.error_code) for one in found] == [(0, 0), (1, 0)]
    assert found[0].records


async def test_where_there_is_nothing_the_ends_are_those_of_the_moment(house: House) -> None:
    """And whoever reads only what is committed is told of the aborted transactions: none."""
    topic_id = await house.create(TOPIC, partitions=2)
    led = house.rooms.replicas.get(TOPIC, 0)
    assert led is not None
    seen: list[tuple[int, int, int]] = []

    async def look(offset: int) -> None:
        for isolation_level, aborted in ((0, None), (READ_COMMITTED, [])):
            topic = _asked(topic_id, (0, offset), (1, 0))
            answer = await ask(
                house, FetchRequest(isolation_level=isolation_level, topics=[topic]), 16
            )
            part, other = answer.responses[0].partitions
            seen.append((part.high_watermark, part.last_stable_offset, part.log_start_offset))
            assert (part.partition_index, part.error_code, bytes(part.records)) == (0, 0, b"")
            assert part.aborted_transactions == other.aborted_transactions == aborted
            assert (other.partition_index, other.high_watermark) == (1, 0)

    await look(0)
    await house.append(TOPIC, 0, [b"v"])
    await house.append(TOPIC, 0, [b"v"])
    await look(2)
    led.log.delete_records(1)
    await look(2)
    await house.append(TOPIC, 0, [b"v"])
    await look(3)

    ends = [(0, 0, 0), (2, 2, 0), (2, 2, 1), (3, 3, 1)]
    assert seen == [one for one in ends for _ in range(2)]


@pytest.mark.interpreted
@pytest.mark.parametrize(
    "error", [KafkaError(ErrorCode.CORRUPT_MESSAGE), OSError(5, "Input/output error")]
)
async def test_what_a_parked_fetch_cannot_read_is_its_own_error(
    house: House, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not one of whoever appends behind it, whose batch is in the log."""
    topic_id = await house.create(TOPIC)
    await house.append(TOPIC, 0, [b"v"])
    part = FetchRequest.FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[part])
    request = FetchRequest(max_wait_ms=60_000, min_bytes=1 << 20, session_epoch=-1, topics=[topic])
    answers = _parked(house, request)

    def unreadable(*_: object, **__: object) -> int:
        raise error

    monkeypatch.setattr(Log, "bytes_available", unreadable)
    monkeypatch.setattr(Log, "read", unreadable)
    await asyncio.wait_for(house.append(TOPIC, 0, [b"w"]), 10)

    partition = house.rooms.replicas.get(TOPIC, 0)
    assert partition is not None
    assert partition.log.high_watermark == 2
    assert not partition.fetch_waiters
    (answer,) = answers.given
    assert answer.responses[0].partitions[0].error_code


def _shape(answer: Any) -> list[tuple[str, list[int]]]:
    """Each topic of an answer, by name, with its partitions."""
    return [
        (topic.topic, [part.partition_index for part in topic.partitions])
        for topic in answer.responses
    ]


async def test_neighbours_of_one_topic_stand_in_one_if_they_are_not_there_either(
    house: House,
) -> None:
    await house.create(TOPIC)
    topics = [
        FetchRequest.FetchTopic(
            name, partitions=[FetchRequest.FetchPartition(index) for index in (2, 0, 1)]
        )
        for name in (TOPIC, "gone")
    ]
    answer = await ask(house, FetchRequest(topics=topics[:1]), 12)
    both = await ask(house, FetchRequest(topics=topics[::-1]), 12)

    assert _shape(answer) == [(TOPIC, [0, 2, 1])]
    assert _shape(both) == [(TOPIC, [0]), ("gone", [2, 0, 1]), (TOPIC, [2, 1])]


async def test_a_fetch_that_is_refused_names_each_topic_once(house: House) -> None:
    topics = [
        FetchRequest.FetchTopic(
            name, partitions=[FetchRequest.FetchPartition(index) for index in (0, 1)]
        )
        for name in (TOPIC, "u")
    ]
    answer = await ask(house, FetchRequest(isolation_level=9, topics=topics), 12)

    assert _shape(answer) == [(TOPIC, [0, 1]), ("u", [0, 1])]


HALF_MIB = 1 << 19
MIB = 1 << 20


def _patient(topic_id: bytes, *, most: int = MIB) -> FetchRequest:
    """Waits a minute for a MiB from offset 0 on, with at most so much of the partition."""
    part = FetchRequest.FetchPartition(0, fetch_offset=0, partition_max_bytes=most)
    topic = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[part])
    return FetchRequest(max_wait_ms=60_000, min_bytes=MIB, session_epoch=-1, topics=[topic])


def _size(answer: Any) -> int:
    records = answer.responses[0].partitions[0].records
    return records.size if isinstance(records, FileSlice) else len(records)


@pytest.mark.parametrize("most", [MIB, HALF_MIB], ids=["a MiB at most", "half a MiB at most"])
async def test_who_is_behind_the_last_segment_waits_for_no_more(house: House, most: int) -> None:
    """A slice ends with its segment: however long it waits, it gets no more than it has."""
    topic_id = await house.create(TOPIC, configs={"segment.bytes": str(MIB)})
    for _ in range(2):
        await house.append(TOPIC, 0, [bytes(3 * MIB // 5)])
    partition = house.rooms.replicas.get(TOPIC, 0)
    assert partition is not None
    assert len(list(partition.log.segments)) == 2
    answer = handle_fetch(house.session, _patient(topic_id, most=most), 16)

    assert not isinstance(answer, Pending)
    assert 0 < _size(answer) < MIB


async def test_a_parked_fetch_is_answered_when_its_segment_is_full(house: House) -> None:
    topic_id = await house.create(TOPIC, configs={"segment.bytes": str(MIB)})
    await house.append(TOPIC, 0, [bytes(3 * MIB // 5)])
    answers = _parked(house, _patient(topic_id))
    await house.append(TOPIC, 0, [bytes(3 * MIB // 5)])

    (answer,) = answers.given
    assert 0 < _size(answer) < MIB


async def test_what_is_not_enough_waits(house: House) -> None:
    topic_id = await house.create(TOPIC)
    await house.append(TOPIC, 0, [bytes(HALF_MIB)])
    parked = handle_fetch(house.session, _patient(topic_id), 16)

    assert isinstance(parked, ParkedFetch)
    parked.on_abandoned()


@pytest.mark.parametrize("other", [7, 0], ids=["an unknown partition", "an unknown topic"])
async def test_what_is_not_there_ends_no_wait(house: House, other: int) -> None:
    """Who still asks for what was deleted would ask without end; it hears of it with the rest."""
    topic_id = await house.create(TOPIC)
    request = _patient(topic_id)
    request.min_bytes = 1
    unknown = topic_id if other else bytes(16)[:15] + b"x"
    parts = [FetchRequest.FetchPartition(other)]
    request.topics.append(FetchRequest.FetchTopic(topic_id=unknown, partitions=parts))
    answers = _parked(house, request)
    await house.append(TOPIC, 0, [b"v"])
    (known, absent) = (part for one in answers.given[0].responses for part in one.partitions)

    assert (known.error_code, absent.partition_index) == (0, other)
    assert absent.error_code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
    del request.topics[0]
    assert not isinstance(handle_fetch(house.session, request, 16), Pending)


def _with_absent(topic_id: bytes, count: int) -> FetchRequest:
    request = _patient(topic_id)
    parts = [FetchRequest.FetchPartition(index) for index in range(1, count + 1)]
    request.topics.append(FetchRequest.FetchTopic(topic_id=topic_id, partitions=parts))
    return request


@pytest.mark.interpreted
async def test_who_appends_does_not_look_for_what_was_never_there(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = await house.create(TOPIC)
    answers = _parked(house, _with_absent(topic_id, 100))
    await house.append(TOPIC, 0, [b"v"])
    looks: list[int] = []
    by_id = Replicas.by_id

    def counted(self: Replicas, topic_id: bytes, partition: int) -> Partition | None:
        looks.append(partition)
        return by_id(self, topic_id, partition)

    monkeypatch.setattr(Replicas, "by_id", counted)
    await house.append(TOPIC, 0, [b"v"])
    assert set(looks) == {0}
    for _ in range(2):
        await house.append(TOPIC, 0, [bytes(3 * MIB // 5)])

    assert len([part for one in answers.given[0].responses for part in one.partitions]) == 101


async def test_who_names_a_thousand_that_are_not_there_does_not_wait(house: House) -> None:
    topic_id = await house.create(TOPIC)
    request = _with_absent(topic_id, SPARE_PARTITIONS + 1)
    assert not isinstance(handle_fetch(house.session, request, 16), Pending)
    del request.topics[1].partitions[0]
    parked = handle_fetch(house.session, request, 16)

    assert isinstance(parked, ParkedFetch)
    parked.on_abandoned()


@pytest.mark.parametrize("is_lost", [False, True])
async def test_what_is_there_and_cannot_be_read_ends_the_wait(house: House, is_lost: bool) -> None:
    topic_id = await house.create(TOPIC, partitions=2)
    if is_lost:
        lost = house.rooms.replicas.get(TOPIC, 1)
        assert lost is not None
        house.rooms.replicas.drop(lost, ErrorCode.KAFKA_STORAGE_ERROR)
    request = _patient(topic_id)
    offset = 0 if is_lost else 99
    request.topics[0].partitions.append(FetchRequest.FetchPartition(1, fetch_offset=offset))
    answer = handle_fetch(house.session, request, 16)

    assert not isinstance(answer, Pending)
    assert [bool(part.error_code) for part in answer.responses[0].partitions] == [False, True]


@pytest.mark.parametrize("version", [15, 16])
async def test_who_believes_in_a_former_leader_is_told_the_present_one(
    house: House, version: int
) -> None:
    topic_id = await house.create(TOPIC)
    await house.raise_leader_epoch(TOPIC, 0)
    partition = house.rooms.replicas.get(TOPIC, 0)
    assert partition is not None
    request = _patient(topic_id)
    request.topics[0].partitions[0].current_leader_epoch = partition.leader_epoch - 1
    answer = await ask(house, request, version)
    (part,) = answer.responses[0].partitions
    told = (part.current_leader.leader_id, part.current_leader.leader_epoch)

    assert part.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert told == ((NODE_ID, partition.leader_epoch) if version >= 16 else (-1, -1))
    assert [one.node_id for one in answer.node_endpoints] == [NODE_ID] * (version >= 16)


async def test_who_waits_at_the_end_is_given_what_was_just_written(house: House) -> None:
    """It is not read from the file; where nobody waits, nothing is kept."""
    topic_id = await house.create(TOPIC)
    request = _patient(topic_id)
    request.min_bytes = 1
    answers = _parked(house, request)
    await house.append(TOPIC, 0, [b"v"])
    awaited = bytes(answers.given[0].responses[0].partitions[0].records)
    request.topics[0].partitions[0].fetch_offset = 1
    await house.append(TOPIC, 0, [b"w"])
    answer = handle_fetch(house.session, request, 16)
    assert not isinstance(answer, Pending)
    other = answer.responses[0].partitions[0].records

    assert isinstance(other, FileSlice)
    assert awaited == other.file.pread(len(awaited), 0)
    assert other.known == b""
    assert other.read()


async def test_a_fetch_is_answered_with_nothing_when_its_time_is_over(house: House) -> None:
    topic_id = await house.create(TOPIC)
    request = _patient(topic_id)
    request.max_wait_ms = 10
    answers = _parked(house, request)
    async with asyncio.timeout(10):
        await answers.arrived.wait()

    assert _size(answers.given[0]) == 0
    assert len(house.rooms.deadlines) == 0
    partition = house.rooms.replicas.get(TOPIC, 0)
    assert partition is not None
    assert not partition.fetch_waiters
