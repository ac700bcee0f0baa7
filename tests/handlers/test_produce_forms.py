"""Produce by forms: the same answers and the same log as without; nothing where it is unsure."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers.produce import handle_produce
from ottla.broker.handlers.produce_forms import ENDS_MAX, FORMS_MAX, FormAnswer, ProduceForms
from ottla.broker.handlers.table import Encoders
from ottla.protocol.api import SERVED, ApiKey
from ottla.protocol.codec import decoder
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frame import encode_request, parse_request_header
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from tests.handlers.parked import Answers
from tests.handlers.rooms import START_MS, House

PAGE_CACHE = {"flush.messages": str(2**63 - 1)}
VERSIONS = range(7, 14)
API = SERVED[ApiKey.PRODUCE]
ATTRIBUTES_HIGH_BYTE = 21


def batch(size: int = 100, *, sequence: int = -1, producer_id: int = -1) -> bytearray:
    """One batch of about `size` bytes, and of at least what its header takes."""
    record = Record(offset=0, timestamp=START_MS, key=None, value=bytes(max(size - 71, 0)))
    return bytearray(
        build_batch(
            [record],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
        )
    )


def produce(
    records: bytes | bytearray | None,
    *,
    topic: str = "t",
    topic_id: bytes = bytes(16),
    index: int = 0,
    acks: int = -1,
    timeout_ms: int = 30_000,
) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(
        index, None if records is None else memoryview(records)
    )
    return ProduceRequest(
        None, acks, timeout_ms, [ProduceRequest.TopicProduceData(topic, topic_id, [data])]
    )


def frame_of(
    request: ProduceRequest, version: int, correlation_id: int = 1, client_id: str | None = "me"
) -> memoryview:
    """What a connection finds behind the length: writable, as in its buffer."""
    out, _ = encode_request(request, version, correlation_id=correlation_id, client_id=client_id)
    return memoryview(bytearray(out))[4:]


class Side:
    """One broker as a connection drives it, with forms or without."""

    def __init__(self, house: House, *, with_forms: bool) -> None:
        self.house = house
        self.encoders = Encoders(API)
        self.forms = ProduceForms(house.rooms.replicas, self.encoders)
        self.ends: tuple[int, ...] = ()
        self.with_forms = with_forms
        self.served_by_form = 0

    def served(self, frame: memoryview) -> Any:
        """What the forms alone make of a frame."""
        version, correlation_id = struct.unpack_from(">hi", frame, 2)
        return self.forms.serve(frame, version, correlation_id, self.ends)

    def response(self, frame: memoryview) -> Any:
        """What the handler makes of it, which is learned from."""
        _, version, _, _, position = parse_request_header(frame)
        request, _ = decoder(ProduceRequest, version)(frame, position)
        if self.with_forms:
            self.ends = self.forms.learn(frame, request, version, self.ends)
        return handle_produce(self.house.session, request, version)

    def ask(self, frame: memoryview) -> bytes:
        """The answer, as its frame."""
        _, version, correlation_id, _, _ = parse_request_header(frame)
        answer = self.served(frame) if self.with_forms else None
        if answer is None:
            answer = self.response(frame)
        else:
            self.served_by_form += 1
        if isinstance(answer, bytearray):
            return bytes(answer)
        out, _ = self.encoders[version](correlation_id, answer)
        return bytes(out)


@asynccontextmanager
async def side(*, with_forms: bool = True, **configs: str) -> AsyncIterator[Side]:
    """A broker with the topics t, u and longer, of two partitions."""
    wanted = {**PAGE_CACHE, **{key.replace("_", "."): value for key, value in configs.items()}}
    async with House() as house:
        for name in ("t", "u", "longer"):
            await house.create(name, partitions=2, configs=wanted)
        yield Side(house, with_forms=with_forms)


def topic_id(one: Side, name: str) -> bytes:
    found: bytes = one.house.rooms.image.topics.by_name[name].topic_id
    return found


def log_end(one: Side, topic: str = "t", index: int = 0) -> int:
    partition = one.house.rooms.replicas.get(topic, index)
    assert partition is not None
    return partition.log.log_end_offset


@pytest.mark.parametrize("version", VERSIONS)
async def test_answers_are_those_of_the_handler(version: int) -> None:
    """Sizes about those where a length takes a byte more, and batches that are refused."""
    sizes = [71, 126, 127, 128, 129, 16_382, 16_383, 16_384, 16_385, 2**21 - 2, 2**21, 2**21 + 1]
    rng = random.Random(version)
    async with (
        side(max_message_bytes=str(2**22)) as ours,
        side(with_forms=False, max_message_bytes=str(2**22)) as theirs,
    ):
        for number in range(60):
            records = batch(sizes[number % len(sizes)] if number < 24 else rng.randrange(71, 400))
            kind = rng.randrange(8)
            if kind == 0:
                records[-1] ^= 1  # CRC
            elif kind == 1:
                records[7] = 1  # base offset
            name, index = rng.choice(("t", "u", "longer")), rng.randrange(2)
            answers = []
            for one in (ours, theirs):
                request = produce(
                    bytes(records), topic=name, topic_id=topic_id(one, name), index=index
                )
                answers.append(one.ask(frame_of(request, version, number)))
            ids = (topic_id(ours, name), topic_id(theirs, name))
            assert answers[0].replace(*ids) == answers[1]

        assert ours.served_by_form > 40
        for name in ("t", "u", "longer"):
            assert log_end(ours, name) == log_end(theirs, name) > 0


async def test_a_retried_batch_is_answered_once_more_and_not_appended() -> None:
    async with side() as ours, side(with_forms=False) as theirs:
        for one in (ours, theirs):
            for sequence in (0, 1, 1):
                request = produce(batch(producer_id=7, sequence=sequence))
                answer = one.ask(frame_of(request, 9))
            assert log_end(one) == 2
            if one is ours:
                expected = answer
        assert answer == expected
        assert ours.served_by_form == 2


@pytest.mark.parametrize("version", [7, 9, 12])
async def test_nothing_is_done_for_a_request_that_is_not_alike(version: int) -> None:
    async with side() as ours:
        ours.ask(frame_of(produce(batch()), version))
        assert ours.ends
        whole = frame_of(produce(batch()), version)
        records = batch()
        records[22] |= 0x10  # transactional
        two = produce(batch())
        two.topic_data[0].partition_data.append(
            ProduceRequest.PartitionProduceData(1, memoryview(batch()))
        )
        longer = memoryview(bytearray([*whole, 0]))
        others = {
            "partition": frame_of(produce(batch(), index=1), version),
            "topic": frame_of(produce(batch(), topic="u"), version),
            "acks": frame_of(produce(batch(), acks=1), version),
            "timeout": frame_of(produce(batch(), timeout_ms=1), version),
            "client": frame_of(produce(batch()), version, client_id="you"),
            "no client": frame_of(produce(batch()), version, client_id=None),
            "version": frame_of(produce(batch()), version + 1),
            "transactional": frame_of(produce(records), version),
            "null": frame_of(produce(None), version),
            "empty": frame_of(produce(b""), version),
            "no header": frame_of(produce(bytes(60)), version),
            "two partitions": frame_of(two, version),
            "longer": longer,
            **{f"cut at {at}": whole[:at] for at in range(8, len(whole))},
        }
        for what, frame in others.items():
            assert ours.served(frame) is None, what
        assert log_end(ours) == 1

        assert isinstance(ours.served(whole), bytearray)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
async def test_another_length_means_what_it_means_to_the_handler(width: int) -> None:
    """Of one byte, 0x80 more and the zero behind it are the same length written longer."""
    async with side() as ours, side(with_forms=False) as theirs:
        ours.ask(frame_of(produce(batch()), 9))
        (end,) = ours.ends
        for byte in range(256):
            frame = frame_of(produce(batch()), 9)
            length = bytes([0xFF] * (width - 1) + [byte])
            if length == bytes(frame[end : end + width]):
                continue
            frame[end : end + width] = length
            answer = ours.served(memoryview(bytearray(frame)))
            assert answer in (None, theirs.response(frame) if answer else None)
        assert log_end(ours) == 1


@pytest.mark.parametrize("behind", range(3))
async def test_what_has_tags_behind_the_records_is_not_learned(behind: int) -> None:
    """Those of the partition, the topic or the request; it is answered as ever."""
    async with side() as ours:
        frame = bytes(frame_of(produce(batch()), 9))
        at = len(frame) - 3 + behind
        tagged = frame[:at] + bytes([1, 100, 1, 0]) + frame[at + 1 :]
        ours.ask(memoryview(bytearray(tagged)))
        assert (ours.ends, log_end(ours)) == ((), 1)

        ours.ask(memoryview(bytearray(frame)))
        assert ours.ends
        assert ours.served(memoryview(bytearray(tagged))) is None


async def test_a_length_written_longer_than_need_be_is_not_learned() -> None:
    async with side() as ours:
        records = batch(100)
        frame = bytes(frame_of(produce(records), 9))
        at = frame.index(records) - 1
        padded = frame[:at] + bytes([frame[at] | 0x80, 0]) + frame[at + 1 :]
        ours.ask(memoryview(bytearray(padded)))
        assert (ours.ends, log_end(ours)) == ((), 1)
        for _ in range(2):
            ours.ask(memoryview(bytearray(padded)))
            ours.ask(memoryview(bytearray(frame)))
        assert log_end(ours) == 5


@pytest.mark.parametrize(
    ("topic", "acks", "version"),
    [("t", 0, 9), ("t", 2, 9), ("t", -1, 6), ("__consumer_offsets", -1, 9), ("nowhere", -1, 9)],
)
async def test_what_has_no_form(topic: str, acks: int, version: int) -> None:
    async with side() as ours:
        ours.response(frame_of(produce(batch(), topic=topic, acks=acks), version))
        assert (ours.ends, len(ours.forms)) == ((), 0)


@pytest.mark.parametrize(
    ("policy", "codec"), [("compact", "producer"), ("delete", "gzip"), ("delete", "uncompressed")]
)
async def test_a_topic_that_converts_has_no_form(policy: str, codec: str) -> None:
    async with side(cleanup_policy=policy, compression_type=codec) as ours:
        ours.response(frame_of(produce(batch()), 9))
        assert (ours.ends, len(ours.forms)) == ((), 0)


async def test_a_topic_deleted_and_made_again_is_looked_up_anew() -> None:
    async with side() as ours:
        for _ in range(2):
            ours.ask(frame_of(produce(batch()), 9))
        state = DeleteTopicsRequest.DeleteTopicState("t")
        await ours.house.ask(DeleteTopicsRequest([state]), 6)
        assert ours.served(frame_of(produce(batch()), 9)) is None
        response = ours.response(frame_of(produce(batch()), 9))
        (part,) = response.responses[0].partition_responses
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        await ours.house.create("t", configs=PAGE_CACHE)
        answer = ours.served(frame_of(produce(batch()), 9))
        decoded, _ = decoder(ProduceResponse, 9)(memoryview(answer), 9)
        assert decoded.responses[0].partition_responses[0].base_offset == 0


async def test_a_durable_write_waits_for_its_sync() -> None:
    async with side(flush_messages="1") as ours:
        ours.response(frame_of(produce(batch()), 9))
        answer = ours.served(frame_of(produce(batch()), 9))
        assert isinstance(answer, FormAnswer)
        line = Answers()
        answer.line = line
        assert not line.given
        await asyncio.wait_for(line.arrived.wait(), 10)
        decoded, _ = decoder(ProduceResponse, 9)(memoryview(answer.response), 9)
        (part,) = decoded.responses[0].partition_responses
        assert (part.error_code, part.base_offset) == (0, 1)
        partition = ours.house.rooms.replicas.get("t", 0)
        assert partition is not None
        assert partition.log.durable_end == 2


@pytest.mark.parametrize("stamp", ["CreateTime", "LogAppendTime"])
async def test_a_write_that_waits_is_told_as_by_the_handler_that_its_partition_is_gone(
    stamp: str,
) -> None:
    told = []
    for with_forms in (True, False):
        async with side(flush_messages="1", message_timestamp_type=stamp) as one:
            answer = one.response(frame_of(produce(batch()), 9))
            if with_forms:
                answer = one.served(frame_of(produce(batch()), 9))
                assert isinstance(answer, FormAnswer)
            answer.line = SimpleNamespace(answered=lambda _: None)
            partition = one.house.rooms.replicas.get("t", 0)
            assert partition is not None
            one.house.rooms.replicas.drop(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            told.append(answer.response)
    assert told[0] == told[1]
    (part,) = told[0].responses[0].partition_responses
    assert (part.error_code, part.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


async def test_forms_are_bounded_and_shared() -> None:
    async with side() as ours:
        other = Side(ours.house, with_forms=True)
        other.forms = ours.forms
        for number in range(FORMS_MAX + 1):
            client_id = f"{number:05}"
            ours.response(frame_of(produce(batch()), 9, client_id=client_id))
        assert len(ours.forms) == 1
        assert len(ours.ends) == 1
        for length in range(2 * ENDS_MAX):
            other.ask(frame_of(produce(batch()), 9, client_id="x" * length))
        assert len(other.ends) == ENDS_MAX
        before = len(ours.forms)
        other.ask(frame_of(produce(batch()), 9, client_id=client_id))
        assert len(ours.forms) == before


@pytest.mark.parametrize("with_forms", [True, False])
async def test_the_limit_of_a_request_is_for_acks_all(with_forms: bool) -> None:
    """Kafka has none with acks=1: who is told REQUEST_TIMED_OUT sends its records again."""
    async with side(with_forms=with_forms, flush_messages="1") as one:
        for acks in (1, -1):
            one.ends = ()
            for _ in range(2):  # the second by the form that the first has left
                frame = frame_of(produce(batch(), acks=acks, timeout_ms=0), 9)
                answer = one.served(frame) if with_forms else None
                waits = answer or one.response(frame)
                waits.line = SimpleNamespace(answered=lambda _: None)
                one.house._clock.advance(86_400_000)
                one.house.rooms.replicas.expire_waiters()

                code = None
                if waits.response is not None:
                    code = waits.response.responses[0].partition_responses[0].error_code
                assert code == (None if acks == 1 else ErrorCode.REQUEST_TIMED_OUT)
            assert (answer is not None) == with_forms
