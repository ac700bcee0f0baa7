"""What a peer declares is held against the bytes that are there, before anything is made of it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.codec import decoder, encoder, message_classes
from ottla.protocol.errors import ProtocolError, ResponseTooLarge
from ottla.protocol.frame import encode_request, parse_request_header
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.groups import ConsumerProtocolSubscription, OffsetFetchRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.metadata_records import PartitionRecord
from ottla.protocol.messages.offsets import ListOffsetsRequest
from ottla.protocol.messages.producer_ids import DescribeProducersResponse
from ottla.protocol.schema import Message
from ottla.protocol.wire import REQUEST_ELEMENTS_MAX, RESPONSE_BYTES_MAX, write_uvarint
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


def encoded(message: Message, version: int) -> memoryview:
    out = bytearray()
    encoder(type(message), version)(message, out, [])
    return memoryview(out)


def _nested(topics: int, partitions: int) -> ListOffsetsRequest:
    partition = ListOffsetsRequest.ListOffsetsPartition()
    topic = ListOffsetsRequest.ListOffsetsTopic("", [partition] * partitions)
    return ListOffsetsRequest(topics=[topic] * topics)


def _named(partitions: int) -> OffsetFetchRequest:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic("", [0] * partitions)
    return OffsetFetchRequest("", topics=[topic])


def _by_id(topics: int) -> MetadataRequest:
    topic = MetadataRequest.MetadataRequestTopic(topic_id=bytes(16), name=None)
    return MetadataRequest(topics=[topic] * topics)


MAX = REQUEST_ELEMENTS_MAX
TOO_MANY = [
    (_nested(MAX // 4, 3), 1, _nested(MAX // 4, 4)),
    (_nested(MAX // 4, 3), 8, _nested(MAX // 4, 4)),
    (_named(MAX - 1), 5, _named(MAX)),
    (_named(MAX - 1), 7, _named(MAX)),
    (_by_id(MAX), 12, _by_id(MAX + 1)),
    (ConsumerProtocolSubscription([""] * MAX), 1, ConsumerProtocolSubscription([""] * (MAX + 1))),
]


@pytest.mark.parametrize(
    ("most", "version", "more"), TOO_MANY, ids=[f"{type(a).__name__}-{v}" for a, v, _ in TOO_MANY]
)
def test_the_elements_of_a_request_are_bounded_all_together(
    most: Message, version: int, more: Message
) -> None:
    decode = decoder(type(most), version)

    assert decode(encoded(most, version), 0)[0] == most
    with pytest.raises(ProtocolError, match=str(MAX)):
        decode(encoded(more, version), 0)


def test_the_tags_of_a_request_count_with_its_elements() -> None:
    data = bytearray(encoded(ApiVersionsRequest("a", "1"), 3))
    assert data.pop() == 0
    for count, fits in ((MAX, True), (MAX + 1, False)):
        tagged = data.copy()
        write_uvarint(tagged, count)
        tagged += b"\x63\x00" * count

        assert decodes(ApiVersionsRequest, 3, bytes(tagged)) is fits


def test_the_tags_of_a_header_are_bounded() -> None:
    frame, _ = encode_request(ApiVersionsRequest("a", "1"), 3, correlation_id=1, client_id="")
    start = bytearray(frame[4:14])
    write_uvarint(start, MAX + 1)
    with pytest.raises(ProtocolError, match=str(MAX)):
        parse_request_header(memoryview(start + b"\x63\x00" * (MAX + 1)))


def test_what_was_written_or_answered_is_read_however_much_it_is() -> None:
    many = list(range(MAX + 1))
    record = PartitionRecord(0, bytes(16), many, many)
    topic = MetadataResponse.MetadataResponseTopic(name="")
    response = MetadataResponse(topics=[topic] * (MAX + 1))

    assert decoder(PartitionRecord, 0)(encoded(record, 0), 0)[0] == record
    assert decoder(MetadataResponse, 1)(encoded(response, 1), 0)[0] == response


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


def test_an_answer_that_clients_would_not_read_is_not_written() -> None:
    """Nested or flat, by its whole size; a little over the bound at most is in memory then."""
    topic = MetadataResponse.MetadataResponseTopic(name="n" * 32_767)
    encode = encoder(MetadataResponse, 12)
    written = bytearray()
    encode(MetadataResponse(topics=[topic] * 3_000), written, [])
    assert len(written) > 98_000_000

    refused = bytearray()
    with pytest.raises(ResponseTooLarge, match=r"MetadataResponse v12 .* 104857600 bytes"):
        encode(MetadataResponse(topics=[topic] * 100_000), refused, [])
    assert len(refused) < RESPONSE_BYTES_MAX + 33_000

    state = DescribeProducersResponse.ProducerState(1, 0)
    partition = DescribeProducersResponse.PartitionResponse(0, active_producers=[state] * 20_000)
    answer = DescribeProducersResponse.TopicResponse("t", [partition] * 1_000)
    with pytest.raises(ResponseTooLarge):
        encoder(DescribeProducersResponse, 0)(
            DescribeProducersResponse(topics=[answer]), bytearray(), []
        )
