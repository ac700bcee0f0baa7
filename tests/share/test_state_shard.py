"""The share coordinator's shard: epochs fence, snapshots come in time, a replay gives the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.coordinator.outcome import CoordinatorRecord, Moment, Outcome
from ottla.broker.coordinator.share.records import SHARE_RECORDS
from ottla.broker.coordinator.share.shard import ShareShard
from ottla.broker.coordinator.share.state import NO_EPOCH, SharePartitionKey, ShareState
from ottla.broker.log.leader_epochs import LeaderEpochs
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.coordinator_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateValue,
)
from ottla.protocol.messages.share_state import (
    InitializeShareGroupStateRequest,
    ReadShareGroupStateRequest,
    WriteShareGroupStateRequest,
)

TOPIC_ID = bytes(range(16))
KEY = SharePartitionKey("g", TOPIC_ID, 0)
UPDATES_PER_SNAPSHOT = 3
StateBatch = WriteShareGroupStateRequest.StateBatch


class Answered:
    def __init__(self) -> None:
        self.response: Any = None

    def complete(self, response: Any) -> None:
        self.response = response


class Epochs:
    """A topic's log; `ends` are the leader epochs that it knows, and where each ends."""

    topic = "t"

    def __init__(self, *, start: int = 0, **ends: int) -> None:
        self._epochs = LeaderEpochs()
        self.log_end_offset = start
        for name, end in ends.items():
            self._epochs.assign(int(name.removeprefix("epoch_")), self.log_end_offset)
            self.log_end_offset = end

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self._epochs.end_offset_for(epoch, self.log_end_offset)


class Lone:
    """One shard, its records, and a topic of two partitions."""

    def __init__(self) -> None:
        self.now = Moment(0, 1_000)
        self.counts: dict[bytes, int] = {TOPIC_ID: 2}
        self.records: list[CoordinatorRecord] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.shard = self.new_shard()

    def new_shard(self) -> ShareShard:
        return ShareShard(
            updates_per_snapshot=lambda: UPDATES_PER_SNAPSHOT, partition_count_of=self.counts.get
        )

    def replayed(self, records: list[CoordinatorRecord]) -> ShareShard:
        """Another shard, of the records as they come back from the disk."""
        shard = self.new_shard()
        for one in records:
            written = SHARE_RECORDS.encode(one, 0)
            record = SHARE_RECORDS.decode(written.key, written.value)
            assert record is not None
            shard.apply(record, self.now.wall_ms)
        return shard

    def initialize(
        self,
        start: int = -1,
        *,
        epoch: int = 0,
        key: SharePartitionKey = KEY,
        if_absent: bool = False,
    ) -> Any:
        asked = InitializeShareGroupStateRequest.PartitionData(key.partition, epoch, start)
        return self._done(
            lambda reply: self.shard.initialize(key, asked, reply, self.now, if_absent=if_absent)
        )

    def read(
        self, leader_epoch: int = 0, *, key: SharePartitionKey = KEY, log: Epochs | None = None
    ) -> Any:
        asked = ReadShareGroupStateRequest.PartitionData(key.partition, leader_epoch)
        return self._done(lambda reply: self.shard.read(key, asked, reply, self.now, log))

    def write(
        self,
        *batches: tuple[int, int, int, int],
        start: int = -1,
        leader_epoch: int = 0,
        state_epoch: int = 0,
        complete: int = 0,
        key: SharePartitionKey = KEY,
    ) -> Any:
        asked = WriteShareGroupStateRequest.PartitionData(
            key.partition,
            state_epoch,
            leader_epoch,
            start,
            complete,
            [StateBatch(*batch) for batch in batches],
        )
        return self._done(lambda reply: self.shard.write(key, asked, reply, self.now))

    def delete(self, key: SharePartitionKey = KEY) -> Any:
        return self._done(lambda reply: self.shard.delete(key, reply, self.now))

    def summarize(self, key: SharePartitionKey = KEY) -> Any:
        return self._done(lambda reply: self.shard.summarize(key, reply, self.now))

    def write_anew(self) -> None:
        self.records += self.shard.written_anew(self.now, range(0)).outcome.records

    def snapshot_cold(self, interval_ms: int) -> list[tuple[Any, ...]]:
        """(partition, snapshot epoch, created, written) of each snapshot."""
        outcome = self.shard.snapshot_cold(interval_ms, self.now)
        self.records += outcome.records
        found = [(one.key, one.value) for one in outcome.records]
        return [
            (key.partition, value.snapshot_epoch, value.create_timestamp, value.write_timestamp)
            for key, value in found
            if isinstance(key, ShareSnapshotKey) and isinstance(value, ShareSnapshotValue)
        ]

    def _done(self, command: Any) -> Any:
        reply = Answered()
        outcome: Outcome = command(reply)
        self.records += outcome.records
        self.told += [(one.event, one.fields) for one in outcome.told]
        for answer in outcome.answers:
            answer.leave()
        return reply.response


def test_what_is_written_is_read() -> None:
    lone = Lone()
    lone.initialize(5)
    lone.write((5, 9, 2, 1), (12, 12, 0, 3), start=5, complete=5)
    read = lone.read()

    assert (read.error_code, read.start_offset, read.state_epoch) == (0, 5, 0)
    assert [
        (one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
        for one in read.state_batches
    ] == [(5, 9, 2, 1), (12, 12, 0, 3)]
    summary = lone.summarize()
    assert (summary.start_offset, summary.delivery_complete_count) == (5, 5)


def test_a_later_start_forgets_what_lies_before_it() -> None:
    lone = Lone()
    lone.initialize(0)
    lone.write((0, 9, 2, 1), start=0)
    lone.write((12, 14, 4, 5), start=8)

    assert [(one.first_offset, one.last_offset) for one in lone.read().state_batches] == [
        (8, 9),
        (12, 14),
    ]


def test_nothing_is_done_before_it_is_initialized() -> None:
    lone = Lone()

    assert lone.read().error_code == ErrorCode.INVALID_REQUEST
    assert lone.write().error_code == ErrorCode.INVALID_REQUEST
    assert lone.delete().error_code == 0
    assert (lone.summarize().error_code, lone.summarize().start_offset) == (0, -1)
    assert lone.records == []


def test_older_leaders_are_fenced_once_a_newer_one_has_read() -> None:
    lone = Lone()
    lone.initialize(0)
    lone.read(4)

    assert lone.read(3).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert lone.read(-1).error_code == 0  # who names none is not fenced
    assert lone.write(leader_epoch=3).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert lone.write(leader_epoch=-1).error_code == 0
    assert lone.write(leader_epoch=4).error_code == 0
    assert lone.replayed(lone.records).states == lone.shard.states


def _batches(read: Any) -> list[tuple[int, int]]:
    return [(one.first_offset, one.last_offset) for one in read.state_batches]


@pytest.mark.parametrize("log_end", [20, 90])
def test_a_state_is_cut_where_its_log_has_lost_records(log_end: int) -> None:
    """Whether the log is still shorter or others stand there now does not matter."""
    lone = Lone()
    lone.initialize(0)
    lone.read(2)
    batches = ((10, 14, 2, 1), (16, 29, 4, 5), (30, 40, 0, 2))
    lone.write(*batches, start=10, complete=19, leader_epoch=2)
    read = lone.read(3, log=Epochs(epoch_2=20, epoch_3=log_end))

    assert (read.start_offset, _batches(read)) == (10, [(10, 14), (16, 19)])
    assert lone.summarize().delivery_complete_count == 9
    assert lone.told == [
        (
            "share_state_cut",
            {"topic": "t", "partition": 0, "first_offset": 20, "last_offset": 40},
        )
    ]
    assert lone.replayed(lone.records).states == lone.shard.states
    count = len(lone.records)
    assert _batches(lone.read(3, log=Epochs(epoch_2=20, epoch_3=log_end))) == _batches(read)
    assert len(lone.records) == count


def test_more_settled_records_than_a_state_can_count_are_as_many_as_it_can() -> None:
    """Nobody refuses a start far below the log's."""
    lone = Lone()
    lone.initialize(0)
    lone.read(2)
    lone.write((-(2**63), 29, 2, 1), start=-(2**63), complete=0, leader_epoch=2)
    lone.read(3, log=Epochs(epoch_2=20, epoch_3=20))

    assert lone.summarize().delivery_complete_count == 2**31 - 1
    assert lone.replayed(lone.records).states == lone.shard.states


def test_a_state_whose_start_is_lost_begins_where_its_log_ends() -> None:
    lone = Lone()
    lone.initialize(0)
    lone.write((30, 40, 2, 1), start=30, complete=11)
    read = lone.read(1, log=Epochs(epoch_0=20, epoch_1=60))

    assert (read.start_offset, read.state_batches) == (20, [])
    assert lone.read(0).error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("log", [Epochs(epoch_0=41, epoch_1=60), Epochs(epoch_0=41)])
def test_a_state_whose_records_are_all_there_is_not_cut(log: Epochs) -> None:
    lone = Lone()
    lone.initialize(0)
    lone.write((30, 40, 2, 1), start=30, complete=11)
    read = lone.read(1, log=log)

    assert (read.start_offset, _batches(read)) == (30, [(30, 40)])
    assert lone.told == []


def test_a_start_that_was_set_in_a_later_epoch_is_kept() -> None:
    lone = Lone()
    lone.initialize(0)
    lone.read(4)
    asked = InitializeShareGroupStateRequest.PartitionData(0, 1, 50)
    lone._done(lambda reply: lone.shard.initialize(KEY, asked, reply, lone.now, 4))

    assert lone.read(4, log=Epochs(epoch_1=20, epoch_4=60)).start_offset == 50
    assert lone.told == []


@pytest.mark.parametrize(("start", "kept"), [(50, 50), (60, 60), (70, 60)])
def test_a_state_that_names_an_older_epoch_than_it_is_of_is_cut_where_that_ends(
    start: int, kept: int
) -> None:
    """Apache Kafka names epoch 0 when offsets are altered; a leader of epoch 4 was here before."""
    lone = Lone()
    lone.initialize(0)
    lone.read(4)
    lone.initialize(start, epoch=1)
    assert lone.shard.states[KEY].leader_epoch == 0
    read = lone.read(5, log=Epochs(epoch_0=20, epoch_4=60, epoch_5=90))

    assert read.start_offset == kept
    assert len(lone.told) == (kept < start)
    assert lone.replayed(lone.records).states == lone.shard.states


def _ahead(lone: Lone, start: int) -> None:
    asked = InitializeShareGroupStateRequest.PartitionData(0, 0, start)
    lone._done(lambda reply: lone.shard.initialize(KEY, asked, reply, lone.now, NO_EPOCH))


@pytest.mark.parametrize("reads", [1, UPDATES_PER_SNAPSHOT + 2])
@pytest.mark.parametrize("is_snapshot", [False, True])
def test_a_start_that_the_log_has_yet_to_reach_is_kept(is_snapshot: bool, reads: int) -> None:
    """In all leader epochs to come, and over all snapshots."""
    lone = Lone()
    _ahead(lone, 50)
    for epoch in range(reads):
        assert lone.read(epoch, log=Epochs(epoch_0=20)).start_offset == 50
    if is_snapshot:
        lone.write_anew()
    lone.shard = lone.replayed(lone.records)
    read = lone.read(9, log=Epochs(epoch_0=20, epoch_9=30))

    assert (read.start_offset, read.state_batches) == (50, [])
    assert lone.summarize().leader_epoch == 9
    assert lone.told == []


@pytest.mark.parametrize("written", [{"start": 52}, {"start": 50, "batches": [(50, 51, 0, 1)]}])
def test_what_was_delivered_from_such_a_start_on_may_be_lost(written: dict[str, Any]) -> None:
    lone = Lone()
    _ahead(lone, 50)
    assert lone.summarize().leader_epoch == 0
    lone.read(1, log=Epochs(epoch_1=20))
    lone.write(*written.get("batches", ()), start=written["start"], leader_epoch=1)
    read = lone.read(2, log=Epochs(epoch_1=30, epoch_2=90))

    assert (read.start_offset, read.state_batches) == (30, [])
    assert lone.replayed(lone.records).states == lone.shard.states


def test_a_state_of_an_epoch_before_all_that_its_log_knows() -> None:
    """Records of that epoch are there no more, whether they were deleted or lost."""
    log = Epochs(start=20, epoch_3=60)
    for start, kept in ((10, 10), (20, 20), (30, 20)):
        lone = Lone()
        lone.initialize(start)
        assert lone.read(3, log=log).start_offset == kept
        assert len(lone.told) == (kept < start)


def test_what_is_written_in_a_later_epoch_speaks_of_records_of_that() -> None:
    """The leader may have got a new epoch while it delivered."""
    lone = Lone()
    lone.initialize(0)
    lone.read(2)
    lone.write((0, 40, 2, 1), start=0, leader_epoch=3)

    assert _batches(lone.read(4, log=Epochs(epoch_2=20, epoch_3=41, epoch_4=60))) == [(0, 40)]
    assert lone.told == []


def test_an_older_state_is_fenced_once_it_is_initialized_anew() -> None:
    lone = Lone()
    lone.initialize(0, epoch=1)
    lone.write((0, 3, 2, 1), state_epoch=1, start=0)
    lone.initialize(7, epoch=2)

    assert lone.write(state_epoch=1).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert lone.initialize(0, epoch=1).error_code == ErrorCode.FENCED_STATE_EPOCH
    read = lone.read()
    assert (read.state_epoch, read.start_offset, read.state_batches) == (2, 7, [])


def test_who_wants_no_more_than_a_state_changes_none() -> None:
    lone = Lone()
    lone.initialize(3, epoch=1, if_absent=True)
    lone.write((4, 5, 2, 1), state_epoch=1, start=3)
    written = len(lone.records)

    assert lone.initialize(epoch=2, if_absent=True).error_code == 0
    assert lone.initialize(epoch=0, if_absent=True).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert len(lone.records) == written
    read = lone.read()
    assert (read.state_epoch, read.start_offset, len(read.state_batches)) == (1, 3, 1)
    assert lone.write(state_epoch=1).error_code == 0, "nobody is fenced"


def test_a_snapshot_comes_after_so_many_updates() -> None:
    lone = Lone()
    lone.initialize(0)
    for offset in range(8):
        lone.write((offset, offset, 2, 1), start=0)

    kinds = [type(record.value) for record in lone.records]
    update, snapshot = ShareUpdateValue, ShareSnapshotValue
    assert kinds == [snapshot, update, update, update] * 2 + [snapshot]
    last = lone.records[-1].value
    assert isinstance(last, ShareSnapshotValue)
    assert [(one.first_offset, one.last_offset) for one in last.state_batches] == [(0, 7)]


def test_a_partition_that_is_not_there_is_refused() -> None:
    lone = Lone()
    beyond = KEY._replace(partition=2)
    elsewhere = KEY._replace(topic_id=bytes(16))
    negative = KEY._replace(partition=-1)

    for key in (beyond, elsewhere):
        assert lone.initialize(key=key).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert lone.delete(key).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert lone.summarize(key).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for answer in (
        lone.initialize(key=negative),
        lone.read(key=negative),
        lone.write(key=negative),
        lone.delete(negative),
        lone.summarize(negative),
    ):
        assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_that_is_gone_takes_its_states_with_it() -> None:
    lone = Lone()
    lone.initialize(0)
    lone.counts.clear()
    outcome = lone.shard.topics_deleted(["t"], lone.now)

    assert [record.value for record in outcome.records] == [None]
    assert lone.shard.states == {}


def test_a_topic_that_went_while_there_was_no_room_takes_its_states_with_it_later() -> None:
    """A shard writes nothing when it is loaded, for that would be refused again."""
    lone = Lone()
    lone.initialize(0)
    lone.counts.clear()
    assert not lone.shard.loaded(lone.now).records
    assert lone.shard.states

    outcome = lone.shard.snapshot_cold(1_000, lone.now)
    assert [record.value for record in outcome.records] == [None]
    assert lone.shard.states == {}


def test_a_state_is_deleted_and_may_begin_anew() -> None:
    lone = Lone()
    lone.initialize(3, epoch=5)
    lone.read(2)
    lone.delete()

    assert lone.initialize(0, epoch=0).error_code == 0
    assert lone.read(0).start_offset == 0


def test_snapshots_of_everything_replace_all_records_before() -> None:
    lone = Lone()
    other = KEY._replace(partition=1)
    lone.initialize(0)
    lone.initialize(4, key=other)
    lone.write((0, 3, 2, 1), start=0)
    before = {key: _shown(state) for key, state in lone.shard.states.items()}
    count = len(lone.records)

    lone.write_anew()
    replayed = lone.replayed(lone.records[count:])
    assert {key: _shown(state) for key, state in replayed.states.items()} == before


def test_what_had_no_snapshot_for_long_gets_one() -> None:
    lone = Lone()
    lone.initialize(0)
    lone.write((0, 3, 2, 1), start=0)
    before = _shown(lone.shard.states[KEY])
    lone.now = Moment(0, 1_900)
    lone.initialize(4, key=KEY._replace(partition=1))

    assert lone.snapshot_cold(1_000) == []
    lone.now = Moment(0, 2_000)
    assert lone.snapshot_cold(1_000) == [(0, 1, 1_000, 2_000)]
    assert _shown(lone.replayed(lone.records[-1:]).states[KEY]) == before
    assert lone.replayed(lone.records).states == lone.shard.states


def test_where_all_is_quiet_nothing_is_snapshot_again() -> None:
    lone = Lone()
    lone.initialize(0)
    lone.now = Moment(0, 2_000)
    assert len(lone.snapshot_cold(1_000)) == 1
    lone.now = Moment(0, 9_000)

    assert lone.snapshot_cold(1_000) == []
    for offset in range(UPDATES_PER_SNAPSHOT + 1):
        lone.write((offset, offset, 2, 1), start=0)
    lone.now = Moment(0, 10_000)
    assert len(lone.snapshot_cold(1_000)) == 1


def _shown(state: ShareState) -> tuple[Any, ...]:
    return state.start_offset, state.complete_count, state.state_epoch, state.batches


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("initialize"), st.integers(-1, 5), st.integers(-1, 3)),
        st.tuples(st.just("ahead"), st.integers(-1, 5)),
        st.tuples(st.just("read"), st.integers(-1, 4)),
        st.tuples(st.just("delete")),
        st.tuples(st.just("snapshot")),
        st.tuples(st.just("cold"), st.integers(0, 2_000)),
        st.tuples(
            st.just("write"),
            st.integers(0, 12),
            st.integers(0, 4),
            st.sampled_from((0, 2, 4)),
            st.integers(1, 4),
            st.integers(-1, 8),
            st.integers(-1, 4),
            st.integers(-1, 3),
        ),
    ),
    max_size=20,
)


@given(steps=STEPS)
def test_a_replay_gives_the_same_state(steps: list[tuple[Any, ...]]) -> None:
    lone = Lone()
    for step in steps:
        match step:
            case ("initialize", start, epoch):
                lone.initialize(start, epoch=epoch)
            case ("ahead", start):
                _ahead(lone, start)
            case ("read", epoch):
                lone.read(epoch)
            case ("delete",):
                lone.delete()
            case ("snapshot",):
                lone.write_anew()
            case ("cold", ms):
                lone.now = Moment(0, lone.now.wall_ms + ms)
                lone.snapshot_cold(1_000)
            case ("write", first, length, state, count, start, leader_epoch, state_epoch):
                lone.write(
                    (first, first + length, state, count),
                    start=start,
                    leader_epoch=leader_epoch,
                    state_epoch=state_epoch,
                )

        assert lone.replayed(lone.records).states == lone.shard.states


def test_the_place_of_a_state_is_that_of_its_text() -> None:
    assert KEY.placed_by == "g:AAECAwQFBgcICQoLDA0ODw:0"


@pytest.mark.parametrize("value", [None, ShareSnapshotValue(snapshot_epoch=3, start_offset=9)])
def test_records_come_back_as_they_were(value: ShareSnapshotValue | None) -> None:
    lone = Lone()
    lone.initialize(0)
    key = lone.records[0].key
    written = SHARE_RECORDS.encode(CoordinatorRecord(key, value), 7)

    assert SHARE_RECORDS.decode(written.key, written.value) == (key, value)
    assert written.key is not None
    assert written.key[:2] == b"\0\0"
