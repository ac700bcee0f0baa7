"""What a full disk, or the want of a descriptor, refuses of a deletion is done later."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from ottla.broker.log.deletions import IN_USE_RETRY_MS
from ottla.broker.log.log import Log
from ottla.broker.log.manager import LogManager
from ottla.testing.platter import CrashMode
from tests.log.logs import delete_some_segments, offsets
from tests.log.test_manager import CONFIG, TOPIC_ID, Kit, append, flush

TEN_A_SEGMENT = replace(CONFIG, segment_bytes=1100)


def filled(kit: Kit, count: int = 60) -> tuple[LogManager, Log]:
    manager = kit.started(default_config=TEN_A_SEGMENT)
    log = manager.create("t", 0, TOPIC_ID, TEN_A_SEGMENT)
    for _ in range(count):
        append(log)
    flush(log)
    assert [segment.base_offset for segment in log.segments] == list(range(0, count, 10))
    return manager, log


def delete(kit: Kit, manager: LogManager, *, removes: bool = True) -> None:
    """One run of the jobs that delete, with the delay of the files between them."""
    manager.checkpoint_recovery_points()
    for log in manager.logs:
        while delete_some_segments(manager, log):
            pass
    if removes:
        kit.clock.advance(CONFIG.file_delete_delay_ms)
        for log, segments in manager.deletions.due_segments(manager.logs):
            list(manager.deletions.remove_segments(log, segments))


def remove_directories(kit: Kit, manager: LogManager) -> None:
    kit.clock.advance(CONFIG.file_delete_delay_ms)
    for removal in manager.deletions.due_directories():
        list(manager.deletions.remove_directory(removal))


def restarted(kit: Kit, manager: LogManager) -> Log:
    manager.shutdown(1)
    (log,) = kit.started(default_config=TEN_A_SEGMENT).logs
    log.set_high_watermark(log.visible_end)
    return log


NAMES = [f"{0:020d}.log", f"{0:020d}.index", f"{20:020d}.log", ".snapshot"]


@pytest.mark.parametrize("name", NAMES)
def test_a_segment_that_gets_no_other_name_goes_with_its_delay(name: str) -> None:
    kit = Kit()
    manager, log = filled(kit)
    log.delete_records(50)
    refused = kit.disk.inject("rename", errno.ENOSPC, path=name)
    delete(kit, manager, removes=False)
    manager.checkpoint_log_start_offsets()
    assert kit.content("/data/log-start-offset-checkpoint") == b"0\n1\nt 0 50\n"
    delete(kit, manager)
    assert (refused.times, manager.offline_dirs) == (0, {})
    assert {one[:20] for one in kit.disk.list(log.directory) if one[0] == "0"} == {f"{50:020d}"}
    manager.checkpoint_log_start_offsets()
    assert kit.content("/data/log-start-offset-checkpoint") == b"0\n0\n"

    assert offsets(restarted(kit, manager)) == list(range(50, 60))


def test_files_go_with_their_delay_though_the_clock_of_the_wall_is_set_back() -> None:
    kit = Kit()
    manager, log = filled(kit)
    log.delete_records(50)
    delete(kit, manager, removes=False)
    kit.clock.jump_wall(-86_400_000)
    delete(kit, manager)

    assert {one[:20] for one in kit.disk.list(log.directory) if one[0] == "0"} == {f"{50:020d}"}


@pytest.mark.parametrize("name", NAMES)
def test_deleted_records_that_keep_their_names_are_not_served_again(name: str) -> None:
    """Nor what lies below a hole: the segments behind have got their other names."""
    kit = Kit()
    manager, log = filled(kit, 120)
    log.delete_records(100)
    refused = kit.disk.inject("rename", errno.ENOSPC, path=name)
    delete(kit, manager, removes=False)
    assert refused.times == 0
    again = restarted(kit, manager)

    assert again.log_start_offset == 100
    assert offsets(again) == list(range(100, 120))


@pytest.mark.parametrize("mode", [CrashMode.PREFIX, CrashMode.SUBSET])
def test_deleted_records_do_not_come_back_with_the_names_of_their_segments(mode: CrashMode) -> None:
    """The other names are durable when the files go; until then the log start is kept."""
    kit = Kit()
    manager, log = filled(kit)
    log.delete_records(20)
    manager.checkpoint_log_start_offsets()
    delete(kit, manager, removes=False)
    manager.checkpoint_log_start_offsets()
    for seed in range(8):
        left = Kit()
        left.disk = kit.disk.crash(random.Random(seed), mode)
        (again,) = left.started(default_config=TEN_A_SEGMENT).logs
        assert again.log_start_offset == 20
    delete(kit, manager)
    manager.checkpoint_log_start_offsets()

    assert kit.content("/data/log-start-offset-checkpoint") == b"0\n0\n"


@pytest.mark.parametrize(("call", "number"), [("sync_dir", errno.EMFILE), ("remove", errno.ENOSPC)])
def test_segments_whose_removal_is_refused_go_with_the_next_round(call: str, number: int) -> None:
    kit = Kit()
    manager, log = filled(kit)
    log.delete_records(40)
    refused = kit.disk.inject(call, number, path=log.directory)
    delete(kit, manager)
    assert refused.times == 0
    assert [one for one in kit.disk.list(log.directory) if one.endswith(".deleted")]
    delete(kit, manager)

    assert not [one for one in kit.disk.list(log.directory) if one.endswith(".deleted")]
    assert not manager.offline_dirs
    assert kit.events.names.count("disk_call_refused") == 1


def test_a_failed_sync_of_the_names_of_segments_is_not_repeated() -> None:
    """Whatever it says: the next one would say yes and mean nothing."""
    kit = Kit("/data", "/data2")
    manager, log = filled(kit)
    log.delete_records(40)
    kit.disk.inject("sync_dir", errno.ENOSPC, path=log.directory)
    log_dir = manager.dir_of(log)
    delete(kit, manager)

    assert list(manager.offline_dirs) == [log_dir]


@pytest.mark.parametrize("mode", [CrashMode.PREFIX, CrashMode.SUBSET])
def test_deleted_records_do_not_come_back_behind_a_clean_restart(mode: CrashMode) -> None:
    """Within the delay of the files, which nothing has synced: the start has no use for them."""
    kit = Kit()
    manager, log = filled(kit)
    log.delete_records(20)
    append(log)
    flush(log)
    delete(kit, manager, removes=False)
    manager.shutdown(1)
    manager = kit.started(default_config=TEN_A_SEGMENT)
    manager.checkpoint_log_start_offsets()
    assert kit.content("/data/log-start-offset-checkpoint") == b"0\n0\n"
    for seed in range(8):
        left = Kit()
        left.disk = kit.disk.crash(random.Random(seed), mode)
        (again,) = left.started(default_config=TEN_A_SEGMENT).logs

        assert again.log_start_offset == 20


def test_a_start_with_nothing_to_remove_syncs_no_directory() -> None:
    kit = Kit()
    manager, log = filled(kit)
    manager.shutdown(1)
    fault = kit.disk.inject("sync_dir", errno.EIO, path=log.directory)
    kit.started(default_config=TEN_A_SEGMENT)

    assert fault.times == 1


def test_deleted_records_do_not_come_back_where_their_names_could_not_be_synced() -> None:
    """The kernel takes the directory for synced then, and the next start must not."""
    kit = Kit()
    manager, log = filled(kit)
    log.delete_records(20)
    delete(kit, manager, removes=False)
    append(log)
    kit.disk.inject("sync_dir", errno.EIO, path=log.directory)
    with pytest.raises(OSError, match="Input/output"):
        flush(log)
    for mode in (CrashMode.PROCESS, CrashMode.ALL_KEPT):
        manager.checkpoint_log_start_offsets()
        kit.disk = kit.disk.crash(random.Random(1), mode)
        manager = kit.started(default_config=TEN_A_SEGMENT)
        (log,) = manager.logs

        assert log.log_start_offset == 20


def test_a_removal_whose_sync_failed_takes_no_new_segment_with_it() -> None:
    """The name of the segment was in the same directory, and no flush had synced it yet."""
    kit = Kit()
    manager, log = filled(kit)
    log.delete_records(20)
    append(log)
    assert log.segments.active.base_offset == 60
    kit.disk.inject("sync_dir", errno.EIO, path=log.directory)
    delete(kit, manager)
    kit.disk = kit.disk.crash(random.Random(1), CrashMode.PROCESS)
    (again,) = kit.started(default_config=TEN_A_SEGMENT).logs
    append(again)
    flush(again)
    kit.disk = kit.disk.crash(random.Random(1), CrashMode.SUBSET)
    (last,) = kit.started(default_config=TEN_A_SEGMENT).logs

    assert last.log_end_offset == again.durable_end == 62


@pytest.mark.parametrize(("call", "number"), [("list", errno.EMFILE), ("remove", errno.ENOSPC)])
def test_a_directory_whose_removal_is_refused_goes_with_the_next_round(
    call: str, number: int
) -> None:
    kit = Kit()
    manager, _ = filled(kit)
    manager.delete("t", 0)
    refused = kit.disk.inject(call, number, path="/data/t-0")
    kit.clock.advance(CONFIG.file_delete_delay_ms)
    for left in (1, 0):
        for removal in manager.deletions.due_directories():
            list(manager.deletions.remove_directory(removal))
            assert manager.deletions.awaits(removal) is bool(left)
        assert refused.times == 0
        assert len([one for one in kit.disk.list("/data") if one.startswith("t-0")]) == left

    assert not manager.offline_dirs


def test_a_directory_that_somebody_has_put_into_a_deleted_partition_goes_with_it() -> None:
    kit = Kit()
    manager, log = filled(kit, 20)
    for path in ("backup", "backup/inner", "backup/inner/empty", "more"):
        kit.disk.make_dir(f"{log.directory}/{path}")
    for path in ("backup/a", "backup/inner/b", "backup/inner/c", "more/d"):
        kit.disk.open(f"{log.directory}/{path}", create=True).close()
    manager.delete("t", 0)
    remove_directories(kit, manager)

    assert not manager.offline_dirs
    assert not [one for one in kit.disk.list("/data") if one.startswith("t-0")]


@pytest.mark.parametrize("number", [errno.ENOTEMPTY, errno.EBUSY])
def test_a_directory_that_is_in_use_is_told_and_tried_again(number: int) -> None:
    """NFS keeps a file there that is open; or something is mounted in it."""
    kit = Kit()
    manager, log = filled(kit, 20)
    files = kit.disk.list(log.directory)
    manager.delete("t", 0)
    busy = kit.disk.inject("remove", number, path="-delete", passing=len(files))
    remove_directories(kit, manager)
    assert busy.times == 0
    assert not manager.offline_dirs
    assert kit.events.names.count("directory_in_use") == 1
    remove_directories(kit, manager)
    assert [one for one in kit.disk.list("/data") if one.startswith("t-0")]
    kit.clock.advance(IN_USE_RETRY_MS)
    remove_directories(kit, manager)

    assert not [one for one in kit.disk.list("/data") if one.startswith("t-0")]
    assert kit.events.names.count("directory_in_use") == 1


def test_a_directory_that_somebody_removes_meanwhile_is_no_fault() -> None:
    kit = Kit()
    manager, log = filled(kit, 20)
    kit.disk.make_dir(f"{log.directory}/backup")
    kit.disk.open(f"{log.directory}/backup/a", create=True).close()
    manager.delete("t", 0)
    kit.disk.inject("list", errno.ENOENT, path="/backup")
    remove_directories(kit, manager)
    remove_directories(kit, manager)

    assert not manager.offline_dirs
    assert not [one for one in kit.disk.list("/data") if one.startswith("t-0")]
