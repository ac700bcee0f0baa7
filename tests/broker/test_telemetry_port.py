"""Two brokers of one machine, of which nobody said where their metrics are to be."""

from __future__ import annotations

import asyncio
import errno
import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop

from ottla.broker.broker import Broker as RunningBroker
from ottla.broker.coordinator.outcome import Told
from ottla.broker.metadata.image import GROUP_RESOURCE
from ottla.broker.ports import File
from ottla.broker.readiness import PROBE_FILE
from ottla.config.load import load
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.topics import CreateTopicsRequest
from ottla.testing.embedded import Broker
from tests.broker.small_client import client_of
from tests.log.events import RecordedEvents

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "standard": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
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


async def test_a_host_that_is_not_of_this_machine_is_what_is_to_be_corrected() -> None:
    """192.0.2.1 is for documents (RFC 5737): no machine has it."""
    config: dict[str, str | int] = {
        "ottla.telemetry.host": "192.0.2.1",
        "ottla.telemetry.port": DEFAULT_PORT,
    }
    with pytest.raises(OSError, match="/metrics") as refused:
        async with Broker(config=config):
            pass

    assert refused.value.strerror == (
        "cannot serve /metrics on 192.0.2.1:9464: Cannot assign requested address."
        " Name a host of this machine by ottla.telemetry.host,"
        " or choose ottla.telemetry.port=-1 for none."
    )


@pytest.mark.parametrize("loop", LOOPS)
def test_the_port_of_a_listener_serves_no_metrics(loop: str) -> None:
    """Nobody listens there yet when it is bound for both."""

    async def scenario() -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        said = f"cannot serve /metrics on 127.0.0.1:{port}: the port is in use"
        with pytest.raises(OSError, match=said):
            async with Broker(port=port, config={"ottla.telemetry.port": port}):
                pass

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(scenario())


async def test_all_that_a_broker_measures_can_be_read() -> None:
    async with Broker() as broker, client_of(broker) as client:
        await client.create("t")
        await client.produce("t", b"v")
        lines = list(broker.running.measures.registry.lines())

    helped = {line.split(" ")[2] for line in lines if line.startswith("# HELP")}
    assert {"ottla_request_seconds", "ottla_log_end_offset", "ottla_groups"} <= helped
    assert {"ottla_coordinator_partitions", "ottla_share_records_in_flight"} <= helped
    assert {"ottla_group_lag", "process_open_fds", "ottla_setting_changes_total"} <= helped
    samples = [line for line in lines if line and not line.startswith("#")]
    assert 'ottla_log_start_offset{topic="t",partition="0"} 0' in samples
    assert 'ottla_connections_refused_total{limit="max.connections"} 0' in samples
    assert all(SAMPLE.fullmatch(line) for line in samples)
    assert len(samples) == len({line.rpartition(" ")[0] for line in samples})


async def test_what_clients_are_told_is_counted_by_api_and_error() -> None:
    async with Broker(config={"message.max.bytes": "200"}) as broker:
        async with client_of(broker) as client:
            await client.create("t")
            assert (await client.produce("t", b"v")).error_code == 0
            for _ in range(2):
                produced = await client.produce("t", bytes(300))
                assert produced.error_code == ErrorCode.MESSAGE_TOO_LARGE
            again = [CreateTopicsRequest.CreatableTopic("t", 1, 1)]
            await client.connection.request(CreateTopicsRequest(again), 7)
        samples = set(broker.running.measures.registry.lines())

    told = {line for line in samples if line.startswith("ottla_answer_errors_total")}
    assert told == {
        'ottla_answer_errors_total{api="PRODUCE",error="MESSAGE_TOO_LARGE"} 2',
        'ottla_answer_errors_total{api="CREATE_TOPICS",error="TOPIC_ALREADY_EXISTS"} 1',
    }


async def _get(broker: Broker, target: str) -> str:
    port = broker.running.telemetry_port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {target} HTTP/1.1\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode().partition("\r\n\r\n")[2]


def _tick(broker: Broker) -> None:
    """The next millisecond: what comes now comes later."""
    clock = broker.running.rooms.clock
    now_ms = clock.wall_ms()
    while clock.wall_ms() == now_ms:
        pass


async def test_a_broker_is_ready_while_a_write_would_be_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(path: str, *, create: bool = False) -> File:
        if path.endswith(PROBE_FILE):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return opened(path, create=create)

    async with Broker(config={"ottla.telemetry.port": 0}) as broker:
        assert await _get(broker, "/readyz") == "OK\n"
        opened = broker.running._disk.open
        with monkeypatch.context() as patched:
            patched.setattr(broker.running._disk, "open", full)
            assert "No space left on device" in await _get(broker, "/readyz")
        assert await _get(broker, "/readyz") == "OK\n"
        assert not list(Path(broker.data_dir).glob(f"*{PROBE_FILE}"))
        with monkeypatch.context() as patched:
            patched.setattr(type(broker.running.rooms.image), "is_active", lambda *_: False)
            assert await _get(broker, "/readyz") == "the broker is not in service yet\n"


async def test_partitions_may_come_and_go_while_the_page_is_made() -> None:
    async with Broker() as broker, client_of(broker) as client:
        await client.create("t")
        shown = []
        for line in broker.running.measures.registry.lines():
            shown.append(line)
            if line.startswith("ottla_log_start_offset{"):
                await client.create("u")

    assert 'ottla_log_size_bytes{topic="u",partition="0"} 0' in shown


async def test_events_are_those_of_groups_and_of_settings() -> None:
    alter = IncrementalAlterConfigsRequest.AlterConfigsResource
    setting = IncrementalAlterConfigsRequest.AlterableConfig(
        "consumer.session.timeout.ms", 0, "50000"
    )
    resources = [alter(GROUP_RESOURCE, name, [setting]) for name in ("g", "h")]
    async with Broker(config={"ottla.telemetry.port": 0}) as broker, client_of(broker) as client:
        groups = broker.running.rooms.groups
        groups.history.add([Told("group_stable", "g", "all have joined", {})], groups.now())
        _tick(broker)
        await client.connection.request(IncrementalAlterConfigsRequest(resources), 1)
        _tick(broker)
        groups.history.add([Told("group_empty", "g", "the last member left", {})], groups.now())
        of_all = [json.loads(line) for line in (await _get(broker, "/events")).splitlines()]
        of_one = [json.loads(line) for line in (await _get(broker, "/events?group=g")).splitlines()]
        metrics = await _get(broker, "/metrics")

    assert [(one["event"], one["group"]) for one in of_all] == [
        ("group_stable", "g"),
        ("setting_changed", "g"),
        ("setting_changed", "h"),
        ("group_empty", "g"),
    ]
    assert of_one == [one for one in of_all if one["group"] == "g"]
    assert 'ottla_setting_changes_total{resource="group"} 2\n' in metrics
