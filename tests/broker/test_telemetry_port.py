"""Two brokers of one machine, of which nobody said where their metrics are to be."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.broker.broker import Broker as RunningBroker
from ottla.config.load import load
from ottla.testing.embedded import Broker
from tests.log.events import RecordedEvents

DEFAULT_PORT = 9464


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
