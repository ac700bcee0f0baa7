"""ShareFetch: a member of a share group acquires records, and says what became of others (KIP-932).

What is acknowledged comes first, and its answer waits until it is durable; then records are
acquired, so that no lock runs while a sync does. A fetch that finds nothing is parked at its
partitions, as Fetch does, and at their share partitions, where records come back. The answer
carries slices of the log's files, whole batches, and names the offsets that were acquired.

What is not in memory a worker reads first, as for Fetch, and nothing is locked meanwhile: a fetch
that comes to such a partition before it has acquired anything waits for it. One that has acquired
something, or has waited for long enough, leaves it out, and the member's next fetch begins with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from ottla.broker.handlers.answers import Pending
from ottla.broker.handlers.context import Session
from ottla.broker.handlers.endpoints import node_endpoints
from ottla.broker.handlers.partitions import absence
from ottla.broker.handlers.share_acknowledge import (
    LEADER_ERRORS,
    RENEW_SINCE_VERSION,
    Batches,
    Results,
    Said,
    acknowledge,
    checked_names,
    leader_of,
)
from ottla.broker.log.file_slice import FileSlice
from ottla.broker.log.first_touch import (
    OPENED_AT_ONCE,
    TOUCHES_AT_ONCE,
    NotInMemory,
    Openings,
    cached_reads,
)
from ottla.broker.share.batches import batches_in, narrowed
from ottla.broker.share.first_reads import Held, first_reads
from ottla.broker.share.partition import SharePartition
from ottla.broker.share.sessions import FIRST_EPOCH, LAST_EPOCH, Place, ShareSession
from ottla.broker.share.window import Acquired, Wish
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.share_group import ShareFetchRequest, ShareFetchResponse

EXACTLY = 1
"""The mode of acquiring in which `max_records` is not exceeded (KIP-1206)."""
NO_RECORDS = b""
MS_PER_S = 1000

PartitionData = ShareFetchResponse.PartitionData
TopicResponse = ShareFetchResponse.ShareFetchableTopicResponse


def handle_share_fetch(
    session: Session, request: ShareFetchRequest, version: int
) -> ShareFetchResponse | Pending:
    """Epoch 0 opens a session, -1 ends it, and nothing is acquired then."""
    asked: list[tuple[Place, Batches]] = [
        ((topic.topic_id, part.partition_index), part.acknowledgement_batches)
        for topic in request.topics
        for part in topic.partitions
    ]
    try:
        group_id, member_id = checked_names(session.rooms, request.group_id, request.member_id)
        if version >= RENEW_SINCE_VERSION and request.is_renew_ack:
            _check_renewal(request)
        share_session = _resolve(session, request, group_id, member_id, asked)
    except KafkaError as error:
        refused = ShareFetchResponse(error_code=int(error.code), error_message=error.message)
        if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED and request.max_wait_ms > 0:
            return _Later(refused, request.max_wait_ms)
        return refused
    fetch = ShareFetch(session, request, group_id, member_id, share_session)
    said = Said(group_id, member_id, version >= RENEW_SINCE_VERSION, request.is_renew_ack)
    # It may wait for long, and what it says of records may be large.
    request.topics, request.forgotten_topics_data = [], []
    acknowledge(session.rooms, said, [one for one in asked if one[1]], fetch.acknowledged)
    return fetch


def _check_renewal(request: ShareFetchRequest) -> None:
    """Records that were fetched meanwhile would come back late, and locks end (KIP-1222)."""
    for name in ("max_bytes", "min_bytes", "max_records", "max_wait_ms"):
        if getattr(request, name):
            reason = f"A renewal fetches nothing: {name} must be 0."
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _resolve(
    session: Session,
    request: ShareFetchRequest,
    group_id: str,
    member_id: str,
    asked: Sequence[tuple[Place, Batches]],
) -> ShareSession:
    shares = session.rooms.shares
    if request.share_session_epoch == LAST_EPOCH:
        return shares.sessions.get(group_id, member_id)
    if request.share_session_epoch == FIRST_EPOCH:
        if any(batches for _, batches in asked):
            reason = "Nothing is held when a session begins."
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        places = [place for place, _ in asked]
        session.on_closed = shares.connection_closed
        return shares.open_session(group_id, member_id, places, session)
    share_session = shares.sessions.go_on(group_id, member_id, request.share_session_epoch)
    forgotten = [
        (topic.topic_id, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    shares.sessions.change(share_session, [place for place, _ in asked], forgotten)
    return share_session


class _Later(Pending):
    """An answer that is known and waits, so that whoever gets it does not ask again at once."""

    __slots__ = ("_refusal", "_timer")

    def __init__(self, response: ShareFetchResponse, wait_ms: int) -> None:
        super().__init__()
        self._refusal = response
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(wait_ms / MS_PER_S, self.complete, response)

    def hurry(self) -> None:
        self._timer.cancel()
        self.complete(self._refusal)

    def on_abandoned(self) -> None:
        self._timer.cancel()


class ShareFetch(Pending):
    """One fetch: `acknowledged` begins it, and it is answered then or when there is something."""

    __slots__ = (
        "_acknowledged",
        "_cold",
        "_deadline_s",
        "_errors",
        "_failed",
        "_following",
        "_group_id",
        "_had_extra_turn",
        "_held_up",
        "_is_due",
        "_is_first",
        "_is_starved",
        "_loop",
        "_max_bytes",
        "_member_id",
        "_min_bytes",
        "_openings",
        "_parked",
        "_passing",
        "_places",
        "_request",
        "_session",
        "_share_session",
        "_shares",
        "_timer",
        "_touched",
        "_wants_records",
    )

    def __init__(
        self,
        session: Session,
        request: ShareFetchRequest,
        group_id: str,
        member_id: str,
        share_session: ShareSession,
    ) -> None:
        super().__init__()
        self._session = session
        self._request = request
        self._group_id = group_id
        self._member_id = member_id
        self._share_session = share_session
        self._loop = asyncio.get_running_loop()
        self._deadline_s = self._loop.time() + request.max_wait_ms / MS_PER_S
        config = session.rooms.config
        self._max_bytes = min(request.max_bytes, config.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._is_first = request.share_session_epoch == FIRST_EPOCH
        self._wants_records = (
            request.share_session_epoch != LAST_EPOCH
            and not request.is_renew_ack
            and request.max_records > 0
            and request.max_bytes > 0
        )
        is_last = request.share_session_epoch == LAST_EPOCH
        self._places = [] if is_last or request.is_renew_ack else share_session.in_turn()
        if self._wants_records:
            share_session.left_out = None
        self._shares: dict[Place, SharePartition] = {}
        self._parked: list[SharePartition] = []
        self._errors: dict[Place, KafkaError] = {}
        self._failed = False
        self._passing = session.rooms.shares.passing
        self._is_starved = False
        self._acknowledged: Results = {}
        self._timer: asyncio.Handle | None = None
        self._is_due = False
        """Whether it has waited for long enough."""
        self._had_extra_turn = False
        self._held_up: list[Held] = []
        """Those that the last attempt is to wait for. It acquired nothing then."""
        self._cold: list[Held] = []
        """Those that the last attempt left out."""
        self._touched: dict[Place, int] = {}
        """The offsets from which a worker has read: nobody waits for a worker there twice."""
        self._following: asyncio.Future[None] | None = None
        self._openings = Openings(0)

    def acknowledged(self, results: Results) -> None:
        """What was said of records is durable; now some are acquired."""
        if self._request.share_session_epoch == LAST_EPOCH and self._share_session.is_open:
            # Also where the connection is gone: the session may be another's.
            shares = self._session.rooms.shares
            shares.end_session(self._group_id, self._member_id, "the member closed it")
        if self.abandoned:
            return
        self._acknowledged = results
        self.woken(self._begin)

    @property
    def of_several(self) -> bool:
        return len(self._parked) > 1

    def advanced(self) -> None:
        """Records came, or came back, or more may be passed over."""
        if self._parked and (self._following is None or self._is_due):
            self.woken(self._look)

    def interrupted(self) -> None:
        """A partition is gone: the answer says so. Nothing is acquired any more, for others of its
        partitions may be the next to go."""
        if self._parked:
            self.woken(self._say_so)

    def hurry(self) -> None:
        self._deadline_s = 0.0  # where what was said of records is still being written
        self.interrupted()

    def on_abandoned(self) -> None:
        self._leave()

    # inside

    def _begin(self) -> None:
        if self._share_session.is_open:  # else its group may have none, and has let go of them
            self._find_all()
        self._is_due = self._deadline_s <= self._loop.time()
        self._look()

    def _look(self) -> None:
        parts = self._attempt(must_have=0 if self._is_due else self._min_bytes)
        may_wait = self._held_up or self._following is not None or not self._is_due
        may_go_on = may_wait or (self._is_starved and not self._had_extra_turn)
        if parts or self._failed or not self._shares or not may_go_on:
            self._leave_out()
            self._finish(parts)
            return
        self._park()
        if self._held_up:
            self._follow()
        elif not may_wait:
            # Others passed over much in this turn. This one must not come to nothing for it.
            self._had_extra_turn = True
            self._timer = self._loop.call_soon(self._expired)
        elif self._is_starved:
            self._passing.wait(self)

    def _say_so(self) -> None:
        self._leave()
        self._ready()
        self._finish({})

    def _park(self) -> None:
        if self._parked:
            return
        self._parked = list(self._shares.values())
        for share in self._parked:
            share.waiters[self] = None
            share.partition.fetch_waiters[self] = None
        if not self._is_due:
            wait_s = self._deadline_s - self._loop.time()
            self._timer = self._loop.call_later(max(wait_s, 0), self._expired)

    def _expired(self) -> None:
        self._is_due = True
        self.woken(self._look)

    def _follow(self) -> None:
        steps = first_reads(
            self._held_up,
            self._touched,
            records=self._request.max_records,
            max_bytes=self._max_bytes,
        )
        following = self._session.rooms.lookups.follow(steps)
        assert following is not None, "the first step is a worker's"
        self._following = asyncio.ensure_future(following)
        self._following.add_done_callback(self._all_read)

    def _all_read(self, following: asyncio.Future[None]) -> None:
        if following is not self._following:
            return  # it has been answered meanwhile
        self._following = None
        if following.cancelled():
            self.interrupted()
        else:
            self.woken(partial(self._go_on_behind, following))

    def _go_on_behind(self, following: asyncio.Future[None]) -> None:
        following.result()  # what a partition cannot read is said by its own answer
        self._look()

    def _find_all(self) -> None:
        rooms = self._session.rooms
        for place in self._places:
            topic = rooms.image.topics.by_id.get(place[0])
            if topic is None:
                self._errors[place] = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                continue
            partition = rooms.replicas.by_id(*place)
            if partition is None:
                self._errors[place] = KafkaError(absence(rooms, topic.name, place[1]))
            elif self._wants_records:
                self._shares[place] = rooms.shares.take_up(self._group_id, partition)

    def _attempt(self, *, must_have: int) -> dict[Place, PartitionData]:
        """Acquires from each partition that has something, if all of them have `must_have` bytes
        together; errors are noted. It may be held up.

        It is starved where it passed over as much as there was left of the turn, or found nothing
        left. A partition that nobody is passing over batches of is read nevertheless, since most
        have none, but only until the first that has."""
        self._is_starved = False
        self._held_up = []
        self._cold = []
        self._openings = Openings(OPENED_AT_ONCE)
        if not self._share_session.is_open:
            # Nobody would give back what it got now, until the lock ends.
            self._failed = True
            return {}
        ready = self._ready()
        # One byte needs no look ahead: whatever is found is enough.
        if not ready or (must_have > 1 and not self._failed and not self._has(ready, must_have)):
            return {}
        left_bytes = self._max_bytes
        own_bytes = left_bytes // len(ready)
        parts: dict[Place, PartitionData] = {}
        records = self._request.max_records
        is_overdrawn = False
        most_parts = max(self._session.rooms.logs.disk.held.pins_left(), 1)  # as in a fetch
        for place, share in ready:
            if records <= 0 or len(parts) >= most_parts:
                break
            if self._held_up:
                # They are waited for together.
                if len(self._held_up) < TOUCHES_AT_ONCE and share.has_more:
                    self._held_up.append((place, share))
                continue
            had_left = self._passing.left > 0
            if not had_left and (share.is_passing or is_overdrawn):
                self._is_starved = True
                continue
            try:
                most_bytes = min(own_bytes, left_bytes)
                fits_bytes = left_bytes if parts else None
                part = self._acquire(place, share, records, most_bytes, fits_bytes)
            except NotInMemory:
                # Who was waited for once lets others go first.
                is_first = not parts and place not in self._touched and self._may_be_held_up
                (self._held_up if is_first else self._cold).append((place, share))
                continue
            except KafkaError as error:
                self._fail(place, error)
                continue
            except OSError as error:
                self._session.rooms.events.error(
                    "fetch_read_failed", partition=repr(share.partition), exc_info=error
                )
                self._fail(place, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
                continue
            if share.is_passing:
                self._is_starved = True
                is_overdrawn = not had_left
                # Where others of its partitions have something, they need not wait for this one.
                self._shares[place] = self._shares.pop(place)
            if part is not None:
                parts[place] = part
                assert isinstance(part.records, FileSlice), part
                left_bytes -= part.records.size
                records -= sum(
                    one.last_offset - one.first_offset + 1 for one in part.acquired_records
                )
        if not parts and not self._held_up and self._may_be_held_up:
            self._held_up = self._cold[:TOUCHES_AT_ONCE]
        return parts

    @property
    def _may_be_held_up(self) -> bool:
        """When it is due it waits for one worker's work, and for no more."""
        has_waited = self._following is not None or bool(self._touched)
        return not (self._is_due and has_waited)

    def _leave_out(self) -> None:
        """It is answered without them."""
        left_out = self._held_up or self._cold
        if left_out:
            self._share_session.left_out = left_out[0][0]

    def _ready(self) -> list[tuple[Place, SharePartition]]:
        """The partitions that something may be acquired from; those that are gone are noted."""
        ready: list[tuple[Place, SharePartition]] = []
        for place, share in self._shares.items():
            if share.failure is not None:
                # Told when the wait is over, as in Kafka: whoever hears of it asks again at once.
                self._errors[place] = share.failure
            elif share.is_fenced or not share.partition.online:
                self._fail(place, self._why_gone(place))
            elif share.window is not None and share.window.has_room(share.rules.limits):
                ready.append((place, share))
        return ready

    def _why_gone(self, place: Place) -> KafkaError:
        topic = self._session.rooms.image.topics.by_id.get(place[0])
        if topic is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._session.rooms.replicas.by_id(*place) is None:
            return KafkaError(absence(self._session.rooms, topic.name, place[1]))
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _fail(self, place: Place, error: KafkaError) -> None:
        """Something happened that the member should hear of now."""
        self._errors[place] = error
        self._failed = True

    def _has(self, ready: Sequence[tuple[Place, SharePartition]], must_have: int) -> bool:
        found = 0
        cold: list[Held] = []
        for place, share in ready:
            assert share.window is not None
            try:
                if self._is_cold(place, share, share.window.next_offset()):
                    cold.append((place, share))  # nobody can tell how much there is
                    continue
                found += share.partition.log.bytes_available(
                    share.window.next_offset(), share.upper, must_have
                )
            except (KafkaError, OSError):
                return True  # to read it says why
            if found >= must_have:
                return True
        self._held_up = cold[:TOUCHES_AT_ONCE]
        return False

    def _acquire(
        self,
        place: Place,
        share: SharePartition,
        records: int,
        most_bytes: int,
        fits_bytes: int | None,
    ) -> PartitionData | None:
        """Reads and acquires until something is, nothing more is there, or enough was passed over
        in this turn. A first batch that is larger than `most_bytes` is taken nevertheless, unless
        it is larger than `fits_bytes`, too (KIP-74)."""
        request = self._request
        # More are never locked at a time, and each may be a batch whose header is to be read.
        records = min(records, share.rules.limits.record_locks)
        wish = Wish(records, request.batch_size, request.share_acquire_mode == EXACTLY)
        window = share.window
        assert window is not None
        share.is_passing = False
        while window.has_room(share.rules.limits):
            read_from = window.next_offset()
            piece = self._read(place, share, read_from, most_bytes)
            if piece is None or (fits_bytes is not None and piece.size > fits_bytes):
                return None
            span = window.span(read_from, records)
            may_wait = self._may_wait(place, read_from)
            read = None if may_wait else cached_reads(piece.file)
            end_offset = share.partition.log.log_end_offset
            placed = batches_in(piece, first=read_from, span=span, below=end_offset, read=read)
            if placed and share.rules.read_committed:
                if not may_wait and not share.partition.log.knows_aborted_in(read_from, piece):
                    raise NotInMemory
                end = placed[-1].found.last + 1
                aborted = share.partition.log.aborted_transactions(read_from, end)
                if aborted:
                    placed = batches_in(
                        piece, first=read_from, span=span, below=end_offset, aborted=aborted
                    )
            acquired = share.acquire(
                self._member_id, [one.found for one in placed], wish, read_from=read_from
            )
            if acquired:
                sent = narrowed(piece, placed, acquired[0].first, acquired[-1].last)
                return _data(place, sent, acquired)
            if window.next_offset() <= read_from:
                return None
            self._passing.take(len(placed))
            if self._passing.left <= 0:
                share.is_passing = True
                break
        return None

    def _may_wait(self, place: Place, offset: int) -> bool:
        """Whether the loop may wait for the disk, to read from there."""
        return self._touched.get(place) == offset

    def _is_cold(self, place: Place, share: SharePartition, offset: int) -> bool:
        """Whether it would, and is not to."""
        if self._may_wait(place, offset):
            return False
        log = share.partition.log
        return bool(log.places_to_touch(offset, upper=share.upper, openings=self._openings))

    def _read(
        self, place: Place, share: SharePartition, offset: int, most_bytes: int
    ) -> FileSlice | None:
        log = share.partition.log
        if offset < log.log_start_offset:
            share.log_begins_at(log.log_start_offset)
            assert share.window is not None
            offset = share.window.next_offset()
        if offset > log.log_end_offset:
            return None
        if self._is_cold(place, share, offset):
            raise NotInMemory
        piece = log.read(offset, max_bytes=max(most_bytes, 0), upper=share.upper, at_least_one=True)
        unreadable = self._session.rooms.unreadable
        if piece is None or not unreadable:
            return piece
        start = unreadable.begins_at(piece)
        if start is None:
            return piece
        if start <= piece.position:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return FileSlice(piece.file, piece.position, start - piece.position)

    def _finish(self, parts: dict[Place, PartitionData]) -> None:
        self._leave()
        for place, error in self._errors.items():
            parts[place] = self._refused(place, error)
        if self._is_first:
            for place in self._places:
                parts.setdefault(place, _data(place, NO_RECORDS, ()))
        for place, refused in self._acknowledged.items():
            part = parts.setdefault(place, _data(place, NO_RECORDS, ()))
            if refused is not None:
                part.acknowledge_error_code = int(refused.code)
                part.acknowledge_error_message = refused.message
        topics: dict[bytes, TopicResponse] = {}
        for (topic_id, _), part in parts.items():
            topics.setdefault(topic_id, TopicResponse(topic_id, [])).partitions.append(part)
        lock_ms = self._session.rooms.shares.rules(self._group_id).limits.lock_ms
        self.complete(
            ShareFetchResponse(
                acquisition_lock_timeout_ms=lock_ms,
                responses=list(topics.values()),
                node_endpoints=self._leaders_told(parts.values()),
            )
        )

    def _refused(self, place: Place, error: KafkaError) -> PartitionData:
        part = _data(place, NO_RECORDS, ())
        part.error_code = int(error.code)
        part.error_message = error.message
        if error.code in LEADER_ERRORS:
            leader, epoch = leader_of(self._session, place)
            part.current_leader = ShareFetchResponse.LeaderIdAndEpoch(leader, epoch)
        return part

    def _leaders_told(
        self, parts: Iterable[PartitionData]
    ) -> list[ShareFetchResponse.NodeEndpoint]:
        leaders = {
            part.current_leader.leader_id for part in parts if part.error_code in LEADER_ERRORS
        }
        if not leaders:
            return []
        return [
            ShareFetchResponse.NodeEndpoint(*one) for one in node_endpoints(self._session, leaders)
        ]

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._following is not None:
            self._following.cancel()
            self._following = None
        self._passing.forget(self)
        parked, self._parked = self._parked, []
        for share in parked:
            share.waiters.pop(self, None)
            share.partition.fetch_waiters.pop(self, None)


def _data(place: Place, records: FileSlice | bytes, acquired: Sequence[Acquired]) -> PartitionData:
    return PartitionData(
        place[1],
        current_leader=ShareFetchResponse.LeaderIdAndEpoch(),
        records=records,
        acquired_records=[ShareFetchResponse.AcquiredRecords(*one) for one in acquired],
    )
