"""A sound partition has no finding; each kind of harm has its own, and a repair takes it away."""

from __future__ import annotations

import struct

import pytest

from ottla.broker.log.asides import CUT_SUFFIX
from ottla.broker.log.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES_FILE,
    parent_of,
    write_partition_metadata,
)
from ottla.broker.log.examine.findings import Finding, Fix
from ottla.broker.log.examine.partition import PartitionFacts
from ottla.broker.log.examine.repair import plan
from ottla.broker.log.examine.scan import Damage, LogScan
from ottla.broker.log.examine.verify import verify_path
from ottla.config.types import LogConfig
from ottla.protocol.records.batch import iterate_headers
from ottla.testing.disk import SimDisk, SimFile
from tests.log.examine.partitions import (
    content,
    end,
    filled_disk,
    findings,
    fixes,
    repair,
    replace,
    silent,
    verified,
    write,
)
from tests.log.logs import (
    DIRECTORY,
    NOW,
    SMALL,
    TOPIC_ID,
    append,
    batch,
    flush,
    new_disk,
    open_log,
    read_all,
)

FIRST = "00000000000000000000"


def segments() -> list[str]:
    """The digits of the segments' names, oldest first."""
    return [one.file.name.removesuffix(".log") for one in verified(filled_disk()).segments]


def aborting() -> str:
    """The segment with the abort marker."""
    return next(
        one.file.name.removesuffix(".log")
        for one in verified(filled_disk()).segments
        if one.aborted
    )


def test_a_sound_partition_has_no_finding() -> None:
    facts = verified(filled_disk())

    assert facts.findings == []
    assert len(facts.segments) > 3
    assert [epoch for epoch, _ in facts.epochs] == [0, 1]
    assert sum(len(one.aborted) for one in facts.segments) == 1


@pytest.mark.parametrize("size", [4, 8, 12, 24])
def test_indexes_too_small_for_an_entry_are_no_finding(size: int) -> None:
    disk = new_disk()
    write_partition_metadata(disk, DIRECTORY, TOPIC_ID)
    log = open_log(disk, LogConfig(segment_index_bytes=size, index_interval_bytes=1))
    for step in range(6):
        append(log, timestamp=NOW + step)
    log.close()

    assert len(verified(disk).segments) == (6 if size < 24 else 3)
    assert findings(disk) == []


@pytest.mark.parametrize("bit", [5, 16, 18, 30, 80])
def test_a_flipped_bit_in_an_old_segment_is_found_taken_out_and_kept_aside(bit: int) -> None:
    """Whichever byte of the second batch it hits: length, magic, CRC, header or record."""
    disk = filled_disk()
    before = content(disk, f"{FIRST}.log")
    (_, first), (position, second), *_ = iterate_headers(before)
    damaged = bytearray(before)
    damaged[position + bit] ^= 0x40
    replace(disk, f"{FIRST}.log", bytes(damaged))
    (found,) = findings(disk)
    assert (found.path, found.position, found.fix) == (
        f"{DIRECTORY}/{FIRST}.log",
        position,
        Fix.TAKE_OUT,
    )
    assert found.size == second.size
    assert f"from {first.last_offset + 1} up to {second.last_offset + 1}" in found.what
    repair(disk)

    assert findings(disk) == []
    aside = content(disk, f"{FIRST}.{position}{CUT_SUFFIX}")
    assert aside == bytes(damaged[position : position + second.size])
    rest = content(disk, f"{FIRST}.log")
    assert rest == before[:position] + before[position + second.size :]


def test_an_offset_beyond_the_range_of_a_segment_is_damage() -> None:
    disk = filled_disk()
    last = segments()[-1]
    *_, (position, header) = iterate_headers(content(disk, f"{last}.log"))
    disk.corrupt(f"{DIRECTORY}/{last}.log", position + 1, b"\x40")
    found, *_ = findings(disk)
    assert (found.position, found.size, found.fix) == (position, header.size, Fix.CUT_TAIL)
    repair(disk)

    assert findings(disk) == []


@pytest.mark.parametrize("limit", [None, 2**40])
@pytest.mark.parametrize(("base_offset", "is_sound"), [(2**31 + 8, True), (2**31 + 9, False)])
def test_a_batch_must_also_end_in_the_range_of_its_segment(
    base_offset: int, is_sound: bool, limit: int | None
) -> None:
    disk = new_disk()
    file = disk.open(f"{DIRECTORY}/{10:020d}.log", create=True)
    records = bytearray(batch(2))
    records[:8] = base_offset.to_bytes(8, "big")
    file.pwrite(records, 0)
    (found,) = LogScan(file, file.size(), 10, limit)

    assert isinstance(found, Damage) == (not is_sound)


@pytest.mark.parametrize("tail", [b"\0" * 100, b"half a batch"])
def test_a_bad_tail_is_cut_and_what_is_no_zeros_is_kept(tail: bytes) -> None:
    disk = filled_disk()
    last = segments()[-1]
    sound = content(disk, f"{last}.log")
    replace(disk, f"{last}.log", sound + tail)
    assert fixes(disk) == [(f"{last}.log", Fix.CUT_TAIL)]
    repair(disk)

    assert findings(disk) == []
    assert content(disk, f"{last}.log") == sound
    is_kept = disk.exists(f"{DIRECTORY}/{last}.{len(sound)}{CUT_SUFFIX}")
    assert is_kept == (tail.strip(b"\0") != b"")


@pytest.mark.parametrize(
    ("suffix", "entry"),
    [
        (".index", struct.pack(">ii", 1, 7)),
        (".index", struct.pack(">ii", 1_000_000, 70)),
        (".index", b"odd"),
        (".timeindex", struct.pack(">qi", 5, 1)),
        (".timeindex", b"odd"),
        (".timeindex", b""),
    ],
)
def test_an_index_that_is_not_true_is_made_anew(suffix: str, entry: bytes) -> None:
    disk = filled_disk()
    sound = content(disk, FIRST + suffix)
    replace(disk, FIRST + suffix, entry)
    assert fixes(disk) == [(FIRST + suffix, Fix.REBUILD_INDEXES)]
    repair(disk)

    assert findings(disk) == []
    assert content(disk, FIRST + suffix) == sound


def test_the_zeros_of_an_index_that_was_not_cut_to_size_are_no_finding() -> None:
    disk = filled_disk()
    last = segments()[-1]
    for suffix in (".index", ".timeindex"):
        replace(disk, last + suffix, content(disk, last + suffix) + bytes(240 * 3000))

    assert findings(disk) == []


def test_what_stands_behind_the_zeros_of_an_index_is_found() -> None:
    disk = filled_disk()
    index = segments()[-1] + ".index"
    replace(disk, index, content(disk, index) + bytes(240 * 3000) + b"\1" * 8)

    assert fixes(disk) == [(index, Fix.REBUILD_INDEXES)]


def test_missing_and_orphan_indexes_are_told() -> None:
    disk = filled_disk()
    disk.remove(f"{DIRECTORY}/{FIRST}.index")
    replace(disk, "00000000000000000007.timeindex", b"")
    assert fixes(disk) == [
        ("00000000000000000007.timeindex", Fix.SET_ASIDE),
        (f"{FIRST}.log", Fix.REBUILD_INDEXES),
    ]
    repair(disk)

    assert findings(disk) == []


@pytest.mark.parametrize("harm", ["lost", "torn", "another"])
def test_a_transaction_index_must_have_what_was_aborted(harm: str) -> None:
    disk = filled_disk()
    name = f"{aborting()}.txnindex"
    sound = content(disk, name)
    if harm == "lost":
        disk.remove(f"{DIRECTORY}/{name}")
    elif harm == "torn":
        replace(disk, name, sound[:-1])
    else:
        replace(disk, name, sound[:2] + struct.pack(">q", 77) + sound[10:])
    assert {fix for _, fix in fixes(disk)} == {Fix.REWRITE_TRANSACTIONS}
    repair(disk)

    assert findings(disk) == []
    assert content(disk, name) == sound


def _running_disk(*, marked: bool = False) -> SimDisk:
    """A broker has aborted a transaction in its active segment and goes on."""
    disk = new_disk()
    write_partition_metadata(disk, DIRECTORY, TOPIC_ID)
    replace_beside(disk, META_PROPERTIES_FILE)
    log = open_log(disk)
    write(log, 1, 0)
    end(log, 1, committed=False)
    flush(log)
    if marked:
        ticket = log.begin_waypoint()
        assert ticket is not None
        ticket.write()
        log.waypoints.finish(ticket)
        log.waypoints.name()
    return disk


def replace_beside(disk: SimDisk, name: str) -> None:
    """Writes a file of the log dir."""
    disk.open(f"{parent_of(DIRECTORY)}/{name}", create=True).close()


def test_what_a_running_broker_has_in_memory_is_not_missing() -> None:
    """Nor is it behind a crash, for a start makes it anew; behind a clean stop it is."""
    disk = _running_disk()
    assert findings(disk) == []

    replace_beside(disk, CLEAN_SHUTDOWN_FILE)
    assert fixes(disk) == [(f"{FIRST}.txnindex", Fix.REWRITE_TRANSACTIONS)]


def test_what_a_start_would_not_make_anew_is_missing() -> None:
    disk = _running_disk(marked=True)
    assert findings(disk) == []

    disk.remove(f"{DIRECTORY}/{FIRST}.txnindex")
    assert fixes(disk) == [(f"{FIRST}.txnindex", Fix.REWRITE_TRANSACTIONS)]


def test_a_snapshot_is_held_against_its_crc_and_against_the_log() -> None:
    disk = filled_disk()
    name = f"{segments()[-1]}.snapshot"
    replace(disk, name, content(disk, name)[:-1] + b"\x55")
    assert fixes(disk) == [(name, Fix.REMOVE_SNAPSHOT)]
    other = f"{segments()[-2]}.snapshot"
    replace(disk, name, content(disk, other))
    replace(disk, "00000000000000999999.snapshot", content(disk, other))
    assert sorted(fixes(disk)) == sorted(
        [(name, Fix.REMOVE_SNAPSHOT), ("00000000000000999999.snapshot", Fix.REMOVE_SNAPSHOT)]
    ) or fixes(disk) == [("00000000000000999999.snapshot", Fix.REMOVE_SNAPSHOT)]
    repair(disk)

    assert findings(disk) == []


@pytest.mark.parametrize("text", [b"0\n2\n0 0\n1 3\n", b"0\n5\n0 0\n", b"nothing\n"])
def test_leader_epochs_are_written_anew_from_the_batches(text: bytes) -> None:
    disk = filled_disk()
    sound = content(disk, "leader-epoch-checkpoint")
    replace(disk, "leader-epoch-checkpoint", text)
    assert fixes(disk) == [("leader-epoch-checkpoint", Fix.REWRITE_EPOCHS)]
    repair(disk)

    assert findings(disk) == []
    assert content(disk, "leader-epoch-checkpoint") == sound


def test_what_was_repaired_opens_with_all_that_could_be_read() -> None:
    disk = filled_disk()
    before = content(disk, f"{FIRST}.log")
    (_, first), (position, second), *_ = iterate_headers(before)
    disk.corrupt(f"{DIRECTORY}/{FIRST}.log", position + 70, b"\xff\xff")
    whole = read_all(open_log(filled_disk(), SMALL))
    repair(disk)
    log = open_log(disk, SMALL, clean=False)

    assert read_all(log) == whole[: first.size] + whole[first.size + second.size :]


def test_each_finding_is_a_sentence_and_each_fix_can_be_told_before() -> None:
    disk = filled_disk()
    replace(disk, f"{FIRST}.index", b"odd")
    replace(disk, "partition.metadata", b"version: 7")
    found = findings(disk)

    assert [str(one) for one in found] == [
        f"{DIRECTORY}/partition.metadata: not a version line and a topic_id line."
        " The id of the topic stands in its TopicRecord: `ottla log dump --deep` of"
        " __cluster_metadata-0. Write `version: 0` and `topic_id: ...` into the file.",
        f"{DIRECTORY}/{FIRST}.index at byte 3: its size of 3 bytes is no number of entries."
        " An index is only a hint: `ottla log repair` makes it anew from the log.",
    ]
    assert list(plan(found)) == [
        f"{DIRECTORY}/{FIRST}.index at byte 3: rebuild the indexes of the segment"
    ]


def test_the_files_of_a_log_dir_are_verified_with_its_partitions() -> None:
    disk = filled_disk()
    offsets = disk.open("/data/recovery-point-offset-checkpoint", create=True)
    offsets.pwrite(b"0\n1\norders 0 4000\n", 0)
    broken = disk.open("/data/replication-offset-checkpoint", create=True)
    broken.pwrite(b"0\n9\n", 0)
    found = [
        (one.path, one.fix)
        for one in verify_path(disk, "/data", deep=False, progress=silent)
        if isinstance(one, Finding)
    ]

    assert found == [
        ("/data/recovery-point-offset-checkpoint", Fix.NOTHING),
        ("/data/replication-offset-checkpoint", Fix.SET_ASIDE),
    ]


def test_a_checkpoint_of_a_running_broker_may_have_moved_on_when_its_turn_comes() -> None:
    """Only what it said before the log was read must be in the log."""
    disk = filled_disk()
    offsets = disk.open("/data/replication-offset-checkpoint", create=True)
    offsets.pwrite(b"0\n1\norders 0 10\n", 0)
    verification = verify_path(disk, "/data", deep=False, progress=silent)
    facts = next(verification)
    assert isinstance(facts, PartitionFacts)
    assert 10 < facts.end_offset < 4000
    offsets.pwrite(b"0\n1\norders 0 4000\n", 0)

    assert list(verification) == []
    (found,) = [
        one
        for one in verify_path(disk, "/data", deep=False, progress=silent)
        if isinstance(one, Finding)
    ]
    assert found.what.startswith("it says offset 4000 of orders-0, whose log ends at")


def test_a_partition_that_is_deleted_while_it_is_read_is_passed_over() -> None:
    disk = filled_disk()

    def delete(read: int) -> None:
        if disk.exists(DIRECTORY):
            disk.rename(DIRECTORY, f"{DIRECTORY}.{'0' * 32}-delete")

    assert list(verify_path(disk, "/data", deep=False, progress=delete)) == []
    # As long as it waits to be removed it is nobody's any more; by its name it can be read.
    assert list(verify_path(disk, "/data", deep=False, progress=silent)) == []
    (facts,) = verify_path(disk, f"{DIRECTORY}.{'0' * 32}-delete", deep=False, progress=silent)
    assert isinstance(facts, PartitionFacts)
    assert facts.segments


def test_a_partition_that_loses_its_oldest_segments_is_read_again() -> None:
    disk = filled_disk()
    first, second, third, *_ = segments()

    def expire(read: int) -> None:
        for name in disk.list(DIRECTORY):
            if name.startswith((first, second)):
                disk.remove(f"{DIRECTORY}/{name}")

    (facts,) = verify_path(disk, "/data", deep=False, progress=expire)
    assert isinstance(facts, PartitionFacts)
    assert facts.findings == []
    assert facts.segments[0].file.base_offset == int(third)


def test_a_file_that_cannot_be_found_time_and_again_is_an_error() -> None:
    class Losing(SimDisk):
        def open(self, path: str, *, create: bool = False) -> SimFile:
            if path.endswith(".log"):
                raise FileNotFoundError(2, "No such file or directory", path)
            return super().open(path, create=create)

    disk = filled_disk()
    disk.__class__ = Losing
    with pytest.raises(FileNotFoundError):
        list(verify_path(disk, "/data", deep=False, progress=silent))
