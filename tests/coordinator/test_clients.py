"""subscribe() with three unmodified clients and a broker in this process; commits over kill -9."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.testing.embedded import Broker, BrokerThread
from tests.peers.servers import Ottla

RECORDS = 20
SECONDS_MAX = 30.0


def _write(bootstrap: str, topic: str = "t") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(topic, b"value %d" % number)
    assert producer.flush(SECONDS_MAX) == 0


def _settings(bootstrap: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
        **more,
    }


def _read(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < count:
        messages = consumer.consume(count - len(values), SECONDS_MAX)
        assert messages, f"nothing more after {len(values)} records"
        for message in messages:
            value = message.value()
            assert isinstance(value, bytes)
            values.append(value)
    return values


def test_confluent_kafka_goes_on_where_it_stopped() -> None:
    with BrokerThread() as broker:
        _write(broker.bootstrap_servers)
        first = Consumer(_settings(broker.bootstrap_servers))
        first.subscribe(["t"])
        seen = _read(first, RECORDS)
        first.commit(asynchronous=False)
        first.close()
        _write(broker.bootstrap_servers)
        second = Consumer(_settings(broker.bootstrap_servers))
        second.subscribe(["t"])
        again = _read(second, RECORDS)
        committed = second.committed([TopicPartition("t", 0)], SECONDS_MAX)
        second.close()

    assert len(set(seen)) == RECORDS
    assert seen == again
    assert committed[0].offset == RECORDS


def test_confluent_kafka_goes_on_by_the_consumer_protocol_and_by_a_pattern() -> None:
    """The same group by either protocol: first classic, then KIP-848."""
    with BrokerThread() as broker:
        _write(broker.bootstrap_servers)
        first = Consumer(_settings(broker.bootstrap_servers))
        first.subscribe(["t"])
        seen = _read(first, RECORDS)
        first.commit(asynchronous=False)
        first.close()
        _write(broker.bootstrap_servers)
        protocol = {"group.protocol": "consumer"}
        second = Consumer(_settings(broker.bootstrap_servers, **protocol))
        second.subscribe(["^t$"])
        again = _read(second, RECORDS)
        second.commit(asynchronous=False)
        committed = second.committed([TopicPartition("t", 0)], SECONDS_MAX)
        second.close()

    assert len(set(seen)) == RECORDS
    assert seen == again
    assert committed[0].offset == 2 * RECORDS


# kafka-python reads its schemas by functions that Python 3.11 calls old.
@pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")
# A connection that is being made when it closes: `KafkaNetSocket.connect` leaves its socket open,
# in a cycle, so that the warning comes when garbage is collected: here, and not in another test.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_kafka_python_subscribes() -> None:
    from kafka import KafkaConsumer

    with BrokerThread() as broker:
        _write(broker.bootstrap_servers)
        consumer = KafkaConsumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            consumer_timeout_ms=round(SECONDS_MAX * 1000),
        )
        values = [next(consumer).value for _ in range(RECORDS)]
        consumer.commit()
        consumer.close()
    del consumer
    gc.collect()

    assert len(set(values)) == RECORDS


async def test_aiokafka_members_share_the_partitions() -> None:
    async with Broker(config={"num.partitions": 4}) as broker:
        bootstrap = broker.bootstrap_servers
        await asyncio.get_running_loop().run_in_executor(None, _write, bootstrap)
        members = [
            AIOKafkaConsumer(
                "t", bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest"
            )
            for _ in range(2)
        ]
        async with asyncio.timeout(SECONDS_MAX):
            await asyncio.gather(*(member.start() for member in members))
            found = await members[0].getmany(timeout_ms=500)
        owned = [sorted(one.partition for one in member.assignment()) for member in members]
        history = broker.running.rooms.groups.history.of_group("g")
        await asyncio.gather(*(member.stop() for member in members))

    assert found is not None
    assert sorted(owned[0] + owned[1]) == [0, 1, 2, 3]
    assert {"group_rebalances", "group_generation", "group_stable"} <= {
        one.event for one in history
    }


@pytest.mark.crash
def test_commits_outlive_kill_9(tmp_path: Path) -> None:
    server = Ottla(tmp_path, group_initial_rebalance_delay_ms=0)
    try:
        server.start()
        _write(server.bootstrap)
        consumer = Consumer(_settings(server.bootstrap))
        consumer.subscribe(["t"])
        _read(consumer, RECORDS)
        consumer.commit(asynchronous=False)
        server.kill()
        server.start()
        # The group is as it was: nobody joins again, and the next records come.
        _write(server.bootstrap)
        _read(consumer, RECORDS)
        consumer.commit(asynchronous=False)
        server.kill()
        server.start()
        other = Consumer(_settings(server.bootstrap, **{"group.id": "g"}))
        committed = other.committed([TopicPartition("t", 0)], SECONDS_MAX)
        other.close()
        consumer.close()
    finally:
        server.close()

    assert committed[0].offset == 2 * RECORDS
