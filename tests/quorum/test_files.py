"""quorum-state and snapshots as files: what is written is read, and damage is noticed."""

from __future__ import annotations

import errno
import random

import pytest

from ottla.broker.log.checkpoints import MalformedFile
from ottla.broker.quorum.snapshot import (
    RECORDS_PER_BATCH,
    SnapshotError,
    SnapshotId,
    list_snapshots,
    parse_snapshot,
    read_snapshot,
    remove_leftovers,
    snapshot_batches,
    write_snapshot,
)
from ottla.broker.quorum.vote_file import (
    VoteState,
    parse_vote_state,
    read_vote_state,
    write_vote_state,
)
from ottla.broker.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record, iterate_records
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode

VOTERS = VoterSet.of(
    [Voter(ReplicaKey(1, bytes(15) + b"\xd1"), (Endpoint("CONTROLLER", "localhost", 9093),))]
)
ID = SnapshotId(120, 3)


def encode(records: list[bytes], offset: int) -> bytearray:
    return build_batch([Record(0, 5, None, one) for one in records], base_offset=offset)


def batches(values: list[bytes], *, kraft_version: int = 1) -> list[bytearray]:
    return list(
        snapshot_batches(
            values,
            encode,
            epoch=3,
            now_ms=9,
            last_contained_timestamp=7,
            kraft_version=kraft_version,
            voters=VOTERS,
        )
    )


def disk() -> SimDisk:
    made = SimDisk()
    made.make_dir("q")
    return made


@pytest.mark.parametrize(
    "state",
    [
        VoteState(),
        VoteState(5, 1),
        VoteState(7, -1, ReplicaKey(2, bytes(range(16)))),
        VoteState(7, 3, ReplicaKey(2, bytes(range(16)))),
    ],
)
def test_a_vote_is_read_as_it_was_written(state: VoteState) -> None:
    made = disk()

    write_vote_state(made, "q", state)

    assert read_vote_state(made, "q") == state


def test_there_is_no_vote_in_the_beginning() -> None:
    assert read_vote_state(disk(), "q") == VoteState()


def test_the_older_form_is_read() -> None:
    older = (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}'
    )

    assert parse_vote_state(older) == VoteState(2, 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"data_version":2}',
        '{"leaderId":1,"leaderEpoch":-1,"votedId":-1,"data_version":1}',
        '{"leaderId":"1","leaderEpoch":1,"votedId":-1,"data_version":1}',
        '{"leaderId":1,"leaderEpoch":1,"votedId":1,"votedDirectoryId":"x","data_version":1}',
        '{"leaderId":1,"leaderEpoch":1,"votedId":1,"votedDirectoryId":5,"data_version":1}',
    ],
)
def test_a_vote_that_cannot_be_believed_stops_the_node(text: str) -> None:
    with pytest.raises(MalformedFile):
        parse_vote_state(text.encode())


def test_a_snapshot_is_read_as_it_was_written() -> None:
    made = disk()
    values = [b"%d" % number for number in range(2 * RECORDS_PER_BATCH + 1)]

    write_snapshot(made, "q", ID, iter(batches(values)))
    snapshot = read_snapshot(made, f"q/{ID.name}")

    assert list_snapshots(made, "q") == [ID]
    assert (snapshot.last_contained_timestamp, snapshot.kraft_version) == (7, 1)
    assert snapshot.voters == VOTERS
    read = [record for _, view in snapshot.batches for record in iterate_records(view)]
    assert [record.value for record in read] == values
    # header, kraft.version and voters come first
    assert [record.offset for record in read] == list(range(3, 3 + len(values)))


def test_before_kraft_version_1_no_voters_are_written() -> None:
    snapshot = parse_snapshot(memoryview(b"".join(batches([b"x"], kraft_version=0))))

    assert (snapshot.kraft_version, snapshot.voters) == (0, None)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (slice(0, 2), "ends before its footer"),
        (slice(1, 3), "does not begin with its header"),
        (slice(2, 3), "does not begin with its header"),
        (slice(0, 0), "ends before its footer"),
    ],
)
def test_a_part_of_a_snapshot_is_none(parts: slice, reason: str) -> None:
    with pytest.raises(SnapshotError, match=reason):
        parse_snapshot(memoryview(b"".join(batches([b"x"])[parts])))


def test_records_behind_the_footer_are_an_error() -> None:
    whole = b"".join(batches([b"x"]))

    with pytest.raises(SnapshotError, match="behind its footer"):
        parse_snapshot(memoryview(whole + encode([b"y"], 9)))


def test_every_cut_and_every_flipped_bit_is_noticed() -> None:
    whole = b"".join(batches([b"x", b"y"]))
    for cut in range(len(whole)):
        with pytest.raises(SnapshotError):
            parse_snapshot(memoryview(whole[:cut]))
    under_crc = [*range(21, len(batches([])[0]))]
    for position in under_crc:
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        with pytest.raises(SnapshotError):
            parse_snapshot(memoryview(bytes(damaged)))


def test_leftovers_of_a_crash_go() -> None:
    made = disk()
    for name in (ID.name, f"{ID.name}.deleted", f"{ID.name.removesuffix('point')}point.part", "x"):
        made.open(f"q/{name}", create=True).close()

    remove_leftovers(made, "q")

    assert made.list("q") == [ID.name, "x"]


@pytest.mark.parametrize("call", ["pwrite", "sync", "rename"])
def test_a_snapshot_that_cannot_be_written_takes_no_room(call: str) -> None:
    made = disk()
    made.inject(call, errno.ENOSPC, path=".part")
    with pytest.raises(OSError, match="No space"):
        write_snapshot(made, "q", ID, iter(batches([b"x"])))

    assert made.list("q") == []


@pytest.mark.parametrize("mode", list(CrashMode))
def test_a_snapshot_under_its_name_is_whole_after_any_crash(mode: CrashMode) -> None:
    """Crash before each call of a write: the name is not there, or the file reads."""
    made = disk()
    made.sync_dir("/")
    crashed: list[SimDisk] = []
    rng = random.Random(mode.name)
    made.before_call = lambda number, call, path: crashed.append(made.crash(rng, mode))
    write_snapshot(made, "q", ID, iter(batches([b"x" * 600] * 20)))
    crashed.append(made.crash(rng, mode))

    for found in crashed:
        remove_leftovers(found, "q")
        for snapshot_id in list_snapshots(found, "q"):
            assert len(read_snapshot(found, f"q/{snapshot_id.name}").batches) == 1
    assert list_snapshots(crashed[-1], "q") == [ID]
