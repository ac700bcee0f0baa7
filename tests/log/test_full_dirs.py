"""Log dirs without room: where partitions are made, and what waits there for another name."""

from __future__ import annotations

import errno

import pytest

from ottla.broker.faults import Call
from ottla.broker.log import checkpoints
from ottla.broker.log.rearranging import Rearrangement
from ottla.testing.disk import Fault, SimFile
from tests.log.test_manager import OTHER_ID, TOPIC_ID, Kit, append


def test_a_full_disk_refuses_a_creation_and_nothing_more() -> None:
    kit = Kit()
    manager = kit.started()
    kit.disk.free = 0
    with pytest.raises(OSError, match="No space left"):
        manager.create("t", 0, TOPIC_ID)
    assert not manager.offline_dirs
    kit.disk.free = 1 << 30

    append(manager.create("t", 0, TOPIC_ID))


def test_a_stop_tries_once_more_to_delete_what_a_full_disk_refused() -> None:
    kit = Kit()
    manager = kit.started()
    append(manager.create("t", 0, TOPIC_ID))
    kit.disk.inject("rename", errno.ENOSPC, path="/data/t-0")
    manager.delete("t", 0)
    assert manager.has_refused()
    manager.shutdown(1)

    again = kit.started()
    assert (again.logs, len(again.deletions), again.unclean_dirs) == ([], 1, [])


def test_a_stop_marks_no_dir_clean_that_keeps_what_was_not_closed() -> None:
    kit = Kit()
    manager = kit.started()
    append(log := manager.create("t", 0, TOPIC_ID))
    file = log.segments.active.file
    assert isinstance(file, SimFile)
    kit.disk.inject("rename", errno.ENOSPC, path="/data/t-0", times=2)
    manager.delete("t", 0)
    manager.shutdown(1)
    manager.abandon()

    assert (file._closed, manager.has_refused()) == (True, False)
    again = kit.started()
    assert [log.log_end_offset for log in again.logs] == [1]
    assert again.unclean_dirs == ["/data"]


def test_nothing_is_renamed_any_more_in_a_dir_that_is_offline() -> None:
    kit = Kit("/meta", "/b")
    manager = kit.started()
    logs = [manager.create("t", partition, TOPIC_ID) for partition in range(2)]
    assert manager.dir_of(logs[1]) == "/b"
    kit.disk.inject("rename", errno.ENOSPC, path="/b/t-1")
    manager.delete("t", 1)
    manager.faults.failed("/b", Call.SYNC, OSError(errno.EIO, "Input/output error"))
    assert not manager.has_refused()
    manager.shutdown(1)
    assert kit.disk.exists("/b/t-1")


def _with_one_of_an_older_topic(kit: Kit) -> Fault:
    """t-0 is served from /b, and /a holds what had no room for another name when its topic was
    deleted. The fault that still refuses it."""
    manager = kit.started()
    append(manager.create("t", 0, TOPIC_ID))
    fault = kit.disk.inject("rename", errno.ENOSPC, path="/a/t-0", times=1000)
    manager.delete("t", 0)
    manager.full_dirs = frozenset(["/a"])
    append(manager.create("t", 0, OTHER_ID))
    manager.shutdown(1)
    assert kit.disk.exists("/a/t-0")
    assert kit.disk.exists("/b/t-0")
    return fault


def test_a_start_serves_beside_what_a_full_disk_will_not_rename() -> None:
    kit = Kit("/a", "/b")
    fault = _with_one_of_an_older_topic(kit)
    manager = kit.manager()
    manager.load(topic_id_of=lambda topic: OTHER_ID)
    (log,) = manager.logs
    assert (log.topic_id, log.log_end_offset) == (OTHER_ID, 1)
    assert (manager.offline_dirs, manager.has_refused("/a", ("t", 0))) == ({}, True)

    fault.times = 0
    work = Rearrangement()
    manager.begin_again(work)
    manager.perform(work)
    manager.adopt(work)
    path = kit.events.fields("stray_partition_kept")["path"]
    assert kit.disk.exists(f"{path}/00000000000000000000.log")
    assert not kit.disk.exists("/a/t-0")
    manager.abandon()
    assert [log.topic_id for log in kit.started().logs] == [OTHER_ID]


def test_two_dirs_of_one_deleted_topic_do_not_stop_the_start() -> None:
    kit = Kit("/a", "/b")
    fault = _with_one_of_an_older_topic(kit)
    fault.times = 0
    manager = kit.manager()
    manager.load(topic_id_of=lambda topic: None)
    assert manager.logs == []
    assert [name for name in kit.disk.list("/a") if name.endswith("-stray")] != []
    assert [name for name in kit.disk.list("/b") if name.endswith("-stray")] != []


def test_a_dir_that_fails_to_set_an_older_partition_aside_is_offline() -> None:
    kit = _with_two_of_a_name()
    kit.disk.inject("rename", errno.EIO, path="/a/t-1")
    manager = kit.manager()
    manager.load(topic_id_of=lambda topic: OTHER_ID)

    assert list(manager.offline_dirs) == ["/a"]
    found = sorted((log.partition, manager.dir_of(log)) for log in manager.logs)
    assert found == [(0, "/meta"), (1, "/b"), (2, "/b"), (3, "/meta"), (5, "/b")]


def test_a_dir_of_which_a_start_cannot_know_all_is_offline() -> None:
    """Or what lies there would be made anew."""
    for path in ("/a/t-1/partition.metadata", "/a/recovery-point-offset-checkpoint"):
        kit = _with_two_of_a_name()
        kit.disk.inject("open", errno.EMFILE, path=path)
        manager = kit.manager()
        manager.load(topic_id_of=lambda topic: OTHER_ID)
        assert list(manager.offline_dirs) == ["/a"], path
        assert "/a" not in {manager.dir_of(log) for log in manager.logs}


def _with_two_of_a_name() -> Kit:
    """t-0 to t-5 in three dirs, and another t-1 in /b."""
    kit = Kit("/meta", "/a", "/b")
    manager = kit.started()
    logs = [manager.create("t", partition, TOPIC_ID) for partition in range(6)]
    assert [manager.dir_of(log) for log in logs] == ["/meta", "/a", "/b"] * 2
    manager.shutdown(1)
    kit.disk.make_dir("/b/t-1")
    checkpoints.write_partition_metadata(kit.disk, "/b/t-1", OTHER_ID)
    return kit
