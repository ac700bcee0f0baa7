"""The hand-made batches of the raw client are batches to the package's own reader."""

from __future__ import annotations

from ottla.protocol.records.batch import check_crc, read_header
from ottla.protocol.records.record import iterate_records
from tests.peers.raw import batch, whole_batches

VALUES = [b"", b"short", b"long " * 100]


def test_a_batch_reads_back() -> None:
    made = batch(VALUES, timestamp=1234, producer_id=7, producer_epoch=1, sequence=40)
    header = read_header(made)
    records = list(iterate_records(memoryview(made)))

    assert check_crc(memoryview(made))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 40)
    assert (header.size, header.last_offset, header.max_timestamp) == (len(made), 2, 1234)
    assert [bytes(record.value or b"") for record in records] == VALUES


def test_a_cut_batch_is_left_for_the_next_fetch() -> None:
    made = batch(VALUES, timestamp=1)

    assert whole_batches(memoryview(made + made[:-1])) == (len(made), 3)
    assert whole_batches(memoryview(made[:-1])) == (0, -1)
