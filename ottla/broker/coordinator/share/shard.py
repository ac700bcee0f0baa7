"""The share partitions of one partition of __share_group_state: a pure state machine.

A share partition is initialized by the coordinator of its group, read by the broker that leads the
topic's partition when it begins to deliver for the group, written whenever records are
acknowledged or given back, and deleted with its group or its topic. Two epochs fence those who do
not know yet that they are replaced: the leader epoch those who led the partition, the state epoch
those who knew the state before it was initialized anew.

Every so many updates a snapshot is written in place of the next, so that a replay merges no more
than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ottla.broker.coordinator.outcome import (
    Anew,
    Answer,
    CoordinatorRecord,
    Moment,
    Outcome,
    Reply,
    Told,
)
from ottla.broker.coordinator.share.batches import NO_OFFSET, StateBatch, merged, merged_into
from ottla.broker.coordinator.share.state import (
    FIRST_EPOCH,
    NO_COUNT,
    NO_EPOCH,
    SharePartitionKey,
    ShareState,
    in_snapshot,
    in_update,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.coordinator_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from ottla.protocol.messages.share_state import (
    DeleteShareGroupStateResponse,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryResponse,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)

Initialized = InitializeShareGroupStateResponse.PartitionResult
Read = ReadShareGroupStateResponse.PartitionResult
Written = WriteShareGroupStateResponse.PartitionResult
Deleted = DeleteShareGroupStateResponse.PartitionResult
Summary = ReadShareGroupStateSummaryResponse.PartitionResult


class TopicLog(Protocol):
    """The log whose records a state speaks of."""

    topic: str
    log_end_offset: int

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]: ...


class ShareShard:
    """One shard. `updates_per_snapshot` is asked at each write; `partition_count_of` is what the
    metadata says of a topic's id, None of one that is not there."""

    def __init__(
        self,
        *,
        updates_per_snapshot: Callable[[], int],
        partition_count_of: Callable[[bytes], int | None],
    ) -> None:
        self._updates_per_snapshot = updates_per_snapshot
        self._partition_count_of = partition_count_of
        self.states: dict[SharePartitionKey, ShareState] = {}

    @property
    def record_count(self) -> int:
        """How many records it needs."""
        return len(self.states)

    def __repr__(self) -> str:
        return f"<ShareShard partitions={len(self.states)}>"

    # commands; each is answered with the result of its API for one partition

    def initialize(
        self,
        key: SharePartitionKey,
        request: InitializeShareGroupStateRequest.PartitionData,
        reply: Reply,
        now: Moment,
        leader_epoch: int = FIRST_EPOCH,
        *,
        if_absent: bool = False,
    ) -> Outcome:
        """A fresh start: nothing of a state that was there is kept but its epochs; or, `if_absent`,
        all of it, for it is enough that there is one. The start offset is one of a log that is
        written to in this leader epoch, or, with NO_EPOCH, one that its log has yet to reach: the
        group waits for it."""

        def command(outcome: Outcome) -> Initialized:
            state = self.states.get(key)
            epoch = request.state_epoch
            if state is not None and NO_EPOCH != epoch < state.least_state_epoch:
                raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, "The state epoch is an old one.")
            self._check_topic(key)
            if if_absent and state is not None:
                return Initialized(key.partition)
            value = ShareSnapshotValue(
                snapshot_epoch=0 if state is None else state.snapshot_epoch + 1,
                state_epoch=epoch,
                leader_epoch=leader_epoch,
                start_offset=request.start_offset,
                delivery_complete_count=NO_COUNT if request.start_offset == NO_OFFSET else 0,
                create_timestamp=now.wall_ms,
                write_timestamp=now.wall_ms,
            )
            self._write(outcome, ShareSnapshotKey(*key), value, now)
            return Initialized(key.partition)

        return self._answered(command, Initialized(key.partition), reply, now)

    def read(
        self,
        key: SharePartitionKey,
        request: ReadShareGroupStateRequest.PartitionData,
        reply: Reply,
        now: Moment,
        log: TopicLog | None = None,
    ) -> Outcome:
        """The state, for a leader that begins to deliver; from now on older ones are fenced. Where
        its log has lost records that the state speaks of, the state is cut before them."""

        def command(outcome: Outcome) -> Read:
            if key.partition < 0:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "A partition is not negative.")
            state = self._initialized(key, "read")
            if NO_EPOCH != request.leader_epoch < state.least_leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, "The leader epoch is an old one.")
            self._check_topic(key)
            # The state may name an older epoch than it is of: who initializes it anew may know of
            # none.
            least = state.least_leader_epoch
            end = state.end_offset if log is None or state.is_ahead else _end_of(log, least)
            if log is not None and state.end_offset > end:
                leader_epoch = max(request.leader_epoch, state.leader_epoch, FIRST_EPOCH)
                self._cut(outcome, key, log.topic, end, leader_epoch, now)
            elif request.leader_epoch > state.leader_epoch:
                self._change(
                    outcome,
                    key,
                    now,
                    leader_epoch=request.leader_epoch,
                    start_offset=state.start_offset,
                    complete_count=state.complete_count,
                )
            state = self.states[key]
            return Read(
                key.partition,
                state_epoch=state.state_epoch,
                start_offset=state.start_offset,
                state_batches=[
                    ReadShareGroupStateResponse.StateBatch(*batch) for batch in state.batches
                ],
            )

        return self._answered(command, Read(key.partition), reply, now)

    def write(
        self,
        key: SharePartitionKey,
        request: WriteShareGroupStateRequest.PartitionData,
        reply: Reply,
        now: Moment,
    ) -> Outcome:
        """What has changed; a batch goes over what was known of its records."""

        def command(outcome: Outcome) -> Written:
            if key.partition < 0:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "A partition is not negative.")
            state = self._initialized(key, "written")
            if NO_EPOCH != request.leader_epoch < state.least_leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, "The leader epoch is an old one.")
            if NO_EPOCH != request.state_epoch < state.least_state_epoch:
                raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, "The state epoch is an old one.")
            self._check_topic(key)
            self._change(
                outcome,
                key,
                now,
                leader_epoch=max(state.leader_epoch, request.leader_epoch),
                start_offset=request.start_offset,
                complete_count=request.delivery_complete_count,
                batches=[
                    StateBatch(
                        one.first_offset, one.last_offset, one.delivery_state, one.delivery_count
                    )
                    for one in request.state_batches
                ],
            )
            return Written(key.partition)

        return self._answered(command, Written(key.partition), reply, now)

    def delete(self, key: SharePartitionKey, reply: Reply, now: Moment) -> Outcome:
        """What is not there is deleted."""

        def command(outcome: Outcome) -> Deleted:
            self._check_topic(key)
            if key in self.states:
                self._write(outcome, ShareSnapshotKey(*key), None, now)
            return Deleted(key.partition)

        return self._answered(command, Deleted(key.partition), reply, now)

    def summarize(self, key: SharePartitionKey, reply: Reply, now: Moment) -> Outcome:
        """Where the group begins; a start of -1 if that is not known yet."""

        def command(outcome: Outcome) -> Summary:
            self._check_topic(key)
            state = self.states.get(key)
            if state is None:
                return Summary(key.partition, start_offset=NO_OFFSET)
            return Summary(
                key.partition,
                state_epoch=state.state_epoch,
                leader_epoch=max(state.leader_epoch, FIRST_EPOCH),
                start_offset=state.start_offset,
                delivery_complete_count=state.complete_count,
            )

        return self._answered(command, Summary(key.partition), reply, now)

    def written_anew(self, now: Moment, log: range) -> Anew:
        """A snapshot of everything, so that no record before is needed any more."""
        outcome = Outcome(now)
        for key, state in self.states.items():
            value = state.snapshot(written_ms=now.wall_ms)
            self._write(outcome, ShareSnapshotKey(*key), value, now)
        return Anew(outcome, log.stop)

    def snapshot_cold(self, interval_ms: int, now: Moment) -> Outcome:
        """A snapshot of what had none for so long, so that no record before is needed any more;
        unless nothing was snapshot since for another reason: then all would be for nothing. And
        what is gone is forgotten, in case there was no room for that."""
        outcome = self.forget_gone(now)
        if all(state.is_cold for state in self.states.values()):
            return outcome
        for key, state in self.states.items():
            if now.wall_ms - state.written_ms >= interval_ms:
                value = state.snapshot(written_ms=now.wall_ms)
                self._write(outcome, ShareSnapshotKey(*key), value, now)
        return outcome

    def expire(self, now: Moment) -> Outcome:
        return Outcome(now)

    def topics_deleted(self, names: list[str], now: Moment) -> Outcome:
        return self.forget_gone(now)

    def forget_gone(self, now: Moment) -> Outcome:
        """The states of topics that are not there any more are deleted."""
        outcome = Outcome(now)
        for key in list(self.states):
            if self._partition_count_of(key.topic_id) is None:
                self._write(outcome, ShareSnapshotKey(*key), None, now)
        return outcome

    def loaded(self, now: Moment) -> Outcome:
        return Outcome(now)

    def unloaded(self, now: Moment) -> Outcome:
        return Outcome(now)

    # state

    def apply(self, record: CoordinatorRecord, now_wall_ms: int, producer_id: int = -1) -> None:
        key, value = record
        assert isinstance(key, ShareSnapshotKey | ShareUpdateKey), key
        place = SharePartitionKey(key.group_id, key.topic_id, key.partition)
        state = self.states.get(place)
        match value:
            case ShareSnapshotValue():
                self.states[place] = ShareState.from_snapshot(value, state)
            case ShareUpdateValue():
                if state is None:
                    self.states[place] = ShareState.from_update(value)
                else:
                    state.take(value)
            case _:
                assert value is None, value
                self.states.pop(place, None)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Nobody writes these records in a transaction."""

    def next_deadline_ms(self) -> int | None:
        return None

    # inside

    def _answered(
        self, command: Callable[[Outcome], Any], refused: Any, reply: Reply, now: Moment
    ) -> Outcome:
        outcome = Outcome(now)
        try:
            response = command(outcome)
        except KafkaError as error:
            response = refused
            response.error_code = int(error.code)
            response.error_message = error.message
        outcome.answers.append(Answer(reply, response))
        return outcome

    def _initialized(self, key: SharePartitionKey, verb: str) -> ShareState:
        state = self.states.get(key)
        if state is None:
            reason = f"A share partition is initialized before it is {verb}."
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        return state

    def _check_topic(self, key: SharePartitionKey) -> None:
        if key.partition < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A partition is not negative.")
        count = self._partition_count_of(key.topic_id)
        if count is None or key.partition >= count:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such partition.")

    def _change(
        self,
        outcome: Outcome,
        key: SharePartitionKey,
        now: Moment,
        *,
        leader_epoch: int,
        start_offset: int,
        complete_count: int,
        batches: list[StateBatch] | None = None,
    ) -> None:
        state = self.states[key]
        new = batches or []
        if state.updates < self._updates_per_snapshot():
            update = ShareUpdateValue(
                snapshot_epoch=state.snapshot_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=complete_count,
                state_batches=in_update(merged(new, start_offset)),
            )
            self._write(outcome, ShareUpdateKey(*key), update, now)
            return
        start = state.start_offset if start_offset == NO_OFFSET else start_offset
        is_ahead = state.stays_ahead(start, new)
        snapshot = ShareSnapshotValue(
            snapshot_epoch=state.snapshot_epoch + 1,
            state_epoch=state.state_epoch,
            leader_epoch=NO_EPOCH if is_ahead else max(leader_epoch, FIRST_EPOCH),
            start_offset=start,
            delivery_complete_count=complete_count,
            create_timestamp=now.wall_ms,
            write_timestamp=now.wall_ms,
            state_batches=in_snapshot(merged_into(state.batches, new, start)),
        )
        self._write(outcome, ShareSnapshotKey(*key), snapshot, now)

    def _cut(
        self,
        outcome: Outcome,
        key: SharePartitionKey,
        topic: str,
        end: int,
        leader_epoch: int,
        now: Moment,
    ) -> None:
        state = self.states[key]
        outcome.told.append(
            Told(
                "share_state_cut",
                key.group_id,
                "its log does not reach so far; what comes there now is delivered as new",
                {
                    "topic": topic,
                    "partition": key.partition,
                    "first_offset": end,
                    "last_offset": state.end_offset - 1,
                },
            )
        )
        value = state.cut_at(end, leader_epoch=leader_epoch, now_ms=now.wall_ms)
        self._write(outcome, ShareSnapshotKey(*key), value, now)

    def _write(
        self,
        outcome: Outcome,
        key: ShareSnapshotKey | ShareUpdateKey,
        value: ShareSnapshotValue | ShareUpdateValue | None,
        now: Moment,
    ) -> None:
        record = CoordinatorRecord(key, value)
        outcome.records.append(record)
        self.apply(record, now.wall_ms)


def _end_of(log: TopicLog, leader_epoch: int) -> int:
    """Where the records end that were there in a leader epoch. After it another leader, or the same
    after a crash, has begun there, perhaps without some that were there."""
    _, end = log.end_offset_for_epoch(leader_epoch)
    return log.log_end_offset if end == NO_OFFSET else end
