"""What one fetch reads: slices of files up to the high watermark, and whether that is enough.

The hot path. Per partition: one look-up, one `Log.read` (no record is read), one answer object
whose records are a `FileSlice` that the connection sends with sendfile. Everything is read anew for
each answer, so an answer is always one snapshot (KB8 of the reliability page).

A slice ends with its segment, so a read may find less than there is: a fetch that is behind the
last segment is answered with that at once, as by Kafka's DelayedFetch.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from ottla.broker.handlers.context import Session
from ottla.broker.handlers.endpoints import node_endpoints
from ottla.broker.handlers.fetch_forms import FetchForm
from ottla.broker.handlers.partitions import absence
from ottla.broker.log.file_slice import FileSlice
from ottla.broker.log.first_touch import (
    OPENED_AT_ONCE,
    TOUCHES_AT_ONCE,
    FirstReads,
    FirstTouches,
    Openings,
    Place,
)
from ottla.broker.log.log import UPPER_HIGH_WATERMARK, UPPER_LAST_STABLE, Log
from ottla.broker.replication.fetch_session import Resolved, Wanted, key_of
from ottla.broker.replication.replicas import Partition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse

PartitionData = FetchResponse.PartitionData
TopicResponse = FetchResponse.FetchableTopicResponse

UNKNOWN: Final[tuple[ErrorCode, ...]] = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
NO_RECORDS: Final = b""
NONE_TOUCHED: Final[frozenset[int]] = frozenset()
ANY_AMOUNT: Final = 1 << 62
"""More than a segment has: what a log says is available only of a fetch that is behind its last
segment, or out of range. Such a fetch does not wait, whatever `partition_max_bytes` lets through.
"""


class FetchReading:
    """One fetch, to be read once (`attempt`) or as often as something moves."""

    __slots__ = (
        "_by_id",
        "_held_up",
        "_is_fenced",
        "_max_bytes",
        "_min_bytes",
        "_names_leader",
        "_openings",
        "_present",
        "_resolved",
        "_rooms",
        "_session",
        "_slices_left",
        "_told",
        "_touched",
        "_upper",
        "found_bytes",
        "partitions",
        "satisfied",
    )

    def __init__(
        self,
        session: Session,
        request: FetchRequest,
        resolved: Resolved,
        *,
        by_id: bool,
        names_leader: bool,
    ) -> None:
        """`names_leader`: whether who believes in a former leader is told the present one."""
        rooms = session.rooms
        self._session = session
        self._rooms = rooms
        self._names_leader = names_leader
        self._is_fenced = False
        self._resolved = resolved
        self._by_id = by_id
        self._upper = UPPER_LAST_STABLE if request.isolation_level == 1 else UPPER_HIGH_WATERMARK
        self._max_bytes = min(request.max_bytes, rooms.config.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        # What the last attempt would tell a session's client; it is told when that answer leaves.
        self._told: list[tuple[Wanted, PartitionData]] = []
        self._openings: Openings | None = None
        """Of an attempt that does not wait for the disk."""
        self._held_up: list[Wanted] = []
        self._slices_left = 0
        self._touched: frozenset[int] = NONE_TOUCHED
        """By identity: those that wait for the disk once do not again."""
        self._present: list[Wanted] | None = None
        """Of many that it names, those that were there when it was first asked what is enough."""
        self.partitions: list[Partition] = []
        """Those that were there when it was last looked at; a fetch that waits does so there."""
        self.found_bytes = 0
        self.satisfied = False

    def is_at_the_end(self) -> bool:
        """Whether an attempt would find nothing, not even an error: who tails a log asks most
        often before there is anything, and an answer that is thrown away costs what one costs."""
        if self._min_bytes <= 0:
            return False
        for wanted in self._resolved.wanted:
            partition = self._find(wanted)
            if partition is None or not self._has_nothing(wanted, partition):
                return False
            self.partitions.append(partition)
        return True

    def first_reads(self) -> FirstReads:
        """What is to be done before the next attempt where the last one was `held_up`: a worker
        reads from the disk what the loop then reads, one partition after another."""
        while self._held_up:
            some, self._held_up = self._held_up, []
            self._touched = self._touched.union(map(id, some))
            yield FirstTouches(self._places(some))
            for wanted in some:
                partition = self._find(wanted)
                if partition is None:
                    continue
                offset = wanted.request.fetch_offset
                with suppress(KafkaError, OSError):  # the attempt will say so
                    partition.log.read(offset, max_bytes=0, upper=self._upper, at_least_one=True)
                yield None
            self.attempt(waits_for_disk=False)

    def _places(self, some: list[Wanted]) -> list[Place]:
        places: list[Place] = []
        for wanted in some:
            partition = self._find(wanted)
            if partition is not None:
                with suppress(KafkaError, OSError):  # as above
                    places += self._places_of(wanted, partition.log, Openings(0))
                    if self._upper == UPPER_LAST_STABLE:
                        places += partition.log.transactions_to_touch(wanted.request.fetch_offset)
        return places

    def _places_of(self, wanted: Wanted, log: Log, openings: Openings) -> list[Place]:
        offset = wanted.request.fetch_offset
        return log.places_to_touch(offset, upper=self._upper, openings=openings)

    @property
    def is_held_up(self) -> bool:
        """Whether the last attempt found what it wants not in memory. It gave no answer then."""
        return bool(self._held_up)

    def attempt(self, *, waits_for_disk: bool = True) -> FetchResponse:
        """Reads everything once. `satisfied` tells whether the answer may leave before the wait
        is over: enough bytes, or an error of a partition that there is, or none that there is.
        One that does not wait for the disk may be `is_held_up`."""
        self._openings = None if waits_for_disk else Openings(OPENED_AT_ONCE)
        if len(self._resolved.wanted) > 1:
            # Each has a file open until its client has read it; the first needs no leave.
            self._slices_left = self._rooms.logs.disk.held.pins_left()
        budget = self._max_bytes
        incremental = self._resolved.incremental
        self.partitions = []  # another list: who waits keeps that of the partitions it waits at
        self._told.clear()
        self.found_bytes = 0
        self.satisfied = False
        self._is_fenced = False
        topics: list[TopicResponse] = []
        fetch_session = self._resolved.session
        session_id = 0 if fetch_session is None else fetch_session.session_id
        misplaced: list[tuple[Wanted, PartitionData]] = []
        with_data: list[Wanted] = []
        for wanted in self._resolved.wanted:
            partition = self._find(wanted)
            if partition is not None:
                self.partitions.append(partition)
                # Of the many that a consumer tails few have something at a time.
                if incremental and self._is_unchanged(wanted, partition):
                    continue
            if len(self._held_up) >= TOUCHES_AT_ONCE:
                continue
            part, known = self._read(wanted, partition, budget)
            if part.error_code:
                self.satisfied |= known
            elif type(records := part.records) is FileSlice:
                self.found_bytes += records.size
                budget -= records.size
                self._slices_left -= 1
                with_data.append(wanted)
            if incremental and not _is_news(wanted, part):
                continue
            if fetch_session is not None:
                self._told.append((wanted, part))
            if not known:
                misplaced.append((wanted, part))
                continue
            _add(topics, wanted, part)
        response = FetchResponse(0, 0, session_id, topics)
        if self._held_up:
            return response
        for wanted, part in misplaced:  # errors of what is not there come last, as in Kafka
            _add(topics, wanted, part)
        if self.found_bytes >= self._min_bytes or len(misplaced) == len(self._resolved.wanted):
            self.satisfied = True
        if self._is_fenced and self._names_leader:
            own = (self._rooms.config.node_id,)
            response.node_endpoints = [
                FetchResponse.NodeEndpoint(*one) for one in node_endpoints(self._session, own)
            ]
        if incremental and fetch_session is not None and with_data:
            fetch_session.moved_last([key_of(wanted, fetch_session) for wanted in with_data])
        return response

    def answer_if_enough(self) -> FetchResponse | None:
        """What an attempt finds, if that may leave."""
        if self._min_bytes > 1:
            return self.attempt() if self._is_enough() else None
        response = self.attempt()
        return response if self.satisfied else None

    def answer_by(self, form: FetchForm, correlation_id: int) -> bytearray | None:
        """The whole answer to a fetch of one partition, without a session and content with any
        record, if there are some now that are in memory, and nothing else is to be told. None if it
        is not so: an attempt is to make the answer, if there is one."""
        wanted = self._resolved.wanted[0]
        partition = self._find(wanted)
        if (
            partition is None
            or not partition.log.segments.active.knows_last_batch
            or self._has_nothing(wanted, partition)
            or _is_disputed(wanted, partition)
            or self._rooms.unreadable
        ):
            return None
        log, want = partition.log, wanted.request
        limit = max(min(want.partition_max_bytes, self._max_bytes), 0)
        try:
            found = log.read(
                want.fetch_offset, max_bytes=limit, upper=self._upper, at_least_one=True
            )
        except (KafkaError, OSError):
            return None  # the attempt says so
        # Known is what a client has appended last, with no marker behind it in any segment: it is
        # of no transaction that was aborted.
        if found is None or not found.known:
            return None
        return form.frame(
            correlation_id,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            found.known,
        )

    def has_left_more(self) -> bool:
        """Whether there is enough though the last attempt found less, but something."""
        return self.found_bytes > 0 and self._is_enough()

    def leaves(self, response: FetchResponse) -> FetchResponse:
        """The answer of the last attempt is what the client gets: its session remembers it."""
        for wanted, part in self._told:
            wanted.sent_high_watermark = part.high_watermark
            wanted.sent_log_start = part.log_start_offset
        return response

    def refuse(self, code: ErrorCode) -> FetchResponse:
        """The same error for the request and for each of its partitions."""
        response = FetchResponse(error_code=int(code))
        for wanted in self._resolved.wanted:
            _add(response.responses, wanted, _error(wanted, code))
        return response

    # inside

    def _is_enough(self) -> bool:
        found = 0
        for wanted in self._those_present():
            partition = self._find(wanted)
            if partition is None:
                continue  # what goes meanwhile ends the wait
            want = wanted.request
            try:
                available = partition.log.bytes_available(
                    want.fetch_offset, self._upper, ANY_AMOUNT
                )
            except (KafkaError, OSError):
                # Ours to answer: whoever has just appended, perhaps elsewhere, is not to blame.
                return True
            if available == ANY_AMOUNT:
                return True
            found += min(available, max(want.partition_max_bytes, 0))
            if found >= self._min_bytes:
                return True
        return False

    def _those_present(self) -> list[Wanted]:
        """Whoever appends looks at those alone, not at every name of what is not there."""
        if len(self.partitions) == len(self._resolved.wanted):
            return self._resolved.wanted
        if self._present is None:
            self._present = [one for one in self._resolved.wanted if self._find(one) is not None]
        return self._present

    def _find(self, wanted: Wanted) -> Partition | None:
        replicas = self._rooms.replicas
        if self._by_id:
            return replicas.by_id(wanted.topic_id, wanted.request.partition)
        return replicas.get(wanted.topic, wanted.request.partition)

    def _has_nothing(self, wanted: Wanted, partition: Partition) -> bool:
        """Whether a read would find neither a record nor an error."""
        want, log = wanted.request, partition.log
        end = log.last_stable_offset if self._upper == UPPER_LAST_STABLE else log.high_watermark
        return end <= want.fetch_offset <= log.log_end_offset and not _is_disputed(
            wanted, partition
        )

    def _is_unchanged(self, wanted: Wanted, partition: Partition) -> bool:
        """Whether there would be no news of it in an incremental answer."""
        log = partition.log
        return (
            log.high_watermark == wanted.sent_high_watermark
            and log.log_start_offset == wanted.sent_log_start
            and self._has_nothing(wanted, partition)
        )

    def _nothing(self, partition: Partition) -> PartitionData:
        """The answer of a partition where there is nothing to read: the same object until one of
        its ends moves, for who tails many is told it of nearly all of them."""
        log = partition.log
        part = partition.nothing.get(self._upper)
        if (
            part is None
            or part.high_watermark != log.high_watermark
            or part.last_stable_offset != log.last_stable_offset
            or part.log_start_offset != log.log_start_offset
        ):
            part = partition.nothing[self._upper] = _answer(partition, NO_RECORDS)
            if self._upper == UPPER_LAST_STABLE:
                part.aborted_transactions = []
        return part

    def _read(
        self, wanted: Wanted, partition: Partition | None, budget: int
    ) -> tuple[PartitionData, bool]:
        """One partition's answer, and whether the partition exists."""
        if partition is None:
            part = self._absent(wanted)
            return part, part.error_code not in UNKNOWN
        if self._has_nothing(wanted, partition):
            return self._nothing(partition), True
        want = wanted.request
        epoch = want.current_leader_epoch
        if epoch >= 0 and epoch != partition.leader_epoch:
            if epoch > partition.leader_epoch:
                return _error(wanted, ErrorCode.UNKNOWN_LEADER_EPOCH), True
            return self._fenced(wanted, partition), True
        log = partition.log
        try:
            if want.last_fetched_epoch >= 0:
                diverging = _divergence(log, want)
                if diverging is not None:
                    self.satisfied = True
                    part = _answer(partition, NO_RECORDS)
                    part.diverging_epoch = diverging
                    return part, True
            limit = min(want.partition_max_bytes, budget)
            at_least_one = self.found_bytes == 0
            slice_ = None
            has_room = limit > 0 and self._slices_left > 0
            if self._touched and id(wanted) not in self._touched:
                # What may not fit any more is not waited for.
                has_room = has_room and limit == want.partition_max_bytes
            if has_room or at_least_one:
                openings = None if id(wanted) in self._touched else self._openings
                if openings is not None and self._places_of(wanted, log, openings):
                    return self._hold_up(wanted, partition)
                slice_ = log.read(
                    want.fetch_offset,
                    max_bytes=max(limit, 0),
                    upper=self._upper,
                    at_least_one=at_least_one,
                )
                if slice_ is not None and self._rooms.unreadable:
                    slice_ = self._readable(log, want.fetch_offset, slice_, at_least_one)
            elif not log.log_start_offset <= want.fetch_offset <= log.log_end_offset:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
            part = _answer(partition, NO_RECORDS if slice_ is None else slice_)
            if self._upper == UPPER_LAST_STABLE:
                if slice_ is not None and self._openings is not None:
                    is_known = log.knows_aborted_in(want.fetch_offset, slice_)
                    if not is_known and id(wanted) not in self._touched:
                        return self._hold_up(wanted, partition)
                aborted = [] if slice_ is None else log.aborted_in(want.fetch_offset, slice_)
                part.aborted_transactions = [
                    FetchResponse.AbortedTransaction(*transaction) for transaction in aborted
                ]
        except KafkaError as error:
            return _error(wanted, error.code), True
        except OSError as error:
            self._rooms.events.error("fetch_read_failed", partition=repr(partition), exc_info=error)
            return _error(wanted, ErrorCode.KAFKA_STORAGE_ERROR), True
        return part, True

    def _hold_up(self, wanted: Wanted, partition: Partition) -> tuple[PartitionData, bool]:
        self._held_up.append(wanted)
        return self._nothing(partition), True

    def _fenced(self, wanted: Wanted, partition: Partition) -> PartitionData:
        part = _error(wanted, ErrorCode.FENCED_LEADER_EPOCH)
        self._is_fenced = True
        if self._names_leader:
            leader = self._rooms.config.node_id
            part.current_leader = FetchResponse.LeaderIdAndEpoch(leader, partition.leader_epoch)
        return part

    def _readable(
        self, log: Log, offset: int, found: FileSlice, at_least_one: bool
    ) -> FileSlice | None:
        """What of a slice lies before a range that the disk cannot read.

        Raises KAFKA_STORAGE_ERROR if its first batch lies in one.
        """
        unreadable = self._rooms.unreadable
        start = unreadable.begins_at(found)
        if start is None:
            return found
        shorter = log.read(
            offset,
            max_bytes=max(start - found.position, 0),
            upper=self._upper,
            at_least_one=at_least_one,
        )
        if shorter is None or unreadable.begins_at(shorter) is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return shorter

    def _absent(self, wanted: Wanted) -> PartitionData:
        rooms = self._rooms
        name: str | None = wanted.topic
        if self._by_id:
            topic = rooms.image.topics.by_id.get(wanted.topic_id)
            name = None if topic is None else topic.name
        code = ErrorCode.UNKNOWN_TOPIC_ID
        if name is not None:
            code = absence(rooms, name, wanted.request.partition)
        part = _error(wanted, code)
        part.aborted_transactions = []
        return part


def _add(topics: list[TopicResponse], wanted: Wanted, part: PartitionData) -> None:
    """Neighbours of one topic stand in one, as in Kafka."""
    if topics:
        last = topics[-1]
        if last.topic_id == wanted.topic_id and last.topic == wanted.topic:
            last.partitions.append(part)
            return
    topics.append(TopicResponse(wanted.topic, wanted.topic_id, [part]))


def _is_disputed(wanted: Wanted, partition: Partition) -> bool:
    """Whether the client's epochs are to be compared with ours."""
    want = wanted.request
    return want.last_fetched_epoch >= 0 or -1 < want.current_leader_epoch != partition.leader_epoch


def _answer(partition: Partition, records: FileSlice | bytes) -> PartitionData:
    log = partition.log
    return PartitionData(
        partition.index,
        0,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        aborted_transactions=None,
        records=records,
    )


def _error(wanted: Wanted, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=wanted.request.partition,
        error_code=int(code),
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=NO_RECORDS,
    )


def _divergence(log: Log, want: FetchRequest.FetchPartition) -> FetchResponse.EpochEndOffset | None:
    """KIP-595: where the client's log leaves ours; OFFSET_OUT_OF_RANGE for an unknown epoch, and
    below the log start, whatever the epoch: there is nothing left to compare with."""
    epoch, end_offset = log.end_offset_for_epoch(want.last_fetched_epoch)
    if epoch < 0 or end_offset < 0 or want.fetch_offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < want.last_fetched_epoch or end_offset < want.fetch_offset:
        return FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def _is_news(wanted: Wanted, part: PartitionData) -> bool:
    """What an incremental answer must name: data, an error, or an end that moved."""
    return bool(
        part.records is not NO_RECORDS
        or part.error_code
        or part.high_watermark != wanted.sent_high_watermark
        or part.log_start_offset != wanted.sent_log_start
        or part.diverging_epoch.epoch >= 0
    )
