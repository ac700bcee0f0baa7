"""A partition on the simulated disk with all that `ottla log` looks at, closed in good order."""

from __future__ import annotations

from pathlib import Path

from ottla.broker.log.checkpoints import read_whole, write_partition_metadata
from ottla.broker.log.examine.findings import Finding, Fix
from ottla.broker.log.examine.partition import PartitionFacts, verify_partition
from ottla.broker.log.examine.repair import Repair
from ottla.broker.log.log import Log
from ottla.protocol.records.control import build_marker
from ottla.testing.disk import SimDisk
from tests.log.events import RecordedEvents
from tests.log.logs import DIRECTORY, NOW, SMALL, TOPIC_ID, append, batch, flush, new_disk, open_log


def silent(read: int) -> None:
    """Nobody looks at the progress."""


def write(log: Log, producer_id: int, sequence: int) -> None:
    records = batch(
        2, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
    )
    log.append_as_leader(records, leader_epoch=1, now_ms=NOW, internal=True)


def end(log: Log, producer_id: int, *, committed: bool) -> None:
    marker = build_marker(
        producer_id=producer_id,
        producer_epoch=0,
        committed=committed,
        coordinator_epoch=0,
        timestamp=NOW,
    )
    log.append_as_leader(memoryview(marker), leader_epoch=1, now_ms=NOW, internal=True)


def filled_disk() -> SimDisk:
    """Several segments, two leader epochs, an aborted and a committed transaction."""
    disk = new_disk()
    write_partition_metadata(disk, DIRECTORY, TOPIC_ID)
    log = open_log(disk, SMALL)
    for index in range(12):
        append(log, 2, timestamp=NOW + 10 * index)
    for index in range(4):
        append(log, 3, epoch=1, timestamp=NOW + 500 + index, producer_id=9,
               producer_epoch=0, base_sequence=3 * index)  # fmt: skip
    write(log, 1, 0)
    write(log, 2, 0)
    end(log, 1, committed=False)
    end(log, 2, committed=True)
    for _ in range(12):
        append(log, epoch=1, timestamp=NOW + 1000)
    flush(log)
    log.close()
    return disk


def write_out(directory: Path) -> None:
    """Makes a directory of the real disk with the files of `filled_disk`."""
    disk = filled_disk()
    directory.mkdir(parents=True)
    for name in disk.list(DIRECTORY):
        (directory / name).write_bytes(content(disk, name))


def verified(disk: SimDisk, *, deep: bool = True) -> PartitionFacts:
    return verify_partition(disk, DIRECTORY, deep=deep, progress=silent)


def findings(disk: SimDisk) -> list[Finding]:
    return verified(disk).findings


def fixes(disk: SimDisk) -> list[tuple[str, Fix]]:
    return [(one.path.removeprefix(DIRECTORY + "/"), one.fix) for one in findings(disk)]


def repair(disk: SimDisk) -> None:
    Repair(disk, SMALL, RecordedEvents(), now_ms=NOW).partition(verified(disk))


def content(disk: SimDisk, name: str) -> bytes:
    data = read_whole(disk, f"{DIRECTORY}/{name}")
    assert data is not None, name
    return data


def replace(disk: SimDisk, name: str, data: bytes) -> None:
    """Puts other bytes into a file."""
    file = disk.open(f"{DIRECTORY}/{name}", create=True)
    file.truncate(0)
    file.pwrite(data, 0)
    file.close()
