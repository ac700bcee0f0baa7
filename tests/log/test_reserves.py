"""Room kept back on a disk: when it is given up, when it is there again, who does without."""

from __future__ import annotations

import errno

import pytest

from ottla.broker.log.reserves import (
    LOOKS_EACH,
    OWN_BYTES,
    OWN_BYTES_MIN,
    RESERVE_BYTES,
    RESERVE_FILE,
    START_BYTES,
    OwnRoom,
    Reserves,
)
from ottla.testing.disk import SimDisk
from tests.log.events import RecordedEvents

PATH = f"/data/{RESERVE_FILE}"
FULL = OSError(errno.ENOSPC, "No space left on device")
QUOTA = OSError(errno.EDQUOT, "Disk quota exceeded")


class Kit:
    """One log dir, on which processes come and go."""

    def __init__(self, free_bytes: int = 1 << 30) -> None:
        self.disk = SimDisk()
        self.disk.make_dir("/data")
        self.disk.free = free_bytes
        self.events = RecordedEvents()
        self.changes = 0

    def begun(self) -> Reserves:
        reserves = Reserves(self.disk, self.events)
        reserves.on_change = self._changed
        reserves.begin(["/data"])
        return reserves

    def _changed(self) -> None:
        self.changes += 1

    @property
    def reserved_bytes(self) -> int | None:
        sizes = {path: size for path, (size, _) in self.disk.tree().items()}
        return sizes.get(PATH)


def test_room_is_kept_back_and_stays_so() -> None:
    kit = Kit()
    for _ in range(2):
        assert kit.begun().short == {}
        assert kit.reserved_bytes == RESERVE_BYTES
        assert kit.disk.free == (1 << 30) - RESERVE_BYTES
    assert kit.changes == 0


def test_a_full_disk_has_that_room_until_as_much_is_free_beside_it() -> None:
    kit = Kit()
    reserves = kit.begun()
    kit.disk.free = RESERVE_BYTES - 1
    reserves.refused("/data", FULL)
    assert kit.disk.free == 2 * RESERVE_BYTES - 1
    assert (list(reserves.short), kit.changes) == (["/data"], 1)
    assert kit.events.fields("log_dir_full")["room_needed_bytes"] == 2 * RESERVE_BYTES
    reserves.refused("/data", FULL)
    assert kit.changes == 1, "there is no more to give up"

    assert not reserves.recover("/data")
    kit.disk.free += 1
    assert reserves.recover("/data")
    assert list(reserves.short) == ["/data"], "until it is told"
    reserves.recovered("/data")
    assert (reserves.short, kit.changes) == ({}, 2)
    assert (kit.reserved_bytes, kit.disk.free) == (RESERVE_BYTES, RESERVE_BYTES)
    assert "log_dir_full_no_more" in kit.events.names


def test_a_write_that_is_refused_beside_much_room_gives_up_nothing() -> None:
    """The file system has no more inodes, say."""
    kit = Kit()
    reserves = kit.begun()
    reserves.refused("/data", FULL)
    assert reserves.short == {}
    reserves.refused("/data", QUOTA)  # of which the disk's room tells nothing
    assert reserves.short.keys() == {"/data"}


def test_the_next_start_refuses_clients_too() -> None:
    kit = Kit()
    kit.disk.free = 0
    first = Kit.begun(kit)
    assert first.short == {}, "what there is no room for is not kept back"
    kit.disk.free = 1 << 30
    reserves = kit.begun()
    kit.disk.free = 0
    reserves.refused("/data", FULL)

    assert kit.begun().short.keys() == {"/data"}
    kit.disk.free = 2 * RESERVE_BYTES
    assert kit.begun().short == {}


def test_a_start_that_may_lack_room_has_that_which_was_kept_back() -> None:
    kit = Kit()
    kit.begun()
    kit.disk.free = START_BYTES
    assert kit.begun().short == {}
    kit.disk.free = START_BYTES - 1
    assert kit.begun().short.keys() == {"/data"}
    assert kit.disk.free == START_BYTES - 1 + RESERVE_BYTES


def test_the_brokers_own_records_have_all_of_it_but_what_a_start_needs() -> None:
    kit = Kit()
    reserves = kit.begun()
    kit.disk.free = 0
    reserves.refused("/data", FULL)
    assert reserves.short["/data"].left_bytes == OWN_BYTES
    some = OWN_BYTES // 8
    for free_bytes, own_bytes in (
        (START_BYTES + OWN_BYTES, OWN_BYTES),
        (START_BYTES + OWN_BYTES - 1, some),
        (START_BYTES + some, some),
        (START_BYTES + some - 1, 0),
    ):
        kit.disk.free = free_bytes
        assert (reserves.own_bytes("/data"), kit.disk.free) == (own_bytes, free_bytes)
        assert kit.begun().short["/data"].left_bytes == own_bytes


def test_how_much_there_is_for_them_is_tried_when_it_is_spent_and_then_seldom() -> None:
    own_room = OwnRoom(OWN_BYTES_MIN + 1)
    assert not any(own_room.is_due() for _ in range(2 * LOOKS_EACH))
    assert own_room.take(2)
    assert own_room.is_spent
    assert sum(own_room.is_due() for _ in range(3 * LOOKS_EACH)) == 3
    assert not own_room.take(OWN_BYTES_MIN)
    assert own_room.take(OWN_BYTES_MIN - 1)
    assert not own_room.take(1)


def test_a_file_that_somebody_removed_is_no_room() -> None:
    kit = Kit()
    reserves = kit.begun()
    kit.disk.free = 0
    reserves.refused("/data", FULL)
    kit.disk.remove(PATH)
    kit.disk.inject("create", errno.ENOSPC, times=2)  # the disk has no inodes
    assert reserves.own_bytes("/data") == 0


def test_a_start_that_a_quota_gives_no_more_has_that_which_was_kept_back() -> None:
    kit = Kit()
    kit.begun()
    kit.disk.space = lambda path: (1 << 40, 1 << 40)  # type: ignore[method-assign]
    kit.disk.free = START_BYTES - 1
    assert list(kit.begun().short) == ["/data"]
    assert kit.disk.free == START_BYTES - 1 + RESERVE_BYTES


def test_what_is_said_to_be_free_is_not_all_that_may_be_used() -> None:
    """Root has the last blocks of some file systems."""
    kit = Kit()
    kit.begun()
    kit.disk.space = lambda path: (1 << 40, 0)  # type: ignore[method-assign]
    reserves = kit.begun()
    assert reserves.short == {}
    assert kit.reserved_bytes == RESERVE_BYTES
    reserves.refused("/data", FULL)
    assert reserves.own_bytes("/data") == OWN_BYTES


def test_a_sparse_copy_of_it_is_filled() -> None:
    kit = Kit()
    kit.begun()
    kit.disk.inject("allocate", errno.ENOSPC)
    assert kit.begun().short.keys() == {"/data"}, "it was no room"
    assert kit.begun().short == {}


def test_a_small_disk_does_without() -> None:
    kit = Kit(2 * RESERVE_BYTES - 1)
    reserves = kit.begun()
    assert kit.reserved_bytes is None
    kit.disk.free = 0
    reserves.refused("/data", FULL)
    assert reserves.short == {}, "every write is tried there"


@pytest.mark.parametrize("call", ["create", "allocate", "space"])
def test_a_file_system_that_refuses_it_for_another_reason_does_without(call: str) -> None:
    kit = Kit()
    kit.disk.inject(call, errno.EOPNOTSUPP)
    reserves = kit.begun()
    assert reserves.short == {}
    assert kit.events.fields("no_room_kept_back")["dir"] == "/data"
    kit.disk.free = 0
    reserves.refused("/data", FULL)
    assert reserves.short == {}


def test_room_that_goes_while_it_is_taken_is_given_back() -> None:
    kit = Kit()
    reserves = kit.begun()
    kit.disk.free = 0
    reserves.refused("/data", FULL)
    kit.disk.free = 1 << 30
    kit.disk.inject("allocate", errno.ENOSPC)
    assert not reserves.recover("/data")
    assert kit.reserved_bytes == 0
    kit.disk.inject("open", errno.EMFILE, path=RESERVE_FILE)
    assert not reserves.recover("/data")
    assert reserves.recover("/data")


def test_a_reserve_that_can_be_made_no_more_keeps_no_client_out() -> None:
    kit = Kit()
    reserves = kit.begun()
    kit.disk.free = 0
    reserves.refused("/data", FULL)
    kit.disk.free = 1 << 30
    kit.disk.inject("allocate", errno.EROFS)
    with pytest.raises(OSError, match="Read-only") as caught:
        reserves.recover("/data")
    reserves.do_without("/data", caught.value)
    assert (reserves.short, kit.changes) == ({}, 2)
    assert "Read-only" in kit.events.fields("no_room_kept_back")["error"]


class _Quota(SimDisk):
    """The disk has room, of which this user has `free`."""

    def space(self, path: str) -> tuple[int, int]:
        return 1 << 40, 1 << 40


def test_room_that_was_given_up_is_not_taken_for_as_much_beside_it() -> None:
    kit = Kit()
    kit.disk = _Quota()
    kit.disk.make_dir("/data")
    kit.disk.free = RESERVE_BYTES
    reserves = kit.begun()
    reserves.refused("/data", QUOTA)
    assert not reserves.recover("/data")
    assert kit.disk.free == RESERVE_BYTES
    kit.disk.free = 2 * RESERVE_BYTES
    assert reserves.recover("/data")
    assert (kit.reserved_bytes, kit.disk.free) == (RESERVE_BYTES, RESERVE_BYTES)


def test_a_first_reserve_that_is_refused_leaves_no_mark() -> None:
    kit = Kit()
    kit.disk.inject("allocate", errno.EDQUOT)
    kit.begun()
    assert kit.reserved_bytes is None
    assert kit.begun().short == {}


def test_a_reserve_that_a_crash_left_unfinished_is_finished() -> None:
    kit = Kit()
    kit.disk.allocate(PATH, RESERVE_BYTES // 2)
    assert kit.begun().short == {}
    assert kit.reserved_bytes == RESERVE_BYTES


def test_a_disk_that_will_not_give_it_up_is_told() -> None:
    kit = Kit()
    reserves = kit.begun()
    kit.disk.free = 0
    kit.disk.inject("truncate", errno.EIO)
    reserves.refused("/data", FULL)
    assert reserves.short == {}
    assert kit.events.fields("no_room_given_up")["dir"] == "/data"
