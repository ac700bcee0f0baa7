"""One batch that is harmed anyhow costs that batch, whatever else is lost: no other is missed, none
is given for another, and no start fails."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import NamedTuple, cast

import pytest

from ottla.broker.log.batch_reader import BatchReader
from ottla.broker.log.examine.scan import Damage, LogScan
from ottla.broker.log.log import UPPER_LAST_STABLE, UPPER_LOG_END, Log
from ottla.broker.log.scrub import Scrubber, restore
from ottla.broker.ports import File
from ottla.config.types import LogConfig
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import iterate_headers
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.log.events import RecordedEvents
from tests.log.examine.test_repair_once import names, transactional_disk
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
)
from tests.log.test_log_recovery import filled, path_of

SEEDS = 240
ALL = 1 << 30
SIZE = len(batch())


class Placed(NamedTuple):
    """A batch as it was written."""

    path: str
    position: int
    first_offset: int
    last_offset: int
    data: bytes


def batches_of(disk: SimDisk) -> list[Placed]:
    found: list[Placed] = []
    for name in names(disk, ".log"):
        path = f"{DIRECTORY}/{name}"
        file = disk.open(path)
        data = file.pread(file.size(), 0)
        for position, header in iterate_headers(data):
            whole = data[position : position + header.size]
            found.append(Placed(path, position, header.base_offset, header.last_offset, whole))
    return found


def harm(disk: SimDisk, one: Placed, rng: random.Random) -> None:
    size = len(one.data)
    match rng.randrange(4):
        case 0:
            at = rng.randrange(21, size)
            disk.corrupt(one.path, one.position + at, bytes([one.data[at] ^ 0x11]))
        case 1:
            bit = rng.randrange(64)
            at = 7 - bit // 8
            disk.corrupt(one.path, one.position + at, bytes([one.data[at] ^ 1 << bit % 8]))
        case 2:
            disk.corrupt(one.path, one.position, bytes(size))
        case _:
            disk.corrupt(one.path, one.position + rng.randrange(8, 21), rng.randbytes(2))


def harm_hint(disk: SimDisk, rng: random.Random) -> None:
    """An index or a snapshot is gone, or short, or not what it was."""
    found = names(disk, rng.choice((".index", ".timeindex", ".txnindex", ".snapshot")))
    path = f"{DIRECTORY}/{rng.choice(found)}"
    file = disk.open(path)
    size = file.size()
    if not size or rng.random() < 0.3:
        disk.remove(path)
    elif rng.random() < 0.5:
        file.truncate(rng.randrange(size))
    else:
        disk.corrupt(path, rng.randrange(size), rng.randbytes(4))


def scrub(log: Log, rng: random.Random) -> None:
    scrubber = Scrubber(
        list_logs=lambda: [log],
        find_log=lambda topic, partition: log,
        events=RecordedEvents(),
        rng=rng,
    )
    while (work := scrubber.begin(now_ms=0, interval_ms=ALL)) is not None:
        scrubber.finish(work, work.read(ALL))


def test_one_batch_that_is_harmed_costs_that_batch_alone() -> None:
    sound = transactional_disk()
    batches = batches_of(sound)
    end_offset = batches[-1].last_offset + 1
    active = batches[-1].path
    for seed in range(SEEDS):
        rng = random.Random(seed)
        disk = sound.crash(rng, CrashMode.ALL_KEPT)
        harmed = rng.choice(batches[:-2])  # of the last two nobody could tell
        harm(disk, harmed, rng)
        for _ in range(rng.randrange(2)):
            harm_hint(disk, rng)
        clean = rng.random() < 0.4
        point = end_offset if clean else rng.choice((end_offset, rng.randrange(end_offset + 1)))
        for _ in range(rng.randint(1, 2)):
            log = open_log(
                disk,
                SMALL,
                clean=clean,
                recovery_point=point,
                high_watermark=rng.randrange(end_offset + 1),
            )
            assert log.log_end_offset >= point, seed
            log.set_high_watermark(log.visible_end)
            append(log, epoch=9)
            flush(log)
            clean = rng.random() < 0.5
            log.close(clean=clean)
        restore(log, [])
        scrub(log, rng)
        for one in batches:
            # Damage in a segment that is written to is told by the next start after a crash.
            is_known = one.path != active or log.segments.active.log_path != active
            if one is harmed or one.last_offset >= point or not is_known:
                continue
            found = log.read(one.first_offset, max_bytes=1, upper=UPPER_LOG_END, at_least_one=True)

            assert found is not None, (seed, one)
            assert found.read() == one.data, (seed, one)


def test_an_index_made_anew_does_not_lead_to_a_wrong_offset() -> None:
    """The entries of what is appended would lie below the one that names it."""
    disk = filled(40)
    open_log(disk, RELAXED, clean=False, recovery_point=40).close()
    disk.corrupt(path_of(33), 4 * SIZE + 7, b"\xff")
    log = open_log(disk, RELAXED, recovery_point=40, high_watermark=40)
    log.segments.active.rebuild_indexes()
    appended = [append(log) for _ in range(4)]

    assert appended == [40, 41, 42, 43]
    assert log.segments.active.base_offset == 33
    for offset in appended:
        assert log.read(offset, max_bytes=SIZE, upper=UPPER_LOG_END, at_least_one=True)


def test_a_log_whose_segment_begins_with_damage_takes_more() -> None:
    disk = filled(40)
    open_log(disk, RELAXED, clean=False, recovery_point=40).close()
    disk.corrupt(path_of(33), 16, b"\7")
    log = open_log(disk, RELAXED, recovery_point=40, high_watermark=40)

    assert append(log) == 40
    with pytest.raises(KafkaError):
        log.read(33, max_bytes=1, upper=UPPER_LOG_END, at_least_one=True)
    assert log.read(39, max_bytes=SIZE, upper=UPPER_LOG_END, at_least_one=True)


def test_offsets_that_are_missing_behind_damage_are_a_gap() -> None:
    """As they are without it: a reader goes on in the next segment."""
    disk = filled(6)
    disk.corrupt(path_of(0), 3 * SIZE + 70, b"!")
    file = disk.open(path_of(0))
    file.truncate(5 * SIZE)
    file.sync()
    log = open_log(disk, RELAXED, clean=False, recovery_point=6)
    restore(log, [])
    assert append(log) == 6

    with pytest.raises(KafkaError):
        log.read(3, max_bytes=1, upper=UPPER_LOG_END, at_least_one=True)
    for offset, first in ((4, 4), (5, 6), (6, 6)):
        found = log.read(offset, max_bytes=1, upper=UPPER_LOG_END, at_least_one=True)
        assert found is not None
        assert [header.base_offset for _, header in iterate_headers(found.read())] == [first]


@pytest.mark.parametrize("ahead", [50, 87])
@pytest.mark.parametrize("harmed", [50, 80])
def test_a_segment_is_no_older_for_its_damage(ahead: int, harmed: int) -> None:
    """Retention would take with it what is still read, and who seeks by time would pass over it."""
    disk = new_disk()
    config = LogConfig(segment_bytes=4000, segment_index_bytes=240, index_interval_bytes=1000)
    log = open_log(disk, config)
    for second in range(100):
        append(log, timestamp=NOW + 1000 * (88 if second == ahead else second))
    flush(log)
    newest = [one.max_timestamp for one in log.segments]
    at, _ = log.segments[1].locate(harmed)
    log.close()
    disk.corrupt(log.segments[1].log_path, at, b"\xff" * 12)

    for clean in (True, False, True):
        log = open_log(disk, config, clean=clean, recovery_point=100, high_watermark=100)
        assert [one.max_timestamp for one in log.segments] == newest
        with suppress(KafkaError):
            found = first_at_time(log, NOW + 87_500)
            assert found is not None
            assert found[0] == (88 if ahead == harmed else ahead)
        log.close()


@pytest.mark.parametrize("is_known", [False, True])
def test_readers_of_committed_data_come_up_to_damage_where_a_transaction_is_open(
    is_known: bool,
) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    for _ in range(20):
        append(log)
    records = batch(producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_as_leader(records, leader_epoch=0, now_ms=NOW)
    for _ in range(20):
        append(log)
    flush(log)
    at, _ = log.segments[1].locate(20)
    path = log.segments[1].log_path
    log.close()
    disk.corrupt(path, at, b"\xff" * 12)
    log = open_log(disk, SMALL, high_watermark=ALL)
    if is_known:
        restore(log, [])
        scrub(log, random.Random(1))
        assert log.quarantine

    assert log.last_stable_offset == 20
    assert offsets(log, UPPER_LAST_STABLE) == list(range(20))


class Watched:
    """A file that knows the longest of its reads."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.path = file.path
        self.longest = 0

    def pread(self, size: int, position: int) -> bytes:
        self.longest = max(self.longest, size)
        return self.file.pread(size, position)


@pytest.mark.parametrize("times", [2, 5, 7])
def test_a_wrong_length_takes_no_memory(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = new_disk()
    log = open_log(disk)
    for _ in range(8):
        append(log, size=300_000)
    flush(log)
    position, size = log.segments[0].locate(1)
    wrong = times * size - 12 - 100
    disk.corrupt(path_of(0), position + 8, wrong.to_bytes(4, "big"))
    monkeypatch.setattr("ottla.broker.log.batch_reader.UNCHECKED_BYTES_MAX", size)
    watched = Watched(disk.open(path_of(0)))
    file = cast("File", watched)
    reader = BatchReader(file, 8 * size, 8)
    reader.chunk_from(position, 0)

    assert reader.size_of_longer(position) == 0
    assert reader.read(position, 1, ALL) is None
    assert reader.find_behind(position, 1, ALL) == position + size
    assert reader.read(position + size, 2, ALL) is not None
    scan = [one for one in LogScan(file, 8 * size) if isinstance(one, Damage)]
    assert [(one.position, one.size) for one in scan] == [(position, size)]
    assert watched.longest == size
