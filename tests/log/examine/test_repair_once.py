"""One repair is enough, whatever was harmed and whatever a start has made of it since."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from ottla.broker.log.examine.findings import Fix
from ottla.broker.log.scrub import restore
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.log.examine.partitions import end, findings, fixes, repair, verified, write
from tests.log.logs import DIRECTORY, NOW, SMALL, append, flush, new_disk, open_log, read_all

SEEDS = 60
PRODUCERS = (1, 2, 3)


def transactional_disk() -> SimDisk:
    """Several segments of three producers, whose transactions are long and end by turns."""
    disk = new_disk()
    log = open_log(disk, SMALL)
    sequences = dict.fromkeys(PRODUCERS, 0)
    for turn in range(36):
        producer_id = PRODUCERS[turn % 3]
        write(log, producer_id, sequences[producer_id])
        sequences[producer_id] += 2
        if turn % 7 == 6:
            end(log, producer_id, committed=turn % 14 == 6)
        append(log, epoch=1, timestamp=NOW + 10 * turn)
    for producer_id in PRODUCERS:
        end(log, producer_id, committed=False)
    flush(log)
    log.close()
    return disk


def names(disk: SimDisk, suffix: str) -> list[str]:
    return [name for name in disk.list(DIRECTORY) if name.endswith(suffix)]


def harm(disk: SimDisk, rng: random.Random) -> None:
    """Some bytes of a log are others, or a small file is gone or short."""
    kind = rng.choice((".log", ".log", ".log", ".index", ".timeindex", ".txnindex", ".snapshot"))
    name = f"{DIRECTORY}/{rng.choice(names(disk, kind))}"
    file = disk.open(name)
    size = file.size()
    if kind == ".log" and size:
        # Not in an offset: a batch has it outside its CRC.
        disk.corrupt(name, 21 + rng.randrange(max(size - 21, 1)), rng.randbytes(rng.randint(1, 90)))
    elif rng.random() < 0.5:
        file.truncate(rng.randrange(size + 1))
    else:
        disk.remove(name)
    file.close()


def start(disk: SimDisk, rng: random.Random) -> None:
    """A broker takes the log up, clean or not, writes to it and stops, clean or not."""
    point = rng.choice((0, verified(disk, deep=False).end_offset))
    log = open_log(disk, SMALL, clean=rng.random() < 0.5, recovery_point=point)
    restore(log, [])
    for _ in range(rng.randrange(4)):
        append(log, epoch=9)
    flush(log)
    log.close(clean=rng.random() < 0.5)


def fixable(disk: SimDisk) -> Iterator[str]:
    for one in findings(disk):
        if one.fix is not Fix.NOTHING:
            yield str(one)


@pytest.mark.parametrize("starts", [0, 1, 2])
def test_after_one_repair_there_is_nothing_to_mend(starts: int) -> None:
    sound = transactional_disk()
    assert findings(sound) == []
    for seed in range(SEEDS):
        rng = random.Random(seed)
        disk = sound.crash(rng, CrashMode.ALL_KEPT)
        for _ in range(rng.randint(1, 3)):
            harm(disk, rng)
        for _ in range(starts):
            start(disk, rng)
        repair(disk)

        assert list(fixable(disk)) == [], f"seed {seed}, {starts} starts"
        assert read_all(open_log(disk, SMALL, clean=False))


def test_what_a_snapshot_knows_of_lost_batches_is_no_finding() -> None:
    """Without it the next start would refuse the producer's next batch as out of order."""
    disk = transactional_disk()
    segment = verified(disk).segments[1]
    disk.corrupt(segment.file.path, 70, b"\xff" * (segment.size - 70))
    assert {fix for _, fix in fixes(disk)} == {Fix.TAKE_OUT}
    before = names(disk, ".snapshot")
    repair(disk)

    assert findings(disk) == []
    assert names(disk, ".snapshot") == before
