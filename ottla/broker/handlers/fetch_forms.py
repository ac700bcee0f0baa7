"""Answers to fetches of one partition, made without a message.

Who tails a log gets one answer after another that differ in the correlation id, three offsets and
the records. What is the same is kept once as a form, which the encoder of all answers has made; it
is there when a fetch is parked, before the record comes that somebody waits for.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.broker.replication.fetch_session import Wanted
from ottla.protocol.api import SERVED, ApiKey
from ottla.protocol.frame import response_encoder
from ottla.protocol.messages.fetch import FetchResponse

SINCE_VERSION: Final = 12
"""The first that is flexible. Older ones have another length before the records."""
RECORDS_BYTES_MAX: Final = (1 << 14) - 2
"""What has a length of two bytes at most. Logs keep less in memory."""
FORMS_MAX: Final = 4096
"""Of all clients; half a kilobyte each. When there are more, all are forgotten."""

_CORRELATION_ID: Final = 4
"""Where it stands in an answer, behind the length."""
_ENDS: Final = struct.Struct(">qqq")
_MARK: Final = _ENDS.pack(0x0123456789ABCDEF, 0x0FEDCBA987654321, 0x1122334455667788)
_RECORDS_MARK: Final = b"\x5a\x0f\xc3\x96"
_INT32: Final = struct.Struct(">i")

_pack_int32: Final = _INT32.pack_into
_pack_ends: Final = _ENDS.pack_into


class FetchForm:
    """What the answers of one kind have in common; nothing here changes."""

    __slots__ = ("_beginning", "_ending", "_ends")

    def __init__(self, version: int, wanted: Wanted, *, names_aborted: bool) -> None:
        """`names_aborted`: of a consumer that reads what is committed, and so is told of aborted
        transactions, of which there are none."""
        high_watermark, last_stable_offset, log_start_offset = _ENDS.unpack(_MARK)
        part = FetchResponse.PartitionData(
            wanted.request.partition,
            0,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            aborted_transactions=[] if names_aborted else None,
            records=_RECORDS_MARK,
        )
        topic = FetchResponse.FetchableTopicResponse(wanted.topic, wanted.topic_id, [part])
        encode = response_encoder(SERVED[ApiKey.FETCH], version)
        frame, _ = encode(0, FetchResponse(responses=[topic]))
        records = frame.rindex(_RECORDS_MARK)
        self._beginning = frame[: records - 1]
        """Up to the length of the records: one byte, for so few."""
        self._ending = bytes(frame[records + len(_RECORDS_MARK) :])
        self._ends = frame.rindex(_MARK, 0, records)

    def frame(
        self,
        correlation_id: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        records: bytes,
    ) -> bytearray:
        """The whole answer; of records there are RECORDS_BYTES_MAX at most."""
        assert len(records) <= RECORDS_BYTES_MAX
        out = self._beginning[:]
        _pack_int32(out, _CORRELATION_ID, correlation_id)
        _pack_ends(out, self._ends, high_watermark, last_stable_offset, log_start_offset)
        size = len(records) + 1  # an unsigned varint, as all lengths here
        if size > 0x7F:
            out.append(size & 0x7F | 0x80)
            size >>= 7
        out.append(size)
        out += records
        out += self._ending
        _pack_int32(out, 0, len(out) - _INT32.size)
        return out


class FetchForms:
    """The forms of a broker's clients."""

    __slots__ = ("_forms",)

    def __init__(self) -> None:
        self._forms: dict[tuple[int, bool, str, bytes, int], FetchForm] = {}

    def __len__(self) -> int:
        return len(self._forms)

    def of(self, version: int, wanted: Wanted, *, names_aborted: bool) -> FetchForm | None:
        """None for a version that has no forms."""
        if version < SINCE_VERSION:
            return None
        key = (version, names_aborted, wanted.topic, wanted.topic_id, wanted.request.partition)
        form = self._forms.get(key)
        if form is None:
            if len(self._forms) >= FORMS_MAX:
                self._forms.clear()
            form = FetchForm(version, wanted, names_aborted=names_aborted)
            self._forms[key] = form
        return form
