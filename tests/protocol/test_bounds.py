"""What a peer declares is held against the bytes that are there, before anything is made of it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.codec import decoder, message_classes
from ottla.protocol.errors import ProtocolError
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.schema import Message
from ottla.protocol.wire import write_uvarint
from tests.protocol.filling import GoldenFrame, golden_frames

INT32_MAX = (2**31 - 1).to_bytes(4, "big")
UVARINT_MAX = b"\xff\xff\xff\xff\x07"
DECLARATIONS = (INT32_MAX, UVARINT_MAX, b"\x7f\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x0f")
FRAMES = golden_frames()
LATEST = [(cls, cls.__schema__.versions.last) for cls in message_classes()]


def spoiled(data: bytes) -> Iterator[bytes]:
    """The frame with a huge length or count written over places all along it."""
    stride = max(1, len(data) // 40)
    for declaration in DECLARATIONS:
        for position in range(0, len(data) - len(declaration), stride):
            yield data[:position] + declaration + data[position + len(declaration) :]


def decodes(cls: type[Message], version: int, data: bytes) -> bool:
    """Whether it is a message; anything but a message or a ProtocolError escapes."""
    view = memoryview(data)
    try:
        _, position = decoder(cls, version)(view, 0)
    except ProtocolError:
        return False
    assert position <= len(data)
    return True


@pytest.mark.parametrize("frame", FRAMES, ids=str)
def test_a_declared_count_or_length_allocates_nothing(frame: GoldenFrame) -> None:
    cls, version, data = frame
    decoder(cls, version)
    tracemalloc.start()
    try:
        for bad in spoiled(data):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            decodes(cls, version, bad)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 64 * 1024 + 40 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("cls", "version"), LATEST, ids=[f"{cls.__name__}-{version}" for cls, version in LATEST]
)
def test_any_bytes_are_a_message_or_a_protocol_error(cls: type[Message], version: int) -> None:
    @settings(max_examples=15, deadline=None, database=None)
    @given(st.binary(max_size=120))
    def check(data: bytes) -> None:
        decodes(cls, version, data)

    check()


@settings(max_examples=300, deadline=None, database=None)
@given(st.data())
def test_one_changed_byte_is_a_message_or_a_protocol_error(data: st.DataObject) -> None:
    frame = data.draw(st.sampled_from(FRAMES))
    if not frame.data:
        return
    bad = bytearray(frame.data)
    bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    decodes(frame.cls, frame.version, bytes(bad))


def test_a_large_frame_is_not_copied_to_be_decoded() -> None:
    """A tag that nobody knows is skipped; a copy of 100 MB would also stop the loop."""
    size = 8 << 20
    frame = bytearray(b"\x01\x01\x01\x63")
    write_uvarint(frame, size)
    frame += bytes(size)
    decode = decoder(ApiVersionsRequest, 3)
    tracemalloc.start()
    try:
        decode(memoryview(frame), 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < size // 8
