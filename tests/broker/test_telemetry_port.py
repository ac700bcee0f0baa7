"""Two brokers of one machine, of which nobody said where their metrics are to be."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.broker.broker import Broker as RunningBroker
from ottla.config.load import load
from ottla.testing.embedded import Broker
from tests.broker.small_client import client_of
from tests.log.events import RecordedEvents

DEFAULT_PORT = 9464
SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [-+0-9.einf]+')


@pytest.fixture
def taken() -> Iterator[None]:
    """Somebody has the default port: we, unless it is taken already."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            holder.bind(("127.0.0.1", DEFAULT_PORT))
            holder.listen()
        yield


@pytest.mark.usefixtures("taken")
async def test_the_second_one_serves_without_metrics(tmp_path: Path) -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    events = RecordedEvents()
    broker = RunningBroker(load(overrides=settings, environ={}).config, events=events)
    await broker.start()

    assert broker.telemetry_port is None
    assert "telemetry_not_served" in events.names
    await broker.stop()


@pytest.mark.usefixtures("taken")
async def test_a_port_that_was_asked_for_is_needed() -> None:
    broker = Broker(config={"ottla.telemetry.port": DEFAULT_PORT})
    with pytest.raises(OSError, match=r"Choose another ottla\.telemetry\.port"):
        await broker.start()


async def test_all_that_a_broker_measures_can_be_read() -> None:
    async with Broker() as broker, client_of(broker) as client:
        await client.create("t")
        await client.produce("t", b"v")
        lines = list(broker.running.measures.registry.lines())

    helped = {line.split(" ")[2] for line in lines if line.startswith("# HELP")}
    assert {"ottla_request_seconds", "ottla_log_end_offset", "ottla_groups"} <= helped
    assert {"ottla_coordinator_partitions", "ottla_share_records_in_flight"} <= helped
    samples = [line for line in lines if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in samples)
    assert len(samples) == len({line.rpartition(" ")[0] for line in samples})
