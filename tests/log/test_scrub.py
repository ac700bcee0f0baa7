"""Old segments are read again: what a disk has forgotten is found, kept apart, and told."""

from __future__ import annotations

import random

import pytest

from ottla.broker.log.checkpoints import MalformedFile
from ottla.broker.log.log import Log
from ottla.broker.log.log_dir import LogDir
from ottla.broker.log.quarantine import (
    DAMAGED_RANGES_FILE,
    DamagedRange,
    format_ranges,
    parse_ranges,
    read_ranges,
    write_ranges,
)
from ottla.broker.log.scrub import BATCH_COST_BYTES, Scrubber, SegmentScrub, restore
from ottla.broker.log.transaction_index import ENTRY
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.control import build_marker
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.log.events import RecordedEvents
from tests.log.logs import (
    DIRECTORY,
    NOW,
    SMALL,
    append,
    batch,
    flush,
    headers_of,
    new_disk,
    open_log,
)

FIRST = f"{DIRECTORY}/00000000000000000000.log"
DAY_MS = 86_400_000
ALL = 1 << 30


class Bench:
    """A log of several sealed segments of 10 batches, and a scrubber over it."""

    def __init__(self) -> None:
        self.disk = new_disk()
        self.log = open_log(self.disk, SMALL)
        for _ in range(55):
            append(self.log)
        flush(self.log)
        self.events = RecordedEvents()
        self.scrubber = self.new_scrubber()
        self.now_ms = 0

    def new_scrubber(self, seed: int = 1) -> Scrubber:
        return Scrubber(
            list_logs=lambda: [self.log],
            find_log=lambda topic, partition: self.log,
            events=self.events,
            rng=random.Random(seed),
        )

    def begin(self) -> SegmentScrub | None:
        return self.scrubber.begin(now_ms=self.now_ms, interval_ms=DAY_MS)

    def round(self, budget: int = ALL) -> list[int]:
        """Reads to the end of the round; the base offsets of the segments, in their order."""
        order: list[int] = []
        while (work := self.begin()) is not None:
            if work.segment.base_offset not in order[-1:]:
                order.append(work.segment.base_offset)
            self.scrubber.finish(work, work.read(budget))
            if work.to_mend:
                work.mend()
                self.scrubber.mended(work)
        return order

    def batch_at(self, index: int) -> tuple[int, int]:
        """Position and size of a batch of the first segment, which has the offset `index`."""
        return self.log.segments[0].locate(index)

    def read(self, offset: int, max_bytes: int = ALL) -> list[int]:
        found = self.log.read(offset, max_bytes=max_bytes, upper=1, at_least_one=True)
        assert found is not None
        return [header.base_offset for header in headers_of(found.read())]


def test_a_round_takes_each_sealed_segment_once_and_the_next_waits() -> None:
    bench = Bench()
    sealed = [one.base_offset for one in bench.log.segments[:-1]]
    order = bench.round()
    assert len(sealed) > 3
    assert sorted(order) == sealed
    start = order.index(0)
    assert order[start:] + order[:start] == sealed
    assert bench.scrubber.scrubbed_bytes == bench.log.segments.sealed_bytes
    assert bench.round() == []
    bench.now_ms += DAY_MS
    assert sorted(bench.round()) == sealed

    assert bench.events.names == []
    assert not bench.log.quarantine


def test_rounds_begin_at_different_places() -> None:
    bench = Bench()
    firsts = set()
    for seed in range(10):
        bench.scrubber = bench.new_scrubber(seed)
        firsts.add(bench.round()[0])

    assert len(firsts) > 2


def test_a_turn_reads_no_more_than_its_budget() -> None:
    bench = Bench()
    work = bench.begin()
    assert work is not None
    size = bench.batch_at(0)[1]

    assert work.read(3 * BATCH_COST_BYTES) == 3 * size
    assert not work.done
    assert work.read(ALL) == work.segment.size - 3 * size


def test_a_flipped_bit_is_quarantined_told_and_never_served() -> None:
    bench = Bench()
    position, size = bench.batch_at(4)
    bench.disk.corrupt(FIRST, position + 70, b"\xff")
    bench.round()
    told = bench.events.fields("segment_damaged")

    assert (told["path"], told["position"], told["size"]) == (FIRST, position, size)
    assert (told["first_offset"], told["end_offset"]) == (4, 5)
    assert bench.log.quarantine.ranges == [DamagedRange(0, position, size)]
    assert bench.log.quarantine.damaged_bytes == size
    assert bench.read(0) == [0, 1, 2, 3]
    assert bench.read(2, max_bytes=size) == [2]
    with pytest.raises(KafkaError) as refused:
        bench.read(4)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert bench.read(5)[0] == 5
    assert bench.read(20)[0] == 20


@pytest.mark.parametrize("byte", [8, 16])
def test_what_lies_behind_a_broken_chain_is_served(byte: int) -> None:
    """A wrong length or magic breaks the chain of headers, and a walk cannot pass."""
    bench = Bench()
    position, _ = bench.batch_at(1)
    bench.disk.corrupt(FIRST, position + byte, b"\x7f")
    bench.round()
    with pytest.raises(KafkaError) as refused:
        bench.read(1)

    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert bench.read(0) == [0]
    for offset in range(2, bench.log.segments[1].base_offset):
        assert bench.read(offset)[0] == offset


def test_what_can_be_read_again_is_let_go() -> None:
    bench = Bench()
    position, _ = bench.batch_at(4)
    sound = bench.disk.open(FIRST).pread(1, position + 70)
    bench.disk.corrupt(FIRST, position + 70, b"\xff")
    bench.round()
    assert bench.log.quarantine
    bench.disk.corrupt(FIRST, position + 70, sound)
    bench.now_ms += DAY_MS
    bench.round()

    assert not bench.log.quarantine
    assert "segment_readable_again" in bench.events.names
    assert bench.read(0)[:6] == [0, 1, 2, 3, 4, 5]


def test_a_segment_that_goes_meanwhile_is_forgotten() -> None:
    bench = Bench()
    work = bench.begin()
    assert work is not None
    bench.disk.corrupt(work.segment.log_path, 70, b"\xff")
    read = work.read(ALL)
    bench.log.truncate_fully_and_start_at(100)

    assert not bench.scrubber.finish(work, read)
    assert not bench.log.quarantine
    assert bench.round() == []


def test_a_range_that_cannot_be_read_is_told_and_the_round_goes_on() -> None:
    bench = Bench()
    bench.disk.inject("pread", 5, path=FIRST)
    order = bench.round()

    assert len(order) == len(bench.log.segments) - 1
    assert bench.events.fields("scrub_read_failed")["path"] == FIRST


def test_what_was_known_is_known_after_a_restart_as_far_as_it_is_so() -> None:
    bench = Bench()
    position, size = bench.batch_at(4)
    bench.disk.corrupt(FIRST, position + 70, b"\xff")
    bench.round()
    known = [*bench.log.quarantine.ranges, DamagedRange(0, 0, size), DamagedRange(0, 1 << 20, 9)]
    known += [DamagedRange(bench.log.segments.active.base_offset, 0, size), DamagedRange(7, 0, 9)]
    bench.log.close()
    log: Log = open_log(bench.disk, SMALL)
    restore(log, known)

    assert log.quarantine.ranges == [DamagedRange(0, position, size)]


def test_what_a_recovery_found_below_its_recovery_point_is_quarantined() -> None:
    bench = Bench()
    position, size = bench.batch_at(4)
    bench.log.close(clean=False)
    bench.disk.corrupt(FIRST, position + 70, b"\xff")
    log = open_log(bench.disk, SMALL, clean=False, recovery_point=9)
    assert [(one.position, one.size) for one in log.recovery.damaged] == [(position, size)]
    restore(log, [])

    assert log.quarantine.ranges == [DamagedRange(0, position, size)]


def test_a_log_that_cannot_be_read_does_not_keep_the_ranges_of_the_next() -> None:
    log_dir = LogDir(SimDisk(), "/data")
    benches = [Bench(), Bench()]
    for number, bench in enumerate(benches):
        position, size = bench.batch_at(4)
        bench.log.close(clean=False)
        bench.disk.corrupt(FIRST, position + 70, b"\xff")
        bench.log = open_log(bench.disk, SMALL, clean=False, recovery_point=9)
        log_dir.logs["t", number] = bench.log
    benches[0].disk.inject("pread", 5, path=FIRST)

    with pytest.raises(OSError, match="Input/output error"):
        log_dir.restore_damaged_ranges(RecordedEvents())

    assert benches[0].log.quarantine.ranges == []
    assert benches[1].log.quarantine.ranges == [DamagedRange(0, position, size)]


def test_the_file_of_ranges_is_checked_and_absent_where_nothing_is_damaged() -> None:
    disk, events = SimDisk(), RecordedEvents()
    disk.make_dir("/data")
    ranges = {("t", 3): [DamagedRange(0, 85, 70), DamagedRange(40, 0, 9)], ("u", 0): []}
    write_ranges(disk, "/data", ranges)
    assert read_ranges(disk, "/data", events) == {("t", 3): ranges["t", 3]}
    write_ranges(disk, "/data", {})
    assert not disk.exists(f"/data/{DAMAGED_RANGES_FILE}")
    assert read_ranges(disk, "/data", events) == {}
    disk.open(f"/data/{DAMAGED_RANGES_FILE}", create=True).pwrite(b"0\n0\n", 0)
    assert read_ranges(disk, "/data", events) == {}

    assert events.names == ["checkpoint_malformed"]


@pytest.mark.parametrize("at", range(0, 40, 3))
def test_a_flipped_bit_in_the_file_of_ranges_is_noticed(at: int) -> None:
    data = bytearray(format_ranges({("t", 3): [DamagedRange(0, 85, 70)]}))
    data[at % len(data)] ^= 1
    with pytest.raises(MalformedFile):
        parse_ranges(bytes(data))


@pytest.mark.parametrize("mode", CrashMode)
def test_a_crash_at_any_call_leaves_the_old_ranges_or_the_new(mode: CrashMode) -> None:
    """The file is only a note, but one that is torn would be no note at all."""
    before = {("t", 0): [DamagedRange(0, 0, 70)]}
    after = {("t", 0): [DamagedRange(0, 0, 70), DamagedRange(0, 140, 70)]}
    for change in (after, {}):
        base = SimDisk()
        base.make_dir("/data")
        base.sync_dir("/")
        write_ranges(base, "/data", before)
        crashed: list[SimDisk] = []

        def crash_here(
            count: int, call: str, path: str, disk: SimDisk = base, kept: list[SimDisk] = crashed
        ) -> None:
            kept.append(disk.crash(random.Random(count), mode))

        base.before_call = crash_here
        write_ranges(base, "/data", change)

        assert len(crashed) >= 2
        for left in crashed:
            events = RecordedEvents()
            assert read_ranges(left, "/data", events) in (before, change)
            assert events.names == []


def test_who_asks_for_a_damaged_offset_is_not_given_the_one_behind() -> None:
    """Though the index leads there at once, and a consumer would take what is missing for a gap."""
    for index in range(10):
        bench = Bench()
        position, size = bench.batch_at(index)
        length = 2 * size - 12
        bench.disk.corrupt(FIRST, position + 8, length.to_bytes(4, "big"))
        bench.round()
        (damage,) = bench.log.quarantine.ranges
        assert (damage.position, damage.size) == (position, size)
        with pytest.raises(KafkaError) as raised:
            bench.read(index)
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE

        assert [bench.read(offset, 1) for offset in range(index + 1, 10)] == [
            [offset] for offset in range(index + 1, 10)
        ]


def transactional_log(disk: SimDisk) -> Log:
    """Aborted and committed transactions over several segments, some of them over an edge."""
    log = open_log(disk, SMALL)
    sequence = 0
    for number in range(12):
        for _ in range(3):
            records = batch(
                producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True
            )
            log.append_as_leader(records, leader_epoch=0, now_ms=NOW)
            sequence += 1
        marker = build_marker(
            producer_id=7,
            producer_epoch=0,
            committed=number % 3 == 1,
            coordinator_epoch=0,
            timestamp=NOW,
        )
        log.append_as_leader(memoryview(marker), leader_epoch=0, now_ms=NOW, internal=True)
    flush(log)
    return log


@pytest.mark.parametrize("harm", ["lost", "short", "sound"])
def test_a_transaction_index_that_lacks_an_entry_is_completed(harm: str) -> None:
    bench = Bench()
    bench.disk = new_disk()
    bench.log = transactional_log(bench.disk)
    end = bench.log.log_end_offset
    wanted = bench.log.aborted_transactions(0, end)
    bench.log.close()
    paths = [
        f"{DIRECTORY}/{name}" for name in bench.disk.list(DIRECTORY) if name.endswith(".txnindex")
    ]
    assert len(paths) > 2
    for path in paths[:-1]:  # the last one may be the active segment's
        if harm == "lost":
            bench.disk.remove(path)
        elif harm == "short":
            bench.disk.open(path).truncate(0)
    bench.log = open_log(bench.disk, SMALL, recovery_point=end, high_watermark=end)
    if harm != "sound":
        assert len(bench.log.aborted_transactions(0, end)) < len(wanted)
    bench.scrubber = bench.new_scrubber()
    bench.round()
    assert all("in its file" in repr(one.transactions) for one in bench.log.segments[:-1])
    assert bench.log.aborted_transactions(0, end) == wanted
    assert bench.events.names == (
        [] if harm == "sound" else ["transaction_index_mended"] * len(paths[:-1])
    )
    again = open_log(bench.disk, SMALL, recovery_point=end, high_watermark=end)

    assert again.aborted_transactions(0, end) == wanted


def sealed_index(disk: SimDisk, entries: int) -> str:
    """The first transaction index with so many entries."""
    for name in disk.list(DIRECTORY):
        path = f"{DIRECTORY}/{name}"
        if name.endswith(".txnindex") and disk.open(path).size() == entries * ENTRY.size:
            return path
    raise AssertionError(f"no segment has {entries} aborted transactions")


def cut_file(disk: SimDisk, path: str, size: int) -> None:
    """For good: a crash does not bring back what stood there."""
    file = disk.open(path)
    file.truncate(size)
    file.sync()
    file.close()


@pytest.mark.parametrize("mode", CrashMode)
def test_a_crash_while_an_index_is_completed_loses_no_entry_and_after_it_none(
    mode: CrashMode,
) -> None:
    """Below the recovery point nothing else would notice: the next start takes what it finds."""
    bench = Bench()
    bench.disk = new_disk()
    bench.log = transactional_log(bench.disk)
    end = bench.log.log_end_offset
    wanted = bench.log.aborted_transactions(0, end)
    bench.log.close()
    path = sealed_index(bench.disk, 2)
    cut_file(bench.disk, path, ENTRY.size)
    bench.log = open_log(bench.disk, SMALL, recovery_point=end, high_watermark=end)
    lacking = bench.log.aborted_transactions(0, end)
    assert len(lacking) == len(wanted) - 1
    bench.scrubber = bench.new_scrubber()
    crashed: list[SimDisk] = []

    def crash_here(count: int, call: str, path: str) -> None:
        crashed.append(bench.disk.crash(random.Random(count), mode))

    bench.disk.before_call = crash_here
    bench.round()
    bench.disk.before_call = None
    assert bench.events.names == ["transaction_index_mended"]
    after = bench.disk.crash(random.Random(0), mode)

    assert len(crashed) >= 5
    for left in crashed:
        log = open_log(left, SMALL, recovery_point=end, high_watermark=end)
        assert log.aborted_transactions(0, end) in (lacking, wanted)
    log = open_log(after, SMALL, recovery_point=end, high_watermark=end)
    assert log.aborted_transactions(0, end) == wanted


@pytest.mark.parametrize("mode", CrashMode)
def test_an_index_that_a_start_makes_anew_outlives_any_crash(mode: CrashMode) -> None:
    """Once the file is gone a start takes the segment for one without aborts."""
    disk = new_disk()
    log = transactional_log(disk)
    end = log.log_end_offset
    wanted = log.aborted_transactions(0, end)
    log.close()
    cut_file(disk, sealed_index(disk, 2), ENTRY.size + 1)
    crashed: list[SimDisk] = []
    disk.before_call = lambda count, call, path: crashed.append(
        disk.crash(random.Random(count), mode)
    )
    events = RecordedEvents()
    open_log(disk, SMALL, recovery_point=end, high_watermark=end, events=events)
    disk.before_call = None
    crashed.append(disk.crash(random.Random(0), mode))

    assert "index_rebuilt" in events.names
    for left in crashed:
        again = open_log(left, SMALL, recovery_point=end, high_watermark=end)
        assert again.aborted_transactions(0, end) == wanted


@pytest.mark.parametrize("mode", CrashMode)
def test_a_clean_stop_leaves_every_transaction_index_on_the_disk(mode: CrashMode) -> None:
    """That of the last segment is made by the stop itself."""
    disk = new_disk()
    log = transactional_log(disk)
    end = log.log_end_offset
    wanted = log.aborted_transactions(0, end)
    assert log.segments.active.transactions.entries()
    log.close()
    for seed in range(5):
        left = disk.crash(random.Random(seed), mode)
        again = open_log(left, SMALL, recovery_point=end, high_watermark=end)
        assert again.aborted_transactions(0, end) == wanted
