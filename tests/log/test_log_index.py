"""The index files: Kafka's bytes, and look-ups as a walk over all entries would answer."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.log.index import ASKED_BYTES, BLOCK_BYTES, WARM_BYTES, IndexCorrupt
from ottla.broker.log.offset_index import OffsetIndex
from ottla.broker.log.time_index import TimeIndex
from ottla.broker.log.transaction_index import AbortedTransaction, TransactionIndex
from ottla.testing.disk import SimDisk, SimFile
from ottla.testing.platter import CrashMode

INDEX = "0.index"
BASE = 1000


def offset_index(disk: SimDisk, base_offset: int = 0, max_bytes: int = 10_485_760) -> OffsetIndex:
    return OffsetIndex(disk, INDEX, base_offset=base_offset, max_bytes=max_bytes)


def time_index(disk: SimDisk, base_offset: int = 0, max_bytes: int = 10_485_760) -> TimeIndex:
    return TimeIndex(disk, INDEX, base_offset=base_offset, max_bytes=max_bytes)


def content(disk: SimDisk) -> bytes:
    file = disk.open(INDEX)
    return file.pread(file.size(), 0)


def test_an_offset_index_has_kafkas_bytes() -> None:
    disk = SimDisk()
    index = offset_index(disk)
    index.create()
    index.append(20, 4408)
    index.append(24, 8688)

    assert disk.open(INDEX).size() == 10_485_760
    index.entries.seal()
    assert content(disk).hex() == "0000001400001138" + "00000018000021f0"


def test_a_time_index_has_kafkas_bytes() -> None:
    disk = SimDisk()
    index = time_index(disk)
    index.create()
    index.maybe_append(0x18BCFE56FD3, 20)
    index.maybe_append(0x18BCFE56FD3, 24)
    index.maybe_append(0x18BCFE573B8, 47)

    assert disk.open(INDEX).size() == 10_485_756
    index.entries.seal()
    assert content(disk).hex() == "0000018bcfe56fd300000014" + "0000018bcfe573b80000002f"


def test_a_transaction_index_has_kafkas_bytes() -> None:
    disk = SimDisk()
    index = TransactionIndex(disk, INDEX, exists=False)
    index.append(AbortedTransaction(1, 49, 50, 51))

    assert not disk.exists(INDEX)
    index.seal()
    assert content(disk).hex() == (
        "0000" + "0000000000000001" + "0000000000000031" + "0000000000000032" + "0000000000000033"
    )
    assert TransactionIndex(disk, INDEX, exists=True).entries() == index.entries()


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=200),
    repeat=st.integers(1, 12),
    probes=st.lists(st.integers(-10, 12_000), max_size=20),
    writes=st.booleans(),
)
def test_offsets_are_found_as_by_a_walk(
    steps: list[tuple[int, int]], repeat: int, probes: list[int], writes: bool
) -> None:
    index = offset_index(SimDisk(), BASE)
    index.create()
    entries: list[tuple[int, int]] = []
    offset, position = BASE, 0
    for offset_step, position_step in steps * repeat:
        offset, position = offset + offset_step, position + position_step
        index.entries.make_room()
        index.append(offset, position)
        entries.append((offset, position))
    if writes:
        index.entries.seal()

    for probe in [*probes, *(one for one, _ in entries[-3:])]:
        below = [entry for entry in entries if entry[0] <= BASE + probe]
        assert index.lookup(BASE + probe) == (below[-1] if below else (BASE, 0))
        before = [entry for entry in entries if entry[1] <= probe]
        assert index.position_before(probe) == (before[-1][1] if before else 0)


def test_the_search_reaches_below_the_warm_section() -> None:
    index = offset_index(SimDisk())
    index.create()
    for offset in range(1, 4 * WARM_BYTES // 8):
        index.entries.make_room()
        index.append(offset * 2, offset * 100)

    for offset in (2, 3, 500, 2 * WARM_BYTES // 8, 7 * WARM_BYTES // 8, 8 * WARM_BYTES // 8 - 2):
        assert index.lookup(offset) == (offset // 2 * 2, offset // 2 * 100)


def test_entries_reach_the_disk_in_blocks() -> None:
    disk = SimDisk()
    index = offset_index(disk)
    index.create()
    for offset in range(1, BLOCK_BYTES // 8 + 1):
        index.entries.make_room()
        index.append(offset, offset)
    written_before = content(disk).rstrip(b"\0")
    index.entries.make_room()

    assert written_before == b""
    assert len(content(disk).rstrip(b"\0")) == BLOCK_BYTES
    assert disk.open(INDEX).size() == 10_485_760


def test_truncation_reaches_into_what_is_written() -> None:
    disk = SimDisk()
    index = offset_index(disk)
    index.create()
    for offset in range(1, 100):
        index.entries.make_room()
        index.append(offset, offset * 10)
    index.truncate_to(98)
    assert index.last() == (97, 970)
    index.truncate_to(5)
    assert index.last() == (4, 40)
    index.append(6, 50)
    index.entries.seal()

    assert len(content(disk)) == 5 * 8
    again = offset_index(disk)
    assert again.load(log_size=1000)
    assert again.last() == (6, 50)


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 7,  # no whole number of entries
        bytes.fromhex("0000001400001138" + "00" * 8),  # never cut to its entries
        bytes.fromhex("ffffffff00001138"),  # below the base offset
        bytes.fromhex("0000001400100000"),  # behind the end of the log file
    ],
)
def test_an_offset_index_that_cannot_be_is_not_loaded(data: bytes) -> None:
    disk = SimDisk()
    disk.open(INDEX, create=True).pwrite(data, 0)

    assert not offset_index(disk).load(log_size=10_000)


def test_a_missing_index_is_not_loaded() -> None:
    assert not offset_index(SimDisk()).load(log_size=10_000)
    assert not time_index(SimDisk()).load()


def test_an_entry_that_points_nowhere_is_corrupt() -> None:
    disk = SimDisk()
    disk.open(INDEX, create=True).pwrite(
        bytes.fromhex("00" * 8 + "0000001400001138" + "00000018000021f0"), 0
    )
    index = offset_index(disk)

    assert index.load(log_size=10_000)
    with pytest.raises(IndexCorrupt, match=INDEX):
        index.lookup(10)


def test_what_does_not_fit_is_an_error_that_names_the_file() -> None:
    index = offset_index(SimDisk(), max_bytes=16)
    index.append(5, 10)
    with pytest.raises(AssertionError, match=INDEX):
        index.append(5, 20)
    index.append(6, 20)
    assert index.is_full
    with pytest.raises(AssertionError, match="is full"):
        index.append(7, 30)


def test_the_last_slot_of_a_time_index_is_kept_for_the_closing_entry() -> None:
    index = time_index(SimDisk(), max_bytes=24)
    assert not index.is_full
    index.maybe_append(1, 1)
    assert index.is_full
    index.maybe_append(2, 2)  # the closing entry
    with pytest.raises(AssertionError, match=INDEX):
        index.maybe_append(3, 3)


def test_times_are_found_as_by_a_walk() -> None:
    index = time_index(SimDisk(), BASE)
    index.create()
    entries: list[tuple[int, int]] = []
    for step in range(200):
        timestamp = 10 * step - (step % 3) * 25
        if timestamp > (entries[-1][0] if entries else -1):
            entries.append((timestamp, BASE + step))
        index.entries.make_room()
        index.maybe_append(timestamp, BASE + step)

    for probe in range(-5, 2100, 7):
        below = [entry for entry in entries if entry[0] <= probe]
        assert index.lookup(probe) == (below[-1] if below else (-1, BASE))
    index.truncate_to(BASE + 100)
    assert (index.last_timestamp, index.last_offset) == max(
        entry for entry in entries if entry[1] < BASE + 100
    )


def test_what_was_cut_off_a_transaction_index_does_not_come_back() -> None:
    disk = SimDisk()
    index = TransactionIndex(disk, INDEX, exists=False)
    index.append(AbortedTransaction(1, 49, 50, 51))
    index.append(AbortedTransaction(1, 60, 70, 71))
    index.seal()
    index.open_apart().sync()
    disk.sync_dir("/")
    for offset, kept in ((71, 2), (70, 1), (50, 0)):
        index.truncate_to(offset)
        left = disk.crash(random.Random(1), CrashMode.SUBSET)

        assert len(TransactionIndex(left, INDEX, exists=True).entries()) == kept


class AskedDisk(SimDisk):
    """All is in memory, and `asked` are the positions that somebody asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[int] = set()
        self.questions = 0

    def open_cached(self, path: str) -> SimFile:
        file = self.open(path)
        return AskedFile(self, path, file._node)


class AskedFile(SimFile):
    __slots__ = ()
    _disk: AskedDisk

    def read_cached(self, size: int, position: int) -> bytes | None:
        self._disk.asked.update(range(position, position + size, 8))
        self._disk.questions += 1
        return super().read_cached(size, position)


@pytest.mark.parametrize("count", [1, 2, 3, 100, 700, 1025, 3000])
def test_a_search_reads_only_what_was_asked_before(count: int) -> None:
    """Of the others the map may be anything: nobody waits for them."""
    rng = random.Random(count)
    for wanted in [-1, 0, 9, *rng.sample(range(10 * count), min(count, 20)), 10 * count]:
        disk = AskedDisk()
        index = offset_index(disk)
        index.create()
        for number in range(count):
            index.append(10 * number + 9, number + 1)
        index.entries.seal()
        expected = index.lookup(wanted)
        index.entries.release()
        assert index.map_cached(wanted)
        index.entries.release()
        for position in range(0, 8 * count, 8):
            if position not in disk.asked:
                garbage = rng.choice([b"\x7f", b"\xff"]) * 8
                disk.open(INDEX).pwrite(garbage, position)

        assert index.lookup(wanted) == expected
        assert disk.questions <= 1 + (8 * count > ASKED_BYTES) * 3
