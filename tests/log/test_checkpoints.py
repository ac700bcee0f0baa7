"""The small files: Kafka's bytes, replaced as a whole, and never a reason not to start."""

import errno
import random

import pytest

from ottla.broker.log import checkpoints
from ottla.broker.log.checkpoints import MalformedFile, MetaProperties
from ottla.protocol.wire import parse_uuid
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.log.events import RecordedEvents

TOPIC_ID = parse_uuid("HkCIt-qdTvufbCVwHt-fjQ")
DIRECTORY_ID = parse_uuid("UfmCnMz1SaKP3C4ssqm89w")


def put(disk: SimDisk, path: str, data: bytes) -> None:
    disk.open(path, create=True).pwrite(data, 0)


def get(disk: SimDisk, path: str) -> bytes | None:
    return checkpoints.read_whole(disk, path)


def test_offsets_are_kafkas_lines() -> None:
    disk = SimDisk()
    offsets = {("t1", 0): 51, ("with-dash", 12): 0}
    checkpoints.write_offsets(disk, "/c", offsets)

    assert get(disk, "/c") == b"0\n2\nt1 0 51\nwith-dash 12 0\n"
    assert checkpoints.read_offsets(disk, "/c", RecordedEvents()) == offsets


def test_no_offsets_are_two_lines_and_no_bytes_mean_the_same() -> None:
    disk = SimDisk()
    events = RecordedEvents()
    checkpoints.write_offsets(disk, "/c", {})
    assert get(disk, "/c") == b"0\n0\n"
    put(disk, "/fresh", b"")

    for path in ("/c", "/fresh", "/missing"):
        assert checkpoints.read_offsets(disk, path, events) == {}
    assert events.told == []


@pytest.mark.parametrize(
    "data",
    [
        b"0",
        b"1\n1\nt 0 5\n",
        b"0\n2\nt 0 5\n",
        b"0\n0\nt 0 5\n",
        b"0\n1\nt 0\n",
        b"0\n1\nt 0 5 6\n",
        b"0\n1\nt 0 -5\n",
        b"0\n1\nt x 5\n",
        b"0\n1\nt 0 +5\n",
        b"0\n1\nt 0 99999999999999999999\n",
        b"0\n2\nt 0 5\nt 0 6\n",
        b"0\n-1\n",
        b"\0\0\0\0\0\0\0\0",
        b"0\n1\nt\xff 0 5\n",
        b"0\r\n1\r\nt 0 5\r\n",
    ],
)
def test_a_malformed_checkpoint_is_told_and_treated_as_absent(data: bytes) -> None:
    disk = SimDisk()
    events = RecordedEvents()
    put(disk, "/c", data)

    assert checkpoints.read_offsets(disk, "/c", events) == {}
    assert events.names == ["checkpoint_malformed"]
    assert events.fields("checkpoint_malformed")["path"] == "/c"


def test_writing_is_all_or_nothing_at_every_call_and_in_every_crash() -> None:
    """Goal: old or new, never a part, whatever the crash; and new once the call returned.

    Method: crash a copy before each call that changes the disk, in every mode.
    """
    states = 0
    disk = SimDisk()
    checkpoints.write_atomically(disk, "/c", b"old" * 300)

    def crash_here(count: int, call: str, path: str) -> None:
        nonlocal states
        for mode in CrashMode:
            for seed in range(10):
                after = disk.crash(random.Random(seed), mode)
                states += 1
                assert get(after, "/c") in (b"old" * 300, b"new" * 400)

    disk.before_call = crash_here
    checkpoints.write_atomically(disk, "/c", b"new" * 400)
    disk.before_call = None
    for mode in CrashMode:
        for seed in range(10):
            after = disk.crash(random.Random(seed), mode)
            assert get(after, "/c") == b"new" * 400
            assert "c.tmp" not in after.list("/")

    assert states == 5 * len(CrashMode) * 10  # create, write, sync, rename, sync of the directory


def test_a_longer_leftover_does_not_show_in_the_new_file() -> None:
    disk = SimDisk()
    put(disk, "/c.tmp", b"x" * 100)
    checkpoints.write_atomically(disk, "/c", b"short")

    assert get(disk, "/c") == b"short"


@pytest.mark.parametrize("call", ["create", "pwrite", "sync", "rename", "sync_dir"])
def test_a_failed_write_leaves_the_old_content_readable(call: str) -> None:
    disk = SimDisk()
    checkpoints.write_atomically(disk, "/c", b"old")
    disk.inject(call, errno.EIO)
    with pytest.raises(OSError):
        checkpoints.write_atomically(disk, "/c", b"new")

    assert get(disk, "/c") in (b"old", b"new")


def test_partition_metadata_has_no_final_newline() -> None:
    disk = SimDisk()
    disk.make_dir("/t-0")
    checkpoints.write_partition_metadata(disk, "/t-0", TOPIC_ID)

    written = get(disk, "/t-0/partition.metadata")
    assert written == b"version: 0\ntopic_id: HkCIt-qdTvufbCVwHt-fjQ"
    assert len(written) == 43
    assert checkpoints.read_partition_metadata(disk, "/t-0", RecordedEvents()) == TOPIC_ID


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 43, b"version: 1\ntopic_id: HkCIt-qdTvufbCVwHt-fjQ", b"version: 0\ntopic_id: x"],
)
def test_unreadable_partition_metadata_is_told(data: bytes) -> None:
    disk = SimDisk()
    events = RecordedEvents()
    put(disk, "/partition.metadata", data)

    assert checkpoints.read_partition_metadata(disk, "", events) is None
    assert events.names == ["partition_metadata_malformed"]


def test_meta_properties_are_a_java_properties_file() -> None:
    disk = SimDisk()
    meta = MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", 1, DIRECTORY_ID)
    checkpoints.write_meta_properties(disk, "", meta, now_ms=1_795_240_935_000)

    assert get(disk, "/meta.properties") == (
        b"#\n#Sat Nov 21 06:02:15 UTC 2026\nnode.id=1\ndirectory.id=UfmCnMz1SaKP3C4ssqm89w\n"
        b"version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
    )
    assert checkpoints.read_meta_properties(disk, "") == meta
    assert checkpoints.read_meta_properties(SimDisk(), "") is None


def test_meta_properties_in_any_order_and_with_escapes() -> None:
    data = b"version=1\n! note\ncluster.id=a\\=\\:b\\\\c\n\nnode.id = 7\n"
    data += b"directory.id=UfmCnMz1SaKP3C4ssqm89w\nextra=1\n"
    meta = checkpoints.parse_meta_properties(data)

    assert meta == MetaProperties("a=:b\\c", 7, DIRECTORY_ID)
    again = checkpoints.format_meta_properties(meta, now_ms=0)
    assert checkpoints.parse_meta_properties(again) == meta


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "version"),
        (b"version=0\nbroker.id=1\ncluster.id=x\n", "version"),
        (b"version=1\nnode.id=1\ndirectory.id=UfmCnMz1SaKP3C4ssqm89w\n", "cluster.id"),
        (b"version=1\nnode.id=x\ndirectory.id=UfmCnMz1SaKP3C4ssqm89w\ncluster.id=c\n", "'x'"),
        (b"version=1\nnode.id=1\ndirectory.id=short\ncluster.id=c\n", "'short'"),
    ],
)
def test_meta_properties_that_cannot_be_read_are_never_guessed(data: bytes, said: str) -> None:
    disk = SimDisk()
    put(disk, "/meta.properties", data)
    with pytest.raises(MalformedFile, match=said):
        checkpoints.read_meta_properties(disk, "")


def test_the_clean_marker_is_taken_once_and_for_good() -> None:
    disk = SimDisk()
    checkpoints.write_clean_shutdown(disk, "/", broker_epoch=13)
    assert get(disk, "/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":13}'

    assert checkpoints.take_clean_shutdown(disk, "/", RecordedEvents()) == 13
    assert checkpoints.take_clean_shutdown(disk, "/", RecordedEvents()) is None
    for mode in CrashMode:
        after = disk.crash(random.Random(1), mode)
        assert checkpoints.take_clean_shutdown(after, "/", RecordedEvents()) is None


@pytest.mark.parametrize(
    "data", [b"", b"\0\0", b"[]", b'{"version":1,"brokerEpoch":1}', b'{"version":0}']
)
def test_a_malformed_marker_is_no_clean_stop_and_goes_too(data: bytes) -> None:
    disk = SimDisk()
    events = RecordedEvents()
    put(disk, "/.kafka_cleanshutdown", data)

    assert checkpoints.take_clean_shutdown(disk, "/", events) is None
    assert events.names == ["clean_shutdown_malformed"]
    assert disk.list("/") == []
