"""Rules of the compiler that no golden frame shows."""

from __future__ import annotations

import subprocess
import sys
import traceback

import pytest

from ottla.protocol.codec import decoder, encoder, main, message_classes
from ottla.protocol.errors import ProtocolError
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from ottla.protocol.schema import Message
from ottla.protocol.wire import Payload


class FileRange:
    """Stands for a slice of a file."""

    size = 300


def encoded(
    message: Message, version: int, payloads: list[tuple[int, Payload]] | None = None
) -> bytes:
    out = bytearray()
    encoder(type(message), version)(message, out, [] if payloads is None else payloads)
    return bytes(out)


def fetch_response(records: object) -> FetchResponse:
    partition = FetchResponse.PartitionData(1, aborted_transactions=None)
    partition.records = records  # type: ignore[assignment]
    topic = FetchResponse.FetchableTopicResponse("t", partitions=[partition])
    return FetchResponse(responses=[topic])


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_payload_is_left_out_and_named_with_its_place(version: int) -> None:
    payload = FileRange()
    payloads: list[tuple[int, Payload]] = []
    content = bytes(range(150)) * 2
    head = encoded(fetch_response(payload), version, payloads)
    whole = encoded(fetch_response(content), version)
    [(place, named)] = payloads

    assert named is payload
    assert head[:place] + content + head[place:] == whole


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_of_any_bytes_are_written(kind: type) -> None:
    assert encoded(fetch_response(kind(b"abc")), 12) == encoded(fetch_response(b"abc"), 12)


def test_records_are_a_writable_view_of_the_frame() -> None:
    partition = ProduceRequest.PartitionProduceData(0, memoryview(b"batch"))
    topic = ProduceRequest.TopicProduceData("t", partition_data=[partition])
    frame = bytearray(encoded(ProduceRequest(topic_data=[topic]), 9))
    request, _ = decoder(ProduceRequest, 9)(memoryview(frame), 0)
    records = request.topic_data[0].partition_data[0].records
    assert records is not None
    records[0] = ord("B")

    assert b"Batch" in frame


def test_unknown_tags_are_skipped() -> None:
    data = encoded(FetchRequest(), 12)
    assert data.endswith(b"\x00")
    tagged = data[:-1] + b"\x02" + b"\x63\x03abc" + b"\x63\x00"

    assert decoder(FetchRequest, 12)(memoryview(tagged), 0)[0] == FetchRequest()


def test_a_repeated_tag_is_accepted() -> None:
    data = encoded(FetchRequest(), 12)
    tagged = data[:-1] + b"\x02" + b"\x00\x02\x02a" * 2
    with pytest.raises(ProtocolError):
        decoder(FetchRequest, 12)(memoryview(data[:-1] + b"\x01\x00\x05\x02a"), 0)
    tagged = data[:-1] + b"\x02" + b"\x00\x02\x02a" + b"\x00\x02\x02b"

    assert decoder(FetchRequest, 12)(memoryview(tagged), 0)[0].cluster_id == "b"


def test_a_tag_whose_size_is_not_its_values_is_refused() -> None:
    data = encoded(FetchRequest(), 12)[:-1]
    for tag in (b"\x01\x00\x03\x02a\x00", b"\x01\x00\x01\x02a"):
        with pytest.raises(ProtocolError, match="tag 0 ends"):
            decoder(FetchRequest, 12)(memoryview(data + tag), 0)


def test_a_value_that_the_version_lacks_is_an_error_unless_it_may_be_dropped() -> None:
    with pytest.raises(ValueError, match="FetchResponse v4 has no session_id"):
        encoded(FetchResponse(session_id=3), 4)

    assert encoded(FetchResponse(error_code=3), 4) == encoded(FetchResponse(), 4)


def test_a_null_that_the_version_lacks_is_an_error() -> None:
    request = DeleteTopicsRequest(topic_names=[None])  # type: ignore[list-item]
    for message, version in ((MetadataRequest(topics=None), 0), (request, 5)):
        with pytest.raises(ValueError, match=f"v{version}"):
            encoded(message, version)


@pytest.mark.parametrize("version", [2, 7])
def test_a_value_out_of_range_is_an_error(version: int) -> None:
    topic = CreateTopicsRequest.CreatableTopic("t", num_partitions=2**31)
    with pytest.raises(ValueError, match="CreateTopicsRequest"):
        encoded(CreateTopicsRequest(topics=[topic]), version)


@pytest.mark.parametrize("version", [2, 7])
def test_a_string_above_32767_bytes_is_an_error(version: int) -> None:
    def request(size: int) -> CreateTopicsRequest:
        return CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic("x" * size)])

    data = encoded(request(32767), version)
    assert decoder(CreateTopicsRequest, version)(memoryview(data), 0)[0] == request(32767)
    with pytest.raises(ValueError, match=r"bytes, 32767 at most|format requires"):
        encoded(request(32768), version)


def test_strings_are_strict_utf_8() -> None:
    data = encoded(FetchRequest(rack_id="rack"), 12).replace(b"rack", b"\xff\xfe\xfd\xfc")
    with pytest.raises(ProtocolError, match="utf-8"):
        decoder(FetchRequest, 12)(memoryview(data), 0)


def test_a_version_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="ProduceRequest has no version 2"):
        decoder(ProduceRequest, 2)


def test_every_declared_version_takes_its_defaults() -> None:
    for cls in message_classes():
        for version in cls.__schema__.versions:
            data = encoded(cls(), version)
            assert decoder(cls, version)(memoryview(data), 0) == (cls(), len(data))


def test_the_source_is_seen_in_tracebacks() -> None:
    try:
        decoder(ApiVersionsResponse, 3)(memoryview(b""), 0)
    except ProtocolError as error:
        text = "".join(traceback.format_exception(error))

    assert "<ottla decode ApiVersionsResponse v3>" in text
    assert "unpack" in text


def test_the_source_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["Fetch", "12"]) == 0
    printed = capsys.readouterr().out

    for title in ("FetchRequest v12", "FetchResponse v12"):
        assert printed.count(f"# {title}") == 2


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["Fetch"], 2), (["Fetch", "x"], 2), (["Fetch", "\u00b2"], 2), (["No", "1"], 1)],
)
def test_a_wrong_command_line(
    arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == status
    assert capsys.readouterr().err


@pytest.mark.parametrize("name", ["produce", "PRODUCE", "Produce", "produceRequest"])
def test_a_name_is_found_in_whatever_case(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "9"]) == 0

    assert capsys.readouterr().out.startswith("# ProduceRequest v9\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["Produce", "99"], "Produce has no version 99: 3-13.\n"),
        (["producs", "9"], "no message is called producs. Did you mean Produce?"),
        (["Fetch"], "usage: python -m ottla.protocol.codec NAME VERSION"),
    ],
)
def test_what_cannot_be_printed_is_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments)

    assert capsys.readouterr().err.startswith(sentence)


def test_without_arguments_the_names_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert "Produce 3-13" in lines
    for line in lines:
        name, _, versions = line.partition(" ")
        assert main([name, versions.partition("-")[0]]) == 0, line


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = [sys.executable, "-m", "ottla.protocol.codec", "Produce", "9"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as printing:
        assert printing.stdout is not None
        assert printing.stderr is not None
        printing.stdout.close()
        said = printing.stderr.read()

    assert said == b""
    assert printing.returncode == 0
