"""The records of one partition that a share group has in hand: a pure state machine (KIP-932).

    log:    ... settled | AVAILABLE ACQUIRED ACKNOWLEDGED AVAILABLE | not delivered yet ...
                        ^ start                                     ^ end

Everything before `start` is settled for good, nothing from `end` on was ever delivered; between
them each record is in one of four states. A record is acquired by one member at a time, under a
lock that ends; it comes back when it is released, when the lock ends or when its member goes, and
is given up when it was delivered too often. When the records at the start are settled the start
moves on.

Acknowledging takes two steps: `acknowledge` says what is to be written, and `complete` is told
when it is durable, or that it could not be. Until then nothing else may happen to those records.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from ottla.broker.coordinator.share.batches import StateBatch
from ottla.broker.share.runs import NOBODY, Line, RecordState, Run
from ottla.protocol.errors import ErrorCode, KafkaError

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""What a member says of a record: that there is none, that it is done with it, that somebody else
may have it, that nobody should, that it needs more time (KIP-1222)."""

_TARGETS = {
    GAP: RecordState.ARCHIVED,
    ACCEPT: RecordState.ACKNOWLEDGED,
    RELEASE: RecordState.AVAILABLE,
    REJECT: RecordState.ARCHIVED,
}
ARCHIVING = 3
_READ = {
    # Never written here. Who has acquired a record is not known any more, and what Apache Kafka
    # was about to archive is not delivered again.
    int(RecordState.ACQUIRED): RecordState.AVAILABLE,
    ARCHIVING: RecordState.ARCHIVED,
    int(RecordState.AVAILABLE): RecordState.AVAILABLE,
    int(RecordState.ACKNOWLEDGED): RecordState.ACKNOWLEDGED,
    int(RecordState.ARCHIVED): RecordState.ARCHIVED,
}
THROTTLE_MIN = 2
DELIVERY_COUNT_MAX = 0x7FFF
"""Of an answer and a state: whoever writes states may write just this."""


class Limits(NamedTuple):
    """What a group may; it may change at any time."""

    delivery_count: int = 5
    record_locks: int = 2000
    lock_ms: int = 30_000
    may_renew: bool = True

    @property
    def throttle_from(self) -> int:
        """Records that were delivered so often come back in ever smaller pieces, so that one that
        nobody can digest does not take its neighbours with it."""
        return max(THROTTLE_MIN, -(-self.delivery_count // 2))


class Found(NamedTuple):
    """A batch that was read from the log, its first and last offset; `aborted` if it belongs to a
    transaction that came to nothing, and the group is to see none of that."""

    first: int
    last: int
    aborted: bool = False


class Wish(NamedTuple):
    """How many records somebody wants, and in pieces of how many they are best acknowledged.
    Whole batches are acquired, even if that makes some more, unless `exactly`."""

    records: int
    piece: int = 1
    exactly: bool = False


class Acquired(NamedTuple):
    first: int
    last: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """One type for all records of the range, or one for each."""

    first: int
    last: int
    types: Sequence[int]


class Freed(NamedTuple):
    """Records whose lock has ended, what is to be written of them, and who held them."""

    batch: StateBatch
    member_id: str


class Transition:
    """Runs that are on their way to another state, until that is written. `said` is what a member
    said of how many records, a renewal too, which moves none; `given_up` are the runs that would go
    back and do not, for they were delivered as often as is allowed."""

    __slots__ = ("_given_up", "runs", "said")

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.said: dict[int, int] = {}
        self._given_up: list[StateBatch] = []

    def add(self, run: Run, target: RecordState) -> None:
        assert run.transition is None, run
        run.transition = self
        run.target = target
        self.runs.append(run)

    def give_up(self, run: Run) -> None:
        """It was added, to be archived, though it was to go back."""
        self._given_up.append(StateBatch(run.first, run.last, int(run.target), run.delivery_count))

    @property
    def given_up(self) -> list[StateBatch]:
        return _as_batches(self._given_up)

    @property
    def batches(self) -> list[StateBatch]:
        """What is to be written."""
        return _as_batches(
            StateBatch(run.first, run.last, int(run.target), run.delivery_count)
            for run in self.runs
        )


class Window:
    """One share partition; offsets from `start` on, below `end`, are in hand."""

    def __init__(self, start: int, batches: Iterable[StateBatch] = ()) -> None:
        """As it was written down. Records that nothing was written of are available: who held
        them is not known. Raises ValueError if a batch is in no state that there is."""
        self.start = start
        self.end = start
        self._line = Line()
        # Counted along, for they are asked for with each acknowledgement and each fetch.
        self._settled_count = 0
        self._available_count = 0
        self._next_deadline_ms: int | None = None
        for batch in batches:
            first = max(batch.first, self.end)
            if batch.last >= first:
                self._extend(Run(self.end, first - 1))
                state = _READ.get(batch.state)
                if state is None:
                    raise ValueError(f"{batch} is in no state that there is")
                self._extend(Run(first, batch.last, state, batch.delivery_count))
        self._advance()

    def __repr__(self) -> str:
        return f"<Window {self.start}-{self.end} {list(self._line)}>"

    @property
    def runs(self) -> list[Run]:
        return list(self._line)

    @property
    def next_deadline_ms(self) -> int | None:
        """When to call `expire`; nothing is due before, though nothing need be due then."""
        return self._next_deadline_ms

    @property
    def settled_count(self) -> int:
        """Records in hand that are, or are about to be, in a final state."""
        return self._settled_count

    @property
    def available_count(self) -> int:
        """Records in hand that wait for somebody to acquire them."""
        return self._available_count

    @property
    def acquired_count(self) -> int:
        """Records that a member holds, or that are just on their way back from it."""
        return self.end - self.start - self._settled_count - self._available_count

    def next_offset(self) -> int:
        """Where to read the log for what can be acquired next."""
        if not self._available_count:
            return self.end
        for run in self._line:
            if run.can_be_acquired:
                return run.first
        return self.end

    def span(self, offset: int, records: int) -> int:
        """How many offsets from this one on hold so many records that can be acquired, if all can
        be that lie behind the end."""
        left = records
        for run in self._line.over(offset, self.end - 1) if self._available_count else ():
            if run.can_be_acquired:
                begins = max(run.first, offset)
                if run.last - begins + 1 >= left:
                    return begins + left - offset
                left -= run.last - begins + 1
        return max(self.end - offset, 0) + left

    def has_room(self, limits: Limits) -> bool:
        """Whether anything can be acquired, should it be in the log."""
        return self.end - self.start < limits.record_locks or self._available_count > 0

    # what members do

    def acquire(
        self,
        member_id: str,
        found: Sequence[Found],
        wish: Wish,
        limits: Limits,
        *,
        read_from: int,
        now_ms: int,
    ) -> list[Acquired]:
        """Acquires what can be of the batches that were found in the log by a read from
        `read_from` on; in the order of offsets, none if nothing can be."""
        if not found or found[-1].last < self.start:
            return []
        if found[0].first > read_from:
            self._pass_over(read_from, found[0].first)
        last = found[-1].last
        came_to_nothing = _stretches([one for one in found if one.aborted])
        taken: list[Run] = []
        left = wish.records
        position = max(found[0].first, self.start)
        while position <= last and left > 0:
            if not taken:
                first = found[bisect_left(found, position, key=_last_of)].first
                if first > position:  # a gap by itself would be an answer without a batch
                    self._advance()
                    if first > max(self.end, self.start + limits.record_locks):
                        break
                    self._pass_over(position, first)
                    position = max(first, self.start)
                    continue
            if position >= self.end:
                left = min(left, limits.record_locks - (self.end - self.start))
                if left <= 0:
                    break
                upto = min(last, _reach(found, position + left - 1, exactly=wish.exactly))
                self._extend(Run(position, upto))
            run = self._line.holding(position)
            if not run.can_be_acquired:
                position = run.last + 1
                continue
            aborted = _aborted_from(came_to_nothing, position)
            if aborted is not None and aborted.first <= position:
                upto = min(run.last, aborted.last)
                self._give_up(position, upto)
                position = upto + 1
                continue
            _limit(run, limits)
            alone = run.together_max > 0
            if alone and taken:
                break
            upto = min(run.last, last)
            if alone:
                upto = min(upto, position + run.together_max - 1)
            if wish.exactly or not alone:
                upto = min(upto, _reach(found, position + left - 1, exactly=wish.exactly))
            if aborted is not None:
                upto = min(upto, aborted.first - 1)
            taken += self._take(position, upto, member_id, now_ms + limits.lock_ms)
            if alone:
                break
            left -= upto - position + 1
            position = upto + 1
        acquired = _acquired(taken, found, 0 if wish.exactly else wish.piece)
        self._advance()
        return acquired

    def acknowledge(
        self, member_id: str, said: Sequence[Acknowledgement], limits: Limits, *, now_ms: int
    ) -> Transition:
        """All of it or nothing. Raises KafkaError for the first that is wrong: INVALID_RECORD_STATE
        if a record is not held by this member, INVALID_REQUEST if it was never delivered. A
        transition of no runs needs not be written."""
        plan: list[tuple[int, int, int]] = []
        before = -1
        for one in said:
            if one.first <= before:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "It is acknowledged already.")
            before = one.last
            if one.last < self.start:
                continue
            self._check_known(one)
            for first, last, kind in _by_type(one):
                if last < self.start:
                    continue
                plan.append((max(first, self.start), last, kind))
                for run in self._line.over(max(first, self.start), last):
                    _check_held(run, member_id)
                if kind == RENEW and not limits.may_renew:
                    reason = "Renewing acquisition locks is not enabled for the group."
                    raise KafkaError(ErrorCode.INVALID_RECORD_STATE, reason)
        transition = Transition()
        for first, last, kind in plan:
            transition.said[kind] = transition.said.get(kind, 0) + last - first + 1
            for run in self._line.cut(first, last):
                if kind == RENEW:
                    run.lock_until_ms = now_ms + limits.lock_ms
                    self._wake_at(run.lock_until_ms)
                else:
                    self._aim(run, _TARGETS[kind], limits, transition)
        return transition

    def release(self, member_id: str, limits: Limits) -> Transition:
        """Whatever the member holds goes back: its session ended."""
        transition = Transition()
        for run in self._line:
            if run.member_id == member_id and run.transition is None:
                self._aim(run, RecordState.AVAILABLE, limits, transition)
        return transition

    def complete(
        self, transition: Transition, limits: Limits, *, is_written: bool, now_ms: int
    ) -> list[Freed]:
        """The transition is durable and takes place; or it could not be written, and the records
        are held as before, unless the lock has ended meanwhile: what is returned is to be written
        of that, though it counts already."""
        freed: list[Freed] = []
        for run in transition.runs:
            run.transition = None
            is_here = run.first >= self.start
            if is_here:
                self._count(run, -1)
            if is_written:
                run.become(run.target)
            elif run.lock_until_ms <= now_ms:
                member_id = run.member_id
                run.become(_target(run, RecordState.AVAILABLE, limits))
                freed.append(Freed(_batch_of(run), member_id))
            else:
                run.target = run.state
            if is_here:
                self._count(run, 1)
        self._advance()
        return freed

    def expire(self, limits: Limits, *, now_ms: int) -> list[Freed]:
        """Ends the locks that are due; what is to be written of it, though it counts already."""
        freed: list[Freed] = []
        deadlines: list[int] = []
        for run in self._line:
            if run.state is not RecordState.ACQUIRED:
                continue
            if run.lock_until_ms > now_ms:
                deadlines.append(run.lock_until_ms)
            elif run.transition is None:
                member_id = run.member_id
                self._become(run, _target(run, RecordState.AVAILABLE, limits))
                freed.append(Freed(_batch_of(run), member_id))
        self._next_deadline_ms = min(deadlines, default=None)
        self._advance()
        return freed

    def move_start(self, offset: int) -> None:
        """The log begins at a later offset: what lay before is gone, whoever held it."""
        if offset <= self.start:
            return
        self._drop_below(offset)
        self.start = offset
        self.end = max(self.end, offset)
        self._advance()

    # inside

    def _extend(self, run: Run) -> None:
        assert run.first == self.end
        if run.last >= run.first:
            self._line.append(run)
            self._count(run, 1)
            self.end = run.last + 1

    def _take(self, first: int, last: int, member_id: str, lock_until_ms: int) -> list[Run]:
        runs = self._line.cut(first, last)
        for run in runs:
            self._become(run, RecordState.ACQUIRED)
            run.delivery_count = min(run.delivery_count + 1, DELIVERY_COUNT_MAX)
            run.together_max = run.together_max // 2
            run.member_id = member_id
            run.lock_until_ms = lock_until_ms
        self._wake_at(lock_until_ms)
        return runs

    def _give_up(self, first: int, last: int) -> None:
        for run in self._line.cut(first, last):
            self._become(run, RecordState.ARCHIVED)

    def _pass_over(self, first: int, upto: int) -> None:
        """Nothing is in the log between these: compaction took it. Nobody can acquire it."""
        if not self._line:
            self.start = self.end = max(upto, self.end)
            return
        if upto > self.end:
            self._extend(Run(self.end, upto - 1))
        for run in self._line.over(first, upto - 1):
            if run.can_be_acquired:
                self._give_up(max(run.first, first), min(run.last, upto - 1))
        self._advance()

    def _check_known(self, one: Acknowledgement) -> None:
        if not self._line:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "No such record is in hand.")
        if one.last >= self.end:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Some records were never delivered.")

    def _advance(self) -> None:
        """The start moves over what is settled."""
        start = self.start
        for run in self._line:
            if run.transition is not None or not run.state.is_final:
                break
            start = run.last + 1
        if start > self.start:
            self._drop_below(start)
            self.start = start
        self._line.join()

    def _become(self, run: Run, state: RecordState) -> None:
        self._count(run, -1)
        run.become(state)
        self._count(run, 1)

    def _aim(self, run: Run, wanted: RecordState, limits: Limits, transition: Transition) -> None:
        self._count(run, -1)
        target = _target(run, wanted, limits)
        transition.add(run, target)
        if target is not wanted:
            transition.give_up(run)
        self._count(run, 1)

    def _count(self, run: Run, sign: int) -> None:
        """A run comes into the line, or leaves it."""
        if run.target.is_final:
            self._settled_count += sign * run.count
        elif run.state is RecordState.AVAILABLE:
            self._available_count += sign * run.count

    def _drop_below(self, offset: int) -> None:
        for run in self._line.drop_below(offset):
            self._count(run, -1)

    def _wake_at(self, deadline_ms: int) -> None:
        if self._next_deadline_ms is None or deadline_ms < self._next_deadline_ms:
            self._next_deadline_ms = deadline_ms


def _limit(run: Run, limits: Limits) -> None:
    """Available records that were delivered often come alone, in ever smaller pieces: half of what
    they were when that began, then half of that, and one by one for the last time."""
    most = limits.delivery_count
    if run.delivery_count < limits.throttle_from:
        run.together_max = 0
    elif most > THROTTLE_MIN and run.delivery_count >= most - 1:
        run.together_max = 1
    elif not run.together_max:
        run.together_max = max(run.count // 2, 1)


def _reach(found: Sequence[Found], offset: int, *, exactly: bool) -> int:
    """The end of the batch that an offset lies in."""
    if exactly:
        return offset
    batch = found[max(bisect_right(found, offset, key=_first_of) - 1, 0)]
    return max(batch.last, offset)


def _stretches(batches: Sequence[Found]) -> list[Found]:
    """Batches that lie side by side as one, for what is done with one may take as long."""
    stretches: list[Found] = []
    for batch in batches:
        if stretches and stretches[-1].last + 1 == batch.first:
            stretches[-1] = Found(stretches[-1].first, batch.last, aborted=True)
        else:
            stretches.append(batch)
    return stretches


def _aborted_from(aborted: Sequence[Found], offset: int) -> Found | None:
    """The aborted batch that the offset lies in, or the next one."""
    index = bisect_left(aborted, offset, key=_last_of)
    return aborted[index] if index < len(aborted) else None


def _first_of(batch: Found) -> int:
    return batch.first


def _last_of(batch: Found) -> int:
    return batch.last


def _acquired(runs: Sequence[Run], found: Sequence[Found], piece: int) -> list[Acquired]:
    """What a member is told: neighbours of one delivery count together, but in pieces that begin
    with a batch once they would be larger than `piece`, if that is a number of records."""
    together: list[Acquired] = []
    for run in runs:
        if together and together[-1].last + 1 == run.first:
            before = together[-1]
            if before.delivery_count == run.delivery_count:
                together[-1] = before._replace(last=run.last)
                continue
        together.append(Acquired(run.first, run.last, run.delivery_count))
    if piece <= 0:
        return together
    pieces: list[Acquired] = []
    for one in together:
        first = one.first
        if one.last - first + 1 > piece:
            for index in range(bisect_left(found, first + piece, key=_first_of), len(found)):
                batch = found[index]
                if batch.first > one.last:
                    break
                if batch.first >= first + piece:
                    pieces.append(Acquired(first, batch.first - 1, one.delivery_count))
                    first = batch.first
        pieces.append(Acquired(first, one.last, one.delivery_count))
    return pieces


def _by_type(one: Acknowledgement) -> Iterable[tuple[int, int, int]]:
    """The ranges of one type."""
    if len(one.types) == 1:
        yield one.first, one.last, one.types[0]
        return
    first = one.first
    for kind, same in groupby(one.types):
        last = first + sum(1 for _ in same) - 1
        yield first, last, kind
        first = last + 1


def _check_held(run: Run, member_id: str) -> None:
    if run.state is not RecordState.ACQUIRED:
        raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "The record is not acquired.")
    if run.transition is not None:
        raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "It is acknowledged already.")
    if run.member_id != member_id or member_id == NOBODY:
        raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Another member has acquired the record.")


def _target(run: Run, target: RecordState, limits: Limits) -> RecordState:
    """Nobody gets a record again that was delivered as often as is allowed."""
    given_up = run.delivery_count >= limits.delivery_count
    if target is RecordState.AVAILABLE and given_up:
        return RecordState.ARCHIVED
    return target


def _batch_of(run: Run) -> StateBatch:
    return StateBatch(run.first, run.last, int(run.state), run.delivery_count)


def _as_batches(batches: Iterable[StateBatch]) -> list[StateBatch]:
    joined: list[StateBatch] = []
    for batch in sorted(batches):
        if joined and joined[-1].last + 1 == batch.first and joined[-1][2:] == batch[2:]:
            joined[-1] = joined[-1]._replace(last=batch.last)
        else:
            joined.append(batch)
    return joined
