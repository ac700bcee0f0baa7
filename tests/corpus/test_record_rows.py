"""The rows of records are well made, and a walk over the records answers as the rows say."""

from __future__ import annotations

import pytest

from ottla.broker.log.validation import RECORD_ERRORS_MAX
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.columns import inspect_records
from tests.corpus.records import ROWS, Row, Topic

NOW_MS = 1_700_000_000_000
WALKED = [row for row in ROWS if row.topic is Topic.COMPACTED and not row.sends[0].record_errors]


def test_names_are_told_apart() -> None:
    names = [row.name for row in ROWS]

    assert len(set(names)) == len(names)


def test_every_row_makes_its_bytes() -> None:
    for row in ROWS:
        for send in row.sends:
            records = send.records(NOW_MS)

            assert records is None or len(records) < 2_000_000


@pytest.mark.parametrize("row", WALKED, ids=lambda row: row.name)
def test_the_walk_refuses_what_compacted_topics_refuse(row: Row) -> None:
    (send,) = row.sends
    records = send.records(NOW_MS)
    assert records is not None

    with pytest.raises(KafkaError) as caught:
        inspect_records(records)

    assert caught.value.code is send.expected


def test_the_walk_finds_null_keys() -> None:
    found = 0
    for row in ROWS:
        send = row.sends[0]
        if row.topic is Topic.COMPACTED and send.record_errors:
            records = send.records(NOW_MS)
            assert records is not None
            found += 1

            null_keys = tuple(inspect_records(records).null_keys)
            assert null_keys[:RECORD_ERRORS_MAX] == send.record_errors
            assert send.expected is ErrorCode.INVALID_RECORD
    assert found == 3
