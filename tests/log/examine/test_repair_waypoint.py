"""What a repair leaves to the next start, and says that it does: waypoints, and tails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.broker.log.examine.repair import sentence_of
from ottla.broker.log.waypoints import WAYPOINT_FILE
from ottla.testing.disk import SimDisk
from tests.log.events import RecordedEvents
from tests.log.examine.partitions import end, findings, repair, write
from tests.log.logs import DIRECTORY, append, batch, flush, new_disk, open_log
from tests.log.test_log_recovery import filled, path_of
from tests.log.test_waypoints import CONFIG, mark

SIZE = len(batch())


def marked_disk() -> SimDisk:
    """One segment with an aborted transaction, a waypoint and more behind that; stopped."""
    disk = new_disk()
    log = open_log(disk, CONFIG)
    write(log, 1, 0)
    end(log, 1, committed=False)
    for _ in range(20):
        append(log, epoch=1)
    mark(log)
    append(log, epoch=1)
    flush(log)
    log.close()
    return disk


def add_garbage(disk: SimDisk) -> None:
    file = disk.open(path_of(0))
    file.pwrite(b"garbage", file.size())


HARM: dict[str, Callable[[SimDisk], None]] = {
    "garbage at the end": add_garbage,
    "a bad batch": lambda disk: disk.corrupt(path_of(0), 1000, b"!!!!"),
    "a bad batch behind it": lambda disk: disk.corrupt(
        path_of(0), disk.open(path_of(0)).size() - 5, b"!!!!"
    ),
    "no index": lambda disk: disk.remove(path_of(0, ".index")),
    "a bad time index": lambda disk: disk.corrupt(path_of(0, ".timeindex"), 7, b"\7"),
    "no transaction index": lambda disk: disk.remove(path_of(0, ".txnindex")),
    "no epochs": lambda disk: disk.corrupt(f"{DIRECTORY}/leader-epoch-checkpoint", 0, b"x"),
    "no snapshot": lambda disk: disk.corrupt(path_of(24, ".snapshot"), 8, b"\7"),
}


@pytest.mark.parametrize("harm", HARM)
def test_a_waypoint_is_true_or_gone_after_a_repair(harm: str) -> None:
    disk = marked_disk()
    HARM[harm](disk)
    assert findings(disk)
    repair(disk)
    events = RecordedEvents()
    log = open_log(disk, CONFIG, clean=False, recovery_point=24, events=events)

    assert "waypoint_not_true" not in events.names
    assert log.aborted_transactions(0, log.log_end_offset) == [(1, 0)]


def test_a_waypoint_of_another_segment_stays() -> None:
    disk = filled(40)
    log = open_log(disk, CONFIG, clean=False, recovery_point=40)
    append(log)
    mark(log)
    log.close()
    disk.remove(path_of(0, ".index"))
    repair(disk)

    assert disk.exists(f"{DIRECTORY}/{WAYPOINT_FILE}")


def test_a_repair_says_what_it_cuts_and_what_is_lost_with_it() -> None:
    """Offsets are given up where the tail says that it has some, and only there."""
    torn = bytes(batch(3))
    (base, rest) = (4).to_bytes(8, "big"), torn[8:]
    sound = base + rest
    said = {
        "bytes": b"garbage" * 9,
        "fewer": b"\0\0\7",
        "zeros": bytes(500),
        "torn": sound[:-1],
        "header": sound[:61],
        "bad": sound[:-1] + b"!",
        "followed": sound[:-1] + b"!" + b"garbage",
        "number": b"\x40" + sound[1:],
    }
    side = path_of(0, f".{4 * SIZE}.cut")
    told: dict[str, str] = {}
    for name, tail in said.items():
        disk = filled(4)
        open_log(disk, clean=False).close()
        file = disk.open(path_of(0))
        assert file.size() == 4 * SIZE
        file.pwrite(tail, file.size())
        (finding,) = [one for one in findings(disk) if one.path == path_of(0)]
        start = f"{path_of(0)} at byte {4 * SIZE}: cut off {len(tail)} bytes behind the last whole"
        start += " batch"
        sentence = sentence_of(finding)
        assert sentence.startswith(start)
        told[name] = sentence.removeprefix(start)
        repair(disk)
        assert findings(disk) == []

    kept = f"; the bytes stay in {side}"
    none, some = (
        f", with which no batch begins{kept}",
        f"; offsets from 4 up to 7 are given up{kept}",
    )
    assert told == {
        "bytes": none,
        "fewer": none,
        "zeros": ", all of them zeros",
        "torn": some,
        "header": some,
        "bad": some,
        "followed": f"; offsets from 4 up to 7, and what followed, are given up{kept}",
        "number": some,
    }
