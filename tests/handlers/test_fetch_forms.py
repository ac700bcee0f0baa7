"""Answers to fetches by forms: the same bytes as an encoder makes; none where it is unsure."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from ottla.broker.handlers.fetch_forms import FORMS_MAX, RECORDS_BYTES_MAX, FetchForms
from ottla.broker.log.file_slice import FileSlice
from ottla.broker.log.segment import TAIL_BYTES_MAX
from ottla.broker.log.unreadable import UnreadableRanges
from ottla.broker.replication.fetch_session import Wanted
from ottla.protocol.api import SERVED, ApiKey
from ottla.protocol.frame import response_encoder
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import build_marker
from ottla.protocol.records.record import Record
from tests.handlers.parked import listen, said
from tests.handlers.rooms import START_MS, House
from tests.handlers.transactions import PRODUCER_ID, Transactions

TOPIC = "t"
AT_LEISURE = {"flush.messages": str(2**63 - 1)}
FORMED = range(12, 19)
SIZES = (0, 1, 125, 126, 127, 128, 129, 4095, RECORDS_BYTES_MAX)
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


@pytest_asyncio.fixture
async def house() -> AsyncIterator[House]:
    async with House() as house:
        yield house


def wanted(version: int, index: int = 3) -> Wanted:
    named = version < 13
    topic_id = bytes(16) if named else b"0123456789abcdef"
    return Wanted(TOPIC if named else "", topic_id, FetchRequest.FetchPartition(index))


@pytest.mark.parametrize("names_aborted", [False, True])
@pytest.mark.parametrize("version", FORMED)
def test_a_form_says_what_the_encoder_says(version: int, names_aborted: bool) -> None:
    rng = random.Random(version)
    one = wanted(version)
    form = FetchForms().of(version, one, names_aborted=names_aborted)
    assert form is not None
    encode = response_encoder(SERVED[ApiKey.FETCH], version)
    for size in SIZES:
        correlation_id = rng.randrange(-(2**31), 2**31)
        high_watermark, last_stable, log_start = (rng.randrange(2**63) for _ in range(3))
        records = rng.randbytes(size)
        part = FetchResponse.PartitionData(
            3,
            0,
            high_watermark,
            last_stable,
            log_start,
            aborted_transactions=[] if names_aborted else None,
            records=records,
        )
        topic = FetchResponse.FetchableTopicResponse(one.topic, one.topic_id, [part])
        frame, _ = encode(correlation_id, FetchResponse(responses=[topic]))

        formed = form.frame(correlation_id, high_watermark, last_stable, log_start, records)
        assert formed == frame, size


@pytest.mark.parametrize("version", range(4, 12))
def test_older_versions_have_none(version: int) -> None:
    assert FetchForms().of(version, wanted(version), names_aborted=False) is None


def test_a_form_is_made_once_for_each_kind() -> None:
    forms = FetchForms()
    first = forms.of(16, wanted(16), names_aborted=False)

    assert forms.of(16, wanted(16), names_aborted=False) is first
    assert forms.of(16, wanted(16), names_aborted=True) is not first
    assert forms.of(17, wanted(17), names_aborted=False) is not first
    assert forms.of(16, wanted(16, 4), names_aborted=False) is not first
    other = Wanted("", b"another of topic", FetchRequest.FetchPartition(3))
    assert forms.of(16, other, names_aborted=False) is not first


def test_when_there_are_too_many_all_are_forgotten() -> None:
    forms = FetchForms()
    for index in range(FORMS_MAX):
        forms.of(12, wanted(12, index), names_aborted=False)
    assert len(forms) == FORMS_MAX

    forms.of(12, wanted(12, FORMS_MAX), names_aborted=False)

    assert len(forms) == 1


def tail(topic_id: bytes, *, offset: int = 0, level: int = 0, **others: Any) -> FetchRequest:
    part = FetchRequest.FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[part])
    request = FetchRequest(
        max_wait_ms=60_000, min_bytes=1, isolation_level=level, session_epoch=-1, topics=[topic]
    )
    for name, value in others.items():
        setattr(request, name, value)
    return request


@pytest.mark.parametrize("level", [READ_UNCOMMITTED, READ_COMMITTED])
@pytest.mark.parametrize("configs", [AT_LEISURE, {}], ids=["at leisure", "synced"])
async def test_who_tails_is_answered_by_one_and_told_the_same(
    house: House, configs: dict[str, str], level: int
) -> None:
    topic_id = await house.create(TOPIC, configs=configs)
    transactions = Transactions(house, TOPIC)
    transactions.write(committed=False)
    transactions.write(committed=True)
    await house.append(TOPIC, 0, [b"before"])
    partition = house.rooms.replicas.get(TOPIC, 0)
    assert partition is not None
    partition.log.delete_records(1)
    end = partition.log.log_end_offset
    answers = listen(house, tail(topic_id, offset=end, level=level))
    messages = listen(house, tail(topic_id, offset=end, level=level), is_metered=True)

    await house.append(TOPIC, 0, [b"v", b"w"])

    assert isinstance(answers.given[0], bytearray)
    assert isinstance(messages.given[0], FetchResponse)
    assert said(answers) == said(messages)
    assert not partition.fetch_waiters


@pytest.mark.parametrize("later_ms", [0, 2000], ids=["in its segment", "in the next"])
@pytest.mark.parametrize("committed", [True, False])
async def test_who_reads_what_is_committed_is_told_of_an_aborted_transaction(
    house: House, committed: bool, later_ms: int
) -> None:
    """Whose last batch was kept, for somebody waited, and whose marker may begin a segment. All is
    visible at once, and so is a batch behind it, which is kept, too."""
    topic_id = await house.create(TOPIC, configs={"segment.ms": "1000"})
    replicas = house.rooms.replicas
    partition = replicas.get(TOPIC, 0)
    assert partition is not None
    request = tail(topic_id, level=READ_COMMITTED)
    answers = listen(house, request)
    batch = build_batch(
        [Record(0, START_MS, None, b"v")],
        transactional=True,
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        base_sequence=0,
    )
    replicas.append(partition, memoryview(batch))
    marker = build_marker(
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        committed=committed,
        coordinator_epoch=0,
        timestamp=START_MS + later_ms,
    )
    replicas.append_internal(partition, memoryview(marker))
    assert not answers.given
    await house.append(TOPIC, 0, [b"w"], timestamp=START_MS + later_ms)

    (answer,) = answers.given
    assert len(partition.log.segments) == (2 if later_ms else 1)
    assert isinstance(answer, FetchResponse)
    (part,) = answer.responses[0].partitions
    aborted = [(one.producer_id, one.first_offset) for one in part.aborted_transactions or ()]
    assert aborted == ([] if committed else [(PRODUCER_ID, 0)])


@pytest.mark.parametrize(
    ("others", "size"),
    [
        ({"min_bytes": 2}, 10),
        ({"session_epoch": 0}, 10),
        ({}, TAIL_BYTES_MAX),
    ],
    ids=["who wants more bytes", "a session", "large records"],
)
async def test_others_are_answered_by_messages(
    house: House, others: dict[str, Any], size: int
) -> None:
    topic_id = await house.create(TOPIC)
    answers = listen(house, tail(topic_id, **others))

    await house.append(TOPIC, 0, [bytes(size)])

    (answer,) = answers.given
    assert isinstance(answer, FetchResponse)
    assert _size(answer) > size


async def test_two_batches_that_become_visible_at_once_are_sent_from_their_file(
    house: House,
) -> None:
    topic_id = await house.create(TOPIC)
    answers = listen(house, tail(topic_id))

    await asyncio.gather(*(house.append(TOPIC, 0, [b"v"]) for _ in range(2)))

    (answer,) = answers.given
    assert isinstance(answer, FetchResponse)
    (part,) = answer.responses[0].partitions
    assert part.high_watermark == 2
    assert isinstance(part.records, FileSlice)
    assert part.records.known == b""


async def test_where_a_disk_cannot_read_the_ranges_are_asked(house: House) -> None:
    topic_id = await house.create(TOPIC)
    partition = house.rooms.replicas.get(TOPIC, 0)
    assert partition is not None
    answers = listen(house, tail(topic_id))
    unreadable = house.rooms.unreadable
    assert isinstance(unreadable, UnreadableRanges)
    unreadable.note("/another/file", 0, 10, OSError(5, "broken"))

    await house.append(TOPIC, 0, [b"v"])

    (answer,) = answers.given
    assert isinstance(answer, FetchResponse)
    assert _size(answer) > 0


async def test_a_claim_about_epochs_is_judged(house: House) -> None:
    topic_id = await house.create(TOPIC)
    partition = house.rooms.replicas.get(TOPIC, 0)
    assert partition is not None
    request = tail(topic_id)
    request.topics[0].partitions[0].current_leader_epoch = partition.leader_epoch
    answers = listen(house, request)
    partition.leader_epoch += 1

    await house.append(TOPIC, 0, [b"v"])

    (answer,) = answers.given
    assert isinstance(answer, FetchResponse)
    assert answer.responses[0].partitions[0].error_code


def _size(answer: FetchResponse) -> int:
    records = answer.responses[0].partitions[0].records
    assert isinstance(records, FileSlice)
    return records.size
