"""Whose offset is wrong, told by the neighbours; and what becomes of a batch that has one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.log.examine.scan import Damage, Entry, LogScan
from ottla.broker.log.log import UPPER_LOG_END, Log
from ottla.broker.log.numbering import Span, is_misnumbered, jumped_too_far
from ottla.broker.log.scrub import restore
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.testing.disk import SimDisk
from tests.log.examine.partitions import findings, repair
from tests.log.logs import DIRECTORY, RELAXED, append, batch, flush, headers_of, new_disk, open_log
from tests.log.test_log_recovery import COMPACTED, filled, path_of, recover

SIZE = len(batch())
BEFORE = 10


def spans(sizes: Sequence[tuple[int, int]]) -> list[Span]:
    """Batches by the gap before each and its count, from offset BEFORE on; each is a byte long."""
    made: list[Span] = []
    offset = BEFORE
    for gap, count in sizes:
        made.append(Span(offset + gap, offset + gap + count - 1, len(made) + 1))
        offset = made[-1].last_offset + 1
    return made


def moved(span: Span, first_offset: int) -> Span:
    return Span(first_offset, first_offset + span.records - 1, span.end)


def rejected(found: list[Span], limit: int) -> list[int]:
    """The indexes of what a scan takes for damage."""

    def span_at(position: int, below: int) -> Span | None:
        at = found[position] if position < len(found) else None
        return at if at is not None and at.first_offset < below else None

    bad: list[int] = []
    expected = BEFORE
    for index, span in enumerate(found):
        if (
            span.first_offset < expected
            or span.last_offset >= limit
            or jumped_too_far(span, before=expected, limit=limit, span_at=span_at)
        ):
            bad.append(index)
        else:
            expected = span.last_offset + 1
    return bad


def small_worlds() -> Iterator[tuple[list[Span], int]]:
    sizes = tuple(itertools.product(range(3), (1, 2)))
    for three in itertools.product(sizes, sizes, (*sizes, None)):
        made = spans([one for one in three if one is not None])
        for gap in range(2):
            yield made, made[-1].last_offset + 1 + gap


def test_a_batch_that_is_right_is_never_blamed() -> None:
    """Every batch of three, every wrong offset that one of them may have."""
    seen = {True: 0, False: 0}
    for right, limit in small_worlds():
        for index, wrong in itertools.product(range(len(right)), range(BEFORE - 2, limit + 2)):
            found = [*right]
            found[index] = moved(right[index], wrong)
            first, second = found[:2]
            if first.first_offset < BEFORE:
                continue
            bound = found[2].first_offset if len(found) > 2 else limit
            blamed = is_misnumbered(first, second, before=BEFORE, bound=bound)
            seen[blamed] += 1

            assert not blamed or (index == 0 and found != right), (found, limit)
    assert min(seen.values()) > 1000


def test_where_no_offset_is_missing_the_wrong_one_is_found() -> None:
    for counts in itertools.product((1, 2, 3), repeat=4):
        right = spans([(0, count) for count in counts])
        limit = right[-1].last_offset + 1
        for index, wrong in itertools.product(range(4), range(limit + 5)):
            found = [*right]
            found[index] = moved(right[index], wrong)

            assert rejected(found, limit) == ([] if found == right else [index])


SIZES = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=3, max_size=12)


@given(SIZES, st.integers(0, 11), st.integers(0, 8), st.integers(0, 3))
def test_one_flipped_bit_costs_one_batch(
    sizes: list[tuple[int, int]], index: int, bit: int, gap: int
) -> None:
    """Whatever gaps there are. Where nobody can tell, the one that came first stays."""
    right = spans(sizes)
    index %= len(right)
    limit = right[-1].last_offset + 1 + gap
    found = [*right]
    found[index] = moved(right[index], right[index].first_offset ^ 1 << bit)
    bad = rejected(found, limit)

    assert len(bad) <= 1
    if bad and bad != [index]:
        assert bad == [index + 1]
        assert found[index].first_offset > right[index].first_offset


@given(SIZES, st.integers(0, 3))
def test_gaps_are_no_fault(sizes: list[tuple[int, int]], gap: int) -> None:
    right = spans(sizes)

    assert rejected(right, right[-1].last_offset + 1 + gap) == []


# on the disk


def flip(disk: SimDisk, log: int, index: int, bit: int) -> None:
    """A bit of the base offset of a batch, by its index in the segment."""
    file = disk.open(path_of(log))
    at = index * SIZE + 7 - bit // 8
    disk.corrupt(path_of(log), at, bytes([file.pread(1, at)[0] ^ 1 << bit % 8]))
    file.close()


def first_read(log: Log, offset: int) -> int:
    found = log.read(offset, max_bytes=1, upper=UPPER_LOG_END, at_least_one=True)
    assert found is not None
    return headers_of(found.read())[0].base_offset


@pytest.mark.parametrize("bit", [0, 1, 2, 3, 4, 7, 8, 20, 30, 31, 62, 63])
def test_a_flipped_bit_of_an_offset_costs_that_batch_alone(bit: int) -> None:
    """In sealed segments, and in the last one, whose last two batches nothing lies behind."""
    sound = filled(40)
    bases = [one.base_offset for one in recover(sound, 40).segments]
    for base_offset in bases:
        last = 40 if base_offset == bases[-1] else bases[bases.index(base_offset) + 1]
        for index in range(last - base_offset - (2 if last == 40 else 0)):
            disk = filled(40)
            flip(disk, base_offset, index, bit)
            log = recover(disk, base_offset + index + 1)
            restore(log, [])

            assert log.log_end_offset == 40
            assert [(one.position, one.size) for one in log.recovery.damaged] == [
                (index * SIZE, SIZE)
            ]
            with pytest.raises(KafkaError) as raised:
                first_read(log, base_offset + index)
            assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
            right = [offset for offset in range(40) if offset != base_offset + index]
            assert [first_read(log, offset) for offset in right] == right
            assert append(log) == 40
            again = recover(disk, base_offset + index + 1)
            assert (again.log_end_offset, again.recovery.bytes_cut) == (41, 0)


@pytest.mark.parametrize("bit", [0, 1, 2, 3, 6, 7, 8, 20, 30, 31, 63])
def test_the_last_durable_batch_is_not_cut_for_the_offset_of_the_one_before(bit: int) -> None:
    disk = filled(40)
    open_log(disk, RELAXED, clean=False, recovery_point=40).close()
    flip(disk, 33, 38 - 33, bit)
    log = recover(disk, 40)
    restore(log, [])

    assert (log.log_end_offset, log.recovery.bytes_cut) == (40, 0)
    assert [(one.position, one.size) for one in log.recovery.damaged] == [(5 * SIZE, SIZE)]
    with pytest.raises(KafkaError):
        first_read(log, 38)
    assert first_read(log, 39) == 39
    assert append(log) == 40


def test_what_was_never_durable_is_cut_from_the_wrong_one_on() -> None:
    disk = filled(6)
    flip(disk, 0, 3, 6)
    log = recover(disk)

    assert log.log_end_offset == 3
    assert log.recovery.kept_aside == [path_of(0, f".{3 * SIZE}.cut")]


def test_a_batch_that_is_cut_for_its_offset_alone_is_kept_aside() -> None:
    disk = filled(6)
    flip(disk, 0, 4, 6)
    log = recover(disk)
    side = path_of(0, f".{5 * SIZE}.cut")

    assert (log.log_end_offset, log.recovery.bytes_cut) == (4 + 64 + 1, SIZE)
    assert log.recovery.kept_aside == [side]
    (header,) = headers_of(disk.open(side).pread(SIZE, 0))
    assert header.base_offset == 5


def test_a_jump_that_nothing_speaks_against_is_none() -> None:
    """The last batch, or one that all that follows is behind, as compaction leaves them."""
    disk = filled(6)
    flip(disk, 0, 5, 6)
    log = recover(disk, 6)
    assert (log.log_end_offset, log.recovery.damaged) == (5 + 64 + 1, [])
    disk = filled(6)
    for index in (3, 4, 5):
        flip(disk, 0, index, 6)
    log = open_log(disk, COMPACTED, clean=False, recovery_point=6)

    assert (log.log_end_offset, log.recovery.damaged) == (5 + 64 + 1, [])


def test_a_batch_within_a_record_is_not_taken_for_the_one_behind() -> None:
    """A record may hold anything, as that of somebody who copies logs through a topic."""
    disk = new_disk()
    log = open_log(disk)
    inner = bytes(batch())
    append(log)
    for value in (inner, b"plain"):
        records = memoryview(_holding(value))
        log.append_as_leader(records, leader_epoch=0, now_ms=0)
    flush(log)
    position, size = log.segments[0].locate(1)
    disk.corrupt(path_of(0), position + 17, b"\0\0\0\0")
    data = disk.open(path_of(0)).pread(1 << 20, 0)
    at = data.index(inner[8:]) - 8
    disk.corrupt(path_of(0), at, (1).to_bytes(8, "big"))
    recovered = open_log(disk, clean=False, recovery_point=3)

    assert [(one.position, one.size) for one in recovered.recovery.damaged] == [(position, size)]


@pytest.mark.parametrize("value", [b"", bytes(batch(2))])
@pytest.mark.parametrize("times", [2, 3])
def test_a_wrong_length_that_leads_to_a_later_batch_costs_no_sound_one(
    times: int, value: bytes
) -> None:
    disk = new_disk()
    log = open_log(disk)
    for _ in range(6):
        log.append_as_leader(memoryview(_holding(value)), leader_epoch=0, now_ms=0)
    flush(log)
    position, size = log.segments[0].locate(1)
    disk.corrupt(path_of(0), position + 8, (times * size - 12).to_bytes(4, "big"))
    file = disk.open(path_of(0))
    told = [one for one in LogScan(file, file.size()) if isinstance(one, Damage)]
    log = open_log(disk, clean=False, recovery_point=6)
    restore(log, [])

    assert [(one.position, one.size) for one in told] == [(position, size)]
    assert [(one.position, one.size) for one in log.recovery.damaged] == [(position, size)]
    assert [first_read(log, offset) for offset in range(2, 6)] == [2, 3, 4, 5]


def _holding(value: bytes) -> bytearray:
    from ottla.protocol.records.builder import build_batch
    from ottla.protocol.records.record import Record

    return build_batch([Record(0, 1, None, value)])


def test_verify_and_repair_blame_the_same_one() -> None:
    disk = filled(40)
    flip(disk, 0, 4, 5)
    scan = LogScan(disk.open(path_of(0)), 10 * SIZE, 0, 10)
    told = [one for one in scan if isinstance(one, Damage)]
    assert [(one.position, one.size, one.first_offset, one.end_offset) for one in told] == [
        (4 * SIZE, SIZE, 4, 5)
    ]
    log = open_log(disk, clean=False, recovery_point=40)
    log.close()
    repair(disk)
    left = list(LogScan(disk.open(path_of(0)), 9 * SIZE, 0, 10))
    assert findings(disk) == []

    assert [one.base_offset for one in left if isinstance(one, Entry)] == [
        0, 1, 2, 3, 5, 6, 7, 8, 9,
    ]  # fmt: skip
    assert disk.exists(f"{DIRECTORY}/{0:020d}.{4 * SIZE}.cut")
