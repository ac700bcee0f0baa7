"""What is kept aside is never replaced: a later cut at the same place takes another name."""

from __future__ import annotations

import random

import pytest

from ottla.broker.log.asides import CUT_SUFFIX, former_name
from ottla.broker.log.checkpoints import read_whole
from ottla.broker.log.examine.findings import Fix
from ottla.broker.log.examine.repair import Repair
from ottla.broker.log.examine.verify import verify_path
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.log.events import RecordedEvents
from tests.log.examine.partitions import content, filled_disk, findings, repair, replace, silent
from tests.log.logs import DIRECTORY, NOW, SMALL, append, flush
from tests.log.test_log_recovery import SIZE, bases, filled, path_of, recover

FIRST = "00000000000000000000"


def kept(disk: SimDisk) -> list[str]:
    return [name for name in disk.list(DIRECTORY) if name.endswith(CUT_SUFFIX)]


def test_a_second_repair_at_the_same_byte_keeps_what_the_first_has_kept() -> None:
    disk = filled_disk()
    wanted: dict[str, bytes] = {}
    for side in (f"{FIRST}.0.cut", f"{FIRST}.0.2.cut", f"{FIRST}.0.3.cut"):
        disk.corrupt(path_of(0), 70, b"\xff\xff")
        (finding,) = findings(disk)
        wanted[side] = content(disk, f"{FIRST}.log")[: finding.size]
        repair(disk)

        assert finding.keeps == f"{DIRECTORY}/{side}"
        assert {name: content(disk, name) for name in kept(disk)} == wanted


def test_a_file_that_is_set_aside_replaces_none() -> None:
    disk = filled_disk()
    for side in (f"{9:020d}.index.cut", f"{9:020d}.index.2.cut"):
        replace(disk, f"{9:020d}.index", side.encode())
        (finding,) = findings(disk)
        repair(disk)

        assert (finding.fix, finding.keeps) == (Fix.SET_ASIDE, f"{DIRECTORY}/{side}")
        assert content(disk, side) == side.encode()
    assert content(disk, f"{9:020d}.index.cut") == f"{9:020d}.index.cut".encode()


def test_a_checkpoint_that_is_set_aside_replaces_none() -> None:
    disk = SimDisk()
    disk.make_dir("/data")
    path = "/data/log-start-offset-checkpoint"
    for text in (b"first", b"second"):
        file = disk.open(path, create=True)
        file.pwrite(text, 0)
        file.close()
        for found in verify_path(disk, path, deep=False, progress=silent):
            Repair(disk, SMALL, RecordedEvents(), now_ms=NOW).file(found)  # type: ignore[arg-type]

    assert read_whole(disk, f"{path}.cut") == b"first"
    assert read_whole(disk, f"{path}.2.cut") == b"second"


def test_a_second_recovery_at_the_same_byte_keeps_what_the_first_has_kept() -> None:
    disk = filled(6)
    for side in (f"{FIRST}.{3 * SIZE}.cut", f"{FIRST}.{3 * SIZE}.2.cut"):
        disk.corrupt(path_of(0), 3 * SIZE + 70, side[-5:].encode())
        cut = content(disk, f"{FIRST}.log")[3 * SIZE :]
        events = RecordedEvents()
        log = recover(disk, events=events)

        assert log.recovery.kept_aside == [f"{DIRECTORY}/{side}"]
        assert events.fields("log_tail_cut")["kept_aside"] == [f"{DIRECTORY}/{side}"]
        assert content(disk, side) == cut
        for _ in range(3):
            append(log)
        flush(log)
        log.close()
    assert content(disk, f"{FIRST}.{3 * SIZE}.cut")[70 + SIZE :] != b""
    assert kept(disk) == [f"{FIRST}.{3 * SIZE}.2.cut", f"{FIRST}.{3 * SIZE}.cut"]


def test_a_segment_that_is_dropped_replaces_none() -> None:
    disk = filled(40)
    _, second, third, _ = bases(disk)
    contents: list[bytes] = []
    for count in ("", ".2"):
        disk.corrupt(path_of(second), 70, b"!")
        contents.append(content(disk, f"{third:020d}.log"))
        events = RecordedEvents()
        log = recover(disk, events=events)

        aside = path_of(third, f".log{count}.cut")
        assert aside in log.recovery.kept_aside
        assert events.fields("segment_dropped")["kept_aside"] == aside
        while log.log_end_offset < 40:
            append(log, epoch=1)
        flush(log)
        log.close()
        assert bases(disk)[1:3] == [second, third]
    assert [content(disk, f"{third:020d}.log{count}.cut") for count in ("", ".2")] == contents


@pytest.mark.parametrize("mode", CrashMode)
def test_a_recovery_that_crashed_makes_one_copy(mode: CrashMode) -> None:
    disk = filled(6)
    disk.corrupt(path_of(0), 3 * SIZE + 70, b"!")
    cut = content(disk, f"{FIRST}.log")[3 * SIZE :]
    crashed: list[SimDisk] = []
    disk.before_call = lambda count, call, path: crashed.append(
        disk.crash(random.Random(count), mode)
    )
    recover(disk)
    disk.before_call = None

    assert len(crashed) > 10
    for left in crashed:
        recover(left)
        assert kept(left) == [f"{FIRST}.{3 * SIZE}.cut"]
        assert content(left, f"{FIRST}.{3 * SIZE}.cut") == cut


def test_a_name_tells_of_which_file_it_is() -> None:
    for added in ("", ".2", ".13"):
        assert former_name(f"{path_of(4)}{added}.cut") == path_of(4)
