"""The log manager on the simulated disk: what it makes, keeps, checkpoints and gives up."""

import errno
import random

import pytest

from ottla.broker.faults import StorageLost
from ottla.broker.log import checkpoints
from ottla.broker.log.directories import LogDirError, UnusableLogDir
from ottla.broker.log.log import Log
from ottla.broker.log.manager import LogManager
from ottla.broker.log.quarantine import DAMAGED_RANGES_FILE, DamagedRange, write_ranges
from ottla.config.types import LogConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from ottla.protocol.wire import parse_uuid
from ottla.testing.clock import SimClock
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.log.events import RecordedEvents

TOPIC_ID = parse_uuid("HkCIt-qdTvufbCVwHt-fjQ")
OTHER_ID = parse_uuid("MkU3OEVBNTcwNTJENDM2Qg")
CONFIG = LogConfig(segment_index_bytes=240, segment_bytes=600, file_delete_delay_ms=1000)


class Kit:
    """One disk, on which managers come and go."""

    def __init__(self, *dirs: str) -> None:
        self.disk = SimDisk()
        self.clock = SimClock()
        self.events = RecordedEvents()
        self.dirs = list(dirs) or ["/data"]

    def manager(self, **changes: object) -> LogManager:
        arguments: dict[str, object] = {
            "clock": self.clock,
            "events": self.events,
            "rng": random.Random(1),
            "node_id": 1,
            "cluster_id": "cluster",
            "default_config": CONFIG,
            "recovery_threads": 1,
        }
        return LogManager(self.disk, self.dirs, **{**arguments, **changes})  # type: ignore[arg-type]

    def started(self, **changes: object) -> LogManager:
        manager = self.manager(**changes)
        manager.load()
        return manager

    def content(self, path: str) -> bytes | None:
        return checkpoints.read_whole(self.disk, path)


def append(log: Log, value: bytes = b"x" * 40, *, leader_epoch: int = 0) -> None:
    batch = build_batch([Record(0, 1_704_067_200_000, None, value)])
    log.append_as_leader(memoryview(batch), leader_epoch=leader_epoch, now_ms=1_704_067_200_000)


def flush(log: Log) -> None:
    ticket = log.begin_flush()
    assert ticket is not None
    ticket.sync()
    log.finish_flush(ticket)
    log.set_high_watermark(log.visible_end)


def test_an_empty_dir_is_made_identified_and_locked() -> None:
    kit = Kit("/var/lib/ottla")
    manager = kit.started()

    assert kit.disk.list("/var/lib/ottla") == [".lock", "meta.properties"]
    assert kit.content("/var/lib/ottla/.lock") == b""
    assert list(manager.directory_ids) == ["/var/lib/ottla"]
    assert manager.logs == []
    assert manager.unclean_dirs == []  # there is nothing to recover


def test_without_a_cluster_id_an_unformatted_dir_is_refused() -> None:
    with pytest.raises(LogDirError, match="has not been formatted"):
        Kit().started(cluster_id=None)


def test_the_cluster_id_is_taken_from_the_dir() -> None:
    kit = Kit()
    kit.started().shutdown(1)

    assert kit.started(cluster_id=None).cluster_id == "cluster"


def test_new_dirs_begin_with_the_new_cluster_id_or_join_the_one_that_others_name() -> None:
    kit = Kit("/a")
    manager = kit.manager(cluster_id=None, new_cluster_id="fresh")
    manager.prepare()
    assert manager.cluster_id == "fresh"
    manager.unlock()
    kit.dirs = ["/b", "/a"]
    again = kit.manager(cluster_id=None, new_cluster_id="other", rng=random.Random(2))
    again.load()

    assert again.cluster_id == "fresh"
    assert sorted(again.directory_ids) == ["/a", "/b"]


def test_what_is_abandoned_is_recovered() -> None:
    kit = Kit()
    manager = kit.started()
    append(manager.create("t", 0, TOPIC_ID))
    manager.abandon()

    again = kit.started()
    assert again.unclean_dirs == ["/data"]
    assert [log.log_end_offset for log in again.logs] == [1]


def test_a_second_broker_is_refused_with_the_holder_named() -> None:
    kit = Kit()
    first = kit.started()
    with pytest.raises(LogDirError, match=r"/data is in use by another broker of this.*log\.dirs"):
        kit.started()
    first.shutdown(1)

    kit.started()


def test_a_dir_of_another_broker_or_cluster_is_refused() -> None:
    kit = Kit()
    kit.started().shutdown(1)
    with pytest.raises(LogDirError, match=r"another broker's\. Set node\.id="):
        kit.started(node_id=2)
    kit.disk.remove("/data/.lock")
    with pytest.raises(LogDirError, match=r"another cluster's\. Set CLUSTER_ID="):
        kit.started(cluster_id="other")


def test_a_copied_dir_is_refused() -> None:
    kit = Kit("/a", "/b")
    manager = kit.started()
    meta = checkpoints.read_meta_properties(kit.disk, "/a")
    assert meta is not None
    checkpoints.write_meta_properties(kit.disk, "/b", meta, now_ms=0)
    manager.unlock()

    with pytest.raises(LogDirError, match=r"/a and /b have the same directory\.id"):
        kit.started()


def test_a_created_partition_survives_any_crash() -> None:
    kit = Kit()
    manager = kit.started()
    log = manager.create("t", 0, TOPIC_ID)
    assert manager.get("t", 0) is log
    assert manager.get("t", 1) is None
    assert manager.dir_of(log) == "/data"
    assert kit.content("/data/t-0/partition.metadata") == (
        b"version: 0\ntopic_id: HkCIt-qdTvufbCVwHt-fjQ"
    )

    for mode in CrashMode:
        other = Kit()
        other.disk = kit.disk.crash(random.Random(1), mode)
        found = other.started().get("t", 0)
        assert found is not None
        assert found.topic_id == TOPIC_ID
        assert found.log_end_offset == 0


def test_a_clean_stop_is_marked_and_the_mark_taken_at_the_next_start() -> None:
    kit = Kit()
    manager = kit.started()
    append(manager.create("t", 0, TOPIC_ID))
    manager.shutdown(13)
    assert kit.content("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":13}'
    assert kit.content("/data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 1\n"

    again = kit.started()
    assert again.unclean_dirs == []
    assert again.previous_broker_epoch == 13
    assert kit.content("/data/.kafka_cleanshutdown") is None
    log = again.get("t", 0)
    assert log is not None
    assert (log.log_end_offset, log.durable_end, log.recovery_point) == (1, 1, 1)
    again.unlock()
    assert kit.started().unclean_dirs == ["/data"]


def test_checkpoints_name_every_partition_and_are_not_written_twice() -> None:
    kit = Kit()
    manager = kit.started()
    for partition in range(2):
        manager.create("t", partition, TOPIC_ID)
    log = manager.logs[1]
    append(log)
    flush(log)
    manager.checkpoint_recovery_points()
    manager.checkpoint_high_watermarks()
    manager.checkpoint_log_start_offsets()

    assert kit.content("/data/recovery-point-offset-checkpoint") == b"0\n2\nt 0 0\nt 1 1\n"
    assert kit.content("/data/replication-offset-checkpoint") == b"0\n2\nt 0 0\nt 1 1\n"
    calls = kit.disk.calls
    manager.checkpoint_recovery_points()
    manager.checkpoint_high_watermarks()
    manager.checkpoint_log_start_offsets()
    assert kit.disk.calls == calls


def test_log_starts_are_kept_only_above_the_first_segment() -> None:
    kit = Kit()
    manager = kit.started()
    for partition in range(2):
        log = manager.create("t", partition, TOPIC_ID)
        for _ in range(3):
            append(log)
        flush(log)
    log.delete_records(2)
    manager.checkpoint_log_start_offsets()
    assert kit.content("/data/log-start-offset-checkpoint") == b"0\n1\nt 1 2\n"
    manager.shutdown(1)

    assert [log.log_start_offset for log in kit.started().logs] == [0, 2]


def test_a_deleted_partition_goes_after_its_delay() -> None:
    kit = Kit()
    manager = kit.started()
    log = manager.create("t", 0, TOPIC_ID)
    append(log)
    flush(log)
    manager.delete("t", 0)
    assert manager.get("t", 0) is None
    (aside,) = [name for name in kit.disk.list("/data") if name.endswith("-delete")]
    assert aside.startswith("t-0.")
    kit.clock.advance(999)
    for removal in manager.deletions.due_directories():
        list(manager.deletions.remove_directory(removal))
    assert kit.disk.exists(f"/data/{aside}")
    kit.clock.advance(1)
    for removal in manager.deletions.due_directories():
        list(manager.deletions.remove_directory(removal))

    assert not kit.disk.exists(f"/data/{aside}")


def test_a_deleted_partition_stays_until_its_sync_is_through() -> None:
    """A sync of many segments may take longer than the delay, and its files must stay open."""
    kit = Kit()
    manager = kit.started()
    log = manager.create("t", 0, TOPIC_ID)
    append(log)
    ticket = log.begin_flush()
    assert ticket is not None
    manager.delete("t", 0)
    kit.clock.advance(1000)

    assert manager.deletions.due_directories() == []
    ticket.sync()
    log.give_up_flush(ticket)
    assert [one.log for one in manager.deletions.due_directories()] == [log]


def test_what_was_deleted_before_a_stop_goes_after_the_next_start() -> None:
    kit = Kit()
    manager = kit.started()
    manager.create("t", 0, TOPIC_ID)
    manager.delete("t", 0)
    manager.shutdown(1)

    again = kit.started()
    for removal in again.deletions.due_directories():
        list(again.deletions.remove_directory(removal))
    assert again.logs == []
    assert not [name for name in kit.disk.list("/data") if name.startswith("t-")]


def test_a_partition_created_again_inherits_no_offsets() -> None:
    """Goal: the recovery point of a deleted topic must not vouch for its namesake's records."""
    kit = Kit()
    manager = kit.started()
    log = manager.create("t", 0, TOPIC_ID)
    for _ in range(5):
        append(log)
    flush(log)
    manager.checkpoint_recovery_points()
    manager.checkpoint_high_watermarks()
    manager.delete("t", 0)
    again = manager.create("t", 0, OTHER_ID)

    assert again.log_end_offset == 0
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert kit.content(f"/data/{name}") == b"0\n0\n"


def test_a_stray_partition_is_kept_aside() -> None:
    kit = Kit()
    manager = kit.started()
    append(manager.create("t", 0, TOPIC_ID))
    manager.set_aside("t", 0)
    (aside,) = [name for name in kit.disk.list("/data") if name.endswith("-stray")]
    manager.shutdown(1)

    assert kit.started().logs == []
    assert kit.disk.exists(f"/data/{aside}")


def test_new_partitions_go_to_the_emptiest_dir() -> None:
    kit = Kit("/a", "/b")
    manager = kit.started()
    for partition in range(5):
        manager.create("t", partition, TOPIC_ID)

    assert [manager.dir_of(log) for log in manager.logs] == ["/a", "/b", "/a", "/b", "/a"]
    manager.shutdown(1)
    again = kit.started()
    assert sorted(log.directory for log in again.logs) == [
        "/a/t-0",
        "/a/t-2",
        "/a/t-4",
        "/b/t-1",
        "/b/t-3",
    ]


@pytest.mark.parametrize("which", ["cordoned_dirs", "full_dirs"])
def test_a_cordoned_or_full_dir_gets_new_partitions_only_where_all_are(which: str) -> None:
    kit = Kit("/a", "/b")
    manager = kit.started()
    setattr(manager, which, frozenset(["/a"]))
    some = [manager.create("t", partition, TOPIC_ID) for partition in range(3)]
    setattr(manager, which, frozenset(["/a", "/b"]))
    everywhere = [manager.create("t", partition, TOPIC_ID) for partition in range(3, 5)]

    assert [manager.dir_of(log) for log in some] == ["/b"] * 3
    assert [manager.dir_of(log) for log in everywhere] == ["/a", "/a"]


def test_a_partition_in_two_dirs_stops_the_start() -> None:
    kit = Kit("/a", "/b")
    manager = kit.started()
    manager.create("t", 0, TOPIC_ID)
    manager.shutdown(1)
    kit.disk.make_dir("/b/t-0")

    with pytest.raises(LogDirError, match=r"t-0 is in two log dirs, /a and /b"):
        kit.started()


def test_a_failed_sync_takes_its_dir_offline_and_the_rest_goes_on() -> None:
    kit = Kit("/meta", "/b")
    manager = kit.started()
    logs = [manager.create("t", partition, TOPIC_ID) for partition in range(4)]
    append(logs[1])
    kit.disk.inject("sync", errno.EIO, path="/b/t-1")
    append(logs[0])
    kit.clock.advance(1)
    manager = manager
    manager.shutdown(7)

    assert list(manager.offline_dirs) == ["/b"]
    assert kit.content("/meta/.kafka_cleanshutdown") is not None
    assert kit.content("/b/.kafka_cleanshutdown") is None


@pytest.mark.parametrize(
    ("call", "refused"),
    [
        ("pwrite", "t-0/00000000000000000000.timeindex"),
        ("create", "t-0/leader-epoch-checkpoint"),
        ("create", "t-0/0"),
        ("create", "cleanshutdown"),
    ],
)
def test_a_full_disk_ends_a_stop_without_its_mark_and_nothing_else(call: str, refused: str) -> None:
    """All that was appended is on disk by then, and a start can do without what is not."""
    kit = Kit()
    manager = kit.started()
    logs = [manager.create("t", partition, TOPIC_ID) for partition in range(2)]
    for log in logs:
        append(log)
    kit.disk.inject(call, errno.ENOSPC, path=refused, times=9)

    manager.shutdown(7)

    assert manager.offline_dirs == {}
    assert kit.events.fields("disk_call_refused")["errno"] == "ENOSPC"
    assert kit.content("/data/.kafka_cleanshutdown") is None
    for mode in CrashMode:
        other = Kit()
        other.disk = kit.disk.crash(random.Random(1), mode)
        again = other.started()
        assert again.unclean_dirs == ["/data"]
        assert [log.log_end_offset for log in again.logs] == [1, 1]


@pytest.mark.parametrize(
    ("call", "path", "number"),
    [
        ("create", "t-1/0", errno.EIO),
        ("create", "t-1/leader-epoch", errno.EROFS),
        ("sync", "t-1/leader-epoch", errno.EIO),
        ("sync_dir", "t-1", errno.EIO),
    ],
)
def test_a_disk_that_breaks_at_the_stop_keeps_no_other_from_its_mark(
    call: str, path: str, number: int
) -> None:
    kit = Kit("/meta", "/b")
    manager = kit.started()
    logs = [manager.create("t", partition, TOPIC_ID) for partition in range(4)]
    assert logs[1].directory.startswith("/b")
    for log in logs:
        append(log)
    kit.disk.inject(call, number, path=path, times=9)

    manager.shutdown(7)

    assert list(manager.offline_dirs) == ["/b"]
    assert kit.content("/meta/.kafka_cleanshutdown") is not None
    assert kit.content("/b/.kafka_cleanshutdown") is None


@pytest.mark.parametrize("is_stopped", [True, False])
def test_leader_epochs_for_which_there_was_no_room_are_found_again(is_stopped: bool) -> None:
    """What the file does not name is read again from the log, however much of it is on disk."""
    kit = Kit()
    manager = kit.started()
    log = manager.create("t", 0, TOPIC_ID)
    append(log)
    flush(log)
    kit.disk.inject("create", errno.ENOSPC, path="leader-epoch", times=9)
    for leader_epoch in (2, 3):
        for _ in range(12):
            append(log, leader_epoch=leader_epoch)
    epochs = log.epochs.entries
    assert [epoch for epoch, _ in epochs] == [0, 2, 3]
    assert len(log.segments) > 1
    if is_stopped:
        manager.shutdown(7)
    else:
        flush(log)
        manager.checkpoint_recovery_points()

    for mode in CrashMode:
        other = Kit()
        other.disk = kit.disk.crash(random.Random(1), mode)
        (again,) = other.started().logs
        assert again.log_end_offset == 25
        assert again.epochs.entries == epochs, mode


def test_an_offline_dir_is_neither_served_nor_refilled() -> None:
    kit = Kit("/meta", "/b")
    manager = kit.started()
    for partition in range(4):
        manager.create("t", partition, TOPIC_ID)
    kit.disk.inject("sync", errno.EIO, path="/b/recovery-point")
    manager.checkpoint_recovery_points()

    assert list(manager.offline_dirs) == ["/b"]
    assert [log.partition for log in manager.logs] == [0, 2]
    assert sorted(manager.offline_partitions) == [("t", 1), ("t", 3)]
    with pytest.raises(KafkaError) as caught:
        manager.create("t", 1, TOPIC_ID)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.dir_of(manager.create("u", 0, TOPIC_ID)) == "/meta"
    manager.delete("t", 3)
    assert ("t", 3) not in manager.offline_partitions


def test_errors_of_worker_threads_come_back_by_post_error() -> None:
    kit = Kit("/meta", "/b")
    manager = kit.started()
    manager.create("t", 0, TOPIC_ID)
    manager.create("t", 1, TOPIC_ID)
    posted: list[object] = []
    manager.post_error = posted.append
    kit.disk.inject("rename", errno.EIO, path="/b/")
    manager.checkpoint_recovery_points()

    assert not manager.offline_dirs
    (tell,) = posted
    assert callable(tell)
    tell()
    assert list(manager.offline_dirs) == ["/b"]


def test_losing_the_metadata_dir_ends_the_start() -> None:
    kit = Kit("/meta", "/b")
    kit.started().shutdown(1)
    kit.disk.inject("list", errno.EIO, path="/meta")

    with pytest.raises(StorageLost, match="/meta holds the metadata log"):
        kit.started()


def test_a_dir_that_cannot_be_made_ends_the_start_and_is_told_once() -> None:
    kit = Kit()
    kit.disk.inject("make_dir", errno.EACCES)
    with pytest.raises(
        UnusableLogDir, match=r"The log dir /data cannot be used: Permission denied"
    ):
        kit.started()

    assert kit.events.names == []


def test_one_dir_of_two_that_cannot_be_locked_is_offline() -> None:
    kit = Kit("/a", "/b")
    kit.started().shutdown(1)
    kit.disk.inject("open", errno.ENOSPC, path="/b/.lock")
    manager = kit.started()

    assert list(manager.offline_dirs) == ["/b"]
    assert list(manager.directory_ids) == ["/a"]


def test_one_unreadable_partition_does_not_stop_the_others() -> None:
    kit = Kit()
    manager = kit.started()
    for partition in range(3):
        append(manager.create("t", partition, TOPIC_ID))
    manager.unlock()
    kit.disk.inject("pread", errno.EIO, path="/data/t-1/", times=100)

    again = kit.started()
    assert [log.partition for log in again.logs] == [0, 2]
    assert list(again.offline_partitions) == [("t", 1)]
    again.shutdown(1)
    assert kit.content("/data/.kafka_cleanshutdown") is None


def test_a_file_of_damaged_ranges_that_cannot_be_read_is_told_beside_logs_that_cannot() -> None:
    kit = Kit()
    manager = kit.started()
    for partition in (0, 1):
        append(manager.create("t", partition, TOPIC_ID))
    manager.shutdown(1)
    kit.disk.open(f"/data/{DAMAGED_RANGES_FILE}", create=True).close()
    kit.disk.inject("open", errno.EMFILE, path="/data/t-0/00000000000000000000.log")
    kit.disk.inject("open", errno.EIO, path=DAMAGED_RANGES_FILE)
    again = kit.started()

    assert [(one.topic, one.partition) for one in again.logs] == [("t", 1)]
    assert "Too many open files" in kit.events.fields("logs_not_loaded")["error"]
    assert kit.events.fields("disk_call_refused")["errno"] == "EIO"


def test_what_is_known_of_a_partition_that_cannot_be_opened_waits_for_the_next_start() -> None:
    """Else that would cut off what was acknowledged, and bring back what was deleted."""
    kit = Kit()
    manager = kit.started()
    for partition in range(2):
        log = manager.create("t", partition, TOPIC_ID)
        for _ in range(12):
            append(log)
        flush(log)
        log.delete_records(7)
    segment = log.segments[-2]
    position, size = segment.locate(log.segments[-1].base_offset - 1)
    kit.disk.corrupt(segment.log_path, position + size - 1, b"!")
    ranges = {("t", 1): [DamagedRange(segment.base_offset, position, size)]}
    write_ranges(kit.disk, "/data", ranges)
    manager.shutdown(1)
    for _ in range(2):
        kit.disk.inject("open", errno.EIO, path="/data/t-1/00000000000000000000.log")
        manager = kit.started()
        assert list(manager.offline_partitions) == [("t", 1)]
        append(manager.logs[0])
        flush(manager.logs[0])
        manager.keep_damaged_ranges("/data", manager.damaged_ranges("/data"))
        manager.shutdown(1)

    again = kit.started()
    one = again.get("t", 1)
    assert one is not None
    assert (one.log_start_offset, one.log_end_offset, one.recovery.bytes_cut) == (7, 12, 0)
    assert one.quarantine.ranges == ranges["t", 1]


def test_where_a_log_begins_is_known_of_its_copy_before_it_has_its_name() -> None:
    """Though the log itself begins with a segment: the copy may be older than what was deleted."""
    kit = Kit("/a", "/b")
    manager = kit.started()
    log = manager.create("t", 0, TOPIC_ID)
    for _ in range(12):
        append(log)
    flush(log)
    base_offset = log.segments[1].base_offset
    log.delete_records(base_offset)
    log.delete_old_segments(kit.clock.wall_ms())
    assert log.segments[0].base_offset == log.log_start_offset == base_offset
    manager.expect(log, "/b")
    rows = kit.content("/b/log-start-offset-checkpoint")

    assert rows is not None
    assert checkpoints.parse_offsets(rows) == {("t", 0): base_offset}


def test_what_a_recovery_found_is_known_after_a_clean_stop() -> None:
    kit = Kit()
    manager = kit.started()
    log = manager.create("t", 0, TOPIC_ID)
    for _ in range(12):
        append(log)
    flush(log)
    segment = log.segments[-2]
    position, size = segment.locate(segment.base_offset)
    manager.abandon()
    kit.disk.corrupt(segment.log_path, position + size - 1, b"!")
    point = {("t", 0): segment.base_offset + 1}
    checkpoints.write_offsets(kit.disk, "/data/recovery-point-offset-checkpoint", point)
    kit.started().shutdown(1)
    (again,) = kit.started().logs

    assert again.recovery.clean
    assert again.quarantine.ranges == [DamagedRange(segment.base_offset, position, size)]


def test_a_partition_created_again_has_no_records_of_one_that_could_not_be_opened() -> None:
    kit = Kit()
    manager = kit.started()
    log = manager.create("t", 0, TOPIC_ID)
    append(log)
    flush(log)
    manager.shutdown(1)
    kit.disk.inject("open", errno.EMFILE, path="/data/t-0/00000000000000000000.log")
    manager = kit.started()
    assert ("t", 0) in manager.offline_partitions
    manager.delete("t", 0)
    assert manager.create("t", 0, OTHER_ID).log_end_offset == 0
    manager.shutdown(1)

    (again,) = kit.started().logs
    assert (again.topic_id, again.log_end_offset) == (OTHER_ID, 0)
    path = kit.events.fields("stray_partition_kept")["path"]
    assert kit.disk.exists(f"{path}/00000000000000000000.log")


def test_a_lost_partition_metadata_is_given_again() -> None:
    kit = Kit()
    manager = kit.started()
    manager.create("t", 0, TOPIC_ID)
    manager.unlock()
    kit.disk.remove("/data/t-0/partition.metadata")
    again = kit.started()
    log = again.get("t", 0)
    assert log is not None
    assert log.topic_id == bytes(16)
    again.assign_topic_id(log, TOPIC_ID)
    again.unlock()

    found = kit.started().get("t", 0)
    assert found is not None
    assert found.topic_id == TOPIC_ID


def test_a_log_is_due_for_a_flush_when_unsynced_for_flush_ms() -> None:
    kit = Kit()
    manager = kit.started()
    config = LogConfig(segment_index_bytes=240, flush_messages=100, flush_ms=50)
    log = manager.create("t", 0, TOPIC_ID, config)
    assert manager.due_for_flush() == []
    append(log)
    assert manager.due_for_flush() == []
    kit.clock.advance(49)
    assert manager.due_for_flush() == []
    kit.clock.advance(1)
    assert manager.due_for_flush() == [log]

    flush(log)
    append(log)
    assert manager.due_for_flush() == []
    kit.clock.advance(50)
    assert manager.due_for_flush() == [log]
