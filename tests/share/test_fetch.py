"""ShareFetch and ShareAcknowledge against a broker: who gets what, and what outlives it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.broker.handlers.answers import Pending
from ottla.broker.handlers.share_acknowledge import handle_share_acknowledge
from ottla.broker.share.partition import SharePartition
from ottla.protocol.api import SERVED, ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import share_group, share_state
from ottla.protocol.messages.configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.offsets import DeleteRecordsRequest
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.protocol.records.batch import iterate_headers
from ottla.protocol.records.control import build_marker
from tests.coordinator.asking import ask
from tests.handlers.rooms import NODE_ID, House
from tests.share.sharing import (
    GROUP,
    TOPIC,
    Member,
    acquired_of,
    begin,
    initialize,
    loaded,
    produce,
    topic_id,
    written,
)

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LOCK_MS = 30_000
GROUP_CONFIG = 32


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House({"share.coordinator.state.topic.num.partitions": "2"}) as opened:
        yield opened


async def configure(house: House, name: str, value: str) -> None:
    config = IncrementalAlterConfigsRequest.AlterableConfig(name, 0, value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(GROUP_CONFIG, GROUP, [config])
    answer = await ask(house, IncrementalAlterConfigsRequest([resource]), 1)
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


def _share(house: House) -> SharePartition:
    share = house.rooms.shares.get(GROUP, (topic_id(house), 0))
    assert share is not None
    return share


def _expire(house: House, ms: int = LOCK_MS) -> None:
    house.rooms.clock.advance(ms)  # type: ignore[attr-defined]
    _share(house).expire()


def test_the_versions_are_kafkas() -> None:
    for key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE):
        assert (SERVED[key].min_version, SERVED[key].max_version) == (1, 2)


async def test_two_members_get_each_record_once(house: House) -> None:
    await begin(house)
    await produce(house, 3, 3, 4)
    a, b = Member(house, "a"), Member(house, "b")

    assert await a.acquire(records=4) == [(0, 5, 1)]
    assert await b.acquire() == [(6, 9, 1)]
    assert await a.acquire() == []


async def test_the_answer_carries_whole_batches_of_what_was_acquired(house: House) -> None:
    await begin(house)
    await produce(house, 3, 3, 4)
    a, b = Member(house, "a"), Member(house, "b")
    await a.acquire(records=3)
    answer = await b.fetch(records=2, exactly=True)
    (part,) = answer.responses[0].partitions

    assert acquired_of(answer) == [(3, 4, 1)]
    assert [header.base_offset for _, header in iterate_headers(bytes(part.records))] == [3]
    assert answer.acquisition_lock_timeout_ms == LOCK_MS


async def test_what_is_acquired_comes_in_pieces_of_the_batch_size(house: House) -> None:
    await begin(house)
    await produce(house, 2, 2, 2, 3)

    assert await Member(house, "a").acquire(records=100, batch_size=4) == [(0, 3, 1), (4, 8, 1)]


@pytest.mark.parametrize("size", [0, -5])
async def test_without_a_batch_size_what_is_acquired_is_in_one_piece(
    house: House, size: int
) -> None:
    await begin(house)
    await produce(house, 5, 5)

    assert await Member(house, "a").acquire(batch_size=size) == [(0, 9, 1)]


async def test_only_the_first_batch_may_be_larger_than_what_was_asked_for(house: House) -> None:
    await begin(house, partitions=3)
    for partition in range(3):
        await house.append(TOPIC, partition, [b"v" * 1000])
    a, b = Member(house, "a"), Member(house, "b")
    all_three = {"partitions": (0, 1, 2)}

    for member, max_bytes, expected in ((a, 100, 1), (b, 2500, 2)):
        answer = await member.fetch(**all_three, max_bytes=max_bytes)
        given = [part for part in range(3) if acquired_of(answer, part)]
        assert len(given) == expected
    assert sum(len(part.records) for part in answer.responses[0].partitions) <= 2500


async def test_names_of_groups_that_nobody_configured_are_not_kept(house: House) -> None:
    rules = house.rooms.shares.rules
    for number in range(5):
        request = share_group.ShareFetchRequest(f"made-up-{number}", "a", 0, 0, 1)
        assert (await ask(house, request, 2)).error_code == 0

    assert not [one for one in rules._known if one.startswith("made-up")]


async def test_what_is_released_comes_again_and_what_is_settled_does_not(house: House) -> None:
    await begin(house)
    await produce(house, 6)
    a, b = Member(house, "a"), Member(house, "b")
    await a.acquire()
    part = await a.acknowledge((0, 5, [ACCEPT, RELEASE, REJECT, RELEASE, GAP, ACCEPT]))

    assert part.error_code == 0
    assert await b.acquire(exactly=True) == [(1, 1, 2), (3, 3, 2)]
    await b.acknowledge((1, 1, [ACCEPT]), (3, 3, [ACCEPT]))
    assert _share(house).window is not None
    assert _share(house).window.start == 6  # type: ignore[union-attr]


async def test_acknowledgements_come_with_a_fetch_too(house: House) -> None:
    await begin(house)
    await produce(house, 2, 2)
    a = Member(house, "a")
    await a.acquire(records=2)

    assert await a.acquire(acks=[(0, 1, [ACCEPT])], records=2) == [(2, 3, 1)]
    answer = await a.fetch(acks=[(0, 1, [ACCEPT])])
    part = answer.responses[0].partitions[0]
    assert (part.error_code, part.acknowledge_error_code) == (0, 0)  # it was before the start
    answer = await a.fetch(acks=[(7, 9, [ACCEPT])])
    part = answer.responses[0].partitions[0]
    assert part.acknowledge_error_code == ErrorCode.INVALID_REQUEST


async def test_another_member_cannot_acknowledge(house: House) -> None:
    await begin(house)
    await produce(house, 2)
    a, b = Member(house, "a"), Member(house, "b")
    await a.acquire()
    await b.acquire()

    assert (await b.acknowledge((0, 1, [ACCEPT]))).error_code == ErrorCode.INVALID_RECORD_STATE
    assert (await a.acknowledge((0, 1, [ACCEPT]))).error_code == 0


@pytest.mark.parametrize(
    "said",
    [
        [(1, 0, [ACCEPT])],
        [(0, 1, [])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 0, [5])],
        [(0, 0, [-1])],
        [(0, 0, [RENEW])],
        [(2, 3, [ACCEPT]), (0, 1, [ACCEPT])],
    ],
)
async def test_odd_acknowledgements_are_refused(
    house: House, said: list[tuple[int, int, list[int]]]
) -> None:
    await begin(house)
    await produce(house, 4)
    a = Member(house, "a")
    await a.acquire()

    assert (await a.acknowledge(*said)).error_code == ErrorCode.INVALID_REQUEST
    assert (await a.acknowledge((0, 3, [ACCEPT]))).error_code == 0


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ([(1, 1, [ACCEPT]), (2, 9, [ACCEPT])], ErrorCode.INVALID_RECORD_STATE),
        ([(2, 2, [ACCEPT]), (3, 9, [ACCEPT])], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_of_several_that_are_wrong_the_first_is_told(
    house: House, said: list[tuple[int, int, list[int]]], code: ErrorCode
) -> None:
    await begin(house)
    await produce(house, 4)
    a = Member(house, "a")
    await a.acquire()
    assert (await a.acknowledge((1, 1, [ACCEPT]))).error_code == 0

    assert (await a.acknowledge(*said)).error_code == code
    assert (await a.acknowledge((0, 0, [ACCEPT]), (2, 3, [ACCEPT]))).error_code == 0


async def test_a_lock_ends_and_a_record_is_given_up_in_the_end(house: House) -> None:
    await begin(house)
    await configure(house, "share.delivery.count.limit", "2")
    await produce(house, 1)
    a = Member(house, "a")

    assert await a.acquire() == [(0, 0, 1)]
    _expire(house, LOCK_MS - 1)
    assert await a.acquire() == []
    _expire(house, 1)
    assert await a.acquire() == [(0, 0, 2)]
    late = await a.acknowledge((0, 0, [RELEASE]))
    assert late.error_code == 0
    assert await a.acquire() == []
    assert _share(house).window.start == 1  # type: ignore[union-attr]


async def test_records_that_nobody_can_digest_come_in_ever_smaller_pieces(house: House) -> None:
    """The sizes are those that Apache Kafka 4.3.1 was seen to deliver."""
    await begin(house)
    await produce(house, 16)
    a = Member(house, "a")
    seen = []
    for _ in range(14):
        acquired = await a.acquire()
        seen += acquired
        await a.acknowledge(*((one[0], one[1], [RELEASE]) for one in acquired))

    assert seen[:4] == [(0, 15, 1), (0, 15, 2), (0, 15, 3), (0, 7, 4)]
    assert seen[4:12] == [(offset, offset, 5) for offset in range(8)]
    assert seen[12:] == [(8, 15, 4), (8, 8, 5)]


async def test_a_record_that_is_given_up_is_told_of(house: House) -> None:
    await begin(house)
    await configure(house, "share.delivery.count.limit", "2")
    await produce(house, 1)
    a = Member(house, "a")
    for _ in range(2):
        await a.acquire()
        _expire(house)
        await written(house)
    (told,) = [
        one
        for one in house.rooms.groups.history.told_of(GROUP)
        if one["event"] == "share_records_given_up"
    ]

    assert told["reason"] == "delivered 2 times, and its lock ended"
    assert (told["first_offset"], told["last_offset"]) == (0, 0)


async def test_a_lock_is_renewed(house: House) -> None:
    await begin(house)
    await produce(house, 2)
    a = Member(house, "a")
    await a.acquire()
    _expire(house, LOCK_MS - 1)
    renewed = await a.acknowledge((0, 1, [RENEW]), is_renew_ack=True)
    assert renewed.error_code == 0
    _expire(house, LOCK_MS - 1)

    assert (await a.acknowledge((0, 1, [ACCEPT]))).error_code == 0


async def test_a_fetch_that_renews_gets_nothing(house: House) -> None:
    await begin(house)
    await produce(house, 2, 2)
    a = Member(house, "a")
    await a.acquire(records=2)
    asks_too_much = await a.fetch(is_renew_ack=True, epoch=1)
    assert asks_too_much.error_code == ErrorCode.INVALID_REQUEST
    nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "is_renew_ack": True}
    answer = await a.fetch(acks=[(0, 1, [RENEW])], records=0, **nothing)

    assert (answer.error_code, acquired_of(answer)) == (0, [])
    assert answer.responses[0].partitions[0].acknowledge_error_code == 0


async def test_a_group_may_refuse_renewals(house: House) -> None:
    await begin(house)
    await configure(house, "share.renew.acknowledge.enable", "false")
    await produce(house, 2)
    a = Member(house, "a")
    await a.acquire()
    part = await a.acknowledge((0, 1, [RENEW]), is_renew_ack=True)

    assert part.error_code == ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize("partitions", [(0,), (0, 1, 2)])
async def test_nobody_waits_for_more_bytes_than_it_takes(
    house: House, partitions: tuple[int, ...]
) -> None:
    """Its quota lowers what it may take, and not what it waits for."""
    await begin(house, partitions=len(partitions))
    for partition in partitions:
        await produce(house, 900, partition=partition)
    member = Member(house, "a")

    async with asyncio.timeout(30):
        answer = await member.fetch(
            partitions=partitions, wait_ms=600_000, min_bytes=2**31 - 1, max_bytes=2_000
        )

    assert any(acquired_of(answer, partition) for partition in partitions)


async def test_a_fetch_waits_for_records(house: House) -> None:
    await begin(house)
    a = Member(house, "a")
    waiting = asyncio.ensure_future(a.acquire(wait_ms=60_000))
    await asyncio.sleep(0)
    await produce(house, 2)

    assert await waiting == [(0, 1, 1)]


async def test_a_fetch_waits_for_records_that_come_back(house: House) -> None:
    await begin(house)
    await produce(house, 2)
    a, b = Member(house, "a"), Member(house, "b")
    await a.acquire()
    waiting = asyncio.ensure_future(b.acquire(wait_ms=60_000))
    await asyncio.sleep(0)
    await a.acknowledge((0, 1, [RELEASE]))

    assert await waiting == [(0, 1, 2)]
    assert not _share(house).waiters


async def test_a_fetch_waits_for_locks_that_end(house: House) -> None:
    await begin(house)
    await produce(house, 2)
    await Member(house, "a").acquire()
    waiting = asyncio.ensure_future(Member(house, "b").acquire(wait_ms=60_000))
    await asyncio.sleep(0)
    _expire(house)

    assert await waiting == [(0, 1, 2)]


async def test_a_fetch_that_waits_does_not_keep_what_it_acknowledged(house: House) -> None:
    await begin(house)
    a = Member(house, "a")
    await a.fetch()
    request = a.fetch_request(acks=[(n, n, [ACCEPT]) for n in range(100)], wait_ms=60_000)
    waiting = asyncio.ensure_future(ask(house, request, 2))
    await asyncio.sleep(0)
    assert _share(house).waiters
    del request
    batch = share_group.ShareFetchRequest.AcknowledgementBatch
    gc.collect()
    kept = [one for one in gc.get_objects() if isinstance(one, batch)]
    await produce(house, 1)
    await waiting

    assert len(kept) <= 100  # of the request as it was asked, and none of what was decoded


async def test_a_fetch_that_waits_in_vain_is_answered(house: House) -> None:
    await begin(house)

    assert await Member(house, "a").acquire(wait_ms=5) == []
    assert not _share(house).partition.fetch_waiters


async def test_a_fetch_that_waits_hears_of_a_deleted_topic(house: House) -> None:
    await begin(house)
    a = Member(house, "a")
    waiting = asyncio.ensure_future(a.fetch(wait_ms=60_000))
    await asyncio.sleep(0)
    await ask(house, DeleteTopicsRequest(topic_names=[TOPIC]), 5)
    answer = await waiting

    gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.responses[0].partitions[0].error_code == gone


async def test_a_fetch_that_is_sent_away_takes_nothing_along(house: House) -> None:
    """Else it would hold records that the group, when it is taken up again, gives to others."""
    await begin(house, partitions=2)
    for partition in (0, 1):
        await produce(house, 2, partition=partition)
    a, b = Member(house, "a"), Member(house, "b")
    both = {"partitions": (0, 1), "min_bytes": 1_000_000, "wait_ms": 60_000}
    waiting = asyncio.ensure_future(a.fetch(**both))
    await asyncio.sleep(0)
    house.rooms.shares.drop_group(GROUP, "its group has no sessions")

    answer = await waiting
    again = await b.fetch(partitions=(0, 1))
    for partition in (0, 1):
        assert acquired_of(answer, partition) == []
        assert acquired_of(again, partition) == [(0, 1, 1)]


async def test_a_fetch_that_waits_gets_nothing_once_its_session_has_ended(house: House) -> None:
    await begin(house)
    a, b = Member(house, "a"), Member(house, "b")
    waiting = asyncio.ensure_future(a.fetch(wait_ms=60_000))
    await asyncio.sleep(0)
    house.rooms.shares.end_session(GROUP, "a", "its connection was closed")
    await produce(house, 2)

    assert acquired_of(await waiting) == []
    assert await b.acquire() == [(0, 1, 1)]
    assert not _share(house).waiters


async def test_a_fetch_whose_session_ends_meanwhile_takes_up_no_partition_again(
    house: House,
) -> None:
    """Its group has let go of them, and nobody would do so again."""
    await begin(house)
    await produce(house, 2)
    a = Member(house, "a")
    assert await a.acquire() == [(0, 1, 1)]
    writing = asyncio.ensure_future(a.fetch(acks=[(0, 1, [ACCEPT])]))
    await asyncio.sleep(0)
    house.rooms.shares.end_session(GROUP, "a", "the member closed it")
    assert not writing.done()
    await writing

    assert list(house.rooms.shares.by_group()) == []


@pytest.mark.parametrize(("state", "expected"), [(1, (0, 1, 2)), (3, (2, 3, 1))])
async def test_states_that_are_not_written_here_are_understood(
    house: House, state: int, expected: tuple[int, int, int]
) -> None:
    """1 is acquired, by nobody knows whom; 3 is on the way to archived, in Apache Kafka."""
    await begin(house)
    await produce(house, 2, 2)
    await _write_state(house, state)

    assert (await Member(house, "a").acquire())[0] == expected


async def test_a_state_that_nobody_knows_is_an_error_of_its_partition(house: House) -> None:
    await begin(house)
    await produce(house, 2)
    await _write_state(house, 7)
    for _ in range(2):
        assert (await Member(house, "a").refused())[0] == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_it_is_told_beside_what_others_of_its_partitions_have(house: House) -> None:
    await begin(house, partitions=2)
    await produce(house, 2)
    await _write_state(house, 7)
    waiting = asyncio.ensure_future(Member(house, "a").fetch(partitions=(0, 1), wait_ms=60_000))
    await asyncio.sleep(0)
    await loaded(house, 1)
    while house.rooms.shares.get(GROUP, (topic_id(house), 0)) is not None:
        await asyncio.sleep(0)
    assert not waiting.done()
    await produce(house, 2, partition=1)

    answer = await waiting
    assert answer.responses[0].partitions[-1].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert acquired_of(answer, 1) == [(0, 1, 1)]


async def _write_state(house: House, state: int) -> None:
    """Of the first two records, delivered once."""
    write = share_state.WriteShareGroupStateRequest
    part = write.PartitionData(0, 0, 0, 0, 0, [write.StateBatch(0, 1, state, 1)])
    request = write(GROUP, [write.WriteStateData(topic_id(house), [part])])
    answer = await ask(house, request, 1)
    assert answer.results[0].partitions[0].error_code == 0


async def test_only_so_many_records_are_in_hand(house: House) -> None:
    await begin(house)
    await configure(house, "share.partition.max.record.locks", "100")
    await produce(house, 60, 60, 60)
    a = Member(house, "a")

    assert await a.acquire(records=500) == [(0, 119, 1)]
    assert await a.acquire(records=500) == []
    await a.acknowledge((10, 19, [RELEASE]))
    assert await a.acquire(records=500) == [(10, 19, 2)]
    await a.acknowledge((0, 59, [ACCEPT]))
    assert await a.acquire(records=500) == [(120, 179, 1)]


async def test_acknowledged_state_outlives_the_broker(house: House) -> None:
    await begin(house)
    await produce(house, 10)
    a = Member(house, "a")
    await a.acquire()
    await a.acknowledge((0, 3, [ACCEPT]), (5, 5, [RELEASE]), (7, 7, [REJECT]))
    async with house.restarted() as again:
        b = Member(again, "b")

        assert await b.acquire(exactly=True) == [(4, 4, 1), (5, 5, 2), (6, 6, 1), (8, 9, 1)]


async def test_a_record_whose_acknowledgement_was_not_answered_may_come_again(
    house: House,
) -> None:
    """The broker goes between the write and its answer: nothing that was answered is lost."""
    await begin(house)
    await produce(house, 4)
    a = Member(house, "a")
    await a.acquire()
    await a.acknowledge((0, 1, [ACCEPT]))
    part = share_group.ShareAcknowledgeRequest.AcknowledgePartition(
        0, [share_group.ShareAcknowledgeRequest.AcknowledgementBatch(2, 3, [ACCEPT])]
    )
    topic = share_group.ShareAcknowledgeRequest.AcknowledgeTopic(topic_id(house), [part])
    request = share_group.ShareAcknowledgeRequest(GROUP, "a", a.epoch, topics=[topic])
    pending = handle_share_acknowledge(house.session, request, 2)
    assert isinstance(pending, Pending)
    assert pending.response is None
    house.rooms.share_state.close()
    refused = pending.response
    assert refused is not None
    assert refused.responses[0].partitions[0].error_code != 0
    async with house.restarted() as again:
        found = await Member(again, "b").acquire()

        assert found in ([], [(2, 3, 1)])


async def test_a_lock_that_ended_while_nothing_could_be_written_is_written_later(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(key: str) -> None:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    await begin(house)
    await produce(house, 2)
    a, b = Member(house, "a"), Member(house, "b")
    assert await a.acquire() == [(0, 1, 1)]
    with monkeypatch.context() as broken:
        broken.setattr(house.rooms.share_state, "runner", unavailable)
        _expire(house)
    assert await b.acquire() == [(0, 1, 2)]
    assert (await b.acknowledge((0, 0, [RELEASE]))).error_code == 0
    async with house.restarted() as again:
        assert await Member(again, "c").acquire() == [(0, 0, 3), (1, 1, 2)]


async def test_where_a_group_begins(house: House) -> None:
    await house.create(TOPIC)
    await produce(house, 2)
    await begin_unknown(house)
    assert await Member(house, "a").acquire() == []
    await produce(house, 2)
    assert await Member(house, "a").acquire() == [(2, 3, 1)]


async def begin_unknown(house: House) -> None:
    """As the group's coordinator initializes a partition: it begins where the settings say."""
    from ottla.protocol.messages.groups import FindCoordinatorRequest

    key = "g:AAECAwQFBgcICQoLDA0ODw:0"
    await ask(house, FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), 6)
    await initialize(house, start=-1)


async def test_deleted_records_are_nobodys(house: House) -> None:
    await begin(house)
    await produce(house, 4, 4)
    a = Member(house, "a")
    await a.acquire(records=4)
    _expire(house)
    partition = DeleteRecordsRequest.DeleteRecordsPartition(0, 6)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(TOPIC, [partition])
    await ask(house, DeleteRecordsRequest([topic]), 2)

    assert await a.acquire() == [(6, 7, 1)]
    assert _share(house).window.start == 6  # type: ignore[union-attr]


async def test_a_group_is_fenced_when_its_state_begins_anew(house: House) -> None:
    await begin(house)
    await produce(house, 4)
    a = Member(house, "a")
    await a.acquire()
    await initialize(house, start=2, state_epoch=1)
    part = await a.acknowledge((0, 3, [ACCEPT]))

    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert house.rooms.shares.get(GROUP, (topic_id(house), 0)) is None
    assert await a.acquire() == [(2, 3, 1)]


async def test_who_is_told_of_another_leader_is_told_which(house: House) -> None:
    """KIP-951, for the fetch and the acknowledgement of a share group."""
    await begin(house)
    await produce(house, 4)
    a = Member(house, "a")
    await a.acquire()
    await initialize(house, start=2, state_epoch=1)
    acknowledged = await a.acknowledged((0, 3, [ACCEPT]))
    epoch = house.rooms.image.topics.by_name[TOPIC].partitions[0].leader_epoch
    await house.lose_leader(TOPIC, 0)
    fetched = await a.fetch()

    assert _told_of_leader(acknowledged) == ((NODE_ID, epoch), [NODE_ID])
    assert _told_of_leader(fetched) == ((-1, epoch + 1), [])  # of nobody there is no address


def _told_of_leader(answer: Any) -> tuple[tuple[int, int], list[int]]:
    part = answer.responses[0].partitions[0]
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader = part.current_leader
    addressed = [one.node_id for one in answer.node_endpoints]
    return (leader.leader_id, leader.leader_epoch), addressed


async def test_an_unknown_state_is_an_error_of_its_partition(house: House) -> None:
    await begin(house)
    await house.create("other")
    other = house.rooms.image.topics.by_name["other"].topic_id
    a = Member(house, "a")
    request = a.fetch_request()
    request.topics += [
        share_group.ShareFetchRequest.FetchTopic(one, [a.fetch_request().topics[0].partitions[0]])
        for one in (other, b"\1" * 16)
    ]
    answer = await ask(house, request, 2)
    codes = {one.topic_id: one.partitions[0].error_code for one in answer.responses}

    assert codes == {
        topic_id(house): 0,
        other: ErrorCode.UNKNOWN_SERVER_ERROR,
        b"\1" * 16: ErrorCode.UNKNOWN_TOPIC_ID,
    }


async def test_records_of_aborted_transactions_are_left_out(house: House) -> None:
    await begin(house)
    await configure(house, "share.isolation.level", "read_committed")
    await produce(house, 2)
    await house.append(TOPIC, 0, [b"x", b"y"], transactional=True)
    a = Member(house, "a")
    assert await a.acquire() == [(0, 1, 1)]
    assert await a.acquire() == []  # the transaction is open
    led = house.rooms.replicas.get(TOPIC, 0)
    assert led is not None
    marker = build_marker(
        producer_id=9, producer_epoch=0, committed=False, coordinator_epoch=0, timestamp=1
    )
    house.rooms.replicas.append_internal(led, memoryview(marker))
    await produce(house, 1)
    acquired = await a.acquire()

    assert [one for one in acquired if one[0] <= 3] == []
    assert acquired[-1][1] == 5


async def test_partitions_take_turns(house: House) -> None:
    await begin(house, partitions=2)
    await produce(house, 4, partition=0)
    await produce(house, 4, partition=1)
    a = Member(house, "a")
    first = await a.fetch(partitions=(0, 1), records=4)
    second = await a.fetch(partitions=(0, 1), records=4)
    gave = [[index for index in (0, 1) if acquired_of(answer, index)] for answer in (first, second)]

    assert sorted(gave) == [[0], [1]]
