"""Client quotas on a real broker: who is over waits, having been answered, and nobody else does."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from ottla.client.connection import Connection
from ottla.protocol.messages.configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ottla.protocol.messages.share_group import (
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.protocol.messages.share_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from ottla.protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from ottla.testing.embedded import Broker, BrokerThread
from tests.broker.small_client import SmallClient, client_of, values_of

Entry = AlterClientQuotasRequest.EntryData
Part = AlterClientQuotasRequest.EntityData
Op = AlterClientQuotasRequest.OpData
RATE = 100_000.0
GREEDY, OTHER = "greedy", "other"
CONNECTIONS = 30
"""Some are over the quota unless the machine stands still for twenty seconds."""


@asynccontextmanager
async def _connected(broker: Broker, client_id: str) -> AsyncIterator[SmallClient]:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    connection = await Connection.open(host, int(port), client_id=client_id)
    try:
        yield SmallClient(connection)
    finally:
        await connection.close()


async def _limit(client: SmallClient, key: str, value: float | None) -> None:
    """Sets a quota of the greedy one, or removes it."""
    op = Op(key, value or 0.0, value is None)
    entry = Entry([Part("client-id", GREEDY)], [op])
    answer = await client.connection.request(AlterClientQuotasRequest([entry]), 1)
    assert answer.entries[0].error_code == 0, answer.entries[0].error_message


def _produce(size: int, acks: int = -1) -> ProduceRequest:
    batch = build_batch([Record(0, 1_700_000_000_000, None, bytes(size))])
    data = ProduceRequest.PartitionProduceData(0, memoryview(batch))
    return ProduceRequest(
        None, acks, 5000, [ProduceRequest.TopicProduceData("t", partition_data=[data])]
    )


async def _wait_ms(client: SmallClient, size: int) -> int:
    """What an answered Produce of so many bytes is told to wait."""
    answer: ProduceResponse = await client.connection.request(_produce(size), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return answer.throttle_time_ms


async def _fill(client: SmallClient) -> None:
    """More than a window's worth for who reads it."""
    for _ in range(20):
        await _wait_ms(client, 10_000)


async def test_a_producer_over_its_rate_waits_and_another_does_not() -> None:
    loop = asyncio.get_running_loop()
    async with (
        Broker() as broker,
        _connected(broker, GREEDY) as greedy,
        _connected(broker, OTHER) as other,
    ):
        await other.create("t")
        assert await _wait_ms(greedy, 500_000) == 0, "there is no quota yet"
        await _limit(other, "producer_byte_rate", RATE)
        assert await _wait_ms(greedy, 80_000) == 0

        answered_s = loop.time()
        wait_ms = await _wait_ms(greedy, 60_000)
        assert 350 < wait_ms < 450, "140,000 bytes are 0.4 s more than one second's worth"
        muted = asyncio.create_task(greedy.connection.request(MetadataRequest([]), 12))
        while loop.time() - answered_s < wait_ms / 2000:
            assert await _wait_ms(other, 1000) == 0
            assert not muted.done()
        await muted
        assert loop.time() - answered_s >= wait_ms / 1000 - 0.01
        labels = '{quota="producer_byte_rate",user="",client_id="greedy"}'
        page = list(broker.running.measures.registry.lines())
        assert f"ottla_client_throttle_seconds_total{labels} {wait_ms / 1000}" in page

        await _limit(other, "producer_byte_rate", None)
        assert await _wait_ms(greedy, 500_000) == 0
        assert all(one._meter is None for one in broker.running.server.connections)


async def test_acks_0_has_no_answer_and_waits_all_the_same() -> None:
    loop = asyncio.get_running_loop()
    async with (
        Broker() as broker,
        _connected(broker, GREEDY) as greedy,
        _connected(broker, OTHER) as other,
    ):
        await other.create("t")
        await _limit(other, "producer_byte_rate", RATE)
        started_s = loop.time()

        greedy.connection.send_without_answer(_produce(130_000, acks=0), 9)
        await greedy.connection.request(MetadataRequest([]), 12)

        assert loop.time() - started_s >= 0.29


async def test_a_consumer_gets_a_window_at_once_and_waits_for_what_is_more() -> None:
    async with (
        Broker() as broker,
        _connected(broker, GREEDY) as greedy,
        _connected(broker, OTHER) as other,
    ):
        await other.create("t")
        await _fill(other)
        await _limit(other, "consumer_byte_rate", RATE)

        first = await greedy.fetch("t")
        everything = await other.fetch("t")

        assert _size(everything) > 200_000
        assert 50_000 < _size(first) <= RATE
        assert _size(await greedy.fetch("t", 9)) > 50_000


async def test_a_consumer_whose_quota_is_gone_gets_all_again() -> None:
    """Its requests differ in their offsets alone, and one of them was cut to the quota."""
    async with (
        Broker() as broker,
        _connected(broker, GREEDY) as greedy,
        _connected(broker, OTHER) as other,
    ):
        await other.create("t")
        await _fill(other)
        whole = _size(await greedy.fetch("t", 3))

        await _limit(other, "consumer_byte_rate", RATE)
        assert _size(await greedy.fetch("t", 4)) <= RATE
        await _limit(other, "consumer_byte_rate", None)

        assert whole > 170_000
        assert _size(await greedy.fetch("t", 3)) == whole


@pytest.mark.parametrize("is_limited_first", [True, False])
async def test_who_waits_for_a_record_gets_it_whenever_the_quota_came(
    is_limited_first: bool,
) -> None:
    async with (
        Broker() as broker,
        _connected(broker, GREEDY) as greedy,
        _connected(broker, OTHER) as other,
    ):
        await other.create("t")
        if is_limited_first:
            await _limit(other, "consumer_byte_rate", RATE)
        waiting = asyncio.ensure_future(greedy.wait("t", 0))
        await asyncio.sleep(0)
        assert not await other.values("t")  # it is parked now
        if not is_limited_first:
            await _limit(other, "consumer_byte_rate", RATE)
        assert not waiting.done()

        assert (await other.produce("t", b"v")).error_code == 0
        async with asyncio.timeout(10):
            assert values_of(await waiting) == [b"v"]


async def test_a_share_consumer_is_charged_as_any_consumer() -> None:
    async with (
        Broker() as broker,
        _connected(broker, GREEDY) as greedy,
        _connected(broker, OTHER) as other,
    ):
        (topic_id,) = await other.create("t")
        partition = ShareFetchRequest.FetchPartition(0)
        request = ShareFetchRequest(
            "g",
            "AAAAAAAAAAAAAAAAAAAAAA",
            max_wait_ms=100,
            min_bytes=1,
            max_records=500,
            batch_size=500,
            topics=[ShareFetchRequest.FetchTopic(topic_id, [partition])],
        )
        await _begin_group(greedy, topic_id)
        await _fill(other)
        await _limit(other, "consumer_byte_rate", RATE)

        sizes, waits = [], []
        for request.share_session_epoch in (0, 1):
            answer: ShareFetchResponse = await greedy.connection.request(request, 2)
            (part,) = answer.responses[0].partitions
            assert (answer.error_code, part.error_code) == (0, 0)
            sizes.append(len(cast(memoryview, part.records)))
            waits.append(answer.throttle_time_ms)

        assert all(size <= RATE for size in sizes)
        assert waits[0] == 0
        assert waits[1] > 0


async def _begin_group(client: SmallClient, topic_id: bytes) -> None:
    """Lets the group "g" share the topic from its begin."""
    key = f"g:{base64.urlsafe_b64encode(topic_id).rstrip(b'=').decode()}:0"
    await client.connection.request(FindCoordinatorRequest("", 2, [key]), 6)
    part = InitializeShareGroupStateRequest.PartitionData(0, 0, 0)
    topic = InitializeShareGroupStateRequest.InitializeStateData(topic_id, [part])
    request, error = InitializeShareGroupStateRequest("g", [topic]), -1
    async with asyncio.timeout(10):
        while error != 0:  # the coordinator's topic is being made
            answer: InitializeShareGroupStateResponse = await client.connection.request(request, 0)
            error = answer.results[0].partitions[0].error_code


def _size(part: FetchResponse.PartitionData) -> int:
    return len(cast(memoryview, part.records))


async def test_time_is_counted_for_every_request() -> None:
    async with (
        Broker() as broker,
        _connected(broker, GREEDY) as greedy,
        _connected(broker, OTHER) as other,
    ):
        await _limit(other, "request_percentage", 0.001)

        answer = await greedy.connection.request(MetadataRequest([]), 12)
        calm = await other.connection.request(MetadataRequest([]), 12)

        assert 0 < answer.throttle_time_ms <= 1000
        assert calm.throttle_time_ms == 0
        counted = broker.running.server.metrics
        assert (counted.throttles, counted.throttled_ms) == (1, answer.throttle_time_ms)


@pytest.mark.parametrize("is_metered", [False, True])
async def test_who_changes_too_many_topics_waits_and_others_do_not(is_metered: bool) -> None:
    """Eleven partitions at once, then one a second: twenty are nine seconds too many."""
    async with (
        Broker() as broker,
        _connected(broker, GREEDY) as greedy,
        _connected(broker, OTHER) as other,
    ):
        if is_metered:
            await _limit(other, "request_percentage", 100.0)
        await _limit(other, "controller_mutation_rate", 1.0)
        topic = CreateTopicsRequest.CreatableTopic("t", 20, 1)
        answer: CreateTopicsResponse = await greedy.connection.request(
            CreateTopicsRequest([topic]), 5
        )
        assert answer.topics[0].error_code == 0
        assert 1000 < answer.throttle_time_ms <= 9000

        muted = asyncio.create_task(greedy.connection.request(MetadataRequest([]), 12))
        await other.create("u")
        assert not muted.done()
        muted.cancel()


async def _limit_address(client: SmallClient, name: str | None, value: float | None) -> None:
    op = Op("connection_creation_rate", value or 0.0, value is None)
    entry = Entry([Part("ip", name)], [op])
    answer = await client.connection.request(AlterClientQuotasRequest([entry]), 1)
    assert answer.entries[0].error_code == 0, answer.entries[0].error_message


@pytest.mark.parametrize(
    ("name", "use_uvloop"), [(None, False), ("127.0.0.1", True), ("localhost", True)]
)
def test_an_address_that_connects_too_often_is_held_and_closed(
    name: str | None, use_uvloop: bool
) -> None:
    """Ten more connections are its share, and one more each second; who else comes has no answer.
    How long they are held is tested where time is virtual."""
    if use_uvloop:
        pytest.importorskip("uvloop")
    with BrokerThread(use_uvloop=use_uvloop) as broker:
        answered = asyncio.run(_connect_often(broker, name))

    assert answered.count(True) >= 10
    assert answered.count(False) >= 1


async def _connect_often(broker: BrokerThread, name: str | None) -> list[bool]:
    """Whether each of those that connected had an answer; the others were closed without one."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    first = await Connection.open(host, int(port), client_id=OTHER)
    await _limit_address(SmallClient(first), name, 1.0)
    rates = broker.running.server.connection_rates
    async with asyncio.timeout(5):
        while name == "localhost" and "127.0.0.1" not in rates._limits:
            await asyncio.sleep(0)
    opened = [await Connection.open(host, int(port), client_id=GREEDY) for _ in range(CONNECTIONS)]

    async def is_answered(connection: Connection) -> bool:
        try:
            await connection.request(MetadataRequest([]), 12)
        except (ConnectionError, asyncio.IncompleteReadError):
            return False
        return True

    answered = await asyncio.gather(*map(is_answered, opened))
    again = await first.request(MetadataRequest([]), 12)
    assert again.topics == []
    for connection in (first, *opened):
        await connection.close()
    return answered


@pytest.mark.parametrize("use_uvloop", [False, True])
def test_connections_beyond_the_rate_of_the_broker_are_served_in_their_turn(
    use_uvloop: bool,
) -> None:
    """Five at once, and then one each 200 ms; none is sent away."""
    if use_uvloop:
        pytest.importorskip("uvloop")
    config = {"max.connection.creation.rate": 5, "quota.window.num": 2}
    with BrokerThread(config=config, use_uvloop=use_uvloop) as broker:
        took_s = asyncio.run(_answered_in_turn(broker, 8))

    assert took_s >= 0.55


async def _answered_in_turn(broker: BrokerThread, count: int) -> float:
    """How long it takes until all that connected at once are answered."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    opened = [await Connection.open(host, int(port), client_id=OTHER) for _ in range(count)]
    answers = await asyncio.gather(*(one.request(MetadataRequest([]), 12) for one in opened))
    assert [answer.topics for answer in answers] == [[]] * count
    took_s = loop.time() - started_s
    for connection in opened:
        await connection.close()
    return took_s


async def test_the_rate_of_connections_can_be_changed_for_a_listener() -> None:
    async with Broker() as broker, _connected(broker, OTHER) as other:
        rates = broker.running.server.accept_rates
        assert not rates.enabled
        name = "listener.name.plaintext.max.connection.creation.rate"
        for value, code in (("0", 42), ("3", 0)):
            config = IncrementalAlterConfigsRequest.AlterableConfig(name, 0, value)
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource(4, "", [config])
            answer = await other.connection.request(IncrementalAlterConfigsRequest([resource]), 1)
            assert answer.responses[0].error_code == code, answer.responses[0].error_message

        assert repr(rates) == "<AcceptRates {'PLAINTEXT': 3}>"


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas_outlive_a_restart(tmp_path: Path, version: int) -> None:
    async with Broker(tmp_path) as broker, client_of(broker) as client:
        await _limit(client, "producer_byte_rate", RATE)
    async with Broker(tmp_path) as broker, client_of(broker) as client:
        request = DescribeClientQuotasRequest()
        answer: DescribeClientQuotasResponse = await client.connection.request(request, version)
        assert broker.running.server.quotas.enabled

    (entry,) = answer.entries or []
    assert [(one.entity_type, one.entity_name) for one in entry.entity] == [("client-id", GREEDY)]
    assert [(one.key, one.value) for one in entry.values] == [("producer_byte_rate", RATE)]
