"""Requests of one connection that are sent without waiting: Produce alike and not, and others."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.messages.topics import CreateTopicsRequest
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from ottla.testing.embedded import BrokerThread
from tests.corpus.peer import Peer

REQUESTS = 600
FLUSHED, PAGE_CACHE = "flushed", "page-cache"
MADE = CreateTopicsRequest.CreatableTopicConfig("flush.messages", str(2**63 - 1))


def _batch(value: bytes, count: int) -> bytearray:
    records = [Record(offset=0, timestamp=1_700_000_000_000, key=None, value=value)] * count
    return bytearray(build_batch(records))


def _request(topic: str, indexes: list[int], records: bytearray, acks: int) -> ProduceRequest:
    data = [
        ProduceRequest.PartitionProduceData(index, memoryview(bytearray(records)))
        for index in indexes
    ]
    return ProduceRequest(None, acks, 30_000, [ProduceRequest.TopicProduceData(topic, b"", data)])


@pytest.mark.parametrize("seed", range(4))
def test_each_is_answered_in_its_turn_with_its_own_offsets(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    ends = {(topic, index): 0 for topic in (FLUSHED, PAGE_CACHE) for index in range(2)}
    expected: list[list[tuple[int, int]] | None] = []
    with BrokerThread(data_dir=tmp_path) as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with Peer(port) as peer:
            made = [
                CreateTopicsRequest.CreatableTopic(FLUSHED, 2, 1),
                CreateTopicsRequest.CreatableTopic(PAGE_CACHE, 2, 1, [], [MADE]),
            ]
            answer = peer.request(CreateTopicsRequest(made), 6)
            assert [topic.error_code for topic in answer.topics] == [0, 0]
            for _ in range(REQUESTS):
                topic = rng.choice((FLUSHED, PAGE_CACHE))
                indexes = [rng.randrange(2)] if rng.random() < 0.9 else [0, 1]
                count = rng.randrange(1, 4)
                records = _batch(bytes(rng.randrange(300)), count)
                kind = rng.choice(("good",) * 8 + ("corrupt", "unanswered", "metadata"))
                if kind == "metadata":
                    peer.send(MetadataRequest([]), 4)
                    expected.append(None)
                    continue
                acks = 0 if kind == "unanswered" else -1
                if kind == "corrupt":
                    records[-1] ^= 1
                peer.send(_request(topic, indexes, records, acks), 9, answered=acks != 0)
                offsets = []
                for index in indexes:
                    if kind == "corrupt":
                        offsets.append((int(ErrorCode.CORRUPT_MESSAGE), -1))
                    else:
                        offsets.append((0, ends[topic, index]))
                        ends[topic, index] += count
                if acks:
                    expected.append(offsets)
            for what in expected:
                answer = peer.receive()
                if what is None:
                    assert isinstance(answer, MetadataResponse)
                    continue
                assert isinstance(answer, ProduceResponse)
                parts = answer.responses[0].partition_responses
                assert [(part.error_code, part.base_offset) for part in parts] == what
