"""Names of partition directories, and whose log dir it is."""

import errno
import random

import pytest

from ottla.broker.log import checkpoints
from ottla.broker.log.checkpoints import MetaProperties
from ottla.broker.log.directories import (
    Kind,
    LogDirError,
    PartitionName,
    aside_name,
    identify,
    list_partitions,
    make_log_dir,
    new_directory_id,
    parse_name,
)
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.log.events import RecordedEvents

HEX = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("t-0", PartitionName("t", 0)),
        ("a.b-c_d-12", PartitionName("a.b-c_d", 12)),
        ("t-2147483647", PartitionName("t", 2147483647)),
        (f"t-3.{HEX}-delete", PartitionName("t", 3, Kind.DELETED)),
        (f"a.b-3.{HEX}-future", PartitionName("a.b", 3, Kind.FUTURE)),
        (f"t-3.{HEX}-stray", PartitionName("t", 3, Kind.STRAY)),
        ("my-delete-0", PartitionName("my-delete", 0)),
        ("t-2147483648", None),
        ("t-01", None),
        ("t--1", PartitionName("t-", 1)),
        ("t-", None),
        ("-0", None),
        ("t", None),
        ("t-x", None),
        ("t-\u0663", None),
        ("lost+found", None),
        ("t-3-delete", None),
        ("t-3.0123-delete", None),
        (f"t-3.{HEX.upper()}-delete", None),
        ("recovery-point-offset-checkpoint", None),
        ("", None),
    ],
)
def test_names(name: str, parsed: PartitionName | None) -> None:
    assert parse_name(name) == parsed


@pytest.mark.parametrize("kind", [Kind.DELETED, Kind.FUTURE, Kind.STRAY])
def test_a_name_aside_tells_what_it_was(kind: Kind) -> None:
    name = aside_name("a.b-c", 7, kind, random.Random(1))

    assert parse_name(name) == PartitionName("a.b-c", 7, kind)
    assert len(name) == len("a.b-c-7.") + 32 + len(kind.value)


def test_a_long_topic_is_cut_to_what_file_systems_allow() -> None:
    name = aside_name("x" * 249, 12, Kind.DELETED, random.Random(1))

    assert len(name) == 255
    parsed = parse_name(name)
    assert parsed is not None
    assert (parsed.partition, parsed.kind) == (12, Kind.DELETED)


def test_only_partitions_are_listed_and_strange_directories_are_told() -> None:
    disk = SimDisk()
    events = RecordedEvents()
    known = ["__cluster_metadata-0", "lost+found", "remote-log-index-cache"]
    for name in ("b-1", "a-0", "photos", *known):
        disk.make_dir(f"/{name}")
    disk.open("/meta.properties", create=True).close()
    disk.open("/.lock", create=True).close()

    assert [name for name, _ in list_partitions(disk, "/", events)] == ["a-0", "b-1"]
    assert events.names == ["log_dir_entry_ignored"]
    assert events.fields("log_dir_entry_ignored")["name"] == "photos"


def test_somebody_elses_directory_is_no_partition_for_its_name() -> None:
    disk = SimDisk()
    events = RecordedEvents()
    for name in ("photos-2024", "whole-0", "bare-0", "unnamed-0"):
        disk.make_dir(f"/{name}")
    for path in ("photos-2024/a.jpg", "whole-0/partition.metadata", "unnamed-0/0.log"):
        disk.open(f"/{path}", create=True).close()

    found = [name for name, _ in list_partitions(disk, "/", events)]
    assert found == ["bare-0", "unnamed-0", "whole-0"]
    assert events.fields("log_dir_entry_ignored")["name"] == "photos-2024"


def test_a_new_log_dir_is_durable_with_its_parents() -> None:
    disk = SimDisk()
    make_log_dir(disk, "/var/lib/ottla")
    make_log_dir(disk, "/var/lib/ottla")

    for mode in CrashMode:
        assert disk.crash(random.Random(1), mode).exists("/var/lib/ottla")


def durable_after_another_start(disk: SimDisk) -> bool:
    """Whether a loss of power behind the next start leaves the dir there."""
    make_log_dir(disk, "/var/lib/ottla")
    crashed = (disk.crash(random.Random(seed), CrashMode.SUBSET) for seed in range(10))
    return all(one.exists("/var/lib/ottla") for one in crashed)


def test_a_name_that_a_killed_start_has_not_synced_is_synced_by_the_next() -> None:
    disk = SimDisk()
    killed: list[SimDisk] = []

    def before(number: int, call: str, path: str) -> None:
        killed.append(disk.crash(random.Random(1), CrashMode.PROCESS))

    disk.before_call = before
    make_log_dir(disk, "/var/lib/ottla")

    assert len(killed) == 7  # the first looks to it that the root is durable
    assert all(durable_after_another_start(one) for one in killed)


def test_a_name_whose_sync_failed_is_made_anew() -> None:
    disk = SimDisk()
    disk.inject("sync_dir", errno.EIO, path="/var/lib")
    with pytest.raises(OSError, match="Input/output"):
        make_log_dir(disk, "/var/lib/ottla")

    assert not disk.exists("/var/lib/ottla")
    assert durable_after_another_start(disk)


def test_nor_is_the_name_that_a_killed_start_has_left_believed_behind_a_failed_sync() -> None:
    disk = SimDisk()
    make_log_dir(disk, "/var/lib")
    disk.make_dir("/var/lib/ottla")
    disk.open("/var/lib/ottla/.lock", create=True).close()
    disk.inject("sync_dir", errno.EIO, path="/var/lib")
    with pytest.raises(OSError, match="Input/output"):
        make_log_dir(disk, "/var/lib/ottla")

    assert durable_after_another_start(disk)


def test_one_with_something_in_it_keeps_its_name_behind_a_failed_sync() -> None:
    disk = SimDisk()
    make_log_dir(disk, "/home/me")
    disk.open("/home/me/.lock", create=True).close()
    disk.open("/home/me/letter", create=True).close()
    for number in (errno.EIO, errno.EMFILE):
        disk.inject("sync_dir", number, path="/home")
        with pytest.raises(OSError, match="/home"):
            make_log_dir(disk, "/home/me")

    assert disk.list("/home/me") == [".lock", "letter"]


def test_a_parent_that_may_not_be_read_is_somebody_elses() -> None:
    disk = SimDisk()
    make_log_dir(disk, "/home/me")
    disk.inject("sync_dir", errno.EACCES, path="/home")

    make_log_dir(disk, "/home/me")


def test_a_dir_that_is_in_use_needs_no_sync() -> None:
    disk = SimDisk()
    make_log_dir(disk, "/data")
    meta = MetaProperties("c", 1, bytes(range(16)))
    checkpoints.write_meta_properties(disk, "/data", meta, now_ms=0)
    calls = disk.calls
    make_log_dir(disk, "/data")

    assert disk.calls == calls


def test_whose_directory_it_is() -> None:
    disk = SimDisk()
    assert identify(disk, "", node_id=1, cluster_id="c") is None
    meta = MetaProperties("c", 1, bytes(range(16)))
    checkpoints.write_meta_properties(disk, "", meta, now_ms=0)

    assert identify(disk, "", node_id=1, cluster_id="c") == meta
    assert identify(disk, "", node_id=1, cluster_id=None) == meta
    with pytest.raises(LogDirError, match=r"node.id=1, but this broker is node 2"):
        identify(disk, "", node_id=2, cluster_id="c")
    with pytest.raises(LogDirError, match=r"cluster.id=c, but this broker belongs to d"):
        identify(disk, "", node_id=1, cluster_id="d")


@pytest.mark.parametrize("data", [b"", b"\0" * 20, b"garbage\n", b"version=0\nbroker.id=1\n"])
@pytest.mark.parametrize(
    ("cluster_id", "told"), [("c", "cluster.id=c,"), (None, "cluster.id= as clients, other log")]
)
def test_unreadable_meta_properties_stop_the_start_with_a_way_out(
    data: bytes, cluster_id: str | None, told: str
) -> None:
    disk = SimDisk()
    disk.open("/meta.properties", create=True).pwrite(data, 0)

    with pytest.raises(
        LogDirError, match=r"^/meta.properties, which says whose .* cannot be read: version is "
    ) as raised:
        identify(disk, "", node_id=7, cluster_id=cluster_id)

    said = str(raised.value)
    assert "Take that file from a backup, or write it anew" in said
    assert f" version=1, node.id=7, {told}" in said
    assert "directory.id= that of the log_dirs of this broker's last RegisterBrokerRecord" in said


def test_directory_ids_are_random_uuids() -> None:
    rng = random.Random(1)
    ids = {new_directory_id(rng) for _ in range(50)}

    assert len(ids) == 50
    assert all(one[6] >> 4 == 4 and one[8] >> 6 == 2 for one in ids)
