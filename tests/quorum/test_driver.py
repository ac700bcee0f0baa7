"""The quorum at work: formatted, started, changed, stopped, crashed."""

from __future__ import annotations

import asyncio
import errno
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from ottla.broker.controller.features import abort_record
from ottla.broker.controller.formatting import format_directories
from ottla.broker.log.directories import LogDirError, make_log_dir
from ottla.broker.log.log import UPPER_LOG_END
from ottla.broker.metadata.delta import Delta
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.records import MetadataError
from ottla.broker.quorum.raft import QuorumError
from ottla.broker.quorum.snapshot import SnapshotId, list_snapshots, read_snapshot
from ottla.broker.quorum.store import METADATA_DIRECTORY, QuorumSettings
from ottla.broker.quorum.vote_file import VoteState, read_vote_state
from ottla.broker.quorum.voters import Voter
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata_records import (
    BeginTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    TopicRecord,
)
from ottla.protocol.schema import Message
from ottla.testing.clock import SimClock
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.quorum.nodes import LOG_DIR, InlineExecutor, Node, running, until

QUORUM_DIR = f"{LOG_DIR}/{METADATA_DIRECTORY}"


async def test_an_empty_directory_becomes_a_cluster() -> None:
    node = Node(SimDisk())
    assert node.format()
    assert not node.format()
    registered = await node.start()

    image = node.image
    assert image.features == {
        "metadata.version": 30,
        "kraft.version": 1,
        "group.version": 1,
        "share.version": 1,
        "transaction.version": 2,
    }
    # Kafka's order: three control records, the first transaction, controller, broker
    assert registered.epoch == 10
    assert image.cluster.brokers[1].epoch == 10
    assert image.cluster.brokers[1].active
    assert list(image.cluster.controllers) == [1]
    assert read_vote_state(node.disk, QUORUM_DIR) == VoteState(1, 1)
    await node.stop()


async def test_a_lost_metadata_log_is_no_new_cluster() -> None:
    """The logs of the old one would be set aside as strays."""
    disk = SimDisk()
    disk.make_dir(LOG_DIR)
    disk.make_dir(f"{LOG_DIR}/orders-0")
    disk.open(f"{LOG_DIR}/orders-0/partition.metadata", create=True).close()

    with pytest.raises(LogDirError, match="the metadata log was lost"):
        Node(disk).format()


async def test_metadata_in_another_log_dir_is_not_passed_over() -> None:
    """As where log.dirs has another order: a new cluster would begin, without its settings."""
    node = await running()
    await node.stop()
    make_log_dir(node.disk, "other")
    before = node.disk.tree()

    with pytest.raises(LogDirError, match=f"{QUORUM_DIR} holds a metadata log.* takes other "):
        format_directories(
            node.disk,
            ["other", LOG_DIR],
            metadata_dir="other",
            voter=Voter(node.key, (node.endpoint,)),
            now_ms=1,
        )

    assert node.disk.tree() == before
    assert node.disk.list("other") == []


async def test_of_two_metadata_logs_none_is_passed_over() -> None:
    node = await running()
    await node.stop()
    make_log_dir(node.disk, f"other/{METADATA_DIRECTORY}")
    node.disk.open(f"other/{METADATA_DIRECTORY}/{0:020d}.log", create=True)

    with pytest.raises(LogDirError, match=f"other/{METADATA_DIRECTORY} holds a metadata log"):
        format_directories(
            node.disk,
            [LOG_DIR, "other"],
            metadata_dir=LOG_DIR,
            voter=Voter(node.key, (node.endpoint,)),
            now_ms=1,
        )


async def test_what_was_answered_is_there_after_a_restart() -> None:
    node = await running()
    await node.create("orders", partitions=3)
    epoch = node.image.cluster.brokers[1].epoch
    await node.stop()

    again = Node(node.disk)
    registered = await again.start(previous_epoch=epoch)

    assert registered.clean
    assert again.quorum.epoch == 2
    assert again.image.topics == node.image.topics
    await again.stop()


async def test_an_unclean_restart_moves_the_leader_epochs() -> None:
    node = await running()
    await node.create("orders", partitions=2)

    again = await running(node.disk.crash(random.Random(1), CrashMode.PREFIX))

    partitions = again.image.topics.by_name["orders"].partitions
    assert [partition.leader_epoch for partition in partitions.values()] == [1, 1]
    await again.stop()


async def test_changes_that_gather_share_a_sync() -> None:
    node = await running()
    disk = node.disk
    syncs: list[str] = []
    disk.before_call = lambda number, call, path: (
        syncs.append(path) if call == "sync" and path.endswith(".log") else None
    )

    await asyncio.gather(*(node.create(f"t{number}") for number in range(20)))

    assert len(syncs) == 1
    assert len(node.image.topics.by_name) == 20
    await node.stop()


async def test_each_change_is_published_in_order_before_its_answer() -> None:
    node = await running()
    seen: list[str] = []
    node.quorum.subscribe(lambda delta, image: seen.append("first"))
    node.quorum.subscribe(lambda delta, image: seen.append("second"))

    await node.create("orders")

    assert seen == ["first", "second"]
    assert node.published == sorted(node.published)
    await node.stop()


async def test_a_change_shows_when_what_it_asks_of_the_disk_is_done() -> None:
    """The next change is not begun before that, and nobody sees half of one."""
    node = await running()
    ready = [asyncio.Event(), asyncio.Event()]
    steps: list[str] = []

    async def apply(delta: Delta, image: MetadataImage, show: Callable[[], None]) -> None:
        (name,) = image.topics.by_name.keys() - node.image.topics.by_name.keys()
        steps.append(f"{name} begins")
        await ready[0 if name == "orders" else 1].wait()
        show()
        steps.append(f"{name} shows")

    node.quorum.apply_by(apply)
    first = asyncio.ensure_future(node.create("orders"))
    second = asyncio.ensure_future(node.create("bills"))
    await until(lambda: steps != [])
    assert steps == ["orders begins"]
    assert "orders" not in node.image.topics.by_name
    assert not first.done()

    ready[0].set()
    await first
    assert "bills" not in node.image.topics.by_name
    ready[1].set()
    await second

    assert steps == ["orders begins", "orders shows", "bills begins", "bills shows"]
    await node.quorum.stop()


async def test_a_change_that_cannot_be_applied_ends_the_quorum() -> None:
    node = await running()

    async def apply(delta: Delta, image: MetadataImage, show: Callable[[], None]) -> None:
        raise AssertionError("broken")

    node.quorum.apply_by(apply)
    with pytest.raises(KafkaError):
        await node.create("orders")
    assert [str(error) for error in node.fatal] == ["broken"]
    await node.quorum.stop()


async def test_a_later_command_sees_what_is_not_yet_durable() -> None:
    node = await running()

    first, second = await asyncio.gather(node.create("orders"), node.create("orders"))

    assert [first.topics[0].error_code, second.topics[0].error_code] == [0, 36]
    await node.stop()


async def test_a_refusal_waits_for_what_it_saw() -> None:
    """Who is told that a topic exists finds it durable."""
    release = threading.Event()

    class Slow(ThreadPoolExecutor):
        def submit(self, work, /, *args, **kwargs):  # type: ignore[no-untyped-def]
            def held():  # type: ignore[no-untyped-def]
                release.wait()
                return work(*args, **kwargs)

            return super().submit(held)

    release.set()
    node = await running(executor=Slow(1))
    release.clear()
    creating = asyncio.ensure_future(node.create("orders"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    refused = asyncio.ensure_future(node.create("orders"))
    for _ in range(5):
        await asyncio.sleep(0)

    assert not creating.done()
    assert not refused.done()
    assert "orders" not in node.image.topics.by_name
    release.set()
    assert (await refused).topics[0].error_code == 36
    assert creating.done()
    await node.stop()


async def test_a_caller_that_goes_away_changes_nothing_for_the_others() -> None:
    node = await running()
    gone = asyncio.ensure_future(node.create("a"))
    stays = asyncio.ensure_future(node.create("b"))
    await asyncio.sleep(0)
    gone.cancel()

    await stays

    assert list(node.image.topics.by_name) == ["a", "b"]
    await node.stop()


async def test_a_command_that_refuses_changes_nothing() -> None:
    node = await running()
    offset = node.image.offset

    def refuse(image: MetadataImage) -> tuple[list[Message], None]:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no")

    with pytest.raises(KafkaError, match="no"):
        await node.quorum.submit(refuse)

    assert node.image.offset == offset
    await node.stop()


async def test_a_poisonous_record_is_never_appended() -> None:
    node = await running()
    end = node.quorum.describe().voters[0].log_end_offset

    with pytest.raises(MetadataError):
        await node.quorum.submit(lambda image: ([PartitionChangeRecord(0, bytes(16))], None))

    assert node.quorum.describe().voters[0].log_end_offset == end
    await node.create("orders")
    await node.stop()


async def test_a_failed_sync_ends_the_node() -> None:
    node = await running()
    disk = node.disk
    disk.inject("sync", errno.EIO, path=".log")

    results = await asyncio.gather(node.create("a"), node.create("b"), return_exceptions=True)

    told = [result.disk_error for result in results if isinstance(result, KafkaError)]
    assert [error and error.errno for error in told] == [errno.EIO, errno.EIO]
    assert [type(error) for error in node.fatal] == [OSError]
    assert "a" not in node.image.topics.by_name
    with pytest.raises(KafkaError):
        await node.create("c")
    await node.quorum.stop()


class HeldSyncs(InlineExecutor):
    """Of what runs beside the loop the syncs of the log wait for `release`, once `hold` is set."""

    def __init__(self) -> None:
        self.hold = False
        self.held: list[tuple[Callable[[], Any], Future[Any]]] = []

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if not self.hold or work.__name__ != "sync":
            return super().submit(work, *args, **kwargs)
        future: Future[Any] = Future()
        self.held.append((work, future))
        return future

    def release(self) -> None:
        while self.held:
            work, future = self.held.pop()
            future.set_result(work())


async def rolled(node: Node, executor: HeldSyncs) -> tuple[list[str], asyncio.Task[object]]:
    """Creates topics until the log has rolled: those answered, and the one whose sync is held,
    which brings the name of the new segment to disk."""
    answered: list[str] = []
    executor.hold = True
    while True:
        name = f"t{len(answered)}"
        creating: asyncio.Task[object] = asyncio.ensure_future(node.create(name))
        await until(lambda: executor.held != [])
        if len([one for one in node.disk.list(QUORUM_DIR) if one.endswith(".log")]) > 1:
            return answered, creating
        executor.release()
        await creating
        answered.append(name)


async def test_a_failed_sync_of_a_snapshot_ends_the_node() -> None:
    """It has marked clean the name of a new segment, too: the flush that comes to the directory
    next is told yes, and what it would acknowledge is gone after a crash."""
    executor, clock = HeldSyncs(), SimClock()
    settings = QuorumSettings(segment_bytes=3_000)
    node = await running(clock=clock, settings=settings, executor=executor)
    answered, creating = await rolled(node, executor)
    clock.advance(3_600_000)
    node.disk.inject("sync_dir", errno.EIO, path=METADATA_DIRECTORY)
    node.quorum.snapshot_if_due()
    executor.release()

    with pytest.raises(KafkaError):
        await creating
    assert [error.errno for error in node.fatal if isinstance(error, OSError)] == [errno.EIO]
    await node.quorum.stop()
    again = await running(node.disk.crash(random.Random(1), CrashMode.SIZES))
    assert [name for name in answered if name not in again.image.topics.by_name] == []
    await again.stop()


async def test_a_flush_of_names_waits_for_a_snapshot_under_way() -> None:
    """Whose sync may have failed before, in a thread that has not said so yet."""

    class LateSnapshots(HeldSyncs):
        def __init__(self) -> None:
            super().__init__()
            self.late: list[tuple[Future[Any], Future[Any]]] = []

        def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            done = super().submit(work, *args, **kwargs)
            if work.__name__ != "write":
                return done
            self.late.append((done, Future()))
            return self.late[-1][1]

    executor, clock = LateSnapshots(), SimClock()
    settings = QuorumSettings(segment_bytes=3_000)
    node = await running(clock=clock, settings=settings, executor=executor)
    _, creating = await rolled(node, executor)
    clock.advance(3_600_000)
    node.disk.inject("sync_dir", errno.EIO, path=METADATA_DIRECTORY)
    node.quorum.snapshot_if_due()
    executor.release()
    for _ in range(10):
        await asyncio.sleep(0)

    assert not creating.done()
    ((done, late),) = executor.late
    late.set_exception(done.exception())
    with pytest.raises(KafkaError):
        await creating
    await node.quorum.stop()


@pytest.mark.parametrize(("call", "is_fatal"), [("sync", True), ("create", False)])
async def test_a_stop_whose_sync_fails_is_no_clean_one(call: str, is_fatal: bool) -> None:
    """What is written beside the log a start makes anew; what is in it has to be on disk."""
    node = await running()
    await node.create("orders")
    node.disk.inject(call, errno.EIO, path=f"{QUORUM_DIR}/0")

    with pytest.raises(OSError):
        await node.quorum.stop()

    assert [type(error) for error in node.fatal] == ([OSError] if is_fatal else [])


async def test_what_the_disk_refuses_is_told() -> None:
    node = await running()
    told: list[int | None] = []
    node.quorum.on_refused = lambda error: told.append(error.errno)
    node.disk.inject("pwrite", errno.ENOSPC, path="0.log")
    with pytest.raises(KafkaError):
        await node.create("orders")
    node.disk.inject("pwrite", errno.ENOSPC, path=".checkpoint")
    await node.create("orders")
    node.clock.advance(3_600_000)
    node.quorum.snapshot_if_due()
    await until(lambda: "snapshot_failed" in node.events.names)

    assert told == [errno.ENOSPC, errno.ENOSPC]
    await node.stop()


async def test_the_quorum_describes_itself() -> None:
    node = await running()

    described = node.quorum.describe()

    assert (described.leader_id, described.leader_epoch) == (1, 1)
    assert described.high_watermark == node.image.offset + 1
    assert [voter.log_end_offset for voter in described.voters] == [described.high_watermark]
    await node.stop()


SMALL = QuorumSettings(snapshot_bytes=2_000)


async def test_a_snapshot_shortens_the_start() -> None:
    node = await running(settings=SMALL)
    for number in range(30):
        await node.create(f"t{number}")
    await node.stop()

    *_, newest = list_snapshots(node.disk, QUORUM_DIR)
    snapshot = read_snapshot(node.disk, f"{QUORUM_DIR}/{newest.name}")
    assert newest.end_offset > 50
    assert snapshot.voters is not None
    again = await running(node.disk, settings=SMALL)
    assert list(again.image.topics.by_name) == [f"t{number}" for number in range(30)]
    await again.stop()


async def test_a_snapshot_is_taken_when_it_is_time() -> None:
    clock = SimClock()
    node = await running(clock=clock)
    await node.create("orders")
    node.quorum.snapshot_if_due()
    assert list_snapshots(node.disk, QUORUM_DIR) == [SnapshotId(0, 0)]

    clock.advance(3_600_000)
    node.quorum.snapshot_if_due()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    taken = list_snapshots(node.disk, QUORUM_DIR)
    clock.advance(3_600_000)
    node.quorum.snapshot_if_due()

    # nothing was written since, so there is nothing to take
    assert taken == [SnapshotId(0, 0), SnapshotId(node.image.offset + 1, 1)]
    assert list_snapshots(node.disk, QUORUM_DIR) == taken
    await node.stop()


async def test_short_runs_take_snapshots_as_a_long_one_does() -> None:
    node = await running(settings=SMALL)
    for number in range(20):
        await node.create(f"t{number}")
        await node.stop()
        node = await running(node.disk, settings=SMALL)
    await node.stop()

    *_, newest = list_snapshots(node.disk, QUORUM_DIR)
    assert 0 < newest.end_offset <= node.image.offset
    log = node.quorum._store.log
    behind = log.read(newest.end_offset, max_bytes=10**6, upper=UPPER_LOG_END, at_least_one=True)
    assert behind is not None
    assert behind.size < 2 * SMALL.snapshot_bytes


@pytest.mark.parametrize("back_ms", [0, 30_000_000])
async def test_short_runs_take_one_when_it_is_time(back_ms: int) -> None:
    clock = SimClock()
    node = await running(clock=clock)
    await node.create("orders")
    for _ in range(2):
        await node.stop()
        assert list_snapshots(node.disk, QUORUM_DIR) == [SnapshotId(0, 0)]
        clock.advance(1_800_000)
        clock.jump_wall(-back_ms)
        node = await running(node.disk, clock=clock)
        node.quorum.snapshot_if_due()

    if back_ms:
        clock.advance(3_600_000 - 1)
        node.quorum.snapshot_if_due()
        assert list_snapshots(node.disk, QUORUM_DIR) == [SnapshotId(0, 0)]
        clock.advance(1)
        node.quorum.snapshot_if_due()
    assert len(list_snapshots(node.disk, QUORUM_DIR)) == 2
    await node.stop()


async def test_old_snapshots_and_the_log_below_the_new_one_go() -> None:
    settings = QuorumSettings(snapshot_bytes=2_000, segment_bytes=4_000, retention_bytes=12_000)
    node = await running(settings=settings)
    for number in range(120):
        await node.create(f"t{number}")
    await node.stop()

    names = node.disk.list(QUORUM_DIR)
    snapshots = list_snapshots(node.disk, QUORUM_DIR)
    assert SnapshotId(0, 0) not in snapshots
    assert "00000000000000000000.log" not in names
    again = await running(node.disk, settings=settings)
    assert list(again.image.topics.by_name) == [f"t{number}" for number in range(120)]
    await again.stop()


async def test_the_files_of_trimmed_segments_go_when_their_delay_is_over() -> None:
    clock = SimClock()
    settings = QuorumSettings(snapshot_bytes=2_000, segment_bytes=4_000, retention_bytes=12_000)
    node = await running(clock=clock, settings=settings)
    for number in range(120):
        await node.create(f"t{number}")
    await until(lambda: node.quorum._beside is None)

    def deleted() -> list[str]:
        return [name for name in node.disk.list(QUORUM_DIR) if name.endswith(".log.deleted")]

    waiting = [segment for _, segment in node.quorum._store.log.segments._deleted]
    assert len(deleted()) == len(waiting) > 1
    clock.advance(59_999)
    node.quorum.snapshot_if_due()
    assert len(deleted()) == len(waiting)
    clock.advance(1)
    node.quorum.snapshot_if_due()
    await until(lambda: deleted() == [])

    assert [segment for segment in waiting if segment.file is not None] == []
    await node.stop()


async def test_a_failed_removal_of_trimmed_segments_ends_the_node() -> None:
    """It begins with a sync of the directory, as a flush of names does."""
    clock = SimClock()
    settings = QuorumSettings(snapshot_bytes=2_000, segment_bytes=4_000, retention_bytes=12_000)
    node = await running(clock=clock, settings=settings)
    for number in range(120):
        await node.create(f"t{number}")
    clock.advance(60_000)
    node.disk.inject("sync_dir", errno.EIO, path=METADATA_DIRECTORY)
    await until(lambda: node.quorum._beside is None)
    node.quorum.snapshot_if_due()
    await until(lambda: node.fatal != [])

    with pytest.raises(KafkaError):
        await node.create("late")
    await node.quorum.stop()


async def test_a_transaction_that_a_former_leader_left_is_aborted() -> None:
    node = await running()
    await node.create("orders")
    open_end: list[Message] = [
        BeginTransactionRecord("x"),
        FeatureLevelRecord("streams.version", 1),
    ]
    machine = node.quorum._machine
    batch = machine.batch(
        machine.encode(open_end, node.image), base_offset=0, leader_epoch=1, timestamp=1
    )
    node.quorum._store.append(batch, epoch=1, now_ms=1)
    await node.quorum.stop()

    # A snapshot is due at once, and would end within the transaction.
    again = await running(node.disk, settings=QuorumSettings(snapshot_bytes=1))

    assert "streams.version" not in again.image.features
    assert not again.quorum.in_transaction
    await again.create("more")
    await again.stop()
    bootstrap, _, *later = list_snapshots(again.disk, QUORUM_DIR)
    assert bootstrap == SnapshotId(0, 0)
    for one in later:
        again.disk.remove(f"{QUORUM_DIR}/{one.name}")
    await (await running(again.disk)).stop()


async def test_a_transaction_stays_open_until_its_end_is_in_the_log() -> None:
    """What is appended within it would be answered, and dropped by the next start."""
    node = await running()
    machine, image = node.quorum._machine, node.image
    begin = machine.encode([BeginTransactionRecord("x")], image)
    batch = machine.batch(begin, base_offset=0, leader_epoch=1, timestamp=1)
    node.quorum._store.append(batch, epoch=1, now_ms=1)
    await node.quorum.stop()
    again = Node(node.disk)
    await again.quorum.start()
    free, node.disk.free = node.disk.free, 0

    with pytest.raises(KafkaError):
        await again.quorum.submit(lambda image: ([abort_record()], None))

    assert again.quorum.in_transaction
    with pytest.raises(AssertionError, match="a change ends the transaction"):
        await again.create("orders")
    node.disk.free = free
    await again.quorum.submit(lambda image: ([abort_record()], None))
    assert not again.quorum.in_transaction
    await again.quorum.stop()


async def test_a_damaged_snapshot_stops_the_start() -> None:
    node = await running(settings=SMALL)
    for number in range(30):
        await node.create(f"t{number}")
    await node.stop()
    disk = node.disk
    *_, newest = list_snapshots(disk, QUORUM_DIR)
    disk.corrupt(f"{QUORUM_DIR}/{newest.name}", 200, b"\xff")

    with pytest.raises(QuorumError, match=r"cannot be read: the batch at byte \d+"):
        await running(disk)


@pytest.mark.parametrize("mode", list(CrashMode))
async def test_what_was_answered_survives_a_crash_at_every_call(mode: CrashMode) -> None:
    """Crash before each call on the disk, from the formatting on; then start again."""
    disk = SimDisk()
    rng = random.Random(mode.name)
    answered: list[str] = []
    crashed: list[tuple[SimDisk, list[str]]] = []
    disk.before_call = lambda number, call, path: crashed.append(
        (disk.crash(rng, mode), list(answered))
    )
    node = await running(disk, settings=SMALL)
    for number in range(12):
        await node.create(f"t{number}", partitions=2)
        answered.append(f"t{number}")
    await node.stop()
    crashed.append((disk.crash(rng, mode), list(answered)))
    disk.before_call = None

    assert len(crashed) > 60
    for found, names in crashed:
        again = await running(found, settings=SMALL)
        topics = again.image.topics.by_name
        assert [name for name in names if name not in topics] == []
        assert len(topics) <= len(names) + 1
        assert all(len(topic.partitions) == 2 for topic in topics.values())
        await again.create("after")
        await again.stop()


async def test_a_topic_is_never_half_there() -> None:
    """All records of a command stand in one batch."""
    node = await running()
    await node.create("orders", partitions=50)
    found = [
        record
        for header, view in node.quorum._store._batches_from(0)
        if not header.is_control
        for record in [list(node.quorum._machine.decode(view))]
        if any(isinstance(one, TopicRecord) for one in record)
    ]

    assert [len(records) for records in found] == [51]
    await node.stop()
