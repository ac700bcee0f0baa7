"""The quorum at work on one node: the only writer and the only reader of its metadata log.

A change goes so: the command sees the newest image, durable or not, and returns records; they are
applied to that image and gather with those of others; all that has gathered is appended as one
batch, and a sync runs in a worker thread; when it is over the changes are published one by one, and
only then are their callers answered. The next batch is appended after that: a loss of power finds
one batch at most that nothing was answered of, and it is the last (see `log/soundness.py`). Records
that the image refuses are never appended, for replaying them would stop every node for good.

A failed sync ends the process, be it of the log, of a snapshot or of their directory: what the
disk holds is unknown then, and the log is the cluster's memory. `on_fatal` is told once, and every
caller that waits gets the error. Of a snapshot only a refusal is passed over, as of a full disk:
the log still has everything, and the next one tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.broker.faults import NO_DESCRIPTOR_ERRORS, takes_dir_offline
from ottla.broker.log.checkpoints import MalformedFile
from ottla.broker.log.final_syncs import call_of
from ottla.broker.log.flush import FlushTicket
from ottla.broker.ports import Clock, Disk, Events
from ottla.broker.quorum.raft import Known, Output, QuorumError, Raft
from ottla.broker.quorum.snapshot import SnapshotId
from ottla.broker.quorum.store import Loaded, QuorumSettings, QuorumStore
from ottla.broker.quorum.vote_file import read_vote_state, write_vote_state
from ottla.broker.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.control import build_control_batch
from ottla.protocol.schema import Message

if TYPE_CHECKING:
    from ottla.broker.metadata.delta import Delta
    from ottla.broker.metadata.image import MetadataImage
    from ottla.broker.metadata.publish import MetadataMachine

T = TypeVar("T")
Command = Callable[["MetadataImage"], tuple[list[Message], T]]
Listener = Callable[["Delta", "MetadataImage"], None]
Applier = Callable[["Delta", "MetadataImage", Callable[[], None]], Awaitable[None]]


async def _show_only(delta: Delta, image: MetadataImage, show: Callable[[], None]) -> None:
    show()


BATCH_BYTES_MAX = 1024 * 1024
"""Of the values of several changes, far below what a segment holds; a change that has more has a
batch by itself."""

SNAPSHOT_RETRY_MS = 60_000
"""After one that the disk has refused, whether or not more is written meanwhile."""


class _Change(NamedTuple):
    """A change that waits to be appended and synced; without values, it is in the log already."""

    delta: Delta
    image: MetadataImage
    done: asyncio.Future[None]
    values: list[bytes]


class ReplicaState(NamedTuple):
    """One replica of the metadata log; times are wall times, -1 for unknown."""

    replica_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumDescription(NamedTuple):
    """What DescribeQuorum shows."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaState, ...]
    observers: tuple[ReplicaState, ...]


class Quorum:
    """The metadata quorum of this node. Every method runs on the loop."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        local: ReplicaKey,
        endpoints: tuple[Endpoint, ...],
        machine: MetadataMachine,
        settings: QuorumSettings,
        clock: Clock,
        events: Events,
        executor: Executor | None = None,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`directory` is that of the metadata log; `executor` runs the syncs and snapshots."""
        self._disk = disk
        self._directory = directory
        self._local = local
        self._endpoints = endpoints
        self._machine = machine
        self._settings = settings
        self._clock = clock
        self._events = events
        self._executor = executor
        self._on_fatal = on_fatal
        self.on_refused: Callable[[OSError], object] = lambda error: None
        """Told of each write that the disk has refused without harm, as a full one does."""
        self._listeners: list[Listener] = []
        self._applier: Applier = _show_only
        self.image: MetadataImage = machine.empty
        self._tip: MetadataImage = machine.empty
        self._gathered: list[_Change] = []
        self._syncing: list[_Change] = []
        self._sync: asyncio.Future[None] | None = None
        self._publishing: asyncio.Task[None] | None = None
        self._scheduled = False
        self._snapshotting: asyncio.Future[SnapshotId] | None = None
        self._removing: asyncio.Future[None] | None = None
        self._bytes_since_snapshot = 0
        self._snapshot_due_ms = 0
        self._is_open = False
        self._closed = False
        self._failed: BaseException | None = None
        self.in_transaction = False
        """Whether the image ends inside a transaction that nobody will end (see `activate`)."""

    def __repr__(self) -> str:
        raft = self.__dict__.get("_raft", "not started")
        return f"<Quorum {raft} image={self.image.offset} waiting={len(self._gathered)}>"

    @property
    def epoch(self) -> int:
        return self._raft.epoch

    @property
    def high_watermark(self) -> int:
        return self._raft.high_watermark

    def subscribe(self, listener: Listener) -> None:
        """From now on `listener` gets each change that is durable, in order, before its answer.

        Listeners are called in the order in which they subscribed. What is loaded by `start` is
        given as one change to those that subscribed before it.
        """
        self._listeners.append(listener)

    def apply_by(self, applier: Applier) -> None:
        """`applier(delta, image, show)` is awaited for each durable change, in order, before it is
        answered. It calls `show` once, which makes the image the current one and tells the
        listeners: what it awaits before that is done before anybody sees the change."""
        self._applier = applier

    async def start(self) -> None:
        """Loads what the disk holds and becomes the leader; QuorumError says why it cannot.

        To be followed by `stop`, also where it fails or is cancelled.
        """
        now_ms = self._clock.wall_ms()
        self._store = QuorumStore(
            self._disk,
            self._directory,
            settings=self._settings,
            machine=self._machine,
            events=self._events,
            now_ms=now_ms,
        )
        try:
            loaded = self._store.load()
            self._machine.check(loaded.image)
            self.in_transaction = loaded.in_transaction
            self._raft = Raft(self._local, self._endpoints, self._known(loaded))
            self._tip = loaded.image
            self._bytes_since_snapshot = loaded.bytes_behind
            first = self._perform(self._raft.start(), now_ms)
            self._is_open = True
        finally:
            if not self._is_open:
                self._store.close(clean=False)
        self._snapshot_due_ms = self._clock.monotonic_ms() + self._snapshot_wait_ms(loaded, now_ms)
        self._gathered += (_Change(loaded.delta, loaded.image, first.done, []), first)
        self._begin_soon()
        await first.done
        self._events.info(
            "quorum_started",
            epoch=self.epoch,
            offset=self.image.offset,
            snapshot=self._store.snapshots[-1].name if self._store.snapshots else None,
        )

    async def submit(self, command: Command[T]) -> T:
        """Runs a command and returns its response once its records are durable and published.

        A command without records waits for the changes that it saw. KafkaError from the command
        goes to the caller and changes nothing.
        """
        if self._closed:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "The controller is shutting down.")
        records, response = command(self._tip)
        if records:
            done = self._gather(records)
        elif self._tip is self.image:
            return response
        else:
            # The newest change gathers, or it is of the group that is synced or published.
            done = self._gathered[-1].done if self._gathered else self._syncing[-1].done
        await asyncio.shield(done)
        return response

    async def stop(self) -> None:
        """Waits for what is under way and closes the log, if it is open. Raises OSError where that
        fails; it is fatal, too, unless all of the log is on disk."""
        self._closed = True
        if not self._is_open:
            return
        while self._scheduled or self._syncing or self._beside is not None:
            under_way = (self._sync, self._publishing, self._beside)
            pending = [one for one in under_way if one is not None]
            await asyncio.gather(*pending, return_exceptions=True)
            await asyncio.sleep(0)
        self._raft.resign()
        try:
            self._store.close(clean=self._failed is None)
        except OSError as error:
            if self._store.log.failed is not None:
                self._fail(error, [])
            raise

    def snapshot_if_due(self) -> None:
        """A periodic job: begins a snapshot when enough was written, or long enough ago; else the
        removal of the segments that snapshots have replaced, when their delay is over."""
        if self._beside is not None or self._closed:
            return
        # While changes are published the image ends within their batch, and what a former leader
        # left ends within its transaction; a snapshot may not.
        if self._publishing is not None or self.in_transaction:
            return
        overdue = self._clock.monotonic_ms() >= self._snapshot_due_ms
        is_due = overdue or self._bytes_since_snapshot >= self._settings.snapshot_bytes
        if is_due and self._bytes_since_snapshot > 0:
            self._begin_snapshot()
        else:
            self._begin_removal()

    def describe(self) -> QuorumDescription:
        """The state of the quorum as its leader sees it."""
        now_ms = self._clock.wall_ms()
        voters = self._raft.voters.voters
        return QuorumDescription(
            leader_id=self._local.node_id,
            leader_epoch=self.epoch,
            high_watermark=self.high_watermark,
            voters=tuple(
                ReplicaState(
                    voter.key.node_id,
                    voter.key.directory_id,
                    self._store.log.log_end_offset,
                    now_ms,
                    now_ms,
                )
                for voter in voters.values()
            ),
            observers=(),
        )

    # inside

    @property
    def _beside(self) -> asyncio.Future[Any] | None:
        """What is under way in the directory beside the log: one thing at a time."""
        return self._snapshotting or self._removing

    def _known(self, loaded: Loaded) -> Known:
        try:
            vote = read_vote_state(self._disk, self._directory)
        except MalformedFile as error:
            raise QuorumError(f"{self._directory}: {error}.") from error
        # A static quorum (kraft.version 0) has its voters from the configuration: this node.
        alone = VoterSet.of([Voter(self._local, self._endpoints)])
        return Known(
            vote=vote,
            voters=loaded.voters or alone,
            voters_in_log=loaded.voters_in_log,
            kraft_version=loaded.image.kraft_version,
            log_end_offset=self._store.log.log_end_offset,
            log_epoch=max(loaded.image.epoch, 0),
        )

    def _snapshot_wait_ms(self, loaded: Loaded, now_ms: int) -> int:
        """How long the newest snapshot will do, were nothing but time to count: many short runs
        need one as a long one does. Where the wall clock went back, that is the whole interval."""
        interval_ms, since_ms = self._settings.snapshot_interval_ms, loaded.behind_since_ms
        age_ms = 0 if since_ms is None else now_ms - since_ms
        return interval_ms - min(max(age_ms, 0), interval_ms)

    def _perform(self, output: Output, now_ms: int) -> _Change:
        """Does what a won election asks for; its records wait for their sync."""
        assert output.vote is not None
        assert output.append
        try:
            write_vote_state(self._disk, self._directory, output.vote)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR_ERRORS:  # any other may be that of a sync
                self._store.doubt_tail()
            raise
        batch = build_control_batch(output.append, timestamp=now_ms)
        replay = self._machine.replay(self._tip)
        replay.add_control(
            kraft_version=None,
            last_offset=self._store.append(batch, epoch=self.epoch, now_ms=now_ms),
            epoch=self.epoch,
            timestamp=now_ms,
        )
        self._bytes_since_snapshot += len(batch)
        delta, self._tip = replay.finish()
        return _Change(delta, self._tip, self._future(), [])

    def _gather(self, records: list[Message]) -> asyncio.Future[None]:
        now_ms = self._clock.wall_ms()
        last_offset = self._tip.offset + len(records)
        # What gathered before this one has ended it, if it is not refused.
        is_open = self.in_transaction and self._tip is self.image
        replay = self._machine.replay(self._tip, in_transaction=is_open)
        replay.add(records, last_offset=last_offset, epoch=self.epoch, timestamp=now_ms)
        assert not replay.in_transaction, "a change ends the transaction that it begins"
        values = self._machine.encode(records, self._tip)
        delta, self._tip = replay.finish()
        change = _Change(delta, self._tip, self._future(), values)
        self._gathered.append(change)
        self._begin_soon()
        return change.done

    def _take_group(self) -> list[_Change]:
        """What is appended and synced next: all that has gathered, or what one batch may hold."""
        size = 0
        for index, change in enumerate(self._gathered):
            size += sum(map(len, change.values))
            if size > BATCH_BYTES_MAX and index > 0:
                group, self._gathered = self._gathered[:index], self._gathered[index:]
                return group
        group, self._gathered = self._gathered, []
        return group

    def _append(self, group: list[_Change]) -> None:
        values = [value for change in group for value in change.values]
        if not values:
            return
        end = group[-1].image
        # The log assigns the offsets, as it does to a producer's batch.
        batch = self._machine.batch(
            values, base_offset=0, leader_epoch=self.epoch, timestamp=end.timestamp
        )
        last_offset = self._store.append(batch, epoch=self.epoch, now_ms=self._clock.wall_ms())
        assert last_offset == end.offset, f"{last_offset} is not {end.offset}"
        self._bytes_since_snapshot += len(batch)

    def _future(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    def _begin_soon(self) -> None:
        """The sync starts at the end of this turn, so that what this turn gathers joins it."""
        if not self._scheduled and not self._syncing:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin_sync)

    def _begin_sync(self) -> None:
        self._scheduled = False
        self._syncing = self._take_group()
        try:
            self._append(self._syncing)
            ticket = self._store.log.begin_flush()
            assert ticket is not None, "what is gathered was appended"
        except KafkaError as error:
            self._refuse(error)
            return
        except Exception as error:  # nobody else hears of it, and everybody would wait
            group, self._syncing = self._syncing, []
            self._fail(error, group)
            return
        loop = asyncio.get_running_loop()
        self._sync = loop.run_in_executor(self._executor, ticket.sync)
        self._sync.add_done_callback(partial(self._synced, ticket))

    def _synced(self, ticket: FlushTicket, sync: asyncio.Future[None]) -> None:
        if ticket.new_names and self._beside is not None:
            # A snapshot's sync of the same names may have failed before ours said yes: its end, of
            # which `_snapshot_ended` hears first, decides what ours was worth.
            self._beside.add_done_callback(lambda _: self._synced(ticket, sync))
            return
        self._sync = None
        error = sync.exception() or self._failed
        if error is not None:
            group, self._syncing = self._syncing, []
            self._fail(error, group)
            return
        log = self._store.log
        log.finish_flush(ticket)
        committed = self._raft.flushed(log.durable_end).commit_to
        assert committed is not None
        assert self._syncing[-1].image.offset < committed
        log.set_high_watermark(committed)
        loop = asyncio.get_running_loop()
        self._publishing = loop.create_task(self._publish(), name="publish-metadata")
        self._publishing.add_done_callback(self._published)

    async def _publish(self) -> None:
        for change in self._syncing:
            await self._applier(change.delta, change.image, partial(self._show, change))
            if not change.done.done():
                change.done.set_result(None)

    def _show(self, change: _Change) -> None:
        self.image = change.image
        if change.values:
            self.in_transaction = False
        for listener in self._listeners:
            listener(change.delta, change.image)

    def _published(self, publishing: asyncio.Task[None]) -> None:
        self._publishing = None
        group, self._syncing = self._syncing, []
        error = publishing.exception()
        if error is not None:
            self._fail(error, group)
            return
        if self._gathered:
            self._begin_sync()
        self.snapshot_if_due()

    def _refuse(self, error: KafkaError) -> None:
        """The log did not take the group, for want of room, say, and is as it was. What gathered
        behind it has seen it, and is refused with it."""
        if error.disk_error is not None:
            self.on_refused(error.disk_error)
        self._tip = self.image
        waiting, self._syncing, self._gathered = [*self._syncing, *self._gathered], [], []
        _give_up(waiting, error)

    def _fail(self, error: BaseException, group: list[_Change]) -> None:
        """Nothing can be appended any more; who waits is told, and so is the supervisor."""
        self._closed = True
        is_first = self._failed is None
        self._failed = self._failed or error
        self._events.error("quorum_failed", error=repr(error))
        if isinstance(error, OSError):
            self._store.doubt_tail()
        waiting, self._gathered = [*group, *self._gathered], []
        said = KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            "The metadata log failed.",
            disk_error=error if isinstance(error, OSError) else None,
        )
        _give_up(waiting, said)
        if is_first:
            self._on_fatal(error)

    def _begin_snapshot(self) -> None:
        now_ms = self._clock.wall_ms()
        write = self._store.snapshot_writer(self.image, self._raft.voters, now_ms)
        self._bytes_since_snapshot = 0
        self._snapshot_due_ms = self._clock.monotonic_ms() + self._settings.snapshot_interval_ms
        loop = asyncio.get_running_loop()
        self._snapshotting = loop.run_in_executor(self._executor, write)
        self._snapshotting.add_done_callback(self._snapshot_ended)

    def _snapshot_ended(self, snapshotting: asyncio.Future[SnapshotId]) -> None:
        self._snapshotting = None
        error = snapshotting.exception()
        if isinstance(error, OSError) and not _is_final(error):
            self._events.warning("snapshot_failed", error=repr(error))
            # What is in no snapshot yet counts on, also where no change follows.
            self._bytes_since_snapshot = max(self._bytes_since_snapshot, 1)
            self._snapshot_due_ms = self._clock.monotonic_ms() + SNAPSHOT_RETRY_MS
            self.on_refused(error)
            return
        if error is not None:
            self._fail(error, [])
            return
        snapshot_id = snapshotting.result()
        self._events.info("snapshot_written", name=snapshot_id.name)
        try:
            self._store.snapshot_written(snapshot_id, now_ms=self._clock.wall_ms())
        except OSError as failed:
            if _is_final(failed):
                self._fail(failed, [])
                return
            # What could not be removed now is removed after a later snapshot, or at a start.
            self._events.warning("metadata_log_not_trimmed", error=repr(failed))

    def _begin_removal(self) -> None:
        remove = self._store.segment_remover(self._clock.wall_ms())
        if remove is not None:
            self._removing = asyncio.get_running_loop().run_in_executor(self._executor, remove)
            self._removing.add_done_callback(self._removal_ended)

    def _removal_ended(self, removing: asyncio.Future[None]) -> None:
        self._removing = None
        error = removing.exception()
        if isinstance(error, OSError) and not _is_final(error):
            self._events.warning("metadata_segments_not_removed", error=repr(error))
            self._store.removal_refused(self._clock.wall_ms())
        elif error is not None:
            self._fail(error, [])


def _give_up(changes: list[_Change], error: KafkaError) -> None:
    """Each caller gets an error of its own, for it is raised there."""
    for change in changes:
        if not change.done.done():
            own = KafkaError(error.code, error.message, disk_error=error.disk_error)
            change.done.set_exception(own)
            change.done.exception()  # its caller may be gone: nobody need retrieve it


def _is_final(error: OSError) -> bool:
    """Whether the dir of the metadata log is lost by what a snapshot, or a removal, met there."""
    return takes_dir_offline(call_of(error), error)
