"""A Fetch like the one before it: what is taken up again is what decoding would have given."""

from __future__ import annotations

import random

import pytest

from ottla.broker.handlers.fetch_repeats import BODY_BYTES_MAX, RepeatedFetch, remember
from ottla.protocol.codec import decoder
from ottla.protocol.frame import encode_request, parse_request_header
from ottla.protocol.messages.fetch import FetchRequest

VERSIONS = range(4, 19)
NAMED_UNTIL = 12
OFFSET = 0x0102_0304_0506_0708
OFFSETS = (0, 1, -1, OFFSET, 2**63 - 1, -(2**63), 0xFF, 1 << 32)


def fetch(version: int, offset: int = OFFSET, *, topic: str = "topic") -> FetchRequest:
    partition = FetchRequest.FetchPartition(
        7, fetch_offset=offset, partition_max_bytes=1 << 20, log_start_offset=-1
    )
    named = version <= NAMED_UNTIL
    one = FetchRequest.FetchTopic(
        topic if named else "", bytes(16) if named else b"0123456789abcdef", [partition]
    )
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 25, topics=[one])


def frame_of(
    request: FetchRequest, version: int, *, correlation_id: int = 1, client_id: str | None = "me"
) -> tuple[memoryview, int]:
    """A frame as a connection has it, and where its body begins."""
    out, _ = encode_request(request, version, correlation_id=correlation_id, client_id=client_id)
    frame = memoryview(bytearray(out))[4:]
    return frame, parse_request_header(frame)[4]


def remembered(request: FetchRequest, version: int) -> RepeatedFetch | None:
    """Of a request as it came, not as it was made."""
    frame, position = frame_of(request, version)
    decoded, _ = decoder(FetchRequest, version)(frame, position)
    return remember(frame, decoded, position=position, version=version)


def is_again(last: RepeatedFetch, frame: memoryview, position: int, version: int) -> bool:
    return last.again(frame, position=position, version=version) is not None


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_what_decoding_gives(version: int) -> None:
    last = remembered(fetch(version), version)
    assert last is not None
    for correlation_id, offset in enumerate(OFFSETS):
        frame, position = frame_of(fetch(version, offset), version, correlation_id=correlation_id)
        again = last.again(frame, position=position, version=version)
        assert again is not None
        assert again == decoder(FetchRequest, version)(frame, position)[0]
        assert again.topics[0].partitions[0].fetch_offset == offset


@pytest.mark.parametrize("version", VERSIONS)
def test_no_other_byte_may_differ(version: int) -> None:
    last = remembered(fetch(version), version)
    assert last is not None
    frame, position = frame_of(fetch(version), version)
    offset_at = bytes(frame).index(OFFSET.to_bytes(8, "big"))
    for at in range(position, len(frame)):
        frame[at] ^= 0x80
        is_of_offset = offset_at <= at < offset_at + 8
        assert is_again(last, frame, position, version) == is_of_offset, at
        frame[at] ^= 0x80
    assert is_again(last, frame, position, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_nor_the_length_the_header_or_the_version(version: int) -> None:
    last = remembered(fetch(version), version)
    assert last is not None
    frame, position = frame_of(fetch(version), version)
    assert not is_again(last, frame[:-1], position, version)
    assert not is_again(last, memoryview(bytes(frame) + b"\0"), position, version)
    assert not is_again(last, frame, position, version + 1)
    for client_id in (None, "you and I"):
        other, other_position = frame_of(fetch(version), version, client_id=client_id)
        assert not is_again(last, other, other_position, version)


def test_frames_of_any_length_are_compared_within_their_ends() -> None:
    version = 16
    last = remembered(fetch(version), version)
    assert last is not None
    frame, position = frame_of(fetch(version), version)
    random_bytes = random.Random(3)
    for size in range(len(frame) + 20):
        other = memoryview(bytearray(random_bytes.randbytes(size)))
        assert not is_again(last, other, min(position, size), version)


def test_an_offset_whose_bytes_stand_elsewhere_is_not_remembered() -> None:
    """-1 is the log start offset of who is no replica; the high watermark stands in a tag."""
    assert remembered(fetch(18, -1), 18) is None
    request = fetch(18, 5)
    request.topics[0].partitions[0].high_watermark = 5
    assert remembered(request, 18) is None
    request.topics[0].partitions[0].high_watermark = 6
    assert remembered(request, 18) is not None


def test_offset_bytes_within_a_name_are_not_taken_for_the_offset() -> None:
    offset = int.from_bytes(b"cdefghij", "big")
    assert remembered(fetch(11, offset, topic="abcdefghijkl"), 11) is None
    last = remembered(fetch(11, offset, topic="abcdefg"), 11)
    assert last is not None


def test_what_is_not_of_one_partition_alone_is_not_remembered() -> None:
    version = 11
    of_two = fetch(version)
    of_two.topics[0].partitions.append(FetchRequest.FetchPartition(8, fetch_offset=5))
    of_topics = fetch(version)
    of_topics.topics.append(FetchRequest.FetchTopic("u", partitions=[]))
    in_a_session = fetch(version)
    in_a_session.session_epoch = 0
    of_forgotten = fetch(version)
    of_forgotten.forgotten_topics_data = [FetchRequest.ForgottenTopic("u")]
    of_none = fetch(version)
    of_none.topics = []
    of_no_partition = fetch(version)
    of_no_partition.topics[0].partitions = []
    for request in (of_two, of_topics, in_a_session, of_forgotten, of_none, of_no_partition):
        assert remembered(request, version) is None


def test_a_long_one_is_not_remembered() -> None:
    version = 11
    short, long = fetch(version), fetch(version)
    frame, position = frame_of(short, version)
    spare = BODY_BYTES_MAX - (len(frame) - position)
    short.rack_id, long.rack_id = "r" * spare, "r" * (spare + 1)
    assert remembered(short, version) is not None
    assert remembered(long, version) is None
