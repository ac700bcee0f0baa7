"""Which failed disk call stops what."""

import errno

import pytest

from ottla.broker.faults import EXIT_STATUS, REFUSAL_MS, Call, DiskFaults, Reaction, StorageLost
from ottla.testing.clock import SimClock
from tests.log.events import RecordedEvents

REFUSED = Reaction.REFUSED
OFFLINE = Reaction.DIR_OFFLINE


def faults(*dirs: str, metadata: str | None = None) -> tuple[DiskFaults, RecordedEvents]:
    events = RecordedEvents()
    disks = DiskFaults(list(dirs), metadata_dir=metadata, clock=SimClock(), events=events)
    return disks, events


@pytest.mark.parametrize(
    ("call", "number", "reaction"),
    [
        (Call.WRITE, errno.ENOSPC, REFUSED),
        (Call.WRITE, errno.EDQUOT, REFUSED),
        (Call.WRITE, errno.EMFILE, REFUSED),
        (Call.WRITE, errno.ENFILE, REFUSED),
        (Call.WRITE, errno.ENOMEM, REFUSED),
        (Call.WRITE, errno.EIO, OFFLINE),
        (Call.WRITE, errno.EROFS, OFFLINE),
        (Call.WRITE, errno.ENOENT, OFFLINE),
        (Call.READ, errno.EIO, REFUSED),
        (Call.READ, errno.EMFILE, REFUSED),
        (Call.SYNC, errno.EIO, OFFLINE),
        (Call.SYNC, errno.ENOSPC, OFFLINE),
        (Call.SYNC, errno.EDQUOT, OFFLINE),
        (Call.SYNC, errno.ENOMEM, OFFLINE),
    ],
)
def test_each_error_has_its_reaction(call: Call, number: int, reaction: Reaction) -> None:
    disks, events = faults("/a", "/b")

    assert disks.failed("/a", call, OSError(number, "no")) is reaction
    assert list(disks.offline) == (["/a"] if reaction is OFFLINE else [])
    told = "log_dir_offline" if reaction is OFFLINE else "disk_call_refused"
    assert events.fields(told)["errno"] == errno.errorcode[number]


def test_one_line_tells_that_a_dir_refuses_no_more() -> None:
    events, clock = RecordedEvents(), SimClock()
    disks = DiskFaults(["/a", "/b"], metadata_dir=None, clock=clock, events=events)
    full = OSError(errno.ENOSPC, "No space left on device")
    disks.failed("/a", Call.WRITE, full)
    disks.failed("/b", Call.WRITE, full)
    clock.advance(1)
    disks.failed("/a", Call.WRITE, full)
    disks.failed("/b", Call.SYNC, OSError(errno.EIO, "no"))
    clock.advance(REFUSAL_MS - 1)
    disks.tell_passed()
    assert "disk_calls_refused_no_more" not in events.names, "of /b it would be no good news"

    clock.advance(1)
    disks.tell_passed()
    disks.tell_passed()

    assert events.names.count("disk_calls_refused_no_more") == 1
    over = {"dir": "/a", "errno": "ENOSPC", "calls": 1}
    assert events.fields("disk_calls_refused_no_more") == over
    disks.failed("/a", Call.WRITE, full)
    assert events.fields("disk_call_refused")["calls"] == 1


def test_one_line_tells_of_all_that_a_full_dir_refuses_for_a_while() -> None:
    events, clock = RecordedEvents(), SimClock()
    disks = DiskFaults(["/a", "/b"], metadata_dir=None, clock=clock, events=events)
    full = OSError(errno.ENOSPC, "No space left on device")
    for _ in range(5):
        disks.failed("/a", Call.WRITE, full)
        clock.advance(1)
    assert disks.refused_lately("/a") == str(full)
    assert disks.refused_lately("/b") is None
    clock.advance(REFUSAL_MS)
    assert disks.refused_lately("/a") is None

    disks.failed("/b", Call.READ, OSError(errno.EIO, "no"))
    assert disks.refused_lately("/b") is None, "it may be written to"
    disks.failed("/b", Call.WRITE, full)
    disks.failed("/a", Call.WRITE, full)

    told = [(fields["dir"], fields["errno"], fields["calls"]) for _, _, fields in events.told]
    assert told == [
        ("/a", "ENOSPC", 1),
        ("/b", "EIO", 1),
        ("/b", "ENOSPC", 1),
        ("/a", "ENOSPC", 5),
    ]
    assert disks.refusals == {("/a", "ENOSPC"): 6, ("/b", "EIO"): 1, ("/b", "ENOSPC"): 1}


def test_a_dir_goes_offline_once() -> None:
    disks, events = faults("/a", "/b")
    heard: list[str] = []
    disks.on_offline(heard.append)
    for _ in range(3):
        assert disks.failed("/a", Call.SYNC, OSError(errno.EIO, "no")) is OFFLINE

    assert heard == ["/a"]
    assert events.names == ["log_dir_offline"]
    assert disks.lost is None


def test_without_the_metadata_dir_the_process_ends() -> None:
    disks, events = faults("/a", "/b", metadata="/a")
    ends: list[StorageLost] = []
    disks.on_lost(ends.append)
    error = OSError(errno.EIO, "Input/output error", "/a/x.log")

    assert disks.failed("/a", Call.WRITE, error) is Reaction.PROCESS_ENDS
    assert disks.failed("/a", Call.WRITE, error) is Reaction.PROCESS_ENDS
    assert ends == [disks.lost]
    assert str(disks.lost) == (
        "the log dir /a holds the metadata log and cannot be used any more: "
        "write failed: [Errno 5] Input/output error: '/a/x.log'"
    )
    assert events.fields("storage_lost")["exit_status"] == EXIT_STATUS == 74


def test_without_any_dir_the_process_ends() -> None:
    disks, _ = faults("/a", "/b")
    error = OSError(errno.EIO, "no")

    assert disks.failed("/a", Call.SYNC, error) is OFFLINE
    assert disks.failed("/b", Call.SYNC, error) is Reaction.PROCESS_ENDS
    assert disks.failed("/a", Call.SYNC, error) is Reaction.PROCESS_ENDS
    assert "/b was the last log dir" in str(disks.lost)
