"""Bytes from Kafka's own classes: equal to ours, and every prefix of them is refused."""

from __future__ import annotations

import pytest

from ottla.protocol.api import SERVED
from ottla.protocol.codec import decoder, encoder
from ottla.protocol.errors import ProtocolError
from tests.protocol.filling import GoldenFrame, filled, golden_frames

FRAMES = golden_frames()


@pytest.mark.parametrize("frame", FRAMES, ids=str)
def test_encoding_equals_kafkas(frame: GoldenFrame) -> None:
    out = bytearray()
    encoder(frame.cls, frame.version)(filled(frame.cls, frame.version), out, [])

    assert out.hex() == frame.data.hex()


@pytest.mark.parametrize("frame", FRAMES, ids=str)
def test_kafkas_bytes_decode_to_the_values_written(frame: GoldenFrame) -> None:
    message, position = decoder(frame.cls, frame.version)(memoryview(frame.data), 0)

    assert message == filled(frame.cls, frame.version)
    assert position == len(frame.data)


@pytest.mark.parametrize("frame", FRAMES, ids=str)
def test_every_prefix_is_a_protocol_error(frame: GoldenFrame) -> None:
    """The bytes behind a prefix are there, and complete the frame; they must not be read."""
    decode = decoder(frame.cls, frame.version)
    whole = memoryview(frame.data)
    for size in range(len(whole)):
        with pytest.raises(ProtocolError):
            decode(whole[:size], 0)


@pytest.mark.parametrize("frame", FRAMES, ids=str)
def test_bytes_before_and_behind_are_not_touched(frame: GoldenFrame) -> None:
    """A message stands anywhere in a buffer; what follows a complete body is left alone."""
    around = b"\xff" * 7
    view = memoryview(around + frame.data + around)
    message, position = decoder(frame.cls, frame.version)(view, 7)

    assert message == filled(frame.cls, frame.version)
    assert position == 7 + len(frame.data)


def test_every_served_version_has_its_frames() -> None:
    golden = {(frame.cls, frame.version) for frame in FRAMES}
    for api in SERVED.values():
        for version in range(api.min_version, api.max_version + 1):
            assert (api.request, version) in golden
            assert (api.response, version) in golden


def test_count_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{len(FRAMES)} golden frames of Kafka's classes compared")  # noqa: T201

    assert len(FRAMES) >= 250
