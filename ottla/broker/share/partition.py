"""One partition as one group shares it: the window at work, its timer, and who waits for it.

No rules here: `window.py` decides, this writes what it says, wakes it when a lock ends, and tells
the fetches that wait when there may be something to acquire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ottla.broker.coordinator.share.batches import StateBatch, merged
from ottla.broker.coordinator.share.state import SharePartitionKey
from ottla.broker.log.log import UPPER_HIGH_WATERMARK, UPPER_LAST_STABLE
from ottla.broker.log.time_search import TimedOffset
from ottla.broker.replication.replicas import Partition
from ottla.broker.share.given_up import GivenUp
from ottla.broker.share.overdue import Lapsed
from ottla.broker.share.rules import EARLIEST, ShareRules
from ottla.broker.share.store import FENCING, Done, State
from ottla.broker.share.window import (
    Acknowledgement,
    Acquired,
    Found,
    Freed,
    Transition,
    Window,
    Wish,
)
from ottla.config.group import duration_ms
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.share.partitions import SharePartitions

MS_PER_S = 1000
UNKNOWN_START = -1
TELL_EVERY_S = 1.0
"""Between two events of one share partition that say what was given up, for each reason."""


class ShareWaiter(Protocol):
    """A share fetch that waits. `advanced`: there may be something to acquire. `interrupted`: the
    share partition is no more, so the answer must be made now."""

    def advanced(self) -> None: ...

    def interrupted(self) -> None: ...


class SharePartition:
    """`window` is None until the state is read, and `failure` says why that could not be; who
    waits goes on to do so."""

    __slots__ = (
        "_given_up",
        "_lapsed",
        "_owed",
        "_owner",
        "_telling",
        "_timer",
        "_timer_ms",
        "failure",
        "is_fenced",
        "is_passing",
        "key",
        "partition",
        "state_epoch",
        "waiters",
        "window",
    )

    def __init__(
        self, owner: SharePartitions, key: SharePartitionKey, partition: Partition
    ) -> None:
        self._owner = owner
        self.key = key
        self.partition = partition
        self.state_epoch = 0
        self.window: Window | None = None
        self.failure: KafkaError | None = None
        self.is_fenced = False
        self.is_passing = False
        """Whether the newest fetch passed over batches and came to no end of them in its turn."""
        self.waiters: dict[ShareWaiter, None] = {}
        self._owed: tuple[StateBatch, ...] = ()
        """What counts already and could not be written: it is written with what comes next."""
        self._lapsed: Lapsed | None = None
        """The locks that have ended so: they are counted and told of when that is written."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._given_up = GivenUp()
        self._telling: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        state = self.failure if self.window is None else self.window
        return f"<SharePartition {self.key.group_id} {self.partition!r} {state}>"

    @property
    def rules(self) -> ShareRules:
        return self._owner.rules(self.key.group_id)

    @property
    def upper(self) -> int:
        """The end up to which records are delivered, as `Log.read` takes it."""
        return UPPER_LAST_STABLE if self.rules.read_committed else UPPER_HIGH_WATERMARK

    @property
    def has_more(self) -> bool:
        """Whether something lies below that which may be acquired."""
        log = self.partition.log
        end = log.last_stable_offset if self.rules.read_committed else log.high_watermark
        return self.window is not None and self.window.next_offset() < end

    def load(self) -> None:
        self._owner.store.read(self.key, self.partition, self._loaded)

    def acquire(
        self, member_id: str, found: Sequence[Found], wish: Wish, *, read_from: int
    ) -> list[Acquired]:
        assert self.window is not None
        acquired = self.window.acquire(
            member_id,
            found,
            wish,
            self.rules.limits,
            read_from=read_from,
            now_ms=self._now_ms(),
        )
        self._arm()
        return acquired

    def acknowledge(self, member_id: str, said: Sequence[Acknowledgement], done: Done) -> None:
        """Calls `done` when it is durable, or with the reason why nothing of it took place."""
        if self.window is None:
            done(KafkaError(ErrorCode.INVALID_RECORD_STATE, "The record is not acquired."))
            return
        try:
            transition = self.window.acknowledge(
                member_id, said, self.rules.limits, now_ms=self._now_ms()
            )
        except KafkaError as error:
            done(error)
            return
        self._arm()
        self._write(transition, "its member released it", done)

    def release(self, member_id: str, reason: str) -> None:
        """What the member holds goes back."""
        if self.window is None:
            return
        transition = self.window.release(member_id, self.rules.limits)
        if transition.runs:
            self._write(transition, reason, _nobody_waits)

    def log_begins_at(self, offset: int) -> None:
        """Records were deleted from the log, so they are nobody's any more."""
        if self.window is not None:
            self.window.move_start(offset)

    def fence(self) -> None:
        """It is not delivered from here any more."""
        self.is_fenced = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._telling is not None:
            self._telling.cancel()
            self._tell_given_up()
        if self.failure is None:
            for waiter in tuple(self.waiters):
                waiter.interrupted()

    def expire(self) -> None:
        """Locks that are due end now; the timer calls it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.is_fenced or self.window is None:
            return
        freed = self.window.expire(self.rules.limits, now_ms=self._now_ms())
        self._arm()
        if freed:
            self._owe(freed)
            self._persist((), _nobody_waits)
            self._wake()

    # inside

    def _now_ms(self) -> int:
        return self._owner.clock.monotonic_ms()

    def _loaded(self, found: State | KafkaError) -> None:
        if self.is_fenced:
            return
        if isinstance(found, KafkaError):
            self._fail(found, "its state cannot be read")
            return
        if found.start_offset != UNKNOWN_START:
            self._begin(found, found.start_offset)
            return
        log, reset = self.partition.log, self.rules.reset
        if isinstance(reset, KafkaError):
            self._fail(reset, "where it begins cannot be told")
            return
        back_ms = duration_ms(reset)
        if back_ms is not None:
            since_ms = self._owner.clock.wall_ms() - back_ms
            self._owner.first_since(self.partition, since_ms, partial(self._found_first, found))
            return
        self._begin(found, log.log_start_offset if reset == EARLIEST else log.high_watermark)

    def _found_first(self, state: State, first: TimedOffset | KafkaError | None) -> None:
        """Where a group begins that has not begun yet, looked up by time."""
        if self.is_fenced:
            return
        if isinstance(first, KafkaError):
            self._fail(first, "where it begins cannot be looked up")
            return
        high_watermark = self.partition.log.high_watermark
        self._begin(state, high_watermark if first is None else min(first[0], high_watermark))

    def _begin(self, found: State, start: int) -> None:
        self.state_epoch = found.state_epoch
        batches = [
            StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
            for one in found.state_batches
        ]
        try:
            self.window = Window(start, batches)
        except ValueError as error:
            failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
            self._fail(failure, "its state cannot be read")
            return
        self._wake()

    def _fail(self, failure: KafkaError, what: str) -> None:
        self.failure = failure
        self._owner.drop(self, f"{what}: {failure}")

    def _write(self, transition: Transition, reason: str, done: Done) -> None:
        """`reason` is why records go back, should some be given up instead."""
        if not transition.runs:
            self._count(transition)
            done(None)
            return

        def written(error: KafkaError | None) -> None:
            window = self.window
            assert window is not None
            limits = self.rules.limits
            now_ms = self._now_ms()
            freed = window.complete(transition, limits, is_written=error is None, now_ms=now_ms)
            if error is None:
                self._count(transition)
                self._give_up(transition.given_up, reason)
            elif not self.is_fenced:
                self._owe(freed)
            done(error)
            self._wake()

        self._persist(transition.batches, written)

    def _persist(self, batches: Sequence[StateBatch], then: Done) -> None:
        assert self.window is not None
        owed, self._owed = self._owed, ()
        lapsed, self._lapsed = self._lapsed, None

        def written(error: KafkaError | None) -> None:
            if error is None:
                if lapsed is not None:
                    self._locks_ended(lapsed)
            elif error.code in FENCING:
                # What was freed comes again, from what is written.
                self._owner.drop(self, f"its state cannot be written: {error}")
            else:
                self._owe_again(owed, lapsed)
            then(error)

        self._owner.store.write(
            self.key,
            [*owed, *batches],
            state_epoch=self.state_epoch,
            leader_epoch=self.partition.leader_epoch,
            start_offset=self.window.start,
            settled_count=self.window.settled_count,
            then=written,
        )

    def _owe(self, freed: Sequence[Freed]) -> None:
        if freed:
            lapsed = Lapsed()
            lapsed.add(freed)
            self._owe_again([one.batch for one in freed], lapsed)

    def _owe_again(self, batches: Sequence[StateBatch], lapsed: Lapsed | None) -> None:
        assert self.window is not None
        self._owed = merged([*self._owed, *batches], self.window.start)
        if lapsed is not None:
            if self._lapsed is not None:
                lapsed.add_all(self._lapsed)
            self._lapsed = lapsed

    def _wake(self) -> None:
        """Each who waits looks at all of its partitions: they are told only if something lies here
        that may be acquired, and there is room for it."""
        assert self.window is not None
        if self.waiters and self.has_more and self.window.has_room(self.rules.limits):
            for waiter in tuple(self.waiters):
                waiter.advanced()

    def _arm(self) -> None:
        assert self.window is not None
        deadline_ms = self.window.next_deadline_ms
        if deadline_ms is None or self.is_fenced:
            return
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        delay_ms = max(deadline_ms - self._now_ms(), 0)
        self._timer_ms = deadline_ms
        self._timer = self._owner.loop.call_later(delay_ms / MS_PER_S, self.expire)

    def _count(self, transition: Transition) -> None:
        self._owner.counts.of(self.key.group_id).add_transition(transition)

    def _locks_ended(self, lapsed: Lapsed) -> None:
        self._owner.locks_ended(self, lapsed)
        if self._given_up.add_all(lapsed.given_up) and self._telling is None:
            self._tell_given_up()

    def _give_up(self, batches: Sequence[StateBatch], reason: str) -> None:
        """Somebody will ask why a record did not come again."""
        if self._given_up.add(batches, reason) and self._telling is None:
            self._tell_given_up()

    def _tell_given_up(self) -> None:
        """The first is told at once, and those that follow together."""
        self._telling = None
        lots = self._given_up.take()
        for reason, lot in lots.items():
            self._owner.tell(
                "share_records_given_up",
                self.key.group_id,
                reason,
                topic=self.partition.topic,
                partition=self.partition.index,
                first_offset=lot.first,
                last_offset=lot.last,
                records=lot.records,
            )
        if lots and not self.is_fenced:
            self._telling = self._owner.loop.call_later(TELL_EVERY_S, self._tell_given_up)


def _nobody_waits(error: KafkaError | None) -> None:
    """If it could not be written the lock ends in its time."""
