"""Partitions that are made together: what a crash leaves of them, and in which order it is done."""

from __future__ import annotations

import errno
import random
from itertools import groupby

import pytest

from ottla.broker.log.checkpoints import PARTITION_METADATA_FILE, TEMPORARY_SUFFIX
from ottla.broker.log.manager import LogManager
from ottla.broker.log.rearranging import TOGETHER_MAX, Rearrangement
from ottla.testing.disk import SimCrash
from ottla.testing.platter import CrashMode
from tests.log.test_manager import CONFIG, OTHER_ID, TOPIC_ID, Kit, append, flush


def planned(kit: Kit, count: int) -> tuple[LogManager, Rearrangement]:
    manager = kit.started()
    work = Rearrangement()
    for partition in range(count):
        manager.begin_create(work, "t", partition, TOPIC_ID)
    return manager, work


def test_partitions_made_together_survive_a_crash_at_any_call() -> None:
    """Goal: the next start has each of them, or can have it made; and all once the call returned.

    Method: crash at each call that changes the disk, and behind the last, in every mode.
    """
    kit = Kit()
    manager, work = planned(kit, 4)
    before = kit.disk.calls
    manager.perform(work)
    calls = kit.disk.calls - before
    made_anew = identified_anew = 0

    for at in range(calls + 1):
        kit = Kit()
        manager, work = planned(kit, 4)
        kit.disk.crash_at = before + at
        if at < calls:
            with pytest.raises(SimCrash):
                manager.perform(work)
        else:
            manager.perform(work)
        for mode in CrashMode:
            left = Kit()
            left.disk = kit.disk.crash(random.Random(at), mode)
            again = left.started()
            for partition in range(4):
                log = again.get("t", partition)
                if at == calls:
                    assert log is not None
                    assert log.topic_id == TOPIC_ID
                if log is None:
                    made_anew += 1
                    log = again.create("t", partition, TOPIC_ID)
                elif log.topic_id != TOPIC_ID:
                    identified_anew += 1
                    again.assign_topic_id(log, TOPIC_ID)
                assert log.log_end_offset == 0
                append(log)
    assert made_anew
    assert identified_anew


def test_their_names_are_written_synced_and_renamed_together() -> None:
    """What a journal has of them can be written together: all that comes before a sync."""
    kit = Kit()
    manager, work = planned(kit, TOGETHER_MAX + 3)
    seen: list[str] = []

    def note(_count: int, call: str, path: str) -> None:
        name = path.rpartition("/")[2].removesuffix(TEMPORARY_SUFFIX)
        if name == PARTITION_METADATA_FILE or call == "sync_dir":
            seen.append("write" if call == "create" else call.removeprefix("p"))

    kit.disk.before_call = note
    manager.perform(work)

    rounds = [(call, len(list(calls))) for call, calls in groupby(seen)]
    assert rounds == [
        ("write", 2 * TOGETHER_MAX),
        ("sync", TOGETHER_MAX),
        ("rename", TOGETHER_MAX),
        ("sync_dir", TOGETHER_MAX),
        ("write", 2 * 3),
        ("sync", 3),
        ("rename", 3),
        ("sync_dir", 4),  # and the log dir
    ]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("passing", [0, 2])
def test_partitions_whose_names_could_not_be_synced_are_gone(number: int, passing: int) -> None:
    """The next start would take them for durable, and lose with them what it acknowledges."""
    kit = Kit("/meta", "/data")
    manager, work = planned(kit, 4)
    log_dir = work.creations[0].log_dir
    mine = [one.key[1] for one in work.creations if one.log_dir == log_dir]
    assert len(mine) == 2
    kit.disk.inject("sync_dir", number, path=log_dir, passing=passing)
    manager.perform(work)
    manager.adopt(work)
    assert log_dir in work.failures
    assert not [one for one in kit.disk.list(log_dir) if one.startswith("t-")]
    assert (log_dir in manager.offline_dirs) is (passing == 2 or number == errno.EIO)
    kit.disk = kit.disk.crash(random.Random(1), CrashMode.PROCESS)
    manager = kit.started()
    for partition in mine:
        append(log := manager.create("t", partition, TOPIC_ID))
        flush(log)
    kit.disk = kit.disk.crash(random.Random(1), CrashMode.SUBSET)
    manager = kit.started()

    for partition in mine:
        found = manager.get("t", partition)
        assert found is not None
        assert (found.log_end_offset, found.topic_id) == (1, TOPIC_ID)


def test_what_was_renamed_before_a_refusal_is_durable() -> None:
    kit = Kit()
    manager = kit.started()
    work = Rearrangement()
    for partition in range(2):
        append(manager.create("t", partition, TOPIC_ID))
        manager.begin_delete(work, "t", partition)
    kit.disk.inject("rename", errno.ENOSPC, path="/data/t-1")
    manager.perform(work)
    manager.adopt(work)
    assert (len(manager.deletions), manager.has_refused()) == (1, True)
    other = Rearrangement()
    manager.begin_create(other, "u", 0, OTHER_ID)
    assert other.departures == [], "its name is another"

    for mode in CrashMode:
        names = kit.disk.crash(random.Random(1), mode).list("/data")
        assert "t-0" not in names, mode
        assert "t-1" in names


def test_what_a_full_disk_will_not_rename_is_deleted_when_there_is_room() -> None:
    kit = Kit()
    manager = kit.started()
    append(manager.create("t", 0, TOPIC_ID))
    kit.disk.inject("rename", errno.ENOSPC, path="/data/t-0", times=2)
    manager.delete("t", 0)
    assert (manager.get("t", 0), manager.has_refused()) == (None, True)
    assert not manager.offline_dirs, "nothing was synced"
    with pytest.raises(OSError, match="No space left"):
        manager.create("t", 0, OTHER_ID)  # the name is not free yet
    assert kit.disk.exists("/data/t-0")

    log = manager.create("t", 0, OTHER_ID)
    assert (log.log_end_offset, manager.has_refused()) == (0, False)
    kit.clock.advance(CONFIG.file_delete_delay_ms)
    for removal in manager.deletions.due_directories():
        for _ in manager.deletions.remove_directory(removal):
            pass
    assert [name for name in kit.disk.list("/data") if name.startswith("t-0")] == ["t-0"]
