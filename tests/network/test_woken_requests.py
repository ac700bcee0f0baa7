"""Requests that wait, and something goes wrong when they are woken: it is their own answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest

from ottla.protocol.api import ApiKey
from ottla.protocol.connection import ClientConnection
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from ottla.protocol.schema import Message
from ottla.testing.embedded import Broker

FETCH, PRODUCE, CREATE, DELETE = 12, 9, 5, 5
NEVER = str(2**63 - 1)
"""As flush.messages: whoever appends wakes the fetches itself."""


class Client:
    """One connection that pipelines; answers are taken in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = ClientConnection("client")

    @classmethod
    async def of(cls, broker: Broker) -> Client:
        host, port = broker.bootstrap_servers.rsplit(":", 1)
        return cls(*await asyncio.open_connection(host, int(port)))

    def send(self, request: Message, version: int) -> None:
        self._writer.write(self._frames.send(request, version))

    async def answer(self) -> Any:
        while (response := self._frames.next_response()) is None:
            data = await asyncio.wait_for(self._reader.read(65536), 10)
            assert data, "the connection was closed"
            self._frames.receive(data)
        return response.message

    async def ask(self, request: Message, version: int) -> Any:
        self.send(request, version)
        return await self.answer()

    async def append(self, topic: str) -> int:
        answer = await self.ask(_produce(topic), PRODUCE)
        return int(answer.responses[0].partition_responses[0].error_code)

    def close(self) -> None:
        self._writer.close()


@pytest.fixture(params=["1", NEVER], ids=["synced", "unsynced"])
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    """With two topics; a clean stop is part of each test."""
    async with Broker() as running:
        client = await Client.of(running)
        topics = [_topic(name, request.param) for name in ("t", "u")]
        answer = await client.ask(CreateTopicsRequest(topics, 5000), CREATE)
        assert [one.error_code for one in answer.topics] == [0, 0]
        client.close()
        yield running


def _topic(name: str, flush_messages: str) -> CreateTopicsRequest.CreatableTopic:
    config = CreateTopicsRequest.CreatableTopicConfig("flush.messages", flush_messages)
    return CreateTopicsRequest.CreatableTopic(name, 1, 1, configs=[config])


def _produce(topic: str) -> ProduceRequest:
    batch = build_batch([Record(0, 1_700_000_000_000, None, b"v")])
    part = ProduceRequest.PartitionProduceData(0, memoryview(batch))
    topics = [ProduceRequest.TopicProduceData(topic, partition_data=[part])]
    return ProduceRequest(None, -1, 5000, topics)


def _fetch(
    session_id: int,
    epoch: int,
    topics: tuple[str, ...] = (),
    *,
    offset: int = 0,
    wait_ms: int = 60_000,
    forgotten: tuple[str, ...] = (),
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchRequest.FetchTopic(
                name,
                partitions=[
                    FetchRequest.FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
                ],
            )
            for name in topics
        ],
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(name, partitions=[0]) for name in forgotten
        ],
    )


async def test_what_need_not_wait_is_answered_behind_what_does(broker: Broker) -> None:
    """By forms, from the second request for each topic on."""
    client = await Client.of(broker)
    kinds = {"waits": "1", "does-not": NEVER}
    topics = [_topic(name, flush_messages) for name, flush_messages in kinds.items()]
    await client.ask(CreateTopicsRequest(topics, 5000), CREATE)
    for _ in range(20):
        for name in kinds:
            client.send(_produce(name), PRODUCE)
    answers = []
    for _ in range(20 * len(kinds)):
        (topic,) = (await client.answer()).responses
        answers.append((topic.name, topic.partition_responses[0].base_offset))
    assert answers == [(name, offset) for offset in range(20) for name in kinds]
    assert len(broker.running.server.forms) == len(kinds)
    client.close()


async def test_fetches_that_differ_in_their_offset_alone_are_told_apart(broker: Broker) -> None:
    """They are decoded once; the client jumps about in the log, and waits at its end."""
    decoders = broker.running.server.table[ApiKey.FETCH].decoders
    decode, decoded = decoders[FETCH], 0

    def counted(frame: memoryview, position: int) -> Any:
        nonlocal decoded
        decoded += 1
        return decode(frame, position)

    decoders[FETCH] = counted
    client, producer = await Client.of(broker), await Client.of(broker)
    for _ in range(5):
        assert await producer.append("t") == 0
    size = len(_records(await client.ask(_sessionless(4), FETCH)))
    assert size > 0
    for offset in (0, 3, 1, 4, 2, 0, 0):
        records = _records(await client.ask(_sessionless(offset), FETCH))
        assert len(records) == (5 - offset) * size
        assert int.from_bytes(records[:8], "big") == offset
    for offset in (5, 6, 7):
        client.send(_sessionless(offset), FETCH)
        await asyncio.sleep(0)
        assert await producer.append("t") == 0
        records = _records(await client.answer())
        assert (len(records), int.from_bytes(records[:8], "big")) == (size, offset)
    answer = await client.ask(_sessionless(9), FETCH)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert decoded == 1
    other = await client.ask(_sessionless(0, topic="u", wait_ms=0), FETCH)
    assert other.responses[0].topic == "u"
    assert not _records(other)
    assert decoded == 2
    client.close()
    producer.close()


def _sessionless(offset: int, *, topic: str = "t", wait_ms: int = 60_000) -> FetchRequest:
    return _fetch(0, -1, (topic,), offset=offset, wait_ms=wait_ms)


def _records(answer: Any) -> bytes:
    ((part,),) = (topic.partitions for topic in answer.responses)
    return bytes(part.records or b"")


async def _begun(client: Client, *topics: str) -> int:
    """A session at the ends of the topics."""
    answer = await client.ask(_fetch(0, 0, topics, wait_ms=0), FETCH)
    assert answer.error_code == 0
    return int(answer.session_id)


def _taken(answer: Any) -> dict[str, int]:
    """First offset by topic, of what has records."""
    return {
        topic.topic: int.from_bytes(bytes(part.records[:8]), "big")
        for topic in answer.responses
        for part in topic.partitions
        if part.records
    }


async def test_a_partition_that_is_forgotten_while_a_fetch_waits_for_it(broker: Broker) -> None:
    """It was forgotten by a later fetch; the first one had asked for it."""
    waits, later, other = [await Client.of(broker) for _ in range(3)]
    session = await _begun(waits, "t", "u")
    waits.send(_fetch(session, 1), FETCH)
    await _parked(broker, 1, "u")
    later.send(_fetch(session, 2, forgotten=("t",)), FETCH)
    await _parked(broker, 2, "u")

    assert await other.append("t") == 0
    assert _taken(await waits.answer()) == {"t": 0}
    deleted = await other.ask(DeleteTopicsRequest(topic_names=["u"], timeout_ms=5000), DELETE)
    assert deleted.responses[0].error_code == 0
    (topic,) = (await later.answer()).responses
    assert (topic.topic, topic.partitions[0].error_code) == (
        "u",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    for client in (waits, later, other):
        client.close()


async def test_a_fetch_that_waits_is_answered_from_where_it_asked(broker: Broker) -> None:
    waits, later, other = [await Client.of(broker) for _ in range(3)]
    for _ in range(3):
        assert await other.append("t") == 0
    answer = await waits.ask(_fetch(0, 0, ("t",), offset=3, wait_ms=0), FETCH)
    waits.send(_fetch(answer.session_id, 1), FETCH)
    await _parked(broker, 1)
    later.send(_fetch(answer.session_id, 2, ("t",), offset=0), FETCH)
    assert _taken(await later.answer()) == {"t": 0}
    assert await other.append("t") == 0

    assert _taken(await waits.answer()) == {"t": 3}
    for client in (waits, later, other):
        client.close()


class BrokenOnce:
    """Stands for what cannot be read; who asks for it first meets a mistake of ours."""

    def __init__(self) -> None:
        self._asked = count()

    def __bool__(self) -> bool:
        if next(self._asked) == 0:
            raise LookupError("a mistake of ours")
        return False


async def test_what_goes_wrong_is_an_answer_and_nobody_elses(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails, waits, other = [await Client.of(broker) for _ in range(3)]
    sessions = [await _begun(client, "t", "u") for client in (fails, waits)]
    for client, session in zip((fails, waits), sessions, strict=True):
        client.send(_fetch(session, 1), FETCH)
        await _parked(broker, 1 if client is fails else 2)
    monkeypatch.setattr(broker.running.rooms, "unreadable", BrokenOnce())
    assert await other.append("t") == 0
    assert (await fails.answer()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert _taken(await waits.answer()) == {"t": 0}
    assert await other.append("t") == 0
    assert not _waiters(broker)
    assert not _waiters(broker, "u")
    assert await other.append("u") == 0
    assert broker.running.server.metrics.handler_errors == 1
    for client in (fails, waits, other):
        client.close()


def _waiters(broker: Broker, topic: str = "t") -> int:
    led = broker.running.replicas.get(topic, 0)
    assert led is not None
    return len(led.fetch_waiters)


async def _parked(broker: Broker, waiters: int, topic: str = "t") -> None:
    """So many fetches wait at a topic."""
    async with asyncio.timeout(10):
        while _waiters(broker, topic) < waiters:
            await asyncio.sleep(0)
