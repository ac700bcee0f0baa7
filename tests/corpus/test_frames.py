"""Rows 1 to 15: what cannot be read ends its own connection, what can is answered."""

from __future__ import annotations

import pytest

from tests.corpus.frames import ROWS, Answered, Closed, Row
from tests.corpus.house import House

BYTES_ALONE = 5000
"""Of a long row this many bytes come one by one."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.number}-{row.name}")
def test_row(house: House, row: Row) -> None:
    with house.peer() as peer:
        peer.send_bytes(row.sent)
        if isinstance(row.expected, Closed):
            assert peer.is_closed()
        elif isinstance(row.expected, Answered):
            answer = peer.frame()

            assert answer.startswith(row.expected.begins)
            assert peer.works()
        else:
            # The connection that was served after it shows that it had its turn.
            with house.peer() as later:
                assert later.works()
            assert peer.is_silent()


ANSWERED = [row for row in ROWS if isinstance(row.expected, Answered)]


@pytest.mark.parametrize("row", ANSWERED[::7], ids=lambda row: row.name)
def test_row_byte_by_byte(house: House, row: Row) -> None:
    assert isinstance(row.expected, Answered)
    with house.peer() as peer:
        for byte in row.sent[:BYTES_ALONE]:
            peer.send_bytes(bytes((byte,)))
        peer.send_bytes(row.sent[BYTES_ALONE:])

        assert peer.frame().startswith(row.expected.begins)
        assert peer.works()
