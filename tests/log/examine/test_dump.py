"""What a dump says: batches as they stand, records decoded, damage as a line of its own."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.log.examine.dump import dump_file
from ottla.broker.log.examine.files import LogFile, classify, find_files
from ottla.broker.log.quarantine import DamagedRange, format_ranges
from ottla.broker.log.waypoints import WAYPOINT_FILE
from ottla.protocol.codec import encoder
from ottla.protocol.messages.coordinator_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    ShareUpdateKey,
    ShareUpdateValue,
    TransactionLogKey,
    TransactionLogValue,
)
from ottla.protocol.messages.metadata_records import TopicRecord
from ottla.protocol.records.batch import iterate_headers
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.legacy import iterate_legacy_records
from ottla.protocol.records.record import Record
from ottla.protocol.schema import Message
from ottla.testing.disk import SimDisk
from tests.log.examine.partitions import content, filled_disk, silent
from tests.log.logs import DIRECTORY, NOW, SMALL, append, flush, open_log
from tests.records.test_legacy import SETS

LOG = "00000000000000000000.log"


def rows(disk: SimDisk, path: str, *, deep: bool = False) -> list[dict[str, Any]]:
    file = classify(path)
    assert file is not None
    return list(dump_file(disk, file, deep=deep, progress=silent))


def written(topic: str, batch: bytes | bytearray) -> tuple[SimDisk, str]:
    """A disk with one partition whose log is this."""
    disk = SimDisk()
    disk.make_dir("/data")
    disk.make_dir(f"/data/{topic}-0")
    path = f"/data/{topic}-0/{LOG}"
    disk.open(path, create=True).pwrite(batch, 0)
    return disk, path


def encoded(message: Message, version: int, head: bytes) -> bytes:
    out = bytearray(head)
    encoder(type(message), version)(message, out, [])
    return bytes(out)


def test_batches_are_told_as_their_headers_say() -> None:
    disk = filled_disk()
    told = rows(disk, f"{DIRECTORY}/{LOG}")
    headers = list(iterate_headers(content(disk, LOG)))

    assert [(row["position"], row["base_offset"], row["size"], row["crc"]) for row in told] == [
        (position, header.base_offset, header.size, header.crc) for position, header in headers
    ]


def test_a_dump_goes_on_behind_damage() -> None:
    disk = filled_disk()
    (_, first), (position, _second), *rest = iterate_headers(content(disk, LOG))
    disk.corrupt(f"{DIRECTORY}/{LOG}", position + 70, b"\xff")
    told = rows(disk, f"{DIRECTORY}/{LOG}")

    assert [row["valid"] for row in told] == [True, False, *(True for _ in rest)]
    assert told[1]["position"] == first.size
    assert "has CRC" in told[1]["damage"]


def test_records_have_keys_values_and_headers_and_markers_their_verdict() -> None:
    disk = filled_disk()
    told = [
        row
        for file in find_files(disk, DIRECTORY)
        if file.name.endswith(".log")
        for row in dump_file(disk, file, deep=True, progress=silent)
        if "offset" in row
    ]

    assert told[0] == {"offset": 0, "timestamp": NOW, "key": "k0", "value": "v" * 20}
    assert [row["control_type"] for row in told if "control_type" in row] == ["ABORT", "COMMIT"]
    disk, path = written(
        "orders", build_batch([Record(0, 1, b"\xff\x00", None, (("name", b"\xfe"),))])
    )
    assert rows(disk, path, deep=True)[1] == {
        "offset": 0,
        "timestamp": 1,
        "key_hex": "ff00",
        "value": None,
        "headers": [{"name": "name", "value_hex": "fe"}],
    }


def test_records_of_the_brokers_own_topics_are_decoded() -> None:
    commit = Record(
        0,
        1,
        encoded(OffsetCommitKey("g", "orders", 3), 0, b"\0\1"),
        encoded(OffsetCommitValue(offset=42, commit_timestamp=7), 4, b"\0\4"),
    )
    disk, path = written("__consumer_offsets", build_batch([commit]))
    (row,) = rows(disk, path, deep=True)[1:]
    assert (row["type"], row["key"]["group"], row["value"]["offset"]) == ("OffsetCommit", "g", 42)

    state = Record(
        0,
        1,
        encoded(TransactionLogKey("t"), 0, b"\0\0"),
        encoded(TransactionLogValue(producer_id=5), 1, b"\0\1"),
    )
    disk, path = written("__transaction_state", build_batch([state]))
    (row,) = rows(disk, path, deep=True)[1:]
    assert (row["key"]["transactional_id"], row["value"]["producer_id"]) == ("t", 5)

    share = Record(
        0,
        1,
        encoded(ShareUpdateKey("g", partition=2), 0, b"\0\1"),
        encoded(ShareUpdateValue(start_offset=9), 0, b"\0\0"),
    )
    disk, path = written("__share_group_state", build_batch([share]))
    (row,) = rows(disk, path, deep=True)[1:]
    assert (row["type"], row["key"]["partition"], row["value"]["start_offset"]) == (
        "ShareUpdate",
        2,
        9,
    )

    topic = Record(0, 1, None, encoded(TopicRecord("orders", bytes(16)), 0, b"\1\2\0"))
    disk, path = written("__cluster_metadata", build_batch([topic]))
    (row,) = rows(disk, path, deep=True)[1:]
    assert (row["type"], row["data"]["name"], row["data"]["topic_id"]) == (
        "TopicRecord",
        "orders",
        "A" * 22,
    )


@pytest.mark.parametrize("value", [b"\1\x7f\0", b"\2\2\0", b"\1\2\0\xff", b""])
def test_what_cannot_be_decoded_is_shown_as_bytes_with_the_reason(value: bytes) -> None:
    disk, path = written("__cluster_metadata", build_batch([Record(0, 1, None, value)]))
    (row,) = rows(disk, path, deep=True)[1:]

    assert row["not_decoded"]
    assert "value" in row or row["value_hex"] == value.hex()


@pytest.mark.parametrize("name", SETS)
def test_old_formats_are_told_too(name: str) -> None:
    disk, path = written("orders", SETS[name])
    told = rows(disk, path, deep=True)

    assert sum(row["size"] for row in told if "size" in row) == len(SETS[name])
    assert {row["magic"] for row in told if "magic" in row} == {int(name[5])}
    assert [(row["offset"], row["timestamp"]) for row in told if "offset" in row] == [
        (one.offset, one.timestamp) for one in iterate_legacy_records(SETS[name])
    ]


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("00000000000000000010.index", b"\0\0\0\5\0\0\1\0" + bytes(8),
         [{"offset": 15, "position": 256}, {"unused_bytes": 8, "zeros": True}]),
        ("00000000000000000010.timeindex", b"\0\0\0\0\0\0\0\7\0\0\0\5",
         [{"timestamp": 7, "offset": 15}]),
        ("leader-epoch-checkpoint", b"0\n1\n3 40\n", [{"epoch": 3, "start_offset": 40}]),
        ("recovery-point-offset-checkpoint", b"0\n1\nt 0 9\n",
         [{"topic": "t", "partition": 0, "offset": 9}]),
        ("leader-epoch-checkpoint", b"0\n2\n3 40\n4 x\n",
         [{"epoch": 3, "start_offset": 40},
          {"malformed": "'x' is not a number from 0 up", "size": 13}]),
        ("recovery-point-offset-checkpoint", b"1\n",
         [{"malformed": "1 lines where version and count belong", "size": 2}]),
        ("ottla-damaged-ranges", format_ranges({("t", 0): [DamagedRange(0, 85, 70)]}),
         [{"topic": "t", "partition": 0, "segment": 0, "position": 85, "size": 70}]),
        ("partition.metadata", b"version: 0\ntopic_id: " + b"A" * 22, [{"topic_id": "A" * 22}]),
        (".kafka_cleanshutdown", b'{"version":0,"brokerEpoch":13}', [{"broker_epoch": 13}]),
        ("quorum-state", b'{"leaderId":1,"data_version":1}',
         [{"leaderId": 1, "data_version": 1}]),
        ("ottla-generation", b"0\n1\n3 0011\n", [{"generation": 3, "crc": "0011"}]),
        ("quorum-state", b"[]", [{"malformed": "not a JSON object", "size": 2}]),
    ],
)  # fmt: skip
def test_small_files_are_told_row_by_row(
    name: str, data: bytes, expected: list[dict[str, object]]
) -> None:
    disk = SimDisk()
    disk.open(f"/{name}", create=True).pwrite(data, 0)

    assert rows(disk, f"/{name}") == expected


def test_a_log_dir_means_all_in_it() -> None:
    disk = filled_disk()
    disk.open("/data/meta.properties", create=True)
    disk.open("/data/notes.txt", create=True)
    disk.make_dir("/data/lost+found")
    found: list[LogFile] = list(find_files(disk, "/data"))

    assert found[0].path == "/data/meta.properties"
    assert {one.directory for one in found[1:]} == {DIRECTORY}
    assert len(found) == 1 + len(disk.list(DIRECTORY))


def test_a_waypoint_is_told_with_its_producers() -> None:
    disk = filled_disk()
    log = open_log(disk, SMALL)
    append(log, 2, epoch=1, producer_id=9, producer_epoch=0, base_sequence=12)
    flush(log)
    ticket = log.begin_waypoint()
    assert ticket is not None
    ticket.write()
    log.waypoints.finish(ticket)
    log.waypoints.name()
    path = f"{DIRECTORY}/{WAYPOINT_FILE}"
    told, *producers = rows(disk, path)

    active = log.segments.active
    assert (told["base_offset"], told["position"]) == (active.base_offset, active.size)
    assert (told["offset"], told["last_batch_base_offset"]) == (
        log.log_end_offset,
        log.log_end_offset - 2,
    )
    assert {row["producer_id"]: row["last_sequence"] for row in producers}[9] == 13
    assert path in [file.path for file in find_files(disk, DIRECTORY)]
    disk.corrupt(path, 20, b"\xff")
    assert rows(disk, path) == [
        {"malformed": "its CRC is not that of what follows", "size": disk.open(path).size()}
    ]
