"""The batches of a piece of a log: where its bytes are at hand, its file is not read."""

from __future__ import annotations

import pytest

from ottla.broker.log.file_slice import FileSlice
from ottla.broker.share.batches import CutShort, Headers, batches_in, narrowed
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import HEADER_SIZE, stamp
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from ottla.testing.disk import SimDisk

START = 7


def _batches(count: int) -> bytes:
    """Of two records each, from offset 0 on."""
    batches = []
    for index in range(count):
        batch = memoryview(build_batch([Record(0, 0, b"k", b"v")] * 2))
        stamp(batch, 2 * index, 0)
        batches.append(bytes(batch))
    return b"".join(batches)


def _piece(known: bytes, stored: bytes) -> FileSlice:
    file = SimDisk().open("/piece", create=True)
    file.pwrite(bytes(START) + stored, 0)
    return FileSlice(file, START, len(stored), known)


def test_what_is_known_is_not_read() -> None:
    content = _batches(3)
    placed = batches_in(_piece(content, bytes(len(content))), first=0, span=100, below=100)
    stored = batches_in(_piece(b"", content), first=0, span=100, below=100)

    assert placed == stored
    assert [(one.found.first, one.found.last) for one in placed] == [(0, 1), (2, 3), (4, 5)]


def test_a_whole_piece_keeps_what_is_known() -> None:
    content = _batches(3)
    piece = _piece(content, content)
    placed = batches_in(piece, first=0, span=100, below=100)

    assert narrowed(piece, placed, 0, 5) is piece
    part = narrowed(piece, placed, 2, 3)
    assert part.known == b""
    assert part.read() == content[placed[1].position - START :][: placed[1].size]


def test_a_file_that_ends_within_a_header_is_told() -> None:
    content = _batches(2)
    for missing in range(len(content) // 2 - HEADER_SIZE + 1, len(content) // 2):
        piece = _piece(b"", content)
        piece.file.truncate(START + len(content) - missing)
        with pytest.raises(CutShort):
            batches_in(piece, first=0, span=100, below=100)


def test_headers_are_touched_as_far_as_there_are_any() -> None:
    """The log may be cut, or be gone, before the worker comes to it."""
    content = _batches(2)
    for size in range(len(content)):
        disk = SimDisk()
        file = disk.open("/piece", create=True)
        file.pwrite(content[:size], 0)

        Headers(disk, FileSlice(file, 0, len(content)), 0, 100).touch()
    disk.remove("/piece")
    with pytest.raises(FileNotFoundError):
        Headers(disk, FileSlice(file, 0, len(content)), 0, 100).touch()


OFFSET, DELTA = 7, 23
"""Where the last byte of a batch's offset is, and the first one of its last offset delta."""


@pytest.mark.parametrize(("at", "byte"), [(DELTA, 0x40), (DELTA, 0x80), (OFFSET, 90)])
@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_a_header_that_cannot_be_is_not_believed(damaged: int, at: int, byte: int) -> None:
    """A group would be done with all offsets that it claims. No CRC was looked at."""
    content = bytearray(_batches(3))
    content[damaged * len(content) // 3 + at] = byte
    piece = _piece(b"", bytes(content))
    if damaged == 0:
        with pytest.raises(KafkaError, match="no batch of its offset"):
            batches_in(piece, first=0, span=100, below=6)
        return
    placed = batches_in(piece, first=0, span=100, below=6)

    assert [one.found.last for one in placed] == [1, 3][:damaged]


def test_a_batch_that_goes_back_ends_the_piece() -> None:
    content = bytearray(_batches(3))
    content[2 * len(content) // 3 + OFFSET] = 3
    placed = batches_in(_piece(b"", bytes(content)), first=0, span=100, below=6)

    assert [one.found.last for one in placed] == [1, 3]
