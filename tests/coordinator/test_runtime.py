"""The shell around the shards: what it appends, when it answers, how it loads, what it deletes."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from ottla.broker.coordinator import gathering, loading, runtime
from ottla.broker.coordinator.group.coordinator import CONSUMER_OFFSETS
from ottla.broker.coordinator.group.shard import GroupShard
from ottla.broker.coordinator.outcome import (
    Answer,
    CoordinatorRecord,
    Counted,
    Outcome,
    Reply,
)
from ottla.broker.coordinator.record_format import RecordFormat
from ottla.broker.coordinator.records import GROUP_RECORDS
from ottla.broker.coordinator.runtime import Runner
from ottla.broker.log.file_slice import FileSlice
from ottla.broker.log.log import Log
from ottla.broker.log.reserves import OWN_BYTES_MIN, OwnRoom
from ottla.broker.replication.replicas import Partition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import groups, share_group
from ottla.protocol.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from ottla.protocol.messages.coordinator_records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.protocol.messages.transactions import TxnOffsetCommitRequest
from ottla.protocol.records.batch import iterate_headers
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import build_marker
from ottla.protocol.records.record import Record
from ottla.protocol.schema import Message
from ottla.testing.clock import SimClock
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
from tests.handlers.rooms import House
from tests.log.logs import SMALL, append, flush, new_disk, open_log
from tests.transactions.shown import codes_of

NEVER = str(2**63 - 1)
"""As flush.messages: nothing is synced for its own sake."""


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House(SETTINGS) as opened:
        await begin(opened)
        yield opened


def _code(answer: groups.OffsetCommitResponse) -> int:
    return answer.topics[0].partitions[0].error_code


def _batches(partition: Partition) -> list[int]:
    """How many records each batch of the log has."""
    piece = partition.log.read(0, max_bytes=1 << 20, upper=0, at_least_one=True)
    assert piece is not None
    return [header.record_count for _, header in iterate_headers(piece.read())]


async def test_commits_of_one_turn_share_an_append(house: House) -> None:
    answers = await asyncio.gather(*(ask(house, offset_commit(number), 9) for number in range(20)))

    assert [_code(answer) for answer in answers] == [0] * 20
    assert _batches(led(house)) == [20]
    assert await offset_of(house) == 19


async def test_what_comes_during_a_sync_shares_the_next(house: House) -> None:
    first = asyncio.ensure_future(ask(house, offset_commit(1), 9))
    partition = led(house)
    while not partition.commit_waiters:
        await asyncio.sleep(0)
    later = await asyncio.gather(*(ask(house, offset_commit(number), 9) for number in range(2, 8)))
    await first

    assert [_code(answer) for answer in later] == [0] * 6
    assert _batches(partition) == [1, 6]


async def test_a_commit_is_kept_as_long_as_can_be_said(house: House) -> None:
    """Its expiry is more than 63 bits hold."""
    request = offset_commit(5)
    request.retention_time_ms = 2**63 - 1
    assert _code(await ask(house, request, 4)) == 0
    async with house.restarted() as again:
        assert await offset_of(again) == 5


class _Kept:
    """Who waits for an answer."""

    def __init__(self) -> None:
        self.responses: list[Any] = []

    def complete(self, response: Any) -> None:
        self.responses.append(response)


class _Broken:
    def complete(self, _: Any) -> None:
        raise ValueError("broken")


def _written(runner: Runner[GroupShard], *replies: Reply, offset: int = 1) -> Outcome:
    """A commit, and the answers that rest on it."""
    outcome = Outcome(runner.now())
    value = OffsetCommitValue(offset=offset)
    outcome.records.append(CoordinatorRecord(OffsetCommitKey(GROUP, "t", 0), value))
    outcome.answers += [Answer(reply, groups.HeartbeatResponse()) for reply in replies]
    return outcome


@pytest.mark.parametrize("offset", [1, 2**70])
@pytest.mark.parametrize("is_refused", [True, False])
async def test_an_answer_that_breaks_keeps_no_other(
    house: House, offset: int, is_refused: bool
) -> None:
    """Written, refused by a full disk, or with a record that there is no room for in any."""
    runner, _ = house.rooms.groups.runner(GROUP)
    kept, due = _Kept(), asyncio.Event()
    if is_refused:
        house.disk.inject("pwrite", errno.ENOSPC, path=".log")
    outcome = _written(runner, _Broken(), kept, _Broken(), offset=offset)
    outcome.due.append(due.set)
    loop = asyncio.get_running_loop()
    broken: list[Any] = []
    loop.set_exception_handler(lambda _, context: broken.append(context["exception"]))
    try:
        runner.perform(outcome)
    except ValueError as error:
        broken.append(error)
    while not kept.responses or not broken:
        await asyncio.sleep(0)
    (response,) = kept.responses

    assert [str(one) for one in broken] == ["broken"]
    refused = ErrorCode.NOT_COORDINATOR if is_refused else ErrorCode.NONE
    assert response.error_code == (refused if offset == 1 else ErrorCode.UNKNOWN_SERVER_ERROR)
    assert due.is_set() == (response.error_code == 0)
    assert house.rooms.groups.runner(GROUP)[0] is runner, "it is at work"


async def test_all_answers_of_what_no_record_has_room_for_are_refused(house: House) -> None:
    runner, _ = house.rooms.groups.runner(GROUP)
    later, now = _Kept(), _Kept()
    outcome = _written(runner, later, offset=2**70)
    outcome.answers_now.append(Answer(now, groups.HeartbeatResponse()))
    runner.perform(outcome)

    for kept in (later, now):
        assert [one.error_code for one in kept.responses] == [ErrorCode.UNKNOWN_SERVER_ERROR]


async def test_what_no_record_has_room_for_is_forgotten_and_its_shard_loaded_anew(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard is never ahead of its log for longer than a moment."""
    assert _code(await ask(house, offset_commit(5), 9)) == 0
    encode = GROUP_RECORDS.encode

    def too_long(_: RecordFormat, record: CoordinatorRecord, now_ms: int) -> Record:
        if isinstance(record.value, OffsetCommitValue) and record.value.offset == 77:
            raise ValueError("too long")
        return encode(record, now_ms)

    monkeypatch.setattr(RecordFormat, "encode", too_long)
    beside = asyncio.ensure_future(ask(house, offset_commit(6), 9))
    await asyncio.sleep(0)
    refused = await ask(house, offset_commit(77), 9)
    assert _code(refused) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert _code(await beside) == ErrorCode.NOT_COORDINATOR
    (told,) = house.events.named("coordinator_append_failed")
    assert told["error"] == "too long"
    monkeypatch.undo()
    assert await offset_of(house) == 5


@pytest.mark.parametrize("is_under_way", [False, True])
@pytest.mark.parametrize("version", [7, 8])
async def test_a_question_waits_for_what_it_saw(
    house: House, version: int, is_under_way: bool
) -> None:
    """Whether that is gathered, or its sync is under way; in both forms of the question."""
    commit = asyncio.ensure_future(ask(house, offset_commit(7), 9))
    partition = led(house)
    await asyncio.sleep(0)
    while is_under_way and not partition.commit_waiters:
        await asyncio.sleep(0)
    question = offset_fetch()
    if version == 7:
        topic = groups.OffsetFetchRequest.OffsetFetchRequestTopic("t", [0])
        question = groups.OffsetFetchRequest(GROUP, topics=[topic])
    asked = asyncio.ensure_future(ask(house, question, version))
    durable_ends: list[int] = []
    asked.add_done_callback(lambda _: durable_ends.append(partition.log.durable_end))
    await asyncio.sleep(0)
    was_durable = partition.log.durable_end

    answer = await asked
    (part,) = (answer.topics if version == 7 else answer.groups[0].topics)[0].partitions
    assert part.committed_offset == 7
    assert (was_durable, durable_ends) == (0, [1])
    assert commit.done()


async def test_a_question_waits_also_behind_a_commit_whose_time_is_over(house: House) -> None:
    commit = asyncio.ensure_future(ask(house, offset_commit(7), 9))
    partition = led(house)
    while not partition.commit_waiters:
        await asyncio.sleep(0)
    waiter = partition.commit_waiters.popleft()
    waiter.listener.failed(waiter.part, ErrorCode.REQUEST_TIMED_OUT)
    question = asyncio.ensure_future(ask(house, offset_fetch(), 9))
    durable_ends: list[int] = []
    question.add_done_callback(lambda _: durable_ends.append(partition.log.durable_end))
    (waiting,) = partition.commit_waiters

    assert waiting.last_offset == 0
    assert await question
    assert durable_ends == [1]
    assert _code(await commit) != 0


async def test_a_commit_is_synced_whatever_flush_messages_says() -> None:
    async with House({**SETTINGS, "log.flush.interval.messages": NEVER}) as house:
        await begin(house)
        assert _code(await ask(house, offset_commit(7), 9)) == 0
        log = led(house).log

        assert log.durable_end == log.log_end_offset == 1
        await house.append("t", 0, [b"not a coordinator's"])
        other = house.rooms.replicas.get("t", 0)
        assert other is not None
        assert other.log.durable_end == 0, "the setting acts"


async def test_offsets_outlive_the_broker(house: House) -> None:
    await ask(house, offset_commit(7), 9)
    async with house.restarted() as again:
        assert await offset_of(again) == 7


async def test_a_group_outlives_the_broker(house: House) -> None:
    member_id = await stable_member(house)
    async with house.restarted() as again:
        beat = groups.HeartbeatRequest(GROUP, 1, member_id)
        described = await ask(again, groups.DescribeGroupsRequest([GROUP]), 5)

        assert (await ask(again, beat, 4)).error_code == 0
        assert described.groups[0].group_state == "Stable"
        assert described.groups[0].members[0].member_assignment == b"mine"


async def test_a_full_disk_refuses_and_leaves_what_is_on_it(house: House) -> None:
    await ask(house, offset_commit(7), 9)
    house.disk.inject("pwrite", errno.ENOSPC, path=".log")
    refused = await ask(house, offset_commit(8), 9)

    assert _code(refused) == ErrorCode.NOT_COORDINATOR
    assert await offset_of(house) == 7

    assert _code(await ask(house, offset_commit(9), 9)) == 0
    assert await offset_of(house) == 9


async def _fetched(house: House) -> int:
    """The error code of what needs no room."""
    answer = await ask(house, offset_fetch(), 9)
    code: int = answer.groups[0].error_code
    return code


async def test_groups_are_served_where_a_full_disk_refuses_to_forget_a_topics_offsets(
    house: House,
) -> None:
    """A shard that wrote this when it is loaded would be refused and loaded without end."""
    await ask(house, offset_commit(7), 9)
    full = house.disk.inject("pwrite", errno.ENOSPC, path="__consumer_offsets", times=10**9)
    await house.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
    for _ in range(100):
        await asyncio.sleep(0)
    assert await _fetched(house) == 0
    assert len(house.events.named("coordinator_append_failed")) == 1

    async with house.restarted() as again:
        for _ in range(100):
            await asyncio.sleep(0)
        assert await _fetched(again) == 0
        assert len(again.events.named("coordinator_append_failed")) == 2, "once more"
        full.times = 0
        runner, shard = again.rooms.groups.runner(GROUP)
        runner.perform(shard.expire_offsets(runner.now()))
        assert await _fetched(again) == 0
        # The tombstones of the offset and of its group.
        assert led(again).log.log_end_offset == 3
        assert not shard.groups


async def test_offsets_of_a_topic_that_is_gone_wait_for_room_that_is_spent(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(house, offset_commit(7), 9)
    partition = led(house)
    monkeypatch.setattr(GroupShard, "topics_deleted", lambda self, names, now: Outcome(now))
    await house.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
    runner, _ = house.rooms.groups.runner(GROUP)
    house.rooms.replicas.keep_room({house.rooms.logs.dir_of(partition.log): OwnRoom(0)})
    runner.start()
    assert await _fetched(house) == 0
    assert partition.log.log_end_offset == 1

    house.rooms.replicas.keep_room({})
    runner.start()
    assert await _fetched(house) == 0
    assert partition.log.log_end_offset == 2
    assert not house.events.named("coordinator_append_failed")


async def test_commits_leave_a_full_disk_its_last_room(house: House) -> None:
    await ask(house, offset_commit(7), 9)
    partition, replicas = led(house), house.rooms.replicas
    before = partition.log.size_bytes
    await ask(house, offset_commit(8), 9)
    size = partition.log.size_bytes - before
    log_dir = house.rooms.logs.dir_of(partition.log)
    replicas.keep_room({log_dir: OwnRoom(OWN_BYTES_MIN + size)})
    runner, shard = house.rooms.groups.runner("g")

    assert _code(await ask(house, offset_commit(9), 9)) == 0
    assert _code(await ask(house, offset_commit(10), 9)) == 0
    assert _code(await ask(house, offset_commit(11), 9)) == ErrorCode.NOT_COORDINATOR
    assert runner.shard is shard, "it is not ahead of its log"
    assert await offset_of(house) == 10
    replicas.keep_room({})
    assert _code(await ask(house, offset_commit(12), 9)) == 0


async def test_other_records_of_the_broker_have_what_is_left_and_no_more(house: House) -> None:
    partition, replicas = led(house), house.rooms.replicas
    batch = build_batch([Record(0, 0, b"\0\2\0\1g", b"\0\x63")])
    log_dir = house.rooms.logs.dir_of(partition.log)
    replicas.keep_room({log_dir: OwnRoom(2 * len(batch) - 1)})
    assert replicas.is_spent(partition)
    replicas.append_internal(partition, memoryview(batch))
    with pytest.raises(KafkaError, match="is full") as refused:
        replicas.append_internal(partition, memoryview(batch))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.log.log_end_offset == 1


async def test_a_lost_disk_is_not_coordinated(house: House) -> None:
    await ask(house, offset_commit(7), 9)
    partition = led(house)
    house.rooms.replicas.drop(partition, ErrorCode.KAFKA_STORAGE_ERROR)
    house.rooms.groups.take_up(house.rooms.image)
    answer = await ask(house, offset_fetch(), 9)

    assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    assert _code(await ask(house, offset_commit(8), 9)) == ErrorCode.NOT_COORDINATOR


def _while_loading() -> list[tuple[Message, int, ErrorCode]]:
    """What is asked of a group that is being loaded, and how each part of it is refused."""
    not_loaded = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
    part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, 7)
    in_transaction = [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic("t", [part])]
    old_fetch = groups.OffsetFetchRequest.OffsetFetchRequestTopic("t", [0])
    leavers = [groups.LeaveGroupRequest.MemberIdentity("m")]
    share = share_group.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    altered = share_group.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic("t")
    deleted = share_group.DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic("t")
    return [
        # It is taken for alive, and what it has joined before it is to join again.
        (groups.HeartbeatRequest(GROUP, 1, "m"), 4, ErrorCode.NONE),
        (groups.SyncGroupRequest(GROUP, 1, "m"), 3, ErrorCode.REBALANCE_IN_PROGRESS),
        (groups.JoinGroupRequest(GROUP, 10_000, -1, "m", None, "test", [protocol]), 5, not_loaded),
        (groups.LeaveGroupRequest(GROUP, "m"), 2, not_loaded),
        (groups.LeaveGroupRequest(GROUP, members=leavers), 3, not_loaded),
        (offset_commit(8), 9, not_loaded),
        (TxnOffsetCommitRequest("x", GROUP, 1, 0, topics=in_transaction), 4, not_loaded),
        (groups.OffsetFetchRequest(GROUP, [old_fetch]), 7, not_loaded),
        (offset_fetch(), 9, not_loaded),
        (_delete(), 0, not_loaded),
        (groups.DescribeGroupsRequest([GROUP]), 5, not_loaded),
        (groups.ListGroupsRequest(), 4, not_loaded),
        (groups.DeleteGroupsRequest([GROUP]), 2, not_loaded),
        (ConsumerGroupHeartbeatRequest(GROUP, "m", 1), 1, not_loaded),
        (ConsumerGroupDescribeRequest([GROUP]), 1, not_loaded),
        (share_group.ShareGroupHeartbeatRequest(GROUP, "m", 1), 1, not_loaded),
        (share_group.ShareGroupDescribeRequest([GROUP]), 1, not_loaded),
        (share_group.DescribeShareGroupOffsetsRequest([share(GROUP, None)]), 1, not_loaded),
        (share_group.AlterShareGroupOffsetsRequest(GROUP, [altered]), 0, not_loaded),
        (share_group.DeleteShareGroupOffsetsRequest(GROUP, [deleted]), 0, not_loaded),
    ]


async def test_a_long_log_is_loaded_beside_everything_else(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "SHORT_LOG_BYTES", 0)
    monkeypatch.setattr(loading, "READ_BYTES", 200)
    monkeypatch.setattr(loading, "RECORDS_PER_TURN", 1)
    for number in range(300):
        await ask(house, offset_commit(number), 9)
    async with house.restarted() as again:
        for request, version, code in _while_loading():
            answer = await ask(again, request, version)

            assert set(codes_of(answer)) - {0} == {code} - {0}, request
        await again.settle()
        assert await offset_of(again) == 299


class _Shard:
    """Notes how many records it has had, and how many when a transaction ended."""

    def __init__(self) -> None:
        self.count = 0
        self.ended_at: list[int] = []

    def apply(self, record: CoordinatorRecord, now_wall_ms: int, producer_id: int = -1) -> None:
        self.count += 1

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        self.ended_at.append(self.count)


def _append_transaction(house: House, count: int) -> None:
    """So many records in one batch, and the marker behind them."""
    key = GROUP_RECORDS.encode_key(OffsetCommitKey(GROUP, "t", 0))
    value = GROUP_RECORDS.encode_value(OffsetCommitValue(5, -1, "", 0, -1))
    batch = build_batch(
        [Record(0, 0, key, value)] * count,
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    marker = build_marker(
        producer_id=5, producer_epoch=0, committed=True, coordinator_epoch=0, timestamp=0
    )
    for one in (batch, marker):
        house.rooms.replicas.append_internal(led(house), memoryview(one))


async def test_others_get_the_loop_within_a_large_batch(house: House) -> None:
    _append_transaction(house, 1_000)
    shard, given_up = _Shard(), False
    loader = loading.Loader(led(house).log, shard, house.rooms.clock, GROUP_RECORDS)
    workers = house.lookup_workers
    turns = [0]
    load = asyncio.ensure_future(loader.load(workers, lambda: given_up))
    while not load.done():
        await asyncio.sleep(0)
        turns.append(shard.count)
    await load

    assert max(now - before for before, now in pairwise(turns)) == loading.RECORDS_PER_TURN
    assert loader.records == shard.count == 1_000
    assert shard.ended_at == [1_000]

    shard = _Shard()
    loader = loading.Loader(led(house).log, shard, house.rooms.clock, GROUP_RECORDS)
    load = asyncio.ensure_future(loader.load(workers, lambda: given_up))
    while not shard.count:
        await asyncio.sleep(0)
    given_up = True
    await load

    assert shard.count == loading.RECORDS_PER_TURN, "no more than it was when it was given up"


async def test_transactions_in_the_log_are_replayed(house: House) -> None:
    partition = led(house)
    for producer_id, offset, committed in ((5, 50, True), (6, 60, False)):
        key = GROUP_RECORDS.encode_key(OffsetCommitKey(GROUP, "t", 0))
        value = GROUP_RECORDS.encode_value(OffsetCommitValue(offset, -1, "", 0, -1))
        batch = build_batch(
            [Record(0, 0, key, value)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        marker = build_marker(
            producer_id=producer_id,
            producer_epoch=0,
            committed=committed,
            coordinator_epoch=0,
            timestamp=0,
        )
        for one in (batch, marker):
            house.rooms.replicas.append_internal(partition, memoryview(one))
    async with house.restarted() as again:
        assert await offset_of(again) == 50


async def test_a_log_that_cannot_be_read_is_not_coordinated(house: House) -> None:
    batch = build_batch([Record(0, 0, b"\0\2\0\1g", b"\0\x63")])
    house.rooms.replicas.append_internal(led(house), memoryview(batch))
    async with house.restarted() as again:
        answer = await ask(again, offset_fetch(), 9)

        assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR
        assert again.events.named("coordinator_not_loaded")


async def test_a_flipped_bit_makes_no_other_offset(house: House) -> None:
    await ask(house, offset_commit(2000), 9)
    await ask(house, offset_commit(3000), 9)
    log = led(house).log
    path = log.segments.active.log_path
    at = house.disk.open(path).pread(log.size_bytes, 0).index((3000).to_bytes(8, "big"))
    house.disk.corrupt(path, at + 4, b"\1")
    async with house.restarted() as again:
        answer = await ask(again, offset_fetch(), 9)

        assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR
        (told,) = again.events.named("coordinator_not_loaded")
        assert "is damaged at" in told["error"]
        assert f"`ottla log repair {log.directory}` takes it out" in told["remedy"]


def test_a_batch_that_claims_offsets_behind_the_log_is_not_replayed() -> None:
    """No CRC covers the offset of a batch, and nobody reads a sealed segment at a start."""
    disk = new_disk()
    log = open_log(disk, SMALL)
    while len(log.segments) < 2:
        append(log)
    flush(log)
    disk.corrupt(log.segments[0].log_path, 4, b"\1")
    loader = loading.Loader(log, _Shard(), SimClock(), GROUP_RECORDS)
    with pytest.raises(loading.LoadFailed, match="is damaged at"):
        loader.load_now()


async def test_a_disk_that_fails_once_is_tried_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(house, offset_commit(7), 9)
    read, failures = Log.read, [OSError(errno.EMFILE, "Too many open files")]

    def failing(log: Log, offset: int, **bounds: Any) -> FileSlice | None:
        if log.topic == CONSUMER_OFFSETS and failures:
            raise failures.pop()
        return read(log, offset, **bounds)

    monkeypatch.setattr(Log, "read", failing)
    monkeypatch.setattr(runtime, "RELOAD_AFTER_S", 0.0)
    async with house.restarted() as again:
        async with asyncio.timeout(5):
            while (await ask(again, offset_fetch(), 9)).groups[0].error_code != 0:
                await asyncio.sleep(0)
        assert await offset_of(again) == 7
        assert again.events.named("coordinator_not_loaded")


async def test_many_records_make_several_batches(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "BATCH_BYTES_MAX", 200)
    await asyncio.gather(*(ask(house, offset_commit(number), 9) for number in range(20)))

    assert sum(_batches(led(house))) == 20
    assert len(_batches(led(house))) > 2


async def test_a_deleted_topic_takes_its_offsets_along(house: House) -> None:
    await ask(house, offset_commit(7), 9)
    await ask(house, DeleteTopicsRequest(topic_names=["t"]), 5)
    await house.create("t", partitions=2)

    assert await offset_of(house) == -1


async def test_the_stop_sends_parked_members_away(house: House) -> None:
    await stable_member(house)
    protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
    join = groups.JoinGroupRequest(GROUP, 10_000, 10_000, "", None, "test", [protocol])
    parked: asyncio.Future[Any] = asyncio.ensure_future(ask(house, join, 3))
    await asyncio.sleep(0)
    house.rooms.groups.close()

    assert (await parked).error_code == ErrorCode.NOT_COORDINATOR


def _delete(partition: int = 0) -> groups.OffsetDeleteRequest:
    part = groups.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition)
    return groups.OffsetDeleteRequest(
        GROUP, [groups.OffsetDeleteRequest.OffsetDeleteRequestTopic("t", [part])]
    )


async def _under_way(partition: Partition) -> None:
    async with asyncio.timeout(5):
        while not partition.commit_waiters:
            await asyncio.sleep(0)


async def test_offsets_count_once_they_are_durable(house: House) -> None:
    counted = house.rooms.groups.counted
    commit = asyncio.ensure_future(ask(house, offset_commit(7), 9))
    await _under_way(led(house))
    assert not counted
    await commit
    assert counted == {Counted.OFFSET_COMMIT: 1}

    delete = asyncio.ensure_future(ask(house, _delete(), 0))
    await _under_way(led(house))
    assert counted == {Counted.OFFSET_COMMIT: 1}
    await delete
    assert counted == {Counted.OFFSET_COMMIT: 1, Counted.OFFSET_DELETION: 1}


async def test_offsets_that_were_not_written_do_not_count(house: House) -> None:
    await ask(house, offset_commit(7), 9)
    house.disk.inject("pwrite", errno.ENOSPC, path=".log")
    refused = await ask(house, _delete(), 0)

    assert refused.error_code == ErrorCode.NOT_COORDINATOR
    assert await offset_of(house) == 7
    assert house.rooms.groups.counted == {Counted.OFFSET_COMMIT: 1}


async def test_offsets_whose_commit_took_too_long_count_when_they_are_durable(
    house: House,
) -> None:
    counted = house.rooms.groups.counted
    for commits in (1, 2):
        before = counted[Counted.OFFSET_COMMIT]
        first = asyncio.ensure_future(ask(house, offset_commit(7), 9))
        partition = led(house)
        await _under_way(partition)
        others = [
            asyncio.ensure_future(ask(house, offset_commit(8), 9)) for _ in range(commits - 1)
        ]
        await asyncio.sleep(0)
        waiter = partition.commit_waiters.popleft()
        waiter.listener.failed(waiter.part, ErrorCode.REQUEST_TIMED_OUT)
        assert _code(await first) != 0
        await asyncio.gather(*others)
        await offset_of(house)

        assert counted[Counted.OFFSET_COMMIT] - before == commits


async def test_what_a_shard_that_is_gone_has_asked_for_is_nobodys(house: House) -> None:
    """Of a shard whose append is refused: its successor knows nothing of the member."""
    house.disk.inject("pwrite", errno.ENOSPC, path=".log")
    beat = ConsumerGroupHeartbeatRequest(
        GROUP,
        "m" * 22,
        0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_regex="t.*",
        topic_partitions=[],
    )
    assert (await ask(house, beat, 1)).error_code == ErrorCode.NOT_COORDINATOR
    while any("work" in task.get_name() for task in asyncio.all_tasks()):
        await asyncio.sleep(0)

    _, shard = house.rooms.groups.runner(GROUP)
    await offset_of(house)
    assert not shard.groups
    assert led(house).log.log_end_offset == 0
