"""The transactional ids of one partition of __transaction_state: a pure state machine (KIP-98).

An id has one producer at a time: whoever initializes it anew fences the one before by a higher
epoch. Its transaction begins with the first partition that is added, and is decided by the record
that begins to end it. When that record is durable a marker goes into each partition; when all of
them are, the record that completes it is written, and the next transaction may begin.

What comes while a transaction is being ended waits for that, `settings.wait_ms` at most, where
Kafka answers CONCURRENT_TRANSACTIONS at once and is asked again, up to a tenth of a second later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from ottla.broker.coordinator.outcome import (
    Anew,
    Answer,
    CoordinatorRecord,
    Counted,
    Moment,
    Outcome,
    Reply,
    Told,
)
from ottla.broker.coordinator.timers import Timers
from ottla.broker.coordinator.transaction.ending import begins_newer, begins_older
from ottla.broker.coordinator.transaction.initializing import Expected, check_epoch, next_producer
from ottla.broker.coordinator.transaction.states import (
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ENDING,
    FOLLOWERS,
    NAMES,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)
from ottla.broker.coordinator.transaction.transaction import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_START,
    Place,
    Transaction,
    grouped,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.coordinator_records import TransactionLogKey, TransactionLogValue
from ottla.protocol.messages.producer_ids import InitProducerIdResponse
from ottla.protocol.messages.transactions import DescribeTransactionsResponse, EndTxnResponse

NEWER = 2
"""The transaction.version with which each end of a transaction raises the epoch (KIP-890). A client
that goes by it is served so at any level, for it begins its sequences anew each time."""
FLEXIBLE = 1
"""The level with which records have a place for the producer that goes on."""

Described = DescribeTransactionsResponse.TransactionState


@dataclass(slots=True, frozen=True)
class TransactionSettings:
    """`version` is the finalized transaction.version."""

    expiration_ms: int = 604_800_000
    wait_ms: int = 100
    version: int = NEWER


class Asker(NamedTuple):
    """Who says that a transactional id is theirs."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Enlisted(NamedTuple):
    """Of each partition that was to be added, or looked for: whether it is in the transaction."""

    codes: list[ErrorCode]


class MarkersDue(NamedTuple):
    """A transaction is decided: its markers are to be written."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    places: tuple[Place, ...]
    version: int


class _Asked(NamedTuple):
    """A command that may have to wait; `command` returns what is answered, or raises KafkaError."""

    transactional_id: str
    command: Callable[[Outcome, Moment], Any]
    refused: Callable[[ErrorCode], Any]
    reply: Reply
    deadline_ms: int


class TransactionShard:
    """One shard. `settings` is asked at each command; `take_producer_id` gives an id that nobody
    has had, or raises KafkaError with a code at which clients ask again; `send_markers` is called
    when a decision is durable, and is to come to `markers_written`."""

    def __init__(
        self,
        *,
        settings: Callable[[], TransactionSettings],
        take_producer_id: Callable[[], int],
        send_markers: Callable[[TransactionShard, MarkersDue], None],
    ) -> None:
        self._settings = settings
        self._take_producer_id = take_producer_id
        self._send_markers = send_markers
        self.transactions: dict[str, Transaction] = {}
        self._due: dict[str, MarkersDue] = {}  # the decisions whose markers are being written
        self._parked: dict[str, list[_Asked]] = {}
        self._timers: Timers[str] = Timers()

    def __repr__(self) -> str:
        return f"<TransactionShard ids={len(self.transactions)} waiting={len(self._parked)}>"

    # commands

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Expected | None,
        reply: Reply,
        now: Moment,
    ) -> Outcome:
        """The producer of an id, in an epoch of its own; what the one before has open is aborted
        first. `expected` is who it says it has been. Answered with an InitProducerIdResponse."""

        def command(outcome: Outcome, now: Moment) -> InitProducerIdResponse:
            return self._init(outcome, transactional_id, timeout_ms, expected, now)

        return self._attempt(transactional_id, command, init_refused, reply, now)

    def enlist(
        self, asker: Asker, places: list[Place], reply: Reply, now: Moment, *, version: int
    ) -> Outcome:
        """Adds partitions to the transaction, which begins with the first. `version` is the
        transaction.version that its client goes by. Answered with `Enlisted`."""

        def command(outcome: Outcome, now: Moment) -> Enlisted:
            transaction = self._own(asker, outcome)
            known = transaction.partitions if transaction.state is ONGOING else {}
            if transaction.state is not ONGOING or any(one not in known for one in places):
                new = replace(
                    transaction,
                    state=ONGOING,
                    partitions={**known, **dict.fromkeys(places)},
                    client_version=version,
                )
                if transaction.state is not ONGOING:
                    new.started_ms = now.wall_ms
                self._write(outcome, transaction, new, now)
            return Enlisted([ErrorCode.NONE] * len(places))

        return self._attempt(asker.transactional_id, command, _enlist_refused(places), reply, now)

    def verify(self, asker: Asker, places: list[Place], reply: Reply, now: Moment) -> Outcome:
        """Whether partitions are in the transaction: TRANSACTION_ABORTABLE of one that is not
        (KIP-890). Answered with `Enlisted`."""

        def command(outcome: Outcome, now: Moment) -> Enlisted:
            self._own(asker, outcome)
            return Enlisted(
                [
                    ErrorCode.NONE if self.holds(asker, one) else ErrorCode.TRANSACTION_ABORTABLE
                    for one in places
                ]
            )

        return self._attempt(asker.transactional_id, command, _enlist_refused(places), reply, now)

    def end(
        self, asker: Asker, reply: Reply, now: Moment, *, committed: bool, is_newer: bool
    ) -> Outcome:
        """Decides a transaction. Answered with an EndTxnResponse when the decision is durable,
        with what its producer goes on as."""

        def command(outcome: Outcome, now: Moment) -> EndTxnResponse:
            transaction = self._known(asker.transactional_id)
            begins = begins_newer if is_newer else begins_older
            producer_id, epoch = asker.producer_id, asker.producer_epoch
            try:
                if begins(transaction, producer_id, epoch, committed=committed):
                    transaction = self._decide(
                        outcome, transaction, now, committed=committed, is_newer=is_newer
                    )
            except KafkaError as error:
                self._tell_fenced(outcome, transaction, asker, error)
                raise
            if transaction.next_producer_id != NO_PRODUCER_ID:
                return EndTxnResponse(producer_id=transaction.next_producer_id, producer_epoch=0)
            return EndTxnResponse(
                producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch
            )

        def refused(code: ErrorCode) -> EndTxnResponse:
            return EndTxnResponse(error_code=int(code))

        return self._attempt(asker.transactional_id, command, refused, reply, now)

    def markers_written(self, due: MarkersDue, now: Moment) -> Outcome:
        """All markers of a decision are durable: the transaction is over. Of one that is not the
        newest any more there is nothing to do."""
        outcome = Outcome(now)
        if self._due.get(due.transactional_id) is not due:
            return outcome
        del self._due[due.transactional_id]
        transaction = self.transactions[due.transactional_id]
        committed = transaction.state is PREPARE_COMMIT
        new = replace(
            transaction,
            state=COMPLETE_COMMIT if committed else COMPLETE_ABORT,
            partitions={},
            next_producer_id=NO_PRODUCER_ID,
        )
        if transaction.next_producer_id != NO_PRODUCER_ID:
            new.producer_id, new.producer_epoch = transaction.next_producer_id, 0
        self._write(outcome, transaction, new, now)
        ended = Counted.TRANSACTION_COMMIT if committed else Counted.TRANSACTION_ABORT
        outcome.counted[ended] = 1
        self._timers.cancel(due.transactional_id)
        for asked in self._parked.pop(due.transactional_id, ()):
            self._try(asked, outcome, now)
        return outcome

    def describe(self, transactional_id: str, reply: Reply, now: Moment) -> Outcome:
        """Answered with its state, or TRANSACTIONAL_ID_NOT_FOUND."""
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            code = int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
            shown = Described(error_code=code, transactional_id=transactional_id)
        else:
            topic = DescribeTransactionsResponse.TopicData
            shown = Described(
                transactional_id=transactional_id,
                transaction_state=NAMES[transaction.state],
                transaction_timeout_ms=transaction.timeout_ms,
                transaction_start_time_ms=transaction.started_ms,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                topics=[topic(*one) for one in grouped(transaction.partitions).items()],
            )
        outcome = Outcome(now)
        outcome.answers.append(Answer(reply, shown))
        return outcome

    def abort_timed_out(self, now: Moment) -> Outcome:
        """A periodic job: aborts what is open for longer than its producer said, and fences that
        producer."""
        outcome = Outcome(now)
        for transaction in list(self.transactions.values()):
            is_late = transaction.started_ms + transaction.timeout_ms < now.wall_ms
            if transaction.state is ONGOING and is_late:
                try:
                    self._abort(outcome, transaction, now, "it was open for transaction.timeout.ms")
                except KafkaError:
                    continue  # its epochs are used up, and so are the producer ids: the next time
        return outcome

    def remove_expired(self, now: Moment) -> Outcome:
        """A periodic job: forgets ids that nobody has used for transactional.id.expiration.ms."""
        outcome = Outcome(now)
        until_ms = now.wall_ms - self._settings().expiration_ms
        for transaction in list(self.transactions.values()):
            if transaction.state in AT_REST and transaction.updated_ms <= until_ms:
                record = CoordinatorRecord(TransactionLogKey(transaction.transactional_id), None)
                outcome.records.append(record)
                self.apply(record, now.wall_ms)
                reason = "nobody used it for transactional.id.expiration.ms"
                self._tell(outcome, "transactional_id_expired", transaction, reason)
        return outcome

    def expire(self, now: Moment) -> Outcome:
        """Who has waited long enough is to ask again."""
        outcome = Outcome(now)
        for transactional_id in self._timers.take_due(now.monotonic_ms):
            parked = self._parked.pop(transactional_id, [])
            left = [one for one in parked if one.deadline_ms > now.monotonic_ms]
            for asked in parked:
                if asked.deadline_ms <= now.monotonic_ms:
                    refused = asked.refused(ErrorCode.CONCURRENT_TRANSACTIONS)
                    outcome.answers.append(Answer(asked.reply, refused))
            if left:
                self._parked[transactional_id] = left
                self._timers.set(transactional_id, left[0].deadline_ms)
        return outcome

    def topics_deleted(self, names: list[str], now: Moment) -> Outcome:
        """A marker for what is gone is left out when it is due."""
        return Outcome(now)

    def forget_gone(self, now: Moment) -> Outcome:
        return Outcome(now)

    def loaded(self, now: Moment) -> Outcome:
        """All records are replayed: what is decided and not complete needs its markers."""
        outcome = Outcome(now)
        for transaction in self.transactions.values():
            if transaction.state in ENDING:
                self._await_markers(outcome, transaction)
        return outcome

    def unloaded(self, now: Moment) -> Outcome:
        """Whoever waits is sent away."""
        outcome = Outcome(now)
        for parked in self._parked.values():
            for one in parked:
                refused = one.refused(ErrorCode.NOT_COORDINATOR)
                outcome.answers.append(Answer(one.reply, refused))
        return outcome

    # state

    def apply(self, record: CoordinatorRecord, now_wall_ms: int, producer_id: int = -1) -> None:
        key, value = record
        assert isinstance(key, TransactionLogKey), key
        if value is None:
            self.transactions.pop(key.transactional_id, None)
        else:
            assert isinstance(value, TransactionLogValue), value
            transaction = Transaction.from_value(key.transactional_id, value)
            self.transactions[key.transactional_id] = transaction

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Nobody writes these records in a transaction."""

    @property
    def record_count(self) -> int:
        """How many records it needs."""
        return len(self.transactions)

    def written_anew(self, now: Moment, log: range) -> Anew:
        """Records of all that there is, so that none before is needed any more."""
        outcome = Outcome(now)
        outcome.records += [self._record_of(one) for one in self.transactions.values()]
        return Anew(outcome, log.stop)

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_ms()

    def holds(self, asker: Asker, place: Place) -> bool:
        """Whether a partition may be written to in the transaction, here and now."""
        transaction = self.transactions.get(asker.transactional_id)
        return (
            transaction is not None
            and transaction.state is ONGOING
            and transaction.producer_id == asker.producer_id
            and transaction.producer_epoch == asker.producer_epoch
            and place in transaction.partitions
        )

    # inside

    def _attempt(
        self,
        transactional_id: str,
        command: Callable[[Outcome, Moment], Any],
        refused: Callable[[ErrorCode], Any],
        reply: Reply,
        now: Moment,
    ) -> Outcome:
        outcome = Outcome(now)
        deadline_ms = now.monotonic_ms + self._settings().wait_ms
        self._try(_Asked(transactional_id, command, refused, reply, deadline_ms), outcome, now)
        return outcome

    def _try(self, asked: _Asked, outcome: Outcome, now: Moment) -> None:
        try:
            response = asked.command(outcome, now)
        except KafkaError as error:
            is_busy = error.code is ErrorCode.CONCURRENT_TRANSACTIONS
            if is_busy and asked.deadline_ms > now.monotonic_ms:
                parked = self._parked.setdefault(asked.transactional_id, [])
                parked.append(asked)
                self._timers.set(asked.transactional_id, parked[0].deadline_ms)
                return
            response = asked.refused(error.code)
        outcome.answers.append(Answer(asked.reply, response))

    def _known(self, transactional_id: str) -> Transaction:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    def _own(self, asker: Asker, outcome: Outcome) -> Transaction:
        """The transaction of who asks, unless it is being ended, or another's. Raises KafkaError;
        what is being ended may be about to change its producer, so that comes first."""
        transaction = self._known(asker.transactional_id)
        try:
            if transaction.state in ENDING:
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
            if transaction.producer_id != asker.producer_id:
                raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            if (
                transaction.producer_epoch != asker.producer_epoch
                or asker.producer_epoch >= EPOCH_MAX
            ):
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
        except KafkaError as error:
            self._tell_fenced(outcome, transaction, asker, error)
            raise
        return transaction

    def _init(
        self,
        outcome: Outcome,
        transactional_id: str,
        timeout_ms: int,
        expected: Expected | None,
        now: Moment,
    ) -> InitProducerIdResponse:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            producer_id = self._take_producer_id()
            new = transaction = Transaction(transactional_id, producer_id, 0, timeout_ms, EMPTY)
        else:
            if transaction.state in ENDING:
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
            check_epoch(transaction, expected)
            if transaction.state is ONGOING:
                self._abort(outcome, transaction, now, "its id was initialized anew")
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
            producer = next_producer(transaction, expected, self._take_producer_id)
            new = replace(
                transaction,
                state=EMPTY,
                partitions={},
                timeout_ms=timeout_ms,
                started_ms=NO_START,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_epoch=producer.last_epoch,
            )
        self._write(outcome, transaction, new, now)
        return InitProducerIdResponse(
            producer_id=new.producer_id, producer_epoch=new.producer_epoch
        )

    def _abort(self, outcome: Outcome, transaction: Transaction, now: Moment, reason: str) -> None:
        """Ends a transaction against its producer's will, whose epoch is over."""
        is_newer = self._settings().version >= NEWER
        self._decide(outcome, transaction, now, committed=False, is_newer=is_newer, fences=True)
        self._tell(outcome, "transaction_aborted", transaction, reason)

    def _decide(
        self,
        outcome: Outcome,
        transaction: Transaction,
        now: Moment,
        *,
        committed: bool,
        is_newer: bool,
        fences: bool = False,
    ) -> Transaction:
        new = replace(
            transaction,
            state=PREPARE_COMMIT if committed else PREPARE_ABORT,
            client_version=NEWER if is_newer else 0,
        )
        if transaction.state is not ONGOING:
            new.partitions, new.started_ms = {}, now.wall_ms
        if is_newer and transaction.is_exhausted and self._settings().version >= FLEXIBLE:
            new.next_producer_id = self._take_producer_id()
        if is_newer or fences:
            new.producer_epoch += 1
            new.last_epoch = transaction.producer_epoch if is_newer else NO_EPOCH
        self._write(outcome, transaction, new, now)
        self._await_markers(outcome, new)
        return new

    def _await_markers(self, outcome: Outcome, transaction: Transaction) -> None:
        due = MarkersDue(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.state is PREPARE_COMMIT,
            tuple(transaction.partitions),
            transaction.client_version,
        )
        self._due[due.transactional_id] = due
        outcome.due.append(partial(self._send_markers, self, due))

    def _write(self, outcome: Outcome, before: Transaction, new: Transaction, now: Moment) -> None:
        assert new.state in FOLLOWERS[before.state], (before, new)
        new.previous_producer_id = before.producer_id
        new.updated_ms = now.wall_ms
        record = self._record_of(new)
        outcome.records.append(record)
        self.apply(record, now.wall_ms)
        self.transactions[new.transactional_id].last_epoch = new.last_epoch

    def _record_of(self, transaction: Transaction) -> CoordinatorRecord:
        value = transaction.to_value(is_flexible=self._settings().version >= FLEXIBLE)
        return CoordinatorRecord(TransactionLogKey(transaction.transactional_id), value)

    def _tell_fenced(
        self, outcome: Outcome, transaction: Transaction, asker: Asker, error: KafkaError
    ) -> None:
        if error.code is ErrorCode.PRODUCER_FENCED:
            reason = "a request with an epoch that is over"
            self._tell(
                outcome,
                "transaction_producer_fenced",
                transaction,
                reason,
                asked_epoch=asker.producer_epoch,
            )

    def _tell(
        self,
        outcome: Outcome,
        event: str,
        transaction: Transaction,
        reason: str,
        **fields: Any,
    ) -> None:
        fields["producer_id"] = transaction.producer_id
        fields["producer_epoch"] = transaction.producer_epoch
        outcome.told.append(Told(event, transaction.transactional_id, reason, fields))


def init_refused(code: ErrorCode) -> InitProducerIdResponse:
    """An answer that gives nobody anything."""
    return InitProducerIdResponse(
        error_code=int(code), producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH
    )


def _enlist_refused(places: list[Place]) -> Callable[[ErrorCode], Enlisted]:
    return lambda code: Enlisted([code] * len(places))
