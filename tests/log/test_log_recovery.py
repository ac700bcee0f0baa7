"""What a start makes of what a crash left: the decisions, one by one."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from ottla.broker.log.checkpoints import CLEANER_FILE, write_offsets
from ottla.broker.log.log import UPPER_LOG_END, Log
from ottla.broker.log.recovery import DECISIONS, Decision
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.log.events import RecordedEvents
from tests.log.logs import (
    DIRECTORY,
    NOW,
    RELAXED,
    SMALL,
    append,
    batch,
    first_at_time,
    flush,
    new_disk,
    offsets,
    open_log,
    read_all,
)

SIZE = len(batch())
COMPACTED = replace(RELAXED, cleanup_policy=frozenset({"compact"}))


def path_of(base_offset: int, suffix: str = ".log") -> str:
    return f"{DIRECTORY}/{base_offset:020d}{suffix}"


def filled(count: int) -> SimDisk:
    """One-record batches 0 to count - 1, all synced, not closed."""
    disk = new_disk()
    log = open_log(disk, RELAXED)
    for _ in range(count):
        append(log)
    flush(log)
    return disk


def recover(disk: SimDisk, recovery_point: int = 0, events: RecordedEvents | None = None) -> Log:
    return open_log(
        disk,
        RELAXED,
        clean=False,
        recovery_point=recovery_point,
        high_watermark=10**6,
        events=events,
    )


def bases(disk: SimDisk) -> list[int]:
    return [int(name[:20]) for name in disk.list(DIRECTORY) if name.endswith(".log")]


def test_every_case_has_one_decision() -> None:
    assert set(DECISIONS) == set(itertools.product((False, True), repeat=2))
    assert set(DECISIONS.values()) == set(Decision)


@pytest.mark.parametrize(
    ("tail", "end"),
    [
        (b"", 4),
        (bytes(1), 4),
        (bytes(5000), 4),
        (bytes(range(256)) * 9, 4),
        (bytes(batch())[:-1], 4),
        (bytes(batch())[:60], 4),
    ],
)
def test_a_torn_tail_is_cut(tail: bytes, end: int) -> None:
    disk = filled(4)
    file = disk.open(path_of(0))
    file.pwrite(tail, file.size())
    log = recover(disk)

    assert log.log_end_offset == log.durable_end == end
    assert log.recovery.bytes_cut == len(tail)
    assert log.recovery.kept_aside == []
    assert disk.open(path_of(0)).size() == 4 * SIZE
    append(log)
    flush(log)
    assert offsets(log) == [0, 1, 2, 3, 4]


def test_what_is_cut_before_valid_batches_is_kept_aside() -> None:
    disk = filled(6)
    before = disk.open(path_of(0)).pread(6 * SIZE, 0)
    disk.corrupt(path_of(0), 3 * SIZE + 70, b"!")
    events = RecordedEvents()
    log = recover(disk, events=events)

    assert offsets(log) == [0, 1, 2]
    side = f"{DIRECTORY}/{0:020d}.{3 * SIZE}.cut"
    assert log.recovery.kept_aside == [side]
    assert disk.open(side).pread(10**6, 0)[SIZE:] == before[4 * SIZE :]
    assert events.fields("log_tail_cut")["bytes_cut"] == 3 * SIZE
    again = recover(disk)
    assert again.recovery.bytes_cut == 0
    assert offsets(again) == [0, 1, 2]


def test_nothing_durable_is_cut() -> None:
    disk = filled(6)
    disk.corrupt(path_of(0), 3 * SIZE + 70, b"!")
    events = RecordedEvents()
    log = recover(disk, recovery_point=5, events=events)

    assert log.log_end_offset == 6
    assert [(one.position, one.size) for one in log.recovery.damaged] == [(3 * SIZE, SIZE)]
    assert "durable_range_damaged" in events.names
    assert log.recovery.bytes_cut == 0
    append(log)
    flush(log)
    assert log.log_end_offset == 7
    for offset in (4, 5, 6):
        assert log.read(offset, max_bytes=1, upper=UPPER_LOG_END, at_least_one=True) is not None


def test_a_broken_header_below_the_recovery_point_is_skipped() -> None:
    disk = filled(6)
    disk.corrupt(path_of(0), 3 * SIZE + 8, b"\x7f\xff")
    log = recover(disk, recovery_point=6)

    assert log.log_end_offset == 6
    with pytest.raises(KafkaError) as raised:
        log.read(3, max_bytes=1, upper=UPPER_LOG_END, at_least_one=True)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.read(5, max_bytes=1, upper=UPPER_LOG_END, at_least_one=True) is not None


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("base_offset", [0, 11, 33])
@pytest.mark.parametrize("index", [0, 3])
def test_a_high_watermark_behind_a_hole_stops_no_start(
    index: int, base_offset: int, clean: bool
) -> None:
    """A checkpoint may have any; the batch that it names cannot be found there."""
    for log_start in (0, base_offset + 2):
        for high_watermark in range(41):
            disk = filled(40)
            open_log(disk, RELAXED, clean=False, recovery_point=40).close()
            disk.corrupt(path_of(base_offset), index * SIZE + 16, b"\7")
            log = open_log(
                disk,
                RELAXED,
                clean=clean,
                recovery_point=40,
                log_start_offset=log_start,
                high_watermark=high_watermark,
            )

            assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= 40
            assert log.high_watermark <= max(high_watermark, log_start)
            log.set_high_watermark(40)
            assert append(log) == 40


def test_a_durable_tail_that_is_lost_leaves_its_offsets() -> None:
    disk = filled(6)
    disk.corrupt(path_of(0), 4 * SIZE, bytes(2 * SIZE))
    log = recover(disk, recovery_point=6)

    assert log.log_end_offset == 6
    assert [segment.base_offset for segment in log.segments] == [0, 6]
    assert append(log) == 6
    assert disk.open(path_of(0)).size() == 6 * SIZE
    again = recover(disk, recovery_point=6)
    assert (again.log_end_offset, again.segments[-1].base_offset) == (7, 6)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("byte", [0, 3])
def test_an_offset_for_which_no_index_has_room_is_damage(byte: int, clean: bool) -> None:
    """The leader writes the offset behind the producer's back, so no CRC covers it."""
    disk = filled(6)
    disk.corrupt(path_of(0), 5 * SIZE + byte, b"\x40")
    log = open_log(disk, RELAXED, clean=clean, high_watermark=10**6)

    assert log.log_end_offset == 5
    assert offsets(log) == [0, 1, 2, 3, 4]
    assert log.recovery.bytes_cut == SIZE


def test_no_index_has_room_for_an_offset_before_a_segment_that_is_far_away() -> None:
    """As compaction leaves it, or a gap: what is below the next segment may still be too far."""
    far = 2**32
    disk = filled(6)
    disk.make_dir("/data/other-0")
    other = open_log(disk, RELAXED, directory="/data/other-0")
    other.truncate_fully_and_start_at(far)
    append(other)
    flush(other)
    disk.rename(f"/data/other-0/{far:020d}.log", path_of(far))
    disk.corrupt(path_of(0), 5 * SIZE + 4, b"\x80")
    log = open_log(disk, COMPACTED, clean=False, recovery_point=6, high_watermark=far + 1)

    assert [(one.position, one.size) for one in log.recovery.damaged] == [(5 * SIZE, SIZE)]
    assert [one.base_offset for one in log.segments] == [0, far]
    assert log.log_end_offset == far + 1


def test_a_log_that_ends_below_its_recovery_point_gives_no_offset_twice() -> None:
    disk = filled(6)
    disk.open(path_of(0)).truncate(4 * SIZE)
    events = RecordedEvents()
    log = recover(disk, recovery_point=6, events=events)

    assert append(log) == 6
    assert events.fields("log_shorter_than_recovery_point")["end_offset"] == 4


def test_segments_behind_a_cut_go_last_first() -> None:
    disk = filled(40)
    found = bases(disk)
    assert len(found) == 4
    disk.corrupt(path_of(found[1]), 70, b"!")
    events = RecordedEvents()
    log = recover(disk, events=events)

    assert log.log_end_offset == found[1]
    dropped = [fields["path"] for _, name, fields in events.told if name == "segment_dropped"]
    assert dropped == [path_of(found[3]), path_of(found[2])]
    assert log.recovery.segments_dropped == 2
    assert disk.exists(path_of(found[3], ".log.cut"))
    assert bases(disk) == found[:2]
    append(log)
    flush(log)
    assert log.log_end_offset == found[1] + 1


def test_offsets_that_are_missing_between_segments_cut_the_log() -> None:
    disk = filled(40)
    found = bases(disk)
    disk.remove(path_of(found[1]))
    log = recover(disk)

    assert log.log_end_offset == found[1]
    assert bases(disk) == found[:1]


@pytest.mark.parametrize("said_by", ["cleaner", "deleted", "recovery point"])
def test_compaction_leaves_such_gaps(said_by: str) -> None:
    """It writes how far it has come when it has cleaned all that it went for; before, what it has
    replaced lies there."""
    disk = filled(40)
    found = bases(disk)
    if said_by == "deleted":
        disk.rename(path_of(found[1]), path_of(found[1], ".log.deleted"))
    else:
        disk.remove(path_of(found[1]))
    if said_by == "cleaner":
        write_offsets(disk, f"/data/{CLEANER_FILE}", {("orders", 0): found[2]})
    point = 40 if said_by == "recovery point" else 0
    log = open_log(disk, COMPACTED, clean=False, recovery_point=point, high_watermark=10**6)

    assert log.log_end_offset == 40
    assert len(read_all(log)) == (40 - found[2] + found[1]) * SIZE


def test_a_gap_above_what_was_compacted_is_a_crashs() -> None:
    """It has taken what was never acknowledged. Were what lies behind it kept, a producer could
    not send again what is missing before it."""
    disk = filled(40)
    found = bases(disk)
    disk.remove(path_of(found[1]))
    write_offsets(disk, f"/data/{CLEANER_FILE}", {("orders", 0): found[2] - 1, ("orders", 1): 99})
    log = open_log(disk, COMPACTED, clean=False, recovery_point=found[1], high_watermark=10**6)

    assert log.log_end_offset == found[1]
    assert bases(disk) == found[:1]


def test_a_deleted_segment_explains_a_gap_and_takes_the_older_ones_along() -> None:
    disk = filled(40)
    found = bases(disk)
    disk.rename(path_of(found[1]), path_of(found[1], ".log.deleted"))
    log = recover(disk)

    assert (log.log_start_offset, log.log_end_offset) == (found[2], 40)
    assert bases(disk) == found[2:]
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(".deleted")]


def test_only_segments_from_the_recovery_point_on_are_read() -> None:
    disk = filled(40)
    found = bases(disk)
    log = recover(disk, recovery_point=found[2] + 1)

    assert log.recovery.segments_scanned == 2
    assert log.log_end_offset == 40


def test_recovering_twice_gives_what_once_gave() -> None:
    disk = filled(25)
    file = disk.open(path_of(bases(disk)[-1]))
    file.pwrite(b"torn", file.size())
    first = read_all(recover(disk))
    tree = disk.tree()
    second = read_all(recover(disk))

    assert first == second
    assert disk.tree() == tree


def test_a_clean_log_that_does_not_end_well_is_recovered() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log)
    append(log)
    log.close()
    file = disk.open(path_of(0))
    file.pwrite(b"torn", file.size())
    events = RecordedEvents()
    log = open_log(disk, recovery_point=2, events=events)

    assert "clean_log_broken" in events.names
    assert log.log_end_offset == 2
    assert append(log) == 2
    assert not log.recovery.clean


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("left", [None, 0, 4])
def test_a_log_whose_file_is_gone_or_was_emptied_gives_no_offset_twice(
    left: int | None, clean: bool
) -> None:
    """Or was cut between two batches, which leaves it as sound as it was."""
    disk = filled(6)
    open_log(disk, RELAXED, clean=False, recovery_point=6).close()
    if left is None:
        disk.remove(path_of(0))
    else:
        disk.open(path_of(0)).truncate(left * SIZE)
    events = RecordedEvents()
    log = open_log(disk, RELAXED, clean=clean, recovery_point=6, high_watermark=6, events=events)

    errors = ["clean_log_broken"] * clean + ["log_shorter_than_recovery_point"]
    assert [name for level, name, _ in events.told if level == "error"] == errors
    assert events.fields("log_shorter_than_recovery_point")["end_offset"] == (left or 0)
    assert not log.recovery.clean
    assert log.log_start_offset == (6 if left is None else 0)
    assert append(log) == 6
    log.close()
    events = RecordedEvents()
    again = open_log(disk, RELAXED, recovery_point=7, high_watermark=7, events=events)

    assert events.told == []
    assert (again.log_start_offset, again.log_end_offset) == (log.log_start_offset, 7)


def test_a_clean_log_without_its_last_file_gives_no_offset_twice() -> None:
    disk = filled(40)
    open_log(disk, RELAXED, clean=False, recovery_point=40).close()
    last = bases(disk)[-1]
    disk.remove(path_of(last))
    events = RecordedEvents()
    log = open_log(disk, RELAXED, recovery_point=40, high_watermark=40, events=events)

    assert events.fields("clean_log_broken")["reason"] == (
        f"it ends at offset {last}, and was synced up to 40"
    )
    assert append(log) == 40


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "short", "long", "odd", "zeros", "garbage", "empty"])
def test_a_bad_index_is_rebuilt(suffix: str, damage: str) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    for step in range(40):
        append(log, timestamp=NOW + step)
    log.close()
    expected = read_all(log)
    for base_offset in bases(disk):
        file = disk.open(path_of(base_offset, suffix))
        size = file.size()
        match damage:
            case "missing":
                disk.remove(path_of(base_offset, suffix))
            case "short":
                file.truncate(size - size // 2 // 12 * 12 - (12 if suffix == ".timeindex" else 8))
            case "long":
                file.truncate(size + 240)
            case "odd":
                file.truncate(size - 1)
            case "zeros":
                disk.corrupt(path_of(base_offset, suffix), 0, bytes(size))
            case "garbage":
                disk.corrupt(path_of(base_offset, suffix), 0, bytes(range(7, 7 + size)))
            case "empty":
                file.truncate(0)
    log = open_log(disk, SMALL, high_watermark=10**6)

    for step in range(40):
        assert first_at_time(log, NOW + step) == (step, NOW + step, 0)
    assert read_all(log) == expected
    assert append(log) == 40


def test_a_batch_before_a_hole_ends_where_it_ends_when_indexes_are_made_anew() -> None:
    disk = filled(40)
    open_log(disk, RELAXED, clean=False, recovery_point=40).close()
    disk.corrupt(path_of(11), 5 * SIZE + 16, b"\7")
    disk.remove(path_of(11, ".index"))
    log = open_log(disk, RELAXED, recovery_point=40, high_watermark=40)
    for _ in range(2):
        found = log.read(15, max_bytes=1, upper=UPPER_LOG_END, at_least_one=True)

        assert found is not None
        assert (found.position, found.size) == (4 * SIZE, SIZE)


def test_leftovers_are_dealt_with() -> None:
    disk = filled(4)
    for name in ("leader-epoch-checkpoint.tmp", "7.log.cleaned", f"{99:020d}.index", "mine.txt"):
        disk.open(f"{DIRECTORY}/{name}", create=True)
    for name in (f"{9:020d}.log.deleted", f"{9:020d}.index.deleted"):
        disk.open(f"{DIRECTORY}/{name}", create=True)
    log = recover(disk)

    assert offsets(log) == [0, 1, 2, 3]
    assert disk.list(DIRECTORY) == [
        f"{0:020d}.index",
        f"{0:020d}.log",
        f"{0:020d}.timeindex",
        "leader-epoch-checkpoint",
        "mine.txt",
    ]


def swap(disk: SimDisk, first: int, second: int) -> None:
    """A cleaner merged two segments into one, and the crash came before it took its place."""
    data = b"".join(
        file.pread(file.size(), 0)
        for file in (disk.open(path_of(first)), disk.open(path_of(second)))
    )
    disk.open(path_of(first, ".log.swap"), create=True).pwrite(data, 0)
    disk.open(path_of(first, ".index.swap"), create=True)


def test_a_swap_takes_the_place_of_the_segments_in_its_range() -> None:
    disk = filled(40)
    found = bases(disk)
    swap(disk, found[1], found[2])
    log = recover(disk)

    assert bases(disk) == [found[0], found[1], found[3]]
    assert offsets(log) == list(range(40))


def test_a_split_that_was_not_finished_is_undone() -> None:
    disk = filled(40)
    found = bases(disk)
    swap(disk, found[1], found[2])
    disk.open(path_of(found[1], ".log.cleaned"), create=True)
    log = recover(disk)

    assert bases(disk) == found
    assert offsets(log) == list(range(40))


def test_an_index_whose_log_was_swapped_follows_it() -> None:
    disk = filled(4)
    disk.rename(path_of(0, ".index"), path_of(0, ".index.swap"))
    recover(disk)

    assert disk.exists(path_of(0, ".index"))
    assert not disk.exists(path_of(0, ".index.swap"))


def test_a_log_below_its_start_begins_anew() -> None:
    disk = filled(4)
    log = open_log(disk, RELAXED, clean=False, log_start_offset=9)

    assert (log.log_start_offset, log.log_end_offset) == (9, 9)
    assert bases(disk) == [9]
    assert append(log) == 9


def test_an_empty_directory_begins_at_the_log_start() -> None:
    disk = new_disk()
    log = open_log(disk, log_start_offset=5, clean=False)

    assert append(log) == 5


def test_an_old_preallocated_tail_is_no_batch() -> None:
    disk = filled(4)
    disk.open(path_of(0)).truncate(1_000_000)
    log = recover(disk)

    assert log.log_end_offset == 4
    assert disk.open(path_of(0)).size() == 4 * SIZE


@pytest.mark.parametrize("rolls", [False, True], ids=["cut back", "rolled"])
def test_a_clean_stop_syncs_what_a_full_disk_left_behind(rolls: bool) -> None:
    """Nothing was appended since the start, but files have changed, and a crash may follow."""
    disk = new_disk()
    log = open_log(disk, SMALL)
    for _ in range(8):
        append(log)
    log.close()
    end, size = log.log_end_offset, log.segments[0].size
    log = open_log(disk, SMALL, recovery_point=end)
    disk.free = 30
    with pytest.raises(KafkaError):
        append(log)
    if rolls:
        disk.free = 60
        with pytest.raises(KafkaError):
            append(log, size=900)
        assert len(log.segments) == 2
    disk.free = 1 << 30
    log.close()
    for mode in CrashMode:
        left = disk.crash(random.Random(1), mode)
        again = open_log(left, SMALL, recovery_point=end, high_watermark=end)

        assert again.log_end_offset == end
        assert again.segments[0].size == size
        assert offsets(again) == list(range(end))
