"""What the reader's page says of bytes and names is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from ottla.broker.log import checkpoints, offset_index, time_index, transaction_index
from ottla.broker.log.asides import CUT_SUFFIX
from ottla.broker.log.directories import LOCK_FILE, Kind
from ottla.broker.log.examine.files import classify
from ottla.broker.log.leftovers import CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX
from ottla.broker.log.moving import GENERATION_FILE
from ottla.broker.log.partition_dir import DOUBTFUL_TAIL_FILE
from ottla.broker.log.producer_state import KnownBatch, ProducerState
from ottla.broker.log.quarantine import DAMAGED_RANGES_FILE
from ottla.broker.log.segment import DELETED_SUFFIX, SEGMENT_SUFFIXES
from ottla.broker.log.waypoints import WAYPOINT_FILE
from ottla.protocol.records.batch import HEADER, HEADER_SIZE, check_crc, read_header
from ottla.protocol.records.record import iterate_records

PAGE = Path(checkpoints.__file__).with_name("README.md")
TEXT = PAGE.read_text(encoding="ascii")
SIZES = {"int64": 8, "int32": 4, "uint32": 4, "int16": 2, "int8": 1}


def test_the_batch_in_the_page_is_one() -> None:
    block = TEXT.split("the whole file:")[1].split("```")[1]
    digits = [re.match(r"(?:[0-9a-f]{2} {1,2})*[0-9a-f]{2}\b", row) for row in block.split("\n")]
    data = memoryview(bytearray.fromhex("".join(row.group() for row in digits if row)))
    header = read_header(data)

    assert header.size == len(data)
    assert check_crc(data)
    records = [(one.offset, one.key, one.value, one.headers) for one in iterate_records(data)]
    assert records == [(0, b"k0", b"v0", (("h", b"x"),)), (1, None, b"v1", ())]


def test_the_table_of_the_batch_header_is_its_struct() -> None:
    rows = re.findall(r"^\| (\d+)(?:-(\d+))? \| (u?int\d+) ", TEXT, re.MULTILINE)
    position = 0
    for first, last, kind in rows:
        assert int(first) == position
        position = int(last or first) + 1
        assert position - int(first) == SIZES[kind]

    assert len(rows) == len(HEADER.unpack(bytes(HEADER_SIZE)))
    assert position == HEADER_SIZE == 61


def test_the_entries_of_the_indexes_have_the_sizes_of_the_page() -> None:
    for suffix, entry in (
        ("index", offset_index.ENTRY),
        ("timeindex", time_index.ENTRY),
        ("txnindex", transaction_index.ENTRY),
    ):
        (row,) = re.findall(rf"^\| N\.{suffix} \| (\d+) bytes \| (.*)$", TEXT, re.MULTILINE)
        assert int(row[0]) == entry.size
        assert sum(SIZES[one] for one in re.findall(r"\bint\d+\b", row[1])) == entry.size


def test_a_producer_takes_as_many_bytes_as_the_page_says() -> None:
    state = ProducerState()
    empty = len(state.snapshot())
    state.add(1, 0, KnownBatch(0, 0, 0, 0, 0), transactional=False, now_ms=0)

    assert f"then {len(state.snapshot()) - empty} bytes a producer" in TEXT
    assert empty == 10


def test_every_name_of_the_code_is_in_the_page() -> None:
    names = [
        LOCK_FILE,
        checkpoints.META_PROPERTIES_FILE,
        checkpoints.CLEAN_SHUTDOWN_FILE,
        checkpoints.RECOVERY_POINT_FILE,
        checkpoints.LOG_START_FILE,
        checkpoints.HIGH_WATERMARK_FILE,
        checkpoints.LEADER_EPOCH_FILE,
        checkpoints.PARTITION_METADATA_FILE,
        DAMAGED_RANGES_FILE,
        GENERATION_FILE,
        WAYPOINT_FILE,
        DOUBTFUL_TAIL_FILE,
        *SEGMENT_SUFFIXES,
        *(kind.value for kind in Kind if kind.value),
        *(DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX, CUT_SUFFIX),
    ]

    assert [name for name in names if name not in TEXT] == []


def test_every_segment_file_is_known_to_the_tool() -> None:
    for suffix in SEGMENT_SUFFIXES:
        assert classify(f"/data/orders-0/{7:020d}{suffix}") is not None
