"""The window of a share partition against a table of its records, one row for each (Q1).

Held against the table after every step: a record is held by one member at a time, and handed out
only when it is available; it is delivered at most as often as the limit says; what is acknowledged
or given up never comes back; the start never goes back; a lock that ends frees its records.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.broker.share.runs import RecordState
from ottla.broker.share.window import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    Found,
    Limits,
    Transition,
    Window,
    Wish,
)
from ottla.protocol.errors import ErrorCode, KafkaError

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED
MEMBERS = ("a", "b", "c")
LOCK_MS = 100
TARGETS = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}
LIMITS = st.builds(
    lambda count, locks: Limits(count, locks, LOCK_MS), st.integers(2, 6), st.integers(4, 30)
)


@dataclass
class Row:
    state: RecordState = AVAILABLE
    count: int = 0
    member: str = ""
    until_ms: int = 0
    transition: Transition | None = None
    target: RecordState = AVAILABLE


class Model(RuleBasedStateMachine):
    @initialize(limits=LIMITS, start=st.integers(0, 3))
    def begin(self, limits: Limits, start: int) -> None:
        self.limits = limits
        self.window = Window(start)
        self.rows: dict[int, Row] = {}
        self.log: list[Found] = []
        self.log_end = 0
        self.log_start = 0
        self.now_ms = 0
        self.pending: list[Transition] = []
        self.highest_start = start

    @rule(
        sizes=st.lists(st.integers(1, 6), min_size=1, max_size=3),
        hole=st.sampled_from((0, 0, 0, 2)),
        aborted=st.sampled_from((False, False, False, True)),
    )
    def produce(self, sizes: list[int], hole: int, aborted: bool) -> None:
        """Batches come to the log, perhaps behind a hole that compaction left."""
        self.log_end += hole
        for size in sizes:
            self.log.append(Found(self.log_end, self.log_end + size - 1, aborted))
            self.log_end += size

    @rule(index=st.integers(0, 30))
    def compact(self, index: int) -> None:
        """A batch goes out of the log, whatever became of its records."""
        if self.log:
            del self.log[index % len(self.log)]

    @rule(
        member=st.sampled_from(MEMBERS),
        records=st.integers(1, 12),
        piece=st.integers(1, 8),
        exactly=st.booleans(),
        batches=st.integers(1, 4),
    )
    def acquire(self, member: str, records: int, piece: int, exactly: bool, batches: int) -> None:
        read_from = self.window.next_offset()
        found = [one for one in self.log if one.last >= read_from][:batches]
        if not found or not self.window.has_room(self.limits):
            return
        first, limits = found[0].first, self.limits
        start_before, end_before = self.window.start, self.window.end
        acquired = self.window.acquire(
            member,
            found,
            Wish(records, piece, exactly),
            limits,
            read_from=read_from,
            now_ms=self.now_ms,
        )
        for offset in range(read_from, first):
            row = self.rows.get(offset, Row())
            if row.state is AVAILABLE and row.transition is None:
                row.state = row.target = ARCHIVED
                self.rows[offset] = row
        offsets: list[int] = []
        for one in acquired:
            for offset in range(one.first, one.last + 1):
                row = self.rows.setdefault(offset, Row())
                assert row.state is AVAILABLE
                assert row.transition is None
                assert row.count < limits.delivery_count
                row.state = row.target = ACQUIRED
                row.count += 1
                row.member = member
                row.until_ms = self.now_ms + LOCK_MS
                assert row.count == one.delivery_count
                offsets.append(offset)
        assert offsets == sorted(set(offsets))
        for batch in found:
            for offset in range(batch.first, batch.last + 1):
                row = self.rows.get(offset, Row())
                if batch.aborted:
                    assert offset not in offsets
                    if self._state(offset) is ARCHIVED and row.state is AVAILABLE:
                        self.rows[offset] = Row(ARCHIVED, row.count, target=ARCHIVED)
        if exactly:
            assert len(offsets) <= records
        if offsets:
            assert any(batch.first <= offsets[0] <= batch.last for batch in found)
        has_passed = first > read_from
        for hole in self._holes(found, upto=offsets[0] if offsets else found[-1].last):
            row = self.rows.get(hole, Row())
            if self._state(hole) is ARCHIVED and row.state is AVAILABLE:
                assert row.transition is None
                self.rows[hole] = Row(ARCHIVED, row.count, target=ARCHIVED)
                has_passed = True
        # A hole in the log makes room where it is passed over, and no other way is there.
        start = self.window.start if has_passed else start_before
        is_full = end_before - start >= limits.record_locks
        if is_full and first <= end_before:
            assert self.window.end == end_before

    def _holes(self, found: list[Found], *, upto: int) -> list[int]:
        """The offsets between batches, up to one."""
        return [
            offset
            for before, behind in pairwise(found)
            for offset in range(before.last + 1, behind.first)
            if offset < upto
        ]

    @rule(
        member=st.sampled_from(MEMBERS),
        first=st.integers(0, 12),
        length=st.integers(0, 8),
        types=st.lists(st.sampled_from((GAP, ACCEPT, RELEASE, REJECT, RENEW)), min_size=9),
        single=st.booleans(),
    )
    def acknowledge(
        self, member: str, first: int, length: int, types: list[int], single: bool
    ) -> None:
        first += self.window.start
        last = first + length
        said = types[:1] if single else types[: length + 1]
        rows = [self.rows.get(offset, Row()) for offset in range(first, last + 1)]
        is_held = all(
            row.state is ACQUIRED and row.member == member and row.transition is None
            for row in rows
        )
        told = Acknowledgement(first, last, said)
        if not is_held:
            unknown = last >= self.window.end > self.window.start
            with pytest.raises(KafkaError) as refused:
                self.window.acknowledge(member, [told], self.limits, now_ms=self.now_ms)
            code = ErrorCode.INVALID_REQUEST if unknown else ErrorCode.INVALID_RECORD_STATE
            assert refused.value.code is code
            return
        transition = self.window.acknowledge(member, [told], self.limits, now_ms=self.now_ms)
        for index, row in enumerate(rows):
            kind = said[0] if single else said[index]
            if kind == RENEW:
                row.until_ms = self.now_ms + LOCK_MS
            else:
                self._start(row, transition, TARGETS[kind])
        if transition.runs:
            self.pending.append(transition)

    @rule(member=st.sampled_from(MEMBERS))
    def release(self, member: str) -> None:
        """The member's session ends."""
        transition = self.window.release(member, self.limits)
        for row in self.rows.values():
            if row.member == member and row.state is ACQUIRED and row.transition is None:
                self._start(row, transition, AVAILABLE)
        if transition.runs:
            self.pending.append(transition)

    @precondition(lambda self: self.pending)
    @rule(is_written=st.sampled_from((True, True, False)))
    def complete(self, is_written: bool) -> None:
        transition = self.pending.pop(0)
        covered = [
            offset
            for batch in transition.batches
            for offset in range(batch.first, batch.last + 1)
            if offset >= self.window.start
        ]
        own = [offset for offset, row in self.rows.items() if row.transition is transition]
        assert sorted(own) == covered
        self.window.complete(transition, self.limits, is_written=is_written, now_ms=self.now_ms)
        for row in self.rows.values():
            if row.transition is not transition:
                continue
            row.transition = None
            if is_written:
                self._put(row, row.target)
            elif row.until_ms <= self.now_ms:
                self._free(row)
            row.target = row.state
        self._forget()

    @rule(ms=st.integers(1, 150))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        due = [
            offset
            for offset, row in self.rows.items()
            if row.state is ACQUIRED and row.transition is None and row.until_ms <= self.now_ms
        ]
        wakes = self.window.next_deadline_ms
        assert not due or (wakes is not None and wakes <= self.now_ms)
        freed = self.window.expire(self.limits, now_ms=self.now_ms)
        assert [
            (offset, member_id)
            for batch, member_id in freed
            for offset in range(batch.first, batch.last + 1)
        ] == [(offset, self.rows[offset].member) for offset in sorted(due)]
        for offset in due:
            self._free(self.rows[offset])
        self._forget()

    @rule(by=st.integers(1, 10))
    def the_log_is_cut_off(self, by: int) -> None:
        self.log_start = min(self.log_start + by, self.log_end)
        self.log = [one for one in self.log if one.last >= self.log_start]
        self.window.move_start(self.log_start)
        self._forget()

    @rule()
    def a_new_leader_begins(self) -> None:
        """Everything that is settled or was given back is read again; who held what is not."""
        if self.pending or any(row.state is ACQUIRED for row in self.rows.values()):
            return
        written = Transition()
        for run in self.window.runs:
            run.transition = None
            written.add(run, run.state)
        batches = written.batches
        for run in self.window.runs:
            run.transition = None
        self.window = Window(self.window.start, batches)

    @invariant()
    def the_table_is_the_same(self) -> None:
        if not hasattr(self, "window"):
            return
        self._forget()
        window = self.window
        assert window.start >= self.highest_start
        self.highest_start = window.start
        position = window.start
        for run in window.runs:
            assert run.first == position
            assert run.last >= run.first
            for offset in range(run.first, run.last + 1):
                row = self.rows.get(offset, Row())
                shown = (run.state, run.delivery_count, run.member_id)
                assert shown == (row.state, row.count, row.member), offset
                assert (run.transition is None) == (row.transition is None)
                assert run.target is (row.target if row.state is not AVAILABLE else run.target)
                if run.state is ACQUIRED:
                    assert run.lock_until_ms == row.until_ms
            position = run.last + 1
        assert position == window.end
        settled = [row for row in self.rows.values() if row.target in (ACKNOWLEDGED, ARCHIVED)]
        assert window.settled_count == len(settled)
        free = [run.first for run in window.runs if run.can_be_acquired]
        assert window.next_offset() == (free[0] if free else window.end)
        room = window.end - window.start < self.limits.record_locks
        assert window.has_room(self.limits) == (room or bool(free))

    def _state(self, offset: int) -> RecordState:
        for run in self.window.runs:
            if run.first <= offset <= run.last:
                return run.state
        return ARCHIVED if offset < self.window.start else AVAILABLE

    def _start(self, row: Row, transition: Transition, target: RecordState) -> None:
        if target is AVAILABLE and row.count >= self.limits.delivery_count:
            target = ARCHIVED
        row.transition, row.target = transition, target

    def _free(self, row: Row) -> None:
        given_up = row.count >= self.limits.delivery_count
        self._put(row, ARCHIVED if given_up else AVAILABLE)

    def _put(self, row: Row, state: RecordState) -> None:
        row.state = row.target = state
        row.member, row.until_ms = "", 0

    def _forget(self) -> None:
        """Rows below the start are settled for good."""
        for offset in [one for one in self.rows if one < self.window.start]:
            row = self.rows.pop(offset)
            is_cut_off = offset < self.log_start
            assert is_cut_off or row.state in (ACKNOWLEDGED, ARCHIVED), (offset, row)


Model.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestModel = Model.TestCase
